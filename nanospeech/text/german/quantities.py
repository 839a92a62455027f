"""German amounts: money, measures, percentages, fractions, ranges, scores, signs of arithmetic."""

from __future__ import annotations

import re

from .nouns import NUMBERING, is_feminine, is_masculine
from .number_words import ALONE, NUMBER, WHOLE, cardinal, counted, digits, number, words
from .ordinals import before, stop

CURRENCIES = {
    "€": ("Euro", "Cent"),
    "EUR": ("Euro", "Cent"),
    "Euro": ("Euro", "Cent"),
    "$": ("Dollar", "Cent"),
    "USD": ("US-Dollar", "Cent"),
    "US-$": ("US-Dollar", "Cent"),
    "US$": ("US-Dollar", "Cent"),
    "£": ("Pfund", "Pence"),
    "GBP": ("Pfund", "Pence"),
    "¥": ("Yen", ""),
    "CHF": ("Franken", "Rappen"),
    "Fr": ("Franken", "Rappen"),
}
SIGN = "|".join(map(re.escape, sorted(CURRENCIES, key=len, reverse=True)))
LARGE = {
    "Mio": ("Million", "Millionen"),
    "Millionen": ("Million", "Millionen"),
    "Million": ("Million", "Millionen"),
    "Mrd": ("Milliarde", "Milliarden"),
    "Milliarden": ("Milliarde", "Milliarden"),
    "Milliarde": ("Milliarde", "Milliarden"),
    "Bio": ("Billion", "Billionen"),
    "Tsd": ("Tausend", "Tausend"),
}
MANY = rf"(?:(?:{'|'.join(LARGE)})\b\.?)"
# one and several; whether the word is feminine
UNITS = {
    "km/h": ("Kilometer pro Stunde", "Kilometer pro Stunde", False),
    "m/s": ("Meter pro Sekunde", "Meter pro Sekunde", False),
    "km²": ("Quadratkilometer", "Quadratkilometer", False),
    "m²": ("Quadratmeter", "Quadratmeter", False),
    "qm": ("Quadratmeter", "Quadratmeter", False),
    "cm²": ("Quadratzentimeter", "Quadratzentimeter", False),
    "m³": ("Kubikmeter", "Kubikmeter", False),
    "cm³": ("Kubikzentimeter", "Kubikzentimeter", False),
    "km": ("Kilometer", "Kilometer", False),
    "dm": ("Dezimeter", "Dezimeter", False),
    "cm": ("Zentimeter", "Zentimeter", False),
    "mm": ("Millimeter", "Millimeter", False),
    "ct": ("Cent", "Cent", False),
    "Ct": ("Cent", "Cent", False),
    "µm": ("Mikrometer", "Mikrometer", False),
    "nm": ("Nanometer", "Nanometer", False),
    "m": ("Meter", "Meter", False),
    "kg": ("Kilogramm", "Kilogramm", False),
    "mg": ("Milligramm", "Milligramm", False),
    "g": ("Gramm", "Gramm", False),
    "t": ("Tonne", "Tonnen", True),
    "ml": ("Milliliter", "Milliliter", False),
    "cl": ("Zentiliter", "Zentiliter", False),
    "hl": ("Hektoliter", "Hektoliter", False),
    "l": ("Liter", "Liter", False),
    "ha": ("Hektar", "Hektar", False),
    "°C": ("Grad Celsius", "Grad Celsius", False),
    "°F": ("Grad Fahrenheit", "Grad Fahrenheit", False),
    "mmol": ("Millimol", "Millimol", False),
    "mol": ("Mol", "Mol", False),
    "mmHg": ("Millimeter Quecksilbersäule", "Millimeter Quecksilbersäule", False),
    "kJ": ("Kilojoule", "Kilojoule", False),
    "MJ": ("Megajoule", "Megajoule", False),
    "J": ("Joule", "Joule", False),
    "kPa": ("Kilopascal", "Kilopascal", False),
    "bar": ("Bar", "Bar", False),
    "kN": ("Kilonewton", "Kilonewton", False),
    "Nm": ("Newtonmeter", "Newtonmeter", False),
    "mV": ("Millivolt", "Millivolt", False),
    "kV": ("Kilovolt", "Kilovolt", False),
    "mA": ("Milliampere", "Milliampere", False),
    "mW": ("Milliwatt", "Milliwatt", False),
    "GW": ("Gigawatt", "Gigawatt", False),
    "GWh": ("Gigawattstunde", "Gigawattstunden", True),
    "TWh": ("Terawattstunde", "Terawattstunden", True),
    "Ah": ("Amperestunde", "Amperestunden", True),
    "µg": ("Mikrogramm", "Mikrogramm", False),
    "µl": ("Mikroliter", "Mikroliter", False),
    "mm²": ("Quadratmillimeter", "Quadratmillimeter", False),
    "mm³": ("Kubikmillimeter", "Kubikmillimeter", False),
    "ccm": ("Kubikzentimeter", "Kubikzentimeter", False),
    "cbm": ("Kubikmeter", "Kubikmeter", False),
    "dm³": ("Kubikdezimeter", "Kubikdezimeter", False),
    "Ω": ("Ohm", "Ohm", False),
    "kΩ": ("Kiloohm", "Kiloohm", False),
    "MP": ("Megapixel", "Megapixel", False),
    "px": ("Pixel", "Pixel", False),
    "KiB": ("Kibibyte", "Kibibyte", False),
    "MiB": ("Mebibyte", "Mebibyte", False),
    "GiB": ("Gibibyte", "Gibibyte", False),
    "kn": ("Knoten", "Knoten", False),
    "fps": ("Bild pro Sekunde", "Bilder pro Sekunde", False),
    "lm": ("Lumen", "Lumen", False),
    "Bft": ("Beaufort", "Beaufort", False),
    "°": ("Grad", "Grad", False),
    "%": ("Prozent", "Prozent", False),
    "‰": ("Promille", "Promille", False),
    "kWh": ("Kilowattstunde", "Kilowattstunden", True),
    "MWh": ("Megawattstunde", "Megawattstunden", True),
    "kW": ("Kilowatt", "Kilowatt", False),
    "MW": ("Megawatt", "Megawatt", False),
    "W": ("Watt", "Watt", False),
    "V": ("Volt", "Volt", False),
    "A": ("Ampere", "Ampere", False),
    "PS": ("PS", "PS", False),
    "kHz": ("Kilohertz", "Kilohertz", False),
    "MHz": ("Megahertz", "Megahertz", False),
    "GHz": ("Gigahertz", "Gigahertz", False),
    "Hz": ("Hertz", "Hertz", False),
    "kB": ("Kilobyte", "Kilobyte", False),
    "KB": ("Kilobyte", "Kilobyte", False),
    "MB": ("Megabyte", "Megabyte", False),
    "GB": ("Gigabyte", "Gigabyte", False),
    "TB": ("Terabyte", "Terabyte", False),
    "dB": ("Dezibel", "Dezibel", False),
    "hPa": ("Hektopascal", "Hektopascal", False),
    "mAh": ("Milliamperestunde", "Milliamperestunden", True),
    "Wh": ("Wattstunde", "Wattstunden", True),
    "kbit": ("Kilobit", "Kilobit", False),
    "Mbit": ("Megabit", "Megabit", False),
    "MBit": ("Megabit", "Megabit", False),
    "Gbit": ("Gigabit", "Gigabit", False),
    "GBit": ("Gigabit", "Gigabit", False),
    "dl": ("Deziliter", "Deziliter", False),
    "mbar": ("Millibar", "Millibar", False),
    "kcal": ("Kilokalorie", "Kilokalorien", True),
    "ms": ("Millisekunde", "Millisekunden", True),
    "Std": ("Stunde", "Stunden", True),
    "Stunden": ("Stunde", "Stunden", True),
    "Minuten": ("Minute", "Minuten", True),
    "Sekunden": ("Sekunde", "Sekunden", True),
    "min": ("Minute", "Minuten", True),
    "h": ("Stunde", "Stunden", True),
    "s": ("Sekunde", "Sekunden", True),
}
UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
PLAIN_FRACTIONS = {"½": "ein halb", "⅓": "ein Drittel", "⅔": "zwei Drittel", "¼": "ein Viertel"}
PLAIN_FRACTIONS |= {"¾": "drei Viertel", "⅕": "ein Fünftel", "⅛": "ein Achtel"}
PARTS = {2: "halb", 3: "Drittel", 4: "Viertel", 5: "Fünftel", 6: "Sechstel", 7: "Siebtel"}
PARTS |= {8: "Achtel", 9: "Neuntel", 10: "Zehntel", 100: "Hundertstel"}
DASH = r" ?[-–] ?"
# the cases of nouns behind these; "auf" and "über" are mostly of an accusative before amounts
OF_DATIVE = words("in aus bei mit nach von zu ab seit vor unter binnen zwischen außer")
OF_ACCUSATIVE = words("für um durch ohne gegen auf über pro per bis")
LAST_WORD = re.compile(r"([^\W\d]+) \Z")
SUBJECT = words("und oder ist sind war bleibt fehlt je dazu plus noch")
BEHIND_NOUN = re.compile(rf"\b(?:{'|'.join(sorted(NUMBERING | {'Klasse', 'Tag', 'Liga'}))})\.? \Z")
ADJECTIVE = (
    "klein|groß|mittelgroß|halb|ganz|rot|gelb|grün|weiß|frisch|reif|weiter|neu|alt|gut|lang|kurz"
    "|dick|dünn|gestrichen|gehäuft|gehackt|leer|voll"
)


