"""Plans of speech_cli.py: the cells of a command line. Measures nothing."""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nanospeech.config import STEPS
from nanospeech.errors import InputError
from nanospeech.evaluate.items import read_texts
from nanospeech.load import pick_backend

from .speech import Cell, passage
from .undo import TORCH_CPU, UNDO

LETTERS = 15  # of English, a second
GENERATE = (sys.executable, "-m", "nanospeech.generate")
PROMPT = 0.3  # of the whole, where the speech model is measured alone
HELLO = "Hello there."  # text of a cold start
# what the command line of nanospeech 0.0.6 does by default, in this project's words: its 8 points
# of time are 7 steps
AS_UPSTREAM: dict[str, Any] = {
    "method": "rk4",
    "steps": 7,
    "schedule": "uniform",
    "sway_sampling_coef": -1.0,
    "cfg_strength": 2.0,
}

BACKENDS = ("auto", "torch", "mlx", "onnx", "both", "all")  # both: torch and mlx


def backends(wanted: str) -> list[str]:
    """The backends of --backend.

    Raises:
        BackendError: one of them is not installed.
    """
    several = {"both": ("torch", "mlx"), "all": ("torch", "mlx", "onnx")}
    return [pick_backend(name) for name in several.get(wanted, (wanted,))]


def thread_words(count: Any) -> list[str]:
    """A number of threads in a cell's name."""
    return [] if count is None else [f"{count} thread{'s' * (count != 1)}"]


def speaking(args: argparse.Namespace) -> list[Cell]:
    """Every combination of backend, type, threads, …, as they are listed; then other programs.

    Raises:
        InputError: texts that cannot be read, or an --external that is no command.
    """
    texts = tuple(read_texts(args.texts)) if args.texts else (passage(LETTERS * args.seconds),)
    base = Cell(model=args.model, device=args.device, voice=args.voice, texts=texts)
    base = replace(base, quantize=args.quantize, seconds=args.seconds)
    found = []
    lists = (backends(args.backend), args.dtype, args.compile)
    counts = (args.threads, args.steps, args.batch)
    for backend, dtype, compiled, threads, steps, batch in itertools.product(*lists, *counts):
        words = [backend, dtype, *thread_words(threads)]
        words += [f"{args.quantize} bits"] if args.quantize else []
        words += [] if compiled is None else ["compiled" if compiled else "not compiled"]
        words += [f"{steps} steps"] if len(args.steps) > 1 else []
        words += [f"batch {batch}"] if len(args.batch) > 1 else []
        cell = replace(base, name=", ".join(words), backend=backend, dtype=dtype, batch=batch)
        cell = replace(cell, threads=threads, compile=compiled)
        found.append(replace(cell, options={"steps": steps}))
    return found + others(args, texts)


def others(args: argparse.Namespace, texts: tuple[str, ...]) -> list[Cell]:
    """Piper, Kokoro, and the programs of --external, on the same texts."""
    base = Cell(texts=texts, threads=args.threads[0], seconds=args.seconds)
    found = [replace(base, name="Piper", kind="piper", model=args.piper)] if args.piper else []
    if args.kokoro:
        found.append(replace(base, name="Kokoro-82M, int8", kind="kokoro", model=args.kokoro))
    for given in args.external:
        name, _, command = given.partition("=")
        words = tuple(shlex.split(command))
        if not name or not any("{out}" in w for w in words):
            raise InputError(f"--external {given!r} should be NAME='COMMAND {{text}} {{out}}'")
        found.append(replace(base, name=name, kind="command", command=words))
    return found


def cold_start(cell: Cell) -> Cell:
    """The command line, from nothing to a written file, with a cell's settings."""
    flags: dict[str, Any] = {
        "--backend": cell.backend,
        "--dtype": cell.dtype,
        "--steps": cell.options["steps"],
        "--seed": 0,
        "--model": cell.model,
        "--device": cell.device,
        "--voice": cell.voice,
        "--quantize": cell.quantize,
    }
    words: list[str] = [*GENERATE, "--text", HELLO, "--output", "{out}", "--quiet"]
    for flag, value in flags.items():
        words += [] if value is None else [flag, str(value)]
    words += ["--compile"] if cell.compile else []
    title = [cell.backend, cell.dtype or "its own type", *thread_words(cell.threads)]
    title += ["compiled"] if cell.compile else []
    name = f"cold start, {', '.join(title)}"
    return Cell(name=name, kind="generate", threads=cell.threads, command=tuple(words))


