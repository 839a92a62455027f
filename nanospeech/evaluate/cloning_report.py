"""What came of an evaluation of cloning: a table, a picture and a summary. Measures nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.files import write_json
from nanospeech.pictures import pyplot

from .pages import cell


def summarize(rows: Iterable[Any]) -> dict[str, Any]:
    """Means over utterances: WER (of all words), similarity, right speaker nearest, leaks."""
    rows = list(rows)
    return {
        "utterances": len(rows),
        "wer": round(sum(r.edits for r in rows) / max(1, sum(r.words for r in rows)), 4),
        "similarity": round(float(np.mean([r.similarity for r in rows])), 4),
        "nearest": round(float(np.mean([r.nearest == r.speaker for r in rows])), 4),
        "leaks": sum(bool(r.leaked) for r in rows),
    }


def write(rows: Sequence[Any], people: Sequence[str], out: Path) -> dict[str, Any]:
    """Writes cloning.md, cloning.json and cloning.png; returns the summary."""
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.prompt, row.speaker].append(row)
        groups[row.prompt, "all"].append(row)
    cells = {key: summarize(found) for key, found in groups.items()}
    prompts = sorted(dict.fromkeys(prompt for prompt, _ in cells), key=place)
    lines = [
        f"Nearest of {len(people)}: {', '.join(people)}.",
        "",
        "| prompt | speaker | utterances | similarity | nearest | WER | prompt heard |",
        "|---|---|---|---|---|---|---|",
    ]
    for prompt in prompts:
        names = sorted(name for p, name in cells if p == prompt and name != "all")
        for name in [*names, "all"]:
            c = cells[prompt, name]
            lines.append(
                f"| {prompt} | {cell(name)} | {c['utterances']} | {c['similarity']:.3f} "
                f"| {100 * c['nearest']:.0f} % | {100 * c['wer']:.1f} % | {c['leaks']} |"
            )
    (out / "cloning.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    summary = {p: {n: c for (q, n), c in cells.items() if q == p} for p in prompts}
    write_json(out / "cloning.json", summary, indent=2)
    draw(summary, out / "cloning.png")
    return summary


def place(prompt: str) -> tuple[int, float, str]:
    """Where a kind of prompt stands: clean, then seconds from short to long, then the others."""
    seconds = prompt.replace(".", "", 1).isdecimal()
    return (0 if prompt == "clean" else 1 if seconds else 2), float(seconds and prompt), prompt


def draw(summary: dict[str, Any], path: Path) -> None:
    """Similarity and word error rate of each prompt, over all speakers, as bars."""
    plt = pyplot()
    names = list(summary)
    width = max(8, 1.2 * len(names))  # inches: names stand side by side
    figure, axes = plt.subplots(1, 2, figsize=(width, 3), layout="constrained")
    parts = (("similarity", "similarity to the speaker", 1.0), ("wer", "word error rate (%)", 100))
    for axis, (measure, label, scale) in zip(axes, parts):
        values = [summary[name]["all"][measure] * scale for name in names]
        axis.bar([f"{n} s" if place(n)[0] == 1 else n for n in names], values)
        axis.tick_params(axis="x", labelsize=7)
        axis.set_title(label, fontsize=10)
        axis.bar_label(axis.containers[0], fmt="%.2f" if scale == 1.0 else "%.1f", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
