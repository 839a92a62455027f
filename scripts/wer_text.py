"""Error rates of text: normalisation and edit distance. Knows no audio and no recogniser."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from nanospeech.errors import InputError
from nanospeech.normalize import expand

# different spellings of one sound, and short forms: both sides of a comparison get the same
SHORT_FORMS = {
    r"\bwon't\b": "will not",
    r"\bcan't\b": "can not",
    r"\bcannot\b": "can not",
    r"\bshan't\b": "shall not",
    r"\blet's\b": "let us",
    r"\by'all\b": "you all",
    r"n't\b": " not",
    r"'re\b": " are",
    r"'ll\b": " will",
    r"'ve\b": " have",
    r"'m\b": " am",
    r"'d\b": " would",
    r"\b(it|he|she|that|there|here|what|where|who|how|when)'s\b": r"\1 is",
    r"\bgonna\b": "going to",
    r"\bwanna\b": "want to",
    r"\bgotta\b": "got to",
    r"\bok\b": "okay",
    r"\balright\b": "all right",
    r"\b(h?mm+|u[hm]+|er+m?)\b": " ",  # hesitations
}
# British spellings that Whisper writes now and then
SPELLINGS = {
    r"\b(\w*(?:col|fav|neighb|hon|harb|lab|behavi|rum))our": r"\1or",
    r"\b(\w{3,})is(e|ed|es|ing)\b": r"\1iz\2",  # both sides alike, so promise may suffer too
    r"\b(learn|dream|burn|spell)t\b": r"\1ed",
    r"\bgrey": "gray",
    r"\btheatre": "theater",
    r"\bcentre": "center",
    r"\bmetre": "meter",
    r"\btravell(?=ed|er|ing)": "travel",
}
QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'"})
RULES = [(re.compile(k), v) for k, v in (SHORT_FORMS | SPELLINGS).items()]


def normalize(text: str) -> str:
    """Lower-case words without punctuation; numbers written out, short forms opened.

    In the manner of Whisper's English normaliser: what two people would write differently for the
    same sounds should become the same.
    """
    text = unicodedata.normalize("NFKC", text).translate(QUOTES)
    text = re.sub(r"\[[^\]]*\]", " ", text)  # [Music]
    text = expand(text).lower()
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    text = text.replace("'", "")  # what is left are possessives: dog's and dogs sound the same
    return " ".join(re.sub(r"[^\w\s]|_", " ", text).split())


def edit_distance(said: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(heard) + 1))
    for i, a in enumerate(said, 1):
        above = row
        row = [i]
        for j, b in enumerate(heard, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def rate(pairs: Iterable[tuple[str, str]], unit: Callable[[str], list[str]]) -> float:
    total = edits = 0
    for said, heard in pairs:
        a, b = unit(normalize(said)), unit(normalize(heard))
        total += len(a)
        edits += edit_distance(a, b)
    if not total:
        raise InputError("the texts hold no words; an error rate needs at least one")
    return edits / total


def wer(pairs: Iterable[tuple[str, str]]) -> float:
    """Corpus word error rate: all edits over all words said, after normalize.

    Args:
        pairs: (said, heard) texts.

    Raises:
        InputError: nothing was said.
    """
    return rate(pairs, str.split)


def cer(pairs: Iterable[tuple[str, str]]) -> float:
    """Corpus character error rate; spaces do not count."""
    return rate(pairs, lambda text: list(text.replace(" ", "")))
