"""Normalize: writes out English numbers, signs and abbreviations as the words that are spoken.

For tokenizers that spell (chars, phonemes). Modules of english/ have the rules by subject. This one
runs them in order, then reads what is left: plain numbers, years, ordinals and signs.
"""

from __future__ import annotations

import re

from nanospeech.text.english.characters import clean
from nanospeech.text.english.number_words import (
    START,
    WHOLE,
    cardinal,
    decimal,
    digits,
    number,
    ordinal,
    several,
    year,
)

from .english import (
    STARTS,
    abbreviations,
    addresses,
    dates,
    flags,
    identifiers,
    lasting,
    maths,
    places,
    products,
    quantities,
    references,
    shillings,
)
from .traced import Rules, Traced

__all__ = ["cardinal", "expand", "number", "ordinal", "year"]

SIGNS = {"&": " and ", "+": " plus ", "=": " equals ", "@": " at ", "%": " percent"}
SIGNS |= {"°": " degrees", "<": " less than ", ">": " greater than ", "#": " number "}
SIGNS |= {"€": " euros", "$": " dollars", "£": " pounds", "¥": " yen", "¢": " cents"}
SIGNS |= {"|": ", ", "\\": " backslash ", "^": " ", "*": " ", "_": " ", "~": " ", "/": " "}
SIGNS |= {"µ": " micro "}
# nouns that a number counts: "1250 people"; before others it is mostly a year: "the 1968 riots"
THINGS = """people men women children voters students soldiers troops homes houses workers jobs
employees miles kilometers feet meters pounds dollars euros tons tonnes years days hours minutes
points votes copies words pages acres deaths cases calories degrees percent times books items
followers users members subscribers viewers views likes steps characters letters lines files images
photos pictures samples tokens parameters entries messages trees birds animals species cells
patients guests visitors tourists seats rooms units bottles grams kilograms liters watts volts bytes
bits pixels seconds weeks months cents euros"""
COUNTED = rf"(?!\s(?:{'|'.join(THINGS.split())})\b)"
IN_YEAR = r"(?<![\w,.$])"

# in order: each rule sees what the ones above it left
NUMBERS = [
    (
        rf"{START}(\d{{1,3}}(?:,\d{{3}}){{1,4}}|\d{{1,15}})(?:st|nd|rd|th)\b",
        lambda m: ordinal(int(m[1].replace(",", ""))),
    ),
    (
        r"(?:(?<=[A-Z])|(?<=\bay))(\d{1,3})s\b",
        lambda m: " " + several(cardinal(int(m[1]))),
    ),  # "MP3s"
    (
        rf"{START}(\d{{1,3}}(?:,\d{{3}}){{1,4}})s\b",
        lambda m: several(cardinal(int(m[1].replace(",", ""))).removeprefix("one ")),
    ),  # "1,000s of people"
    (r"(?<![\w.])(\d{1,4})s\b", lambda m: several(cardinal(int(m[1])).removeprefix("one "))),
    (r"(?<![\w.])(\d{1,4})ers\b", lambda m: cardinal(int(m[1])).removesuffix("e") + "ers"),
    (r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])", lambda m: " "),
    (rf"(?<!\d){WHOLE}(?:\.\d+)+", lambda m: decimal(m[0])),
    (r"(?<!\w)\.(\d+)", lambda m: f"point {digits(m[1])}"),
    (rf"{IN_YEAR}(1\d\d\d|20\d\d)(?!,?\d){COUNTED}", lambda m: year(int(m[1]))),
    (rf"{IN_YEAR}(1[1-9])00(?!,?\d)", lambda m: cardinal(int(m[1])) + " hundred"),
    (WHOLE, lambda m: number(m[0])),
]
NOTES = r"(?:\[[1-9]\d{0,2}(?:(?:, ?| ?- ?)[1-9]\d{0,2}){0,9}\])+(?![\w.\[(]\w|[\[(]|\s?[-+*/=<>])"
CAPITAL = re.compile(" [A-Z]")
CODE = re.compile(r"[\w(\]][(._=\[/\\]\S*\w\Z")


def _note(m: re.Match) -> str:
    """Nothing for a note, but code is read: "print(rows[1])"."""
    return m[0] if CODE.search(m.string[max(0, m.start() - 40) : m.start()]) else ""


def _notes(m: re.Match) -> str:
    """Notes [3,7-9], which are listed."""
    return re.sub(" ?, ?", ", ", m[0].replace("-", " to "))


def _face(m: re.Match) -> str:
    """Nothing for ":D", but the sentence that it ended: "Funny :D We laughed"."""
    ends = m.string[m.start() - 1 : m.start()].isalnum() and CAPITAL.match(m.string, m.end())
    return "." if ends else ""


def _version(m: re.Match) -> str:
    """1.0-rc.2 and 2.x."""
    return f" {m[1]} " if m[1] else " point x"


