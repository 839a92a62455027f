"""German dates, times of day, years, decades and ordinals."""

from __future__ import annotations

import re

from .number_words import cardinal, ending_after, ordinal, stem, words, year

MONTHS = ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September")
MONTHS += ("Oktober", "November", "Dezember")
MONTH = "|".join(MONTHS)
DAY = r"(?:0?[1-9]|[12]\d|3[01])"
NUMBERED = r"(?:0?[1-9]|1[0-2])"
YEAR = r"(?:1\d\d\d|20\d\d)"
HOUR, MINUTE = r"(?:[01]?\d|2[0-4])", r"[0-5]\d"
DASH = r" ?[-–] ?"
ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
KINGS = words(
    """Friedrich Wilhelm Heinrich Karl Ludwig Otto Konrad Leopold Franz Joseph Josef Johannes
Paul Benedikt Pius Leo Gregor Urban Elisabeth Katharina Maria Georg Eduard Philipp Ferdinand
Maximilian Albrecht Rudolf Christian Gustav Peter Alexander Nikolaus Charles Napoleon
Clemens Innozenz Bonifatius Sixtus Viktor"""
)
# nouns and units that a number of four digits counts; before others it is a year
THINGS = words(
    """Euro Dollar Franken Cent Menschen Einwohner Personen Mitarbeiter Männer Frauen Kinder
    Soldaten Stimmen Punkte Meter Kilometer Kilo Kilogramm Gramm Tonnen Liter Tage Stunden Minuten
    Jahre Seiten Wörter Mal Stück Quadratmeter Teilnehmer Besucher Schüler Zuschauer Häuser
    Wohnungen PS km kg m g t l"""
)
COUNTED = rf"(?:(?:{'|'.join(sorted(THINGS))})\b|[°%€])"


def day_of(m: re.Match, day: str) -> str:
    """An ordinal for a day, with the ending that fits what stands before it."""
    return ordinal(int(day), ending_after(m.string[: m.start()]))


def full(m: re.Match) -> str:
    """3.5.2024 with the month's name."""
    day, month, rest = m[1], m[2], m[3]
    said = f"{day_of(m, day)} {MONTHS[int(month) - 1]}"
    if not rest:
        return said
    number = int(rest)
    if len(rest) == 2:
        number += 2000 if number < 50 else 1900
    return f"{said} {year(number)}"


def iso(m: re.Match) -> str:
    """2024-05-03."""
    return f"{day_of(m, m[3])} {MONTHS[int(m[2]) - 1]} {year(int(m[1]))}"


def clock(hour: str, minute: str | None, second: str | None = None) -> str:
    """A time of day: "vierzehn Uhr dreißig"."""
    said = hours(hour)
    if minute is not None and int(minute):
        said += f" {cardinal(int(minute))}"
    if second:
        said += f" und {cardinal(int(second))} Sekunden"
    return said


def hours(hour: str) -> str:
    """ "ein Uhr" """
    n = int(hour)
    return f"{'ein' if n == 1 else cardinal(n)} Uhr"


def roman(text: str) -> int:
    """XIV as 14; 0 for what is no such number."""
    values = [ROMAN[c] for c in text]
    total = sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))
    return total if 0 < total < 4000 else 0


def king(m: re.Match) -> str:
    """Ludwig XIV. as "Ludwig der Vierzehnte"."""
    word = stem(roman(m[2]))
    article = "die" if m[1] in ("Elisabeth", "Katharina", "Maria") else "der"
    ends = "." if not m.string[m.end() :].strip() else ""
    return f"{m[1]} {article} {word.capitalize()}e{ends}"


def range_of_days(m: re.Match) -> str:
    """3.-5. Mai, 3. bis 5. Mai."""
    ending = ending_after(m.string[: m.start()])
    return f"{ordinal(int(m[1]), ending)} bis {ordinal(int(m[2]), 'en')} "


def decade(m: re.Match) -> str:
    """1990er, 90er."""
    n = m[1]
    return f"{year(int(n)) if len(n) == 4 else cardinal(int(n))}er"


