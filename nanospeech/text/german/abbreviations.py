"""German abbreviations, and which of them go on with the sentence."""

from __future__ import annotations

import re

from .number_words import last_stop, words

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
    """usw usf uvm etc u.s.w u.v.m o.ä o.Ä a.D e.V s.o s.u v.Chr n.Chr Jh Jhd Jhs Str Std Mio Mrd
    Tsd"""
)

# those that may be the first word of a sentence, with a capital
OPENING = frozenset(
    ("z B", "d h", "u a", "i d R", "v a", "vgl", "ca", "evtl", "ggf", "bzw", "bzgl", "inkl")
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


def written(match: re.Match) -> str:
    """The words of an abbreviation; the stop stays where it may end the sentence."""
    key = key_of(match[0])
    said = WORDS[key]
    if match[0][0].isupper() and key[0].islower():
        said = said[0].upper() + said[1:]
    behind = match.string[match.end() :]
    ends = not behind.strip() or (
        key.replace(" ", ".") in LAST and re.match(r"\s+[A-ZÄÖÜ\"(]", behind)
    )
    return said + ("." if ends else "")


KEYS = "|".join(
    [spelled(key) for key in sorted(WORDS, key=len, reverse=True)]
    + [spelled(key[0].upper() + key[1:]) for key in sorted(OPENING, key=len, reverse=True)]
)
DAYS = {"Mo": "Montag", "Di": "Dienstag", "Mi": "Mittwoch", "Do": "Donnerstag", "Fr": "Freitag"}
DAYS |= {"Sa": "Samstag", "So": "Sonntag"}
DAY = "|".join(DAYS)
IN_A_LIST = r"(?= ?[-–,/]| \d| und\b| bis\b| von\b)"
# where a number stands beside it: these go before the numbers become words
NUMBERED = [
    (r"\b([Ss])tr\.(?=\s*\d)", lambda m: f"{m[1]}traße"),
    (r"\bS\. ?(?=\d)", lambda m: "Seite "),
    (r"\bZ\. ?(?=\d)", lambda m: "Zeile "),
    (r"\bArt\. ?(?=\d)", lambda m: "Artikel "),
    (r"§§ ?", lambda m: "Paragrafen "),
    (r"§ ?", lambda m: "Paragraf "),
    (r"\b[Mm]in\.(?= ?\d)", lambda m: "minimal"),
    (r"(?<=\d) ?[Mm]in\.(?! ?\d)", lambda m: f" Minuten{last_stop(m)}"),
    (r"(?<=\d) ?[Ss]ek\.(?! ?\d)", lambda m: f" Sekunden{last_stop(m)}"),
    (r"(?<=\d\. )Jan\.|\bJan\.(?= \d{4})", lambda m: "Januar"),
    (
        rf"\b({DAY})\.? ?[-–] ?({DAY})\b\.?(?= |,|:|\Z)",
        lambda m: f"{DAYS[m[1]]} bis {DAYS[m[2]]}",
    ),
    (rf"\b({DAY})\.{IN_A_LIST}", lambda m: DAYS[m[1]]),
]
RULES = [
    (r"(?<=[a-zäöüß])str\.", lambda m: "straße"),
    (r"(?<=[a-zäöüß-])Str\.", lambda m: "Straße"),
    (r"\bDipl\.-Ing\.", lambda m: "Diplomingenieur"),
    (r"\bDr\.[ -]Ing\.", lambda m: "Doktoringenieur"),
    (rf"(?<![\w.])(?:{KEYS})(?![\w])", written),
]


def goes_on(before: str, following: str) -> bool | None:
    """Whether the word before a stop is an abbreviation that does not end its sentence."""
    found = re.search(r"(?:[^\W\d]+\.[ \u00a0]?)*[^\W\d]+\Z", before)
    if found is None:
        return None
    for start in range(len(found[0])):
        if start and not re.match(r"[ \u00a0]", found[0][start - 1]):
            continue
        key = key_of(found[0][start:])
        behind = re.match(r"[^\W\d]+(?=\.|\Z)", following)
        if behind and any(known.startswith(f"{key} {behind[0]}") for known in WORDS):
            return True
        if key in WORDS and (len(key) > 1):
            return not (key.replace(" ", ".") in LAST and following[:1].isupper())
    return None
