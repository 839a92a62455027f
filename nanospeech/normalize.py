"""Normalize: writes out English numbers, signs and abbreviations as the words that are spoken.

For tokenizers that spell (chars, phonemes). Modest on purpose; acronyms stay in capitals.
"""

from __future__ import annotations

import re

UNDER_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen"""
DECADES = "- - twenty thirty forty fifty sixty seventy eighty ninety"
ONES, TENS = UNDER_TWENTY.split(), DECADES.split()
SCALES = ("", " thousand", " million", " billion", " trillion")
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
ORDINALS |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
MONEY = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
MAGNITUDES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion"}
UNITS = {"km": "kilometer", "cm": "centimeter", "mm": "millimeter", "kg": "kilogram", "g": "gram"}
UNITS |= {"m": "meter", "lb": "pound", "lbs": "pound", "mph": "mile per hour", "ft": "foot"}
TITLES = {"Mr": "Mister", "Mrs": "Missus", "Ms": "Ms", "Dr": "Doctor", "Prof": "Professor"}
TITLES |= {"Capt": "Captain", "Gen": "General", "Col": "Colonel", "Lt": "Lieutenant"}
TITLES |= {"Sgt": "Sergeant", "Rev": "Reverend", "Gov": "Governor", "Sen": "Senator"}
TITLES |= {"Mt": "Mount", "Ft": "Fort", "St": "Saint"}
OTHERS = {"e.g.": "for example", "i.e.": "that is", "etc.": "et cetera", "vs.": "versus"}
OTHERS |= {"Jr.": "Junior", "Sr.": "Senior", "St.": "Street", "approx.": "approximately"}
OTHERS |= {"Inc.": "Incorporated", "Ltd.": "Limited", "Co.": "Company", "Dept.": "Department"}
SIGNS = {
    "&": " and ",
    "+": " plus ",
    "=": " equals ",
    "@": " at ",
    "%": " percent",
    "°": " degrees",
}
SIGNS |= {"×": " times ", "÷": " divided by ", "€": " euros", "$": " dollars"}
HALVES = {"a": "ay em", "p": "pee em"}  # "A" alone would be read as the article
NUMBER = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"


def cardinal(n: int) -> str:
    """42 -> "forty-two"; any whole number below 10 ** 15, negative ones too."""
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
            groups.append(cardinal(group) + scale)
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


def digits(text: str) -> str:
    return " ".join(ONES[int(c)] for c in text if c.isdigit())


def number(text: str) -> str:
    """Digits with or without commas; long or zero-led ones are read digit by digit."""
    plain = text.replace(",", "")
    if len(plain) > 15 or (len(plain) > 1 and plain[0] == "0"):
        return digits(plain)
    return cardinal(int(plain))


def decimal(text: str) -> str:
    """3.14 -> "three point one four"; every further dot is a point too."""
    first, *rest = text.split(".")
    return " point ".join([number(first), *map(digits, rest)])


def plural(count: str, noun: str) -> str:
    head, space, tail = noun.partition(" ")
    return (
        noun
        if count == "1"
        else {"foot": "feet", "penny": "pence"}.get(head, f"{head}s{space}{tail}")
    )


def _money(m: re.Match) -> str:
    sign, whole, cents, scale = m.groups()
    unit, part = MONEY[sign]
    if scale:
        amount = decimal(f"{whole}.{cents}") if cents else number(whole)
        return f"{amount} {MAGNITUDES.get(scale, scale)} {unit}s"
    words = f"{number(whole)} {plural(whole, unit)}"
    if not cents or not int(cents):
        return words
    small = str(int(cents.ljust(2, "0")[:2]))
    change = f"{number(small)} {plural(small, part)}"
    return change if whole == "0" else f"{words} and {change}"


def _time(m: re.Match) -> str:
    hour, minute, half, dot = m.groups()
    if int(hour) > 24 or int(minute or 0) > 59:
        return m.group()
    low = int(minute or 0)
    past = f" oh {ONES[low]}" if 0 < low < 10 else f" {cardinal(low)}" if low else ""
    end = f" {HALVES[half.lower()]}" if half else "" if low else " o'clock"
    return cardinal(int(hour)) + past + end + _stop(m, dot)


def _letters(m: re.Match) -> str:
    end = "" if m.string[m.end() :].strip() else "."
    return " ".join("ay" if c == "A" else c for c in m[1] if c != ".") + end


def _stop(m: re.Match, dot: str | None) -> str:
    """An abbreviation's dot that also ends the sentence is kept."""
    after = m.string[m.end() :]
    return "." if dot and (not after.strip() or re.match(r"\s+[\"'(]?[A-Z]|[\"')]", after)) else ""


