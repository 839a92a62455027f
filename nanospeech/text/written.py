"""Written: the words of a text as written, and the part of the prepared text that says each.

The words of a number, a date or an abbreviation that were read as a whole ("Jan. 5, 2024") are
told apart by how each is read alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from .traced import Traced

# scripts that put no spaces between words: each character counts as a word
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
OPENING = "(\\[{<«“‘「『（【〈《"
LONG_DASH = "—―"
WORD = re.compile(  # signs before a word are bounded: else dashes take squared time
    rf"[^\w\s]{{0,99}}[{UNSPACED}][^\w\s{OPENING}]*"
    rf"|[{LONG_DASH}]{{0,99}}(?:(?![{UNSPACED}])[^\s{LONG_DASH}])+[{LONG_DASH}]*|\S"
)
LARGEST = 4000  # written words times said ones that are told apart by reading them


@dataclass(frozen=True)
class Written:
    """A word as written.

    Attributes:
        text: with its marks.
        place: of its first character in the whole text.
        start: first character that says it, in the text as read.
        stop: behind the last one; equal to the start for what is not said, as a dash alone.
        whole: whether it ends here; False for one that the next chunk goes on with.
    """

    text: str
    place: int
    start: int
    stop: int
    whole: bool = True


def written_words(
    text: str, said: Traced, read: Callable[[str], str], place: int = 0
) -> list[Written]:
    """The words of a text, in order: "".join(their texts) == "".join(text.split()).

    Args:
        text: as written.
        said: the same as it is read, traced from it; both begin at 0.
        read: how a word alone is read.
        place: of the text's first character, which is added to that of each word.
    """
    words = [m.span() for m in WORD.finditer(text)]
    spoken = [m.span() for m in WORD.finditer(said.text)]
    spans = [(0, 0)] * len(words)
    done = 0
    at = 0  # in the text as read
    for first, last, low, high in groups(words, spoken, said):
        spans[done:first] = [(at, at)] * (first - done)
        texts = [text[slice(*span)] for span in words[first:last]]
        spans[first:last] = divide(texts, spoken[low:high], said.text, read)
        done, at = last, spoken[high - 1][1]
    spans[done:] = [(at, at)] * (len(words) - done)
    return [Written(text[a:b], place + a, *span) for (a, b), span in zip(words, spans)]


def groups(
    words: Sequence[tuple[int, int]], spoken: Sequence[tuple[int, int]], said: Traced
) -> list[tuple[int, int, int, int]]:
    """The smallest runs of written words and of spoken ones that stand for each other.

    Returns:
        first and last + 1 of the written words, then of the spoken ones; in order. All spoken words
        are in a run, if there are written ones.
    """
    begins, ends = [a for a, _ in words], [b for _, b in words]
    found: list[tuple[int, int, int, int]] = []
    waiting = 0  # spoken words that stand for nothing written, before any that do
    for j, (a, b) in enumerate(spoken):
        start, stop = int(said.starts[a]), int(said.stops[b - 1])
        low, high = bisect_right(ends, start), bisect_left(begins, stop)
        if low >= high:
            if found:
                found[-1] = (*found[-1][:3], j + 1)
                waiting = j + 1
            continue
        if found and low < found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]), found[-1][2], j + 1)
        else:
            found.append((low, high, waiting, j + 1))
        waiting = j + 1
    if not found and words and spoken:
        found.append((0, len(words), 0, len(spoken)))
    return found


def divide(
    texts: Sequence[str], spoken: Sequence[tuple[int, int]], said: str, read: Callable[[str], str]
) -> list[tuple[int, int]]:
    """The part of what is said for each of several written words, in order, nothing left over.

    Each spoken word goes to the written one whose own reading has a word that begins most like it.
    """
    if len(texts) == 1:
        return [(spoken[0][0], spoken[-1][1])]
    sounding = [i for i, text in enumerate(texts) if any(c.isalnum() for c in text)]
    sounding = sounding or list(range(len(texts)))
    count = len(sounding)
    if count > len(spoken) or count * len(spoken) > LARGEST:
        parts = by_length([texts[i] for i in sounding], spoken[0][0], spoken[-1][1])
    else:
        scores = likeness([read(texts[i]) for i in sounding], [said[a:b] for a, b in spoken])
        edges = best_division(scores)
        parts = [(spoken[a][0], spoken[b - 1][1]) for a, b in pairwise(edges)]
    found, at = [], spoken[0][0]
    for i in range(len(texts)):
        if i in sounding:
            found.append(parts[sounding.index(i)])
            at = found[-1][1]
        else:
            found.append((at, at))
    return found


def by_length(texts: Sequence[str], start: int, stop: int) -> list[tuple[int, int]]:
    """Divides a range among texts by their lengths."""
    total = sum(map(len, texts))
    edges = [start + (stop - start) * n // total for n in accumulate(map(len, texts), initial=0)]
    return list(pairwise(edges))


def likeness(readings: Sequence[str], spoken: Sequence[str]) -> np.ndarray:
    """How much each spoken word begins like a word, or an initial, of each reading: (W, S)."""
    heard = [bare(word) for word in spoken]
    found = np.zeros((len(readings), len(heard)))
    for row, reading in zip(found, readings):
        known = {bare(word) for word in reading.split()}
        known |= {c.lower() for word in reading.split() if word.isupper() for c in word}
        row[:] = [max((_shared(word, other) for other in known), default=0) for word in heard]
    return found


def bare(word: str) -> str:
    """Its letters and digits, small."""
    return "".join(c for c in word.lower() if c.isalnum())


def _shared(a: str, b: str) -> float:
    """First letters that two words share, squared, over those of the longer one."""
    pairs = zip(a, b)
    same = next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
    return same * same / max(len(a), len(b), 1)


def best_division(scores_WS: np.ndarray) -> list[int]:
    """Edges of W runs of the S columns, none empty, with the highest sum; ties go to the left."""
    rows, columns = scores_WS.shape
    best = np.full((rows + 1, columns + 1), -np.inf)
    best[0, 0] = 0
    came = np.zeros((rows + 1, columns + 1), bool)  # whether its row begins with this column
    for i in range(1, rows + 1):
        for j in range(i, columns + 1):
            begins, goes_on = best[i - 1, j - 1], best[i, j - 1]
            came[i, j] = begins >= goes_on
            best[i, j] = max(begins, goes_on) + scores_WS[i - 1, j - 1]
    edges, i = [columns], rows
    for j in range(columns, 0, -1):
        if came[i, j]:
            edges.append(j - 1)
            i -= 1
    return edges[::-1]
