"""Quantities: money, measures, telephone numbers, ranges, fractions and powers."""

from __future__ import annotations

import re

from . import any_of, foreign_numbers, inches, temperatures
from .abbreviations import CODES, NAME
from .adjectives import BOUGHT, is_adjective
from .dates import stop
from .number_words import NUMBER, START, WHOLE, amount, cardinal, digits, fraction, number
from .units import PER, UNITS, plural

MONEY = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
MONEY |= {
    "¥": ("yen", "sen"),
    "₹": ("rupee", "paisa"),
    "₩": ("won", "jeon"),
    "₽": ("ruble", "kopek"),
}
MONEY |= {"₺": ("lira", "kurus"), "₪": ("shekel", "agora"), "₿": ("bitcoin", "satoshi")}
MONEY |= {"R$": ("real", "centavo"), "CHF": ("Swiss franc", "centime")}
MONEY |= {"USD": ("U S dollar", "cent"), "EUR": MONEY["€"], "GBP": MONEY["£"], "JPY": MONEY["¥"]}
MONEY |= {"CAD": ("Canadian dollar", "cent"), "AUD": ("Australian dollar", "cent")}
MONEY |= {code: MONEY["₹"] for code in ("INR", "Rs", "Rs.")}
COUNTRIES = {"US": "U S", "C": "Canadian", "CA": "Canadian", "A": "Australian", "AU": "Australian"}
COUNTRIES |= {"NZ": "New Zealand", "HK": "Hong Kong", "S": "Singapore"}
MAGNITUDES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion"}
MAGNITUDES |= {
    "mln": "million",
    "mm": "million",
    "bln": "billion",
    "t": "trillion",
    "tn": "trillion",
    "trn": "trillion",
}
BY_WORD = r"(?:[MmBb]|[Tt]r|[Qq]uadr)illion|thousand|hundred|lakh|crore"
SCALE = rf"(?:\s?(k|mm|ml?n|m|bl?n|b|trn|tn|t|K|M|B|T)\b|[\s-]({BY_WORD})\b)?"
SIGN = r"(?:(US|CA|AU|NZ|HK|C|A|S)(?=\$))?"
SIGN += r"(R\$|(?:USD|EUR|GBP|JPY|CHF|CAD|AUD|INR)\s|Rs\.?\s?(?=\d)|[$£€¥₹₩₽₺₪₿])\s?"
RULER = (32, 64, 100)  # parts that things are measured in: "5/64 inch"
STATE_NAMES = [name.replace("_", " ") for name in CODES.values()]
COMPASS = {"N": "north", "S": "south", "E": "east", "W": "west"}
# counted in millions, where "m" could be meters: "1.1m people"
CROWDS = "people|users|jobs|customers|subscribers|viewers|voters|households|barrels|copies|doses"
CROWDS += "|homes|residents|visitors|tourists|followers|views|shares|tonnes|tons|children|patients"
# what stands before a number that is reckoned with
RECKONED = re.compile(
    r"(?i)(?:[-+*/=(]\s?|\b(?:divid\w+|calculate|compute|simplify|solve|what is|what's)\b"
    r"[^.!?]{0,20})\Z"
)
RECKONING = re.compile(r"\s?[-+*/=]|\s(?:of|inch(?:es)?|Hz|hertz|mm)\b")

# what stands around the odds of a bet: "odds of 7/2", "the 11/4 favourite"
BETTED = re.compile(r"\b(?:[Oo]dds (?:of|at|are|were) |[Pp]riced at |[Bb]acked at |[Bb]ets? at )\Z")
FANCIED = re.compile(r" (?:joint[ -]|second )?(?:favou?rites?|outsiders?|odds)\b")


def _money(m: re.Match) -> str:
    article, minus, land, sign, whole, cents, short, scale, after = m.groups()
    unit, part = MONEY[sign.strip()]
    unit = f"{COUNTRIES[land]} {unit}" if land else unit
    adjective = after is not None and bool(article or after.strip() in BOUGHT)
    lead = (article or "") + ("minus " if minus else "")
    scale = scale or (short and MAGNITUDES[short.lower()])
    if scale or (cents and (len(cents) > 2 or unit in ("yen", "won"))):
        said = amount(f"{whole}.{cents}" if cents else whole) + (f" {scale}" if scale else "")
        return f"{lead}{said} {unit if adjective else plural('2', unit)}"
    if adjective and not cents:  # "a $5 bill"
        return f"{lead}{number(whole)} {unit}"
    words = f"{number(whole)} {plural(whole, unit)}"
    if not cents or not int(cents):
        return lead + words
    small = str(int(cents.ljust(2, "0")))
    change = f"{number(small)} {plural(small, part)}"
    return lead + (change if not int(whole.replace(",", "")) else f"{words} and {change}")


