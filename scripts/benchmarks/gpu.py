"""Measures training and speaking on a GPU within ten minutes. The last line is one JSON document.

    python -m scripts.benchmarks.gpu > gpu.json
    python -m scripts.benchmarks.gpu --tiny --cpu      each cell, tiny
    python -m scripts.benchmarks.gpu --only mask compile      cells of these groups

The document holds correctness first (CPU against GPU, graphs and segments against plain), then
throughput, MFU and memory of training steps, attention with and without a mask, the alignment's
search as a loop and as one kernel, and the real-time factor of speaking. Each cell runs in a
process of its own: a cell that fails, hangs or runs out of memory has a row with that status.
When the time is up the remaining cells have rows too, "skipped".
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nanospeech.latent_architectures import EchoConfig
from nanospeech_torch.train.scale.echo import SCALES

from .cells import run_cell, run_process
from .machine import surroundings
from .model import sizes
from .worker import Spec

TINY = {"dim": 64, "depth": 2, "heads": 2, "dim_head": 32, "text_dim": 32, "conv_layers": 1}
ALIGNED = {"text_upsampling": "aligned", "text_masking": True}
MODES = ("off", "default", "reduce-overhead")
# EchoDiT on DAC-VAE latents: items of full length
ECHO: dict[str, Any] = {
    "latent_dim": 16,
    "dim": 64,
    "depth": 2,
    "heads": 2,
    "ff_dim": 176,
    "text_dim": 32,
}
ECHO |= {"text_heads": 2, "text_input": 48, "speaker_dim": 32, "speaker_depth": 1, "time_dim": 32}
ECHO |= {"speaker_heads": 2, "speaker_ff_dim": 88, "adaln_rank": 8, "max_speaker": 16}
ECHO_ITEMS = (4, 16)
# batch and frames, of 10 s and 20 s clips; the last fills a GPU of 80 GB
SHAPES = {"82M": [(16, 937), (112, 937), (32, 1875)], "800M": [(4, 937), (16, 937), (12, 1875)]}


@dataclass
class Cell:
    """A row of the document: its name, and what makes its figures within so many seconds."""

    group: str
    name: str
    run: Callable[[float], dict[str, Any]]


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def model_config(name: str, tiny: bool) -> dict[str, Any]:
    """Fields of a recipe's DiTConfig."""
    return {**TINY, "text_num_embeds": 256} if tiny else asdict(sizes(name).dit)


