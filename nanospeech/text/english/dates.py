"""Dates: days, months, years, decades and the time of day."""

from __future__ import annotations

import re

from . import STARTS, words
from .number_words import cardinal, digits, fraction, number, ordinal, pair, several, year

MONTHS = words(
    """January February March April May June July August September October November December"""
)
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTH = (
    r"\b(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
DAY = r"(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"
YEAR = r"([12]\d{3})(?![\d,]\d|\d)"
HALF = r"([AaPp])\.?[Mm]\b(\.)?"
ZONE = r"(?:\s(ET|EST|EDT|CT|CST|CDT|MT|MST|MDT|PT|PST|PDT|GMT|UTC|BST|CET|CEST)\b)?"
BOOKS = words(
    """Genesis Exodus Leviticus Deuteronomy Joshua Judges Samuel Kings Chronicles Nehemiah Job Psalm
    Psalms Proverbs Ecclesiastes Isaiah Jeremiah Ezekiel Daniel Matthew Mark Luke John Acts Romans
    Corinthians Galatians Ephesians Philippians Colossians Thessalonians Timothy Hebrews Peter
    Revelation Quran Qur'an"""
)
SHORT_BOOKS = words(
    "Gen Lev Deut Josh Judg Neh Ps Prov Eccl Isa Jer Ezek Matt Rom Cor Gal Eph Col Thess Heb Rev"
)
HALVES = {"a": "ay em", "p": "pee em"}  # "A" alone would be read as the article
# what may follow "p.m." and begin with a capital without beginning a sentence
AFTER_TIME = re.compile(rf"\s+(?:{'|'.join([*DAYS, *MONTHS, 'Eastern', 'Pacific', 'Central'])})\b")
OPENS = re.compile(rf"[\"')]*\s*\Z|\s+[\"'(]?{STARTS}\b")
SENTENCE = re.compile(r"\s*\Z|\s+[\"'(]?[A-Z]|[\"']|\)(?![.,;:!?]| [a-z])")
# amounts after a month that are no days: "In May 20 percent"
NO_DAY = r"(?!\d|[:/%]|[.,]\d|\s?%|\s(?:percent|per|people|million|billion|thousand)\b)"

# what follows a fraction, not a date: "on Friday 2/3 of them", "1/2 inch", "5/4 time", "9/2 = 4.5"
NO_DATE = (
    r"(?![\w/]|[.,]\d|\)?\s?[-+*^=]|\s?[x×]\s|\s(?:of|the|times?|chance|odds|favou?rites?|against"
    r"|shot|as|an?|now|inch(?:es)?|miles?|cups?|hours?|full|empty|done|majority|page|parts|pounds?"
    r"|teaspoons?|tablespoons?|tsp|tbsp|[CFx])\b)"
)
# what is reckoned with, betted on, voted or counted before a number with a slash
RECKONED = words(
    """odds scored? scores scoring ratio fractions? equals? plus minus times add simplify divided?
    multiply multiplied calculate compute solve convert what's what.is factor value grew rose fell
    price size measures? split ruled ruling rated? vote voted votes question route unit flight room
    section chapter ages? beat wins? won lost sets? signature meter cut"""
)
COMPUTED = re.compile(
    rf"(?:\b(?i:{'|'.join(RECKONED)})\b[^.!?]{{0,30}}|\b(?i:an?|at) |[-+*/=^]\s?|\d )\Z"
)
SIMPLIFIED = re.compile(
    r"(?i)\b(?:simplify|reduce|convert|evaluate|multiply|fractions?|equals?|equivalent)\b[^.!?]{0,20}\Z"
)
BY = re.compile(r"\b(?:[Mm]ultipl|[Dd]ivid)[a-z]+ (?:it |this |that |them )?\Z")
DATED = re.compile(NO_DATE)
USUAL_PARTS = {2, 3, 4, 8, 16}


def stop(m: re.Match, dot: str | None) -> str:
    """An abbreviation's dot that also ends the sentence is kept."""
    return "." if dot and SENTENCE.match(m.string, m.end()) else ""


def month(text: str) -> str:
    return next(name for name in MONTHS if name.startswith(text[:3]))


def weekday(text: str) -> str:
    return next(name for name in DAYS if name.startswith(text[:3]))


def _date(day: int, number: int, of: int | None) -> str | None:
    if not (1 <= number <= 12 and 1 <= day <= 31):
        return None
    return f"{MONTHS[number - 1]} {ordinal(day)}" + ("" if of is None else f", {year(of)}")


def _iso(m: re.Match) -> str:
    said = _date(int(m[3]), int(m[2]), int(m[1]))
    return said + (", " if m[4] else "") if said else m[0]


def _years(m: re.Match) -> str:
    """2008-09 and 1914-18; where the second is smaller it is no year of the same century."""
    first, until = m[1] + m[2], m[3]
    return f"{year(int(first))} to {pair(until)}" if m[2] < until else m[0]


def _slashed(m: re.Match) -> str:
    """1/5/2024 in the American order, unless only the other can be."""
    first, second = int(m[1]), int(m[2])
    of = int(m[3]) if len(m[3]) == 4 else int(m[3]) + (2000 if int(m[3]) < 50 else 1900)
    return _date(second, first, of) or _date(first, second, of) or m[0]


def _short(m: re.Match) -> str:
    """12/25, where it can be no fraction or follows a preposition."""
    first, second = int(m[2]), int(m[3])
    if m[1] == "by " and BY.search(m.string[max(0, m.start() - 20) : m.start()]):
        return m[0]
    if not m[1] and SIMPLIFIED.search(m.string[max(0, m.start() - 40) : m.start()]):
        return m[0]
    said = _date(second, first, None) or (m[1] and _date(first, second, None))
    return m[1] + (said or m[0][len(m[1]) :])


def _until(m: re.Match) -> str:
    """9/2 to 10/4; both are fractions where they can be usual ones: from 1/4 to 1/2."""
    first, second, third, fourth = (int(n) for n in m.group(1, 2, 4, 5))
    link = "to" if m[3].strip() == "-" else m[3].strip()
    if COMPUTED.search(m.string[max(0, m.start() - 40) : m.start()]):
        return m[0]
    newer = first > 9 and third < 4 and second <= 31  # over the turn of a year: 12/22-1/2
    usual = {second, fourth} <= USUAL_PARTS or ((first, second) > (third, fourth) and not newer)
    if first < second and third < fourth and (usual or not DATED.match(m.string, m.end())):
        return f"{fraction(first, second)} {link} {fraction(third, fourth)}"
    since, until = _date(second, first, None), _date(fourth, third, None)
    return f"{since} {link} {until}" if since and until else m[0]


def _improper(m: re.Match) -> str:
    """10/3, where it is hardly more than three."""
    first, second = int(m[1]), int(m[2])
    if first <= second or COMPUTED.search(m.string[max(0, m.start() - 40) : m.start()]):
        return m[0]
    return _date(second, first, None) or m[0]


def _month_day(m: re.Match) -> str:
    name, first, link, second, comma, of = m.groups()
    if not 1 <= int(first) <= 31 or (second and not int(first) < int(second) <= 31):
        return m[0]
    said = f"{month(name)} {ordinal(int(first))}"
    if second:
        said += f" {'to' if '-' in link else link.strip()} {ordinal(int(second))}"
    return said + (f"{comma or ''} {year(int(of))}" if of else comma or "")


def _day_month(m: re.Match) -> str:
    the, day, name, comma, of = m.groups()
    if not 1 <= int(day) <= 31:
        return m[0]
    said = f"{the or 'the '}{ordinal(int(day))} of {month(name)}"
    return said + (f"{comma or ''} {year(int(of))}" if of else _ending(m, name in MONTHS))


def _dashed(m: re.Match) -> str:
    """3-Jan-2024 as 3 Jan 2024."""
    of = m[3] or ""
    of = ("20" if int(of) < 50 else "19") + of if len(of) == 2 else of
    return f"{m[1]} {month(m[2])} {of}".rstrip() + _ending(m)


def _days_month(m: re.Match) -> str:
    """12-14 May."""
    first, last, name, comma, of = m.groups()
    if not 1 <= int(first) < int(last) <= 31:
        return m[0]
    said = f"the {ordinal(int(first))} to the {ordinal(int(last))} of {month(name)}"
    return said + (f"{comma or ''} {year(int(of))}" if of else _ending(m, name in MONTHS))


def _ending(m: re.Match, whole: bool = False) -> str:
    """Keeps the dot after a month or a weekday if it ends the sentence, as after a full name."""
    return "." if m[0][-1] == "." and (whole or OPENS.match(m.string, m.end())) else ""


def _weekdays(m: re.Match) -> str:
    """Mon-Fri and Sat & Sun."""
    link = {"-": "to", "&": "and"}.get(m[2].strip(), m[2].strip())
    return f"{weekday(m[1])} {link} {weekday(m[3])}{_ending(m, '.' not in m[0][:-1])}"


def _weekday_list(m: re.Match) -> str:
    """Mon/Wed/Fri."""
    *first, last = map(weekday, m[0].split("/"))
    return f"{', '.join(first)} and {last}"


def _time(m: re.Match) -> str:
    hour, minute, second, half, dot, zone = m.groups()
    if int(hour) > 24 or int(minute) > 59:
        return m[0]
    o_clock = " o'clock" if 0 < int(hour) < 13 else " hundred"
    past = f" {pair(minute)}" if minute != "00" else "" if half else o_clock
    if second and second != "00":
        past = f" {pair(minute) if minute != '00' else 'oh oh'} {pair(second)}"
    return cardinal(int(hour)) + past + _half(m, half, dot, zone)


def _stopped(m: re.Match) -> str:
    """3:15.17 and 1:03:15.2, as a watch shows them."""
    hour, minute, second, part = m.groups()
    minute = pair(minute) if hour and len(minute) == 2 else number(minute)
    hour = f"{number(hour)} " if hour else ""
    return f"{hour}{minute} {pair(second)} point {digits(part)}"


def _hour(m: re.Match) -> str:
    hour, minute, half, dot, zone = m.groups()
    if not 1 <= int(hour) <= 12:
        return m[0]
    past = f" {pair(minute)}" if minute and minute != "00" else ""
    return cardinal(int(hour)) + past + _half(m, half, dot, zone)


def _half(m: re.Match, half: str | None, dot: str | None, zone: str | None) -> str:
    end = f" {HALVES[half.lower()]}" if half else ""
    if zone:
        return end + " " + " ".join(zone)
    return end + ("" if AFTER_TIME.match(m.string, m.end()) else stop(m, dot))


def _verse(m: re.Match) -> str:
    """John 3:16 and Matthew 5:3-12."""
    whole, short, chapter, verse, last = m.groups()
    book = whole or next(name for name in BOOKS if name.startswith(short))
    said = f"{book} {cardinal(int(chapter))} {cardinal(int(verse))}"
    return said + (f" to {cardinal(int(last))}" if last else "")


def _military(m: re.Match) -> str:
    hour = pair(m[1]) if m[1] != "00" else "zero"
    said = f"{hour} {pair(m[2]) if m[2] != '00' else 'hundred'}"
    return said + (" hours" if m[3] else "")


def _decade(m: re.Match) -> str:
    return several(year(int(m[1])) if len(m[1]) == 4 else cardinal(int(m[1]))).removeprefix("one ")


def _lasting(m: re.Match) -> str:
    """1h30m and 5m 20s as 1 h 30 min and 5 min 20 sec, which quantities.py reads."""
    parts = zip(m.groups(), ("h", "min", "sec"))
    return " ".join(f"{value} {unit}" for value, unit in parts if value and value != "00")


def _dotted(m: re.Match) -> str:
    """25.12.2024, which is written with the day first; the other order where only that can be."""
    first, second, of = int(m[1]), int(m[2]), int(m[3])
    return _date(first, second, of) or _date(second, first, of) or m[0]


RULES = [
    (rf"{MONTH}(?= '\d\d\b)", lambda m: month(m[1])),
    (rf"\b{DAY}\.?(?= \d{{1,2}}(?:st|nd|rd|th)\b)", lambda m: weekday(m[1])),
    (r"(?<![\w.,])(\d{1,3})h ?(\d{1,2})m(?:in)?(?: ?(\d{1,2})s)?(?!\w)", _lasting),
    (r"(?<![\w.,])(\d{1,3})h(\d\d)(?!\w)", _lasting),
    (r"(?<![\w.,])()(\d{1,3})m(?:in)? ?(\d{1,2})s(?!\w)", _lasting),
    (r"(?<=\d:\d\d)(?:\.\d{1,9})?Z\b", lambda m: " UTC"),
    (
        rf"\b{DAY}\.?(?=,? (?:\d{{1,2}}(?:st|nd|rd|th)? {MONTH}|{MONTH} \d|\d{{1,2}}/\d))",
        lambda m: weekday(m[1]),
    ),
    (r"(?<![\w./-])(\d{1,2})\.(\d{1,2})\.((?:19|20)\d\d)(?![\w/-]|\.\d)", _dotted),
    (r"(?<![\w/.])((?:19|20)\d\d)/(\d\d?)/(\d\d?)()(?![\w/]|\.\d)", _iso),
    (r"(?<![\w/.])((?:19|20)\d\d)\.(\d\d)\.(\d\d)()(?![\w/]|\.\d)", _iso),
    (r"(?<![\w/.-])(\d{1,2})-(\d{1,2})-((?:19|20)\d\d)(?![\w/-]|\.\d)", _slashed),
    (r"(?<![\w-])(\d{4})-(\d\d)-(\d\d)(?:(T)(?=\d\d:)|(?![\w-]))", _iso),
    (r"(?<![\w/])(\d{1,2})/(\d{1,2})/(\d{4}|\d\d)(?![\w/])", _slashed),
    (
        rf"(?<![\w.,:/$-])(\d{{1,2}} {MONTH}(?: {YEAR})?) ?- ?(?=\d{{1,2}} {MONTH})",
        lambda m: m[1] + " to ",
    ),
    (r"(?<![\w,.-])([12]\d)(\d\d)-(\d\d)(?![\w-]|[.,]\d)", _years),
    (r"(?<![\w/])9/11(?![\w/])", lambda m: "nine eleven"),
    (r"(?<![\w/-])24[/-]7(?![\w/-])", lambda m: "twenty-four seven"),
    (
        r"(?<![\w/.,-])(?<!\d )(\d{1,2})/(\d{1,2})(\s?-\s?| to | through | thru | until )"
        r"(\d{1,2})/(\d{1,2})(?![\w/]|[.,]\d|\s?=)",
        _until,
    ),
    (
        r"\b((?:[Oo]n|[Bb]y|[Uu]ntil|[Ss]ince|[Ff]rom|[Dd]ated|[Bb]efore|[Aa]fter) )"
        r"(\d{1,2})/(\d{1,2})(?![\w/])",
        _short,
    ),
    (r"(?<![\w/])()(1[0-2]|0?[1-9])/(1[1357-9]|2[1-9]|3[01])(?![\w/])", _short),
    (
        rf"\b((?:{'|'.join(DAYS)}|[Dd]ue|[Ee]nd(?:s|ed|ing)?|[Ss]tart(?:s|ed|ing)?"
        r"|[Bb]egin(?:s|ning)?|[Cc]los(?:es|ed|ing)|[Oo]pen(?:s|ing)?|[Ee]xpires?|[Ww]eek of"
        rf"|RSVP|[Dd]eadline|[Dd]ate|[Bb]orn|[Tt]hrough|[Tt]hru)[,:]? )"
        rf"(\d{{1,2}})/(\d{{1,2}}){NO_DATE}",
        _short,
    ),
    (rf"(?<![\w/.,-])(?<!\d )(1[0-2]|0?[1-9])/([12]?\d|3[01]){NO_DATE}", _improper),
    (rf"(?<![\w-])(\d{{1,2}})-{MONTH}(?:-([12]\d{{3}}|\d\d)|(?! \d))(?![\w-])", _dashed),
    # of trains and, after "at", of the day: "the 7.15 train", "at 8.30 this morning"
    (
        r"(?<![\w.,$£€-])(1?\d|2[0-3])\.([0-5]\d)(?= (?:train|bus|ferry|flight|tram|coach)\b)",
        lambda m: f"{m[1]}:{m[2]}",
    ),
    (
        r"\b((?:[Aa]t|[Bb]y|[Uu]ntil|[Bb]efore|[Aa]fter|[Aa]bout) )(1?\d|2[0-3])\.([0-5]\d)"
        r"(?= (?:this (?:morning|afternoon|evening)|tonight|tomorrow|sharp|o'clock"
        r"|in the (?:morning|afternoon|evening)|every (?:day|morning|evening|night))\b)",
        lambda m: f"{m[1]}{m[2]}:{m[3]}",
    ),
    (
        rf"{MONTH}((?: \d{{1,2}}(?:st|nd|rd|th)?)?(?:,? [12]\d{{3}})?)\s?-\s?{MONTH}",
        lambda m: f"{month(m[1])}{m[2]} to {month(m[3])}{_ending(m, m[3] in MONTHS)}",
    ),
    (
        r"(?<![\w.,:/$-])(?:\b[Tt]he )?(\d{1,2})(?:st|nd|rd|th)?\s?-\s?(\d{1,2})(?:st|nd|rd|th)?"
        rf"(?: of)? {MONTH}(?:(,)? {YEAR})?(?!\w)",
        _days_month,
    ),
    (
        rf"(?<![\w.,:/$-])((?:\b[Tt]he )?)(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {MONTH}"
        rf"(?:(,)? {YEAR})?(?!\w)",
        _day_month,
    ),
    (
        rf"{MONTH} (\d{{1,2}})(?:st|nd|rd|th)?(?:(\s?-\s?| and | to )(\d{{1,2}})(?:st|nd|rd|th)?)?"
        rf"{NO_DAY}(?!\w)(?:(,)? {YEAR})?",
        _month_day,
    ),
    (rf"{MONTH},? {YEAR}", lambda m: f"{month(m[1])} {year(int(m[2]))}"),
    (
        r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.(?=\s|,|$)",
        lambda m: month(m[1]) + stop(m, "."),
    ),
    (
        rf"\b{DAY}\.?(\s?-\s?|\s?&\s?| and | to ){DAY}\b\.?",
        _weekdays,
    ),
    (rf"\b{DAY}(?:/{DAY}){{1,4}}\b(?!/)", _weekday_list),
    (r"\b(Tues|Thurs)\b(?!\.)", lambda m: weekday(m[1])),
    (r"\b(Mon|Tues?|Wed|Thu(?:rs?)?|Fri)\.(?=\s|,|$)", lambda m: weekday(m[1]) + _ending(m)),
    (r"(?<=[\w,.] )Sat\.(?=\s|$)", lambda m: "Saturday" + _ending(m)),
    (
        rf"\b(Sat|Sun)\.(?=,|\s[a-z\d]|\s[A-Z]?[A-Z]?[$£€]|\s(?:{'|'.join(MONTHS)}))",
        lambda m: weekday(m[1]),
    ),
    # "Sat 10-4" and "Sun: 9am", but no "Sun 3"
    (
        rf"\b{DAY}(?=:? \d{{1,2}}(?::\d\d)?(?:\s?[ap]\.?m\b|\s?-\s?\d|:\d\d))",
        lambda m: weekday(m[1]),
    ),
    (r"([ap]\.?m\b\.?)\s?-\s?(?=noon|midnight)", lambda m: m[1] + " to "),
    (r"\b([Nn]oon|[Mm]idnight)\s?-\s?(?=\d)", lambda m: m[1] + " to "),
    (r"\b(UTC|GMT)\s?-\s?(?=\d)", lambda m: m[1] + " minus "),
    # "9am-5pm", "9-5 p.m.", "9:30-10:15"
    (
        r"(?<![\w:.,$-])(\d{1,2}(?::\d\d)?(?:\s?[ap]\.?m\.?)?)\s?-\s?"
        r"(?=\d{1,2}(?::[0-5]\d|\s?[ap]\.?m\b))",
        lambda m: m[1] + " to ",
    ),
    (
        rf"\b(?:({'|'.join(BOOKS)})|({'|'.join(SHORT_BOOKS)})\.?)"
        r" (\d{1,3}):(\d{1,3})(?:-(\d{1,3}))?\b",
        _verse,
    ),
    (
        r"(\d(?<![\d:.,]\d)\d{0,2}):(\d{1,3})(?= (?:ratio|scale|split|mix|mixture|dilution|odds)\b)"
        r"|(?<=[Rr]atio of )(\d{1,3}):(\d{1,3})(?![\d:])",
        lambda m: f"{m[1] or m[3]} to {m[2] or m[4]}",
    ),
    (
        r"(?<![\d:.,])(?:(\d{1,2}):)?(\d{1,2}):([0-5]\d)\.(\d{1,3})(?![\w:]|\.\d)",
        _stopped,
    ),
    (rf"(?<![\d:.,])(\d{{1,2}}):(\d\d)(?::(\d\d))?(?![\d:])(?:\s?{HALF})?{ZONE}", _time),
    (
        r"(\d(?<![\d:.,]\d)(?:\d{0,4}|\d{0,2}(?:\.\d{1,3}|(?:,\d{3})+)))"
        r":(\d{1,2}|\d{3,6}|\d{1,3}(?:,\d{3})+)(?![\d:]|,\d)",
        lambda m: f"{m[1]} to {m[2]}",
    ),
    (rf"(?<![\d.,:])(\d{{1,2}})(?:\.([0-5]\d))?\s?{HALF}{ZONE}", _hour),
    (
        # "1000 hours" and "2000 hours" are mostly so many
        r"\b(?:(?<=\b[Aa]t )|(?<=\b[Bb]y )|(?<=\b[Uu]ntil )|(?![12]000 h))"
        r"([01]\d|2[0-3])([0-5]\d)(?: (hrs)\b|(?= (?:hours|GMT|UTC)\b))",
        _military,
    ),
    (r"(?<=\d0s)\s?-\s?(?='?(?:\d\d)?\d0s\b)", lambda m: " to "),
    (r"(?<!\w)'([2-9]0)s\b", _decade),
    (r"\b(1\d\d0|20\d0|[2-9]0)'?s\b", _decade),
    (r"(?<!\w)'(\d\d)(?![\w'%]|[.,]\d)", lambda m: pair(m[1])),
    (
        r"'(?:(?<=\b[QH][1-4]')|(?<=[A-Z]{3}'))(\d\d)(?!\w)",
        lambda m: " " + pair(m[1]),
    ),
    (
        r"\b((?:[Ii]n|[Ss]ince|[Yy]ear|[Bb]y|[Uu]ntil|[Cc]irca|AD) )([12]\d{3})(?!,?\d|\.\d|\s?[-%]"
        r"|\s(?:people|men|women|million|feet|miles|km|points|homes|jobs)\b)",
        lambda m: m[1] + year(int(m[2])),
    ),
]