def _money_range(m: re.Match) -> str:
    """$5-$10 and $5-10 million: the sign and the scale are said once, at the end."""
    sign, low, high, short, scale = m.groups()
    scale = scale or (short and MAGNITUDES[short.lower()])
    unit = plural("2", MONEY[sign][0])
    return f"{amount(low)} to {amount(high)} {scale + ' ' if scale else ''}{unit}"


def _hundreds(m: re.Match) -> str:
    """$100s."""
    count = cardinal(int(m[2][:15])).removeprefix("one ")
    return f"{count}s of {plural('2', MONEY[m[1]][0])}"


def _coins(m: re.Match) -> str:
    unit = MONEY.get(m[2].strip(), ("cent", ""))[0] if m[2] != "p" else "penny"
    return f"{amount(m[1])} {plural(m[1], unit)}"


def _measure(m: re.Match) -> str:
    count, hyphen, unit, per, again, dot = m.groups()
    noun = UNITS.get(unit, "inch")  # "in" is none but where it touches its number
    if unit in ("bp", "bps") and len(count) < 4:
        rated = RATED.search(m.string[max(0, m.start() - 80) : m.end() + 40])
        noun = "basis point" if rated else noun
    single = hyphen == "-" or is_adjective(m, unit)
    said = f"{amount(count)} {noun if single else plural(count, noun)}"
    if unit[-1] == "." and not per and (unit != "in." or NAME.match(m.string, m.end())):
        dot = "."
    return said + "".join(f" per {PER[p]}" for p in (per, again) if p) + stop(m, dot)


def _position(m: re.Match) -> str:
    said = f"{amount(m[1])} {plural(m[1], 'degree')}"
    for value, noun in ((m[2], "minute"), (m[3], "second")):
        if value:
            said += f" {amount(value)} {plural(value, noun)}"
    return said + (f" {COMPASS[m[4]]}" if m[4] else "")


def _phone(m: re.Match) -> str:
    groups = re.findall(r"\d+", m[0])
    return ("plus " if m[0][0] == "+" else "") + ", ".join(map(digits, groups))


def _hotline(m: re.Match) -> str:
    """1-800-FLOWERS, whose letters are a word."""
    area = "eight hundred" if m[1] == "800" else digits(m[1])
    return f"one, {area}, {m[2].replace('-', ' ')}"


def _internet(m: re.Match) -> str:
    """192.168.0.1:8080, the port digit by digit."""
    said = " dot ".join(map(number, m.group(1, 2, 3, 4)))
    return said + (f" colon {digits(m[5])}" if m[5] else "")


def _short_number(m: re.Match) -> str:
    return m[1] + digits(m[2])


def _book_number(m: re.Match) -> str:
    """An ISBN, digit by digit."""
    groups = re.findall(r"[\dX]+", m[2])
    return m[1] + ", ".join(" ".join(digits(c) or c for c in group) for group in groups)


def _clause(m: re.Match) -> str:
    """401(k) and 501(c)(3)."""
    first = f"{cardinal(int(m[1][0]))} oh {cardinal(int(m[1][2]))}"
    return f"{first} {m[2].upper()}" + (f" {cardinal(int(m[3]))}" if m[3] else "")


def _jet(m: re.Match) -> str:
    """737 and 747-400."""
    kind, model = m[1] or m[3], m[2] or m[4]
    return f"seven {cardinal(int(kind))}" + (f" {cardinal(int(model))}" if model else "")