def amount(value: str, sign: str, front: str = "") -> str:
    """5,50 and € as "fünf Euro fünfzig"; one by what stands in front of it."""
    large, small = CURRENCIES[sign]
    if value == "1":
        return f"{indefinite(front, large)} {large}"
    whole, comma, part = value.partition(",")
    if comma and len(part) == 2 and small:
        cents = int(part)
        if not int(whole.replace(".", "")):
            return counted(str(cents), small)
        said = counted(whole, large)
        return f"{said} {cardinal(cents)}" if cents else said
    return counted(value, large)


def large_amount(value: str, many: str, sign: str | None) -> str:
    """1,5 Mio. €."""
    one, several = LARGE[many.rstrip(".")]
    said = number(value)
    if said == "eins":
        said = f"eine {one}" if one != "Tausend" else "eintausend"
    else:
        said = f"{said} {several}"
    return f"{said} {CURRENCIES[sign][0]}" if sign else said


def measure(m: re.Match) -> str:
    """A number with its unit."""
    one, several, feminine = UNITS[m[2]]
    if m[1] == "1":
        return f"{indefinite(before(m), one.partition(' ')[0])} {one}"
    return counted(m[1], one if m[1] == "1" else several, feminine)


def fraction(m: re.Match) -> str:
    """3/4 as "drei Viertel"."""
    top, bottom = int(m[1]), int(m[2])
    if bottom == 2:
        return "ein halb" if top == 1 else f"{cardinal(top)} halbe"
    if top == 1 and re.search(r"\b[Ee]in(?:e[mnr]?)? \Z", before(m)):
        return PARTS[bottom]
    return f"{'ein' if top == 1 else cardinal(top)} {PARTS[bottom]}"


