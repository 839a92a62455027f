"""Sources: shards of samples, each readable from any sample on. Decodes nothing, shuffles nothing.

A sample is a dict with "__key__" and a field for each of its files ("mp3", "json", "npy", …).
Unreadable samples are counted and skipped, and their cause is logged once; of a truncated shard the
samples before the end are used. An exception in a user's own function ends the run.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

from nanospeech.corpus.tars import Header, split_name
from nanospeech.errors import DataError, InputError, require

from . import tar_seek
from .faults import check_own
from .tries import Tries

LARGEST = 64 * 2**20  # bytes of a sample; bigger ones are no clip of speech
SLICE = 256  # rows of a map-style dataset that make a shard
BROKEN = "broken shard"
BROKEN_ROW = "broken row"

log = logging.getLogger("nanospeech")


class Source(Protocol):
    """Shards of samples, the same ones in the same order at every reading.

    ordered: true where the samples already come in the order in which they shall be used.
    """

    ordered: bool

    def __len__(self) -> int: ...

    def open(
        self, shard: int, start: int = 0, epoch: int = 0, skipped: Counter | None = None
    ) -> Iterator[tuple[int, dict]]:
        """Samples of a shard from number `start` on, each with its number."""
        ...


def make_source(data: Any) -> Source:
    """The Source of a trainer's dataset.

    Args:
        data: a source; a path, URL or glob pattern of tars, or a list of them; a dataset of the
            datasets library, streamed or not; or any re-iterable of samples.

    Raises:
        InputError: it is none of these, or a path matches nothing.
    """
    if isinstance(data, Mapping):
        raise InputError(
            f"the dataset is a {type(data).__name__} of {', '.join(map(str, islice(data, 5)))}; "
            'take one split of it, as dataset["train"], or a list of samples'
        )
    if isinstance(data, (str, Path)):
        return TarSource(find_shards([data]))
    if isinstance(data, (list, tuple)) and data and all(isinstance(d, (str, Path)) for d in data):
        return TarSource(find_shards(data))
    if hasattr(data, "cast_column"):
        return DatasetSource(data)
    if hasattr(data, "open") and hasattr(data, "ordered"):
        return cast(Source, data)
    known = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if isinstance(data, Iterator) or not known:
        raise InputError(
            f"the dataset is a {type(data).__name__}, and samples are read anew in each epoch and "
            "where a run resumes; give it a list, an object whose __iter__ begins anew, or "
            "datasets.IterableDataset.from_generator(function)"
        )
    return IterableSource(data)


def find_shards(patterns: Iterable[str | Path]) -> list[str]:
    """Paths and URLs that the patterns name, sorted, each once; a folder names its tars.

    "{000..123}" counts, "*" matches, "**" matches folders at any depth.

    Raises:
        InputError: a pattern, or one of the names that it counts, matches nothing.
    """
    found: list[str] = []
    for pattern in map(str, patterns):
        if not (texts := counted(pattern)):
            raise InputError(
                f"{pattern!r} counts from more to less; the smaller number comes first"
            )
        for text in texts:
            if not (names := matching(text)):
                range_ = "" if text == pattern else f", of {pattern!r}"
                raise InputError(
                    f"no shards match {text!r}{range_}; nanospeech prepare shards makes some"
                )
            found += names
    # one file may be spelt in several ways, and would be read as often
    names = {name if "://" in name else os.path.abspath(name): name for name in sorted(found)}
    return sorted(names.values())


def counted(pattern: str) -> list[str]:
    """A pattern with {000..123} written out."""
    if not (range_ := re.search(r"\{(\d+)\.\.(\d+)\}", pattern)):
        return [pattern]
    first, last = range_.groups()
    middle = (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    ends = counted(pattern[range_.end() :])
    return [pattern[: range_.start()] + number + end for number in middle for end in ends]


def matching(pattern: str) -> list[str]:
    """What a glob pattern names; a name without wildcards names itself, if it is there."""
    if "://" not in pattern:
        if not (found := glob.glob(pattern, recursive=True)) and os.path.exists(pattern):
            found = [pattern]
        inside = (
            glob.glob(os.path.join(glob.escape(name), "*.tar")) if os.path.isdir(name) else [name]
            for name in found
        )
        return [name for names in inside for name in names]
    if not any(c in pattern.partition("?")[0] for c in "*["):
        return [pattern]
    system, path = require("fsspec.core", "train").url_to_fs(pattern)
    return [system.unstrip_protocol(p) for p in system.glob(path)]


class Causes:
    """Why shards could not be read: the last cause for errors, each shard's first for the log."""

    cause = ""

    def note(self, reason: str, where: str, error: Exception, skipped: Counter | None) -> None:
        """Counts a skipped sample and logs the cause once a shard."""
        self.cause = f"{where}: {type(error).__name__}: {error}"
        logged = self.__dict__.setdefault("logged", set())
        if where not in logged:
            logged.add(where)
            log.warning("%s: %s", reason, self.cause)
        if skipped is not None:
            skipped[reason] += 1


