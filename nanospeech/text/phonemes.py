"""Phonemes: English words to ARPAbet by dictionary, and by the parts of regular formations.

The dictionary is the CMU Pronouncing Dictionary (BSD licence, data/cmudict.LICENSE.txt), first
pronunciations only, and english/sounds.py over it. What neither has is left to the caller.
"""

from __future__ import annotations

import gzip
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from .english import words
from .english.sounds import corrections

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

HISSING = {"S", "Z", "SH", "ZH", "CH", "JH"}
VOICELESS = {"P", "T", "K", "F", "TH"}
# suffix: what may stand at the stem's end instead; those of the first sound change with the stem
ENDINGS = {"'ve": ("",), "'ll": ("",), "'d": ("",), "'re": ("",)}
ENDINGS |= {"'s": ("",), "s'": ("s", ""), "ies": ("y",), "es": ("", "e"), "s": ("",)}
ENDINGS |= {"ied": ("y",), "ed": ("", "e"), "ing": ("", "e"), "in'": ("", "e")}
ENDINGS |= {"ily": ("y",), "ically": ("ic",), "ly": ("", "le")}
ENDINGS |= {"ier": ("y",), "er": ("", "e"), "iest": ("y",)}
ENDINGS |= {"est": ("", "e"), "less": ("",), "iness": ("y",), "ness": ("",), "ful": ("",)}
ENDINGS |= {"ment": ("",), "able": ("", "e"), "ish": ("", "e"), "ship": ("",), "hood": ("",)}
ENDINGS |= {"scape": ("",), "like": ("",), "ward": ("",), "wards": ("",), "some": ("",)}
ENDINGS |= {
    "wise": ("",),
    "ism": ("", "e"),
    "ist": ("", "e"),
    "ize": ("",),
    "ion": ("", "e"),
    "y": ("", "e"),
    "ous": ("", "e"),
}
SOUNDS = {"'ve": "AH0 V", "'ll": "AH0 L", "'re": "ER0"}
SOUNDS |= {"ing": "IH0 NG", "in'": "IH0 N", "er": "ER0", "est": "AH0 S T"}
SOUNDS |= {"ly": "L IY0", "ically": "L IY0", "scape": "S K EY2 P"}
SOUNDS |= {"less": "L AH0 S", "ness": "N AH0 S", "ful": "F AH0 L", "ment": "M AH0 N T"}
SOUNDS |= {"able": "AH0 B AH0 L", "ish": "IH0 SH", "ship": "SH IH2 P", "hood": "HH UH2 D"}
SOUNDS |= {"like": "L AY2 K", "ward": "W ER0 D", "wards": "W ER0 D Z", "some": "S AH0 M"}
SOUNDS |= {
    "wise": "W AY2 Z",
    "ism": "IH2 Z AH0 M",
    "ist": "IH0 S T",
    "ize": "AY2 Z",
    "y": "IY0",
    "ous": "AH0 S",
}
PREFIXES = {"un": "AH0 N", "re": "R IY0", "non": "N AA2 N", "over": "OW2 V ER0"}
PREFIXES |= {"under": "AH2 N D ER0", "out": "AW2 T", "mis": "M IH0 S", "pre": "P R IY0"}
PREFIXES |= {"anti": "AE2 N T IY0", "sub": "S AH2 B", "super": "S UW2 P ER0"}
PREFIXES |= {"inter": "IH2 N T ER0", "dis": "D IH0 S", "semi": "S EH2 M IY0"}
PREFIXES |= {"multi": "M AH2 L T IY0", "micro": "M AY2 K R OW0", "counter": "K AW2 N T ER0"}
PREFIXES |= {"ultra": "AH2 L T R AH0", "cyber": "S AY2 B ER0", "bio": "B AY2 OW0"}
PREFIXES |= {"proto": "P R OW2 T OW0", "mono": "M AA2 N OW0", "hydro": "HH AY2 D R OW0"}
PREFIXES |= {"electro": "IH0 L EH2 K T R OW0", "photo": "F OW2 T OW0", "auto": "AO2 T OW0"}
PREFIXES |= {"psycho": "S AY2 K OW0", "nano": "N AE2 N OW0", "pseudo": "S UW2 D OW0"}
PREFIXES |= {"post": "P OW2 S T", "mid": "M IH2 D", "trans": "T R AE2 N Z"}
# British spellings, and the American ones that the dictionary has
BRITISH = [(re.compile(pattern), american) for pattern, american in [
    (r"our(?=(ed|ing|ful|less|able|ably|ite|hood|ly|er|y|al|ally|ist|ism)?s?$)", "or"),
    (r"is(?=(e|ed|es|ing|er|ers|ation|ations)$)", "iz"),
    (r"ys(?=(e|ed|es|ing|er|ers)$)", "yz"),
    (r"([bt])re(?=s?$)", r"\1er"),
    (r"ogue(?=s?$)", "og"),
    (r"ence(?=s?$)", "ense"),
    (r"ae|oe", "e"),
    (r"ll(?=(ed|ing|er|ers)$)", "l"),
]]  # fmt: skip
# those of verbs, tried first: "emphasised" is not of "emphasis", nor "modelled" of "Modell"
VERBS = [(re.compile(pattern), american) for pattern, american in [
    (r"([iy])s(?=(e|ed|es|ing|er|ers)$)", r"\1z"),
    (r"^(.*[aeiouy][^aeiouy]+[aeiou]l)l(?=(ed|ing|er|ers)$)", r"\1"),
]]  # fmt: skip
LATER = re.compile("[a-z]{4,}u|[a-z]{3,}[^s]i")  # words of other languages: "tsunami"
# a syllable whose last letter a suffix doubles: "sloped" is of "slope", and "slopped" of "slop"
SINGLE = re.compile("[^aeiou]*[aeiouy][bcdfgklmnprstvz]")
VOCALIC = set("aeiouy")
# words of three letters that compounds begin with and names do not
SHORT = set(
    words(
        """air box cut day egg end eye fan fly gas hot jet job key law low off oil one pay pop sea
        sky sun tax tie top toy two war way web zip zoo"""
    )
)
FORMS = ("s", "es", "ed", "d", "ing", "er", "ers", "y", "'s")
# what is no second word of a compound, nor follows a prefix: these move the stress
BOUND = set(
    words(
        """logy logies logist logists logical logous graphy graphies graphic graphics graphical
        grapher graphers metry metric nomy nomic pathy phagy phony scopy scopic tomy gamy cation
        cations ation ations"""
    )
)
CONTRACTED = re.compile(
    "^([a-z]+n)(t)$|^([a-z]{2,}|i)(re|ve|ll|d)$|^(he|she|that|there|where|here|who|what|how)(s)$"
)
LONGEST = 40  # letters; what is longer is no word, and trying all its splits would be slow


