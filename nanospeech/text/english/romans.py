"""Roman numerals: of kings, chapters, parts, wars and centuries."""

from __future__ import annotations

import re

from . import STARTS, words
from .number_words import cardinal, ordinal, roman

MONARCHS = words(
    """Henry Louis George Edward James Charles William Richard Elizabeth Mary Napoleon Philip
    Ferdinand Frederick Nicholas Alexander Peter Catherine Ivan John Paul Pius Benedict Leo
    Gregory Innocent Urban Clement Ramses Rameses Francis Christian Gustav Gustavus Haakon
    Harald Olav Carl Albert Leopold Otto Constantine Justinian Theodosius Xerxes Darius
    Artaxerxes Cyrus Ptolemy Robert Kenneth David Alfonso Juan Carlos Pedro Joseph
    Maximilian Rudolf Wilhelm Emmanuel Boniface Sixtus Julius Martin Adrian Stephen Casimir
    Sigismund Amenhotep Thutmose Seti Mehmed Murad Selim Antiochus Christina Isabella
    Margaret Matilda Eugene Celestine Honorius Lothar Umberto Rama Tutmose Nebuchadnezzar
    Assurbanipal Friedrich Franz Karl Ludwig Edmund Harold Afonso Manuel Akbar Shapur"""
)
COUNTED_ROMAN = words(
    """Chapter Part Act Scene Book Volume Section Article Title Type Phase Stage Level Class
    Appendix Canto Psalm Episode Series Amendment Apollo Mark Bowl Olympiad Symphony Sonata"""
)
# names of numerals in capitals too: "CHAPTER IV", "HENRY VIII"
REIGNED = "|".join([*MONARCHS, *map(str.upper, MONARCHS)])
NUMBERED = "|".join([*COUNTED_ROMAN, *map(str.upper, COUNTED_ROMAN)])
# of these a heading has one letter before a name, too: "CHAPTER I. Down the Rabbit-Hole"
TITLED = "Chapter|Canto|Stave|CHAPTER|CANTO|STAVE|PART|BOOK|ACT|SCENE|VOLUME"
NAME_BEGINS = "[\"'“‘]?[A-Z]"
SMALL_ROMAN = "[Cc]hapter|[Pp]art|[Aa]ct|[Ss]cene|[Bb]ook|[Vv]olume|[Pp]ages?|[Ss]ection|[Cc]anto"
# not C, D, L or M alone, which are mostly letters: "Class C", "Plan D"
ROMAN = (
    r"((?=[LC]*[IVX])[IVXLC]{2,}"
    rf"|[VX](?!\s+[A-Z]|\.\s+(?!(?:{STARTS}|Scene)\b(?!\.))[A-Z]|\.\w))\b"
)
# after "Charles I" the numeral, not the word
AFTER_FIRST = (
    rf"(?='s\b|[,;:!?)]|\.(?=\s*$|\s+{STARTS}\b)|\s*$"
    r"|\s(?:of|was|is|had|died|ruled|reigned|became|and|who|in|on|by)\b)"
)
# "Type I error" and "a Phase I trial", but "the Class I took"
VERBS = words(
    """am was had have can could will would shall should do did must may might like love want need
    took take see saw read know knew think thought went go use chose choose made make found find got
    get gave give teach taught left hate prefer mean meant said say play wrote write bought buy fly
    flew drive drove ever never always also just really first"""
)
SORTED = rf"\b(Type|Phase|Stage|Class|Level) (I)\b(?= (?!(?:{'|'.join(VERBS)})\b|[a-z]+ed\b)[a-z])"


def _roman(m: re.Match) -> str:
    value = roman(m[2])
    if value is None or value > 399:
        return m[0]
    if m[1].title() in MONARCHS:
        return f"{m[1]} the {ordinal(value)}"
    return f"{m[1]} {cardinal(value)}"


def _third(m: re.Match) -> str:
    """A namesake: "William Gates III", and "John Paul II" too."""
    return f"{m[1]} the {ordinal(roman(m[3]) or 0)}"


def _small_roman(m: re.Match) -> str:
    value = roman(m[2].upper())
    return f"{m[1]} {cardinal(value)}" if value else m[0]


def _item(m: re.Match) -> str:
    """(i), (ii) and (iv) of a list."""
    return m[1] + cardinal(roman(m[2].upper()) or 0)


def _century(m: re.Match) -> str:
    value = roman(m[1])
    return ordinal(value) if value else m[0]


RULES = [
    (r"\b([IVXLC]+)(?:st|nd|rd|th)?(?= (?:[Cc]entur|[Dd]ynast|Olympi|Corps|Congress))", _century),
    (rf"\b(?=[A-Z])(({'|'.join(MONARCHS)}) (?:[A-Z]\.? )?[A-Z][a-z]+) (II|III|IV)\b", _third),
    (rf"\b(?=[A-Z])({REIGNED}) {ROMAN}", _roman),
    (rf"\b(?=[A-Z])({REIGNED}) (I)\b{AFTER_FIRST}", _roman),
    (r"\b(World War|WORLD WAR) (II?)\b", _roman),
    (rf"\b({TITLED}) ([IVX])(?=\.\s+{NAME_BEGINS})", _roman),
    (rf"\b({NUMBERED}) {ROMAN}", _roman),
    (rf"\b({NUMBERED}) (I)\b{AFTER_FIRST}", _roman),
    (SORTED, _roman),
    (rf"\b({SMALL_ROMAN}) ([ivxl]{{2,}})\b", _small_roman),
    (r"(?<![^\W\d_])(\()(i{1,3}|iv|vi{1,3}|ix)(?=\))", _item),
    (
        rf"\b((?!Celsius|Fahrenheit)[A-Z][a-z]{{2,}}|{'|'.join(COUNTED_ROMAN).lower()})"
        r" ([IVX]{2,})\b",
        _roman,
    ),
]
