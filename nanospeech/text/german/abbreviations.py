"""German abbreviations, and which of them go on with the sentence."""

from __future__ import annotations

import re

from .dates import MONTH
from .nouns import starts_sentence
from .number_words import WEAK, cardinal, words
from .ordinals import before, behind, stop
from .short_words import COUNTING, ENDING, LAST, OPENING, WORDS

SPACE = r"[ \u00a0\u202f]?"


def spelled(key: str) -> str:
    """The pattern of an abbreviation: its stops, and a space or none after each."""
    return rf"\.{SPACE}".join(map(re.escape, key.split())) + r"\."


def key_of(match: str) -> str:
    """What WORDS has an abbreviation under."""
    key = " ".join(re.findall(r"[^\W\d]+", match))
    small = key[:1].lower() + key[1:]
    return small if key not in WORDS and small in OPENING else key


def written(m: re.Match) -> str:
    """The words of an abbreviation; the stop stays where it may end the sentence."""
    key = key_of(m[0])
    said = WORDS[key]
    front = re.findall(r"[^\W\d]+", before(m)[-20:].lower())[-1:]
    if key.replace(" ", ".") in ENDING and front and front[0] in WEAK:
        said += "n"
    if key in ("Jh", "Jhd", "Jhdt") and re.search(r"\bdes [^\W\d]+ \Z", before(m)):
        said += "s"
    if m[0][0].isupper() and key[0].islower():
        said = said[0].upper() + said[1:]
    return said + ("." if ends_with(key, behind(m)) else "")


def ends_with(key: str, following: str) -> bool:
    """Whether an abbreviation ends its sentence as well."""
    if not following.strip():
        return True
    if key in COUNTING:
        return following[:1].isspace() and starts_sentence(following.lstrip(" "))
    return key.replace(" ", ".") in LAST and bool(re.match(r"\s+[A-ZÄÖÜ\"(]", following))


KEYS = "|".join(
    [spelled(key) for key in sorted(WORDS, key=len, reverse=True)]
    + [spelled(key[0].upper() + key[1:]) for key in sorted(OPENING, key=len, reverse=True)]
)
DAYS = {"Mo": "Montag", "Di": "Dienstag", "Mi": "Mittwoch", "Do": "Donnerstag", "Fr": "Freitag"}
DAYS |= {"Sa": "Samstag", "So": "Sonntag"}
DAY = "|".join(DAYS)
DAY_STOP = rf"(?:{DAY})\b\.?"
TIME = r"\d{1,2}(?:[:.]\d\d)?"


def day(m: re.Match) -> str:
    return DAYS[m[1]] + stop(m)


def days(m: re.Match) -> str:
    """Mo.-Fr., Sa. und So., Di, Do"""
    text = re.sub(rf"({DAY})\b\.?", lambda d: DAYS[d[1]], m[0])
    return re.sub(r" ?[-–] ?", " bis ", text).replace("/", " und ").replace(" u. ", " und ") + stop(
        m
    )


def holy(m: re.Match) -> str:
    """Der Hl. Geist, des Hl. Geistes."""
    front = re.findall(r"[^\W\d]+", before(m).lower())[-1:]
    return "Heiligen" if front and front[0] in WEAK else "Heilige"


def counted(m: re.Match) -> str:
    """3 Zi., 70 J., "ab 18 J." with the ending of a dative."""
    several, dative = COUNTED[m[0]]
    front = re.search(r"\b([^\W\d]+)\.? \d+ \Z", before(m))
    said = several + (dative if front and front[1].lower() in OF_DATIVE else "")
    return said + stop(m)


def of_noun(m: re.Match) -> str:
    """Ort d. Tages, Sitz d. Firma."""
    if starts_sentence(behind(m)):
        return m[0]
    return "des " if m[1].endswith("s") else "der "


def small(m: re.Match) -> str:
    """Single letters between two words."""
    said = {"u": "und", "v": "von", "f": "für"}[m[1]]
    is_word = m[1] == "u" or not behind(m)[:1].islower()
    return f"{said} " if is_word and not starts_sentence(behind(m)) else m[0]