def training(name: str, shape: tuple[int, int], args: argparse.Namespace, **changes: Any) -> Spec:
    """The spec of a training cell."""
    batch, frames = (2, 48) if args.tiny else shape
    return Spec(
        config={**model_config(name, args.tiny), **changes.pop("config", {})},
        batch=batch,
        frames=frames,
        tokens=-(-frames // 6 // 8) * 8,
        steps=2 if args.tiny else 15,
        last=1 if args.tiny else 8,
        precision="no" if args.cpu else "bf16",
        cpu=args.cpu,
        **changes,
    )


def echo_training(items: int, mode: str, args: argparse.Namespace) -> Spec:
    """The spec of a training cell of an EchoDiT."""
    network = EchoConfig(**ECHO) if args.tiny else SCALES["800M"]
    return Spec(
        model="echo",
        config=asdict(network),
        batch=2 if args.tiny else items,
        frames=24 if args.tiny else network.max_latents,
        tokens=8 if args.tiny else network.max_text,
        steps=2 if args.tiny else 15,
        last=1 if args.tiny else 8,
        precision="no" if args.cpu else "bf16",
        compile=mode,
        cpu=args.cpu,
    )


def part(name: str, args: argparse.Namespace) -> Callable[[float], dict[str, Any]]:
    """Runs a measurement of gpu_parts.py in a process of its own."""

    def run(timeout: float) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out.json")
            command = [sys.executable, "-m", "scripts.benchmarks.gpu_parts", name, str(out)]
            command += ["--tiny"] * args.tiny + ["--cpu"] * args.cpu
            code, errors = run_process(command, timeout)
            if out.exists():
                return {"status": "ok", **json.loads(out.read_text(encoding="utf-8"))}
        if code is None:
            return {"status": "timeout", "note": f"not done in {timeout:.0f} s"}
        lines = [line for line in errors.splitlines() if line.strip()]
        return {"status": "error", "note": (lines[-1] if lines else f"exit status {code}")[:300]}

    return run


def plan(args: argparse.Namespace) -> Iterator[Cell]:
    """The cells, the most informative first."""

    def trained(group: str, name: str, spec: Spec) -> Cell:
        return Cell(group, name, partial(run_cell, spec))

    yield Cell("correctness", "CPU against device", part("correctness", args))
    yield Cell("search", "loop and kernel", part("search", args))
    yield Cell("attention", "masked, in segments, plain", part("attention", args))
    models = {"82M": SHAPES["82M"][:1]} if args.tiny else SHAPES
    for model, shapes in models.items():
        uneven = training(model, shapes[0], args, shortest=0.6)
        for masked in (False, True):
            name = f"{model}, {'masked' if masked else 'no mask'}"
            yield trained("mask", name, replace(uneven, masked=masked))
        yield trained("compile", f"{model}, off", training(model, shapes[0], args))
    aligned = training("82M", SHAPES["82M"][0], args, config=ALIGNED)
    for loop in (False, True):
        name = f"82M aligned, {'loop' if loop else 'kernel'}"
        yield trained("search in a step", name, replace(aligned, loop_search=loop))
    yield Cell("speaking", "82M, eager and compiled", part("speaking", args))
    for items in ECHO_ITEMS[:1] if args.tiny else ECHO_ITEMS:
        for mode in ("off",) if args.tiny and not args.compile else ("off", "default"):
            name = f"echo 800M, {items} items, compile {mode}"
            yield trained("echo", name, echo_training(items, mode, args))
    for model, shapes in models.items():
        for shape in shapes[1:]:
            name = f"{model}, {shape[0]} x {shape[1]}"
            yield trained("shapes", name, training(model, shape, args))
    for model, shapes in models.items():
        for mode in () if args.tiny and not args.compile else MODES[1:]:
            spec = training(model, shapes[0], args, compile=mode)
            yield trained("compile", f"{model}, {mode}", spec)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs cells until the time is up; a failure does not affect the others."""
    end = time.monotonic() + 60 * args.minutes
    rows = []
    for cell in plan(args):
        if args.only and cell.group not in args.only:
            continue
        begin, left = time.monotonic(), end - time.monotonic()
        if left < args.least:
            figures: dict[str, Any] = {"status": "skipped", "note": "no time left"}
        else:
            try:
                figures = cell.run(min(left, args.timeout))
            except Exception as e:  # a row that says so
                figures = {"status": "error", "note": f"{type(e).__name__}: {e}"[:300]}
        spent = round(time.monotonic() - begin, 1)
        rows.append({"group": cell.group, "name": cell.name, "seconds": spent, **figures})
        say(f"{cell.group}: {cell.name}: {figures['status']} {figures.get('note', '')}")
    return rows


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--tiny", action="store_true", help="tiny sizes, to check that everything runs"
    )
    made.add_argument("--cpu", action="store_true", help="leave GPUs alone")
    made.add_argument("--compile", action="store_true", help="with --tiny: compiled cells too")
    made.add_argument("--only", nargs="+", metavar="GROUP", help="of the cells; default: all")
    made.add_argument("--minutes", type=float, default=9.5, help="for all cells (default: 9.5)")
    made.add_argument("--timeout", type=float, default=120, help="seconds for each (default: 120)")
    made.add_argument("--least", type=float, default=10, help=argparse.SUPPRESS)
    return made


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)
    import torch

    args.cpu = args.cpu or not torch.cuda.is_available()
    begin = time.monotonic()
    cells = measure(args)
    document = {"tiny": args.tiny, "cells": cells, "seconds": round(time.monotonic() - begin, 1)}
    print(json.dumps({**document, **surroundings("scripts.benchmarks.gpu", argv)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
