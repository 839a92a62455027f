"""Roman numerals in German: kings and popes with their case, chapters, ordinals."""

from __future__ import annotations

import re

from .nouns import starts_sentence
from .number_words import cardinal, stem, words
from .ordinals import DETERMINERS, before, behind, said

ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
QUEENS = words(
    """Elisabeth Elizabeth Katharina Maria Anna Anne Victoria Viktoria Isabella Margarethe Margrethe
    Beatrix Christina Johanna Juliana Wilhelmina Kleopatra Mary Agnes"""
)
KINGS = words(
    """Friedrich Wilhelm Heinrich Karl Ludwig Otto Konrad Leopold Franz Joseph Josef Johannes
    Paul Benedikt Pius Leo Gregor Urban Elisabeth Katharina Maria Georg Eduard Philipp Ferdinand
    Maximilian Albrecht Rudolf Christian Gustav Peter Alexander Nikolaus Charles Napoleon
    Clemens Innozenz Bonifatius Sixtus Viktor"""
)
# of which a person of today may be named too: "Michael V." is none
OTHERS = QUEENS | words(
    """Klemens Henry James Edward George Richard William Robert Louis Philippe Carlos Juan Alfons
    Umberto Emanuel Amadeus Mehmed Murad Selim Süleyman Ramses Thutmosis Amenophis Ptolemaios
    Ptolemäus Dareios Darius Xerxes Antiochos Justinian Konstantin Theodosius Michael Basileios Iwan
    Stanislaus Sigismund Kasimir Stephan Stefan Andreas Matthias Ladislaus Harald Olaf Erik Waldemar
    Knut Magnus Oskar Adolf Carl Ernst August Johann Moritz Christoph Eberhard Ulrich Albert
    Ruprecht Ottokar Wenzel Jakob Manuel Pedro Rainier Hassan Hussein Abdullah Mohammed Haakon
    Baudouin Balduin Gottfried Bernhard Hugo Lothar Pippin Chlodwig Theoderich Hadrian Julius Eugen
    Cölestin Honorius Silvester Felix Nebukadnezar Mithridates Felipe Fernando Tutanchamun"""
)
NAME = rf"(?:{'|'.join(sorted(KINGS | OTHERS))})"
OLD = rf"(?:{'|'.join(sorted(KINGS))})"
# the case that the word before a name asks for
DATIVE = words("unter von mit bei nach zu aus seit gegenüber vor dem vom zum beim neben samt")
ACCUSATIVE = words("für gegen durch ohne um über an auf den")
ARTICLES = {"dative": ("dem", "der"), "accusative": ("den", "die"), "genitive": ("des", "der")}
BEFORE_NAME = re.compile(r"([^\W\d]+)((?: [A-ZÄÖÜ][^\W\d]+)*) \Z")


def roman(text: str) -> int:
    """XIV as 14; 0 for what is no such number."""
    values = [ROMAN[c] for c in text]
    total = sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))
    return total if 0 < total < 4000 else 0


def case_of(m: re.Match) -> str:
    """The case of a name, by the word before it and its titles."""
    if m[2]:
        return "genitive"
    found = BEFORE_NAME.search(before(m))
    word = found[1].lower() if found else ""
    if word in DATIVE:
        return "dative"
    if word in ACCUSATIVE:
        return "accusative"
    return "genitive" if word == "des" else "nominative"


def king(m: re.Match) -> str:
    """Ludwig XIV. as "Ludwig der Vierzehnte", and after "unter" as "dem Vierzehnten"."""
    case, female = case_of(m), m[1] in QUEENS
    article = ARTICLES.get(case, ("der", "die"))[female]
    weak = case in ("dative", "genitive") or (case == "accusative" and not female)
    word = stem(roman(m[3]) or 1).capitalize() + ("en" if weak else "e")
    ends = m[4] and starts_sentence(behind(m).lstrip(" "))
    return f"{m[1]}{m[2]} {article} {word}{'.' if ends else ''}"


def part(m: re.Match) -> str:
    """Rocky IV, Weltkrieg II."""
    if m[1].lower() in DETERMINERS or m[2] in ("XX", "XXX") or not CANONICAL.fullmatch(m[2]):
        return m[0]
    return f"{m[1]} {cardinal(roman(m[2]))}"


def ordinal_or_number(m: re.Match) -> str:
    number = roman(m[1])
    return said(number, m, f"{cardinal(number)}. ") if number else m[0]


CANONICAL = re.compile(r"X{0,3}(?:IX|IV|V?I{0,3})")
RULES = [
    (rf"\b({NAME})(s?) (I|[IVX]{{2,}})(\.)", king),
    (rf"\b({OLD})(s?) ([VX])(\.)", king),
    (rf"\b({NAME})(s?) ([IVX]{{2,}})()\b(?![.\w-])", king),
    (
        r"\b(Kapitel|Teil|Band|Akt|Abschnitt|Klasse|Stufe|Phase|Weltkrieg) ([IVXLC]+)\b(?!\w)",
        lambda m: f"{m[1]} {cardinal(roman(m[2]) or 1)}",
    ),
    (r"\b([A-ZÄÖÜ][^\W\d_]+) ([IVX]{2,})\b(?![\w-])", part),
    (r"(?<![\w.])([IVX]{2,})\. (?=[^\W\d_])", ordinal_or_number),
]
ENDS_IN_KING = re.compile(rf"\b(?:{NAME}s? (?:I|[IVX]{{2,}})|{OLD}s? [VX])\Z")
ENDS_IN_NUMERAL = re.compile(r"(?:\A|[\s(])([IVX]{2,})\Z")
