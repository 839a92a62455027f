"""Curate: selects the clips to train on and those to hold out. Trains nothing.

    nanospeech prepare curate recordings/ --out data --whisper base
    nanospeech prepare curate shards/kathleen-*.tar shards/asp-*.tar --out data --speakers kathleen

INPUT is as of nanospeech prepare shards: folders, manifests, shards. Writes data/train/*.tar and
data/heldout/*.tar (every clip whose key has a CRC-32 divisible by --held-out, so that a clip is
always on the same side), data/dropped.csv with a reason for each clip left out, and
data/curate.json: clips, hours, sources and licences of each speaker.

With --whisper each clip is transcribed, and clips whose transcript differs from their text are left
out. Transcripts are kept in data/heard.csv for interrupted runs and for runs with other limits. The
last line of the output is one JSON document.

--denoise 0.7 removes that share of steady hiss or hum, estimated in quiet parts of each clip; a
small model learns noise along with the voice.

--vary 0.1 adds to data/train a copy of each clip 10 % slower or faster, under the name of another
speaker (NAME-slow, NAME-fast), for models that would have few speakers to tell apart; --vary 0.08
0.16 adds two copies (NAME-slow8, NAME-fast8, NAME-slow16, NAME-fast16). Hours are counted without
them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, add_fields, command, read_fields
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import Sample, Skip, find
from nanospeech.corpus.mp3 import BadAudio, decode, encode, in_parallel
from nanospeech.corpus.skips import by_reason, list_skips
from nanospeech.errors import DataError, InputError, require
from nanospeech.files import whole_folder
from nanospeech.machine import cores
from nanospeech.text.sentences import is_speakable

from .curate_copies import Copy, make_copies
from .curate_report import SIDES, Speakers, table
from .recogniser import Heard, Recogniser, misheard, whisper
from .shards import ShardOptions, ShardWriter, describe

EDGE_SILENCE = 0.08  # seconds of silence left at trimmed ends
NEAR = 1.5  # dB of error in level, and
SLACK = 0.1  # seconds of extra silence, up to which an MP3 is not encoded again


@dataclass(frozen=True)
class CurateOptions:
    """What is kept, and what is held out."""

    held_out: int = field(default=25, metadata={"help": "hold out one clip in so many; 0: none"})
    max_wer: float = field(
        default=0.5, metadata={"help": "drop clips with a higher word error rate"}
    )
    min_seconds: float = field(default=0.5, metadata={"help": "drop shorter clips"})
    max_seconds: float = field(default=20.0, metadata={"help": "drop longer clips"})
    max_hours: float | None = field(default=None, metadata={"help": "of each speaker to train on"})
    level: float | None = field(
        default=None, metadata={"help": "bring clips to this RMS and trim their ends; try 0.07"}
    )
    denoise: float | None = field(
        default=None, metadata={"help": "remove this share of steady noise; try 0.7"}
    )
    vary: tuple[float, ...] = field(
        default=(),
        metadata={"help": "add copies of each clip at speeds that differ by these shares"},
    )
    without: tuple[str, ...] = field(
        default=(), metadata={"help": "never these speakers: those that it is to be measured on"}
    )
    speaker: str | None = field(default=None, metadata={"help": "name of clips without one"})
    size: int = field(default=1000, metadata={"help": "clips a shard"})
    seed: int = field(default=0, metadata={"help": "of the order of the clips"})

    def __post_init__(self):
        if self.held_out < 0:
            raise InputError(f"--held-out is {self.held_out}; choose 0 (none) or more")
        if not self.max_wer >= 0:
            raise InputError(f"--max-wer is {self.max_wer}; 0.5 is half of the words")
        if self.max_hours is not None and not self.max_hours > 0:
            raise InputError(f"--max-hours is {self.max_hours}; choose more than 0")
        if self.level is not None and not 0 < self.level < 0.5:
            raise InputError(f"--level is {self.level}; speech is around 0.07")
        if self.denoise is not None and not 0 < self.denoise <= 1:
            raise InputError(f"--denoise is {self.denoise}; choose up to 1, best 0.7")
        if wrong := [v for v in self.vary if not 0 < v <= 0.5]:
            raise InputError(f"--vary is {wrong[0]}; choose up to 0.5, best 0.1")
        self.shards()  # checks the rest

    def shards(self) -> ShardOptions:
        """The options of shards.py that do the same."""
        low, high = self.min_seconds, self.max_seconds
        return ShardOptions(self.size, self.seed, low, high, self.speaker)


@dataclass(frozen=True)
class Clip:
    """A sample that was opened: its MP3, and its transcript, if there is one."""

    sample: Sample
    data: bytes
    seconds: float
    heard: str | None
    fresh: bool  # heard just now
    copies: tuple[Copy, ...] = ()


def examine(
    item: tuple[Sample, dict[int, str]],
    options: CurateOptions,
    load: Callable[[], Recogniser] | None = None,
) -> Clip | Skip:
    """Opens a sample, and transcribes it unless that was done.

    Args:
        item: the sample, and earlier transcripts under its key, by the CRC-32 of the MP3.
        load: returns the recogniser; None: no transcripts.
    """
    sample, known = item
    try:
        data = sample.audio.read()
        wave, ready = decode(data, options.min_seconds, options.max_seconds)
    except BadAudio as e:
        return Skip(sample.name, *e.args)
    except OSError as e:
        return Skip(sample.name, "unreadable audio", str(e))
    if options.denoise is not None:
        ready, wave = False, denoise(wave, options.denoise)
    if options.level is not None:
        evened = even(wave, options.level)
        ready, wave = ready and evened is None, wave if evened is None else evened
    data = data if ready else encode(wave)
    heard = known.get(zlib.crc32(data))
    fresh = False
    if heard is None and load is not None:
        heard, fresh = load()(audio.read(data)), True
    clip = Clip(sample, data, len(wave) / audio.SAMPLE_RATE, heard, fresh)
    if is_held_out(sample.key, options.held_out):
        return clip
    return replace(clip, copies=make_copies(sample.key, wave, options.vary))


def denoise(wave: np.ndarray, share: float) -> np.ndarray:
    """Removes steady noise from a wave by spectral gating (Sainburg: noisereduce).

    Args:
        wave: float32 (n,) at 24 kHz.
        share: of the noise that is removed. Removing all damages speech: kathleen's hiss costs 0.2
            of DNSMOS OVRL, 0.7 restores that, 0.95 loses more than it gains.
    """
    reduce = require("noisereduce", "denoise").reduce_noise
    return reduce(wave, audio.SAMPLE_RATE, stationary=True, prop_decrease=share).astype(np.float32)


def even(wave: np.ndarray, level: float) -> np.ndarray | None:
    """A wave with its ends trimmed and its loudness brought to a level; None if it is so already.

    Args:
        wave: float32 (n,) at 24 kHz.
        level: its root mean square.
    """
    trimmed = audio.trim(wave, audio.SAMPLE_RATE, EDGE_SILENCE)
    changed, gain = audio.set_level(trimmed, level)
    if (peak := float(np.abs(changed).max())) > 1:  # softer, rather than clipped
        changed, gain = changed / peak, gain / peak
    off = abs(20 * np.log10(gain))
    longer = (len(wave) - len(trimmed)) / audio.SAMPLE_RATE
    return changed if off > NEAR or longer > 2 * SLACK else None


def select(
    samples: Sequence[Sample], speakers: Sequence[str], options: CurateOptions
) -> tuple[list[Sample], list[tuple[Sample, Skip]]]:
    """The samples of some speakers (all if none is named), in an order of the seed's.

    Raises:
        InputError: a speaker is not there: one who is to be left out may be misspelt.
    """
    name = Speakers(None, options.speaker).name
    known = {name(s) for s in samples}
    if missing := [who for who in (*speakers, *options.without) if who not in known]:
        raise InputError(f"no clips of {', '.join(missing)}; there are {', '.join(sorted(known))}")
    ordered = list(samples)
    random.Random(options.seed).shuffle(ordered)
    kept, skips = [], []
    for s in ordered:
        if name(s) in options.without or (speakers and name(s) not in speakers):
            skips.append((s, Skip(s.name, "another speaker", name(s))))
        elif not is_speakable(s.text):
            skips.append((s, Skip(s.name, "no words", s.text)))
        else:
            kept.append(s)
    return kept, skips


def check_words(clip: Clip, options: CurateOptions) -> Skip | dict[str, float]:
    """Fields to add to the clip's JSON, or why it is dropped."""
    if clip.heard is None:
        return {}
    share = misheard(clip.sample.text, clip.heard)
    if share > options.max_wer:
        detail = f"{share:.2f}: said {clip.sample.text!r}, heard {clip.heard!r}"
        return Skip(clip.sample.name, "misheard", detail)
    return {"wer": round(share, 4)}


