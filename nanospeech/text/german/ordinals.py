"""German ordinals: whether a number with a stop is one, its ending, and whether the stop stays."""

from __future__ import annotations

import re

from .nouns import (
    ARTICLES,
    COUNTED,
    NEUTER,
    NUMBERING,
    STARTERS,
    first_word,
    gender,
    is_feminine,
    starts_sentence,
)
from .number_words import BEFORE_DER, WEAK, ending_after, ordinal, words

REACH = 60  # characters before a number that are looked at
# before a number with a stop, these make an ordinal of it
DETERMINERS = words(
    """der die das dem den des am im vom zum beim zur ein eine einen einem einer eines jeder jede
    jedes jeden jedem sein seine seinen seinem seiner ihr ihre ihren ihrem ihrer mein meine meinen
    meinem unser unsere unserem dieser diese dieses diesem diesen kein keine ins ans bis ab seit und
    oder dessen deren"""
)
# and these even where it ends the sentence: "Er kommt am 12."
OF_DAYS = words("am im vom zum beim dem den der des jeden")
PREDICATE = words("wurde wurden wird war ist bin wurdest")
DATIVE = words("in aus bei mit nach von zu auf ab seit an vor")
# nouns that begin a sentence as well, and what stands before their ordinals: "auf 3. Platz"
VAGUE = words(
    """Tag Monat Woche Teil Runde Minute Schritt Stufe Viertel Drittel Mal Gang Platz Preis Stock
    Sonntag Versuch Klasse Jan Mai August Mose"""
)
LEADING = re.compile(
    rf"\b(?i:{'|'.join(sorted(DATIVE | PREDICATE))}|als|für|um den|gegen)\s\Z|[A-ZÄÖÜ]\w+s\s\Z"
)
STRONG_ENDINGS = {"f": "e", "m": "er", "n": "es"}
DATIVE_ENDINGS = {"f": "er", "m": "em", "n": "em"}

OPENS = re.compile(r"(?:\A|\n|(?<!\d)[.!?]|[.!?][\"')]|[:;])[\s\"'(]*\Z")
ADJECTIVE = re.compile(r"(?:und|oder|bis|[a-zäöüß]+(?:e|er|es|en) [A-ZÄÖÜ])")
BRACKET = re.compile(r"\([\"']*\Z")
COMMA = re.compile(r",\s*\Z")
WORDS_BEFORE = re.compile(r"(?:([^\W\d]+)[.]?\s+)?([^\W\d]+)[.]?[\s:]*\Z")
JOINED = re.compile(r"(?<![\w.,])\d{1,3}\.(?:,? (?:und|oder|bis) |, ?|/| ?[-–] ?)\Z")
SERIES = re.compile(
    r"(?:,? ?(?:und|oder|bis)? ?\d{1,3}\.,? ?)*(?:und|oder|bis)? ?(?:\d{1,3}\. )?"
    r"(?:[a-zäöüß]+e[rsn]? )?"
)
OF_NOUN = re.compile(r"\b([A-ZÄÖÜ][^\W\d]+) der \Z")
PLAIN = re.compile(r"\d,? (?:und|oder|bis) \Z")


def before(m: re.Match) -> str:
    """What stands in front of a match, as far as it matters."""
    return m.string[max(0, m.start() - REACH) : m.start()]


def behind(m: re.Match) -> str:
    """What stands behind a match, as far as it matters."""
    return m.string[m.end() : m.end() + REACH]


def stop(m: re.Match) -> str:
    """The stop of an abbreviation where it ends the sentence as well."""
    return "." if m[0].endswith(".") and starts_sentence(behind(m).lstrip(" ")) else ""


def reading(front: str, following: str) -> tuple[bool, bool]:
    """How a number with a stop is read.

    Args:
        front: what stands before the number.
        following: what stands behind its stop, without the space.

    Returns:
        Whether it is an ordinal, and whether the stop ends the sentence.
    """
    noun, starts = first_word(following), starts_sentence(following)
    found = WORDS_BEFORE.search(front)
    last = found[2] if found else ""
    if last in NUMBERING:
        return False, True
    counts, small = noun in COUNTED, following[:1].islower()
    item = small and noun in ARTICLES
    if JOINED.search(front) and not item:
        return True, starts
    if BRACKET.search(front):
        return not (starts or item), False
    if OPENS.search(front):
        return counts or (not item and bool(ADJECTIVE.match(following))), False
    if COMMA.search(front):
        return (counts or small) and not item, not (counts or small)
    if small or (counts and (noun not in VAGUE or LEADING.search(front))):
        return True, False
    if PLAIN.search(front) or last.lower() not in DETERMINERS:
        return False, True
    if not starts:
        return True, False
    of_tram = last == "der" and found and (found[1] or "").lower() in BEFORE_DER
    return last.lower() in OF_DAYS and not of_tram, True


def is_bare(word: str) -> bool:
    """Whether no article stands before a noun that this word is before: "Karls 2. Versuch"."""
    if word in ("und", "oder"):
        return True
    return word[0].isupper() and word.endswith("s") and word.lower() not in DETERMINERS | WEAK


def ending(front: str, following: str) -> str:
    """The ending of an ordinal, by the words before it and the noun behind."""
    joined = JOINED.search(front)
    if joined:
        return ending(front[: joined.start()], following)
    last = WORDS_BEFORE.search(front)
    if last and last[2] in PREDICATE and (last[1] or "").lower() != "sie":
        return "er"
    found = ending_after(front)
    if last and last[2].lower() in ("jedes", "dieses"):  # nominative, or genitive in -s
        noun = first_word(following)
        return "e" if noun in NEUTER or not noun.endswith("s") else "en"
    series = SERIES.match(following)
    owner = OF_NOUN.search(front)  # "die Klasse der 12. Schule"
    if found == "e" and owner and owner[1] not in STARTERS and is_feminine(first_word(following)):
        return "en"
    of_noun = gender(first_word(following[series.end() if series else 0 :]))
    if of_noun is None:
        return found
    if last and last[2].lower() in DATIVE:
        return DATIVE_ENDINGS[of_noun]
    strong = found == "er" or front[-1:] == "\n" or (last and is_bare(last[2]))
    return STRONG_ENDINGS[of_noun] if strong else found


def said(n: int, m: re.Match, otherwise: str) -> str:
    """A number with a stop and a space: as an ordinal, or otherwise."""
    front, following = before(m), behind(m)
    is_one, ends = reading(front, following)
    if not is_one:
        return otherwise
    return ordinal(n, ending(front, "" if ends else following)) + (". " if ends else " ")


def at_end(m: re.Match) -> str:
    """The number that ends a text or a paragraph: "Er kommt am 12." """
    front = before(m)
    is_one = reading(front, "")[0] and not OPENS.search(front)
    return f"{ordinal(int(m[1]), ending(front, ''))}." if is_one else m[0]


def listed(m: re.Match) -> str:
    """ "1., 2. und 3." """
    return ordinal(int(m[1]), ending(before(m), behind(m)))


RULES = [
    (r"(?<=\d\.) ?[-–] ?(?=\d{1,3}\. )", lambda m: " bis "),
    (r"(?<![\d.,\w])(\d{1,3})\.(?= ?\+ ?\d)", lambda m: ordinal(int(m[1]))),
    (r"(?<![\d.,\w])(\d{1,3})\. (?=[^\W\d_])", lambda m: said(int(m[1]), m, m[0])),
    (r"(?<![\d.,\w])(\d{1,3})\.(?=,| ?[-–])", listed),
    (r"(?<![\d.,\w:])(\d{1,3})\.(?=[\"')]*(?:\n|\Z))", at_end),
]
