"""German numbers in words: cardinals, decimals, ordinals with their endings, years, digits."""

from __future__ import annotations

import re
from functools import lru_cache

from nanospeech.errors import require

LARGEST = 15  # digits; longer ones are read one by one
WHOLE = r"(?:\d{1,3}(?:\.\d{3}){1,12}(?!\d|\.\d)|\d+)"
NUMBER = rf"{WHOLE}(?:,\d+)?"
# NUMBER that begins there; a digit first, so that it is looked for at digits alone
ALONE = r"\d(?<![\d.,]\d)(?:\d{0,2}(?:\.\d{3}){1,12}(?!\d|\.\d)|\d*)(?:,\d+)?"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DIGITS = ("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun")
# words after which an ordinal ends in -en: prepositions with an article, weak cases
WEAK = words(
    """am im vom zum beim den dem des zur einem einen einer eines ins ans bis ab seit gegen nach vor
    jedem jeden jedes diesem diesen dieses seinem seinen ihrem ihren meinem meinen unserem unseren
    deinem deinen keinem keinen beiden"""
)
# and those after which a following "der" is a dative or genitive
BEFORE_DER = words(
    "in an auf aus bei mit nach von vor zu seit unter über neben zwischen während wegen"
)
STRONG = words("als ein kein mein dein sein ihr unser euer")


@lru_cache(maxsize=4096)
def cardinal(n: int) -> str:
    """12 as "zwölf".

    Raises:
        BackendError: num2words is not installed.
    """
    return require("num2words", "languages").num2words(n, lang="de")


@lru_cache(maxsize=4096)
def stem(n: int) -> str:
    """An ordinal without its ending: "dritt"."""
    word = require("num2words", "languages").num2words(n, lang="de", to="ordinal")
    return word[:-1] if word.endswith("e") else word


def ordinal(n: int, ending: str = "e") -> str:
    """3 with "en" as "dritten"."""
    return stem(n) + ending


def ending_after(before: str) -> str:
    """The ending of an ordinal, by the words before it.

    Args:
        before: text in front of the number.
    """
    found = re.findall(r"[^\W\d]+", before.lower())[-2:]
    if not found or re.search(r"[.!?:,;(]\W*\Z", before):
        return "er"
    last = found[-1]
    if last in WEAK or (last == "der" and len(found) > 1 and found[-2] in BEFORE_DER):
        return "en"
    return "er" if last in STRONG else "e"


def year(n: int) -> str:
    """1984 as "neunzehnhundertvierundachtzig"; from 2000 on as a cardinal."""
    hundreds, rest = divmod(n, 100)
    if not 11 <= hundreds <= 19:
        return cardinal(n)
    return f"{cardinal(hundreds)}hundert{cardinal(rest) if rest else ''}"


def digits(text: str) -> str:
    """Digits one by one."""
    return " ".join(DIGITS[int(c)] for c in text if c in "0123456789")


def number(text: str) -> str:
    """A number as written, "1.234,5", in words."""
    whole, comma, part = text.partition(",")
    bare = whole.replace(".", "")
    grouped = len(bare) != len(whole)
    if len(bare) > LARGEST or (len(bare) > 1 and bare[0] == "0" and not grouped):
        said = digits(bare)
    else:
        said = cardinal(int(bare))
    return f"{said} Komma {digits(part)}" if comma else said


def counted(text: str, noun: str, feminine: bool = False) -> str:
    """A number before a noun: "ein Euro", "eine Stunde", "zwei Euro"."""
    said = number(text)
    if said == "eins":
        said = "eine" if feminine else "ein"
    elif said.endswith("undeins") or said.endswith("hunderteins") or said.endswith("tausendeins"):
        said = said[:-1]
    return f"{said} {noun}"
