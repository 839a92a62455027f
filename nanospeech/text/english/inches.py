"""Inches: feet and inches that are written as quotes, and the inches of what things measure."""

from __future__ import annotations

import re

from .number_words import NUMBER, amount, cardinal

SIDES = {"'": "foot", '"': "inch"}  # "a 5' x 7' rug"
ADJECTIVES = (
    "record|single|vinyl|screen|TV|pizza|disc|display|laptop|tablet|pipe|nails?|drill|wheels?|"
    "tall|long|wide|high|deep|thick|by|x|monitor"
)
QUOTED = 300  # characters that a quotation's beginning is looked for in
OPENING = re.compile(r'(?<![\w.,;:!?])"(?=\S)')
COUNTED = re.compile(
    r"[.,;:)]|\s*\Z| (?:of|from|in|at|on|above|below|to|and|or|apart|across|is|are|was|away|taller"
    r"|longer|wider|shorter|per|for|with|than|when|off|between|more|less|fell)\b"
)


def _height(m: re.Match) -> str:
    return f"{cardinal(int(m[1]))} foot {cardinal(int(m[2]))}"


def _sides(m: re.Match) -> str:
    side = SIDES[m[2]]
    first, second = (n if "/" in n else amount(n) for n in m.group(1, 3))
    return f"{first} {side} by {second} {side}"


def _inches(m: re.Match) -> str:
    """An 8" cake pan, unless a quotation ends there: "I have 9" he said."""
    before = m.string[max(0, m.start() - QUOTED) : m.start() + 1]
    last = before.rfind('"')
    if last >= 0 and OPENING.match(before, last):
        return m[0]
    if "/" in m[1]:  # a fraction, which quantities.py reads
        count, several = m[1], bool(set(m[1]) & set(" -"))
    else:
        count = " to ".join(amount(n) for n in re.split(" ?- ?", m[1]))
        several = m[1] != "1"
    noun = " inches" if several else " inch"
    return count + (noun if COUNTED.match(m.string, m.end()) else "-inch")


FRACTION = r"(?:\d{1,3}[ -])?\d{1,2}/\d{1,3}"
COUNT = rf"{FRACTION}|(?:\d{{1,2}} ?- ?)?\d{{1,2}}(?:\.\d)?"
SIDE = rf"{FRACTION}|{NUMBER}"
RULES = [
    (rf"(?<=x )({NUMBER}) in(?=[,;:)]|\.?\s*\Z|\. [A-Z])", lambda m: f"{m[1]} inches"),
    (r"(?<![\w.])(\d{1,2})'\s?(\d{1,2})(?:\"|''|(?!\w))", _height),
    (rf"(?<![\w./])({SIDE})(['\"])\s{{0,2}}(?:x|by|times)\s{{0,2}}({SIDE})\2", _sides),
    (r"(?<![\w.])(\d{1,2})'(?= (?:tall|long|wide|high|deep|by|x)\b)", lambda m: f"{m[1]} ft"),
    (rf"(?<![\w.])(\d{{1,3}})\"(?= (?:{ADJECTIVES})\b)", lambda m: f"{m[1]}-inch"),
    (rf"(?<![\w.,\"/])({COUNT})\"(?=(?: [A-Za-z\d]|[.,;:)]|\s*\Z))", _inches),
]