def _decade(m: re.Match) -> str:
    words = year(int(m[1])) if len(m[1]) == 4 else cardinal(int(m[1]))
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def _measure(m: re.Match) -> str:
    return f"{decimal(m[1]) if '.' in m[1] else number(m[1])} {plural(m[1], UNITS[m[2]])}"


def _any(words: dict[str, str]) -> str:
    return "|".join(re.escape(k) for k in sorted(words, key=len, reverse=True))


# in order: each rule sees what the ones above it left
RULES = [
    (
        rf"\b(?:(Mr|Mrs|Ms|Dr|Prof|St)\.?|({_any(TITLES)})\.)\s+(?=[A-Z])",
        lambda m: TITLES[m[1] or m[2]] + " ",
    ),
    (rf"(?<![\w.])({_any(OTHERS)})", lambda m: OTHERS[m[1]] + _stop(m, ".")),
    (r"\b((?:[A-Z]\.){2,})", _letters),
    (r"\bNo\.\s*(?=\d)|#(?=\d)", lambda m: "number "),
    (rf"([$£€])\s?({NUMBER})(?:\.(\d+))?(?:\s?(k|m|bn|b|[tmb]r?illion|thousand)\b)?", _money),
    (r"\b(\d{1,2}):(\d\d)(?!\d|:)(?:\s?([AaPp])\.?[Mm]\b(\.)?)?", _time),
    (r"(?<![\d.,:])(\d{1,2})()\s?([AaPp])\.?[Mm]\b(\.)?", _time),
    (r"\b((?:\d{3}-)?\d{3})-(\d{4})\b", lambda m: f"{digits(m[1])}, {digits(m[2])}"),
    (r"\b([12]\d\d0|[2-9]0)'?s\b", _decade),
    (r"(?<![\d-])(\d+)\s?-\s?(\d+)(?![\d-])", lambda m: f"{m[1]} to {m[2]}"),
    (r"(?<![\w.,-])-(?=\.?\d)", lambda m: "minus "),
    (
        r"\b(\d{1,3}(?:,\d{3}){0,4}|\d{1,15})(?:st|nd|rd|th)\b",
        lambda m: ordinal(int(m[1].replace(",", ""))),
    ),
    (rf"\b((?:{NUMBER})(?:\.\d+)?)\s?({_any(UNITS)})\b", _measure),
    (r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])", lambda m: " "),
    (rf"(?:{NUMBER})(?:\.\d+)+", lambda m: decimal(m[0])),
    (r"(?<!\w)\.(\d+)", lambda m: f"point {digits(m[1])}"),
    (r"(?<![\w,])(1\d\d\d|20\d\d)(?!,?\d)", lambda m: year(int(m[1]))),
    (NUMBER, lambda m: number(m[0])),
    (f"[{re.escape(''.join(SIGNS))}]", lambda m: SIGNS[m[0]]),
]
COMPILED = [(re.compile(pattern, re.ASCII), rule) for pattern, rule in RULES]


def expand(text: str) -> str:
    """English text with its numbers, money, times, signs and abbreviations written out."""
    for pattern, rule in COMPILED:
        text = pattern.sub(rule, text)
    return re.sub(r" {2,}", " ", re.sub(r" +(?=[.,!?;:])", "", text))