def _fraction(m: re.Match) -> str:
    whole, n, d = m[1], int(m[2]), int(m[3])
    priced = BETTED.search(m.string[max(0, m.start() - 30) : m.start()])
    if not whole and (priced or FANCIED.match(m.string, m.end(3))):
        return f"{cardinal(n)} to {cardinal(d)}"
    if not n > 0 or not 1 < d <= 100 or (whole and n >= d):
        return m[0][: m.end(3) - m.start()].replace("/", " over ")
    if n == d == 10:
        return "ten out of ten"
    reckoned = RECKONING.match(m.string, m.end(3)) or RECKONED.search(
        m.string[max(0, m.start() - 30) : m.start()]
    )
    if n + d == 100 and d < 50 and m.string[max(0, m.start() - 1) : m.start()] == "(":
        reckoned = RECKONING.match(m.string, m.end(3))  # "beef (80/20)"
    if not whole and not reckoned:
        if n + d == 100 and d < 50:
            return f"{cardinal(n)} {cardinal(d)}"  # "a 60/40 split"
        if n >= 100 and 1 < d < 10:
            return f"{cardinal(n)} for {cardinal(d)}"  # runs and wickets
    if n == d:
        return f"{cardinal(n)} {cardinal(d)}"  # "20/20 vision", "50/50"
    if (n > d and (d > 9 or n % d == 0)) or (n > 1 and d > 20 and d not in RULER):
        return f"{cardinal(n)} over {cardinal(d)}"  # "120/80", "10/2 = 5"
    if d == 100 and not whole and n > 20 and not RECKONING.match(m.string, m.end(3)):
        return f"{cardinal(n)} out of one hundred"  # "95/100 on the test"
    if d == 10 and not whole:
        return f"{cardinal(n)} out of ten"
    part = "a half" if whole and (n, d) == (1, 2) else fraction(n, d)
    return f"{number(whole)} and {part}" if whole else part


def _part_of(m: re.Match) -> str:
    """The fraction of "a 3/4-inch pipe", which stays in the singular."""
    part = fraction(int(m[1]), int(m[2])).removesuffix("s")
    return (part.removeprefix("one ") if m[2] in "24" else part).replace(" ", "-")


def _mixed(m: re.Match) -> str:
    """1-1/2 as 1 1/2."""
    return m[0].replace("-", " ") if int(m[2]) < int(m[3]) else m[0]


def _parted(m: re.Match) -> str:
    """A fraction with its unit: "1/2 tsp" and "1 1/2 lbs"."""
    whole, n, d, unit, dot = m.groups()
    if not unit:
        return _fraction(m)
    count = "1" if not whole and int(n) <= int(d) else "2"
    return f"{_fraction(m)} {plural(count, UNITS[unit])}" + stop(m, dot or "." * (unit[-1] == "."))


def _caliber(m: re.Match) -> str:
    """.22 and .357, without a point."""
    return (f"{number(m[1])} " if m[1] else "") + number(m[2])


def _powered(m: re.Match) -> str:
    """10^8 m/s, whose unit has no number but the power."""
    noun = plural("2", UNITS[m[2]]) + (f" per {PER[m[3]]}" if m[3] else "")
    return f"{_power(m)} {noun}"


def _marked(m: re.Match) -> str:
    return f"{amount(m[1])} out of {amount(m[2])}"


def _power(m: re.Match) -> str:
    if m[1] in ("2", "3"):
        return " squared" if m[1] == "2" else " cubed"
    return f" to the power of {_signed(m[1])}"


def _signed(text: str) -> str:
    return ("minus " if text[0] == "-" else "") + number(text.lstrip("+-"))


def _scientific(m: re.Match) -> str:
    return f"{amount(m[1])} times ten to the power of {_signed(m[2])}"


