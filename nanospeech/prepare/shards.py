"""Packs recordings and their texts as WebDataset shards to train on.

    nanospeech prepare shards recordings --out shards

With a vocabulary, for a data set in LibriTTS-R's layout:

    nanospeech prepare vocab extracted/LibriTTS_R --out vocab.txt
    nanospeech prepare mp3 extracted/LibriTTS_R
    nanospeech prepare shards extracted/LibriTTS_R --out shards

The second may be left out: what has no MP3 yet is encoded on the way. INPUT is any of

    a folder with X.normalized.txt beside X.wav or X.mp3, at any depth   (LibriTTS, LibriTTS-R)
    a folder with metadata.csv and wavs/                                 (LJSpeech, Piper, F5-TTS)
    such a table itself, of lines with | (.csv, .txt, .list)             (StyleTTS 2, GPT-SoVITS)
    a folder with X.txt or X.json beside X.wav (.mp3, .flac, .ogg, …)    (your own, Emilia)
    a .csv (audio,text[,speaker] in its first line) or .jsonl manifest   (a table of them, NeMo)
    a folder with such a metadata.csv or metadata.jsonl                  (Hugging Face's, too)
    the folder of a language, with validated.tsv and clips/              (Mozilla Common Voice)
    a folder as it was unpacked                   (LibriSpeech, VCTK, Hi-Fi TTS, MLS, AISHELL-3)
    a .tar, or a folder of them                                          (WebDataset shards)

and several may be given at once. A shard holds, in shuffled order, {key}.mp3 (mono, 24 kHz,
64 kbps) and {key}.json with "text", "duration" in seconds and, where they are known, "speaker" and
"language".
Recordings that cannot be used are left out, counted by reason, and listed in skipped.csv, or
PREFIX-skipped.csv where a --prefix is given.
With --ray the machines of a Ray cluster do the work (docs/cluster.md): that of RAY_ADDRESS, or one
of this machine alone. A run that was stopped goes on; shards are cut before samples are left out,
so that they hold up to --size. The trainers take them as

    load_dataset("webdataset", data_files="shards/*.tar", split="train", streaming=True)

which learns the fields of the JSON from the first samples: where only some of the recordings have
a speaker, name the others by --speaker.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import io
import json
import os
import random
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio.mp3 import encode
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.cli import Parser, add_fields, command, read_fields, say
from nanospeech.corpus.layouts import LAYOUTS, Sample, Skip
from nanospeech.corpus.mp3 import BadAudio, decode, in_parallel
from nanospeech.corpus.skips import find_some, list_skips, nothing_usable, tell
from nanospeech.errors import InputError
from nanospeech.files import replace_all
from nanospeech.locks import alone
from nanospeech.machine import cores
from nanospeech.text.languages import base_code

from .portions import Known, Portions, Row, Runner, link
from .ray_data import on_ray

PREFIX = "shard"
OVERWRITE = "replace the shards in --out, when the new ones are whole"


@dataclass(frozen=True)
class ShardOptions:
    """How `shards` works."""

    size: int = field(default=1000, metadata={"help": "samples a shard"})
    seed: int = field(default=0, metadata={"help": "of the order of the samples"})
    min_seconds: float | None = field(default=None, metadata={"help": "leave out shorter ones"})
    max_seconds: float | None = field(default=None, metadata={"help": "leave out longer ones"})
    speaker: str | None = field(default=None, metadata={"help": "name of samples without one"})
    prefix: str = field(default=PREFIX, metadata={"help": "first part of the shards' names"})
    language: str | None = field(
        default=None,
        metadata={"help": "of samples that name none, such as de; written beside text"},
    )

    def __post_init__(self):
        if self.size < 1:
            raise InputError(f"--size is {self.size}; a shard holds at least 1 sample")
        low, high = self.min_seconds, self.max_seconds
        if low is not None and high is not None and low > high:
            raise InputError(f"--min-seconds {low} is more than --max-seconds {high}")
        if not self.prefix or "/" in self.prefix or os.sep in self.prefix:
            raise InputError(f"--prefix {self.prefix!r} should be the first part of a file's name")
        if self.language is not None:
            base_code(self.language)


def pack(sample: Sample, options: ShardOptions) -> tuple[bytes, float] | Skip:
    """The MP3 of a sample and its real duration in seconds, or why there is none."""
    try:
        data = sample.audio.read()
        wave, ready = decode(data, options.min_seconds, options.max_seconds)
        return data if ready else encode(wave), len(wave) / SAMPLE_RATE
    except BadAudio as e:
        return Skip(sample.name, *e.args)


def describe(sample: Sample, duration: float, options: ShardOptions) -> bytes:
    """The JSON of a sample."""
    meta: dict[str, Any] = {"text": sample.text, "duration": round(duration, 4)}
    if speaker := sample.speaker or options.speaker:
        meta["speaker"] = speaker
    if options.language is not None:
        meta["language"] = options.language
    unnamed = sample.extra.get("language") in (None, "")  # a table's empty field
    extra = {k: v for k, v in sample.extra.items() if not (unnamed and k == "language")}
    return json.dumps(meta | extra, ensure_ascii=False).encode("utf-8")


def npy(array: np.ndarray) -> bytes:
    """An array as a file of NumPy's, in float16."""
    file = io.BytesIO()
    np.save(file, array.astype(np.float16))
    return file.getvalue()


