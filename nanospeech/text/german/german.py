"""German: runs the rules in order, and reads what is left: plain numbers and signs."""

from __future__ import annotations

import re
from unicodedata import normalize

from nanospeech.text.language import Language
from nanospeech.text.traced import Rules, Traced

from . import abbreviations, codes, dates, genders, ordinals, quantities, romans, times
from .nouns import breaks_off, starts_sentence
from .number_words import NUMBER, number

SIGNS = {"&": " und ", "+": " plus ", "=": " gleich ", "@": " ät ", "%": " Prozent", "°": " Grad"}
SIGNS |= {"€": " Euro", "$": " Dollar", "£": " Pfund", "¥": " Yen", "<": " kleiner als "}
SIGNS |= {">": " größer als ", "#": " Nummer ", "|": ", ", "\\": " ", "^": " ", "*": " "}
SIGNS |= {"_": " ", "~": " ", "/": " ", "×": " mal ", "÷": " geteilt durch ", "µ": " Mikro"}
SIGNS |= {"²": " hoch zwei ", "³": " hoch drei ", "√": " Wurzel aus ", "±": " plus minus "}
SIGNS |= {"≈": " ungefähr ", "≤": " kleiner gleich ", "≥": " größer gleich ", "≠": " ungleich "}
SIGNS |= {"∈": " Element von ", "∞": " unendlich ", "∑": " Summe ", "Ø": " durchschnittlich "}
NAMES = """Alpha Beta Gamma Delta Epsilon Zeta Eta Theta Jota Kappa Lambda My Ny Xi Omikron Pi
    Rho Sigma Tau Ypsilon Phi Chi Psi Omega"""
GREEK = dict(zip("αβγδεζηθικλμνξοπρστυφχψω", re.findall(r"\w+", NAMES)))
ADDRESS = re.compile(
    r"(?:https?://|\bwww\.)[\w.-]+\w(?:/[\w./?=&#%-]*[\w/])?"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
)
ADDRESS_SIGNS = {".": "Punkt", "@": "ät", "-": "Strich", "_": "Unterstrich", "/": "Schrägstrich"}
ADDRESS_SIGNS |= {"?": "Fragezeichen", "=": "gleich", "&": "und", "#": "Raute", "%": "Prozent"}


def address(m: re.Match) -> str:
    """A web or mail address, with its signs named."""
    said = re.sub(r"\Ahttps?://", "", m[0])
    said = re.sub(r"\Awww", "w w w", said)
    said = re.sub("[.@_/?=&#%-]", lambda c: f" {ADDRESS_SIGNS[c[0]]} ", said.rstrip("/"))
    # before a letter a number is no amount: "10s" is "zehn s"
    said = re.sub(r"\d+(?=[^\W\d])", lambda c: f"{number(c[0])} ", said)
    return said.strip()


def lived(m: re.Match) -> str:
    """The star and the cross before the days or years of a life."""
    said = "geboren" if "*" in m[0] else "gestorben"
    return f"{said} {'am ' if m[1] else ''}"


def raised(m: re.Match) -> str:
    """x⁻³ as "x^−3"; "²" and "³" alone may be of a unit."""
    front = m.string[max(0, m.start() - 1) : m.start()]
    stands = m[0] in ("²", "³", "⁻") or not (front == ")" or front == "_" or front.isalnum())
    return m[0] if stands else "^" + normalize("NFKC", m[0])


def power(m: re.Match) -> str:
    """10^-3 as "10 hoch minus drei"."""
    return f" hoch {'minus ' if m[1] else ''}{m[2]}"


def greek(m: re.Match) -> str:
    """2πr as "2 Pi r"."""
    front, following = m.string[m.start() - 1 : m.start()], m.string[m.end() : m.end() + 1]
    name = GREEK.get(m[0].lower(), m[0])
    return f"{' ' if front.isalnum() else ''}{name}{' ' if following.isalnum() else ''}"


