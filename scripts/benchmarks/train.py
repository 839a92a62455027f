"""Benchmarks training steps: frames a second, MFU, memory. The last line is one JSON document.

    python -m scripts.benchmarks.train --config nanospeech/configs/82M.yaml --batch 16
    python -m scripts.benchmarks.train --config FILE --autotune-batch
    python -m scripts.benchmarks.train --config FILE --ablate precision=no,bf16 checkpoint=0,1,ops
    python -m scripts.benchmarks.train --config FILE --upstream OTHER/bin/python
    python -m scripts.benchmarks.train --preset echo_800M --ablate parallel=4x1x1,1x4x1,2x2x1,2x1x2

Batches are synthetic, without padding; 50 steps, of which the last 10 are timed. Each
configuration runs in a process of its own, so one that runs out of memory does not affect the
others.
--upstream compares with the training step of nanospeech 0.0.6, installed in another environment:

    python -m venv OTHER && OTHER/bin/pip install torch accelerate numpy safetensors einops einx \\
      ema-pytorch huggingface_hub tqdm && OTHER/bin/pip install --no-deps nanospeech==0.0.6
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nanospeech.cli import command
from nanospeech.errors import InputError

from .cells import ROOT, ablate, largest, parse_grid, run_cell, run_process, summary
from .machine import surroundings
from .worker import Spec

FULL = 0.9  # a batch that needs more of the memory than this is too large


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def specify(path: str, args: argparse.Namespace) -> Spec:
    """The cell of a run's file: its fullest batch, or the one asked for."""
    import torch

    from nanospeech_torch.train.config import read_run
    from nanospeech_torch.train.scale.estimate import workload

    run = read_run(path, args.set)
    if run.model == "echo":
        return specify_echo(run, args)
    work = workload(run)
    frames = args.frames or work.frames
    return Spec(
        model=run.model,
        config=asdict(work.config),
        batch=args.batch or work.batch,
        frames=frames,
        tokens=-(-frames // 6 // 32) * 32,
        steps=args.steps,
        last=args.last,
        precision=args.precision or work.precision,
        compile=run.speed.compile,
        checkpoint_interval=work.checkpoint_interval,
        checkpoint_ops=work.checkpoint_ops,
        optimizer=asdict(run.optimizer),
        parallel=(max(1, work.replicate), work.shard, work.tensor),
        memory=int(args.memory * 1e9) if args.memory else None,
        threads=args.threads,
        cpu=args.cpu or not torch.accelerator.is_available(),
    )


def specify_echo(run: Any, args: argparse.Namespace) -> Spec:
    """The cell of a run of an EchoDiT: full latents, texts and speakers, without a text encoder."""
    import torch

    split = run.parallel
    return Spec(
        model="echo",
        config=asdict(run.echo),
        batch=args.batch or run.data.batch_size,
        frames=args.frames or run.echo.max_latents,
        tokens=run.echo.max_text,
        steps=args.steps,
        last=args.last,
        precision=args.precision or run.mixed_precision or "no",
        compile=run.speed.compile,
        checkpoint_interval=run.speed.interval,
        optimizer=asdict(run.optimizer),
        parallel=(max(1, split.replicate), split.shard, split.tensor),
        memory=int(args.memory * 1e9) if args.memory else None,
        threads=args.threads,
        cpu=args.cpu or not torch.accelerator.is_available(),
    )


def autotune(spec: Spec, timeout: float) -> tuple[int, list[dict[str, Any]]]:
    """The largest batch that leaves a tenth of the memory free, and what was tried.

    Raises:
        InputError: not even one sample fits, or a trial failed for another reason.
    """
    tried: list[dict[str, Any]] = []
    memory = spec.memory or (free_memory() if spec.cpu else None)
    spec = replace(spec, steps=3, last=1, memory=memory)

    def fits(batch: int) -> bool:
        figures = run_cell(replace(spec, batch=batch), timeout)
        if figures["status"] == "error":
            raise InputError(f"a batch of {batch} failed: {figures['note']}")
        good = figures["status"] == "ok"
        if good:
            share = figures.get("reserved_share")
            if share is None and spec.memory:
                share = figures["peak_memory"] / spec.memory
            good = share is None or share <= FULL
            figures["share"] = share
        tried.append({"batch": batch, "fits": good, **figures})
        say(f"batch {batch}: {summary(figures)}{'' if good else ': too large'}")
        return good

    best = largest(fits)
    if not best:
        raise InputError(f"not even one sample of {spec.frames} frames fits in memory")
    return best, tried


def free_memory() -> int | None:
    """Bytes that processes may still take (Linux), or None."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    return found[0] if found else None


def compare(spec: Spec, other: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Ours and upstream's steps on the same batch, by turns, for each precision.

    Raises:
        InputError: one of them failed.
    """
    import numpy as np

    if spec.model != "speech" or spec.processes > 1:
        raise InputError("--upstream compares speech models in one process")
    rng = np.random.default_rng(0)
    mel = rng.normal(-3, 2, (spec.batch, spec.frames, 100)).astype(np.float32)
    text = rng.integers(0, spec.config["text_num_embeds"], (spec.batch, spec.tokens))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "batch.npz")
        np.savez(file, mel=mel, lens=np.full(spec.batch, spec.frames), text=text)
        cell = replace(spec, batch_file=str(file))
        precisions = [args.precision] if args.precision else ["no", "bf16"]
        return [
            turns(replace(cell, precision=p), other, folder, args.rounds, args.timeout)
            for p in precisions
        ]