def plain_key(key: str) -> str:
    """A key whose dots, which may be of a speaker's name, are _: what follows one is a type."""
    return key.replace(".", "_")


def add_files(tar: tarfile.TarFile, key: str, files: dict[str, bytes]) -> None:
    """Adds {key}.{extension} for each extension, the key as plain_key has it."""
    key = plain_key(key)
    for extension, data in files.items():
        info = tarfile.TarInfo(f"{key}.{extension}")  # no times or owners: the same every run
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))


class ShardWriter:
    """Writes PREFIX-000000.tar, PREFIX-000001.tar, … each under another name until it is whole.

    Args:
        folder: where they will lie.
        prefix: of their names.
        size: samples of each.
        old: shards of that prefix, which stay until all of the new ones are whole, and after an
            error or Ctrl-C.
        first: number of the first shard.
    """

    def __init__(
        self, folder: Path, prefix: str, size: int, old: Sequence[Path] = (), first: int = 0
    ):
        self.folder, self.prefix, self.size, self.old = folder, prefix, size, old
        self.first = first
        self.paths: list[Path] = []
        self.waiting: dict[Path, Path] = {}  # whole shards beside old ones, and their names
        self.tar: tarfile.TarFile | None = None
        self.count = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, error: type | None, *_: Any) -> None:
        try:
            if error is None:
                self.finish()
                if self.waiting:  # else there is nothing new
                    replace_all(self.waiting, self.old)
        finally:
            if self.tar is not None:
                with contextlib.suppress(OSError):  # of the full disk that ended it
                    self.tar.close()
            for part in (*self.waiting, self.part):
                part.unlink(missing_ok=True)

    @property
    def name(self) -> str:
        return f"{self.prefix}-{self.first + len(self.paths):06d}"

    @property
    def part(self) -> Path:
        return self.folder / f".{self.name}.part"

    def add(self, key: str, files: dict[str, bytes]) -> None:
        """Adds {key}.{extension} for each extension."""
        if self.tar is None:
            self.tar = tarfile.open(self.part, "w")  # noqa: SIM115
        add_files(self.tar, key, files)
        self.count += 1
        if self.count == self.size:
            self.finish()

    def finish(self) -> None:
        if self.tar is None:
            return
        self.tar.close()
        path = self.folder / f"{self.name}.tar"
        if self.old:
            self.waiting[self.part] = path
        else:
            os.replace(self.part, path)
        self.paths.append(path)
        self.tar, self.count = None, 0


def pack_portion(
    samples: list[Sample], known: Known, folder: Path, stem: str, options: ShardOptions
) -> tuple[dict[str, list[str]], list[Row]]:
    """A portion (portions.py) as one shard."""
    rows: list[Row] = []
    with ShardWriter(folder, stem, sys.maxsize) as writer:
        for sample in samples:
            result = pack(sample, options)
            if isinstance(result, Skip):
                rows.append({"reason": result.reason, "detail": result.detail})
                continue
            data, duration = result
            writer.add(sample.key, {"mp3": data, "json": describe(sample, duration, options)})
            rows.append({"seconds": duration})
    return {"train": [p.name for p in writer.paths]}, rows


class Counts:
    """What a set of shards holds: samples, seconds, speakers; and what was left out of it."""

    def __init__(self, unnamed: str | None):
        self.unnamed = unnamed
        self.samples, self.seconds = 0, 0.0
        self.speakers: set[str | None] = set()
        self.skips: list[Skip] = []

    def add(self, sample: Sample, seconds: float) -> None:
        self.samples, self.seconds = self.samples + 1, self.seconds + seconds
        self.speakers.add(sample.speaker or self.unnamed)

    def summary(self, shards: int) -> dict[str, Any]:
        hours, speakers = round(self.seconds / 3600, 4), len(self.speakers - {None})
        return {"samples": self.samples, "shards": shards, "hours": hours, "speakers": speakers}


