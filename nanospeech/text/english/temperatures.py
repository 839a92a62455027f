"""Temperatures: 350F and 20C, where the letter is no name of a seat, a gate or a model."""

from __future__ import annotations

import re

SEATS = re.compile(
    r"(?i)\b(?:seat|gate|row|flat|apartment|apt|unit|class|grade|model|bus|stand|section)s?\b"
)
AROUND = 40  # characters that are looked at before a number


def _degrees(m: re.Match) -> str:
    return f"{m[3] or ''}°{m[2] or m[4]}"


def _weather(m: re.Match) -> str:
    """It was 90F outside, but not "the seat was 14F"."""
    before = m.string[max(0, m.start() - AROUND) : m.start()]
    return m[0] if SEATS.search(before) else f"{m[1]}°{m[2]}"


RULES = [
    # "180° C" and "20 deg. C"
    (r"(?<=\d) ?(?:° |deg\.? ?)([CF])\b(?!\.\w|[-'])", lambda m: f"°{m[1]}"),
    # "-5C" and "minus 5C", whose sign is no seat's, and "high 3C"
    (
        r"(\bminus |(?<![\w.)])-|\b[Hh]ighs?(?: of)? |\b[Ll]ows?(?: of)? )(\d{1,3}) ?([CF])"
        r"\b(?!\.\w|[-'])",
        lambda m: f"{m[1]}{m[2]}°{m[3]}",
    ),
    (
        r"(?<=\d)()\s?(?<=\d\.\d)([FC])\b|\b((?:[Aa]t|to|from|of|about|around|over|under|above|below"
        r"|reached|hit|minus) \d{2,3})\s?([FC])\b(?!\.\w|[-'])",
        _degrees,
    ),
    # one in each scale: "20C or 68F", "32F (0C)"
    (
        r"(?<![\w.,])(\d{1,3}) ?([CF])"
        r"(?=(?:,? (?:or|to) |\s?[/(]\s?)(?:about |around )?-?\d{1,3} ?(?!\2)[CF]\b)",
        _weather,
    ),
    (r"(?<![\w.,])(\d{1,3}) ?([CF])(?= to -?\d{1,3} ?\2\b)", _weather),
    (r"(?:(?<=°[CF] or )|(?<=°[CF] to )|(?<=°[CF] \())(\d{1,3}) ?([CF])\b", _weather),
    (
        r"\b((?:was|is|'s|be|were|been|feels like|only|nearly|almost) \d{2,3}) ?([CF])\b"
        r"(?=[.,;:!?)](?!\w)|\s*\Z|\s(?:and|at|but|by|here|in|inside|on|or|out|outside|there|this|today"
        r"|tonight|when|while|with|yesterday)\b)",
        _weather,
    ),
    (
        r"(?<![\w.,])(\d{1,3}) ?([CF])"
        r"(?= (?:outside|inside|outdoors|indoors|today|heat|oven|weather|water)\b)",
        _weather,
    ),
]