def curate(
    samples: Sequence[Sample],
    out: Path,
    options: CurateOptions = CurateOptions(),
    speakers: Sequence[str] = (),
    load: Callable[[], Recogniser] | None = None,
    recogniser: str = "",
    jobs: int = 1,
    overwrite: bool = False,
) -> tuple[dict[str, Any], list[Skip]]:
    """Writes out/train and out/heldout, both whole or neither.

    Args:
        load: returns a recogniser (float32 24 kHz wave to words); None: no transcripts. With
            several jobs a new process must be able to import it.
        recogniser: its name in heard.csv.

    Returns:
        The summary (that of curate.json), and what was dropped.

    Raises:
        InputError: there are shards already, or a speaker is not there.
        DataError: no clip can be used.
    """
    if not overwrite and (old := [p for side in SIDES for p in (out / side).glob("*.tar")]):
        raise InputError(f"{old[0].parent} holds shards already; pass --overwrite to replace them")
    out.mkdir(parents=True, exist_ok=True)
    kept, dropped = select(samples, speakers, options)
    people = Speakers(options.max_hours, options.speaker)
    work = partial(examine, options=options, load=load)
    with (
        whole_folder(out / "train") as train_folder,
        whole_folder(out / "heldout") as held_out_folder,
        Heard(out / "heard.csv", recogniser, load is not None) as heard,
        tqdm(total=len(kept), desc="curate", unit=" clips", disable=None) as bar,
    ):
        with (
            ShardWriter(train_folder, "train", options.size) as train,
            ShardWriter(held_out_folder, "heldout", options.size) as held_out,
        ):
            writers = {"train": train, "heldout": held_out}
            for sample, result in opened(kept, work, people, heard.known, options, jobs):
                bar.update()
                if isinstance(result, Clip) and result.fresh:
                    heard.add(sample.key, result.data, sample.text, result.heard or "")
                if isinstance(result, Clip):
                    result = store(result, writers, people, options)
                if result is not None:
                    dropped.append((sample, result))
        skips = [skip for _, skip in dropped]
        if not train.paths:
            raise DataError(f"no clip is left to train on, of {len(samples)}: {by_reason(skips)}")
    for sample, skip in dropped:
        people.drop(sample, skip.reason)
    summary = {"speakers": people.summary(), "dropped": by_reason(skips)}
    return summary | ({"vary": list(options.vary)} if options.vary else {}), skips