def old_shards(samples: Sequence[Sample], out: Path, prefix: str, overwrite: bool) -> list[Path]:
    """Shards that are to be replaced.

    Raises:
        InputError: they are not to be, or are read.
    """
    out.mkdir(parents=True, exist_ok=True)
    # not those of another prefix that begins with this one
    old = sorted(out.glob(glob.escape(prefix) + "-" + 6 * "[0-9]" + ".tar"))
    if old and not overwrite:
        raise InputError(f"{out} holds {len(old)} shards already; pass --overwrite to replace them")
    if used := {sample.audio.path.resolve() for sample in samples} & {p.resolve() for p in old}:
        raise InputError(f"{min(used)} is read and would be replaced; choose another --out")
    return old


@contextlib.contextmanager
def writing(out: Path, prefix: str) -> Iterator[None]:
    """Within the context, no other process writes shards of this prefix to the folder.

    Raises:
        InputError: another one does.
    """
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, "--out", say, f".{prefix}.lock"):
        for part in out.glob(f".{glob.escape(prefix)}-" + 6 * "[0-9]" + ".part"):
            part.unlink()  # of a run that was killed
        yield


def shuffled(samples: Sequence[Sample], seed: int) -> list[Sample]:
    samples = list(samples)
    random.Random(seed).shuffle(samples)
    return samples


def make_shards(
    samples: Sequence[Sample],
    out: Path,
    options: ShardOptions = ShardOptions(),
    jobs: int = 1,
    overwrite: bool = False,
) -> tuple[dict[str, Any], list[Skip]]:
    """Writes the samples as shards, in an order that only the seed decides.

    Returns:
        "samples", "shards", "hours" and "speakers" written, and what could not be used.

    Raises:
        InputError: there are shards already.
        DataError: no sample can be used.
    """
    old = old_shards(samples, out, options.prefix, overwrite)
    samples = shuffled(samples, options.seed)
    packed = in_parallel(partial(pack, options=options), samples, min(jobs, len(samples)))
    counts = Counts(options.speaker)
    bar = tqdm(packed, "shards", len(samples), unit=" samples", disable=None)
    with ShardWriter(out, options.prefix, options.size, old) as writer:
        for sample, result in zip(samples, bar):
            if isinstance(result, Skip):
                counts.skips.append(result)
                continue
            data, duration = result
            writer.add(sample.key, {"mp3": data, "json": describe(sample, duration, options)})
            counts.add(sample, duration)
    if not counts.samples:
        raise nothing_usable(counts.skips, [out])
    return counts.summary(len(writer.paths)), counts.skips


def spread_shards(
    samples: Sequence[Sample],
    out: Path,
    options: ShardOptions,
    runner: Runner,
    overwrite: bool = False,
) -> tuple[dict[str, Any], list[Skip]]:
    """make_shards on many machines, in portions: the same samples in the same order.

    Args:
        out: a folder that all machines have under this path.
        runner: has portions worked on.
    """
    old = old_shards(samples, out, options.prefix, overwrite)
    samples = shuffled(samples, options.seed)
    settings = {"tool": "shards", **asdict(options)}
    portions = Portions(out / ".portions", samples, options.size, settings)
    for _ in portions.run(partial(pack_portion, options=options), runner):
        pass
    counts = Counts(options.speaker)
    for sample, row in portions.results():
        if "reason" in row:
            counts.skips.append(Skip(sample.name, row["reason"], row["detail"]))
        else:
            counts.add(sample, row["seconds"])
    if not counts.samples:
        raise nothing_usable(counts.skips, [out])
    shards = link(portions.files("train"), out, options.prefix, old)
    portions.remove()
    return counts.summary(len(shards)), counts.skips


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare shards", __doc__)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="see above")
    parser.add_argument("--out", type=Path, default=Path("shards"), help="their folder")
    parser.add_argument(
        "--layout",
        choices=["auto", *LAYOUTS],
        default="auto",
        help="of each INPUT (default: auto, told from what lies there)",
    )
    parser.add_argument(
        "--distinct-speakers",
        action="store_true",
        help="speakers of one name in INPUTs of several folders are several people: put the"
        " folder's name before theirs (default: they are one person)",
    )
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (default: one a core)")
    parser.add_argument("--ray", action="store_true", help="work on a Ray cluster, see above")
    parser.add_argument("--overwrite", action="store_true", help=OVERWRITE)
    add_fields(parser, ShardOptions)
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}; choose at least 1")
    options = read_fields(args, ShardOptions)
    samples, skips = find_some(args.inputs, args.layout, args.distinct_speakers)
    with writing(args.out, options.prefix):
        if args.ray:
            runner = on_ray(args.jobs)
            counts, bad = spread_shards(samples, args.out, options, runner, args.overwrite)
        else:
            counts, bad = make_shards(samples, args.out, options, args.jobs, args.overwrite)
        name = "skipped.csv" if options.prefix == PREFIX else f"{options.prefix}-skipped.csv"
        list_skips(args.out / name, skips := [*skips, *bad])
    tell(counts | {"out": str(args.out)}, skips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
