"""Grapheme to phoneme: words that no dictionary has, by a small network in NumPy.

Two layers of GRUs (Cho et al., 2014) read a word's letters in both directions; each letter gives
two symbols, each a phoneme or nothing, which connectionist temporal classification (Graves et al.,
2006) trained without an alignment. scripts/recipes/g2p.py trains it on the dictionary that ships.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from .phonemes import LONGEST, SYMBOLS

WEIGHTS = Path(__file__).parent / "data" / "g2p.safetensors"
ALPHABET = "abcdefghijklmnopqrstuvwxyz'"  # letter i is row i + 1 of the embedding, row 0 is none
PER_LETTER = 2  # symbols; class 0 of each is nothing, class i + 1 is SYMBOLS[i]
LAYERS = 2
VOWEL = re.compile("[aeiouy]")
REMEMBERED = 50_000  # words
GUESSED: dict[str, tuple[str, ...]] = {}


def letter_ids(words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """int64 (B, L) letters of lower-case words, padded with 0, and int64 (B,) lengths."""
    lengths = np.array([len(word) for word in words])
    ids = np.zeros((len(words), max(lengths, default=0)), np.int64)
    for row, word in zip(ids, words):
        row[: len(word)] = [ALPHABET.index(c) + 1 for c in word]
    return ids, lengths


def decode(scores_TC: np.ndarray) -> tuple[str, ...]:
    """Phonemes of one word: of symbols that follow each other and are the same, one.

    Where no vowel has the first stress the one that comes nearest to it takes it.

    Args:
        scores_TC: of each symbol's classes.
    """
    best = scores_TC.argmax(1)
    at = [i for i in range(len(best)) if best[i] and (not i or best[i] != best[i - 1])]
    phonemes = [SYMBOLS[best[i] - 1] for i in at]
    vowels = [n for n, p in enumerate(phonemes) if p[-1].isdigit()]
    if vowels and not any(phonemes[n][-1] == "1" for n in vowels):
        first = {n: SYMBOLS.index(phonemes[n][:-1] + "1") + 1 for n in vowels}
        n = max(vowels, key=lambda n: scores_TC[at[n], first[n]] - scores_TC[at[n], best[at[n]]])
        phonemes[n] = phonemes[n][:-1] + "1"
    return tuple(phonemes)


class Network:
    """The network.

    Args:
        tensors: by the names of torch's GRU: "embed.weight" (28, E), "rnn.weight_ih_l0" (3H, E),
            "rnn.weight_hh_l0_reverse" (3H, H) and so on, "out.weight" (PER_LETTER * C, 2H).
    """

    def __init__(self, tensors: dict[str, np.ndarray]):
        self.tensors = {name: t.astype(np.float32) for name, t in tensors.items()}

    @classmethod
    def load(cls, path: str | Path = WEIGHTS) -> Network:
        """Reads a safetensors file."""
        from safetensors.numpy import load_file

        return cls(load_file(path))

    def scores(self, ids_BL: np.ndarray, lens_B: np.ndarray) -> np.ndarray:
        """Scores of symbols, float32 (B, PER_LETTER * L, C); behind a word's end they mean nothing.

        Args:
            ids_BL: of letter_ids.
            lens_B: letters of each word.
        """
        x = self.tensors["embed.weight"][ids_BL]
        places = np.arange(ids_BL.shape[1])
        # of each place the one that it is counted from the word's end
        turned = np.where(places < lens_B[:, None], lens_B[:, None] - 1 - places, places)[..., None]
        for layer in range(LAYERS):
            back = np.take_along_axis(x, turned, 1)
            back = np.take_along_axis(self.gru(back, f"l{layer}_reverse"), turned, 1)
            x = np.concatenate([self.gru(x, f"l{layer}"), back], 2)
        out = x @ self.tensors["out.weight"].T + self.tensors["out.bias"]
        return out.reshape(len(out), PER_LETTER * out.shape[1], -1)

    def gru(self, x_BLE: np.ndarray, name: str) -> np.ndarray:
        """States (B, L, H) of a layer in one direction."""
        w, t = f"rnn.weight_hh_{name}", self.tensors
        inputs = x_BLE @ t[f"rnn.weight_ih_{name}"].T + t[f"rnn.bias_ih_{name}"]
        weight, bias = t[w].T, t[f"rnn.bias_hh_{name}"]
        size = len(weight)
        state = np.zeros((len(x_BLE), size), np.float32)
        states = np.empty((*x_BLE.shape[:2], size), np.float32)
        for i in range(x_BLE.shape[1]):
            hidden = state @ weight + bias
            gates = inputs[:, i, : 2 * size] + hidden[:, : 2 * size]
            reset, update = np.split(1 / (1 + np.exp(-gates)), 2, 1)
            new = np.tanh(inputs[:, i, 2 * size :] + reset * hidden[:, 2 * size :])
            state = new + update * (state - new)
            states[:, i] = state
        return states

    def phonemes(self, words: Sequence[str], batch: int = 256) -> list[tuple[str, ...]]:
        """Phonemes of words of ALPHABET's letters, many at once."""
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        found: dict[int, tuple[str, ...]] = {}
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            ids, lens = letter_ids([words[i] for i in some])
            scores = self.scores(ids, lens)
            found |= {i: decode(s[: PER_LETTER * n]) for i, s, n in zip(some, scores, lens)}
        return [found[i] for i in range(len(words))]


@lru_cache(maxsize=1)
def network() -> Network:
    """The network that ships, read once."""
    return Network.load()


def readable(word: str) -> bool:
    """Whether the network can say a word: it has a vowel, and letters of ALPHABET alone."""
    return len(word) <= LONGEST and bool(VOWEL.search(word)) and set(word) <= set(ALPHABET)


def guess(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Phonemes of words, each computed once.

    Args:
        words: that are readable(), in small letters.
    """
    new = [word for word in dict.fromkeys(words) if word not in GUESSED]
    if new:
        if len(GUESSED) > REMEMBERED:
            GUESSED.clear()
        GUESSED.update(zip(new, network().phonemes(new)))
    return [GUESSED[word] if word in GUESSED else network().phonemes([word])[0] for word in words]
