"""Cells: benchmarks in processes of their own, one after another; tables and pictures of them."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError
from nanospeech.files import whole
from nanospeech.pictures import pyplot

from .worker import OUT_OF_MEMORY, Spec

ROOT = Path(__file__).parents[2]
GRID = {
    "parallel": ["1x1x1"],
    "compile": ["off", "default"],
    "checkpoint": ["0", "2", "1", "ops"],
    "precision": ["no", "bf16"],
    "batch": [],
}
FIGURES = (
    "status",
    "seconds_per_step",
    "frames_per_second",
    "audio_seconds_per_second",
    "mfu",
    "peak_memory",
    "reserved_share",
    "note",
)


def run_cell(spec: Spec, timeout: float) -> dict[str, Any]:
    """The figures of one configuration, measured in a fresh process.

    Returns:
        {"status": "ok", …figures}, or "oom", "timeout" or "error" with a "note".
    """
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder, "spec.json"), Path(folder, "out.json")
        given.write_text(json.dumps(asdict(spec)), encoding="utf-8")
        command = [sys.executable]
        if spec.processes > 1:
            command += ["-m", "torch.distributed.run", "--standalone"]
            command += ["--nproc-per-node", str(spec.processes)]
        command += ["-m", "scripts.benchmarks.worker", str(given), str(out)]
        code, errors = run_process(command, timeout)
        if code is None:
            return {"status": "timeout", "note": f"not done in {timeout:.0f} s"}
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8"))
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if killed or any(sign in errors.lower() for sign in OUT_OF_MEMORY):
        return {"status": "oom", "note": "killed" if killed else "allocation failed"}
    lines = [line for line in errors.splitlines() if line.strip()]
    return {"status": "error", "note": (lines[-1] if lines else f"exit status {code}")[:300]}


def run_process(command: list[str], timeout: float) -> tuple[int | None, str]:
    """Exit status (None: it took too long) and standard error; its children end with it."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    try:
        _, errors = process.communicate(timeout=timeout)
        return process.returncode, errors
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def largest(fits: Callable[[int], bool], start: int = 1, most: int = 4096) -> int:
    """The largest batch that fits, if all smaller ones do: doubling, then bisection; 0 for none."""
    good, bad = 0, most + 1
    size = start
    while bad - good > 1:
        if fits(size):
            good = size
        else:
            bad = size
        size = min(good * 2, most) if bad == most + 1 else (good + bad) // 2
    return good


def parse_grid(choices: list[str]) -> dict[str, list[str]]:
    """["precision=no,bf16", …] as lists; what is not named stays as configured.

    Raises:
        InputError: not KEY=VALUE,VALUE or an unknown key.
    """
    if not choices:
        return {k: v for k, v in GRID.items() if v}
    grid = {}
    for choice in choices:
        key, equals, values = choice.partition("=")
        if not equals or key not in GRID:
            raise InputError(f"--ablate {choice!r} should be KEY=A,B with KEY of {', '.join(GRID)}")
        grid[key] = values.split(",")
    return grid


def with_choice(spec: Spec, key: str, value: str) -> Spec:
    """The configuration with one setting of the grid.

    Raises:
        InputError: the value is malformed.
    """
    try:
        if key == "parallel":
            replicate, shard, tensor = (int(n) for n in value.split("x"))
            return replace(spec, parallel=(replicate, shard, tensor))
        if key == "checkpoint":
            ops = value == "ops"
            return replace(spec, checkpoint_interval=0 if ops else int(value), checkpoint_ops=ops)
        if key == "batch":
            return replace(spec, batch=int(value))
    except ValueError:
        raise InputError(
            f"--ablate {key}={value}: parallel is REPLICATExSHARDxTENSOR, checkpoint a number or "
            "ops, batch a number"
        ) from None
    return replace(spec, **{key: value})


def cells(spec: Spec, grid: dict[str, list[str]]) -> list[tuple[dict[str, str], Spec]]:
    """All combinations: the choices made, and the configuration."""
    found = []
    for values in itertools.product(*grid.values()):
        chosen, changed = dict(zip(grid, values)), spec
        for key, value in chosen.items():
            changed = with_choice(changed, key, value)
        found.append((chosen, changed))
    return found


def ablate(
    spec: Spec, grid: dict[str, list[str]], folder: Path, timeout: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Runs a grid, a row of cells.csv each; cells that are there already are not run again.

    A cell that fails, times out or runs out of memory has a row with that status.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "cells.csv"
    known = {row["id"]: row for row in read_csv(table)}
    rows: list[dict[str, Any]] = []
    for chosen, changed in cells(spec, grid):
        text = json.dumps(asdict(changed), sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        row = known.get(name)
        if row is None or row["status"] not in ("ok", "oom"):
            figures = run_cell(changed, timeout)
            row = {"id": name, **chosen, **{k: figures.get(k, "") for k in FIGURES}}
            known[name] = row
            write_csv(table, list(known.values()))
        say(", ".join(f"{k} {v}" for k, v in chosen.items()) + ": " + summary(row))
        rows.append(row)
    draw(rows, list(grid), folder / "cells.png")
    return rows


def summary(row: dict[str, Any]) -> str:
    """A cell's figures on a line."""
    if row["status"] != "ok":
        return f"{row['status']}: {row.get('note', '')}"
    return (
        f"{float(row['frames_per_second']):,.0f} frames/s, MFU {float(row['mfu']):.1f} %, "
        f"{float(row['peak_memory']) / 1e9:.2f} GB"
    )


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows of a table, if it is there."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes a table whole or not at all."""
    names = ["id", *[k for k in GRID if any(k in r for r in rows)], *FIGURES]
    with whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def draw(rows: list[dict[str, Any]], keys: list[str], path: Path) -> None:
    """Bars of frames a second and of memory."""
    plt = pyplot()

    labels = [", ".join(f"{k} {row[k]}" for k in keys) for row in rows]
    figure, axes = plt.subplots(
        1, 2, figsize=(10, 1 + 0.3 * len(rows)), sharey=True, constrained_layout=True
    )
    for axis, name, unit in (
        (axes[0], "frames_per_second", 1.0),
        (axes[1], "peak_memory", 1e9),
    ):
        values = [float(r[name]) / unit if r["status"] == "ok" else 0.0 for r in rows]
        axis.barh(range(len(rows)), values, color="tab:blue" if unit == 1 else "tab:orange")
        for y, row in enumerate(rows):
            if row["status"] != "ok":
                axis.text(0, y, f" {row['status']}", va="center", color="tab:red")
    axes[0].set(xlabel="frames a second", yticks=range(len(rows)), yticklabels=labels)
    axes[0].invert_yaxis()
    axes[1].set(xlabel="peak memory, GB")
    figure.savefig(path, dpi=130)
    plt.close(figure)
