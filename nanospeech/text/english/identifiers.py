"""Identifiers: numbers that are names, of invoices, cases, parts, places, episodes and races.

None of them counts anything, so that a hyphen in them is no "to" and a letter no unit.
"""

from __future__ import annotations

import re

from .number_words import START, cardinal, digits, year

NAMED = "[Nn]umber|[Cc]ode|[Ii]nvoice|[Tt]icket|[Aa]ccount|[Ss]erial|S/N|SN|ID|PO"
# before what people copy digit by digit
COPIED = re.compile(
    r"\b(?:[Cc]ode|PIN|OTP|[Pp]asscode|[Pp]assword|(?:[Aa]ccount|[Cc]onfirmation|[Pp]hone"
    r"|[Rr]outing|[Rr]eference|[Tt]racking|[Mm]ember(?:ship)?) (?:[Nn]umber|[Nn]o\.|ID|#))"
    r"(?: is| was)?:? ?#?\Z"
)
YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
COUNTED = "bytes|characters|dollars|euros|files|lines|pages|people|points|times|words|years"
# what a run, not a thousand, is before: "a 5k run"
RACES = (
    "(?:fun |charity |road |trail |park |virtual )?"
    "(?:runs?|races?|walks?|walkers|course|swim|times?|distance|personal best)"
)
RUN = r"[Rr]an|[Rr]un|[Rr]unning|[Rr]uns|[Jj]ogg?(?:ed|ing)?|[Ww]alk(?:ed|ing)?"
AFTER_RUN = r"(?=[.,;:!?)]|\s*\Z|\s(?:in|on|today|yesterday|this|every|for|with|at|and|last)\b)"


def _group(text: str) -> str:
    """A part of an identifier: small as a number, a year as a year, others digit by digit."""
    if len(text) == 4 and text[:2] in ("19", "20"):
        return year(int(text))
    return digits(text) if len(text) > 2 or text[0] == "0" else cardinal(int(text))


def _identifier(m: re.Match) -> str:
    """Invoice 2023-0456; what goes up in parts of equal length is a range: tickets 12-15."""
    groups = m[2].split("-")
    if groups[1:] == ["0"]:
        return m[0]
    first, last = groups[0], groups[-1]
    if len(groups) > 2:
        return m[1] + ", ".join(map(digits, groups))
    like = len(last) < 3 or (len(first) == len(last) and "0" not in (first[0], last[0]))
    zero = (len(last) > len(first) and first[0] == "0") or (len(first) > 2 and last[0] == "0")
    if like and not zero and int(first) < int(last):
        return m[0]
    return m[1] + ", ".join(map(_group, groups))


def _copied(m: re.Match) -> str:
    """The code 482913, digit by digit; but "the code 2019 edition"."""
    found = COPIED.search(m.string[max(0, m.start() - 40) : m.start()])
    dated = found and found[0].lower().startswith("code") and YEAR.fullmatch(m[0])
    return digits(m[0]) if found and not dated else m[0]


def _parted(m: re.Match) -> str:
    """ID 845 1234 5678, digit by digit; but "number 1 000 000"."""
    groups = m[2].split()
    return m[0] if groups[-1] == "000" else m[1] + ", ".join(map(digits, groups))


def _record(m: re.Match) -> str:
    """10W-5L-2D: wins, losses and draws."""
    names = {
        "W": ("win", "wins"),
        "L": ("loss", "losses"),
        "D": ("draw", "draws"),
        "T": ("tie", "ties"),
    }
    parts = re.findall(r"(\d+)([WLDT])", m[0])
    return ", ".join(f"{cardinal(int(n))} {names[kind][n != '1']}" for n, kind in parts)


def _episode(m: re.Match) -> str:
    return f"season {cardinal(int(m[1]))}, episode {cardinal(int(m[2]))}"


def _race(m: re.Match) -> str:
    return f"{m[1]}{cardinal(int(m[2]))} K"


# what stands around the numbers of HTTP's errors
FAILED = r"HTTP|[Ee]rror|[Ss]tatus(?: code)?|[Gg]ot a|[Rr]eturn(?:s|ed|ing)?(?: an?)?"
FAILURE = (
    "[Ee]rrors?|[Pp]age|[Rr]esponses?|[Ss]tatus|[Nn]ot [Ff]ound|Forbidden|Unauthorized|Bad Gateway"
    "|Service Unavailable|Gateway Timeout"
)
RULES = [
    (
        rf"\b((?:{FAILED}) )?([45])0([1-9])(?![\w:-]|[.,]\d)(?(1)|(?= (?:{FAILURE})\b))",
        lambda m: f"{m[1] or ''}{digits(m[2])} oh {digits(m[3])}",
    ),
    (r"\b[Ss](\d{1,2}) ?[Ee](\d{1,3})\b", _episode),
    (
        r"\b((?:ZIP|[Zz]ip)(?: [Cc]ode)?(?: is| was)?:? )(\d{5}(?:-\d{4})?)(?!\w|[.,]\d)",
        lambda m: m[1] + digits(m[2]),
    ),
    (
        rf"\b((?:{NAMED})(?: is)?:? )(\d{{1,12}}(?:-\d{{1,12}}){{1,3}})(?![\w-]|[.,]\d)",
        _identifier,
    ),
    (rf"\b((?:{NAMED}|I D)(?: is)?:? #?)(\d{{3,4}}(?: \d{{3,4}}){{1,4}})(?![\w-]|[.,]\d)", _parted),
    (r"(?<![\w.-])\d{1,3}W-\d{1,3}[LDT](?:-\d{1,3}[LDT])?(?![\w-])", _record),
    # of a telephone: "ext. 204", "extension 204"
    (
        r"\b([Ee]xtension )(\d{3,5})(?=[.;:!?)](?!\d)|,(?!\d)|\s*\Z| (?:or|and|to)\b)",
        lambda m: m[1] + digits(m[2]),
    ),
    # "the card ending in 4471", "text HELLO to 741741"
    (
        r"\b((?:[Aa]ccount|[Cc]ard|[Nn]umber|IBAN|Visa|Mastercard|Amex|debit|credit)\b[^.!?\d]{0,20}"
        r"\bend(?:s|ed|ing) (?:in|with) |\b[Tt]ext [A-Z]{2,12} to )(\d{4,6})(?!\w|[.,]\d)",
        lambda m: m[1] + digits(m[2]),
    ),
    (rf"(?<=[ #])\d{{4,16}}(?![\w-]|[.,]\d| (?:{COUNTED})\b)", _copied),
    # a part with a zero before it is none of a range: "00123-456", but "1999-00"
    (
        r"(?<![\w.,:$£€+/-])(?<!\d )(?<!\) )()"
        r"(0\d{2,9}-\d{1,9}|(?!\d{3}-\d{4}\b)\d{1,9}-0(?!0?\b)\d{1,9})(?![\w/-]|[.,:]\d|\s?=)",
        _identifier,
    ),
    # races are named by their kilometers
    (rf"{START}()\b(\d{{1,3}})[kK](?= {RACES}\b)", _race),
    (rf"\b((?:{RUN}) (?:(?:an?|the|my|his|her|our) )?)(\d{{1,3}})[kK]{AFTER_RUN}", _race),
    (
        r"\b((?:[Ff]or a|[Ff]irst|[Cc]ouch to|[Aa]nnual) )(5|8|10|15)[kK](?=[.,;!?)]|\s*\Z)",
        _race,
    ),
]
