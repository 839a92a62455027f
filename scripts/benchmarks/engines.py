"""What each engine costs on this machine: the same text by all that are installed, on one thread.

    python -m scripts.benchmarks.engines
    python -m scripts.benchmarks.engines --model FOLDER --repeats 5

Each engine and type has a process of its own, one after the other. `first` is from the start of the
process to the first speech, imports included; RTF is the best of the repeats with everything warm.
Both are seconds of processor time, which a busy machine lengthens less than those of a clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from nanospeech.cli import Parser, command
from nanospeech.load import backend_names, find_backend, installed

TEXT = (
    "The museum opens at half past nine, and bread is sold in the square. Whoever comes early"
    " has the harbour to himself, and a seat by the window."
)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.benchmarks.engines", __doc__ or "")
    parser.add_argument("--model", help="release folder (default: the voice that ships)")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--one", nargs=2, metavar=("BACKEND", "DTYPE"), help=argparse.SUPPRESS)
    return parser


def measure(args: argparse.Namespace) -> dict:
    """Seconds of one engine, in this process."""
    from nanospeech import Speaker, load_engine

    backend, dtype = args.one
    engine = load_engine(args.model, backend, "cpu", dtype)
    speaker = Speaker(engine, seed=1)
    speaker.speak(args.text)
    first, times = time.process_time(), []
    for _ in range(args.repeats):
        start = time.process_time()
        length = len(speaker.speak(args.text).wave) / speaker.sample_rate
        times.append(time.process_time() - start)
    return {"first": first, "rtf": min(times) / length, "seconds": length}


def row(args: argparse.Namespace, backend: str, dtype: str) -> str:
    """One line of the table."""
    command = [sys.executable, "-m", "scripts.benchmarks.engines", "--one", backend, dtype]
    command += ["--text", args.text, "--repeats", str(args.repeats)]
    command += ["--model", args.model] if args.model else []
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        return f"| {backend} | {dtype} | - | - |"
    found = json.loads(done.stdout.splitlines()[-1])
    return f"| {backend} | {dtype} | {found['first']:.2f} | {found['rtf']:.3f} |"


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.one:
        print(json.dumps(measure(args)))
        return 0
    print("| engine | type | first, s | RTF |\n|---|---|---|---|", flush=True)
    for backend in filter(installed, backend_names()):
        for dtype in find_backend(backend).dtypes:
            slow = backend in ("torch", "mlx") and dtype == "float16"  # of a GPU's alone
            if not slow and (backend, dtype) != ("mlx", "bfloat16"):
                print(row(args, backend, dtype), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
