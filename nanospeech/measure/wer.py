"""Error rates of text: normalisation and edit distance. Knows no audio and no recogniser."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from nanospeech.errors import InputError, require

# Spellings of one sound that Whisper's normaliser keeps apart. Applied before it, to both sides.
TIME = re.compile(r"\b(\d{1,2}):(\d\d)\b")  # 9:30 and nine thirty, 7:00 and seven
DOTTED = re.compile(r"\b(?:(?:[a-z]\.){3,}|[ap]\.m\.|u\.[sk]\.)")  # p.m. and PM, U.S.A. and USA
SPELLINGS = [
    (re.compile(pattern), plain)
    for pattern, plain in {
        r"\bokay\b": "ok",
        r"\bcannot\b": "can not",
        r"\be-mail": "email",
        r"\bo'clock\b": "oclock",  # the o is no zero
        r"\bper cent\b": "percent",
        r" & ": " and ",
        r"\bno\. ?(?=\d)": "number ",
        r"(\d) ?kg\b": r"\1 kilograms",
        r"(\d) ?km\b": r"\1 kilometers",
        r"(\d) ?cm\b": r"\1 centimeters",
        r"\ba (hundred|thousand|million)\b": r"one \1",
    }.items()
]
BRACKETS = str.maketrans("()", "  ")  # what is in them is spoken; the normaliser drops it
# languages that are written without spaces between words: a character counts as a word
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")
# function words; one of them in a transcript is no evidence of a leak
COMMON = """
    a about after all also am an and any are as at be been before but by can could did do does
    for from had has have he her here him his how i if in into is it its just like me more my no
    not now of off oh on one only or other our out over said she should so some than that the their
    them then there these they this those through to too two up us very was we well were what when
    where which who why will with would yes you your"""
FUNCTION_WORDS = frozenset(COMMON.split())


@lru_cache
def normalizer(language: str = "en") -> Callable[[str], str]:
    """Whisper's own text normaliser (arXiv 2212.04356, appendix C), by whisper-normalizer.

    The English one lowers case, drops punctuation and hesitations, opens short forms, writes
    numbers as digits and British words the American way; others lower case and drop punctuation.

    Raises:
        BackendError: whisper-normalizer is not installed.
    """
    if language == "en":
        return require("whisper_normalizer.english", "eval").EnglishTextNormalizer()
    basic = require("whisper_normalizer.basic", "eval").BasicTextNormalizer
    return basic(split_letters=language in UNSPACED, preserve_marks=True)


def normalize(text: str, language: str = "en") -> str:
    """Normalises a text, so that different spellings of the same sounds become one.

    Args:
        language: its code; only English has more rules than case and punctuation.
    """
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")  # soft hyphens and the like
    text = text.translate(BRACKETS)
    if language == "en":
        text = text.lower().replace("’", "'")
        text = DOTTED.sub(lambda m: m[0].replace(".", "") + " ", text)
        text = TIME.sub(spoken_time, text)
        for pattern, plain in SPELLINGS:
            text = pattern.sub(plain, text)
    words = normalizer(language)(text).split()
    return " ".join(w for w in words if any(map(str.isalnum, w)))


def spoken_time(match: re.Match) -> str:
    """The digits that the normaliser makes of a time's words: nine thirty is 930."""
    hours, minutes = match.groups()
    return hours if minutes == "00" else hours + minutes


def edit_rows(said: Sequence[str], heard: Sequence[str]) -> Iterator[list[int]]:
    """Fewest insertions, deletions and substitutions between beginnings of two sequences.

    Yields:
        For each count i of elements of said, from 0 on: the edits that turn these into the first j
        of heard, for each j from 0 on (Wagner and Fischer, 1974).
    """
    row = list(range(len(heard) + 1))
    yield row
    for i, a in enumerate(said, 1):
        above, row = row, [i]
        for j, b in enumerate(heard, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
        yield row


def edit_distance(said: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions that turn one sequence into the other."""
    return deque(edit_rows(said, heard), maxlen=1)[0][-1]


def word_edits(said: str, heard: str, language: str = "en") -> tuple[int, int]:
    """Edits between two texts, and the words of the first, after normalize."""
    a, b = normalize(said, language).split(), normalize(heard, language).split()
    return edit_distance(a, b), len(a)


def char_edits(said: str, heard: str, language: str = "en") -> tuple[int, int]:
    """Edits between two texts, and the characters of the first; spaces do not count."""
    a, b = (normalize(t, language).replace(" ", "") for t in (said, heard))
    return edit_distance(a, b), len(a)


def rate(counts: Iterable[tuple[int, int]]) -> float:
    """Total edits over total length of the references.

    Args:
        counts: of word_edits or char_edits, for each utterance.

    Raises:
        InputError: nothing was said.
    """
    edits, total = (sum(c) for c in zip((0, 0), *counts))
    if not total:
        raise InputError("the texts hold no words; an error rate needs at least one")
    return edits / total


def wer(pairs: Iterable[tuple[str, str]], language: str = "en") -> float:
    """Corpus word error rate of (said, heard) texts, after normalize.

    Raises:
        InputError: nothing was said.
    """
    return rate(word_edits(said, heard, language) for said, heard in pairs)


def cer(pairs: Iterable[tuple[str, str]], language: str = "en") -> float:
    """Corpus character error rate; spaces do not count."""
    return rate(char_edits(said, heard, language) for said, heard in pairs)


def leaked(text: str, heard: str, prompt: str, language: str = "en") -> list[str]:
    """Leaked words: words of the prompt that a transcript has more often than the text.

    Function words are ignored, as recognisers often insert them, except for the prompt's last word
    before the text's first, where leaks happen. Other forms and spellings of a word of the text are
    no leaks (home and homes, bed room).

    Args:
        text: the reference text.
        heard: the transcript.
        prompt: the words of the reference recording.
    """
    asked, said, reference = (normalize(t, language).split() for t in (text, heard, prompt))
    left, found = Counter(asked), []
    for word in said:
        left[word] -= 1
        new = left[word] < 0 and (word in asked or not is_form(word, asked))
        if new and word in reference and word not in FUNCTION_WORDS:
            found.append(word)
    before = said[:1] != asked[:1] == said[1:2] and said[:1] == reference[-1:]
    if before and said[0] in FUNCTION_WORDS:
        found.insert(0, said[0])
    return found


def is_form(word: str, asked: Sequence[str]) -> bool:
    """Whether a word is the beginning or end of one that was asked for, begins with one, or is two
    or three of them in a row."""
    several = {"".join(asked[i : i + n]) for n in (2, 3) for i in range(len(asked))}
    return word in several or any(
        (len(word) > 2 and (a.startswith(word) or a.endswith(word)))
        or (len(a) > 2 and a not in FUNCTION_WORDS and word.startswith(a))
        for a in asked
    )
