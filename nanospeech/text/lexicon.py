"""Lexicon: words and their phonemes as a user wants them, from a file or from Python.

A line of a file is a word, a tab and its phonemes (pronunciation.py); after another tab stands a
note. A word may be several ("New York"). One in small letters stands for any case, one with
capitals for itself alone. Lines that begin with # are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from nanospeech.errors import InputError

from .markup import JOINER
from .normalize import expand
from .pronunciation import parse_phonemes

LARGEST = 32 * 2**20  # bytes of a file
LONGEST = 100  # characters of an entry
MOST_TOKENS = 500  # of an entry, which a text may have often
RUN = re.compile(r"[^\W_]+")
APOSTROPHE = str.maketrans("’ʼ", "''")
ANYTHING = re.compile(r"(?s).+")
PLAIN = re.compile(r"[A-Za-z]+(?:['’ -][A-Za-z]+)*")
# what stands around words whose normalisation depends on their neighbours
FRAMES = ("{}", "the {} is", "{} Smith said", "5 {}.", "{} 5", "Henry {} was", "Wall {}")


class Entry(NamedTuple):
    """A word as written, its tokens, and where that was said, "FILE, line 3"."""

    written: str
    tokens: tuple[str, ...]
    source: str

    @property
    def any_case(self) -> bool:
        return self.written == self.written.lower()


class Place(NamedTuple):
    """Where an entry stands in a text."""

    start: int
    stop: int
    entry: Entry


class Lexicon:
    """Words and their phonemes.

    Args:
        entries: phonemes by word, ARPAbet or IPA; or entries by their words.

    Raises:
        InputError: a word without a letter or digit, too long, or with phonemes that are none.
    """

    def __init__(self, entries: Mapping[str, str | Entry]):
        self.entries: dict[str, Entry] = {}
        # by the first run of letters, its place in entries and their length: entries as written
        self.index: dict[str, dict[tuple[int, int], dict[str, Entry]]] = {}
        for word, said in entries.items():
            entry = said if isinstance(said, Entry) else make_entry(word, said, "Python")
            self.entries[entry.written] = entry
        for entry in self.entries.values():
            run = RUN.search(entry.written)
            assert run is not None
            found = self.index.setdefault(run[0].lower(), {})
            found.setdefault((run.start(), len(entry.written)), {})[entry.written] = entry
        for run, found in self.index.items():  # the longest first
            self.index[run] = dict(sorted(found.items(), key=lambda of: -of[0][1]))

    def __len__(self) -> int:
        return len(self.entries)

    def __or__(self, other: Lexicon) -> Lexicon:
        """Both; the other's entries replace those of the same letters in any case."""
        new = {word.lower() for word in other.entries}
        kept = {word: e for word, e in self.entries.items() if word.lower() not in new}
        return Lexicon({**kept, **other.entries})

    @classmethod
    def load(cls, path: str | Path) -> Lexicon:
        """Reads a file.

        Raises:
            InputError: it cannot be read, or a line is wrong; names its number and what it holds.
        """
        entries: dict[str, Entry] = {}
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip() or line.startswith("#"):
                continue
            where = f"{path}, line {number}"
            word, tab, rest = line.partition("\t")
            if not tab:
                raise InputError(
                    f"{where}: there is no tab in {line[:60]!r}; write a word, a tab and its"
                    " phonemes, such as tomato<TAB>T AH0 M AA1 T OW0"
                )
            try:
                entry = make_entry(word, rest.partition("\t")[0], where)
            except InputError as e:
                raise InputError(f"{where}: {e}") from e
            old = entries.setdefault(entry.written, entry)
            if old.tokens != entry.tokens:
                raise InputError(f"{where}: {entry.written!r} has other phonemes in {old.source}")
        return cls(entries)

    def find(self, text: str) -> Iterator[Place]:
        """Where entries stand in a text, in order; the longest of those that begin together.

        An entry is found where it is a word, or several, or one before 's.
        """
        text, at = text.translate(APOSTROPHE), 0
        spaced = "".join(" " if c.isspace() else c for c in text)  # any space is one
        for run in RUN.finditer(text):
            if run.start() < at:
                continue
            for (offset, length), entries in self.index.get(run[0].lower(), {}).items():
                start = run.start() - offset
                stop = start + length
                if start < at:
                    continue
                piece = spaced[start:stop]  # of an entry of one case, else of one of any
                entry = entries.get(piece) or entries.get(piece.lower())
                if entry is not None and alone(text, start, stop):
                    yield Place(start, stop, entry)
                    at = stop
                    break


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file.

    Raises:
        InputError: it cannot be read, is not UTF-8 or is very large.
    """
    try:
        raw = Path(path).read_bytes() if Path(path).stat().st_size <= LARGEST else None
    except OSError as e:
        raise InputError(f"cannot read the lexicon {path}: {e.strerror or e}") from e
    if raw is None:
        raise InputError(f"the lexicon {path} has more than {LARGEST // 2**20} MB")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from e


def make_entry(word: str, phonemes: str, source: str) -> Entry:
    """
    Raises:
        InputError: no word or no phonemes.
    """
    written = " ".join(word.translate(APOSTROPHE).split())
    if not RUN.search(written):
        raise InputError(f"{word[:40]!r} is no word: it has no letter and no digit")
    if len(written) > LONGEST:
        raise InputError(f"{written[:40]!r}… has more than {LONGEST} characters")
    tokens = tuple(parse_phonemes(phonemes))
    if len(tokens) > MOST_TOKENS:
        raise InputError(f"{written[:40]!r} has {len(tokens)} phonemes; at most {MOST_TOKENS}")
    return Entry(written, tokens, source)


def alone(text: str, start: int, stop: int) -> bool:
    """Whether letters end where a piece of a text does; 's may follow. Addresses are left alone."""
    if text[stop - 1] == JOINER:  # sounds of markup, which are this word's alone
        return True
    before, behind = text[max(0, start - 2) : start], text[stop : stop + 3]
    if text[start].isalnum() and re.search(r"(?:\w|\w['.]|[@\\])\Z", before):
        return False
    if re.match(r"'[sS](?!\w)", behind):
        return text[stop - 1].isalnum()
    return not re.match(r"\w|'\w|\.\w|[@\\]" if text[stop - 1].isalnum() else r"\w", behind)


@lru_cache(maxsize=10_000)
def survives(word: str) -> bool:
    """Whether normalisation leaves a word as it is, whatever stands around it."""
    if not PLAIN.fullmatch(word):
        return False
    return all(word in expand(frame.format(word)) for frame in FRAMES)


class Hidden:
    """What normalisation must not touch: tags, and entries that it would write out ("US").

    Has finditer, as a compiled pattern.
    """

    def __init__(self, tags: re.Pattern | None, lexicon: Lexicon):
        self.tags, self.lexicon = tags, lexicon

    def finditer(self, text: str) -> Iterator[re.Match]:
        spans = [m.span() for m in self.tags.finditer(text)] if self.tags else []
        rest = self.tags.sub(lambda m: "\0" * len(m[0]), text) if self.tags else text
        for start, stop, _ in self.lexicon.find(rest):
            if not survives(text[start:stop]):
                spans.append((start, stop))
        for start, stop in sorted(spans):
            match = ANYTHING.match(text, start, stop)
            assert match is not None
            yield match
