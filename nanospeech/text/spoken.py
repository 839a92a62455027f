"""Spoken: the words of a text to phonemes, each with where they come from. Ids are tokenizer.py's.

A user's lexicon goes first, then readings of heteronyms, the dictionary and its parts, initials,
the network, and letters.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from .english import words
from .g2p import guess, readable
from .heteronyms import say_heteronym
from .lexicon import Lexicon
from .phonemes import LONGEST, dictionary, ending, pronounce

FOLD = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": ".", "\n": " ", "\t": " "}
)
VOWEL = re.compile("[AEIOUY]")
SPELLED = words(
    """ABS AI ID IM OS NGO OLED IDE IOS iOS ROI SEO EV COO EEG MC UPS AEST EST ET GED KO OP OT PST
    SEC URI AB AE AG ALS AU BI DI ES FS GA IA IB IL ILO INS IRA MI NE NI OG OU RA SA SE SI TA TIL
    UVA WA"""
)  # though the dictionary has words of these letters
INITIALS = re.compile("([A-Z]{2,5})['’]?s")
CAMEL = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
PAIRS = re.compile("[A-Z]{2}s")
INITIALS_DONE = re.compile("([A-Z]{1,5})['’]d")
SHORTENED = re.compile("[A-Z]{2,}[a-rt-z]")
DRAWN = re.compile(r"([a-z])\1{2,}")
WORDS = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")
POSSESSIVE = re.compile(r"['’][sS](?![A-Za-z])")
# where tokens come from; an entry of a lexicon names its file and line instead
DICTIONARY, PARTS, LETTERS = "dictionary", "parts of the dictionary's words", "letters"
MODEL = "network"
INITIAL, TAG, MARK = "initials", "tag", "mark"
HETERONYM = "reading by its sentence"


class Spoken(NamedTuple):
    """A piece of a text and its tokens.

    Attributes:
        start, stop: its characters in the text.
        tokens: phonemes, letters, a tag or a mark.
        source: where they come from.
    """

    start: int
    stop: int
    tokens: tuple[str, ...]
    source: str


Said = tuple[tuple[str, ...], str]  # tokens and their source


def spoken(
    text: str,
    spell: Collection[int] = (),
    lexicon: Lexicon | None = None,
    tags: re.Pattern | None = None,
) -> list[Spoken]:
    """All of a text, piece by piece: words, entries of the lexicon, tags, and marks one by one.

    Args:
        text: prepared, see sentences.py.
        spell: indices of words to spell in letters, as WORDS counts them.
        lexicon: of the user.
        tags: tokens that stay whole.
    """
    apart = islands(text, lexicon, tags)
    text = text.translate(FOLD)
    words = list(WORDS.finditer(text)) if spell else []
    spelled = {words[i].start() for i in spell if i < len(words)}
    guess_unknown(text)
    out: list[Spoken] = []
    at = 0
    for island in (*apart, Spoken(len(text), len(text), (), "")):
        for match in WORDS.finditer(text, at, island.start):
            out += marks(text, at, match.start())
            word = match.group()
            letters = match.start() in spelled
            if letters:
                tokens, source = tuple(word.lower()), LETTERS
            elif dropped := without_g(text, match):
                tokens, source = dropped, PARTS
            elif found := say_heteronym(text, match.start(), match.end()):
                tokens, source = found[0], f"{HETERONYM}: {found[1]}"
            else:
                tokens, source = say_word(word)
            out.append(Spoken(match.start(), match.end(), tokens, source))
            at = match.end()
        out += marks(text, at, island.start)
        out += [island] if island.source else []
        at = island.stop
    return out


def without_g(text: str, match: re.Match) -> tuple[str, ...] | None:
    """The sound of "goin'" by that of "going"; None of words in quotes and all others.

    The apostrophe may be left out of words that the dictionary lacks, names aside: "comin".
    """
    word, quoted = match.group().lower(), text[: match.start()][-1:] == "'"
    marked = text[match.end() : match.end() + 1] == "'" and not quoted
    bare = match.group() == word and word not in dictionary()
    if not word.endswith("in") or not (marked or bare):
        return None
    whole = dictionary().get(word + "g", "").split()
    return (*whole[:-1], "N") if whole[-1:] == ["NG"] else None


def guess_unknown(text: str) -> None:
    """Asks the network for all unknown words of a text together; say_word then finds them."""
    found = (POSSESSIVE.sub("", word).lower() for word in WORDS.findall(text))
    guess([w for w in found if pronounce(w) is None and readable(w)])


def islands(
    text: str, lexicon: Lexicon | None = None, tags: re.Pattern | None = None
) -> list[Spoken]:
    """What is no word to look up, in order: tags, and entries of the lexicon with their 's."""
    found = []
    if tags:
        found = [Spoken(m.start(), m.end(), (m[0],), TAG) for m in tags.finditer(text)]
    if lexicon:
        rest = tags.sub(lambda m: "\0" * len(m[0]), text) if tags else text
        for start, stop, entry in lexicon.find(rest):
            tokens = entry.tokens
            if owner := POSSESSIVE.match(rest, stop):
                stop, tokens = owner.end(), (*tokens, *ending("'s", tokens[-1]))
            found.append(Spoken(start, stop, tokens, entry.source))
    return sorted(found)


