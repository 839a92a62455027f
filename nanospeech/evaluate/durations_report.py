"""The report of evaluate durations: errors by speaker, a table, a picture. Predicts nothing."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.files import write_json
from nanospeech.pictures import pyplot
from nanospeech.speech.speaker import DURATIONS

from .pages import cell, put_between

MARKERS = "<!-- durations -->", "<!-- /durations -->"
NAMES = {
    "rule": "bytes rule",
    "tokens": "token durations",
    "model": "duration model",
    "both": "mean of the two",
}
LIMIT = 0.3  # of the error of any clip
FEW = 8  # speakers with fewer clips are one group


@dataclass(frozen=True)
class Row:
    """The true and predicted seconds of a clip; a field for each source of durations."""

    key: str
    speaker: str
    prompt: str
    text: str
    seconds: float
    rule: float
    tokens: float | None = None
    model: float | None = None
    both: float | None = None

    def error(self, how: str) -> float:
        """Relative error of a prediction; negative where it is too short."""
        return getattr(self, how) / self.seconds - 1


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by speaker (speakers with few clips are one group), and all rows."""
    count = Counter(r.speaker for r in rows)
    names = sorted(s for s in count if count[s] >= FEW)
    parts = {name: [r for r in rows if r.speaker == name] for name in names}
    if rest := [r for r in rows if count[r.speaker] < FEW]:
        parts[f"{len({r.speaker for r in rest})} others"] = rest
    return {**parts, "all": rows}


def summarize(rows: list[Row], ways: Sequence[str]) -> dict[str, Any]:
    """Errors of each group by each way, as shares."""
    found: dict[str, Any] = {}
    for name, part in groups(rows).items():
        found[name] = {"clips": len(part), "seconds": round(sum(r.seconds for r in part), 1)}
        for how in ways:
            errors = np.array([r.error(how) for r in part])
            size = np.abs(errors)
            found[name][how] = {
                "mean": round(float(size.mean()), 4),
                "p95": round(float(np.quantile(size, 0.95)), 4),
                "worst": round(float(size.max()), 4),
                "bias": round(float(errors.mean()), 4),
                "over_limit": int((size > LIMIT).sum()),
            }
    return found


def table(summary: dict[str, Any], ways: Sequence[str]) -> str:
    """The summary in Markdown."""
    head = [f"{NAMES[w]}: mean, 95th, worst" for w in ways]
    lines = ["| speaker | clips | " + " | ".join(head) + " |", "|---|---|" + "---|" * len(ways)]
    for name, part in summary.items():
        cells = [
            f"{100 * part[w]['mean']:.1f} %, {100 * part[w]['p95']:.0f} %,"
            f" {100 * part[w]['worst']:.0f} %"
            for w in ways
        ]
        lines.append(f"| {cell(name)} | {part['clips']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def like_rule(rows: Sequence[Row], ways: Sequence[str]) -> list[str]:
    """Warnings of sources whose predictions are the rule's for at least half of the clips.

    An estimate that is far off the rule is not spoken by, and the rule's stands in its place.
    """
    found = []
    for how in ways:
        same = sum(r.rule == getattr(r, how) for r in rows)
        if how != "rule" and 2 * same >= len(rows):
            found.append(
                f"warning: {NAMES[how]}: {same} of {len(rows)} predictions are the bytes rule's, as"
                " the model's own are too far off it to be spoken by; is it trained?"
            )
    return found


def picture(rows: list[Row], ways: Sequence[str], path: Path) -> None:
    """Plots predicted against true seconds, a panel for each source of durations.

    Raises:
        BackendError: matplotlib is not installed.
    """
    plt = pyplot()

    figure, axes = plt.subplots(
        1, len(ways), figsize=(4.4 * len(ways), 4.4), squeeze=False, constrained_layout=True
    )
    low, high = 0.3, 1.2 * max(r.seconds for r in rows)
    for axis, how in zip(axes[0], ways):
        axis.fill_between(
            [low, high], [low * 0.7, high * 0.7], [low * 1.3, high * 1.3], color="0.93"
        )
        axis.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        for name, part in groups(rows).items():
            if name != "all":
                points = [r.seconds for r in part], [getattr(r, how) for r in part]
                axis.scatter(*points, s=12, alpha=0.7, label=name)
        mean = 100 * np.mean([abs(r.error(how)) for r in rows])
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axis.set(title=f"{NAMES[how]}: mean error {mean:.1f} %", xlabel="true seconds")
        ticks = [t for t in (0.5, 1, 2, 4, 8, 16) if t < high]
        for side in (axis.xaxis, axis.yaxis):
            side.set_ticks(ticks, [f"{t:g}" for t in ticks])
            side.set_ticks([], minor=True)
    axes[0][0].set_ylabel("predicted seconds")
    axes[0][0].legend(fontsize=7, loc="upper left")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def write_report(
    out: Path, document: dict[str, Any], rows: list[Row], ways: Sequence[str], page: Path | None
) -> None:
    """Writes durations.csv, .json and .png and table.md, and the table into a page."""
    with (out / "durations.csv").open("w", newline="", encoding="utf-8") as f:
        names = [n for n in Row.__dataclass_fields__ if n not in DURATIONS or n in ways]
        writer = csv.DictWriter(f, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(asdict(r) for r in rows)
    write_json(out / "durations.json", document)
    text = table(document["groups"], ways)
    (out / "table.md").write_text(text, "utf-8")
    if page:
        put_between(page, *MARKERS, f"\n{text}")
    picture(rows, ways, out / "durations.png")
    print(text)


def tell_worst(rows: Sequence[Row], ways: Sequence[str], count: int) -> None:
    """Prints the clips of the greatest errors of the last source."""
    for r in sorted(rows, key=lambda r: -abs(r.error(ways[-1])))[:count]:
        predicted = ", ".join(f"{how} {getattr(r, how):.2f}" for how in ways)
        error = f"{r.error(ways[-1]):+.0%} {r.speaker} {r.key}: {r.seconds:.2f} s"
        print(f"{error}, {predicted}: {r.text}")
