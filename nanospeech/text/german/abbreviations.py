"""German abbreviations, and which of them go on with the sentence."""

from __future__ import annotations

import re

from .nouns import starts_sentence
from .number_words import WEAK, words
from .ordinals import before, behind, stop

SPACE = r"[ \u00a0\u202f]?"

# as written, without the last stop; a space within stands for one or none
WORDS = {
    "z B": "zum Beispiel",
    "d h": "das heißt",
    "u a": "unter anderem",
    "u ä": "und ähnliches",
    "u Ä": "und Ähnliches",
    "o ä": "oder ähnliches",
    "o Ä": "oder Ähnliches",
    "u U": "unter Umständen",
    "u v m": "und vieles mehr",
    "u s w": "und so weiter",
    "i d R": "in der Regel",
    "i A": "im Auftrag",
    "i V": "in Vertretung",
    "a D": "außer Dienst",
    "s o": "siehe oben",
    "s u": "siehe unten",
    "v a": "vor allem",
    "v Chr": "vor Christus",
    "n Chr": "nach Christus",
    "z T": "zum Teil",
    "z Zt": "zur Zeit",
    "z Z": "zur Zeit",
    "m E": "meines Erachtens",
    "o g": "oben genannte",
    "e V": "eingetragener Verein",
    "usw": "und so weiter",
    "usf": "und so fort",
    "uvm": "und vieles mehr",
    "etc": "et cetera",
    "bzw": "beziehungsweise",
    "bzgl": "bezüglich",
    "ca": "circa",
    "Dr": "Doktor",
    "Prof": "Professor",
    "Hr": "Herr",
    "Hrn": "Herrn",
    "Fr": "Frau",
    "Frl": "Fräulein",
    "Ing": "Ingenieur",
    "Dipl": "Diplom",
    "St": "Sankt",
    "Nr": "Nummer",
    "Nrn": "Nummern",
    "Abb": "Abbildung",
    "Abs": "Absatz",
    "Abschn": "Abschnitt",
    "Anm": "Anmerkung",
    "Aufl": "Auflage",
    "Bd": "Band",
    "Hrsg": "Herausgeber",
    "Jg": "Jahrgang",
    "Jh": "Jahrhundert",
    "Jhd": "Jahrhundert",
    "Jhs": "Jahrhunderts",
    "Kap": "Kapitel",
    "Tab": "Tabelle",
    "Tel": "Telefon",
    "Verf": "Verfasser",
    "Str": "Straße",
    "evtl": "eventuell",
    "ggf": "gegebenenfalls",
    "inkl": "inklusive",
    "exkl": "exklusive",
    "zzgl": "zuzüglich",
    "abzgl": "abzüglich",
    "einschl": "einschließlich",
    "max": "maximal",
    "mind": "mindestens",
    "mtl": "monatlich",
    "jährl": "jährlich",
    "tägl": "täglich",
    "sog": "sogenannte",
    "vgl": "vergleiche",
    "bes": "besonders",
    "insb": "insbesondere",
    "insbes": "insbesondere",
    "allg": "allgemein",
    "geb": "geboren",
    "gest": "gestorben",
    "gegr": "gegründet",
    "verh": "verheiratet",
    "urspr": "ursprünglich",
    "entspr": "entsprechend",
    "ehem": "ehemals",
    "ungef": "ungefähr",
    "zw": "zwischen",
    "Std": "Stunden",
    "Mio": "Millionen",
    "Mrd": "Milliarden",
    "Tsd": "Tausend",
    "MwSt": "Mehrwertsteuer",
    "bspw": "beispielsweise",
    "ggfs": "gegebenenfalls",
    "Fa": "Firma",
    "Abt": "Abteilung",
    "lt": "laut",
    "z Hd": "zu Händen",
    "z Hdn": "zu Händen",
    "Co": "Co",
    "med": "med",
    "Pers": "Personen",
    "p a": "pro Jahr",
    "p P": "pro Person",
    "a a O": "am angegebenen Ort",
    "Bsp": "Beispiel",
    "Jhdt": "Jahrhundert",
    "rd": "rund",
    "gem": "gemäß",
    "Gr": "Größe",
    "Az": "Aktenzeichen",
    "Hbf": "Hauptbahnhof",
    "Gebr": "Gebrüder",
    "m W": "meines Wissens",
    "dgl": "dergleichen",
    "u dgl": "und dergleichen",
    "vs": "versus",
    "Bj": "Baujahr",
    "zzt": "zurzeit",
    "s S": "siehe Seite",
    "Pck": "Päckchen",
    "Msp": "Messerspitze",
    "Stk": "Stück",
    "jun": "junior",
    "sen": "senior",
    "Mag": "Magister",
    "Feb": "Februar",
    "Apr": "April",
    "Aug": "August",
    "Sept": "September",
    "Sep": "September",
    "Okt": "Oktober",
    "Nov": "November",
    "Dez": "Dezember",
}
# those that may be the last word of a sentence; a capital behind them begins a new one
LAST = words(
    """usw usf uvm etc u.s.w u.v.m o.ä o.Ä a.D e.V s.o s.u v.Chr n.Chr Jh Jhd Jhs Str MwSt p.a p.P
    a.a.O dgl u.dgl Jhdt"""
)
# those that stand before a noun; only a word that begins sentences ends theirs
COUNTING = words("Std Mio Mrd Tsd Pers Stk Co Hbf Abt Okt Nov Dez Feb Apr Aug Sept Sep jun sen")

