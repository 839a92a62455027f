"""Order: the order of samples, and streams that read them in it. Decodes nothing.

An epoch is a seeded permutation of all shards (or of strided parts of them, where there are fewer
shards than streams). The epochs' work, one behind the other, is dealt to the streams by turns; a
stream reads its shards through a shuffle buffer, one epoch after the other. Its state is the
work left, the samples that are read but not yet used, and the number of draws, and nothing else: a
stream that goes on from a StreamState (stream_state.py) continues exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from nanospeech.errors import DataError

from .sources import Source
from .stream_state import Ref, StreamState, check_shards, packed, rows

Unit = tuple[int, int, int, int, int]  # epoch, shard, part, of so many parts, next sample
HELD = 512 * 2**20  # bytes that a shuffle buffer may hold


def deal(shards: int, seed: int, stream: int, streams: int, epoch: int) -> list[Unit]:
    """A stream's share of an epoch; where shares are unequal, the bigger ones rotate."""
    parts = -(-streams // shards)
    order = np.random.default_rng([seed, epoch, shards]).permutation(shards * parts).tolist()
    first = (stream - epoch * len(order)) % streams
    return [(epoch, u // parts, u % parts, parts, 0) for u in order[first::streams]]


class SampleStream:
    """One of several streams that share a source.

    Args:
        source: of samples.
        seed: of the order.
        stream, streams: which this is, of how many.
        shuffle_buffer: samples to draw from; 1 keeps the order of the shards' samples.
        place: where to go on.
        skipped: counts what the source cannot read.

    Raises:
        DataError: the place is of another number of shards or streams.
    """

    def __init__(
        self,
        source: Source,
        seed: int = 0,
        stream: int = 0,
        streams: int = 1,
        shuffle_buffer: int = 1,
        place: StreamState | None = None,
        skipped: Counter | None = None,
    ):
        self.source, self.seed, self.stream, self.streams = source, seed, stream, streams
        self.size = 1 if source.ordered else max(1, shuffle_buffer)
        self.skipped = Counter() if skipped is None else skipped
        place = place or StreamState(stream, streams)
        check_shards([place], len(source))
        if (place.stream, place.streams) != (stream, streams):
            raise DataError(
                f"this is stream {stream} of {streams}, and the place to go on from is that of "
                f"{place.stream} of {place.streams}; deal them out anew by "
                "nanospeech_torch.train.data.order.resume"
            )
        self.epoch, self.fresh, self.whole = place.epoch, place.fresh, place.whole
        self.drawn = place.drawn
        self.units: np.ndarray = place.units.copy()  # the first row is that which is being read
        self.reader: Iterator[tuple[int, dict]] | None = None
        self.buffer: dict[int, list[tuple[Ref, dict]]] = {}
        self.held = 0
        self.restored = self.fetch(place.pending())
        for epoch, shard, index in place.buffer.tolist():
            if (epoch, shard, index) in self.restored:
                self.hold((epoch, shard, index), self.restored.pop((epoch, shard, index)))
        if self.epoch == self.fresh:
            self.deal()

    def deal(self) -> None:
        """Takes this stream's share of the next fresh epoch."""
        fresh = deal(len(self.source), self.seed, self.stream, self.streams, self.fresh)
        self.units = np.concatenate([self.units, rows(fresh, 5)])
        self.fresh, self.whole = self.fresh + 1, 1

    def advance(self) -> None:
        """Goes on to the next epoch of which there is something."""
        left = {*np.unique(self.units[:, 0]).tolist(), *self.buffer}  # none of it is empty
        self.epoch, self.whole = min(left, default=self.fresh), 0
        if self.epoch == self.fresh:
            self.deal()

    def take(self) -> tuple[Ref, dict] | None:
        """The next sample, or None at the end of the epoch."""
        here = self.buffer.setdefault(self.epoch, [])
        # what fills the memory may be of later epochs, and does not end this one
        while len(here) < self.size and (self.held < HELD or not here):
            if (new := self.read()) is None:
                break
            self.hold(*new)
        if not here:
            del self.buffer[self.epoch]
            return None
        at = 0
        if self.size > 1:  # the draw depends on its number alone: there is no state to save
            draw = np.random.default_rng([self.seed, self.stream, self.drawn])
            at = int(draw.integers(len(here)))
            here[at], here[-1] = here[-1], here[at]
            at = -1
        self.drawn += 1
        ref, sample = here.pop(at)
        self.held -= weight(sample)
        return ref, sample

    def hold(self, ref: Ref, sample: dict) -> None:
        self.buffer.setdefault(ref[0], []).append((ref, sample))
        self.held += weight(sample)

    def read(self) -> tuple[Ref, dict] | None:
        """The next sample of this epoch's units, in their order."""
        while len(self.units) and self.units[0, 0] == self.epoch:
            epoch, shard, part, parts, start = self.units[0].tolist()
            if self.reader is None:  # a shard's faults are counted in its first part only
                skipped = self.skipped if part == 0 else Counter()
                self.reader = self.source.open(shard, start, epoch, skipped)
            for index, sample in self.reader:
                if index % parts == part:
                    self.units[0, 4] = index + 1
                    return (epoch, shard, index), sample
            self.units = self.units[1:]
            self.reader = None
        return None

    def fetch(self, refs: Iterable[Ref]) -> dict[Ref, dict]:
        """Reads samples anew, each shard once."""
        wanted: dict[tuple[int, int], set[int]] = {}
        for epoch, shard, index in refs:
            wanted.setdefault((epoch, shard), set()).add(index)
        found = {}
        for (epoch, shard), indices in sorted(wanted.items()):
            pick = getattr(self.source, "pick", None)
            samples = (
                pick(shard, indices, epoch)
                if pick
                else self.source.open(shard, min(indices), epoch)
            )
            for index, sample in samples:
                if index in indices:
                    found[epoch, shard, index] = sample
                if index >= max(indices):
                    break
        lost = sum(map(len, wanted.values())) - len(found)
        if lost:
            self.skipped["gone when resuming"] += lost
        return found

    def place(self, **more: Any) -> StreamState:
        """Where this stream stands.

        Args:
            more: the fields of StreamState that Batches has: batches, empty_epochs, waiting and
                unpaired.
        """
        held = (ref for _, here in sorted(self.buffer.items()) for ref, _ in here)
        return StreamState(
            stream=self.stream,
            streams=self.streams,
            shards=len(self.source),
            epoch=self.epoch,
            fresh=self.fresh,
            whole=self.whole,
            drawn=self.drawn,
            units=self.units.copy(),
            buffer=packed(held, 3),
            **more,
        )


def weight(sample: dict) -> int:
    """About how many bytes a sample holds."""
    total = 0
    for value in sample.values():
        value = value.get("bytes") if isinstance(value, dict) else value
        if isinstance(value, (bytes, str)):
            total += len(value)
        elif isinstance(value, list):  # sound or features, as datasets gives them
            total += 8 * len(value)
        else:
            total += getattr(value, "nbytes", 0)
    return total


def redeal(
    saved: list[dict[int, StreamState]], shards: int, seed: int, streams: int
) -> list[StreamState]:
    """States for another number of streams: no sample is used twice or left out.

    The streams are brought to the same last epoch; what is left of it and of earlier ones goes to
    the new streams by turns, and with it the samples that were read but not used.

    Args:
        saved: for each process, the place of each of its workers (a worker that has not given
            anything may be missing).
        shards: of the source.
        seed: of the order.
        streams: how many there are to be.
    """
    known = {p.stream: p for places in saved for p in places.values()}
    if not known:
        return [StreamState(stream, streams) for stream in range(streams)]
    check_shards(known.values(), shards)
    before = max(p.streams for p in known.values())
    old = [known.get(stream) or StreamState(stream, before) for stream in range(before)]
    fresh = max(p.fresh for p in old)
    left = [
        p.units.tolist()
        + [u for e in range(p.fresh, fresh) for u in deal(shards, seed, p.stream, before, e)]
        for p in old
    ]
    # by turns, which keeps the shuffled order; sorting by epoch keeps it within epochs
    units = [tuple(u) for turn in zip_longest(*left) for u in turn if u is not None]
    units = [
        part for epoch in sorted({u[0] for u in units}) for part in split(units, epoch, streams)
    ]
    singles = sorted(tuple(r) for p in old for t in (p.buffer, p.unpaired) for r in t.tolist())
    items = [item for p in old for item in waiting_items(p.waiting)]
    places = []
    for stream in range(streams):
        mine, held = units[stream::streams], singles[stream::streams]
        epoch = min((r[0] for r in [*mine, *held]), default=fresh)
        places.append(
            StreamState(
                stream=stream,
                streams=streams,
                shards=shards,
                epoch=epoch,
                fresh=fresh,
                whole=int(epoch == fresh),
                units=rows(mine, 5),
                buffer=rows(held, 3),
                waiting=rows((row for item in items[stream::streams] for row in item), 5),
            )
        )
    return places


def split(units: list[tuple], epoch: int, streams: int) -> list[tuple]:
    """The units of an epoch; parts of them where they are fewer than the streams."""
    mine = [u for u in units if u[0] == epoch]
    times = -(-streams // len(mine))
    return [
        (epoch, shard, part + parts * n, parts * times, start)
        for _, shard, part, parts, start in mine
        for n in range(times)
    ]


def waiting_items(table: np.ndarray) -> Iterator[list[list[int]]]:
    """The rows of each item that waits for its batch."""
    item: list[list[int]] = []
    for row in table.tolist():
        item.append(row)
        if not row[4]:
            yield item
            item = []


def resume(
    saved: list[dict[int, StreamState]], shards: int, seed: int, world: int, workers: int
) -> tuple[list[dict[int, StreamState]], bool]:
    """Each process's places to go on from.

    Args:
        saved: the places of each process when it was saved.
        shards: of the source.
        seed: of the order.
        world: processes now.
        workers: of each process now (1 if the process loads its data itself).

    Returns:
        The places of each process by worker, and whether they are the saved ones. If they are not,
        then the number of batches consumed starts at 0 again.
    """
    streams = world * workers
    known = {p.stream: p for places in saved for p in places.values()}
    check_shards(known.values(), shards)
    if any(p.streams != streams for p in known.values()):
        known = {p.stream: p for p in redeal(saved, shards, seed, streams)}
        same = False
    else:
        same = len(saved) == world and all(
            (p.stream // workers, p.stream % workers) == (rank, worker)
            for rank, places in enumerate(saved)
            for worker, p in places.items()
        )
    out: list[dict[int, StreamState]] = [{} for _ in range(world)]
    for stream, place in known.items():
        out[stream // workers][stream % workers] = place
    return out, same
