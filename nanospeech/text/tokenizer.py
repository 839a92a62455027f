"""Tokenizer: text to ids and back. Characters, bytes, pinyin, or phonemes and else letters.

Pieces of words, as a tokenizer.json has them, are in pieces.py.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.config import TOKENIZERS
from nanospeech.errors import CheckpointError, InputError, reason
from nanospeech.files import whole

from .lexicon import Hidden, Lexicon
from .phonemes import SYMBOLS
from .pinyin import FILLER, pinyin_parts, pinyin_tokens
from .spoken import WORDS, Spoken, islands, say_word, spoken
from .tags import TAG, standing_alone

__all__ = ["WORDS", "Tokenizer", "pad_tokens", "phoneme_vocab"]

PUNCTUATION = list(" .,!?;:-'\"()")
LETTERS = list("abcdefghijklmnopqrstuvwxyz")
BYTES = "bytes", "echo"
ECHO = str.maketrans(
    {"…": "...", "’": "'", "”": '"', ":": ",", ";": ",", "—": ", ", "\n": " "}  # “ it leaves alone
)


def any_of(tokens: Sequence[str]) -> re.Pattern | None:
    """A pattern for any of these, the longest first; None if there are none."""
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest))})") if tokens else None


class Tokenizer:
    """Maps text to token ids by a vocabulary.

    Args:
        kind: "chars" (a token of several characters where one fits, else one each), "bytes"
            (UTF-8, needs no vocabulary), "phonemes" (ARPAbet, letters for what has no
            vowel, punctuation as it is), "pinyin" (F5-TTS's, see pinyin.py) or "echo" (bytes
            as Echo-TTS reads them: id 0 and "[S1] " first, some punctuation folded).
        vocab: tokens in id order.
        lexicon: a user's words, for phonemes alone.

    Raises:
        InputError: an unknown kind, or a lexicon for a kind that has no phonemes.

    Attributes:
        language: of its texts, see languages.language_of; "" for a model that does not say.
        whole: matches the tokens of several characters, which are found first, the longest first:
            all of them for "chars", the tags for others. None if there are none.
        tags: finds what normalisation leaves alone: tokens in brackets, such as "<laugh>", and
            words of the lexicon. None if there are none.
    """

    language = ""

    def __init__(self, kind: str, vocab: Sequence[str], lexicon: Lexicon | None = None):
        if kind not in TOKENIZERS:
            raise InputError(f"tokenizer {kind!r} not known; choose from {', '.join(TOKENIZERS)}")
        self.kind = kind
        written = kind in BYTES
        self.vocab = [str(i) for i in range(256)] if written else list(vocab)
        self.ids = {token: i for i, token in enumerate(self.vocab)}
        several = [token for token in self.vocab if len(token) > 1] if not written else []
        tags = [token for token in several if TAG.fullmatch(token)]
        self.whole = any_of(several if kind == "chars" else tags)
        self.tags: Any = any_of(tags)
        self.lexicon = lexicon
        if lexicon is not None:
            if kind != "phonemes":
                raise InputError(f"a lexicon says words in phonemes, and this model reads {kind}")
            self.tags = Hidden(self.whole, lexicon)

    def with_lexicon(self, lexicon: Lexicon | None) -> Tokenizer:
        """The same with a user's words; for a kind that has no phonemes without them."""
        lexicon = lexicon if self.kind == "phonemes" and lexicon else None
        if lexicon is self.lexicon:
            return self
        return Tokenizer(self.kind, self.vocab, lexicon).with_language(self.language)

    def with_language(self, language: str | None) -> Tokenizer:
        """The same for texts of another language, such as "de"; None changes nothing."""
        if language is None or language == self.language:
            return self
        other = copy.copy(self)
        other.language = language
        return other

    def __len__(self) -> int:
        return len(self.vocab)

    def tokens(self, text: str, spell: Sequence[int] = ()) -> list[str]:
        """The tokens of a text before look-up; unknown characters are still among them.

        Spaces and commas beside a tag are left out, see tags.standing_alone.

        Args:
            spell: indices of the words to spell in letters although the dictionary knows them
                (phonemes only; the trainer draws them so that the model learns to read letters).
        """
        if self.kind in BYTES:
            head = ["0"] if self.kind == "echo" else []
            text = echo_text(text) if self.kind == "echo" else text
            return head + [str(b) for b in text.encode("utf-8")]
        if self.kind == "phonemes":
            return [token for piece in self.spoken(text, spell) for token in piece.tokens]
        out: list[str] = []
        for place, piece in enumerate(self.pieces(text)):
            if place % 2:
                out.append(piece)
            else:
                out += pinyin_tokens(piece) if self.kind == "pinyin" else list(piece)
        return standing_alone(out, str) if self.whole else out

    def spoken(self, text: str, spell: Collection[int] = ()) -> list[Spoken]:
        """The pieces that a text is read in, their tokens and where these come from; phonemes only.

        Pieces follow each other and are all of the text; tokens() has their tokens.
        """
        pieces = spoken(text, spell, self.lexicon, self.whole)
        if self.whole is None:
            return pieces
        names = ["".join(piece.tokens) for piece in pieces]
        kept = set(standing_alone(range(len(pieces)), lambda i: names[i]))
        return [p if i in kept else p._replace(tokens=()) for i, p in enumerate(pieces)]

    def places(self, text: str) -> list[tuple[str, float, float]]:
        """The tokens of tokens(text), and where in the text each begins and ends.

        Tokens of a word, or of a character that has several, share its length.
        """
        found: list[tuple[str, float, float]] = []
        at = 0
        for part, tokens in self._parts(text):
            each = len(part) / max(len(tokens), 1)
            edges = [at + each * i for i in range(len(tokens) + 1)]
            found += zip(tokens, edges, edges[1:])
            at += len(part)
        return standing_alone(found, itemgetter(0)) if self.whole else found

    def _parts(self, text: str) -> list[tuple[str, Sequence[str]]]:
        """A text in parts, with the tokens of each."""
        if self.kind == "phonemes":
            return [(text[p.start : p.stop], p.tokens) for p in self.spoken(text)]
        out: list[tuple[str, Sequence[str]]] = []
        for place, piece in enumerate(self.pieces(text)):
            if place % 2:
                out.append((piece, [piece]))
            elif self.kind == "pinyin":
                out += pinyin_parts(piece)
            else:
                out += [(c, self.tokens(c) if self.kind == "bytes" else [c]) for c in piece]
        return out

    def pieces(self, text: str) -> list[str]:
        """Cuts a text at its tokens of several characters, which have the odd indices.

        Words of the lexicon have such places too.
        """
        if self.lexicon is None:
            return self.whole.split(text) if self.whole else [text]
        edges = [0, *(e for i in islands(text, self.lexicon, self.whole) for e in i[:2]), len(text)]
        return [text[a:b] for a, b in pairwise(edges)]

    def word(self, word: str) -> list[str]:
        """Phonemes of one word without its sentence, or its letters."""
        return list(say_word(word)[0])

    def encode(self, text: str, spell: Sequence[int] = ()) -> np.ndarray:
        """Token ids, int64 (T,). Characters outside the vocabulary are left out.

        For pinyin they become the filler, as models of F5-TTS were trained.
        """
        other = FILLER if self.kind == "pinyin" else None
        ids = (self.ids.get(token, other) for token in self.tokens(text, spell))
        return np.array([i for i in ids if i is not None], np.int64)

    def unknown(self, text: str) -> set[str]:
        """The characters that encode leaves out."""
        return {token for token in self.tokens(text) if token not in self.ids}

    def save(self, path: str | Path) -> None:
        """Writes vocab.txt, a token a line."""
        with whole(Path(path)) as part:
            part.write_text("\n".join(self.vocab), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, kind: str, path: str | Path) -> Tokenizer:
        """Reads vocab.txt. Lines end with "\\n" alone: other separators may be tokens.

        Raises:
            CheckpointError: missing, not UTF-8, empty, or a token stands there twice.
        """
        if kind in BYTES:
            return cls(kind, [])
        try:
            raw = Path(path).read_bytes().decode("utf-8")
        except OSError as e:
            raise CheckpointError(f"cannot read the vocabulary {path}: {reason(e)}") from e
        except UnicodeDecodeError as e:
            raise CheckpointError(
                f"{path} is no vocabulary: byte {e.start} is not of a text in UTF-8; name the"
                " vocab.txt of the model's training, with a token a line"
            ) from e
        vocab = raw.replace("\r\n", "\n").split("\n")
        while vocab and vocab[-1] == "":
            vocab.pop()
        if not vocab or len(set(vocab)) != len(vocab):
            raise CheckpointError(f"{path} should hold a token a line, each once")
        return cls(kind, vocab)


def echo_text(text: str) -> str:
    """A text as Echo-TTS was trained to read it: folded, and with a speaker's tag in front."""
    text = text.strip().translate(ECHO)
    tagged = text.startswith(("[", "(")) or "S1" in text or "S2" in text
    return text if tagged else f"[S1] {text}"


def phoneme_vocab() -> list[str]:
    """The vocabulary of the "phonemes" tokenizer: punctuation, letters, ARPAbet."""
    return PUNCTUATION + LETTERS + SYMBOLS


def pad_tokens(items: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks id arrays into int64 (B, T), padded with -1."""
    batch = np.full((len(items), max((len(i) for i in items), default=0)), -1, np.int64)
    for row, ids in zip(batch, items):
        row[: len(ids)] = ids
    return batch