def half_more(m: re.Match) -> str:
    """5 1/2 as "fünfeinhalb"."""
    return f"{'ein' if m[1] == '1' else cardinal(int(m[1]))}einhalb"


def mixed(m: re.Match) -> str:
    """2½ as "zweieinhalb"."""
    whole = "ein" if m[1] == "1" else cardinal(int(m[1]))
    if m[2] == "½":
        return f"{whole}einhalb"
    return f"{whole} {PLAIN_FRACTIONS[m[2]]}" if m[1] != "1" else f"eins {PLAIN_FRACTIONS[m[2]]}"


def one(m: re.Match) -> str:
    """1 before a noun; behind another, as in "Gleis 1 Abfahrt", it is a number."""
    if BEHIND_NOUN.search(before(m)):
        return m[0]
    return f"{indefinite(before(m), m[1])} {m[1]}"


def indefinite(front: str, noun: str) -> str:
    """ "ein" in the case that a preposition before it asks for: "in einer Stunde"."""
    found = LAST_WORD.search(front)
    word = found[1].lower() if found else ""
    if is_feminine(noun):
        return "einer" if word in OF_DATIVE else "eine"
    if word in OF_DATIVE:
        return "einem"
    return "einen" if word in OF_ACCUSATIVE and is_masculine(noun) else "ein"


def half(m: re.Match) -> str:
    """½ Gurke, in ½ Stunde; a masculine noun behind a verb is an object: "Nimm ½ Liter"."""
    noun, front = UNITS[m[1]][0] if m[1] else m[2], before(m)
    if said := re.search(r"\b[Ee]in(e|en|em|er|) \Z", front):  # "ein 1/2 Jahr"
        bare = "er" if is_masculine(noun) else "es"
        return f"halb{ {'': bare, 'e': 'e'}.get(said[1], 'en') } {noun}"
    article = indefinite(front, noun)
    if article == "ein" and not is_masculine(noun):
        return f"ein halbes {noun}"
    if article == "ein":
        found = LAST_WORD.search(front)
        if not found or found[1] in SUBJECT:
            return f"ein halber {noun}"
        article = "einen"
    return f"{article} halbe{'' if article == 'eine' else 'n'} {noun}"


def one_before_adjective(m: re.Match) -> str:
    """1 kleine Zwiebel, 1 großer Apfel."""
    return "eine " if m[1] == "e" else "einen " if m[1] == "en" else "ein "


def telephone(m: re.Match) -> str:
    """+49 (0)30 123456, digit by digit; the zero in brackets is said within the country alone."""
    groups = re.findall(r"\d+", m[0].replace("(0)", " "))
    return "plus " + ", ".join(map(digits, groups))


def composed(m: re.Match) -> str:
    """10-jährig, 4fach, 95%ig, in one word."""
    said = number(m[1])
    return ("ein" if said == "eins" else said) + ("prozent" if "%" in m[0] else "")