class TarSource(Causes):
    """WebDataset tars, streamed: members that follow each other under one key are a sample.

    Args:
        shards: local paths, or URLs of any kind that fsspec knows (https://, s3://, hf://, …).
        tries: how often a remote shard is opened, or gone on with where it broke off, without a
            sample in between; 7 take a minute. A local one is opened twice.
        largest: bytes of a sample; bigger ones are left out and counted.
    """

    ordered = False

    def __init__(self, shards: Sequence[str | Path], tries: int = 7, largest: int = LARGEST):
        if not shards:
            raise InputError("a TarSource needs at least one shard")
        self.shards, self.tries, self.largest = [str(s) for s in shards], tries, largest

    def __len__(self) -> int:
        return len(self.shards)

    def open(
        self, shard: int, start: int = 0, epoch: int = 0, skipped: Counter | None = None
    ) -> Iterator[tuple[int, dict]]:
        path, skipped = self.shards[shard], Counter() if skipped is None else skipped
        remote = "://" in path
        tries = Tries(remote, self.tries if remote else 2)
        while True:
            try:
                for index, sample in self.read(path, start, tries.over):
                    start = index + 1
                    tries.came()
                    if sample is None:
                        skipped["too big a file"] += 1
                    else:
                        yield index, sample
                return
            except ImportError as e:
                raise InputError(
                    f"reading {path} needs a package that is not installed: {e}"
                ) from e
            except Exception as e:  # whatever a network or a decompressor may raise
                if tries.over(e):
                    self.note(BROKEN, path, e, skipped)
                    return
            tries.wait()

    def pick(self, shard: int, wanted: set[int], epoch: int = 0) -> Iterator[tuple[int, dict]]:
        """Samples of some numbers; of a local tar no more is read than these and the headers."""
        path = self.shards[shard]
        try:
            if "://" in path:
                raise OSError("a stream")
            found = tar_seek.pick(path, wanted, self.largest, Header, split_name)
        except Exception:  # compressed, damaged or remote
            found = {}
            for index, sample in self.open(shard, min(wanted), epoch):
                if index in wanted:
                    found[index] = sample
                if index >= max(wanted):
                    break
        yield from sorted(found.items())

    def read(
        self, path: str, start: int, last: Callable[[Exception], bool]
    ) -> Iterator[tuple[int, dict | None]]:
        """Samples from number `start` on; None for one that is too big.

        Where the tar breaks off between two files, the sample before the break may lack some: it
        is yielded only in the last try, which `last` tells of an error.
        """
        skip = 0
        if start and "://" not in path:
            skip = tar_seek.offset_of(path, start, Header, split_name)
        with opened(path) as file, from_byte(file, skip) as tar:
            sample: dict[str, Any] = {}
            index, group, error = start - 1 if skip else -1, None, None
            whole, left = True, self.largest
            try:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # else all are kept
                    key, kind = split_name(member.name)
                    if not member.isreg() or not kind:
                        continue  # never a link, device or folder
                    if key != group or kind in sample:
                        if group is not None and index >= start:
                            yield index, sample if left >= 0 else None
                        index, group, left = index + 1, key, self.largest
                        sample = {"__key__": key}
                    left -= member.size
                    if index < start or left < 0:
                        sample[kind] = b""
                        continue
                    whole = False
                    sample[kind] = tar.extractfile(member).read()  # type: ignore[union-attr]
                    whole = True
            except Exception as e:
                error = e
            ended = error is None or last(error)
            if whole and group is not None and index >= start and ended:
                yield index, sample if left >= 0 else None
            if error is not None:
                raise error


def from_byte(file: Any, skip: int) -> tarfile.TarFile:
    """A tar to be streamed, from one of its headers on."""
    if skip:
        file.seek(skip)
    return tarfile.open(fileobj=file, mode="r|*", tarinfo=Header)


