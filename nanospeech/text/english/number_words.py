"""Number words: whole numbers, decimals, years, fractions, Roman numerals. Knows no sentences."""

from __future__ import annotations

import re

UNDER_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen"""
DECADES = "- - twenty thirty forty fifty sixty seventy eighty ninety"
ONES, TENS = UNDER_TWENTY.split(), DECADES.split()
SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion")
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
ORDINALS |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
LARGEST = 3 * len(SCALES)  # digits
LONGEST_PLAIN = 15  # digits that are still a quantity without commas

# a whole number; the look-behind keeps "1,111,...,1111" from being tried again at each comma
WHOLE = r"(?:(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d])|\d+)"
NUMBER = rf"{WHOLE}(?:\.\d+)?"
START = r"(?<!\d)(?<!\d[.,])"  # before a number, not within one
ROMAN = re.compile(r"(?=.)M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def cardinal(n: int) -> str:
    """42 -> "forty-two"; any whole number below 10 ** 21, negative ones too."""
    if n < 0:
        return "minus " + cardinal(-n)
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        rest = f" {cardinal(n % 100)}" if n % 100 else ""
        return f"{ONES[n // 100]} hundred{rest}"
    groups = []
    for scale in SCALES:
        n, group = divmod(n, 1000)
        if group:
            groups.append(f"{cardinal(group)} {scale}".strip())
    return " ".join(reversed(groups))


def ordinal(n: int) -> str:
    """21 -> "twenty-first"."""
    head, last = re.fullmatch(r"(.*?)([a-z]+)", cardinal(n)).groups()  # type: ignore[union-attr]
    return head + (ORDINALS.get(last) or (last[:-1] + "ie" if last[-1] == "y" else last) + "th")


def year(n: int) -> str:
    """1999 -> "nineteen ninety-nine", 2005 -> "two thousand five"; four digits."""
    high, low = divmod(n, 100)
    if high % 10 == 0 and low < 10:
        return cardinal(n)
    return f"{cardinal(high)} " + (
        "hundred" if not low else f"oh {ONES[low]}" if low < 10 else cardinal(low)
    )


def pair(text: str) -> str:
    """Two digits of a year or a clock: "07" -> "oh seven", "45" -> "forty-five"."""
    return f"oh {ONES[int(text)]}" if text[0] == "0" and text != "00" else cardinal(int(text))


def digits(text: str) -> str:
    """ "911" -> "nine one one"; what is not a digit is left out."""
    return " ".join(ONES[int(c)] for c in text if c.isdigit())


def number(text: str) -> str:
    """Digits with or without commas; long or zero-led ones are read digit by digit."""
    plain = text.replace(",", "")
    if len(plain) > (LARGEST if "," in text else LONGEST_PLAIN):
        return digits(plain)
    if len(plain) > 1 and plain[0] == "0":
        return digits(plain)
    return cardinal(int(plain))


def amount(text: str) -> str:
    """A number with or without commas and decimals."""
    return decimal(text) if "." in text else number(text)


def decimal(text: str) -> str:
    """3.14 -> "three point one four", 1.2.3 -> "one point two point three"."""
    first, *rest = text.split(".")
    read = number if len(rest) > 1 else digits  # versions count, decimals do not
    return " point ".join([number(first), *map(read, rest)])


def fraction(n: int, d: int) -> str:
    """1, 2 -> "one half"; 3, 4 -> "three quarters"; 5, 100 -> "five hundredths"."""
    if d == 2:
        part = "half" if n == 1 else "halves"
    elif d == 4:
        part = "quarter" if n == 1 else "quarters"
    else:
        part = ordinal(d).removeprefix("one ") + ("" if n == 1 else "s")
    return f"{cardinal(n)} {part}"


def several(words: str) -> str:
    """Number words in the plural: "eighty" -> "eighties", "six" -> "sixes"."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def roman(text: str) -> int | None:
    """XIV -> 14; None if it is none."""
    if not ROMAN.fullmatch(text):
        return None
    values = [ROMAN_VALUES[c] for c in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))