def joined(m: re.Match) -> str:
    """200-m-Lauf, 3,2-GHz-Prozessor, 50-€-Schein."""
    name = UNITS[m[2]][1] if m[2] in UNITS else CURRENCIES[m[2]][0]
    return f"{'ein' if m[1] == '1' else number(m[1])}-{name}-"


def minus(m: re.Match) -> str:
    return "minus "


RULES = [
    (r"(?<![\w+])\+\d{1,3}[ /-]?(?:\(0\) ?)?\d{2,5}(?:[ /-]\d{2,8}){1,4}(?![\w-])", telephone),
    (r"(?:(?<=\s)|\A|(?<=\())[-−](?=\d)", minus),
    (
        rf"({SIGN}) ?({NUMBER}) ?({MANY})",
        lambda m: large_amount(m[2], m[3], m[1]),
    ),
    (
        rf"({ALONE}){DASH}({NUMBER}) ?(?={MANY})",
        lambda m: f"{number(m[1])} bis {m[2]} ",
    ),
    (
        rf"({ALONE}) ?({MANY}) ?({SIGN})(?!\w)",
        lambda m: large_amount(m[1], m[2], m[3]),
    ),
    (rf"({ALONE}) ?({MANY})", lambda m: large_amount(m[1], m[2], None) + stop(m)),
    (
        rf"(Millionen|Milliarden) ({UNIT})(?![\w²³])",
        lambda m: f"{m[1]} {UNITS[m[2]][1]}",
    ),
    (
        rf"({ALONE}){DASH}({NUMBER}) ?(?=(?:{SIGN}|{UNIT})(?![\w²³]))",
        lambda m: f"{number(m[1])} bis {m[2]} ",
    ),
    (rf"(?<![\w.,])({WHOLE})(?:,[-–]{{1,2}}) ?({SIGN})(?!\w)", lambda m: amount(m[1], m[2])),
    (rf"({ALONE}) ?({SIGN})(?!\w)", lambda m: amount(m[1], m[2], before(m))),
    (rf"(?<!\w)({SIGN}) ?({NUMBER})(?![\d.,]\d)", lambda m: amount(m[2], m[1])),
    (r"(?<![\d/.,])(\d{1,3}) (?:1/2|½)(?![\d/.,]*\d)", half_more),
    (rf"(?<![\d/.,])(?:½|1/2) ?(?:({UNIT})(?![\w²³])|([A-ZÄÖÜ][^\W\d_]+))", half),
    (
        rf"({ALONE}) ?-?(?:%-?(?=ig)|(?=jährig|fach|tägig|stündig|minütig|monatig"
        r"|wöchig|köpfig|stellig|prozentig|teilig|seitig|gradig|stöckig|türig|bändig|zeilig))",
        composed,
    ),
    (rf"({ALONE})-(%|{SIGN}|{UNIT})-(?=[^\W\d_])", joined),
    (rf"(?<=[½⅓⅔¼¾⅕⅛])(?={UNIT})", lambda m: " "),
    (r"(?<![\d/])(\d{1,15}) ?([½⅓⅔¼¾⅕⅛])", mixed),
    (r"[½⅓⅔¼¾⅕⅛]", lambda m: PLAIN_FRACTIONS[m[0]]),
    (r"(?<![\d/.,])(\d{1,2})/(2|3|4|5|6|7|8|9|10|100)(?![\d/.,]*\d)", fraction),
    (
        rf"\b([a-zäöüß]+einhalb|Viertel|Drittel|Achtel) ({UNIT})(?![\w²³])",
        lambda m: f"{m[1]} {UNITS[m[2]][1]}",
    ),
    (rf"({ALONE}) ?({UNIT})(?![\w²³])", measure),
    (
        rf"(?<![\w.,])(\d{{1,3}}) ?: ?({NUMBER})(?!\w)",
        lambda m: f"{number(m[1])} zu {number(m[2])}",
    ),
    (
        rf"(?<![\d.,-])({NUMBER}){DASH}(?!0\d)({NUMBER})(?![\d-])",
        lambda m: f"{number(m[1])} bis {number(m[2])}",
    ),
    (r"(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=\d)", lambda m: " "),
    (r"(?<![\w.,])0\d+(?:[ /-]\d+)+\b", lambda m: digits(m[0])),  # a telephone number
    (r"(?<![\d.,]|-)\b1 ((?:E-)?[A-ZÄÖÜ][a-zäöüß]+)(?!\w)", one),
    (rf"(?<![\w.,-])1 (?=(?:{ADJECTIVE})(e|er|es|en|em) [A-ZÄÖÜ])", one_before_adjective),
]
