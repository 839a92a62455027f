"""Benchmarks speech: real-time factor, first audio, memory, cold start. The last line is JSON.

    python -m scripts.benchmarks.speech_cli   the voice that ships
    python -m scripts.benchmarks.speech_cli MODEL --backend all --dtype float32,bfloat16
    python -m scripts.benchmarks.speech_cli --upstream --ladder   beside nanospeech 0.0.6
    python -m scripts.benchmarks.speech_cli --external espeak='espeak-ng -w {out} {text}'
    python -m scripts.benchmarks.speech_cli --piper VOICE.onnx --kokoro WHEELS --batch 1,4

Each combination of backend, type, threads, steps and batch is a cell. A cell has a process of its
own that loads, warms up and stays; cells are measured in turn, A B A B …, one at a time, so that
other work on the machine falls on all of them. Figures are medians of --repeats rounds with their
quartiles, and ratios are of figures of the same round. First audio is the time until the first wave
leaves Speaker.stream(); a cold start is `python -m nanospeech.generate` from nothing to the written
file, its files being in the system's cache. Memory is the most that the process had, or what was
allocated on a GPU. A cell that fails says why, and the others are still measured; Ctrl-C prints
what there is.

--ladder measures the speech model alone: upstream's settings in this project's code, then what each
of ours adds. --upstream adds nanospeech 0.0.6 itself with the same random weights, installed from
the package index into an environment that is deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nanospeech.cli import command
from nanospeech.engine.base import DTYPES
from nanospeech.errors import InputError
from nanospeech.release.folder import resolve

from . import plan as bench_plan
from . import report as bench_report
from . import upstream_sample as upstream
from .machine import surroundings
from .model import PUBLISHED, random_release
from .report import Result
from .speech import Cell
from .turns import turns


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def with_commands(results: list[Result]) -> list[Result]:
    """The commands whose time is a figure of some cells: their cold starts, and --help."""
    commands: dict[tuple, Result] = {}
    for result in results:
        if result.cell.kind == "speak":
            for cell in (bench_plan.cold_start(result.cell), bench_plan.help_page()):
                commands.setdefault((cell.threads, cell.command), Result(cell))
    return list(commands.values())


def attach(results: list[Result], commands: list[Result]) -> None:
    """Gives cells the times of their commands."""
    found = {(c.cell.threads, c.cell.command): c.figures.get("seconds", {}) for c in commands}
    for result in results:
        if result.cell.kind == "speak":
            cold, page = bench_plan.cold_start(result.cell), bench_plan.help_page()
            for name, cell in (("cold_start", cold), ("help", page)):
                if times := found.get((cell.threads, cell.command)):
                    result.figures[name] = times


def plan(args: argparse.Namespace, folder: Path) -> list[Result]:
    """The cells, nothing measured yet; a random model is written to the folder."""
    if args.random:
        args.model = str(random_release(args.random, folder / "model"))
    if not (args.upstream or args.ladder):
        return [Result(cell) for cell in bench_plan.speaking(args)]
    results = []
    if args.upstream:
        python, note = args.upstream_python or "", ""
        if not python:
            say(f"installing {upstream.RELEASE}")
            try:
                python = upstream.install(folder / "upstream")
            except (OSError, subprocess.CalledProcessError) as e:
                note = f"cannot install {upstream.RELEASE}: {e}"
                say(note)
        results += [Result(c, note=note) for c in bench_plan.upstream_cells(args, python)]
    return results + [Result(c) for c in bench_plan.ladder(args, args.ladder)]


def bench(args: argparse.Namespace) -> tuple[dict[str, Any], list[Result]]:
    """Measures what was asked for: the document, and the results in it."""
    with tempfile.TemporaryDirectory() as folder:
        results = plan(args, Path(folder))
        commands = [] if args.no_cold else with_commands(results)
        interrupted = False
        try:
            turns([*results, *commands], args.repeats, args.timeout, say)
        except KeyboardInterrupt:
            interrupted = True
            say("interrupted; what follows is what was measured")
    attach(results, commands)
    document = {
        "repeats": args.repeats,
        "seconds": args.seconds,
        "threads": args.threads,
        "cells": [r.document() for r in results],
        "commands": [c.document() for c in commands],
        "ratios": bench_report.all_ratios(results),
    }
    return {**document, **({"interrupted": True} if interrupted else {})}, results


def numbers(text: str) -> list[int]:
    """The numbers of "1,4", each at least 1."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def types(text: str) -> list[str]:
    """The types of "float32,bfloat16"."""
    return text.split(",")


