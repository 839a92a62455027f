"""Pieces: a text to ids by a tokenizer.json, as T5, Gemma and other language models have one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError, InputError, require

from .tokenizer import Tokenizer

MAX_BYTES = 128 << 20  # of a tokenizer.json; Gemma's has 33 MB


class PieceTokenizer(Tokenizer):
    """Maps text to the ids of a tokenizer.json.

    Args:
        path: the file. Where it is missing, ids can be given to an engine, but texts cannot.

    Raises:
        CheckpointError: it is damaged, or absurdly large.
        BackendError: the package `tokenizers` is not installed.
    """

    def __init__(self, path: str | Path):
        super().__init__("pieces", [])
        self.path = Path(path)
        self.model: Any = None
        if not self.path.is_file():
            return
        if (size := self.path.stat().st_size) > MAX_BYTES:
            raise CheckpointError(f"{self.path} has {size:,} bytes, more than {MAX_BYTES:,}")
        self.model = require("tokenizers", "t5").Tokenizer.from_file(str(self.path))

    def __len__(self) -> int:
        return self.model.get_vocab_size() if self.model else 0

    def encode(self, text: str, spell: Sequence[int] = ()) -> np.ndarray:
        """Token ids, int64 (T,), with those that the file puts around each text.

        Raises:
            InputError: there is no tokenizer.json.
        """
        if self.model is None:
            raise InputError(
                f"{self.path} is missing: copy the tokenizer.json of the model's text encoder there"
            )
        return np.array(self.model.encode(text).ids, np.int64)

    def unknown(self, text: str) -> set[str]:
        """None: pieces spell what they do not know in bytes, or have a token for it."""
        return set()

    def save(self, path: str | Path) -> None:
        """Writes tokenizer.json beside where a vocab.txt would be."""
        if self.model is not None:
            self.model.save(str(Path(path).with_name("tokenizer.json")))
