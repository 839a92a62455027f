"""German times of day, durations and scores: what has a colon between two numbers."""

from __future__ import annotations

import re

from .number_words import cardinal, counted, digits, words
from .ordinals import before, behind, stop

HOUR, MINUTE = r"(?:[01]?\d|2[0-4])", r"[0-5]\d"
DASH = r" ?[-–] ?"
LENGTH = 80  # characters before a score in which a word that tells it is looked for
SCORED = re.compile(
    r"\b(?:gew(?:ann|innen|innt|annen|onnen)|siegt|siegten?|besiegt|besiegten?|verlor|verloren"
    r"|verliert|verlieren|unterlag|unterlagen|unterliegt|schlug|schlugen|schlägt|geschlagen|bezwang"
    r"|bezwangen|führt|führte|führten|trennten sich|(?:stand|steht) es|es (?:stand|steht)|Es steht"
    r"|Es stand|Satz|Sätzen?|Halbzeit|zur Pause|Zur Pause|[A-Za-zäöü]*[Ss]ieg|Niederlage"
    r"|(?:End|Zwischen|Spiel|Halbzeit|Pausen|Punkte)stand|Ergebnis|Resultat|Remis|Unentschieden"
    r"|Führung|Vorsprung|Verhältnis|Mischung|Maßstab|spielten|ausgeglichen"
    r"|Tiebreak|[Mm]it(?= \Z))\b([^.!?\n]*)\Z"
)
ENDED = re.compile(
    r"(?:[Ss]piel|Partie|Duell|Match|Begegnung|Derby|[Ff]inale)\b[^.!?\n]*\bende(?:t|te|n|ten)\b"
    r"([^.!?\n]*)\Z"
)
OF_DAY = re.compile(
    r"\b(?:[Uu]m|[Aa]b|Uhr|Uhrzeit|Anpfiff|Beginn|[Bb]eginnt|startet|Start|kommt|fährt|Einlass)\b"
)
OF_DAY_LAST = re.compile(r"\b(?:bis|seit|von|vor|nach|zwischen) \Z")
SCORED_BEHIND = re.compile(
    r"-[^\W\d]*(?:[Ss]ieg|[Ee]rfolg|[Nn]iederlage|[Ff]ührung|[Vv]orsprung|[Rr]ückstand)\b"
    r"| (?:gewonnen|verloren|geschlagen|besiegt|gewinnen|verlieren|Toren|Punkten)\b"
)


def clock(hour: str, minute: str | None, second: str | None = None) -> str:
    """A time of day: "vierzehn Uhr dreißig"."""
    text = hours(hour)
    if minute is not None and int(minute):
        text += f" {cardinal(int(minute))}"
    if second:
        text += f" und {cardinal(int(second))} Sekunden"
    return text


def hours(hour: str) -> str:
    """ "ein Uhr" """
    n = int(hour)
    return f"{'ein' if n == 1 else cardinal(n)} Uhr"


def from_to(m: re.Match) -> str:
    """6:30-8:00 Uhr, 8-12 Uhr; the first "Uhr" is said before minutes alone."""
    if m[0].endswith("h") and not (m[2] or m[5]):  # 5-6 h: a time that something takes
        found = re.search(r"(\w+)\.? \Z", before(m))
        if int(m[4]) < 8 or (found and found[1] in TAKING):
            return m[0]
    first = clock(m[1], m[2]) if m[2] else cardinal(int(m[1]))
    return f"{first} {m[3].strip(' -–') or 'bis'} {clock(m[4], m[5])}"


def duration(m: re.Match) -> str:
    """2:01:09 Stunden, 3:45,2 Minuten."""
    parts = [m[1], m[2]] + ([m[3]] if m[3] else [])
    names = [("Stunde", "Stunden"), ("Minute", "Minuten"), ("Sekunde", "Sekunden")]
    if len(parts) == 2 and m[5][0] in "Mm":
        names = names[1:]
    texts = []
    for value, (one, several), last in zip(parts, names, [False] * (len(parts) - 1) + [True]):
        tail = f" Komma {digits(m[4])}" if last and m[4] else ""
        if tail:
            texts.append(f"{cardinal(int(value))}{tail} {several}")
        elif int(value):
            texts.append(counted(str(int(value)), one if int(value) == 1 else several, True))
    if re.search(r"\b(?:in|nach|mit|von|bei|vor|seit) \Z", before(m)):
        texts = [re.sub(r"\Aeine ", "einer ", said) for said in texts]
    text = " und ".join(filter(None, (" ".join(texts[:-1]), texts[-1]))) if texts else "null"
    return text + stop(m)