def switches(text: str) -> list[bool]:
    """What "off,on" says."""
    if set(parts := text.split(",")) - {"off", "on"}:
        raise ValueError(text)
    return [part == "on" for part in parts]


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.speech_cli",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = p.add_argument
    add("model", nargs="?", help="release folder or Hub repository; the packaged one if not given")
    add("--random", metavar="SIZE", help="random weights: a name in nanospeech/configs, or a YAML")
    add("--voice", help="built-in voice")
    add("--backend", default=Cell.backend, choices=bench_plan.BACKENDS)
    add("--device", help="for example cpu, cuda or gpu")
    add("--dtype", type=types, default=[Cell.dtype], metavar="A,B", help="float32, bfloat16, …")
    add("--quantize", type=int, metavar="BITS", help="round weights to 4 or 8 bits on load")
    add("--compile", type=switches, default=[None], metavar="off,on", help="compile the network")
    add("--steps", type=numbers, default=[None], metavar="N,M", help="default: the model's own")
    add("--batch", type=numbers, default=[Cell.batch], metavar="1,4", help="utterances at a time")
    add("--threads", type=numbers, default=[None], metavar="N,M", help="of the CPU")
    add("--seconds", type=float, default=Cell.seconds, help="of speech (default: %(default)g)")
    add("--texts", type=Path, metavar="FILE", help="to speak instead, one a line")
    add("--repeats", type=int, default=5, help="rounds (default: %(default)s)")
    add("--timeout", type=float, default=600.0, help="seconds for one measurement")
    add("--no-cold", action="store_true", help="without cold starts and --help")
    add("--ladder", action="store_true", help="the speech model alone, option by option")
    add("--upstream", action="store_true", help="beside nanospeech 0.0.6")
    add("--upstream-python", metavar="PATH", help="interpreter that has it; nothing is installed")
    add("--external", action="append", default=[], metavar="NAME=COMMAND", help="another program")
    add("--piper", metavar="VOICE", help="a voice of Piper, whose package must be installed")
    add(
        "--kokoro",
        metavar="WHEELS",
        help="Kokoro's unzipped wheels, see scripts.recipes.synthesize",
    )
    add("--row", action="store_true", help="print rows for BENCHMARKS.md instead of the table")
    return p


def check(args: argparse.Namespace) -> None:
    """Refuses what cannot be measured before anything is started.

    Raises:
        InputError: a number that is too small, a type that is not known, no such model.
    """
    if args.repeats < 1:
        raise InputError(f"--repeats is {args.repeats}; choose at least 1")
    if not args.seconds >= 1:
        raise InputError(f"--seconds is {args.seconds:g}; choose at least 1")
    if wrong := [d for d in args.dtype if d not in DTYPES]:
        raise InputError(f"--dtype {wrong[0]!r} not known; choose from {', '.join(DTYPES)}")
    if args.model and args.random:
        raise InputError("give either a model or --random, not both")
    args.upstream = args.upstream or bool(args.upstream_python)
    if (args.ladder or args.upstream) and not (args.model or args.random):
        args.random = PUBLISHED
    if args.model:
        args.model = str(resolve(args.model))


@command(interrupted="interrupted before anything was measured")
def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)
    check(args)
    document, results = bench(args)
    about = surroundings("scripts.benchmarks.speech_cli", argv)
    columns, note = bench_report.SPEAKING, bench_report.SPEAKING_NOTE
    if args.ladder or args.upstream:
        columns, note = bench_report.LADDER, bench_report.LADDER_NOTE
    table = bench_report.table(results, columns)
    print(bench_report.rows(table, about) if args.row else table)
    print(f"\n{note.format(**document)}\n")
    print(json.dumps({**document, **about}))
    if document.get("interrupted"):
        return 130
    return 1 if any(r.note for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
