"""Report: the figures of each row, a table, pictures. Measures nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from nanospeech.engine.sampling import EVALUATIONS
from nanospeech.errors import InputError, reason
from nanospeech.measure.wer import rate
from nanospeech.pictures import pyplot

from .pages import cell as in_table
from .results import Result

MEANS = ("similarity", "target_similarity", "ovrl", "sig", "bak", "p808", "duration_error")
LENGTHS = ((1, 2), (3, 5), (6, 8), (9, 11), (12, 15), (16, 20), (21, 999))  # words of a sentence


def percent(x: float) -> str:
    return f"{100 * x:.2f} %"


# columns of the table: heading, and how the figure is written
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "steps": ("steps", str),
    "utterances": ("utterances", str),
    "wer": ("WER", percent),
    "cer": ("CER", percent),
    "similarity": ("similarity", "{:.3f}".format),
    "target_similarity": ("similarity to target", "{:.3f}".format),
    "ovrl": ("DNSMOS OVRL", "{:.2f}".format),
    "sig": ("SIG", "{:.2f}".format),
    "bak": ("BAK", "{:.2f}".format),
    "p808": ("P808", "{:.2f}".format),
    "duration_error": ("duration error", percent),
    "rtf": ("RTF", "{:.3f}".format),
    "leaking": ("leaks", str),
}


def figures(results: Sequence[Result], metrics: Iterable[str]) -> dict[str, Any]:
    """The figures of utterances taken together: error rates over the corpus, means, RTF.

    Returns:
        Only what was measured. "leaking" counts utterances in which a word of the prompt is heard.
    """
    metrics = set(metrics)
    found: dict[str, Any] = {"utterances": len(results)}
    heard = [r for r in results if r.words is not None]
    if any(r.words for r in heard) and "wer" in metrics:  # "Hmm." has none
        found |= {
            "words": sum(r.words or 0 for r in heard),
            "edits": sum(r.edits or 0 for r in heard),
            "wer": round(rate((r.edits or 0, r.words or 0) for r in heard), 4),
            "cer": round(rate((r.char_edits or 0, r.chars or 0) for r in heard), 4),
            "perfect": sum(r.edits == 0 for r in heard),
            "over_half_wrong": sum((r.wer or 0) > 0.5 for r in heard),
        }
    wanted = {"similarity": MEANS[:2], "dnsmos": MEANS[2:6], "duration": MEANS[6:]}
    for name in (n for metric, names in wanted.items() if metric in metrics for n in names):
        values = [v for r in results if (v := getattr(r, name)) is not None]
        if values:
            found[name] = round(fmean(values), 4)
            if name in ("similarity", "target_similarity"):
                found[f"lowest_{name}"] = min(values)
            if name == "duration_error":
                found["largest_duration_error"] = max(values)
    seconds = sum(r.seconds or 0 for r in results)
    found["audio_seconds"] = round(seconds, 2)
    timed = [r for r in results if r.compute_seconds is not None]
    if timed and "rtf" in metrics:
        compute = sum(r.compute_seconds or 0 for r in timed)
        found["compute_seconds"] = round(compute, 2)
        found["rtf"] = round(compute / max(sum(r.seconds or 0 for r in timed), 1e-9), 4)
    leaks = [r for r in results if r.leaks is not None]
    if leaks and "leak" in metrics:
        found["leaks"] = sum(r.leaks or 0 for r in leaks)
        found["leaking"] = sum(bool(r.leaks) for r in leaks)
    return found


def summarize(
    results: Sequence[Result], metrics: Sequence[str], method: str, skipped: int = 0
) -> list[dict]:
    """A row for each name and number of steps.

    Args:
        method: of the solver.
        skipped: steps that need no evaluation.

    Returns:
        Rows with their figures: means over the seeds where there are several (counts are sums),
        "by_seed" each seed's own, "spread" the standard deviation between seeds.
    """
    groups: dict[tuple[str, int | None], list[Result]] = {}
    for r in results:
        groups.setdefault((r.name, r.steps), []).append(r)
    rows = []
    for (name, steps), group in groups.items():
        row: dict[str, Any] = {"name": name, "steps": steps}
        if steps is not None:
            row["evaluations"] = (steps - skipped) * EVALUATIONS[method]
        row |= figures(group, metrics)
        seeds = sorted({r.seed for r in group if r.seed is not None})
        if len(seeds) > 1:
            each = {str(s): figures([r for r in group if r.seed == s], metrics) for s in seeds}
            row["by_seed"] = each
            row["spread"] = spread = {}
            for figure in ("wer", "cer", "rtf", *MEANS):
                values = [f[figure] for f in each.values() if figure in f]
                if len(values) > 1:
                    row[figure] = round(fmean(values), 4)
                    spread[figure] = round(stdev(values), 4)
        rows.append(row)
    return rows


def read_compared(paths: Sequence[Path]) -> list[dict]:
    """The rows of earlier summary.json files, each named after its folder too.

    Raises:
        InputError: one is no such file.
    """
    rows = []
    for path in paths:
        path = path / "summary.json" if path.is_dir() else path
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["rows"]
            rows += [row | {"name": f"{row['name']} ({path.parent.name})"} for row in found]
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise InputError(
                f"{path} is no summary.json of nanospeech evaluate: {reason(e)}"
            ) from e
    return rows


def table(rows: Sequence[dict]) -> str:
    """Markdown: a row each, and only columns in which something was measured."""
    names = [n for n in COLUMNS if any(row.get(n) is not None for row in rows)]
    lines = [
        "| | " + " | ".join(COLUMNS[n][0] for n in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for row in rows:
        cells = []
        for n in names:
            value, write = row.get(n), COLUMNS[n][1]
            cell = "–" if value is None else write(value)
            if value is not None and n in row.get("spread", {}):
                cell = cell.replace(" %", "") + f" ± {write(row['spread'][n])}"
            if n == "leaking" and value is not None:
                cell = f"{value} of {row['utterances']}"
            cells.append(cell)
        lines.append(f"| {in_table(row['name'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_length(results: Iterable[Result]) -> dict[tuple[int, int], tuple[float, int]]:
    """Error rate, and number, of sentences of each class of length in words."""
    found = {}
    results = [r for r in results if r.words]
    for low, high in LENGTHS:
        group = [r for r in results if low <= len(r.text.split()) <= high]
        if group:
            wer = rate((r.edits or 0, r.words or 0) for r in group)
            found[low, high] = wer, len(group)
    return found


def draw(folder: Path, results: Sequence[Result], rows: Sequence[dict]) -> list[Path]:
    """Pictures: WER by length of sentence; quality against network evaluations.

    Returns:
        What was drawn; the second only where there are several numbers of evaluations.

    Raises:
        BackendError: matplotlib is not installed.
    """
    pyplot()  # before anything is drawn
    drawn = []
    if any(r.words for r in results):
        drawn.append(draw_lengths(folder / "wer_by_length.png", results))
    several = {r["evaluations"] for r in rows if "evaluations" in r}
    if len(several) > 1:
        drawn.append(draw_steps(folder / "quality_by_evaluations.png", rows))
    return drawn


def draw_lengths(path: Path, results: Sequence[Result]) -> Path:
    """A line for each row of the table: WER over the words in a sentence."""
    plt = pyplot()

    groups: dict[str, list[Result]] = {}
    for r in results:
        several = len({o.steps for o in results if o.name == r.name}) > 1
        groups.setdefault(f"{r.name}, {r.steps} steps" if several else r.name, []).append(r)
    figure, axis = plt.subplots(figsize=(7, 4), constrained_layout=True)
    for name, group in groups.items():
        found = by_length(group)
        places = [LENGTHS.index(length) for length in found]
        axis.plot(places, [100 * wer for wer, _ in found.values()], "o-", label=name)
    labels = [f"{a}–{b}" if b < 999 else f"{a}+" for a, b in LENGTHS]
    axis.set_xticks(range(len(LENGTHS)), labels)
    axis.set_xlim(-0.5, len(LENGTHS) - 0.5)
    axis.set(xlabel="words in the sentence", ylabel="WER, %", ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def draw_steps(path: Path, rows: Sequence[dict]) -> Path:
    """WER, DNSMOS and RTF over the network's evaluations, as far as they were measured."""
    plt = pyplot()

    rows = sorted((r for r in rows if "evaluations" in r), key=lambda r: r["evaluations"])
    shown = [n for n in ("wer", "ovrl", "similarity", "rtf") if any(n in r for r in rows)]
    figure, axes = plt.subplots(
        1, max(1, len(shown)), figsize=(4 * max(1, len(shown)), 3.6), constrained_layout=True
    )
    for axis, figure_name in zip([axes] if len(shown) < 2 else axes, shown):
        for name in dict.fromkeys(r["name"] for r in rows):
            own = [r for r in rows if r["name"] == name and figure_name in r]
            axis.errorbar(
                [r["evaluations"] for r in own],
                [r[figure_name] for r in own],
                [r.get("spread", {}).get(figure_name, 0) for r in own],
                fmt="o-",
                capsize=3,
                label=name,
            )
        axis.set(xlabel="network evaluations", title=COLUMNS[figure_name][0])
        axis.grid(alpha=0.3)
    figure.axes[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