class Dictionary(Mapping[str, str]):
    """Word to phonemes, as "AH0 N D" strings.

    Lines are searched as they are: to part all of them into a dict takes four times as long as to
    read them, and a text has few of their words.

    Args:
        lines: a word, a space and its phonemes each, no word twice.
        over: words that go before those of the lines.
    """

    def __init__(self, lines: list[str], over: Mapping[str, str]):
        self.lines, self.over = sorted(lines), over

    def found(self, word: str) -> str | None:
        """The phonemes of a word that is known."""
        if (said := self.over.get(word)) is not None:
            return said
        start = f"{word} "
        place = bisect_left(self.lines, start)
        if " " in word or place == len(self.lines) or not self.lines[place].startswith(start):
            return None
        return self.lines[place][len(start) :]

    def __getitem__(self, word: str) -> str:
        if (said := self.found(word)) is None:
            raise KeyError(word)
        return said

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.found(word) is not None

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*(line.split(" ", 1)[0] for line in self.lines), *self.over])

    def __len__(self) -> int:
        return sum(1 for _ in self)


@lru_cache(maxsize=1)
def dictionary() -> Dictionary:
    """About 125,000 words, read once."""
    path = Path(__file__).parent / "data" / "cmudict.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as f:
        return Dictionary(f.read().splitlines(), corrections())


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
    if len(bare) > LONGEST:
        return None
    if (whole := contraction(bare)) in known:
        return tuple(known[whole].split())
    return inflected(bare, known) or respelled(bare, known) or compound(bare, known)


def contraction(word: str) -> str:
    """A contraction with its apostrophe, where it was left out: "dont", "shes", "theyre"."""
    return CONTRACTED.sub(lambda m: "'".join(filter(None, m.groups())), word)


def inflected(word: str, known: Mapping[str, str], depth: int = 3) -> tuple[str, ...] | None:
    """A word of known parts: a stem with regular suffixes, up to `depth`, or with a prefix."""
    if word in known:
        return tuple(known[word].split())
    for pattern, american in VERBS:
        if (twin := pattern.sub(american, word)) in known:
            return tuple(known[twin].split())
    if not depth:
        return None
    for suffix, stems in ENDINGS.items():
        if not word.endswith(suffix) or len(word) - len(suffix) < 2:
            continue
        base = word[: -len(suffix)]
        if suffix == "s" and base[-1] in "sui" and not LATER.fullmatch(base):
            continue  # "paleness", "Cassius", "stasis", but "emojis"
        if suffix == "y" and base[-1] == "y":  # "wayyy"
            continue
        whole = [base + end for end in stems]
        if "e" in stems and SINGLE.fullmatch(base):
            whole.reverse()
        doubled = len(base) > 3 and base[-1] == base[-2] and suffix[0] in VOCALIC
        shorter = [base[:-1]] if doubled and stems != ("y",) else []
        for stem in whole + shorter:
            # two letters are a word before 's and s alone
            enough = len(stem) > (3 if suffix == "y" and not doubled else 2) or suffix[-1] == "s"
            enough = enough and (suffix != "s" or base[-1] not in "ui" or base in known)
            if enough and (phonemes := inflected(stem, known, depth - 1)):
                if suffix == "ion" and phonemes[-1] not in ("T", "S"):
                    continue
                return suffixed(verbal(stem, suffix, phonemes), suffix, stem)
    for prefix, sound in PREFIXES.items():
        rest = word.removeprefix(prefix)
        whole = rest != word and len(rest) > 3 and rest not in BOUND
        if whole and (phonemes := inflected(rest, known, depth - 1)):
            return (*sound.split(), *phonemes)
    return None


