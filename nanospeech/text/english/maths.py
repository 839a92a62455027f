"""Maths: sums of school books, where a dash is no range, and units with powers below zero."""

from __future__ import annotations

import re

from . import any_of
from .units import LENGTHS, PER

# what is reckoned with stands before a difference or behind it: "7 × 8 - 6 ÷ 2", "10 - 3 + 2"
BEFORE = re.compile(r"(?:\b(?:times|divided by)\s+|[+*=]\s)\d[\d.,]*\Z")
BEHIND = re.compile(r"\d[\d.]*\s+(?:divided by|(?:times\s|[+*])\s*\d)")
AROUND = 40  # characters that are looked at before a dash


def _difference(m: re.Match) -> str:
    before = m.string[max(0, m.start() - AROUND) : m.start()]
    sums = BEFORE.search(before) or BEHIND.match(m.string, m.end())
    return " minus " if sums else m[0]


DIVISORS = {k: PER[k] for k in PER if k.isalpha()} | {"K": "kelvin", "d": "day", "y": "year"}
POWERS = {"2": "square", "3": "cubic"}


def _per(m: re.Match) -> str:
    """The last unit of "5 m s⁻¹" and "10 W m⁻²"."""
    unit = DIVISORS.get(m[1]) or LENGTHS[m[1]]
    if m[2] == "1":
        return f" per {unit}"
    return f" per {POWERS[m[2]]} {unit}" if m[1] in LENGTHS else f" per {unit} squared"


OPERATOR = r"\s?(?:[=+*/)]|- ?(?:\d|[a-z]\b)|times\b|divided\b)"
RULES = [
    (rf"(?:(?<=\d)|(?<=\b[nkmr]))!(?={OPERATOR})", lambda m: " factorial"),
    (
        rf" (?<=[\w%] )({any_of({**DIVISORS, **LENGTHS})})\^-(1|2|3(?<=m\^-3))(?!\d)",
        _per,
    ),
    # "Q1-Q2", "tables A1–A12"
    (
        r"\b([A-Z]{1,2})(\d{1,3})\s?-\s?(?=\1(\d{1,3})\b(?!-))",
        lambda m: f"{m[1]}{m[2]} to " if int(m[2]) < int(m[3]) else m[0],
    ),
    # how far something is: "step 3/5", "Retrying (2/4)"
    (
        r"\b((?:[Pp]age|[Pp]art|[Ss]tep|[Aa]ttempt|[Rr]etry(?:ing)?|[Ee]poch|[Bb]atch|[Ss]lide|[Tt]hread"
        r"|[Dd]ownload(?:ed|ing)) \(?)(\d{1,4})/(?=(\d{1,4})(?![\w/]|[.,]\d))",
        lambda m: m[0] if int(m[2]) > int(m[3]) else f"{m[1]}{m[2]} of ",
    ),
    (r" - (?<=\d - )(?=\d)", _difference),
    (r" - (?<=\d[n-z] - )(?=\d+\b(?! [a-z]{2}))", lambda m: " minus "),  # "11x - 10"
]
