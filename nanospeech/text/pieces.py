"""Pieces: a text to ids by a tokenizer.json, as T5, Gemma and other language models have one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError, InputError, require
from nanospeech.latent_architectures import TEXT_TAG

from .tags import is_tag
from .tokenizer import Tokenizer, any_of

CLOSING = ",.;:!?)]}…"  # before which there is no space
MAX_BYTES = 128 << 20  # of a tokenizer.json; Gemma's has 33 MB


class PieceTokenizer(Tokenizer):
    """Maps text to the ids of a tokenizer.json.

    Args:
        path: the file. Where it is missing, ids can be given to an engine, but texts cannot.
        tags: of EchoConfig.text_tags, which are tokens beside those of the file.

    Raises:
        InputError: a tag is none.
        CheckpointError: the file is damaged, or absurdly large.
        BackendError: the package `tokenizers` is not installed.
    """

    def __init__(self, path: str | Path, tags: Sequence[str] = ()):
        super().__init__("pieces", [])
        if wrong := [tag for tag in tags if not is_tag(tag) or tag != " ".join(tag.split())]:
            raise InputError(f"{wrong[0]!r} cannot be a tag; write it in brackets, as in <laugh>")
        self.ids = {tag: TEXT_TAG + i for i, tag in enumerate(tags)}
        self.whole = self.tags = any_of(tags)
        self.path = Path(path)
        self.model: Any = None
        if not self.path.is_file():
            return
        if (size := self.path.stat().st_size) > MAX_BYTES:
            raise CheckpointError(f"{self.path} has {size:,} bytes, more than {MAX_BYTES:,}")
        tokenizers = require("tokenizers", "t5")
        try:
            self.model = tokenizers.Tokenizer.from_file(str(self.path))
        except Exception as e:  # the package raises no class of its own
            raise CheckpointError(
                f"{self.path} is no tokenizer.json that can be read: {e}; fetch it again"
            ) from e

    def __len__(self) -> int:
        return self.model.get_vocab_size() if self.model else 0

    def encode(self, text: str, spell: Sequence[int] = ()) -> np.ndarray:
        """Token ids, int64 (T,), with those that the file puts around each text.

        The ids that are no tags are those of the text without its tags.

        Raises:
            InputError: there is no tokenizer.json.
        """
        if self.model is None:
            raise InputError(
                f"{self.path} is missing: copy the tokenizer.json of the model's text encoder there"
            )
        text, tags = self.without_tags(text)
        found = self.model.encode(text)
        ids = list(found.ids)
        own = [i for i, special in enumerate(found.special_tokens_mask) if not special]
        end = own[-1] + 1 if own else self.first()
        for place, tag in reversed(tags):
            at = next((i for i in own if found.offsets[i][1] > place), end)
            ids.insert(at, self.ids[tag])
        return np.array(ids, np.int64)

    def without_tags(self, text: str) -> tuple[str, list[tuple[int, str]]]:
        """A text as it would be written without its tags; and their places in it, in order."""
        if self.whole is None:
            return text, []
        tag = self.whole.pattern
        found, tags, at = "", [], 0
        for run in re.finditer(rf"\s*(?:{tag}\s*)+", text):
            found += text[at : run.start()]
            at = run.end()
            tags += [(len(found), each) for each in self.whole.findall(run[0])]
            between = found[-1:], text[at : at + 1]
            spaced = any(c.isspace() for c in (run[0][0], run[0][-1])) or all(
                c.isalnum() for c in between
            )
            if all(between) and spaced and between[1] not in CLOSING:
                found += " "
        return found + text[at:], tags

    def first(self) -> int:
        """How many ids the file puts before a text."""
        return self.model.encode("a").special_tokens_mask.index(0)

    def unknown(self, text: str) -> set[str]:
        """None: pieces spell what they do not know in bytes, or have a token for it."""
        return set()

    def save(self, path: str | Path) -> None:
        """Writes tokenizer.json beside where a vocab.txt would be."""
        if self.model is not None:
            self.model.save(str(Path(path).with_name("tokenizer.json")))
