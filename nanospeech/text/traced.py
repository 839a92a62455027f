"""Traced: a text that remembers, through every rule, where each character stood as written.

Rules of normalisation edit it as re.sub edits a string; written.py then finds the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

Rule = Callable[[re.Match], str]
Edit = tuple[int, int, str]  # the first character, the one behind the last, what replaces them
SPACES = re.compile(r"\s+")


class Rules:
    """Patterns with their rules, in order; compiled when they first run, as many commands read no
    text and many texts have no digits.
    """

    def __init__(self, written: Iterable[tuple[str, Rule]]):
        self.written = list(written)

    @cached_property
    def compiled(self) -> list[tuple[re.Pattern, Rule]]:
        return [(re.compile(pattern), rule) for pattern, rule in self.written]

    def __iter__(self) -> Iterator[tuple[re.Pattern, Rule]]:
        return iter(self.compiled)


class Traced:
    """A text, and the place that each of its characters comes from.

    Attributes:
        text: as it is by now.
        starts: int64 (n,), of each character the first one as written that it stands for.
        stops: int64 (n,), behind the last one. Equal to its start where a rule added a character
            between two others.
    """

    __slots__ = ("starts", "stops", "text")

    def __init__(self, text: str, starts: np.ndarray, stops: np.ndarray):
        self.text, self.starts, self.stops = text, starts, stops

    @classmethod
    def of(cls, text: str, place: int = 0) -> Traced:
        """A text as written.

        Args:
            place: of its first character.
        """
        places = np.arange(place, place + len(text) + 1)
        return cls(text, places[:-1], places[1:])

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, places: slice) -> Traced:
        return Traced(self.text[places], self.starts[places], self.stops[places])

    def edited(self, edits: Iterable[Edit]) -> Traced:
        """The text after edits, which follow each other and do not overlap.

        What an edit puts in stands for all that it takes out, but for words that it leaves as they
        are at both ends.
        """
        texts: list[str] = []
        firsts: list[np.ndarray] = []
        lasts: list[np.ndarray] = []
        at = 0

        def keep(stop: int) -> None:
            texts.append(self.text[at:stop])
            firsts.append(self.starts[at:stop])
            lasts.append(self.stops[at:stop])

        for start, stop, new in edits:
            old = self.text[start:stop]
            if old == new:
                continue
            head, tail = unchanged_ends(old, new)
            start, stop, new = start + head, stop - tail, new[head : len(new) - tail]
            keep(start)
            at = stop
            if new:
                first, last = self._span(start, stop)
                texts.append(new)
                firsts.append(np.full(len(new), first))
                lasts.append(np.full(len(new), last))
        if not texts:
            return self
        keep(len(self))
        return Traced("".join(texts), np.concatenate(firsts), np.concatenate(lasts))

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """Where characters come from; between two others where there are none."""
        if start < stop:
            return int(self.starts[start]), int(self.stops[stop - 1])
        if not len(self):
            return 0, 0
        before = self.stops[start - 1] if start else self.starts[0]
        behind = self.starts[start] if start < len(self) else self.stops[-1]
        return int(min(before, behind)), int(max(before, behind))

    def sub(self, pattern: re.Pattern, rule: Rule | str) -> Traced:
        """What pattern.sub(rule, text) makes of the text."""
        if isinstance(rule, str) and "\\" not in rule:
            edits = ((m.start(), m.end(), rule) for m in pattern.finditer(self.text))
        elif isinstance(rule, str):
            edits = ((m.start(), m.end(), m.expand(rule)) for m in pattern.finditer(self.text))
        else:
            edits = ((m.start(), m.end(), rule(m)) for m in pattern.finditer(self.text))
        return self.edited(edits)

    def run(self, rules: Iterable[tuple[re.Pattern, Rule]]) -> Traced:
        """The text after rules, each of which sees what the ones before it left."""
        text = self
        for pattern, rule in rules:
            if pattern.search(text.text):  # most match nothing, and sub() costs more
                text = text.sub(pattern, rule)
        return text

    def translate(self, table: Mapping[int, str | int | None]) -> Traced:
        """What text.translate(table) makes of the text."""
        if self.text.isascii() and not any(c < 128 for c in table):
            return self
        found = ((i, table.get(ord(c), c)) for i, c in enumerate(self.text) if ord(c) in table)
        return self.edited(
            (i, i + 1, chr(new) if isinstance(new, int) else new or "") for i, new in found
        )

    def split(self, pattern: re.Pattern) -> list[Traced]:
        """What pattern.split(text) makes of it, for a pattern without groups."""
        edges = [0, *(e for m in pattern.finditer(self.text) for e in m.span()), len(self)]
        return [self[a:b] for a, b in list(pairwise(edges))[::2]]

    def strip(self) -> Traced:
        """Without the spaces at both ends."""
        start = len(self) - len(self.text.lstrip())
        return self[start : max(start, len(self.text.rstrip()))]

    def in_one_line(self) -> Traced:
        """What " ".join(text.split()) makes of it."""
        return self.strip().sub(SPACES, " ")


def joined(parts: Sequence[Traced], separator: str = "") -> Traced:
    """What separator.join(parts) makes of them."""
    if not parts:
        return Traced.of("")
    texts, firsts, lasts = [parts[0].text], [parts[0].starts], [parts[0].stops]
    end = int(parts[0].stops[-1]) if len(parts[0]) else 0
    for part in parts[1:]:
        begin = int(part.starts[0]) if len(part) else end
        texts += [separator, part.text]
        firsts += [np.full(len(separator), min(end, begin)), part.starts]
        lasts += [np.full(len(separator), max(end, begin)), part.stops]
        end = int(part.stops[-1]) if len(part) else end
    return Traced("".join(texts), np.concatenate(firsts), np.concatenate(lasts))


def unchanged_ends(old: str, new: str) -> tuple[int, int]:
    """Characters of whole words that are the same at the beginning and at the end of both."""
    head = _same_words(old, new)
    return head, _same_words(old[head:][::-1], new[head:][::-1])


def _same_words(a: str, b: str) -> int:
    """Characters of the words with which both begin, and of the spaces behind them."""
    shorter = min(len(a), len(b))
    length = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), shorter)
    while length and not all(
        length == len(s) or s[length].isspace() or s[length - 1].isspace() for s in (a, b)
    ):
        length -= 1
    return length
