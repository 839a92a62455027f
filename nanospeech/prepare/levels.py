"""Levels: mean and standard deviation of a data set's log mels, and its loudness. Changes nothing.

    nanospeech prepare levels data/train
    nanospeech train --config FILE --set $(nanospeech prepare levels data/train)

Prints the audio settings of a run on these clips: the flow works on log mels of mean 0 and standard
deviation 1, and prompts are scaled to the loudness of the training clips (a louder prompt changes
the pace of the speech after it).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Sample
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import find_some
from nanospeech.errors import DataError, InputError


def levels(samples: Sequence[Sample], clips: int = 300, seed: int = 0) -> dict[str, float]:
    """mel_mean, mel_std and prompt_rms of some clips drawn at random.

    Raises:
        DataError: none can be read.
    """
    some = random.Random(seed).sample(list(samples), min(clips, len(samples)))
    count, total, squares, loudness = 0, 0.0, 0.0, []
    for sample in tqdm(some, "levels", unit=" clips", disable=None):
        try:
            wave, _ = decode(sample.audio.read(), min_seconds=0.1)
        except BadAudio:
            continue
        mel = log_mel(wave).astype(np.float64)
        count, total, squares = count + mel.size, total + mel.sum(), squares + (mel**2).sum()
        loudness.append(audio.rms(audio.trim(wave)))
    if not count:
        raise DataError(f"none of {len(some)} clips can be read")
    mean = total / count
    spread = float(np.sqrt(squares / count - mean**2))
    found = {"mel_mean": mean, "mel_std": spread, "prompt_rms": float(np.median(loudness))}
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare levels", __doc__)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="see prepare shards")
    parser.add_argument("--clips", type=int, default=300, help="how many to measure (300)")
    parser.add_argument("--out", type=Path, help="file to write the line to as well")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.clips < 1:
        raise InputError(f"--clips is {args.clips}; choose at least 1")
    found = levels(find_some(args.inputs)[0], args.clips)
    line = " ".join(f"audio.{name}={value}" for name, value in found.items())
    if args.out:
        args.out.write_text(line + "\n", encoding="utf-8")
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
