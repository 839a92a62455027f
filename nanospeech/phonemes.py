"""Phonemes: English words to ARPAbet by dictionary. No rules of its own beyond regular suffixes.

The dictionary is the CMU Pronouncing Dictionary (BSD licence, data/cmudict.LICENSE.txt), first
pronunciations only. A word that is not in it is left to the caller, which spells it in letters.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = [
    "B",
    "CH",
    "D",
    "DH",
    "F",
    "G",
    "HH",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "P",
    "R",
    "S",
    "SH",
    "T",
    "TH",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
]
SYMBOLS = [v + stress for v in VOWELS for stress in "012"] + CONSONANTS

# Words whose commonest reading the dictionary lists second, or that running speech weakens.
PREFERRED = {
    "a": "AH0",
    "an": "AH0 N",
    "and": "AH0 N D",
    "are": "AA1 R",
    "because": "B IH0 K AO1 Z",
    "live": "L IH1 V",
    "lives": "L IH1 V Z",
    "of": "AH0 V",
    "or": "AO1 R",
    "our": "AW1 ER0",
    "read": "R IY1 D",
    "the": "DH AH0",
    "to": "T UW1",
    "use": "Y UW1 Z",
    "used": "Y UW1 Z D",
    "close": "K L OW1 Z",
    "wind": "W IH1 N D",
    "content": "K AA1 N T EH0 N T",
    "minute": "M IH1 N AH0 T",
    "minutes": "M IH1 N AH0 T S",
    "record": "R EH1 K ER0 D",
    "present": "P R EH1 Z AH0 N T",
    "object": "AA1 B JH EH0 K T",
    "tear": "T IH1 R",
    "tears": "T IH1 R Z",
    "bow": "B OW1",
    "wound": "W UW1 N D",
    "lead": "L IY1 D",
    "house": "HH AW1 S",
    "excuse": "IH0 K S K Y UW1 Z",
    "i": "AY1",
}
HISSING = {"S", "Z", "SH", "ZH", "CH", "JH"}
VOICELESS = {"P", "T", "K", "F", "TH"}


@lru_cache(maxsize=1)
def dictionary() -> dict[str, str]:
    """Word to phonemes, as "AH0 N D" strings; about 125,000 words, read once."""
    path = Path(__file__).parent / "data" / "cmudict.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as f:
        words = dict(line.rstrip("\n").split(" ", 1) for line in f)
    words.update(PREFERRED)
    return words


@lru_cache(maxsize=50_000)
def pronounce(word: str) -> tuple[str, ...] | None:
    """The phonemes of one word, or None when neither it nor its stem is in the dictionary.

    Args:
        word: letters and apostrophes, any case.
    """
    word = word.lower().replace("’", "'")
    known = dictionary()
    if word in known:
        return tuple(known[word].split())
    bare = word.strip("'")
    if bare in known:
        return tuple(known[bare].split())
    return inflected(bare, known)


def inflected(word: str, known: dict[str, str]) -> tuple[str, ...] | None:
    """A regular possessive, plural, past, participle or adverb of a known stem."""
    for suffix, stems in {
        "'s": ("",),
        "s'": ("s", ""),
        "es": ("", "e"),
        "s": ("",),
        "ed": ("", "e"),
        "ing": ("", "e"),
        "ly": ("", "le"),
        "er": ("", "e"),
        "less": ("",),
        "ness": ("",),
    }.items():
        if not word.endswith(suffix) or len(word) - len(suffix) < 2:
            continue
        base = word[: -len(suffix)]
        shorter = [base[:-1]] if len(base) > 3 and base[-1] == base[-2] else []
        for stem in [base + end for end in stems] + shorter:
            if stem in known:
                return (*known[stem].split(), *ending(suffix, known[stem].split()[-1]))
    return compound(word, known)


def ending(suffix: str, last: str) -> tuple[str, ...]:
    """The sound of a suffix after a stem's last phoneme."""
    if suffix in ("'s", "s'", "es", "s"):
        return ("IH0", "Z") if last in HISSING else ("S",) if last in VOICELESS else ("Z",)
    if suffix == "ed":
        unvoiced = last in (VOICELESS | HISSING) - {"Z", "ZH", "JH"}
        return ("IH0", "D") if last in ("T", "D") else ("T",) if unvoiced else ("D",)
    fixed = {"ing": "IH0 NG", "ly": "L IY0", "er": "ER0", "less": "L AH0 S", "ness": "N AH0 S"}
    return tuple(fixed[suffix].split())


def compound(word: str, known: dict[str, str]) -> tuple[str, ...] | None:
    """Two known words of at least three letters in a row ("snowplough"), the most even split."""
    for cut in sorted(range(3, len(word) - 2), key=lambda i: abs(2 * i - len(word))):
        if word[:cut] in known and word[cut:] in known:
            return (*known[word[:cut]].split(), *known[word[cut:]].split())
    return None