def store(
    clip: Clip, writers: Mapping[str, ShardWriter], people: Speakers, options: CurateOptions
) -> Skip | None:
    """Writes a clip to its side, with its copies to train on, or returns why it is dropped."""
    sample = clip.sample
    side = "heldout" if is_held_out(sample.key, options.held_out) else "train"
    if side == "train" and people.full(sample):
        return Skip(sample.name, "enough of this speaker")
    more = check_words(clip, options)
    if isinstance(more, Skip):
        return more
    labelled = replace(sample, extra=sample.extra | more)
    meta = describe(labelled, clip.seconds, options.shards())
    writers[side].add(sample.key, {"mp3": clip.data, "json": meta})
    people.keep(sample, clip.seconds, side)
    for copy in clip.copies if side == "train" else ():
        other = copy.sample(labelled, people.name(sample))
        meta = describe(other, clip.seconds / copy.pace, options.shards())
        writers[side].add(f"{sample.key}-{copy.name}", {"mp3": copy.data, "json": meta})
    return None


def opened(
    samples: Sequence[Sample],
    work: Callable[[Any], Clip | Skip],
    people: Speakers,
    known: dict[str, dict[int, str]],
    options: CurateOptions,
    jobs: int,
) -> Iterator[tuple[Sample, Clip | Skip]]:
    """Each sample with its Clip or Skip; none is opened whose speaker has enough hours."""
    sent: list[Sample | Skip] = []

    def todo() -> Iterator[tuple[Sample, dict[int, str]]]:
        for s in samples:
            room = is_held_out(s.key, options.held_out) or not people.full(s)
            sent.append(s if room else Skip(s.name, "enough of this speaker"))
            if room:
                yield s, known.get(s.key, {})

    place = 0

    def passed() -> Iterator[tuple[Sample, Clip | Skip]]:
        nonlocal place
        while place < len(sent) and isinstance(skip := sent[place], Skip):
            yield samples[place], skip
            place += 1

    for result in in_parallel(work, todo(), jobs):
        yield from passed()
        place += 1
        yield samples[place - 1], result
    yield from passed()


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare curate", __doc__)
    p.add_argument("inputs", nargs="+", type=Path, metavar="INPUT")
    p.add_argument("--out", type=Path, required=True, help="folder to write")
    p.add_argument("--speakers", nargs="+", default=[], metavar="NAME", help="only these")
    p.add_argument("--whisper", help="faster-whisper size or folder, to transcribe each clip")
    p.add_argument("--jobs", type=int, default=cores(), help="processes")
    p.add_argument("--overwrite", action="store_true", help="replace the shards in --out")
    add_fields(p, CurateOptions, {"held_out": "--hold-out"})  # its name before
    return p


def run(args: argparse.Namespace) -> tuple[dict[str, Any], list[Skip]]:
    """Runs the command; returns the summary and the dropped clips."""
    if args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}; choose at least 1")
    options = read_fields(args, CurateOptions)
    load = None
    if args.whisper:
        load = partial(whisper, args.whisper)
        if args.jobs == 1:
            load()  # a missing recogniser should be reported before anything is opened
    samples, skips = find(args.inputs)
    name = Path(args.whisper).name if args.whisper else ""
    summary, dropped = curate(
        samples, args.out, options, args.speakers, load, name, args.jobs, args.overwrite
    )
    skips = [*skips, *dropped]
    list_skips(args.out / "dropped.csv", skips)
    summary["dropped"] = by_reason(skips)
    text = json.dumps(summary, indent=1, ensure_ascii=False)
    (args.out / "curate.json").write_text(text + "\n", encoding="utf-8")
    return summary, skips


@command
def main(argv: list[str] | None = None) -> int:
    summary, _ = run(build_parser().parse_args(argv))
    print(table(summary))
    print(json.dumps(summary, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
