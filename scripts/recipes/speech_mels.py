"""Makes nanospeech/audio/speech_mels.npz: what log mels of speech are like.

    python -m scripts.recipes.speech_mels kathleen-*.tar asp-*.tar kokoro-s0-*.tar \\
        others/*.tar --without stella --out nanospeech/audio/speech_mels.npz

Those that ship are of these: two people, 29 mixtures of Kokoro-82M's voices and 110 synthetic
speakers (scripts/recipes/synthesize.py --seed 61 --speakers 110, English voices). SHARDS are clean
recordings of full band, as `nanospeech prepare shards` writes them; people whom a model is to be
measured on are left out by --without. Each speaker counts as much as any other and gives --clips
recordings at most, at a level of 0.068. nanospeech/audio/narrow.py has what it is for.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.narrow import LOUD
from nanospeech.cli import Parser, command, say
from nanospeech.corpus.layouts import Skip, find
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import examples, nothing_usable
from nanospeech.errors import InputError
from nanospeech.files import whole

RMS = 0.068


@command
def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        prog="python -m scripts.recipes.speech_mels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shards", nargs="+", type=Path, help="see above")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--without", nargs="*", default=[], help="speakers to leave out")
    parser.add_argument("--clips", type=int, default=24, help="of a speaker at most")
    a = parser.parse_args(argv)
    mels: dict[str, list[np.ndarray]] = {}
    samples, skips = find(a.shards)
    for sample in tqdm(samples, "recordings", unit=" files", disable=None):
        found = mels.setdefault(sample.speaker or "", [])
        if (sample.speaker or "") not in a.without and len(found) < a.clips:
            try:
                wave, _ = audio.set_level(decode(sample.audio.read())[0], RMS)
            except BadAudio as e:
                skips.append(Skip(sample.name, *e.args))
                continue
            found.append(log_mel(wave))
    for line in examples(skips):
        say(f"skipped {line}")
    speakers = [np.concatenate(found).astype(np.float64) for found in mels.values() if found]
    if not speakers and skips:
        raise nothing_usable(skips, a.shards)
    if not speakers:
        raise InputError(f"no recordings in {', '.join(map(str, a.shards))} but those left out")
    clips = [mel for found in mels.values() for mel in found]
    mean = np.mean([frames.mean(0) for frames in speakers], 0)
    spread = [(frames - mean).T @ (frames - mean) / len(frames) for frames in speakers]
    with whole(a.out) as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            mean=mean.astype(np.float32),
            covariance=np.mean(spread, 0).astype(np.float32),
            loud=np.mean([np.percentile(m, LOUD, axis=0) for m in clips], 0).astype(np.float32),
            rms=np.float32(RMS),
        )
    print(f"{len(clips)} recordings of {len(speakers)} speakers: {a.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
