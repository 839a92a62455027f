"""Batches: groups samples by length, resumably. Decodes nothing.

Subclasses make items of samples: speech.py for speech, segments.py for the vocoder. Lengths are
padded to a few buckets and texts to a few widths, so few shapes occur. No sample is dropped to fill
batches. The order of samples is order.py's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import queue
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from nanospeech.errors import DataError

from .order import SampleStream
from .pairing import PAIR_MB, Waiting
from .sources import make_source
from .stream_state import Ref, StreamState, packed

KEYED = 2  # version of the random draws' keys: 1 a sample's key, 2 its shard and number as well


@dataclass(frozen=True)
class BatchPlan:
    """How samples are put together.

    Args:
        batch_size: most samples a batch.
        max_frames: most mel frames a batch, padded to its bucket (and then to `multiple`).
        max_duration: most frames a sample; longer ones are left out and counted.
        buckets: how many lengths batches are padded to, evenly up to max_duration.
        text_multiple: the widths of texts are multiples of this.
        min_duration: fewest frames a sample.
        carry: samples that fill no batch at the end of an epoch wait for the next one, so that
            every batch has its full size (but for an epoch's only one); else they make smaller
            batches.
        pair_mb: memory for clips that wait for a partner, in each worker.
        multiple: padded lengths are multiples of so many frames; GPUs multiply matrices of 8 rows.
    """

    batch_size: int
    max_frames: int
    max_duration: int
    buckets: int = 8
    text_multiple: int = 16
    min_duration: int = 16
    carry: bool = False
    pair_mb: int = PAIR_MB
    multiple: int = 1

    def limits(self) -> dict[str, int]:
        """The bounds of batches, for a run's settings."""
        names = {"batch_size": self.batch_size, "max_frames": self.max_frames}
        return {**names, "longest": self.max_duration}

    def bucket(self, frames: int) -> int:
        """The group of a sample: the next of the evenly spaced bucket lengths."""
        step = -(-self.max_duration // self.buckets)
        return min(-(-frames // step) * step, self.max_duration)

    def padded(self, bucket: int) -> int:
        """Frames that samples of a bucket are padded to."""
        return -(-bucket // self.multiple) * self.multiple

    def capacity(self, bucket: int) -> int:
        """Samples in a full batch of a bucket."""
        return max(1, min(self.batch_size, self.max_frames // bucket))

    def text_widths(self, bucket: int) -> list[int]:
        """The padded token counts of a bucket: a sixth, a third and half of its frames.

        No text has more tokens than half its frames; usual speech has a tenth to a fifth.
        """
        m = self.text_multiple
        return sorted({-(-bucket // (part * m)) * m for part in (6, 3, 2)})

    def shapes(self) -> list[tuple[int, int]]:
        """All (frames, tokens) that batches are padded to."""
        step = -(-self.max_duration // self.buckets)
        lengths = sorted({min(n * step, self.max_duration) for n in range(1, self.buckets + 1)})
        lengths = [self.padded(n) for n in lengths]
        return [(n, width) for n in lengths for width in self.text_widths(n)]


@dataclass(frozen=True)
class StreamOptions:
    """What part of a dataset a process reads, from where on, and in which order.

    Args:
        seed: of every draw.
        rank, world: which data-parallel process this is, of how many.
        places: per worker, where to go on.
        consumed: batches already taken, which decides whose turn it is.
        cache_bytes: decoded mels kept in memory by each worker (float16); 0 keeps none.
        shuffle_buffer: samples that each worker holds to draw from; 1 keeps the shards' order.
    """

    seed: int = 0
    rank: int = 0
    world: int = 1
    places: dict[int, StreamState] | None = None
    consumed: int = 0
    cache_bytes: int = 0
    shuffle_buffer: int = 1


@dataclass
class Loaded:
    """What the loader yields."""

    batch: Any  # a Batch;  None when a whole epoch gave nothing
    worker: int
    place: StreamState  # after this batch
    skipped: Counter = field(default_factory=Counter)  # since the batch before
    texts: list[str] = field(default_factory=list)
    epoch_ended: int | None = None  # the epoch of which this is the stream's last batch
    frames: int = 0  # without padding

    def pin_memory(self) -> Loaded:
        """The same with its tensors in page-locked memory (see DataLoader)."""
        if self.batch is None:
            return self
        return dataclasses.replace(self, batch=self.batch.pin_memory())


class Batches(IterableDataset):
    """Endless batches of one process's share of a dataset; the base class of all kinds.

    A subclass implements describe, rebuild and collate, and on_sample where a sample becomes
    several items or none. An item is a dict with "frames" and what the subclass needs; added are
    "refs" (the samples that it is made of), "epoch" and "piece" (its number in its sample).

    Args:
        samples: see sources.make_source.
        plan: see BatchPlan.
        stream: see StreamOptions.
    """

    def __init__(self, samples: Any, plan: BatchPlan, stream: StreamOptions):
        self.source, self.plan = make_source(samples), plan
        self.seed, self.rank, self.world = stream.seed, stream.rank, stream.world
        self.places, self.consumed = stream.places or {}, stream.consumed
        self.shuffle_buffer = stream.shuffle_buffer
        self.skipped: Counter = Counter()

    def describe(self, sample: dict, skipped: Counter) -> dict | None:
        """An item of a sample's metadata, not decoded; or None, with the reason counted."""
        raise NotImplementedError

    def on_sample(self, item: dict) -> list[dict]:
        """The items that a described sample makes; none yet if it waits in `unpaired`."""
        ready = self.rebuild([item], 0)
        return [] if ready is None else [ready]

    def rebuild(self, parts: list[dict], piece: int) -> dict | None:
        """An item for a batch out of its described samples, always the same; None if one is bad."""
        raise NotImplementedError

    def collate(self, group: list[dict], epoch: int, skipped: Counter) -> tuple[Any, list[str]]:
        """A batch and its texts."""
        raise NotImplementedError

    def rng(self, item: dict, epoch: int, *which: int) -> np.random.Generator:
        """Draws that depend on the sample and the epoch alone: not on batch, worker or process.

        A sample is known by its shard and number as well as its key, as keys may restart in each
        shard.

        Args:
            item: with "key" and, of samples of a source, "refs".
            epoch: that the draws are for.
            which: number of the generator, if an item has several.
        """
        numbers = [ref[1:] for ref in item.get("refs", ())]
        name = json.dumps([self.seed, epoch, item["key"], numbers, which])
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        return np.random.default_rng(int.from_bytes(digest, "little"))

    def __iter__(self) -> Iterator[Loaded]:
        info = get_worker_info()
        workers, index = (info.num_workers, info.id) if info else (1, 0)
        worker = (index + self.consumed) % workers  # the loader asks worker 0 first
        self.start(worker, self.rank * workers + worker, self.world * workers)
        while True:
            last = None
            for loaded in self.epoch():
                if last is not None:
                    yield last
                last = loaded
            yield from self.end(last)

    def start(self, worker: int, stream: int, streams: int) -> None:
        """Opens the stream where it stood, and reads waiting samples again."""
        place = self.places.get(worker) or StreamState(stream, streams)
        self.worker, self.skipped, self.reasons = worker, Counter(), Counter()
        self.batches, self.empty_epochs = place.batches, place.empty_epochs
        self.waiting: dict[int, list[dict]] = {}  # bucket -> items of a batch to be
        self.unpaired = self.waiting_room()  # described samples without a partner
        self.stream = SampleStream(
            self.source, self.seed, stream, streams, self.shuffle_buffer, place, self.skipped
        )
        found, parts = self.stream.restored, []
        for epoch, shard, number, piece, more in place.waiting.tolist():
            parts.append((epoch, shard, number))
            if more:
                continue
            items = [self.describe_sample(ref, found[ref]) for ref in parts if ref in found]
            known = [item for item in items if item is not None]
            if len(known) == len(parts) and (item := self.rebuild(known, piece)) is not None:
                self.wait(item)
            parts = []
        for ref in map(tuple, place.unpaired.tolist()):
            if ref in found and (item := self.describe_sample(ref, found[ref])) is not None:
                for gone in self.unpaired.add(item):  # if pair_mb is smaller than before
                    self.wait_unpaired(gone)
        found.clear()

    def waiting_room(self) -> Waiting:
        """Where samples wait for a partner; a pair is no longer than an item may be."""
        p = self.plan
        return Waiting(p.max_duration, p.min_duration, p.pair_mb * 10**6)

    def epoch(self) -> Iterator[Loaded]:
        """The batches of what is left of the stream's epoch."""
        while True:
            yield from self.full()
            if (taken := self.stream.take()) is None:
                break
            if (item := self.describe_sample(*taken)) is not None:
                for ready in self.on_sample(item):
                    self.wait(ready)
        while self.unpaired:
            self.wait_unpaired(self.unpaired.first())
            yield from self.full()
        if not self.plan.carry:
            for bucket in sorted(self.waiting):
                yield self.make_batch(self.waiting.pop(bucket))
        elif self.waiting and not self.batches and self.stream.whole:  # else there might be none
            yield self.make_batch(self.waiting.pop(min(self.waiting)))

    def end(self, last: Loaded | None) -> Iterator[Loaded]:
        """Closes an epoch, marking its last batch; an epoch without one yields an empty Loaded.

        Raises:
            DataError: there was no batch in the stream's share of an epoch (of several streams: in
                those of three epochs, as one may have got a bad share).
        """
        ended, empty = self.stream.epoch, self.batches == 0
        self.reasons += self.skipped
        if last is not None:
            last.place, last.epoch_ended = self.place(), ended
            last.skipped += self.skipped
            self.skipped.clear()
            yield last
        if self.batches:
            self.empty_epochs = 0
            self.reasons.clear()
        elif self.stream.whole:
            self.empty_epochs += 1
            if self.empty_epochs > (2 if self.stream.streams > 1 else 0):
                what = ", ".join(f"{n} {why}" for why, n in self.reasons.items()) or "no samples"
                cause = getattr(self.source, "cause", "")
                why = f"{what} (the last: {cause})" if cause else what
                raise DataError(f"nothing in the dataset can be used: {why}")
        self.batches = 0
        self.stream.advance()
        if empty and last is None:
            skipped = self.skipped.copy()
            self.skipped.clear()
            yield Loaded(None, self.worker, self.place(), skipped, epoch_ended=ended)

    def describe_sample(self, ref: Ref, sample: dict) -> dict | None:
        """A described sample with its origin, or None, with the reason counted."""
        item = self.describe(sample, self.skipped)
        return None if item is None else {**item, "refs": [ref], "epoch": ref[0], "piece": 0}

    def wait(self, item: dict) -> None:
        """Adds an item to those of its bucket."""
        self.waiting.setdefault(self.plan.bucket(item["frames"]), []).append(item)

    def wait_unpaired(self, item: dict) -> None:
        """The same for a described sample without a partner."""
        if (ready := self.rebuild([item], 0)) is not None:
            self.wait(ready)

    def capacity(self, bucket: int) -> int:
        """Samples in a full batch of a bucket."""
        return self.plan.capacity(bucket)

    def full(self) -> Iterator[Loaded]:
        """Batches of those buckets that have enough."""
        for bucket in sorted(self.waiting):
            count = self.capacity(bucket)
            while len(self.waiting.get(bucket, ())) >= count:
                group, rest = self.waiting.pop(bucket), []
                group, rest = group[:count], group[count:]
                if rest:
                    self.waiting[bucket] = rest
                yield self.make_batch(group)

    def make_batch(self, group: list[dict]) -> Loaded:
        """A batch, with the place after it."""
        batch, texts = self.collate(group, self.stream.epoch, self.skipped)
        self.batches += batch is not None
        frames = sum(item["frames"] for item in group)
        self.reasons += self.skipped
        loaded = Loaded(batch, self.worker, self.place(), self.skipped.copy(), texts, None, frames)
        self.skipped.clear()
        return loaded

    def place(self) -> StreamState:
        """The stream's state, waiting items included."""
        waiting = [
            (*ref, item["piece"], int(number + 1 < len(item["refs"])))
            for bucket in sorted(self.waiting)
            for item in self.waiting[bucket]
            for number, ref in enumerate(item["refs"])
        ]
        return self.stream.place(
            batches=self.batches,
            empty_epochs=self.empty_epochs,
            waiting=packed(waiting, 5),
            unpaired=self.unpaired.refs.copy(),
        )


class Prefetch:
    """Runs an iterable ahead in a thread, for loading without worker processes.

    Items read ahead are not lost, as each Loaded has its own state. NumPy and libsndfile let other
    threads run while they work.

    Args:
        items: iterated once for each iteration of this.
        depth: items kept ready.
    """

    def __init__(self, items: Iterable, depth: int = 4):
        self.items, self.depth = items, depth

    def __iter__(self) -> Iterator[Any]:
        box: queue.Queue = queue.Queue(max(1, self.depth))
        stop = threading.Event()

        def put(item: Any, error: BaseException | None, more: bool) -> None:
            while not stop.is_set():
                try:
                    return box.put((item, error, more), timeout=0.1)
                except queue.Full:
                    pass

        def run() -> None:
            try:
                for item in self.items:
                    put(item, None, True)
                    if stop.is_set():
                        return
                put(None, None, False)
            except BaseException as e:
                put(None, e, False)

        thread = threading.Thread(target=run, name="prefetch", daemon=True)
        thread.start()
        try:
            while True:
                item, error, more = box.get()
                if error is not None:
                    raise error
                if not more:
                    return
                yield item
        finally:
            stop.set()
            thread.join(timeout=10)
