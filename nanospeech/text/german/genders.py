"""German words for people of any gender: Bürger*innen, Teilnehmer/in, der/die, jede/r."""

from __future__ import annotations

import re

PRONOUNS = "der|die|den|dem|des|das|er|sie|ihm|ihr|sein|ihre?|seine"


def both(m: re.Match) -> str:
    """ein/e, jede*r, neue:r: "ein oder eine", "jede oder jeder"."""
    again = m[1].lower() if DETERMINER.fullmatch(m[1]) else m[1]
    return f"{m[1]} oder {again}{m[2]}"


BARE = r"(?i:[dms]?ein|kein|ihr|unser)"
STRONG = r"(?i:[dms]?eine|keine|ihre|unsere|jede|diese|welche|andere)"
DETERMINER = re.compile(f"{BARE}|{STRONG}")
SIGN = r"[*:_/(]-?[a-zA-Z]"  # without it no rule matches
RULES = [
    # Lehrer*innen, Lehrer/-in, Kund:innen, Nachbar_in, Student(inn)en, Bewerber(innen)
    (
        r"\b([A-ZÄÖÜ][^\W\d_]{3,40})(?:[*:_]|/-?)(in\b|innen)",
        lambda m: m[1] + m[2],
    ),
    (r"(?<=[^\W\d_]{2})\((inn(?=\)en\b)|in(?:nen)?(?=\)(?!\w)))\)", lambda m: m[1]),
    (rf"\b((?i:{PRONOUNS}))[*:/]({PRONOUNS})\b", lambda m: f"{m[1]} oder {m[2]}"),
    (
        rf"\b({STRONG}|[A-ZÄÖÜa-zäöüß][a-zäöüß]{{2,30}}e)(?:[*:]|/-?)([rsnm])\b(?!\.)",
        both,
    ),
    (rf"\b({BARE})(?:[*:]|/-?)(e[rsnm]?)\b(?!\.)", both),
]