# those that may be the first word of a sentence, with a capital
OPENING = frozenset(
    (
        "z B",
        "d h",
        "u a",
        "z Hd",
        "lt",
        "bspw",
        "i d R",
        "v a",
        "vgl",
        "ca",
        "evtl",
        "ggf",
        "bzw",
        "bzgl",
        "inkl",
    )
)
OPENING |= {"insb", "insbes", "zzgl", "allg", "bes", "sog"}


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
    return re.sub(r" ?[-–] ?", " bis ", text).replace("/", " und ") + stop(m)


def holy(m: re.Match) -> str:
    """Der Hl. Geist, des Hl. Geistes."""
    front = re.findall(r"[^\W\d]+", before(m).lower())[-1:]
    return "Heiligen" if front and front[0] in WEAK else "Heilige"


# where a number stands beside it: these go before the numbers become words
NUMBERED = [
    (r"\b([Ss])tr\.(?=\s*\d)", lambda m: f"{m[1]}traße"),
    (r"\bS\. ?(?=\d)", lambda m: "Seite "),
    (r"\bZ\. ?(?=\d)", lambda m: "Zeile "),
    (r"\bArt\. ?(?=\d)", lambda m: "Artikel "),
    (r"§§ ?", lambda m: "Paragrafen "),
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
        r"(?<=\d\. )Jan\.|\bJan\.(?= \d{4})|(?<=\b[Ii]m )Jan\.|(?<=\bEnde )Jan\.|(?<=\bMitte )Jan\."
        r"|(?<=\bAnfang )Jan\.|(?<=\b[Ss]eit )Jan\.",
        lambda m: f"Januar{stop(m)}",
    ),
    (r"(?<!\d )\b[Hh]l\.(?= [A-ZÄÖÜ])", holy),
    # days: several, after "am", and with a time of day or a date
    (rf"\b{DAY_STOP}(?:(?:, ?| und | oder | bis |/| ?[-–] ?){DAY_STOP})+", days),
    (rf"(?<=\b[Aa]m )({DAY})\.", day),
    (rf"(?<=\b[Aa]m )({DAY})(?= [a-zäöü\d]|[,!?;:]|\Z)", day),
    (rf"\b({DAY})\.(?= ?[-–,/]| \d| (?:bis|von|ab) \d| und (?:{'|'.join(DAYS.values())})\b)", day),
    (r"\b(Mo|Di|Mi|Do|Sa|So)\.(?= [a-zäöü])", day),
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
    (rf"(?<![\w.])(?:{KEYS})(?![\w])", written),
]
# the beginnings of abbreviations of several words
BEGUN = {key[:end] for key in WORDS for end in range(key.find(" ") + 2, len(key) + 1) if " " in key}
# those of NUMBERED, which a text may go on behind
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
    if BEFORE_NOUN.search(front):
        return not starts_sentence(following)
    if IN_SENTENCE.search(front):
        return not following[:1].isupper()
    return None
