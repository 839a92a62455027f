"""Numbers as other countries write them, 1.234,56 and 1 000 000, in the English form."""

from __future__ import annotations

import re


def _grouped(m: re.Match) -> str:
    """1.234,56 as it is written in English."""
    return f"{m[1].replace('.', ',')}.{m[2]}"


def _euros(m: re.Match) -> str:
    return f"€{_grouped(m)}"


def _spaced(m: re.Match) -> str:
    """1 000 000 as it is written in English."""
    return m[1].replace(" ", ",")


SPACED, ALONE = r"(?<![\w.,-])(?<!\d )", r"(?! ?\d)(?![\w-]|[.,]\d)"  # of a number with spaces
RULES = [
    (r"(?<![\w.,])(\d{1,3}(?:\.\d{3}){0,4}),(\d\d)\s?(?:€|EUR\b)", _euros),
    (r"(?<![\w.,])(\d{1,3}(?:\.\d{3}){1,4}),(\d\d)(?!\w|[.,]\d)", _grouped),
    (r"(?<![\w.,])(\d{1,3}),(\d{1,2})(?=\s?%)", lambda m: f"{m[1]}.{m[2]}"),
    (r"(?<=€)(\d{1,3}),(\d\d)(?!\w|[.,]\d)", _grouped),
    (r"(?<![\w.,])\d{1,3}(?:\.\d{3}){2}(?!\w|[.,]\d)", lambda m: m[0].replace(".", ",")),
    (rf"{SPACED}([1-9]\d?(?: \d{{3}}){{2,4}}){ALONE}", _spaced),
    (rf"{SPACED}([1-9]\d{{0,2}}(?: \d{{3}}){{0,3}} 000){ALONE}", _spaced),
]
