"""Tags: writes <breath> or <pause> into transcripts where recordings have them, found by level.

    nanospeech prepare tags recordings/ --out tagged --tag breath
    nanospeech finetune --data tagged --tags breath --voice anna --output anna

A gap is quiet, --level dB below the speech, for --seconds or more, between words. A breath is a gap
that is not silent throughout: for a tenth of a second it is louder than its quietest part. Where
in the text a gap is comes from the share of speech before it, at a mark if one is near. Writes
X.flac and X.txt for each recording that has one; others with --all. Where recordings name speakers,
languages or the like, texts are in a table with these, metadata.csv, instead of X.txt.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Sample
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import examples, find_some
from nanospeech.errors import InputError
from nanospeech.text.tags import as_tag

HOP = 240  # samples: 10 ms at 24 kHz
BLOCK = 2  # hops that a level is measured over
LEVEL, SECONDS = 25.0, 0.25
BREATH_SECONDS, BREATH_RISE = 0.1, 8.0  # s, and dB above a gap's quietest part
BREATH_DEPTH = 60.0  # dB below the speech: what is quieter is nothing
NEAR = 0.1  # share of a text by which a mark may be off, and is preferred


class Gap(NamedTuple):
    """A quiet stretch between words, in seconds, and whether something is heard in it."""

    start: float
    stop: float
    breath: bool


def levels(wave: np.ndarray) -> np.ndarray:
    """Levels in dB of blocks of 20 ms, each 10 ms, of a wave at 24 kHz: float (n,)."""
    if len(wave) < HOP * BLOCK:
        return np.zeros(0)
    blocks = np.lib.stride_tricks.sliding_window_view(wave.astype(np.float64), HOP * BLOCK)
    power = np.mean(np.square(blocks[::HOP]), axis=1)
    return 10 * np.log10(power + 1e-12)


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """Where flags are set: the first and the one behind the last of each run."""
    found, at = [], 0
    for flag, some in groupby(flags.tolist()):
        size = len(list(some))
        if flag:
            found.append((at, at + size))
        at += size
    return found


def find_gaps(wave: np.ndarray, level: float = LEVEL, seconds: float = SECONDS) -> list[Gap]:
    """The gaps of a recording, in order; not what is before and after the speech.

    Args:
        wave: float32 (n,) at 24 kHz.
        level: dB below the speech.
        seconds: the shortest.
    """
    found = levels(wave)
    if not len(found):
        return []
    speech = np.percentile(found, 90)
    each = HOP / audio.SAMPLE_RATE
    gaps = []
    for start, stop in runs(found < speech - level):
        if start == 0 or stop == len(found) or (stop - start) * each < seconds:
            continue
        inside = found[start:stop]
        rise = max(inside.min() + BREATH_RISE, speech - BREATH_DEPTH)
        longest = max((b - a for a, b in runs(inside > rise)), default=0)
        gaps.append(Gap(start * each, stop * each, longest * each >= BREATH_SECONDS))
    return gaps


def write_tags(
    text: str, gaps: Sequence[Gap], chosen: Sequence[Gap], total: float, tag: str
) -> str:
    """A text with a tag for each chosen gap, between words.

    Args:
        text: on one line.
        gaps: all gaps of the recording.
        chosen: those to write.
        total: seconds of the recording, which begins and ends with speech.
        tag: what to write.
    """
    spaces = [i for i, c in enumerate(text) if c == " "]
    quiet = sum(gap.stop - gap.start for gap in gaps)
    places = []
    for gap in chosen:
        before = gap.start - sum(g.stop - g.start for g in gaps if g.stop <= gap.start)
        wanted = before / (total - quiet) * len(text)
        free = [i for i in spaces if not places or i > places[-1]]
        if not free:
            break

        def off(i: int, wanted: float = wanted) -> float:
            marked = text[i - 1] in ",.;:!?-)"
            return abs(i - wanted) - NEAR * len(text) * marked

        places.append(min(free, key=off))
    for place in reversed(places):
        text = f"{text[:place]} {tag}{text[place:]}"
    return text


class Texts:
    """Writes texts beside recordings: X.txt, or rows of metadata.csv where more is known of them.

    Args:
        folder: of the recordings.
        samples: all that may be written.
    """

    def __init__(self, folder: Path, samples: Sequence[Sample]):
        self.folder, self.table = folder, folder / "metadata.csv"
        known = {k for s in samples for k, v in s.extra.items() if isinstance(v, (str, int, float))}
        self.columns = ["audio", "text", "speaker", *sorted(known - {"audio", "text", "speaker"})]
        self.tabled = bool(known) or any(s.speaker for s in samples)
        if self.table.exists():
            raise InputError(f"{self.table} is there, whose texts would go; choose another --out")

    def add(self, sample: Sample, text: str) -> None:
        if not self.tabled:
            path = self.folder / f"{sample.key}.txt"
            path.write_text(text + "\n", encoding="utf-8")
            return
        own = {"audio": f"{sample.key}.flac", "text": text, "speaker": sample.speaker}
        new = not self.table.exists()
        with self.table.open("a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, self.columns, extrasaction="ignore")
            if new:
                writer.writeheader()
            writer.writerow(sample.extra | own)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare tags", __doc__)
    add = parser.add_argument
    add("inputs", nargs="+", type=Path, metavar="INPUT", help="recordings, see prepare shards")
    add("--out", type=Path, required=True, help="folder to write")
    add("--tag", choices=["breath", "pause"], default="breath", help="what to find (%(default)s)")
    add("--level", type=float, default=LEVEL, help="dB below the speech (default: %(default)s)")
    add("--seconds", type=float, default=SECONDS, help="the shortest gap (default: %(default)s)")
    add("--all", action="store_true", help="write recordings without one too")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if not args.level > 0 or not args.seconds > 0:
        raise InputError("--level and --seconds should be more than 0")
    samples, skips = find_some(args.inputs)
    files = [s.audio.path for s in samples if s.audio.size < 0]  # not within tars
    if used := [p for p in files if p.resolve().parent == args.out.resolve()]:
        raise InputError(f"{used[0]} is read, and --out is its folder; choose another")
    texts = Texts(args.out, samples)
    args.out.mkdir(parents=True, exist_ok=True)
    for line in examples(skips):
        print(f"left out {line}", file=sys.stderr)
    tags = clips = 0
    for sample in tqdm(samples, "tags", unit=" clips", disable=None):
        try:
            wave, _ = decode(sample.audio.read(), min_seconds=0.1)
        except BadAudio as e:
            why = ": ".join(map(str, filter(None, e.args)))
            print(f"left out {sample.name}: {why}", file=sys.stderr)
            continue
        wave = audio.trim(wave)
        gaps = find_gaps(wave, args.level, args.seconds)
        chosen = [gap for gap in gaps if gap.breath == (args.tag == "breath")]
        text = write_tags(
            sample.text, gaps, chosen, len(wave) / audio.SAMPLE_RATE, as_tag(args.tag)
        )
        written = text.count(as_tag(args.tag)) - sample.text.count(as_tag(args.tag))
        tags, clips = tags + written, clips + (written > 0)
        if written or args.all:
            audio.write(args.out / f"{sample.key}.flac", wave)
            texts.add(sample, text)
    print(f"{tags} {as_tag(args.tag)} in {clips} of {len(samples)} recordings: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