RULES = [
    (rf"\b({YEAR})-({NUMBERED})-({DAY})\b(?!-)", iso),
    (rf"(?<![\d.,])({DAY})\. ?({NUMBERED})\. ?({YEAR}|\d\d)(?![\d.,]\d|\d)", full),
    (rf"(?<![\d.,])({DAY})\.({NUMBERED})\.()(?!\d)", full),
    (rf"(?<![\d.,])({DAY})\.?(?:{DASH}| bis )({DAY})\. ?(?=(?:{MONTH})\b)", range_of_days),
    (
        rf"(?<![\d.,])({DAY})\. ?(?=(?:{MONTH})\b)",
        lambda m: f"{day_of(m, m[1])} ",
    ),
    (
        rf"\b({HOUR})[:.]({MINUTE})(?::({MINUTE}))? ?Uhr\b",
        lambda m: clock(m[1], m[2], m[3]),
    ),
    (
        rf"\b({HOUR}){DASH}({HOUR}) ?Uhr\b",
        lambda m: f"{cardinal(int(m[1]))} bis {hours(m[2])}",
    ),
    (rf"\b({HOUR}) ?Uhr\b(?: ({MINUTE})\b)?", lambda m: clock(m[1], m[2])),
    (
        rf"(?<![\d:.,])({HOUR}):({MINUTE})(?::({MINUTE}))?(?![\d:])(?! zu)",
        lambda m: clock(*m.groups()),
    ),
    (rf"\b({'|'.join(sorted(KINGS))}) ([IVXLC]+)\.", king),
    (
        r"\b(Kapitel|Teil|Band|Akt|Abschnitt|Klasse|Stufe) ([IVXLC]+)\b(?!\w)",
        lambda m: f"{m[1]} {cardinal(roman(m[2]) or 1)}",
    ),
    (
        r"(?<![\w.])([IVX]{2,})\. (?=[A-ZÄÖÜ])",
        lambda m: f"{ordinal(roman(m[1]) or 1, ending_after(m.string[: m.start()]))} ",
    ),
    (r"['’]?\b(1\d\d0|20\d0|[1-9]0)er\b", decade),
    (rf"\b({YEAR})/(\d\d)\b(?!\d)", lambda m: f"{year(int(m[1]))} {cardinal(int(m[2]))}"),
    (
        rf"(?<![\d.,])({YEAR}){DASH}({YEAR})(?![\d.,]\d|\d)",
        lambda m: f"{year(int(m[1]))} bis {year(int(m[2]))}",
    ),
    (rf"(?<![\d.,€$£-])(1[1-9]\d\d)(?![\d.,]\d|\d| ?{COUNTED})", lambda m: year(int(m[1]))),
    (
        r"(?<![\d.,\w])(\d{1,3})\. ?(?=Aufl\.)",
        lambda m: f"{ordinal(int(m[1]), ending_after(m.string[: m.start()]))} ",
    ),
    # an ordinal: a number with a stop that goes on; the end of a sentence is none
    (
        r"(?<![\d.,\w])(\d{1,3})\. (?=[a-zäöüß]|[A-ZÄÖÜ][\w-]*)",
        lambda m: ordinal_or_end(m),
    ),
    (
        r"(?<![\d.,\w])(\d{1,3})\.(?=,| ?[-–])",
        lambda m: ordinal(int(m[1]), ending_after(m.string[: m.start()])),
    ),
]
# before a number with a stop, these make an ordinal of it
DETERMINERS = words(
    """der die das dem den des am im vom zum beim zur ein eine einen einem einer eines jeder jede
    jedes jeden jedem sein seine seinen seinem seiner ihr ihre ihren ihrem ihrer mein meine meinen
    meinem unser unsere unserem dieser diese dieses diesem diesen kein keine ins ans bis ab seit und
    oder dessen deren"""
)


def ordinal_or_end(m: re.Match) -> str:
    """The ordinal, or the number as it is where its stop ends a sentence."""
    if not is_ordinal(m.string[: m.start()], m.string[m.end() :]):
        return m[0]
    return f"{ordinal(int(m[1]), ending_after(m.string[: m.start()]))} "


def is_ordinal(before: str, following: str) -> bool:
    """Whether a number with a stop is an ordinal: by the word before it, or a small letter behind.

    At the start of a text, or of a sentence, it is one too, as in "2. Auflage".
    """
    if following[:1].islower():
        return True
    found = before.split()
    if not found or re.search(r"[.!?:(]\W*\Z", before):
        return True
    return found[-1].lower().strip('("„») ') in DETERMINERS
