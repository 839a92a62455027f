"""Tokenizer: text to ids and back. Characters, bytes, or phonemes with letters as the fallback."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from nanospeech.config import TOKENIZERS
from nanospeech.errors import CheckpointError, InputError

from .phonemes import SYMBOLS, ending, pronounce

PUNCTUATION = list(" .,!?;:-'\"()")
LETTERS = list("abcdefghijklmnopqrstuvwxyz")
FOLD = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": ".", "\n": " ", "\t": " "}
)
VOWEL = re.compile("[AEIOUY]")
SPELLED = {"AI", "ID"}  # though the dictionary has words of these letters
INITIALS = re.compile("([A-Z]{2,5})['’]?s")
CAMEL = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
WORDS = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")
TAG = re.compile(r"<[^<>]+>|\[[^\[\]]+\]|\([^()]+\)|\{[^{}]+\}")


def named(letter: str) -> tuple[str, ...]:
    """A letter's name; that of "a" is not the article."""
    return ("EY1",) if letter in "aA" else pronounce(letter) or (letter.lower(),)


def any_of(tokens: Sequence[str]) -> re.Pattern | None:
    """A pattern for any of these, the longest first; None if there are none."""
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest))})") if tokens else None


class Tokenizer:
    """Maps text to token ids by a vocabulary.

    Args:
        kind: "chars" (a token of several characters where one fits, else one each), "bytes"
            (UTF-8, needs no vocabulary) or "phonemes" (ARPAbet for words of the dictionary,
            letters for others, punctuation as it is).
        vocab: tokens in id order.

    Attributes:
        whole: matches the tokens of several characters, which are found first, the longest first:
            all of them for "chars", the tags for "phonemes". None if there are none.
        tags: matches those in brackets, such as "<laugh>". None if there are none.
    """

    def __init__(self, kind: str, vocab: Sequence[str]):
        if kind not in TOKENIZERS:
            raise InputError(f"tokenizer {kind!r} not known; choose from {', '.join(TOKENIZERS)}")
        self.kind = kind
        self.vocab = list(vocab) if kind != "bytes" else [str(i) for i in range(256)]
        self.ids = {token: i for i, token in enumerate(self.vocab)}
        several = [token for token in self.vocab if len(token) > 1] if kind != "bytes" else []
        tags = [token for token in several if TAG.fullmatch(token)]
        self.whole = any_of(several if kind == "chars" else tags)
        self.tags = any_of(tags)

    def __len__(self) -> int:
        return len(self.vocab)

    def tokens(self, text: str, spell: Sequence[int] = ()) -> list[str]:
        """The tokens of a text before look-up; unknown characters are still among them.

        Args:
            spell: indices of the words to spell in letters although the dictionary knows them
                (phonemes only; the trainer draws them so that the model learns to read letters).
        """
        if self.kind == "bytes":
            return [str(b) for b in text.encode("utf-8")]
        out: list[str] = []
        index = 0  # of the next word
        for place, piece in enumerate(self.pieces(text)):
            if place % 2:
                out.append(piece)
            elif self.kind == "chars":
                out += list(piece)
            else:
                out += self.phonemes(piece, {i - index for i in spell})
            index += len(WORDS.findall(piece)) if spell else 0
        return out

    def pieces(self, text: str) -> list[str]:
        """Cuts a text at its tokens of several characters, which have the odd indices."""
        return self.whole.split(text) if self.whole else [text]

    def phonemes(self, text: str, spell: Collection[int]) -> list[str]:
        """Phonemes and marks of a text without tags; see tokens."""
        out: list[str] = []
        at = 0
        text = text.translate(FOLD)
        for index, match in enumerate(WORDS.finditer(text)):
            out += list(text[at : match.start()])
            word = match.group()
            out += self.word(word) if index not in spell else list(word.lower())
            at = match.end()
        return out + list(text[at:])

    def word(self, word: str) -> list[str]:
        """Phonemes of one word; initials are named letter by letter; else its letters."""
        several = INITIALS.fullmatch(word)  # "MPs", "MP's", "PCs"
        if several and len(word) > len(several[1]) + 1:  # "BBC's" is "BBC" and an s
            base = self.word(several[1])
            return [*base, *ending("'s", base[-1])]
        known = pronounce(word)
        if known is not None and (several[1] if several else word) not in SPELLED:
            return list(known)
        if len(word) > 1 and word.isupper() and (len(word) <= 4 or not VOWEL.search(word)):
            return [p for letter in word for p in named(letter)]
        if several:
            return [p for letter in several[1] for p in named(letter)] + ["Z"]
        parts = CAMEL.findall(word)
        if len(parts) > 1 and "'" not in word:  # "PyTorch"
            return [p for part in parts for p in self.word(part)]
        return list(word.lower())

    def encode(self, text: str, spell: Sequence[int] = ()) -> np.ndarray:
        """Token ids, int64 (T,). Characters outside the vocabulary are left out."""
        ids = (self.ids.get(token) for token in self.tokens(text, spell))
        return np.array([i for i in ids if i is not None], np.int64)

    def unknown(self, text: str) -> set[str]:
        """The characters that encode leaves out."""
        return {token for token in self.tokens(text) if token not in self.ids}

    def save(self, path: str | Path) -> None:
        """Writes vocab.txt, a token a line."""
        Path(path).write_text("\n".join(self.vocab), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, kind: str, path: str | Path) -> Tokenizer:
        """Reads vocab.txt. Lines end with "\\n" alone: other separators may be tokens.

        Raises:
            CheckpointError: missing, not UTF-8, empty, or a token stands there twice.
        """
        if kind == "bytes":
            return cls(kind, [])
        try:
            raw = Path(path).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise CheckpointError(f"cannot read the vocabulary {path}: {e}") from e
        vocab = raw.replace("\r\n", "\n").split("\n")
        while vocab and vocab[-1] == "":
            vocab.pop()
        if not vocab or len(set(vocab)) != len(vocab):
            raise CheckpointError(f"{path} should hold a token a line, each once")
        return cls(kind, vocab)


def phoneme_vocab() -> list[str]:
    """The vocabulary of the "phonemes" tokenizer: punctuation, letters, ARPAbet."""
    return PUNCTUATION + LETTERS + SYMBOLS


def pad_tokens(items: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks id arrays into int64 (B, T), padded with -1."""
    batch = np.full((len(items), max((len(i) for i in items), default=0)), -1, np.int64)
    for row, ids in zip(batch, items):
        row[: len(ids)] = ids
    return batch
