"""Characters: signs and forms that stand for others or have an English name. No words, no numbers.

Characters without a name are left unchanged; sentences.py warns of those that a model lacks.
"""

from __future__ import annotations

import re
import unicodedata

from nanospeech.text.traced import Rules, Traced

from . import words

# signs that are read alike wherever they stand; "" for marks that nobody reads
NAMED = {
    "©": " copyright ",
    "™": "",
    "®": "",
    "℠": "",
    "†": "",
    "‡": "",
    "§": " section ",
    "¶": " paragraph ",
    "→": " to ",
    "⇒": " to ",
    "➔": " to ",
    "⟶": " to ",
    "←": " from ",
    "↔": " and ",
    "↑": " up ",
    "↓": " down ",
    "≈": " about ",
    "≠": " does not equal ",
    "≤": " is at most ",
    "≥": " is at least ",
    "±": " plus or minus ",
    "×": " times ",
    "÷": " divided by ",
    "∞": " infinity ",
    "√": " square root of ",
    "∑": " sum of ",
    "♯": " sharp ",
    "♭": " flat ",
    "∫": " integral of ",
    "∂": " partial ",
    "∝": " is proportional to ",
    "≡": " is equivalent to ",
    "≪": " much less than ",
    "≫": " much greater than ",
    "∈": " in ",
    "∉": " not in ",
    "⊂": " subset of ",
    "⊆": " subset of ",
    "∪": " union ",
    "∩": " intersection ",
    "∀": " for all ",
    "∃": " there exists ",
    "∠": " angle ",
    "△": " triangle ",
    "∆": " delta ",
    "⊥": " is perpendicular to ",
    "∥": " is parallel to ",
    "∴": " therefore ",
    "∵": " because ",
    "⇔": " if and only if ",
    "∧": " and ",
    "∨": " or ",
    "¬": " not ",
    "∛": " cube root of ",
    "‰": " per thousand ",
    "№": "No. ",
    "℅": " care of ",
    "Ω": " ohms ",
    "ª": "a",
    "¿": "",
    "¡": "",
    "⁄": "/",
}
GREEK = dict(
    zip(
        "αβγδεζηθικλμνξοπρστυφχψω",
        words(
            """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi
            rho sigma tau upsilon phi chi psi omega"""
        ),
    )
)
SUPERSCRIPTS = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")), "⁻": "-", "⁺": ""}
BULLETS = "•◦▪▸►‣·●○■□"
TABLE = str.maketrans(NAMED)

