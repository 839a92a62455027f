"""Steps report: what a sweep of steps.py found, as figures, table and picture. Speaks nothing."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from nanospeech.pictures import pyplot

from .pages import put_between

LINES = ("student", "euler", "uniform", "midpoint", "rk4")
LINES += ("cfg-zero", "interval", "strength", "temperature")
SOLVERS = {
    "student": "student, Euler",
    "euler": "Euler, EPSS",
    "uniform": "Euler, uniform",
    "midpoint": "midpoint, EPSS",
    "rk4": "RK4, EPSS",
}
SETTINGS = {"strength": "cfg_strength", "temperature": "temperature"}  # line -> what it varies
CURVE = ("euler", "uniform")  # the lines whose knee is looked for
BEGIN, END = "<!-- steps: begin -->", "<!-- steps: end -->"
# The most that counts as noise, however few sentences there are: of WER, and of DNSMOS
CAPS = {"wer": 0.01, "dnsmos": 0.05}
RULE = (
    "The knee is the fewest evaluations of Euler, on either time grid, whose WER and DNSMOS are"
    " each no worse than the best such row's by more than two standard errors of the difference"
    " (sentence by sentence), nor by more than 1 point of WER or 0.05 of DNSMOS."
)


def summarize(cells: Sequence[Any], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A dictionary a cell, over the sentences (and seeds) that every cell has spoken.

    Args:
        cells: steps_cells.Cell.
        rows: steps.Row.

    Returns:
        line, options, evaluations, forwards, utterances, wer, dnsmos, rtf, their standard errors,
        and knee: whether RULE picks this one. Empty if no sentence is there in all cells.
    """
    by_cell: dict[str, dict[tuple[int, str], Any]] = {}
    for row in rows:
        by_cell.setdefault(row.key, {})[row.seed, row.text] = row
    common = set.intersection(*(set(by_cell.get(c.key, ())) for c in cells)) if cells else set()
    if not common:
        return []
    units = sorted(common)
    results = []
    for cell in cells:
        spoken = [by_cell[cell.key][unit] for unit in units]
        words = [r.words for r in spoken]
        edits, marks = [r.edits for r in spoken], [r.dnsmos for r in spoken]
        results.append(
            {
                "line": cell.line,
                "options": cell.options,
                "evaluations": len(cell.times),
                "forwards": cell.forwards,
                "utterances": len(spoken),
                "wer": sum(edits) / sum(words),
                "wer_error": ratio_error(edits, words),
                "dnsmos": fmean(marks),
                "dnsmos_error": standard_error(marks),
                "rtf": sum(r.cost for r in spoken) / sum(r.seconds for r in spoken),
                "knee": False,
                "words": words,
                "each": {"wer": edits, "dnsmos": [-m for m in marks]},  # less is better
            }
        )
    if found := knee([r for r in results if r["line"] in CURVE]):
        found["knee"] = True
    return results


def standard_error(values: Sequence[float]) -> float:
    """Of their mean; 0 for a single one."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def ratio_error(edits: Sequence[float], words: Sequence[int]) -> float:
    """Standard error of sum(edits) / sum(words), each pair a sentence, by the delta method.

    Long sentences have more edits and more words, and that alone makes no ratio uncertain.
    """
    ratio = sum(edits) / sum(words)
    rest = [e - ratio * w for e, w in zip(edits, words)]
    return standard_error(rest) * len(rest) / sum(words)


def knee(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The result that RULE picks, or None where there are none."""
    for result in sorted(results, key=lambda r: (r["evaluations"], r["wer"])):
        if all(near_the_best(result, results, measure) for measure in CAPS):
            return result
    return None


def near_the_best(result: dict, results: Sequence[dict], measure: str) -> bool:
    """Whether a result is as good as the best by one measure, but for noise (see RULE)."""
    best = min(results, key=lambda r: sum(r["each"][measure]))
    more = [a - b for a, b in zip(result["each"][measure], best["each"][measure])]
    words = result["words"] if measure == "wer" else [1] * len(more)
    noise = min(2 * ratio_error(more, words), CAPS[measure])
    return sum(more) / sum(words) <= noise + 1e-9


def write_csv(results: Sequence[dict[str, Any]], path: Path) -> None:
    """A row a cell, its options included."""
    names = ("line", "method", "steps", "evaluations", "forwards", "cfg_strength", "guidance")
    names += ("zero_init", "cfg_from", "cfg_until", "cfg_rescale", "temperature", "utterances")
    names += ("wer", "wer_error", "dnsmos", "dnsmos_error", "rtf", "knee")
    with path.open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(names)
        for r in results:
            values = [r[n] if n in r else getattr(r["options"], n) for n in names]
            writer.writerow([round(v, 4) if isinstance(v, float) else v for v in values])