COUNTED = {"J.": ("Jahre", "n"), "Wo.": ("Wochen", ""), "Zi.": ("Zimmer", "n")}
COUNTED |= {"Mon.": ("Monate", "n")}
OF_DATIVE = words("v ab von mit bei nach vor seit zu in unter aus")
SHORT_OF = {"Art": "Artikel", "Best": "Bestell", "Rechn": "Rechnungs", "Tel": "Telefon"}
SHORT_OF |= {"Kd": "Kunden", "Vers": "Versicherungs"}
SEEN = r"(?:Abb|S|Kap|Tab|Nr|Art|Anl|Bd|Rn|Ziff)\.|§|(?:Seite|Tabelle|Abbildung|Kapitel|Anlage)\b"
DATE = rf"\d{{1,2}}\. ?(?:\d{{1,2}}\.|(?:{MONTH})\b)"

# where a number stands beside it: these go before the numbers become words
NUMBERED = [
    (rf"\bs\. ?(?=(?:{SEEN}))", lambda m: "siehe "),
    (r"\b([Ss])tr\.(?=\s*\d)", lambda m: f"{m[1]}traße"),
    (r"S\.(?:(?<=\bAbs\. \d S\.)|(?<=\bAbsatz \d S\.)) ?(?=\d)", lambda m: "Satz "),
    (r"\bS\. ?(?=\d)", lambda m: "Seite "),
    (r"\bZ\. ?(?=\d)", lambda m: "Zeile "),
    (r"Max\.(?:(?<![^\n]Max\.)|(?<=[.!?:(•] Max\.)|(?<=\(Max\.))(?= ?\d)", lambda m: "Maximal"),
    (r"\b1 (?:Tbl|Tabl)\.", lambda m: f"1 Tablette{stop(m)}"),
    (r"(?<![^\W\d] )\b(\d{1,2})\.(?=\) \w)", lambda m: m[1]),
    (r"\bJh\.s\b", lambda m: "Jahrhunderts"),
    (r"\bApp\. ?(?=\d)", lambda m: "Appartement "),
    (r"\bUniv\.-(?=Prof)", lambda m: "Universitäts-"),
    (r"\b(Art|Best|Rechn|Tel|Kd|Vers)\.-Nr\.", lambda m: f"{SHORT_OF[m[1]]}nummer{stop(m)}"),
    (r"(?<=[^\W\d])nr\.", lambda m: f"nummer{stop(m)}"),
    (r"(?<=[^\W\d])-?Nr\.", lambda m: f"-Nummer{stop(m)}"),
    (r"\bü\. ?(?=(?:NHN|NN|M)\b)|\bü\. (?=d\. M\b)", lambda m: "über "),
    (rf"\bv\. ?(?={DATE})", lambda m: "vom "),
    (r"(?<=\d )(?:J|Wo|Zi|Mon)\.(?!\w)", counted),
    (r"\bArt\. ?(?=\d)", lambda m: "Artikel "),
    (
        r"(§§?) ?(\d+)([a-z])\b",
        lambda m: f"Paragraf{'en' if m[1] == '§§' else ''} {cardinal(int(m[2]))} {m[3]}",
    ),
    (r"§§ ?", lambda m: "Paragrafen "),
    (r"§(?:(?<=\b[Dd]e[smn] §)|(?<=\bS\. d\. §)) ?", lambda m: "Paragrafen "),
    (r"§ ?", lambda m: "Paragraf "),
    (r"(?<!\d )\b[Mm]in\.(?= ?\d)", lambda m: "minimal"),
    (r"(?<=\d) ?[Mm]in\.", lambda m: f" Minuten{stop(m)}"),
    (r"(?<=\d) ?[Ss]ek\.", lambda m: f" Sekunden{stop(m)}"),
    (r"(?<=\d) ?Std\.", lambda m: f" Stunden{stop(m)}"),
    (r"(?<=[\d½¼¾⅓⅔] )EL\b", lambda m: "Esslöffel"),
    (r"(?<=[\d½¼¾⅓⅔] )TL\b", lambda m: "Teelöffel"),
    (r"(?<=[\d½¼] )Msp\.", lambda m: f"Messerspitze{stop(m)}"),
    (r"\b1 Pers\.", lambda m: f"1 Person{stop(m)}"),
    (r"(?<=\d) ?ff?\.(?!\w)", lambda m: f" und folgende{stop(m)}"),
    (
        r"Jan\.(?:(?<=\d\. Jan\.)|(?<!\wJan\.)(?= \d{4})|(?<=\b[Ii]m Jan\.)|(?<=\bEnde Jan\.)"
        r"|(?<=\bMitte Jan\.)|(?<=\bAnfang Jan\.)|(?<=\b[Ss]eit Jan\.))",
        lambda m: f"Januar{stop(m)}",
    ),
    (r"(?<!\d )\b[Hh]l\.(?= [A-ZÄÖÜ])", holy),
    # days: several, after "am", and with a time of day or a date
    (rf"\b{DAY_STOP}(?:(?:, ?| und | u\. | oder | bis |/| ?[-–] ?){DAY_STOP})+", days),
    (rf"({DAY})\b(?:(?<=\b[Bb]is \w\w)|(?<=\b[Aa]b \w\w))\.?(?= [a-zäöü]|[,!?]|\Z)", day),
    (rf"(?<=\b[Aa]m )({DAY})\.", day),
    (rf"(?<=\b[Aa]m )({DAY})(?= [a-zäöü\d]|[,!?;:]|\Z)", day),
    (rf"\b({DAY})\.(?= ?[-–,/]| \d| (?:bis|von|ab) \d| und (?:{'|'.join(DAYS.values())})\b)", day),
    (r"\b(Mo|Di|Mi|Do|Sa|So)\.(?= [a-zäöü])", day),
    (r"\b(Mo|Di|Mi|Do|Fr|Sa|So)(?= (?:geschlossen|Ruhetag)\b)", day),
    (r"\b(Fr)\.(?= (?:geschlossen|geöffnet|ab|um|frei|abends|morgens|mittags|nachmittags)\b)", day),
    (rf"\b({DAY})(?=:? {TIME}(?:(?: ?[-–] ?| bis ){TIME})? ?(?:Uhr|h)\b)", day),
    (rf"\b(Mo|Di|Mi|Do|Fr|Sa)(?=:? {TIME} ?[-–] ?{TIME}\b)", day),
    (rf"\b({DAY})\.?(?=, (?:den )?\d{{1,2}}\.)", day),
]
RULES = [
    (r"(?<=[a-zäöüß])str\.", lambda m: "straße"),
    (r"(?<=[a-zäöüß-])Str\.", lambda m: "Straße"),
    (r"\bDipl\.-Ing\.", lambda m: "Diplomingenieur"),
    (r"\bDr\.[ -]Ing\.", lambda m: "Doktoringenieur"),
    (r"\bGes\. ?(?=m\. ?b\. ?H\.)", lambda m: "Gesellschaft "),
    (rf"(?<![\w.])(?=[^\W\d]{{1,15}}\.)(?:{KEYS})(?![\w])", written),
    # (look-behinds come late in these, as they would be tried at every character)
    (
        r"d\. (?:(?<=[^\W\d]{2} d\. )|(?<=[^\W\d][.,)] d\. ))(?=([A-ZÄÖÜ][^\W\d]+))",
        of_noun,
    ),
    (r"(?<=[\w.,)-] )([uvf])\. (?=[\w(])", small),
]
# the beginnings of abbreviations of several words
BEGUN = {key[:end] for key in WORDS for end in range(key.find(" ") + 2, len(key) + 1) if " " in key}
# those of NUMBERED, which a text may go on behind
SMALL = re.compile(r"(?:(?<=[^\W\d]{2} )|(?<=[^\W\d][.,)-] )|(?<=\d ))[duvf]\Z")
AFTER_AM = re.compile(rf"\b[Aa]m (?:{DAY})\Z")
BEFORE_NOUN = re.compile(rf"\b[Hh]l\Z|{AFTER_AM.pattern}|\d ?(?:[Mm]in|[Ss]ek|ff?|Fr)\Z")
IN_SENTENCE = re.compile(
    rf"\b(?:{DAY})\Z|[a-zäöüß][Ss]tr\Z|\b(?:[Ii]m|Anfang|Mitte|Ende|[Ss]eit) Jan\Z"
)


def goes_on(front: str, following: str) -> bool | None:
    """Whether the word before a stop is an abbreviation that does not end its sentence."""
    found = re.search(r"(?:[^\W\d]+\.[ \u00a0]?)*[^\W\d]+\Z", front)
    if found is None:
        return None
    for start in range(len(found[0])):
        if start and not re.match(r"[ \u00a0]", found[0][start - 1]):
            continue
        key = key_of(found[0][start:])
        behind = re.match(r"[^\W\d]+(?=\.|\Z)", following)
        if behind and f"{key} {behind[0]}" in BEGUN:
            return True
        if key in WORDS and (len(key) > 1):
            return not ends_with(key, f" {following}")
    if SMALL.search(front):
        return not starts_sentence(following)
    if BEFORE_NOUN.search(front):
        return not starts_sentence(following)
    if IN_SENTENCE.search(front):
        return not following[:1].isupper()
    return None
