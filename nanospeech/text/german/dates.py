"""German dates, years and decades."""

from __future__ import annotations

import re

from .nouns import starts_sentence
from .number_words import cardinal, ordinal, words, year
from .ordinals import before, behind, ending, stop

MONTHS = ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September")
MONTHS += ("Oktober", "November", "Dezember")
MONTH = "|".join(MONTHS)
DAY = r"(?:0?[1-9]|[12]\d|3[01])"
NUMBERED = r"(?:0?[1-9]|1[0-2])"
YEAR = r"(?:1\d\d\d|20\d\d)"
DASH = r" ?[-–] ?"
# nouns and units that a number of four digits counts; before others it is a year
THINGS = words(
    """Euro Dollar Franken Cent Menschen Einwohner Personen Mitarbeiter Männer Frauen Kinder
    Soldaten Stimmen Punkte Meter Kilometer Kilo Kilogramm Gramm Tonnen Liter Tage Stunden Minuten
    Jahre Seiten Wörter Mal mal Stück Quadratmeter Teilnehmer Besucher Schüler Zuschauer Häuser
    Wohnungen PS km kg m g t l"""
)
# what a day and a month stand behind; others may be a version, as in "besser als 2.9."
DATED = re.compile(
    r"(?:\A|[\n:(,;–-]|\b(?i:am|vom|bis|zum|den|dem|der|des|ab|seit|und|oder|dieser|spätestens|beim"
    r"|[a-z]+tag|mittwoch|sonnabend|termin|datum|stand|frist)) ?\Z"
)
COUNTED = rf"(?:(?:{'|'.join(sorted(THINGS))})\b|[°%€])"


def day_of(m: re.Match, day: str) -> str:
    """An ordinal for a day, with the ending that fits what stands before it."""
    found = ending(before(m), "")
    named = found == "e" and not re.search(r"\b[Dd]er \Z", before(m))  # "Stand 1. Januar"
    return ordinal(int(day), "er" if named else found)


def full(m: re.Match) -> str:
    """3.5.2024 with the month's name."""
    day, month, rest = m[1], m[2], m[3]
    said = f"{day_of(m, day)} {MONTHS[int(month) - 1]}"
    if not rest:
        ends = starts_sentence(behind(m).lstrip(" "))
        return m[0] if ends and not DATED.search(before(m)) else said + stop(m)
    number = int(rest)
    if len(rest) == 2:
        number += 2000 if number < 50 else 1900
    return f"{said} {year(number)}"


def iso(m: re.Match) -> str:
    """2024-05-03."""
    return f"{day_of(m, m[3])} {MONTHS[int(m[2]) - 1]} {year(int(m[1]))}"


def range_of_days(m: re.Match) -> str:
    """3.-5. Mai, 3. bis 5. Mai."""
    first = ending(before(m), "")
    return f"{ordinal(int(m[1]), first)} bis {ordinal(int(m[2]), 'en')} "


def decade(m: re.Match) -> str:
    """1990er, 68er, in den 80ern; "5er" as well."""
    n = int(m[1])
    return f"{year(n) if n > 999 else cardinal(n)}{m[2]}"


def short_range(m: re.Match) -> str:
    """1939-45."""
    if int(m[2]) <= int(m[1]) % 100:
        return m[0]
    return f"{year(int(m[1]))} bis {cardinal(int(m[2]))}"


RULES = [
    (
        rf"(?<![\d.,])({DAY}\. ?(?:{NUMBERED}\. ?(?:{YEAR}|\d\d)?|(?:{MONTH})(?: {YEAR})?)) ?[-–] ?"
        rf"(?={DAY}\. ?(?:{NUMBERED}\.|(?:{MONTH})\b))",
        lambda m: f"{m[1].rstrip()} bis ",
    ),
    (r"(?<=\d\.)/(?=\d{1,2}\. )", lambda m: " und "),
    (rf"\b({YEAR})-({NUMBERED})-({DAY})\b(?!-)", iso),
    (
        rf"(?<![\w/.,-])(?:(?<=: )|(?<=\bStand )|(?<=\bseit )|(?<=\bbis )|(?<=\bab )|(?=0))"
        rf"({NUMBERED})/({YEAR})(?![\d/]|[.,]\d)",
        lambda m: f"{MONTHS[int(m[1]) - 1]} {year(int(m[2]))}",
    ),
    (rf"(?<![\d/.,])({DAY})/({NUMBERED})/({YEAR})(?![\d/]|[.,]\d)", full),
    (rf"(?<![\d.,])({DAY})\. ?({NUMBERED})\. ?({YEAR}|\d\d)(?![\d.,]\d|\d)", full),
    (rf"(?<![\d.,])({DAY})\.({NUMBERED})\.()(?!\d)", full),
    (rf"(?<![\d.,])({DAY})\.?(?:{DASH}| bis )({DAY})\. ?(?=(?:{MONTH})\b)", range_of_days),
    (
        rf"(?<![\d.,])({DAY})\. ?(?=(?:{MONTH})\b)",
        lambda m: f"{day_of(m, m[1])} ",
    ),
    (r"['’]?(?<![\w.,])(1\d\d\d|20\d\d|[1-9]\d{0,2})(er[ns]?)\b", decade),
    (rf"\b({YEAR})/(\d\d)\b(?!\d)", lambda m: f"{year(int(m[1]))} {cardinal(int(m[2]))}"),
    (
        rf"(?<![\d.,])({YEAR}){DASH}({YEAR})(?![\d.,]\d|\d)",
        lambda m: f"{year(int(m[1]))} bis {year(int(m[2]))}",
    ),
    (rf"(?<![\d.,-])({YEAR})[-–](\d\d)(?![\w-]|[.,]\d)", short_range),
    (rf"(?<![\d.,€$£-])(1[1-9]\d\d)(?![\d.,]\d|\d| ?{COUNTED})", lambda m: year(int(m[1]))),
    (
        r"(?<![\d.,\w])(\d{1,3})\. ?(?=Aufl\.)",
        lambda m: f"{ordinal(int(m[1]), ending(before(m), 'Auflage'))} ",
    ),
]