# signs whose numbers are still to be read
SIGNED = [
    (r"[₀-₉]+", lambda m: normalize("NFKC", m[0])),
    (r"[⁻⁰-⁹¹²³]+", raised),
    (r"(?<=[\w)])\^\(?([-−]?)(\d{1,9})\b\)?", power),
    (r"(?<=[\d)]) ?· ?(?=[\d(])|(?<=\)) ?[*×] ?(?=[\d(])", lambda m: " mal "),
    (r"(?<=[²³]) - (?=[\da-z(])|(?<=\b[nxyz]) - (?=\d)", lambda m: " minus "),
    (r"(?<=\b[A-Z]) x (?=[A-Z]\b)", lambda m: " mal "),
    (r"Ø ?(?=\d[\d,]* ?[cm]?m\b)", lambda m: "Durchmesser "),
    (r"Ø-(?=[A-ZÄÖÜ])", lambda m: "Durchschnitts-"),
    (r"[<>!]=", lambda m: SIGNS[{"<=": "≤", ">=": "≥", "!=": "≠"}[m[0]]]),
    # menus: Datei > Speichern; files: .env
    (r"(?<=[^\W\d_]{2}) (?:-?>|[→➔➜]) (?=[\"']?[A-ZÄÖÜ][^\W\d_])", lambda m: ", "),
    (r"(?:(?<![\w.)\]\"'])|(?<=\s[\"']))\.(?=[a-z]\w|[A-Z]{3})", lambda m: "Punkt "),
    (r"(?<=\S) [•·●▪] (?=\S)", lambda m: ", "),
    (r"(?<![Ͱ-Ͽ])[α-ωΑ-Ω](?![Ͱ-Ͽ])", greek),
    (r"(?:(?<=\()|(?<=[;,] ))[*†] ?(?=(\d{1,2}\. ?[\dA-Z])|(?:um |vor |nach )?\d)", lived),
]
LEFT = [
    (r"([=*_~#+<>|^\\/-])\1{2,}", lambda m: " "),  # ruled lines
    (r"(?<!\d)-(?=\d)", lambda m: " "),
    (r"(?<=[\w)])\^(?=\d|[a-z]\b)", lambda m: " hoch "),
    (NUMBER, lambda m: number(m[0])),
    (f"[{re.escape(''.join(SIGNS))}]", lambda m: SIGNS[m[0]]),
]
# with what a text must have for any of a stage's rules to match
STAGES = [
    (Rules(rules), re.compile(needed))
    for rules, needed in (
        ([(ADDRESS.pattern, address), *SIGNED], ""),
        (genders.RULES, genders.SIGN),
        (codes.RULES, r"[\d#]|km/h|\.[a-z]"),
        (abbreviations.NUMBERED, ""),
        (times.RULES, r"\d"),
        (dates.RULES, r"\d"),
        (romans.RULES, r"[IVXLC]\b"),
        (ordinals.RULES, r"\d"),
        (codes.POINTED, r"\d"),
        (quantities.RULES, ""),
        (abbreviations.RULES, ""),
        (LEFT, ""),
    )
]
SPACE_BEFORE_MARK = re.compile(r"(?<! ) +(?=[.,!?;:](?!\w)|\))|(?<=\() +")
SPACES = re.compile(r" {2,}")
NUMBERED = re.compile(r"(?:\A|[\s(]|\.[-–/])(\d{1,3})\Z")
DATE = re.compile(r"(?<![\d.])\d{1,2}\. ?\d{1,2}\Z")


class German(Language):
    """German as newspapers of Germany print it; years, dates and amounts of Austria and
    Switzerland are read the same way."""

    code = "de"
    alphabet = " .,!?;:-'\"()abcdefghijklmnopqrstuvwxyzäöüß"

    def normalized(self, text: Traced) -> Traced:
        for rules, needed in STAGES:
            if needed.search(text.text):
                text = text.run(rules)
        return text.sub(SPACE_BEFORE_MARK, "").sub(SPACES, " ")

    def ends_sentence(self, before: str, following: str) -> bool | None:
        if numbered := NUMBERED.search(before):
            if breaks_off(following):
                return False
            return ordinals.reading(before[: numbered.start(1)], following)[1]
        if DATE.search(before):
            return starts_sentence(following)
        if romans.ENDS_IN_KING.search(before):
            return starts_sentence(following)
        if numeral := romans.ENDS_IN_NUMERAL.search(before):
            if breaks_off(following):
                return False
            return ordinals.reading(before[: numeral.start(1)], following)[1]
        known = abbreviations.goes_on(before, following)
        return None if known is None else not known

    def respelled(self, c: str) -> str:
        return {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}.get(
            c, ""
        )