def label(result: dict[str, Any]) -> str:
    """What distinguishes a cell, in words."""
    o, line = result["options"], result["line"]
    if line in SOLVERS:
        return SOLVERS[line]
    if line == "cfg-zero":
        return f"CFG-Zero*, {o.steps} steps, {o.zero_init} of them zero"
    if line == "interval":
        return f"guided from {o.cfg_from:g} until {o.cfg_until:g}"
    if line == "temperature":
        return f"temperature {o.temperature:g}"
    return f"strength {o.cfg_strength:g}"


def table(results: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| | evaluations | forward passes | WER, % | DNSMOS | RTF |",
        "|---|---|---|---|---|---|",
    ]
    for r in results:
        name = label(r) + (" (**knee**)" if r["knee"] else "")
        lines.append(
            f"| {name} | {r['evaluations']} | {r['forwards']}"
            f" | {100 * r['wer']:.1f} ± {100 * r['wer_error']:.1f}"
            f" | {r['dnsmos']:.2f} ± {r['dnsmos_error']:.2f} | {r['rtf']:.3f} |"
        )
    count = results[0]["utterances"]
    lines += ["", f"{count} utterances a row; ± is a standard error. {RULE}"]
    return "\n".join(lines)


def insert(text: str, page: Path, folder: Path) -> None:
    """Puts a table, and the picture of a folder, between the markers of a page.

    Raises:
        InputError: the page lacks them.
    """
    near = Path(os.path.relpath(folder, page.parent)).as_posix()
    picture = (
        f"![WER, DNSMOS and RTF against evaluations, strength and temperature]({near}/steps.png)"
    )
    figures = f"The figures: [steps.csv]({near}/steps.csv)."
    put_between(page, BEGIN, END, "\n\n".join(("", picture, text, figures, "")))


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """WER, DNSMOS and RTF against evaluations, a line a solver; below against other settings.

    A row of pictures whose lines were not swept is left out.
    """
    plt = pyplot()

    swept = {r["line"] for r in results}
    settings = {line: across for line, across in SETTINGS.items() if line in swept}
    rows = 1 + len(settings)
    size = (12, 3.4 * rows)
    figure, axes = plt.subplots(rows, 3, figsize=size, constrained_layout=True, squeeze=False)
    labels = {"wer": "WER, %", "dnsmos": "DNSMOS OVRL", "rtf": "RTF"}
    chosen = next((r for r in results if r["knee"]), None)
    for column, (measure, label) in enumerate(labels.items()):
        top = axes[0, column]
        for line, name in (SOLVERS | {"cfg-zero": "CFG-Zero*"}).items():
            found = sorted(
                (r for r in results if r["line"] == line), key=lambda r: r["evaluations"]
            )
            dots = "x" if line == "cfg-zero" else "o-"
            plot(top, found, "evaluations", measure, dots, name)
        if chosen:
            top.axvline(chosen["evaluations"], color="grey", linestyle=":", label="knee")
        top.set(xlabel="evaluations of the network", ylabel=label, xscale="log")
        counts = sorted({r["evaluations"] for r in results})
        shown = [n for n in (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32) if n in counts]
        top.set_xticks(shown, [str(n) for n in shown], minor=False)
        top.set_xticks([], minor=True)
        for axis, (line, across) in zip(axes[1:, column], settings.items()):
            found = [r for r in results if r["line"] == line]
            plot(axis, found, across, measure, "s-", "Euler, default steps")
            axis.set(xlabel="guidance strength" if line == "strength" else line, ylabel=label)
    for axis in axes[:, 0]:
        if axis.get_legend_handles_labels()[0]:
            axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot(axis: Any, found: Sequence[dict], across: str, measure: str, dots: str, name: str) -> None:
    """One line of points with their standard errors."""
    if not found:
        return
    scale = 100 if measure == "wer" else 1
    x = [r[across] if across in r else getattr(r["options"], across) for r in found]
    y = [scale * r[measure] for r in found]
    errors = None if measure == "rtf" else [scale * r[f"{measure}_error"] for r in found]
    axis.errorbar(x, y, errors, fmt=dots, label=name, capsize=2, markersize=4, linewidth=1)
