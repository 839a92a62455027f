"""What preparing recordings costs: processor seconds of each stage for an hour of speech.

    python -m scripts.benchmarks.prepare callie-000000.tar --whisper base
    python -m scripts.benchmarks.prepare callie-000000.tar --clips 400 --ray 2

Each clip is decoded, written as a WAV of 16 bits in memory, and then goes through what `nanospeech
prepare curate --level 0.07` does with a WAV: decode, level, encode, write, and recognise with
--whisper. Processor time is reported, which other programs on the machine hardly change. With --ray
the whole command runs on the WAVs as well, on one process and on a cluster of so many processes
here, without recognising.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import encode
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Sample, find
from nanospeech.corpus.mp3 import decode
from nanospeech.prepare.curate_clips import even
from nanospeech.prepare.portions import Portions
from nanospeech.prepare.recogniser import whisper


def stages(samples: Sequence[Sample], name: str | None, heard: int) -> dict[str, float]:
    """Processor seconds of each stage for an hour of speech.

    Args:
        samples: clips, of any format.
        name: of a Whisper, or None.
        heard: how many clips it hears.
    """
    import soundfile as sf

    hours = heard_hours = 0.0
    spent: dict[str, float] = dict.fromkeys(["decode", "level", "encode"], 0.0)
    recognise = whisper(name) if name else None
    spent |= {"recognise": 0.0} if name else {}
    for number, sample in enumerate(samples):
        file = io.BytesIO()
        sf.write(file, decode(sample.audio.read())[0], audio.SAMPLE_RATE, format="WAV")
        start = time.process_time()
        wave, _ = decode(file.getvalue())
        decoded = time.process_time()
        evened = even(wave, 0.07)
        levelled = time.process_time()
        data = encode(wave if evened is None else evened)
        encoded = time.process_time()
        spent["decode"] += decoded - start
        spent["level"] += levelled - decoded
        spent["encode"] += encoded - levelled
        hours += len(wave) / audio.SAMPLE_RATE / 3600
        if recognise and number < heard:
            recognise(audio.read(data), "en")
            spent["recognise"] += time.process_time() - encoded
            heard_hours += len(wave) / audio.SAMPLE_RATE / 3600
    return {
        stage: seconds / (heard_hours if stage == "recognise" else hours)
        for stage, seconds in spent.items()
    } | {"hours": hours, "clips": len(samples)}


def write_wavs(samples: Sequence[Sample], folder: Path) -> None:
    """Writes X.wav and X.txt for each sample."""
    for sample in samples:
        audio.write(folder / f"{sample.key}.wav", decode(sample.audio.read())[0])
        (folder / f"{sample.key}.txt").write_text(sample.text, encoding="utf-8")


def whole_command(wavs: str, more: Sequence[str]) -> float:
    """Seconds of `prepare curate --level 0.07`, by the clock."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["prepare", "curate", wavs, "--out", folder, "--level", "0.07", *more]
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "nanospeech", *argv],
            env=os.environ | {"RAY_ADDRESS": "local"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return round(time.monotonic() - start, 1)


def listing(rows: int = 10_000) -> dict[str, float]:
    """What the list of clips costs the machine that the command is given on, for each clip."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifest.jsonl"
        text = "She sells seashells by the sea shore, and the shells that she sells are sea"
        with path.open("w", encoding="utf-8") as f:
            for i in range(rows):
                (Path(folder) / f"{i:06d}.wav").touch()
                row = {"audio": f"{i:06d}.wav", "text": f"{text} {i}", "speaker": "1"}
                f.write(json.dumps(row) + "\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        samples, _ = find([path])
        portions = Portions(Path(folder), samples, 1000, {})
        for number in range(len(portions)):
            portions.write_todo(number)
        seconds = time.process_time() - start
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"microseconds": 1e6 * seconds / rows, "bytes": 1024 * (after - before) / rows}


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.benchmarks.prepare", __doc__)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="see prepare shards")
    parser.add_argument("--clips", type=int, default=200, help="clips to measure on (200)")
    parser.add_argument("--heard", type=int, default=30, help="of them, to recognise (30)")
    parser.add_argument("--whisper", help="faster-whisper size or folder")
    parser.add_argument("--ray", type=int, metavar="PROCESSES", help="run the command, too")
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    samples = find(args.inputs)[0][: args.clips]
    found: dict[str, Any] = {"a clip in the list": listing()}
    found["seconds_an_hour"] = stages(samples, args.whisper, args.heard)
    if args.ray:
        size = ["--size", str(-(-len(samples) // (4 * args.ray)))]
        with tempfile.TemporaryDirectory() as folder:
            write_wavs(samples, Path(folder))
            found["one process, s"] = whole_command(folder, ["--jobs", "1", *size])
            more = ["--jobs", str(args.ray), *size, "--ray"]
            found[f"ray, {args.ray} processes, s"] = whole_command(folder, more)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