def minutes(m: re.Match) -> str:
    """in 3:32, with no unit: minutes and seconds."""
    tail = f" Komma {digits(m[4])}" if m[4] else ""
    first = counted(str(int(m[1])), "Minute" if int(m[1]) == 1 else "Minuten", True)
    if m[1] == "1":
        first = "einer Minute"
    last = f"{cardinal(int(m[2]))}{tail} Sekunden" if int(m[2]) != 1 or tail else "einer Sekunde"
    return f"{first} und {last}" if int(m[2]) or tail else first


def of_clock(m: re.Match) -> str:
    """um 7h, bis 18h; "bis 2 h" is a time that something takes."""
    front, n = before(m), int(m[1])
    timed = n < 25 and re.search(r"\b(?:[Uu]m|gegen) \Z", front)
    begins = 7 < n < 25 and re.search(r"\b[AaBb](?:b|is) \Z", front)
    lasts = re.search(r"(?i)(?:zeit\b|dauer|akku|lauf|hält|reicht)[^,;]*\Z", front)
    return hours(m[1]) if timed or (begins and not lasts) else m[0]


def is_score(m: re.Match) -> bool:
    """Whether the words around it tell a score from a time of day."""
    if SCORED_BEHIND.match(behind(m)):
        return True
    front = m.string[max(0, m.start() - LENGTH) : m.start()]
    found = SCORED.search(front) or ENDED.search(front)
    return bool(found) and not OF_DAY.search(found[1]) and not OF_DAY_LAST.search(before(m))


def score(m: re.Match) -> str:
    return f"{cardinal(int(m[1]))} zu {cardinal(int(m[2]))}" if is_score(m) else m[0]


TAKING = words(
    "hält halten dauert dauern braucht brauchen ca circa etwa rund für in nach alle je lädt"
)
TIME = rf"({HOUR})(?:[:.]({MINUTE}))?"
RULES = [
    (
        r"(?<![\d:.,])(\d{1,3}):(\d\d)(?::(\d\d))?(?:,(\d{1,3}))? ?"
        r"(Stunden\b|Std\b\.?|Minuten\b|Min\b\.?|min\b)",
        duration,
    ),
    (r"(?<=\b[Ii]n )(\d{1,2}):(\d\d):(\d\d)(?:,(\d{1,3}))?(?!\w|:\d)(?! Uhr)()", duration),
    (r"(?<=\b[Ii]n )(\d{1,2}):([0-5]\d)()() ?(h)\b", duration),
    (r"(?<=\b[Ii]n )(\d{1,2}):([0-5]\d)()(?:,(\d{1,3}))?(?![\w:]|[.,]\d)(?! Uhr| ?h\b)", minutes),
    (r"(?<![\w.,:-])(\d{1,2}) ?h\b", of_clock),
    (rf"(?<![\d:.,-]){TIME}({DASH}| bis | und ){TIME} ?(?:Uhr|h)\b", from_to),
    (
        rf"(?<![\d:.,-])({HOUR}):({MINUTE})({DASH}| bis )({HOUR}):({MINUTE})(?![\d:-]|[.,]\d)",
        from_to,
    ),
    (
        rf"\b({HOUR})[:.]({MINUTE})(?::({MINUTE}))? ?(?:Uhr|h)\b",
        lambda m: clock(m[1], m[2], m[3]),
    ),
    (rf"\b({HOUR}) ?Uhr\b(?: ({MINUTE})\b)?", lambda m: clock(m[1], m[2])),
    (
        rf"(?<=\b[Uu]m )({HOUR})\.({MINUTE})(?!\d|[.,]\d| ?[%€°])"
        r"(?! (?:Euro|Prozent|Punkte|Meter|km)\b)",
        lambda m: clock(m[1], m[2]),
    ),
    (r"(?<![\d:.,])(\d{1,3}):(\d{1,3})(?!:?\d|[.,]\d|-\d)", score),
    (
        rf"(?<![\d:.,])({HOUR}):({MINUTE})(?::({MINUTE}))?(?!:?\d|[.,]\d)(?! zu)",
        lambda m: clock(*m.groups()),
    ),
]
