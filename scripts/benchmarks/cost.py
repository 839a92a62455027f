"""What speech costs: RTF and memory against length, prompt, batch and size, beside a floor.

    python -m scripts.benchmarks.cost --backend all --out docs/cost --doc docs/appendix/cost.md
    python -m scripts.benchmarks.cost --sizes 82M,f5,800M --device cuda --dtype bfloat16

A model with a student speaks by it, as it does for users; --itself has it speak without. Each point
is a process of its own; the points of a sweep are measured in turn, as in speech_cli.py, and with
them the rate at which the backend multiplies large matrices. The floor of a point is the operations
of its utterance over that rate, a lower bound for the same network. Time is also measured by part
of the model with PyTorch and MLX, and with PyTorch by kind of operation. Writes cost.json,
cost.png, batch.png and parts.png to --out, and with --doc the pictures and tables into a page,
between its markers. The last line is the JSON document. Needs the extras "torch" and "eval".
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from nanospeech.cli import command
from nanospeech.config import STEPS, ModelConfig, SampleOptions, option
from nanospeech.engine.base import DTYPES
from nanospeech.engine.sampling import evaluation_times, time_grid
from nanospeech.errors import InputError
from nanospeech.release.folder import open_release, resolve

from . import cost_report
from .machine import surroundings
from .model import random_release
from .plan import BACKENDS, LETTERS, backends
from .report import Result
from .serve import FRAME_RATE, TOKENS_PER_SECOND
from .speech import Cell, passage
from .speech_cli import numbers, say
from .turns import turns

SWEEPS = ("length", "prompt", "batch", "size", "many", "text")
WHOLE = ("many", "text")  # from text to wave, by Speaker: without a floor


@dataclass(frozen=True)
class Ranges:
    """The points of each sweep; what does not vary in one is `new` and `prompt`, one at a time."""

    new: float = option(10.0, "seconds of new speech")
    prompt: float = option(3.0, "seconds of the prompt")
    lengths: tuple[float, ...] = option((2.0, 5.0, 10.0, 20.0, 30.0), "seconds of new speech")
    prompts: tuple[float, ...] = option((1.0, 3.0, 6.0, 10.0), "seconds of prompts")
    batches: tuple[float, ...] = option((1, 2, 4, 8, 16), "utterances at a time")
    sizes: tuple[str, ...] = option(
        ("82M", "f5"), "random weights of these, see nanospeech/configs"
    )
    texts: tuple[float, ...] = option((10.0, 60.0, 600.0), "seconds of text, in many chunks")
    repeats: int = option(5, "rounds")


QUICK = Ranges(1.0, 0.5, (1.0, 2.0), (0.5, 1.0), (1, 2), (), (1.0,), 1)


@dataclass
class Point:
    """A cell of a sweep, its point, and its floor.

    Attributes:
        sweep: one of SWEEPS; many is Speaker.speak_many on so many texts, text Speaker.stream.
        at: seconds, utterances, or the model's weights in millions.
        config: the model's.
        floor: RTF at the measured rate of matrix products; None where that is not known.
    """

    sweep: str
    at: float
    config: ModelConfig
    result: Result
    floor: float | None = None

    def document(self) -> dict[str, Any]:
        about = {"sweep": self.sweep, "at": self.at, "floor": self.floor}
        return {**about, **self.result.document()}


def passes(options: SampleOptions, strength: float, steps: int = STEPS) -> int:
    """Forward passes over one utterance: an evaluation with guidance is two.

    Args:
        options: as they were given.
        strength: of the guidance; 0 for a distilled model, which is told the strength.
        steps: a model's own.
    """
    grid = time_grid(options.steps or steps, options.schedule, options.sway_sampling_coef)
    times = evaluation_times(grid, options.method, options.zero_init)
    guided = [strength > 0 and options.cfg_from <= t <= options.cfg_until for t in times]
    return len(times) + sum(guided)


def operations(cell: Cell, config: ModelConfig) -> tuple[float, float]:
    """Operations of a cell's utterances: of the speech model, and of the vocoder.

    Counted by the training profile's formulas, of which a forward pass is a third.
    """
    from nanospeech_torch.train.scale.profile import step_flops, vocoder_flops

    options, c = SampleOptions(**cell.options), config.dit
    frames = round(cell.seconds * FRAME_RATE)
    new = frames - round(cell.prompt_seconds * FRAME_RATE)
    tokens = round(cell.seconds * TOKENS_PER_SECOND)
    strength = 0 if c.max_strength else config.chosen(options, "cfg_strength")
    parts = step_flops(c, cell.batch, frames, tokens)
    # text states are computed once; if they fill the frames, also those without text
    once = parts.pop("text") * (2 if c.text_upsampling == "none" else 1) + parts.pop("aligner")
    speech = passes(options, strength, config.steps) * sum(parts.values()) + once
    vocoder = vocoder_flops(config.vocoder, cell.batch, new) if config.vocoder else 0
    return speech / 3, vocoder / 3


def weights(config: ModelConfig) -> float:
    """Parameters of the speech model, in millions."""
    from nanospeech_torch.train.scale.estimate import count_weights

    return count_weights(config.dit)["total"] / 1e6


def speaking(model: str | None, args: argparse.Namespace) -> tuple[str, ModelConfig]:
    """The network of a folder that speaks, and its config: the student, if there is one."""
    config = open_release(model).config
    if config.student is None or args.itself:
        return "model", config
    return "student", config.as_student()


def points(sweep: str, args: argparse.Namespace, models: dict[str, str]) -> list[Point]:
    """The cells of one sweep, backend by backend.

    Args:
        models: folders of release folders by name; the first is the one of all sweeps but size.
    """
    folder = next(iter(models.values()))
    base = Cell(kind="sample", device=args.device, dtype=args.dtype, vocode=True)
    base = replace(base, threads=args.threads, compile=args.compile or None)
    base = replace(base, prompt_seconds=args.prompt, itself=args.itself)
    base = replace(base, model=folder, seconds=args.prompt + args.new)
    many = replace(base, kind="speak", texts=(passage(LETTERS * args.new),))
    streams = [(n, (passage(LETTERS * n),)) for n in args.texts]
    placed: dict[str, list[tuple[float, Cell]]] = {
        "length": [(n, replace(base, seconds=args.prompt + n)) for n in args.lengths],
        "prompt": [
            (n, replace(base, seconds=n + args.new, prompt_seconds=n)) for n in args.prompts
        ],
        "batch": [(n, replace(base, batch=n)) for n in args.batches],
        "size": [(0.0, replace(base, model=m)) for m in models.values()],
        "many": [(n, replace(many, batch=n)) for n in args.batches],
        "text": [(n, replace(many, kind="stream", texts=text)) for n, text in streams],
    }
    found = []
    for backend in backends(args.backend):
        for at, cell in placed[sweep]:
            network, config = speaking(cell.model, args)
            cell = replace(cell, network=network)
            at = weights(config) if sweep == "size" else at
            size = f"{config.name}, " if sweep == "size" else ""
            name = f"{backend}, {size}{sweep} {at:.3g}"
            result = Result(replace(cell, backend=backend, name=name))
            found.append(Point(sweep, at, config, result))
    return found


def measure(found: Sequence[Point], args: argparse.Namespace, model: str) -> None:
    """Measures one sweep, and the rates for its floors."""
    rates: dict[tuple[str, str | None], Result] = {}
    for cell in (p.result.cell for p in found if p.sweep not in WHOLE):
        for dtype in (args.dtype, "float32"):  # vocoders are float32 always
            name = f"{cell.backend}, {dtype or 'its own type'}: matmul"
            rate = replace(cell, kind="matmul", model=model, dtype=dtype, name=name)
            rates.setdefault((cell.backend, dtype), Result(rate))
    try:
        turns([*(p.result for p in found), *rates.values()], args.repeats, args.timeout, say)
    finally:
        known = {key: r["median"] for key, v in rates.items() if (r := v.spread("rate"))}
        for point in found:
            cell = point.result.cell
            keys = (cell.backend, args.dtype), (cell.backend, "float32")
            if all(key in known for key in keys):
                costs = operations(cell, point.config)
                least = sum(cost / known[key] for cost, key in zip(costs, keys))
                point.floor = least / (cell.batch * (cell.seconds - cell.prompt_seconds))


def profiles(args: argparse.Namespace, model: str) -> list[Result]:
    """Where the time of one utterance goes: by part, and with PyTorch by kind of operation."""
    found = []
    network, _ = speaking(model, args)
    for backend in backends(args.backend):
        if backend == "onnx":  # one call computes all
            continue
        cell = Cell(model=model, backend=backend, device=args.device, dtype=args.dtype)
        cell = replace(cell, threads=args.threads, vocode=True, compile=False)
        cell = replace(cell, network=network)
        cell = replace(cell, seconds=args.prompt + args.new, prompt_seconds=args.prompt)
        kinds = ("parts", "kinds") if backend == "torch" else ("parts",)
        found += [Result(replace(cell, kind=k, name=f"{backend}, {k}")) for k in kinds]
    turns(found, args.repeats, args.timeout, say)
    return found


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = p.add_argument
    add("model", nargs="?", help="release folder or Hub repository; the packaged one if not given")
    add("--backend", default=Cell.backend, choices=BACKENDS)
    add("--device", help="for example cpu, cuda or gpu")
    add("--dtype", choices=DTYPES, help="of the network (default: each backend's own)")
    add("--threads", type=int, help="of the CPU")
    add("--compile", action="store_true", help="compile the network")
    add("--itself", action="store_true", help="the model speaks though it has a student")
    add("--sweeps", type=names, default=SWEEPS, metavar="A,B", help=", ".join(SWEEPS))
    lists = dict.fromkeys(("lengths", "prompts", "texts"), seconds)
    lists |= {"sizes": names, "batches": numbers}
    for f in fields(Ranges):
        single = int if f.name == "repeats" else float
        add(f"--{f.name}", type=lists.get(f.name, single), help=f.metadata["help"])
    add("--quick", action="store_true", help="a few small points, to check that everything runs")
    add("--timeout", type=float, default=600.0, help="seconds for one measurement")
    add("--out", type=Path, default=Path("runs/cost"), help="folder of the pictures")
    add("--doc", type=Path, help="Markdown page whose pictures and tables are replaced")
    return p


def names(text: str) -> tuple[str, ...]:
    """The names of "82M,f5"; none of ""."""
    return tuple(part for part in text.split(",") if part)


def seconds(text: str) -> tuple[float, ...]:
    """The numbers of "2,5"."""
    return tuple(float(part) for part in text.split(","))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the sweeps and writes the results."""
    ranges = QUICK if args.quick else Ranges()
    for f in fields(Ranges):
        if getattr(args, f.name) is None:
            setattr(args, f.name, getattr(ranges, f.name))
    if wrong := sorted(set(args.sweeps) - set(SWEEPS)):
        raise InputError(f"--sweeps {wrong[0]!r} not known; choose from {', '.join(SWEEPS)}")
    found: list[Point] = []
    with tempfile.TemporaryDirectory() as folder:
        models = {"": str(resolve(args.model))}
        for size in args.sizes if "size" in args.sweeps else ():
            models[size] = str(random_release(size, Path(folder, str(len(models)))))
        interrupted = False
        try:
            for sweep in args.sweeps:
                say(f"sweep: {sweep}")
                found += (swept := points(sweep, args, models))
                measure(swept, args, models[""])
            profiled = profiles(args, models[""])
        except KeyboardInterrupt:
            interrupted, profiled = True, []
            say("interrupted; what follows is what was measured")
    document = {
        "points": [p.document() for p in found],
        "profiles": [{**r.document(), "parts": cost_report.shares(r)} for r in profiled],
        "interrupted": interrupted,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    cost_report.draw(found, profiled, args.out)
    print(text := cost_report.text(found, profiled))
    if args.doc:
        cost_report.insert(text, args.doc, args.out)
    return document


@command(interrupted="interrupted before anything was measured")
def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)
    document = {**run(args), **surroundings("scripts.benchmarks.cost", argv)}
    path = args.out / "cost.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    if document["interrupted"]:
        return 130
    return 1 if any("note" in r for r in document["points"] + document["profiles"]) else 0


if __name__ == "__main__":
    sys.exit(main())
