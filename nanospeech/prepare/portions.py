"""Portions: a list of clips cut into parts that several machines work on, each on its own.

What lies in the work folder, which all machines see under one path:

    000012.todo       the samples of portion 12, as JSON
    000012.json       its report, a row for each sample; it is written last, so it says "done"
    000012-8f3c….tar  a shard that the report names

A run that was stopped, on whatever machine, goes on with the portions that have no report of the
same samples and settings. Two machines that work on one portion by mistake write files of different
names, and the last report holds. Who works on which portion is left to a Runner (ray_data.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from nanospeech.corpus.layouts import Sample, Source
from nanospeech.errors import DataError, NanospeechError
from nanospeech.files import replace_all

Row = dict[str, Any]
Known = Mapping[str, Mapping[int, str]]  # transcripts by key and CRC-32, as Heard has them
# a portion's samples, what is known of them, the folder, the first part of its files' names ->
# the files by side, and a row for each sample
Work = Callable[[list[Sample], Known, Path, str], tuple[dict[str, list[str]], list[Row]]]
# calls a function with each number, anywhere, and yields what it returns, in any order
Runner = Callable[[Callable[[int], tuple[int, str]], Sequence[int]], Iterator[tuple[int, str]]]


@dataclass(frozen=True)
class Report:
    """What became of a portion.

    Attributes:
        files: names of its shards in the work folder, by side.
        rows: one for each sample, in order.
    """

    files: dict[str, list[str]]
    rows: list[Row]


class Portions:
    """The portions of a list of samples.

    Args:
        folder: the work folder.
        samples: in the order that they shall have.
        size: samples in a portion.
        settings: what the result depends on beside the samples, as JSON.
        known: transcripts that need not be made again.
    """

    def __init__(
        self,
        folder: Path,
        samples: Sequence[Sample],
        size: int,
        settings: dict[str, Any],
        known: Known | None = None,
    ):
        self.folder, self.samples, self.size = folder.resolve(), samples, size
        self.settings, self.known = settings, known or {}

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def samples_of(self, number: int) -> Sequence[Sample]:
        """The samples of a portion."""
        return self.samples[number * self.size : (number + 1) * self.size]

    def fingerprint(self, number: int) -> str:
        """Of the samples and settings of a portion; the files of recordings are not opened."""
        rows = [to_row(s) for s in self.samples_of(number)]
        text = json.dumps([self.settings, rows], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def report(self, number: int) -> Report | None:
        """A portion's report, unless it is not done or was of other samples or settings."""
        try:
            found = json.loads((self.folder / f"{number:06d}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        if found["fingerprint"] != self.fingerprint(number):
            return None
        return Report(found["files"], found["rows"])

    def run(self, work: Work, runner: Runner) -> Iterator[tuple[int, Report]]:
        """Has the work done that is not done yet; yields each number and report as it comes.

        Args:
            work: a function that other machines can import.

        Raises:
            DataError: a portion failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        todo = []
        with tqdm(
            total=len(self.samples), desc="portions", unit=" clips", disable=None, smoothing=0
        ) as bar:
            for number in range(len(self)):
                if (done := self.report(number)) is None:
                    self.write_todo(number)
                    todo.append(number)
                else:
                    bar.update(len(done.rows))
                    yield number, done
            if not todo:  # nothing that a cluster need be asked for
                return
            for number, error in runner(partial(work_on, self.folder, work), todo):
                if error:
                    raise DataError(f"portion {number} failed: {error}")
                done = self.report(number)
                if done is None:
                    raise DataError(
                        f"portion {number} was done and {self.folder} has no report of it: all "
                        "machines should see that folder under the same path"
                    )
                bar.update(len(done.rows))
                yield number, done

    def write_todo(self, number: int) -> None:
        """Writes what a machine needs to know to work on a portion."""
        samples = self.samples_of(number)
        known = {s.key: self.known[s.key] for s in samples if s.key in self.known}
        rows = [to_row(s) for s in samples]
        todo = {"fingerprint": self.fingerprint(number), "samples": rows, "known": known}
        write_once(self.folder / f"{number:06d}.todo", todo)

    def results(self) -> Iterator[tuple[Sample, Row]]:
        """Each sample with its row, in order, when all is done."""
        for number in range(len(self)):
            report = self.report(number)
            assert report is not None, f"portion {number} has no report"
            yield from zip(self.samples_of(number), report.rows, strict=True)

    def files(self, side: str) -> list[Path]:
        """The shards of one side, in order, when all is done."""
        reports = (self.report(number) for number in range(len(self)))
        return [self.folder / name for r in reports if r for name in r.files.get(side, [])]

    def remove(self) -> None:
        """Removes the work folder."""
        shutil.rmtree(self.folder)


def work_on(folder: Path, work: Work, number: int) -> tuple[int, str]:
    """Works on a portion, on the machine that this runs on.

    Returns:
        Its number, and an error in words, or "".
    """
    try:
        todo = json.loads((folder / f"{number:06d}.todo").read_text(encoding="utf-8"))
        known = {k: {int(c): t for c, t in heard.items()} for k, heard in todo["known"].items()}
        samples = [to_sample(row) for row in todo["samples"]]
        files, rows = work(samples, known, folder, f"{number:06d}-{uuid4().hex[:12]}")
        report = {"fingerprint": todo["fingerprint"], "files": files, "rows": rows}
        write_once(folder / f"{number:06d}.json", report)
    except (NanospeechError, OSError) as e:
        return number, str(e) or type(e).__name__
    return number, ""


def write_once(path: Path, values: Any) -> None:
    """Writes JSON, whole or not at all, though another machine may write the same file."""
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        part.write_text(json.dumps(values), encoding="ascii")  # names may be no UTF-8
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def to_row(s: Sample) -> list[Any]:
    """A sample as JSON."""
    where = [os.path.abspath(s.audio.path), s.audio.offset, s.audio.size]
    return [s.name, list(s.parts), where, s.text, s.speaker, s.extra, s.key]


def to_sample(row: list[Any]) -> Sample:
    """The opposite of to_row."""
    name, parts, (path, offset, size), text, speaker, extra, key = row
    return Sample(name, tuple(parts), Source(Path(path), offset, size), text, speaker, extra, key)


def link(files: Iterable[Path], folder: Path, prefix: str, old: Iterable[Path] = ()) -> list[Path]:
    """Gives shards another name as well, PREFIX-000000.tar, …, in a folder.

    Args:
        old: shards of that prefix, which go when all of the new ones are there.
    """
    links: dict[Path, Path] = {}
    try:
        for number, file in enumerate(files):
            name = f"{prefix}-{number:06d}"
            part = folder / f".{name}.part"
            links[part] = folder / f"{name}.tar"
            try:
                os.link(file, part)
            except OSError:  # a file system without hard links
                shutil.copyfile(file, part)
        replace_all(links, old)
    finally:
        for part in links:
            part.unlink(missing_ok=True)
    return list(links.values())


def members_of(path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Each key of a shard of shards.py, with the bytes of its members by extension."""
    key, members = "", {}
    with tarfile.open(path, "r:") as tar:
        for info in tar:
            stem, _, extension = info.name.partition(".")
            if stem != key and members:
                yield key, members
                members = {}
            file = tar.extractfile(info)
            assert file is not None, f"{info.name} of {path} is no file"
            key, members[extension] = stem, file.read()
    if members:
        yield key, members