# before a heart that ends what is said
LOVING = "love|miss|thanks?|you|ya|much|guys|all|one|day|night|soon|birthday"
MARKS = [
    # a note's number, as encyclopedias have it after a word or a stop: "He said.[1] Then"
    (
        rf"(?:(?<=\s[a-z]{{2}})|(?<=[a-z]{{3}})|(?<=[.,;:!?)])|(?<=[\w.,!?][\"'])){NOTES}",
        _note,
    ),
    (r"(?<=\[)\d{1,3}(?:,? ?[-,] ?\d{1,3}){1,9}(?=\])", _notes),
    (r"([=*_~#+<>|^\\/-])\1{2,}", lambda m: " "),  # ruled lines
    (r"\*(?<=\d\*)(?=[ -](?:hotel|review|rat|resort|service|luxury))", lambda m: " star"),
    # faces and hearts of chats: ":D", ";P", "xD", ":-)", "I <3 you", "thank you <3"
    (r" (?:[:;]'?-?(?:[DPpO]|[()]{1,9})|xD+)(?=[\s.,!?]|\Z)", _face),
    (r"<3 (?<=\bI <3 )(?=[a-z])", lambda m: "love "),
    (r"(?<=[!?])(?: <3){1,5}(?=\s*\Z|[\s.,!?]+[A-Z])", lambda m: ""),
    (rf"\b((?i:{LOVING}))(?: <3){{1,5}}(?=[\s.,!?]|\Z)", lambda m: m[1]),
    (r"--", lambda m: " - "),
    (rf"(?<=[a-z]{{2}})(?:\.(?={STARTS}\b)|[!?](?=[A-Z][a-z]))", lambda m: f"{m[0]} "),
    (r"(?<=\d)(?:-(alpha|beta|dev|pre|preview|rc)[.-]?(?=\d)|\.(x)\b)", _version),
    (r"\+/-", lambda m: " plus or minus "),
    (r"[-=]>", lambda m: " to "),
    (r"<=", lambda m: " is at most "),
    (r">=", lambda m: " is at least "),
    (r"!=", lambda m: " does not equal "),
    (r"==", lambda m: " equals "),
    (r"(?<=\d)\s?~\s?(?=\d)", lambda m: " to "),
    (r"(?<![\w)])~\s?(?=[$£€]?\d)", lambda m: "about "),
    (r" - (?<=\b[b-z] - )(?=\d+\b(?! [a-z]{2})|[a-z](?=[),.;|=]))", lambda m: " minus "),  # "n - 1"
    (r"(?<=\d) ?\* ?(?=\d)|(?<=\b\w) \* (?=\w\b)", lambda m: " times "),
    (r" / (?<=\b\w / )(?=\w\b)|/(?<=\b\d/)(?=[fknxyz]\b)", lambda m: " over "),
    (r"\$(?<![\w$]\$)(?=[A-Z_{]{2})", lambda m: "dollar "),  # "$PATH"
    (r"(?<=[\w)])\*\*(?=\d{1,3}\b(?!\*))", lambda m: " to the power of "),
    (r"&&", lambda m: " and "),
    (r"(?<=\w) \|\| (?=\w)", lambda m: " or "),
    (r"\b[Ss]/he\b", lambda m: "she or he" if m[0][0] == "s" else "She or he"),
    (r"\band/or\b", lambda m: "and or"),
    (r"\b([Hh]e|[Hh]is|[Hh]im)/(she|her|hers)\b", lambda m: f"{m[1]} or {m[2]}"),
]


def _sign(m: re.Match) -> str:
    """A sign's name, apart from a letter behind it."""
    return SIGNS[m[0]] + " " * m.string[m.end() : m.end() + 1].isalnum()


# units that no rule for numbers has taken: "two hrs", "many yrs. ago"
LATE = r"(?<![^\s(\-])(hr|yr)s(?!\w)(\.(?!\w))?"
SIGN = [
    (f"[{re.escape(''.join(SIGNS))}]", _sign),
    (LATE, lambda m: ("hours" if m[1] == "hr" else "years") + dates.stop(m, m[2])),
]
# and whether none of a stage's rules matches a text without digits
STAGES = [
    (Rules(rules), counting)
    for rules, counting in (
        (addresses.RULES, False),
        (flags.RULES, False),
        (MARKS, False),
        (references.RULES, False),
        (maths.RULES, True),
        (places.RULES, True),
        (shillings.RULES, True),
        (lasting.RULES, True),
        (dates.RULES, False),
        (abbreviations.RULES, False),
        (products.RULES, True),
        (identifiers.RULES, True),
        (quantities.RULES, False),
        (NUMBERS, True),
        (SIGN, False),
    )
]
DIGIT = re.compile(r"\d")


SPACE_BEFORE_MARK = re.compile(r"(?<! ) +(?=[.,!?;:])")
SPACE_AFTER_MARK = re.compile(r"(?<=[a-z][,;])(?=[A-Za-z])")
SPACES = re.compile(r" {2,}")


def expand(text: str) -> str:
    """English text with its numbers, money, times, signs and abbreviations written out."""
    return expanded(Traced.of(text)).text


def expanded(text: Traced) -> Traced:
    """expand() of a text whose characters are traced."""
    text = clean(text)
    counts = DIGIT.search(text.text)
    for rules, counting in STAGES:
        if counts or not counting:
            text = text.run(rules)
    return text.sub(SPACE_BEFORE_MARK, "").sub(SPACE_AFTER_MARK, " ").sub(SPACES, " ")
