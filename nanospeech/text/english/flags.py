"""Flags: options of commands, whose dashes are said: "--verbose", "-f", "tar -xzf".

A dash of prose ("he said --and left", "a suffix -s") is left to normalize.py.
"""

from __future__ import annotations

import re

from . import words

# words behind a dash of prose: older texts have no space there, "said --and left"
PROSE = "|".join(words(
    """a an and are as at be but by for from had has have he her his i if in is it its me my nor not
    of on or our she so than that the their then there they this though to was we were what when
    where which who whom with yes yet you your"""
))  # fmt: skip
COMMANDS = "|".join(words(
    """cat chmod chown commit cp curl df du find git grep kill ls mkdir mount mv pip ping ps python
    rm rsync scp sed sort ssh tail tar unzip wget zip"""
))  # fmt: skip
NAMES = "flag|option|switch|argument|parameter"
# what a single letter's dash is said behind: a word that flags follow, or another flag
GIVEN = re.compile(
    rf"(?:\b(?:{COMMANDS}|add|[Pp]ass|[Uu]se|using|with|without|(?:{NAMES})(?:e?s)?)"
    r"|(?<![^\s\"'(\[])--?[A-Za-z][\w-]*(?:,| or| and)?) [\"'(]?\Z"
)
CALLED = re.compile(rf"\b(?:{COMMANDS}) \Z")
NAMED = re.compile(rf"[\"']? (?:{NAMES})(?:e?s)?\b|(?:,| or| and) --")
BEFORE = 40  # characters that are looked at before a dash
OPENS = r"[^\s\"'(\[]"  # what no flag stands behind


def _short(m: re.Match) -> str:
    """-f, and -xzf behind the name of a command."""
    before = m.string[max(0, m.start() - BEFORE) : m.start()]
    single = GIVEN.search(before) or NAMED.match(m.string, m.end())
    if not (single if len(m[1]) == 1 else CALLED.search(before)):
        return m[0]
    letters = ("ay" if letter == "a" else letter for letter in m[1])
    return f"dash {' '.join(letters)}"


RULES = [
    (rf"-(?<!{OPENS}-)([A-Za-z]{{1,4}})(?=\d{{0,3}}(?:[\s\"')\],;:.!?]|\Z))", _short),
    # not one that another dash closes: "a man --tired of it-- left"
    (
        rf"--(?<!{OPENS}--)(?=[a-z])(?!(?:{PROSE})\b(?![-=]))(?![^.\n]{{0,80}}\w--(?!\w))",
        lambda m: "dash dash ",
    ),
]
