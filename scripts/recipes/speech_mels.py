"""Makes nanospeech/audio/speech_mels.npz: what log mels of speech are like.

    python -m scripts.recipes.speech_mels kathleen-*.tar asp-*.tar kokoro-s0-*.tar \\
        --without stella --out nanospeech/audio/speech_mels.npz

Of these are those that ship: 760 recordings of 31 speakers. SHARDS are clean recordings of full
band, as `nanospeech prepare shards` writes them, of many speakers; people whom a model is to be
measured on are left out by --without. Each speaker gives --clips recordings at most, at a level of
0.068. nanospeech/audio/narrow.py has what it is for.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.narrow import LOUD
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode
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
    parser.add_argument("--clips", type=int, default=130, help="of a speaker at most")
    a = parser.parse_args(argv)
    mels: list[np.ndarray] = []
    taken: Counter[str] = Counter()
    samples, _ = find(a.shards)
    for sample in tqdm(samples, "recordings", unit=" files", disable=None):
        speaker = sample.speaker or ""
        if speaker in a.without or taken[speaker] >= a.clips:
            continue
        wave, _ = audio.set_level(decode(sample.audio.read())[0], RMS)
        mels.append(log_mel(wave))
        taken[speaker] += 1
    if not mels:
        raise InputError(f"no recordings in {', '.join(map(str, a.shards))} but those left out")
    frames = np.concatenate(mels).astype(np.float64)
    with whole(a.out) as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            mean=frames.mean(0).astype(np.float32),
            covariance=np.cov(frames.T).astype(np.float32),
            loud=np.mean([np.percentile(m, LOUD, axis=0) for m in mels], 0).astype(np.float32),
            rms=np.float32(RMS),
        )
    print(f"{len(mels)} recordings of {len(taken)} speakers, {len(frames)} frames: {a.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
