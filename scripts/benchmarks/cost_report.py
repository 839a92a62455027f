"""Cost report: the results of cost.py as tables, pictures and a page. Measures nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.evaluate.pages import put_between
from nanospeech.pictures import pyplot

from .parts import KINDS, PARTS, REST
from .report import Result, number

BEGIN, END = "<!-- cost: begin -->", "<!-- cost: end -->"
AXES = {
    "length": "seconds of new speech",
    "prompt": "seconds of the prompt",
    "batch": "utterances at a time",
    "size": "million weights",
    "text": "seconds of text",
}
MANY = "Speaker.speak_many, texts at a time"
COLOURS = {"torch": "tab:orange", "mlx": "tab:blue", "onnx": "tab:green"}
PICTURES = {
    "cost.png": "RTF and memory against length, prompt, batch, size and the length of a text",
    "batch.png": "seconds of speech made in a second, against the batch",
    "parts.png": "where the time goes",
}


def memory(result: Result) -> float | None:
    """Megabytes of the process, or of the GPU where that computes."""
    on_gpu = result.about.get("device", "cpu") != "cpu"
    found = result.memory.get("peak_memory" if on_gpu else "resident")
    return None if found is None else found / 1e6


def text(points: Sequence[Any], profiles: Sequence[Result]) -> str:
    """Markdown: a table of all points, and one of the parts."""
    lines = [
        "| varies | | backend | RTF | floor | RTF over floor | memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for p in points:
        rtf, held = p.result.spread("rtf"), memory(p.result)
        over = f"{rtf['median'] / p.floor:.1f}" if rtf and p.floor else ""
        floor = f"{p.floor:.4f}" if p.floor else ""
        cells = [number(rtf), floor, over, f"{held:,.0f}" if held else ""]
        if p.result.note:
            cells = [f"failed: {p.result.note}".replace("|", "/"), "", "", ""]
        axis = AXES.get(p.sweep, MANY)
        how = ", ".join([p.result.cell.backend, *filter(None, [p.result.about.get("dtype")])])
        lines.append(f"| {axis} | {p.at:.3g} | {how} | {' | '.join(cells)} |")
    for result in profiles:
        parts = shares(result)
        lines += ["", f"| {result.cell.name} | {' | '.join(parts)} |"]
        lines += ["|---" * (len(parts) + 1) + "|"]
        lines += [
            f"| share of the time, % | {' | '.join(f'{100 * s:.0f}' for s in parts.values())} |"
        ]
    return "\n".join(lines)


def shares(result: Result) -> dict[str, float]:
    """What share of the time each part, or kind of operation, took."""
    wanted = PARTS if result.cell.kind == "parts" else KINDS
    found = {name: result.spread(name) for name in (*wanted, REST)}
    times = {name: s["median"] for name, s in found.items() if s}
    whole = sum(times.values()) or 1.0
    return {name: seconds / whole for name, seconds in times.items()}


def insert(tables: str, page: Path, folder: Path) -> None:
    """Puts the pictures of a folder, and the tables, between the markers of a page.

    Raises:
        InputError: the page lacks them.
    """
    near = Path(os.path.relpath(folder, page.parent)).as_posix()
    shown = [
        f"![{alt}]({near}/{name})" for name, alt in PICTURES.items() if (folder / name).exists()
    ]
    figures = f"The figures: [cost.json]({near}/cost.json)."
    put_between(page, BEGIN, END, "\n\n".join(("", *shown, tables, figures, "")))


def draw(points: Sequence[Any], profiles: Sequence[Result], folder: Path) -> None:
    """Writes those of PICTURES that there are figures for."""
    plt = pyplot()

    sweeps = [s for s in AXES if any(p.sweep == s for p in points)]
    if sweeps:
        figure, axes = plt.subplots(
            2, len(sweeps), figsize=(4 * len(sweeps), 7), squeeze=False, constrained_layout=True
        )
        for (top, below), sweep in zip(axes.T, sweeps):
            for backend in COLOURS:
                here = chosen(points, sweep, backend)
                line(top, here, rtf, backend, "o-", backend)
                line(top, here, floor, backend, "--", f"{backend}, floor")
                line(below, here, lambda p: memory(p.result), backend, "o-", backend)
            top.set(xlabel=AXES[sweep], ylabel="RTF", yscale="log")
            below.set(xlabel=AXES[sweep], ylabel="memory, MB", ylim=(0, None))
        axes[0, 0].legend()
        save(figure, folder / "cost.png")
    if any(p.sweep == "many" for p in points):
        draw_batches(points, folder / "batch.png")
    if profiles:
        draw_parts(profiles, folder / "parts.png")


def draw_batches(points: Sequence[Any], path: Path) -> None:
    """Seconds of speech a second of time, against utterances at a time."""
    plt = pyplot()

    figure, axis = plt.subplots(figsize=(6, 4), constrained_layout=True)
    for backend in COLOURS:
        for sweep, dots, title in (
            ("many", "o-", "speak_many"),
            ("batch", "x:", "model and vocoder"),
        ):
            line(axis, chosen(points, sweep, backend), speed, backend, dots, f"{backend}, {title}")
    axis.set(xlabel=AXES["batch"], ylabel="seconds of speech in a second", ylim=(0, None))
    axis.legend()
    save(figure, path)


def draw_parts(profiles: Sequence[Result], path: Path) -> None:
    """A bar for each profile, of the shares of its parts."""
    plt = pyplot()

    figure, axes = plt.subplots(
        len(profiles), 1, figsize=(8, 2.2 * len(profiles)), squeeze=False, constrained_layout=True
    )
    for axis, result in zip(axes[:, 0], profiles):
        parts = sorted(shares(result).items(), key=lambda item: item[1])
        axis.barh(
            [name for name, _ in parts],
            [100 * share for _, share in parts],
            color=COLOURS[result.cell.backend],
        )
        axis.set(title=result.cell.name, xlabel="share of the time, %")
    save(figure, path)


def rtf(point: Any) -> float | None:
    found = point.result.spread("rtf")
    return found["median"] if found else None


def floor(point: Any) -> float | None:
    return point.floor


def speed(point: Any) -> float | None:
    found = rtf(point)
    return 1 / found if found else None


def chosen(points: Sequence[Any], sweep: str, backend: str) -> list[Any]:
    """One backend's points of a sweep, in order."""
    here = [p for p in points if p.sweep == sweep and p.result.cell.backend == backend]
    return sorted(here, key=lambda p: p.at)


def line(axis: Any, points: Sequence[Any], value: Any, backend: str, dots: str, label: str) -> None:
    """A line through the points that have a value."""
    found = [(p.at, v) for p in points if (v := value(p)) is not None]
    if found:
        axis.plot(*zip(*found), dots, color=COLOURS[backend], label=label, markersize=4)


def save(figure: Any, path: Path) -> None:
    plt = pyplot()

    figure.savefig(path, dpi=110)
    plt.close(figure)