OTHER = re.compile(r"[^\x00-\x7F]")
LENGTHS = "px|pixels|mm|cm|km|m|ft|feet|in|inch|inches|yd|yards|meters|metres"
# how a name sounds, which encyclopedias add to it: "Einstein (/ˈaɪnstaɪn/; 1879-1955)"
SOUNDS = re.compile("[ˈˌːɪʊəɛɜɔʌɑɒʃʒŋɡɹɾʁɲ]|/.*[æθχ].*/")
# (no names in "Oslo/Færder/Moss", no sums in "cos θ/2 + sin θ/4")
BETWEEN = r"(?:(?<!\w)/[^/\n]{1,80}/|\[[^\[\]\n]{1,80}\])"
RULES = [
    (
        rf" ?\({BETWEEN}\)|(?<=\(){BETWEEN}[;,]?\s*|{BETWEEN}",
        lambda m: "" if SOUNDS.search(m[0]) else m[0],
    ),
    # sides, not factors: 3×3 and 30 × 40 cm, but 5 × 4 = 20 and 3×10⁸
    (r"(?<=\d)×(?=\d)(?!10[\^⁻⁰-⁹¹²³])(?![\d.,]+\s?=)", lambda m: "x"),
    (rf"(?<=\d) × (?=\d[\d.,]*(?: × \d[\d.,]*)?\s?(?:{LENGTHS})\b)", lambda m: "x"),
    (r"§§|¶¶", lambda m: " sections " if m[0] == "§§" else " paragraphs "),
    (r"(?<=\d)·(?=\d)", lambda m: " times "),
    (r"(?<=[A-Za-z¹²³])·(?=[A-Za-z]{1,3}⁻)", lambda m: " "),  # "mol·L⁻¹"
    (r"·(?:(?<=\bN·)(?=m\b)|(?<=[WA]·)(?=h\b))", lambda m: ""),
    (r"(?<=\d)\s?★", lambda m: " star"),
    (r"(?<=\bI )[❤♥]\uFE0F?", lambda m: " love "),
    (r"(?<=\d)\s?([kM])[ΩΩ]", lambda m: " kilo ohms" if m[1] == "k" else " mega ohms"),
    # charges: Fe³⁺ and Cl⁻
    (r"(?<=[\w\])])([¹²³⁴-⁹]?)([⁺⁻])(?![⁰¹²³⁴-⁹])", lambda m: charge(m[1], m[2])),
    (rf"(?:^|(?<=[.,;:!?\n]))\s?[{BULLETS}]\s?", lambda m: " "),
    (rf"\s?[{BULLETS}]\s?", lambda m: ", "),
    (r"(?<=\d)\s?º", lambda m: "°"),
    (r"\b[Nn]º\s?", lambda m: "No. "),
    (
        r"(\d)?([¼-¾⅐-⅞])(?=((?!in\b)[^\W\d_])?)",
        lambda m: (
            (f"{m[1]} " if m[1] else "")
            + unicodedata.normalize("NFKC", m[2])
            + " " * bool(m[3])  # "½tsp"
        ),
    ),
    # isotopes: ¹⁴C as C-14
    (
        r"(?<![\w)])([⁰¹²³⁴-⁹]{2,3}(?=[A-Z])|[¹²³⁴](?=H|Li))([A-Z][a-z]?)(?![a-z])",
        lambda m: f"{m[2]}-{power(m[1])}",
    ),
    # a footnote's number after a word, a power after a number or a unit
    (r"(?<=[^\W\d_]{4})[¹²³⁰⁴-⁹]+", lambda m: " " + power(m[0])),
    (r"(?<=[\w)])[⁻⁺]?[¹²³⁰⁴-⁹]+", lambda m: "^" + power(m[0])),
    (r"(?<![^\W\d_])Å(?![^\W\d_])", lambda m: " angstroms "),  # not the letter of Åse
    (r"(?<=\d)(\s?)μ(?=[mgLlsAFVM]\b)", lambda m: m[1] + "µ"),  # the Greek letter as the sign
    (r"(?<=[α-ω])(?<![Α-ωά-ώ][α-ω])\s?/\s?(?=\d)", lambda m: " over "),  # "π/2"
    (r"(?<![Α-ωά-ώ])[Α-Ψα-ω](?=-\w|\^)", lambda m: greek(m[0]).rstrip()),
    (r"(?<![Α-ωά-ώ])[Α-Ψα-ω](?![Α-ωά-ώm])", lambda m: greek(m[0])),
]
ORDERED = Rules(RULES)


def power(text: str) -> str:
    """Superscript digits as plain ones."""
    return "".join(SUPERSCRIPTS[c] for c in text)


def charge(count: str, sign: str) -> str:
    """The charge of an ion: "³⁺" -> "three plus"."""
    return f" {power(count)}{' plus' if sign == '⁺' else ' minus'} ".replace("  ", " ")


def greek(letter: str) -> str:
    """A Greek letter that stands alone, by name."""
    name = GREEK.get(letter.lower())
    return f" {name} " if name else letter


def plain(character: str) -> str:
    """ASCII for a digit of any script or a compatibility form (full-width, circled, ℃, Ⅷ)."""
    value = unicodedata.decimal(character, None)
    if value is not None:
        return str(value)
    form = unicodedata.normalize("NFKC", character).replace("⁄", "/")
    return form if form.replace("°", "").isascii() else character


def clean(text: Traced) -> Traced:
    """Text in which signs have become names or ASCII, where English has one for them."""
    if text.text.isascii():
        return text
    return text.run(ORDERED).translate(TABLE).sub(OTHER, lambda m: plain(m[0]))