def turns(spec: Spec, other: str, folder: str, rounds: int, timeout: float) -> dict[str, Any]:
    """Ours, upstream's, ours, … in one precision: frames a second and their ratio."""
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "upstream": []}
    for _ in range(rounds):
        for name, results in found.items():
            ours = name == "ours"
            result = run_cell(spec, timeout) if ours else run_other(spec, other, folder, timeout)
            if result["status"] != "ok":
                raise InputError(f"{name}, {spec.precision}: {result.get('note', result)}")
            say(f"{spec.precision}, {name}: {result['seconds_per_step']:.3f} s a step")
            results.append(result)

    def mean(name: str, figure: str) -> float:
        return sum(r[figure] for r in found[name]) / rounds

    frames, wall, cpu = spec.batch * spec.frames, "seconds_per_step", "cpu_seconds_per_step"
    row = {
        "precision": spec.precision,
        "ratio": mean("upstream", wall) / mean("ours", wall),
        # on a busy machine processor time is more reliable than the clock
        "ratio_cpu_time": mean("upstream", cpu) / mean("ours", cpu),
        "ours_frames_per_second": frames / mean("ours", wall),
        "upstream_frames_per_second": frames / mean("upstream", wall),
        "ours_mfu": mean("ours", "mfu"),
        **{f"{name}_{f}": [r[f] for r in found[name]] for name in found for f in (wall, cpu)},
        "upstream": {k: found["upstream"][0][k] for k in ("version", "torch", "stubbed")},
    }
    say(
        f"{spec.precision}: {row['ratio']:.2f} times upstream's frames a second "
        f"({row['ratio_cpu_time']:.2f} by processor time)"
    )
    return row


def run_other(spec: Spec, python: str, folder: str, timeout: float) -> dict[str, Any]:
    """Upstream's figures, from its own interpreter."""
    names = ("dim", "depth", "heads", "dim_head", "dropout", "ff_mult", "text_num_embeds")
    config = {k: spec.config[k] for k in (*names, "text_dim", "conv_layers")}
    given, out = Path(folder, "other.json"), Path(folder, "other_out.json")
    given.write_text(json.dumps({**asdict(spec), "config": config}), encoding="utf-8")
    out.unlink(missing_ok=True)
    command = [python, str(Path(__file__).with_name("upstream.py")), str(given), str(out)]
    code, errors = run_process(command, timeout)
    if code == 0 and out.exists():
        return json.loads(out.read_text(encoding="utf-8"))
    lines = [line for line in errors.splitlines() if line.strip()]
    return {"status": "error", "note": lines[-1] if lines else f"exit status {code}"}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", help="YAML file of a run")
    source.add_argument("--preset", help="a name in nanospeech/configs: 82M, f5, 800M, …")
    made.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to it")
    made.add_argument("--batch", type=int, help="samples (default: as many as the run may have)")
    made.add_argument("--frames", type=int, help="mel frames a sample (default: data.max_duration)")
    made.add_argument("--precision", choices=("no", "bf16", "fp16"), help="instead of the run's")
    made.add_argument("--steps", type=int, default=50, help="steps to do (default: 50)")
    made.add_argument("--last", type=int, default=10, help="of them to time (default: 10)")
    made.add_argument("--cpu", action="store_true", help="leave GPUs alone")
    made.add_argument("--threads", type=int, help="CPU threads of each process")
    made.add_argument("--memory", type=float, help="GB that a process may take (CPU)")
    made.add_argument("--timeout", type=float, default=1800, help="seconds for each process")
    made.add_argument("--autotune-batch", action="store_true", help="find the largest batch first")
    made.add_argument("--ablate", nargs="*", metavar="KEY=A,B", help="run a grid of settings")
    made.add_argument("--out", default="runs/bench", help="folder for the grid's table and picture")
    made.add_argument("--upstream", metavar="PYTHON", help="compare with nanospeech 0.0.6")
    made.add_argument("--rounds", type=int, default=2, help="turns of each (with --upstream)")
    return made


def bench(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments as a document."""
    path = args.config or str(ROOT / "nanospeech" / "configs" / f"{args.preset}.yaml")
    spec = specify(path, args)
    document: dict[str, Any] = {"config": path}
    if args.autotune_batch:
        best, document["tried"] = autotune(spec, args.timeout)
        spec = replace(spec, batch=best)
    document["spec"] = asdict(spec)
    if args.upstream:
        document["upstream"] = compare(spec, args.upstream, args)
    elif args.ablate is not None:
        rows = ablate(spec, parse_grid(args.ablate), Path(args.out), args.timeout, say)
        document.update(cells=rows, table=f"{args.out}/cells.csv", picture=f"{args.out}/cells.png")
    else:
        document["result"] = run_cell(spec, args.timeout)
        say(summary(document["result"]))
    return document


@command
def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    document = bench(parser().parse_args(argv))
    print(json.dumps({**document, **surroundings("scripts.benchmarks.train", argv)}))
    failed = document.get("result", {}).get("status", "ok") != "ok"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