def help_page() -> Cell:
    """The command line's --help."""
    return Cell(name="--help", kind="generate", command=(*GENERATE, "--help"))


def lengths(args: argparse.Namespace) -> dict[str, Any]:
    """The utterance that the speech model alone is measured on."""
    return {"seconds": args.seconds, "prompt_seconds": PROMPT * args.seconds, "in_all": True}


def upstream_cells(args: argparse.Namespace, python: str) -> list[Cell]:
    """nanospeech 0.0.6 with its defaults, and with its fastest solver."""
    base = Cell(kind="upstream", model=args.model, threads=args.threads[0], python=python)
    base = replace(base, device=args.device, **lengths(args))
    return [
        replace(base, name="nanospeech 0.0.6, its defaults"),
        replace(base, name="nanospeech 0.0.6, Euler", options={"ode_method": "euler"}),
    ]


def on_torch_cpu(backend: str, device: str | None) -> bool:
    """Whether PyTorch computes, and on a CPU."""
    if backend != "torch":
        return False
    from nanospeech_torch.engine import pick_device

    return pick_device(device) == "cpu"


def rungs(args: argparse.Namespace, backend: str) -> list[tuple[str, dict[str, Any]]]:
    """The change of each rung of the ladder, added to those before it."""
    ours = {"cfg_strength": AS_UPSTREAM["cfg_strength"]}
    without = [name for name in UNDO if name not in TORCH_CPU or on_torch_cpu(backend, args.device)]
    found: list[tuple[str, dict[str, Any]]] = [
        ("upstream's settings", {"options": AS_UPSTREAM, "without": tuple(without)}),
        (f"+ Euler, {STEPS} steps, EPSS", {"options": ours}),
    ]

    def take_up(names: Iterable[str]) -> None:
        for name in names:
            without.remove(name)
            found.append((f"+ {name}", {"without": tuple(without)}))

    take_up([name for name in without if name not in TORCH_CPU])
    # on a CPU, compiled blocks are no faster than inference_cpu.py
    quicker = not on_torch_cpu(backend, args.device)
    found += [("+ compiled", {"compile": True})] if quicker else []
    dtypes = [d for d in args.dtype if d != "float32"] or ["bfloat16"]
    found += [(f"+ {dtype}", {"dtype": dtype}) for dtype in dtypes]
    take_up(list(without))  # they matter most for bfloat16; from here on all is default
    found += [(f"+ {thread_words(n)[0]}", {"threads": n}) for n in args.threads[1:]]
    unguided = {"cfg_strength": 0.0}
    return [
        *found,
        ("+ no guidance, as models that learnt it", {"options": unguided}),
        ("+ 4 steps, as a distilled student", {"options": {**unguided, "steps": 4}}),
        ("+ 2 steps, as the one that ships", {"options": {**unguided, "steps": 2}}),
    ]


def ladder(args: argparse.Namespace, whole: bool) -> list[Cell]:
    """The speech model alone, from upstream's settings to ours.

    Args:
        whole: all rungs; else our defaults in float32 and what changes their type.
    """
    found = []
    for backend in backends(args.backend):
        cell = Cell(kind="sample", model=args.model, backend=backend, device=args.device)
        cell = replace(cell, threads=args.threads[0], **lengths(args))
        steps = []
        for name, changes in rungs(args, backend):
            cell = replace(cell, **changes, name=f"{backend}: {name}")
            steps.append(cell)
        if not whole:
            ready = [c for c in steps if not c.without and c.options.get("cfg_strength") != 0]
            plain = replace(ready[0], dtype="float32", name=f"{backend}: our defaults in float32")
            named = f"{backend}: our defaults in {ready[0].dtype}"
            steps = [replace(ready[0], name=named), *ready[1:]]
            if ready[0].dtype != plain.dtype:
                steps.insert(0, plain)
        found += steps
    return found
