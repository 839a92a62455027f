"""Text states: an encoder's states of texts, kept on disk; its part of texts with tags.

Knows no array library.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.files import whole
from nanospeech.latent_architectures import TEXT_TAG

log = logging.getLogger("nanospeech")


def without_tags(text_BT: Any) -> tuple[Any, tuple[Any, Any], Any]:
    """What an encoder reads of texts with tags, and where in it each token of the texts is.

    A tag is where the token before it is: what is said around it is in that one's state.

    Args:
        text_BT: ids padded with -1, of NumPy or another library that has its operators.

    Returns:
        Ids (B, T) without the tags, padded with -1, of which a text of tags alone has one; rows
        and columns (B, T) by which states of these are those of the texts; and whether there is
        such a state, (B, T): not for tags before all else.
    """
    known = (text_BT >= 0) & (text_BT < TEXT_TAG)
    every = known | ~known  # counted, as libraries have no common word for a range
    rows, columns = every.cumsum(0) - 1, every.cumsum(1) - 1
    moved = rows, (columns + text_BT.shape[1] * ~known).argsort(1)
    ids = (text_BT[moved] + 1) * known[moved] - 1
    ids[:, 0] += ~known.any(1)  # encoders have no states of nothing
    count = known.cumsum(1)
    return ids, (rows, (count - 1).clip(min=0)), count > 0


class TextStates:
    """An encoder's states of token ids, each text's computed once.

    Where the disk is full they are computed again, with a warning: no run ends for that.

    Args:
        encode: of int64 ids (B, T) and a mask (B, T), float32 states (B, T, D).
        identity: of the encoder; other weights, other states.
        folder: where they are kept, a file a text; it may be shared by processes.
    """

    def __init__(
        self,
        encode: Callable[[np.ndarray, np.ndarray], np.ndarray],
        identity: str,
        folder: str | Path,
    ):
        self.encode, self.identity, self.folder = encode, identity, Path(folder)
        self.full = False  # whether some could not be kept

    def path(self, ids_T: np.ndarray) -> Path:
        """The file of a text's states."""
        ids = np.ascontiguousarray(ids_T, np.int64).tobytes()
        key = hashlib.sha256(self.identity.encode() + b"\0" + ids).hexdigest()
        return self.folder / key[:2] / f"{key}.npy"

    def states(self, text_BT: np.ndarray) -> np.ndarray:
        """Float32 states (B, T, D) of ids padded with -1; zero behind an item's end."""
        rows = [ids[ids >= 0] for ids in text_BT]
        found = [self.stored(ids) for ids in rows]
        if missing := [i for i, row in enumerate(found) if row is None]:
            read = text_BT[missing] >= 0
            made = self.encode(np.where(read, text_BT[missing], 0), read)
            for i, states in zip(missing, made):
                found[i] = fresh = states[: len(rows[i])].astype(np.float32)
                self.store(rows[i], fresh)
        known = [row for row in found if row is not None]
        both = np.zeros((*text_BT.shape, known[0].shape[1]), np.float32)
        for i, row in enumerate(known):
            both[i, : len(row)] = row
        return both

    def stored(self, ids_T: np.ndarray) -> np.ndarray | None:
        """A text's states, if they are there and whole."""
        try:
            states = np.load(self.path(ids_T), allow_pickle=False)
        except (OSError, ValueError, EOFError):  # missing, or cut off by a full disk
            return None
        return states if states.ndim == 2 and len(states) == len(ids_T) else None

    def store(self, ids_T: np.ndarray, states_TD: np.ndarray) -> None:
        """Keeps a text's states."""
        path = self.path(ids_T)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path, several=True) as part, part.open("wb") as file:
                np.save(file, states_TD, allow_pickle=False)
        except OSError as e:
            if not self.full:
                log.warning(
                    "states of texts cannot be kept in %s, and are computed each time: %s",
                    self.folder,
                    e,
                )
            self.full = True
