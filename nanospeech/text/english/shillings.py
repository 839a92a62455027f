"""Shillings: money of novels: pounds, shillings and pence, as in "£5 10s. 6d."."""

from __future__ import annotations

import re

from .dates import stop
from .number_words import cardinal

PENCE = r"(\d{1,2})( 1/2 ?)?d(?![\w'])(\.(?!\w))?"


def _pence(count: str, half: str | None) -> str:
    if half:
        return f"{cardinal(int(count))} pence halfpenny"
    return "one penny" if count == "1" else f"{cardinal(int(count))} pence"


def _shillings(count: str) -> str:
    return f"{cardinal(int(count))} shilling" + "s" * (count != "1")


def _both(m: re.Match) -> str:
    return f"{m[1] or ''}{_shillings(m[2])} and {_pence(m[3], m[4])}" + stop(m, m[5])


def _pounds(m: re.Match) -> str:
    """The shillings behind the pounds, which quantities.py reads."""
    return m[1] + _shillings(m[2]) + stop(m, m[3])


POUNDS = r"£\d{1,3}(?:,?\d{3})?,? "
RULES = [
    (rf"({POUNDS})(\d{{1,2}})s\.?,? {PENCE}", _both),
    (rf"(?<![\w.,])()(\d{{1,2}})s\.,? {PENCE}", _both),
    (rf"({POUNDS})(\d{{1,2}})s\b(?!')(\.(?!\w))?", _pounds),
    (rf"({POUNDS}){PENCE}", lambda m: m[1] + _pence(m[2], m[3]) + stop(m, m[4])),
]
