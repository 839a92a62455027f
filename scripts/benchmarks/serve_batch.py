"""Batches: what concurrent texts gain by chunks that share a batch, and a stream's first sound."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from nanospeech.cli import Parser, command
from nanospeech.machine import cores

ABOUT = """Measures batches of chunks, and the first sound of a stream.

  python -m scripts.benchmarks.serve_batch --sizes 1,2,4"""
TEXT = "The boat left at dawn, and nobody saw it go. It came back late, with fish."
GREETING = "Hello there, how are you today?"


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.benchmarks.serve_batch", ABOUT)
    parser.add_argument("--model", help="release folder (default: the one that ships)")
    parser.add_argument("--device", default="cpu", help="of the engine (default: cpu)")
    parser.add_argument("--sizes", default="1,2,4", help="chunks in a batch (default: 1,2,4)")
    parser.add_argument("--repeats", type=int, default=3, help="of each, the best counts")
    return parser


def best(call, repeats: int) -> tuple[float, float]:
    """Least seconds of a call, by the clock and of the processor."""
    found = []
    for _ in range(repeats):
        clock, work = time.perf_counter(), time.process_time()
        call()
        found.append((time.perf_counter() - clock, time.process_time() - work))
    return min(c for c, _ in found), min(w for _, w in found)


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table."""
    from nanospeech.load import load_engine
    from nanospeech.speech import chunks
    from nanospeech.speech.speaker import Speaker

    args = build_parser().parse_args(argv)
    engine = load_engine(args.model, "torch", args.device)
    speaker = Speaker(engine, seed=1)
    chunk = speaker.chunk(speaker.chunks(TEXT)[0], 1)
    frames = chunk.frames / engine.config.audio.frame_rate
    print(f"{cores()} cores, {engine.device}, {engine.dtype}, chunks of {frames:.1f} s\n")
    print("| chunks in a batch | seconds of speech sampled in a second |\n|---|---|")
    for size in map(int, args.sizes.split(",")):

        def batch(size: int = size) -> None:
            chunks.sample(engine, speaker.prompt, [chunk] * size, speaker.options)

        batch()
        print(f"| {size} | {size * frames / best(batch, args.repeats)[0]:.2f} |", flush=True)

    def first() -> np.ndarray:
        return next(speaker.stream(GREETING))

    first()
    clock, work = best(first, 3 * args.repeats)
    print(f"\nfirst sound after {1000 * clock:.0f} ms, {1000 * work:.0f} ms of a processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