def verbal(stem: str, suffix: str, phonemes: tuple[str, ...]) -> tuple[str, ...]:
    """A stem in -ate as a verb: "aggregating" is not of the noun. "Pirate" is too short."""
    longer = sum(p[-1].isdigit() for p in phonemes) > 2
    fits = suffix == "ion" or (longer and suffix in ("ed", "ing", "er"))
    if fits and stem.endswith("ate") and phonemes[-2:] == ("AH0", "T"):
        return (*phonemes[:-2], "EY2", "T")
    return phonemes


def suffixed(phonemes: tuple[str, ...], suffix: str, stem: str) -> tuple[str, ...]:
    """A stem's sounds and those of a suffix, where they meet too."""
    if suffix == "ion" and phonemes[-2][:2] == "EY":  # the stress of "-ation"
        before = (p.replace("1", "2") for p in phonemes[:-2])
        return (*before, "EY1", "SH", "AH0", "N")
    if suffix == "ion":
        return (*phonemes[:-1], "SH", "AH0", "N")
    if suffix == "ly" and phonemes[-1] == "L":  # "spatially", "wrinkly"
        weak = phonemes[-2] == "AH0" and stem.endswith(("le", "ical"))
        return (*(phonemes[:-2] if weak else phonemes[:-1]), "L", "IY0")
    return (*phonemes, *ending(suffix, phonemes[-1]))


def ending(suffix: str, last: str) -> tuple[str, ...]:
    """The sound of a suffix after a stem's last phoneme."""
    if suffix in ("'s", "s'", "es", "s", "ies"):
        return ("IH0", "Z") if last in HISSING else ("S",) if last in VOICELESS else ("Z",)
    if suffix == "'d":
        return ("AH0", "D") if last in ("T", "D") else ("D",)
    if suffix in ("ed", "ied"):
        unvoiced = last in (VOICELESS | HISSING) - {"Z", "ZH", "JH"}
        return ("IH0", "D") if last in ("T", "D") else ("T",) if unvoiced else ("D",)
    return tuple((SOUNDS.get(suffix) or SOUNDS[suffix[1:]]).split())  # "iest" is "y" and "est"


def respelled(word: str, known: Mapping[str, str]) -> tuple[str, ...] | None:
    """A British spelling by its American twin ("colourful")."""
    for pattern, american in BRITISH:
        twin = pattern.sub(american, word)
        if twin != word and (phonemes := inflected(twin, known)):
            return phonemes
    return None


def compound(word: str, known: Mapping[str, str]) -> tuple[str, ...] | None:
    """A compound of two known words of four letters or more ("snowplough"), split most evenly.

    The second word is one that has inflections, or is one, and the compound may be a possessive.
    The first has the stress, and three letters at times ("keychain"). Shorter and rarer words are
    found in too many names ("Barn-ard").
    """
    for suffix in ("'s", "s'"):
        if word.endswith(suffix):
            whole = compound(word.removesuffix(suffix), known)
            return None if whole is None else (*whole, *ending(suffix, whole[-1]))
    best = None
    for cut in range(3 if word[:3] in SHORT else 4, len(word) - 3):
        first, second = word[:cut], word[cut:]
        if first not in known or second in BOUND or not common(second, known):
            continue
        depth = 0 if second in known else 1
        if (len(second) > 4 or not depth) and (said := inflected(second, known, depth)):
            # "time-scales" before "times-cales", "motor-home" before "moto-rhomes"
            order = (first.endswith("s"), depth, abs(2 * cut - len(word)))
            if best is None or order < best[0]:
                best = order, (*known[first].split(), *(p.replace("1", "2") for p in said))
    return best[1] if best else None


def common(word: str, known: Mapping[str, str]) -> bool:
    """Whether other forms of a word are known, so that it is no rare name."""
    stems = [word[: -len(s)] + e for s in FORMS if word.endswith(s) for e in ("", "e")]
    stems += [word[:-3] + "y"] * word.endswith("ies") + [word[:-1] + "ies"] * word.endswith("y")
    return any(form in known for form in (*stems, *(word + s for s in FORMS)))