SIDES = "mm|cm|m|km|ft|in|px"  # units that may stand before "x": 4m x 3m
RATED = re.compile(r"(?i)\b(?:yields?|rates?|margins?|spreads?|hikes?|cuts?|fed|bank|fell|rose)\b")
ASKED = r"\b((?:[Ww]hat(?: is|'s)|[Cc]alculate|[Cc]ompute|[Ss]olve) )"
RANGE = rf"{START}((?<![\w^-]){WHOLE}(?:\.\d+)?%?)"
# what rents and wages are for, behind the sum: "£850pcm"
SPANS = {"pcm": "calendar month", "pw": "week", "pa": "year", "ph": "hour", "pp": "person"}
SPANS |= {"p/m": "month", "p/w": "week", "p/a": "year", "p/h": "hour", "p/p": "person"}
# what a price is for: "$0.45/share"
SOLD = "share|unit|user|head|seat|piece|item|serving|guest|student|page|token|ticket"
GUNS = "cal(?:iber|ibre)|rifle|pistol|revolver|handgun|bullet|round|[Mm]agnum|Colt"
RULES = [
    (rf"([$£€]{NUMBER}(?:k|m|M|bn)?) ?/ ?(?=(?:{SOLD}|1[KM])\b)", lambda m: f"{m[1]} per "),
    (
        rf"([$£€]{NUMBER}k?) ?({any_of(SPANS)})(?![\w/])",
        lambda m: f"{m[1]} per {SPANS[m[2]]}",
    ),
    (r"(?<![\w$£€¥])([$£€¥])\s?-(?=\.?\d)", lambda m: f"-{m[1]}"),
    (rf"(?<![\w$£€¥])([$£€¥])\(({NUMBER})\)", lambda m: f"-{m[1]}{m[2]}"),  # of accounts
    (
        r"(?<=[$£€])(\d{1,9}(?:,\d{3}){0,3}(?:\.\d\d)?)-(an?|per)-(?=[a-z])",
        lambda m: f"{m[1]} {m[2]} ",
    ),
    (r"(?<=£)(\d{1,9}\.\d\d)p\b", lambda m: m[1]),
    *foreign_numbers.RULES,
    (r"\b(ISBN(?:-1[03])?:? ?)(97[89][\d -]{10,14}|\d[\d -]{8,11}[\dX])(?![\w-])", _book_number),
    (rf"(?<![\w$£€])\$({NUMBER})\s?(USD|CAD|AUD)\b", lambda m: f"{m[2]} {m[1]}"),
    (r"(?<![\w$£€])([$£€])(10+)s\b", _hundreds),
    (rf"(?<![\w$£€])([$£€])({NUMBER})\s?-\s?[$£€]?({NUMBER}){SCALE}(?!-?\w)", _money_range),
    (r"(?:(?<=\d)|(?<=\d[kKmMbB])|(?<=\d[bmt]n))\s?-\s?(?=[$£€]\d)", lambda m: " to "),
    (r"(?<=\d([kKMB]))\s?-\s?(?=\d[\d.,]{0,9}\1\b)", lambda m: " to "),
    (
        rf"(?<![\w$£€])(\b[Aa]n? )?(-)?{SIGN}({WHOLE})(?:\.(\d+))?{SCALE}"
        r"(?=(\s[A-Za-z][a-z]*\b)?)",
        _money,
    ),
    (r"(?<![\w$£€])[$£€]\.(\d\d?)\b", lambda m: f"{number(str(int(m[1].ljust(2, '0'))))} cents"),
    (rf"{START}({NUMBER})\s?(¢|€|£|\$|¥|USD|EUR|GBP|JPY|CHF|CAD|AUD|INR)(?!\w|\d)", _coins),
    (r"(?<![\w.,])(\d{1,2})(p)\b", _coins),
    # telephone and card numbers, digit by digit
    (r"(?<=\d{3}-\d{4}) ?x(\d{2,5})\b", lambda m: f" extension {digits(m[1])}"),
    (r"(?<![\w.,+-])\+\d{1,3}(?:[-. ]?\(?\d{1,5}\)?){1,2}(?:[-. ]\d{2,8}){1,4}(?![\w-])", _phone),
    (r"(?<![\w.,+-])\+\d{8,15}(?![\w-]|[.,]\d)", _phone),
    (r"(?<![\w.,+-])(?:1 )?\d{3} \d{3} \d{4}(?![\w-])", _phone),
    (r"(?<![\w.,-])1[-. ](8\d\d|900)[-. ]([A-Z]{2,10}(?:-[A-Z]{2,8})?)(?![\w-])", _hotline),
    (r"(?<![\w.,-])(?:1[-. ])?(?:\(\d{3}\) ?|\d{3}[-.])\d{3}[-.]\d{4}(?![\w-])", _phone),
    (r"(?<![\w.,-])\d{3}-\d{4}(?![\w-])", _phone),
    (r"(?<![\w.,-])\(?0\d{2,4}\)?[ -]\d{3,4}[ -]\d{3,6}(?![\w-])", _phone),
    (r"(?<![\w.,-])\(?0\d{3,4}\)?[ -]\d{5,6}(?![\w-])", _phone),
    (r"(?<![\w.,-])\d{3}-\d\d-\d{4}(?![\w-])|(?<![\w.,-])(?:\d{4}[ -]){3}\d{4}(?![\w-])", _phone),
    (r"(?<![\w.,$£€/-])911(?![\w,/%-]|\.\d)", lambda m: digits(m[0])),
    (
        r"\b((?:[Cc]all|[Tt]ext|[Dd]ial)(?:s|ed|ing)? )(\d{3})\b"
        r"(?![-.,]\d| (?!or\b|and\b|if\b|for\b)[a-z])",
        _short_number,
    ),
    # names that are numbers: retirement plans, jets, roads with a direction, ZIP codes
    (r"\b401k\b", lambda m: "four oh one K"),
    (r"\b([45]0[13])\(([a-z])\)(?:\((\d)\))?", _clause),
    (r"(?<=Boeing )7(\d7)(?:-(\d00))?(?!\w)|(?<=Boeing's )7(\d7)(?:-(\d00))?(?!\w)", _jet),
    (r"\b7([0-8]7)s\b", lambda m: f"seven {cardinal(int(m[1]))}s"),
    (r"\b(I-\d{1,3}) ([NSEW])\b(?!\.)", lambda m: f"{m[1]} {COMPASS[m[2]]}"),
    (
        rf"((?:, (?:{any_of(STATE_NAMES)}|[NRS] [CDHIJMY])|\bD C) )(\d{{5}}(?:-\d{{4}})?)"
        r"(?!\w|[.,]\d)",
        _short_number,
    ),
    (r"(?<=, [A-Z]{2} )(\d{5})(?:-(\d{4}))?(?!\w|[.,]\d)", _phone),
    (
        r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?::(\d{2,5}))?(?![\w.]\w)(?!\w)",
        _internet,
    ),
    # positions and heights, before quotes and degrees are anything else
    (rf"{START}(\d+(?:\.\d+)?)°\s?(?:(\d+)'\s?(?:(\d+)\")?)?\s?([NSEW])\b", _position),
    (rf"{START}(\d+)°\s?(\d+)'(?:\s?(\d+)\")?()", _position),
    *inches.RULES,
    # powers and fractions
    (r"(?<=[\w)])\^(-\d{1,15})(?!\d)", _power),
    (rf"(?<!\w){START}({NUMBER})[eE]([+-]?\d{{1,3}})\b(?! ay\b)", _scientific),
    (r"(?<![\w-])50-50(?![\w-])", lambda m: "fifty-fifty"),
    (r"\b20-20(?= (?:vision|hindsight)\b)", lambda m: "twenty twenty"),
    # marks: "4.5/5", "3/5 stars"
    (r"(?<![\w/.,])(\d{1,2}\.\d)/(5|10|100)(?![\w/]|[.,]\d)", _marked),
    (r"(?<![\w/.,])(\d{1,2})/(\d{1,2})(?= (?:stars?|points?|marks?)\b)", _marked),
    (
        rf"(?<=\d)(\s?(?:{any_of(UNITS)}))\s?-\s?(?=\d)",
        lambda m: m[1] + " to ",
    ),
    (rf"\b([Bb]etween {NUMBER})\s?-\s?(?=\d)", lambda m: m[1] + " and "),
    (r"(?<=[\w)])\^\s?(?=[A-Za-z(])", lambda m: " to the power of "),
    (
        rf"(?<=\d)\^([+-]?\d{{1,15}})\s({any_of(UNITS)})(?:/({any_of(PER)}))?(?![\w/^°])",
        _powered,
    ),
    # sums, not ranges
    (r"(?<=\d)\s?-\s?(?=\d[\d .,+*/()-]{0,60}=)", lambda m: " minus "),
    (rf"{ASKED}({NUMBER}) ?- ?(?=\d)", lambda m: m[1] + m[2] + " minus "),
    (r"(?<![\w/])(\d{1,2})/([248])(?= time\b)", lambda m: " ".join(map(number, m.groups()))),
    (r"(?<![\w/.,-])(\d{1,3})-(\d{1,2})/([2-9]|16|32)(?![\w/]|[.,]\d)", _mixed),
    (rf"{RANGE}\s?-\s?(?=\d)(?!{WHOLE}(?:\.\d+)?-?\d*-)", lambda m: m[1] + " to "),
    (
        rf"(?<![\w/.,])(\d{{1,2}}/(?:[2348]|16))(?=(?:{any_of(UNITS)}|cups?|pints?|inch)\b)",
        lambda m: m[1] + " ",
    ),
    (
        r"(?<![\w/.,-])(?<!\d )(\d{1,2})/([2348]|16|32|64)(?=-(?:inch|foot|yard|mile|ounce|pound"
        r"|ton|cup|pint|gallon|liter|acre|hour|page|length|size|scale)\b)",
        _part_of,
    ),
    (r"(?<![\w/.,])(\d{1,2}/(?:[2348]|16))in\b(?:\.(?=\s[a-z]))?", lambda m: m[1] + " inch"),
    (
        r"(?<![\w/.,])(?:(\d{1,6})[ -])?(\d{1,3})/(\d{1,3})(?:(?:nd|rd|th)s?)?(?![\w/]|[.,]\d)"
        rf"(?:[ -]({any_of(UNITS)})(?![\w/^°])(\.(?!\w))?)?",
        _parted,
    ),
    (r"(?<![\w.,)\"'-])-(?=\.?\d)", lambda m: "minus "),
    (r"(?<=\^\d) - (?=\w)", lambda m: " minus "),
    # "2 x 400g tins" and "2 500mg tablets" are two of them
    (
        r"(?<![\w.,])(\d{1,2})(?: x)? (\d{1,4}) ?(mg|g|kg|ml|cl|l|oz|lb|GB|TB)(?= [a-z]{3,})",
        lambda m: f"{m[1]} {m[2]}-{m[3]}",
    ),
    (rf"{START}({NUMBER})\s?x\s?(?=10(?:\^| to the power))", lambda m: f"{m[1]} times "),
    (rf"{START}({NUMBER}(?:\s?(?:{SIDES}))?)\s?x\s?(?=\d)", lambda m: f"{m[1]} by "),
    (rf"{START}({NUMBER})m(?= (?:{CROWDS})\b)", lambda m: f"{amount(m[1])} million"),
    (rf"(?<!\w)\.(\d)?(\d\d)(?=[ -](?:cal\.|(?:{GUNS})s?\b))", _caliber),
    (r"(?<=\d) (?:ft|feet|foot)\.? (\d{1,2}) in\b(?!\.)", lambda m: f" ft {m[1]} in."),
    (rf"{START}({NUMBER})()(in)\b(?!-)()()(\.(?!\w))?", _measure),
    *temperatures.RULES,
    # a person's weight: "11st 5lb", and "15st", which is no ordinal
    (r"(?<![\w.,])([2-9]|[1-3]\d) ?st(?= ?\d{1,2} ?lbs?\b)", lambda m: f"{m[1]} stone"),
    (
        r"(?<![\w.,])(?<![Tt]he )([4-9]|1\d|[23][04-9])st\b(?! [A-Z]| (?:of|century)\b)",
        lambda m: f"{m[1]} stone",
    ),
    # "6 L/100 km" and "52 kcal/100g"
    (r"(?<=\d)( ?[A-Za-z]{1,5}) ?/ ?(?=100 ?(?:km|miles|g|ml|mL)\b)", lambda m: f"{m[1]} per "),
    (
        rf"(?<![^\W\d_]){START}({NUMBER})(\s|-)?({any_of(UNITS)})(?:/({any_of(PER)}))?(?:/({any_of(PER)}))?"
        r"(?![\w^°]|/[A-Za-z]{1,2}(?!\w))(\.(?!\w))?",
        _measure,
    ),
    (
        rf"(?<=[a-z\d]) ?/ ?({any_of(PER)})\b(?!/)(\.(?!\w))?",
        lambda m: f" per {PER[m[1]]}" + stop(m, m[2]),
    ),
    (r"(?<![\w.])(\d+\.\d+)\s?s\b", lambda m: f"{amount(m[1])} seconds"),
    (rf"{START}({NUMBER})\s?%", lambda m: f"{amount(m[1])} percent"),
    (r"(?<=[\w)])\^\s?([+-]?\d{1,15})(?!\d)", _power),
    (
        rf"(?<![^\W\d_])(?<![^\W\d_]-)(?<![=+-] ){START}({NUMBER})[xX]"
        r"(?=\s(?!(?:squared|cubed|to the power)\b)[a-z]|[.,;!?]|$)",
        lambda m: f"{amount(m[1])} times",
    ),
    (rf"{START}({NUMBER})(?:k|(?<=\d\d|\.\d)K)\b", lambda m: f"{amount(m[1])} thousand"),
    (
        rf"{START}({NUMBER})\s?(ml?n|bl?n|tn|M)\b",
        lambda m: f"{amount(m[1])} {MAGNITUDES[m[2].lower()]}",
    ),
]