def opened(path: str) -> Any:
    """A file or URL to read bytes from."""
    if "://" not in path:
        return open(path, "rb")
    return require("fsspec", "train").open(path, "rb")


class DatasetSource(Causes):
    """A dataset of the datasets library.

    Args:
        dataset: an IterableDataset, whose shards are taken as they are, or a Dataset, which is cut
            into slices of rows that follow each other.
    """

    ordered = False

    def __init__(self, dataset: Any):
        self.streamed = not hasattr(dataset, "to_iterable_dataset")
        transformed = not self.streamed and dataset.format["type"] == "custom"
        if self.streamed:  # in plain values, whatever the user's format is
            self.dataset = undecoded(dataset).with_format(None)
        elif transformed:
            self.dataset = undecoded(dataset)
        else:  # as it is stored: a cast would write all recordings once more
            self.dataset = dataset.with_format("arrow")
        if self.streamed:
            count = getattr(dataset, "num_shards", None)
            self.count = dataset.n_shards if count is None else count
        else:
            self.count = -(-len(dataset) // SLICE)
        if not self.count:
            raise DataError("the dataset is empty")

    def __len__(self) -> int:
        return self.count

    def open(
        self, shard: int, start: int = 0, epoch: int = 0, skipped: Counter | None = None
    ) -> Iterator[tuple[int, dict]]:
        """As Source has it.

        Raises:
            DataError: a function given to the dataset (map, filter, with_transform, a generator)
                failed.
            InputError: a package is missing that the dataset is read with.
        """
        read = self.stream if self.streamed else self.rows
        yield from read(shard, start, epoch, skipped)

    def stream(
        self, shard: int, start: int, epoch: int, skipped: Counter | None
    ) -> Iterator[tuple[int, dict]]:
        """Samples of a shard of an IterableDataset, up to where it breaks off."""
        index = start
        try:
            piece = self.dataset.shard(num_shards=self.count, index=shard)
            if hasattr(piece, "set_epoch"):
                piece.set_epoch(epoch)
            # in a loader's worker, iter(piece) would deal out its shards once more; piece.iter not
            for row in islice(piece.iter(batch_size=1), start, None):
                yield index, {name: values[0] for name, values in row.items()}
                index += 1
        except Exception as e:  # whatever a builder, a network or a cast may raise
            where = f"shard {shard} of the dataset, after {index} samples"
            check_own(e, where)
            self.note(BROKEN, where, e, skipped)

    def rows(
        self, shard: int, start: int, epoch: int, skipped: Counter | None
    ) -> Iterator[tuple[int, dict]]:
        """Rows of a slice of a Dataset; each is read by itself, so a bad one costs no other."""
        first = shard * SLICE
        for index in range(start, min(SLICE, len(self.dataset) - first)):
            try:
                row = self.dataset[first + index]
                row = row if isinstance(row, dict) else row.to_pylist()[0]
            except Exception as e:  # of a file that a row names, or a cast
                where = f"row {first + index} of the dataset"
                check_own(e, where)
                self.note(BROKEN_ROW, where, e, skipped)
            else:
                yield index, row


class IterableSource:
    """Any re-iterable of samples, in its own order: one shard.

    Its `set_epoch(epoch)`, where it has one, is called before it is read; its samples must then
    depend on nothing but the epoch.
    """

    ordered = True

    def __init__(self, samples: Iterable[dict]):
        self.samples: Any = samples

    def __len__(self) -> int:
        return 1

    def open(
        self, shard: int, start: int = 0, epoch: int = 0, skipped: Counter | None = None
    ) -> Iterator[tuple[int, dict]]:
        if hasattr(self.samples, "set_epoch"):
            self.samples.set_epoch(epoch)
        for index, sample in enumerate(islice(self.samples, start, None), start):
            if not isinstance(sample, Mapping):
                raise InputError(
                    f"sample {index} of the dataset is a {type(sample).__name__}, should be a "
                    'dictionary, such as {"audio": bytes of a file, "text": its words}'
                )
            yield index, dict(sample)


def undecoded(dataset: Any) -> Any:
    """The dataset with its audio columns as plain bytes: no torchcodec, no FFmpeg.

    Even Audio(decode=False) asks for torchcodec in some releases of datasets; a struct does not.
    """
    from datasets import Audio, Value

    raw = {"bytes": Value("binary"), "path": Value("string")}
    for name, kind in (dataset.features or {}).items():
        if isinstance(kind, Audio):
            dataset = dataset.cast_column(name, raw)
    return dataset
