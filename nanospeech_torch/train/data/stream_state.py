"""Stream state: where a stream is in the order of samples, as plain numbers. Reads no samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError, DataError

Ref = tuple[int, int, int]  # epoch, shard, number of the sample in the shard
WIDTHS = {"units": 5, "buffer": 3, "waiting": 5, "unpaired": 3}
# fields of a StreamState in checkpoints of older versions
RENAMED = {"barren": "empty_epochs", "alone": "unpaired"}


def rows(values: Iterable, width: int) -> np.ndarray:
    """An int32 table, also of no rows."""
    return np.asarray(list(values), np.int32).reshape(-1, width)


def packed(tuples: Iterable[tuple[int, ...]], width: int) -> np.ndarray:
    """The same of tuples that are known to be of that width: several times as fast."""
    return np.fromiter(chain.from_iterable(tuples), np.int32).reshape(-1, width)


def no_rows(width: int) -> Any:
    return field(default_factory=lambda: rows([], width))


@dataclass(eq=False)
class StreamState:
    """The state of a stream.

    Args:
        stream, streams: which it is, of how many.
        shards: of the source; 0 before anything is read.
        epoch: that is being read.
        fresh: the first epoch whose work is not yet dealt out.
        whole: whether the epoch's share was dealt out here, not left over by other streams.
        drawn: samples drawn from the shuffle buffer.
        batches: formed in this epoch.
        empty_epochs: epochs without a batch up to this one.
        units: work left, the first perhaps begun: rows (epoch, shard, part, parts, next sample).
        buffer: samples to draw from: rows (epoch, shard, sample).
        waiting: drawn, but their batch is not full: rows (epoch, shard, sample, piece, more), where
            `more` is 1 if the next row belongs to the same item.
        unpaired: drawn, but without a partner: as the buffer.
    """

    stream: int = 0
    streams: int = 1
    shards: int = 0
    epoch: int = 0
    fresh: int = 0
    whole: int = 1
    drawn: int = 0
    batches: int = 0
    empty_epochs: int = 0
    units: np.ndarray = no_rows(5)
    buffer: np.ndarray = no_rows(3)
    waiting: np.ndarray = no_rows(5)
    unpaired: np.ndarray = no_rows(3)

    def pending(self) -> list[Ref]:
        """Samples that were read and not yet used."""
        return [
            (e, s, i)
            for table in (self.buffer, self.waiting, self.unpaired)
            for e, s, i, *_ in table.tolist()
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: v.tolist() if k in WIDTHS else int(v) for k, v in values.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> StreamState:
        """What to_json gave.

        Raises:
            CheckpointError: it is something else.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        try:
            values = {RENAMED.get(k, k): v for k, v in values.items()}
            if names != set(values):
                raise ValueError(f"keys {sorted(values)}, should be {sorted(names)}")
            tables: dict[str, Any] = {k: rows(values[k], n) for k, n in WIDTHS.items()}
            return cls(**{k: int(values[k]) for k in names - set(WIDTHS)}, **tables)
        except (TypeError, ValueError) as e:
            raise CheckpointError(f"this is not the state of a data stream: {e}") from e

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamState) and self.to_json() == other.to_json()


def check_shards(places: Iterable[StreamState], shards: int) -> None:
    """Raises DataError if a place is in a source of another number of shards."""
    for place in places:
        if place.shards not in (0, shards):
            raise DataError(
                f"the run was saved with {place.shards} shards and there are {shards} now, so its "
                "place in them is lost; give it the old shards, or start anew in another run_dir"
            )
