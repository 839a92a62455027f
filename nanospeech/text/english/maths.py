"""Maths: sums of school books, where a dash is no range and a mark no exclamation."""

from __future__ import annotations

import re

# what is reckoned with stands before a difference or behind it: "7 × 8 - 6 ÷ 2", "10 - 3 + 2"
BEFORE = re.compile(r"(?:\b(?:times|divided by)\s+|[+*=]\s)\d[\d.,]*\Z")
BEHIND = re.compile(r"\d[\d.]*\s+(?:divided by|(?:times\s|[+*])\s*\d)")
AROUND = 40  # characters that are looked at before a dash


def _difference(m: re.Match) -> str:
    before = m.string[max(0, m.start() - AROUND) : m.start()]
    sums = BEFORE.search(before) or BEHIND.match(m.string, m.end())
    return " minus " if sums else m[0]


OPERATOR = r"\s?(?:[=+*/)]|- ?(?:\d|[a-z]\b)|times\b|divided\b)"
RULES = [
    (rf"(?:(?<=\d)|(?<=\b[nkmr]))!(?={OPERATOR})", lambda m: " factorial"),
    (r" - (?<=\d - )(?=\d)", _difference),
]
