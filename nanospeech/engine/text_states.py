"""Text states: a frozen encoder's states of texts, kept on disk. Knows no array library."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nanospeech.files import whole


class TextStates:
    """An encoder's states of token ids, each text's computed once.

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
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path, several=True) as part, part.open("wb") as file:
            np.save(file, states_TD, allow_pickle=False)