def marks(text: str, start: int, stop: int) -> list[Spoken]:
    """What stands between words, character by character."""
    return [Spoken(i, i + 1, (text[i],), MARK) for i in range(start, stop)]


def named(letter: str) -> tuple[str, ...]:
    """A letter's name; that of "a" is not the article."""
    return ("EY1",) if letter in "aA" else pronounce(letter) or (letter.lower(),)


def misspelled(word: str, known: tuple[str, ...]) -> bool:
    """Whether the dictionary's initials have one wrong sound: it has G IY D IY P IY for "GDP"."""
    if not (word.isupper() and 3 <= len(word) <= 5):
        return False
    names = [p.rstrip("012") for letter in word for p in named(letter)]
    bare = [p.rstrip("012") for p in known]
    return len(bare) == len(names) and sum(a != b for a, b in zip(bare, names)) == 1


@lru_cache(maxsize=50_000)
def say_word(word: str) -> Said:
    """One word without its sentence.

    Args:
        word: letters and apostrophes.

    Returns:
        Phonemes, or the letters of a word that nothing is known of; and their source.
    """
    several = INITIALS.fullmatch(word)  # "MPs", "MP's", "PCs"
    if several and len(word) > len(several[1]) + 1:  # "BBC's" is "BBC" and an s
        base, source = say_word(several[1])
        return (*base, *ending("'s", base[-1])), source
    if PAIRS.fullmatch(word) and word != "OKs":  # "GPs" and "PAs", which are other words too
        names = [p for letter in word[:2] for p in named(letter)]
        return (*names, *ending("'s", names[-1])), INITIAL
    known = pronounce(word)
    whole = word.lower() in dictionary()
    if not whole and (done := INITIALS_DONE.fullmatch(word)):  # "KO'd"
        base, source = say_word(done[1])
        return (*base, *ending("'d", base[-1])), source
    if known is not None and not whole:
        if several:  # "EVs" is no plural of a word "ev"
            base, source = say_word(several[1])
            return (*base, *ending("'s", base[-1])), source
        known = None if word.isupper() and len(word) <= 3 else known  # "AWS" is no "aw" and an s
    if known is not None and misspelled(word, known):
        return tuple(p for letter in word for p in named(letter)), INITIAL
    if known is not None and (several[1] if several else word) not in SPELLED:
        return known, DICTIONARY if whole else PARTS
    if (short := undrawn(word)) and (len(word) > 4 or not word.isupper()):
        return pronounce(short) or (), PARTS
    vowel = VOWEL.search(word.upper())
    capitals = word.isupper() and (len(word) <= 4 or not vowel)
    consonants = not vowel and not several and word.isalpha() and len(word) <= 4  # "txt"
    if len(word) > 1 and (capitals or consonants or SHORTENED.fullmatch(word)):  # "PCIe"
        return tuple(p for letter in word for p in named(letter)), INITIAL
    if several:
        return (*(p for letter in several[1] for p in named(letter)), "Z"), INITIAL
    parts = CAMEL.findall(word)
    if len(parts) > 1 and "'" not in word:  # "PyTorch"
        said = [say_word(part) for part in parts]
        sources = dict.fromkeys(source for _, source in said)
        return tuple(p for tokens, _ in said for p in tokens), ", ".join(sources)
    return unknown(word)


def undrawn(word: str) -> str | None:
    """The dictionary's word of one that is drawn out: "soooo", "goooood"; None if it is none."""
    word = word.lower()
    if len(word) > LONGEST or not (found := DRAWN.search(word)):
        return None
    # "so" before "soo", but "good" before "god"
    for times in (1, 2, 3) if found.end() == len(word) else (2, 1):
        short = DRAWN.sub(lambda m, n=times: m[1] * n, word)  # type: ignore[misc]
        if len(short) > 1 and short in dictionary():
            return short
    return None


def unknown(word: str) -> Said:
    """A word that nothing is known of: by the network; one without a vowel by its letters."""
    owner = POSSESSIVE.search(word)
    bare = (word[: owner.start()] if owner else word).lower().replace("’", "'")
    if not readable(bare):
        return tuple(word.lower()), LETTERS
    said = guess([bare])[0]
    return (*said, *ending("'s", said[-1])) if owner else said, MODEL
