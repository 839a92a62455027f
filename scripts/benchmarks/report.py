"""Reports of benchmarks: figures with their spread, tables and rows. Measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

from .speech import Cell

# real-time factors, and the seconds that they are made of
RATES = {
    "rtf": "seconds",
    "rtf_cpu": "cpu_seconds",
    "rtf_speech": "speech_seconds",
    "rtf_vocoder": "vocoder_seconds",
}
FIGURES = (*RATES, "first_audio", "cold_start", "help", "audio_seconds", "rate")


@dataclass
class Result:
    """The measurements of a cell.

    Attributes:
        figures: values by figure and number of round.
        memory: see serve.Work; empty until all rounds are over.
        note: the error; empty if there was none.
    """

    cell: Cell
    about: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, dict[int, float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    note: str = ""

    def add(self, number: int, values: dict[str, float]) -> None:
        """Adds the figures of a round, and the real-time factors computed from them."""
        audio = values.get("audio_seconds", 0.0)
        made = {r: values[s] / audio for r, s in RATES.items() if audio > 0 and s in values}
        for name, value in {**values, **made}.items():
            self.figures.setdefault(name, {})[number] = value

    def spread(self, figure: str) -> dict[str, float] | None:
        """Median, quartiles and count of a figure, if it was measured."""
        return spread(list(self.figures.get(figure, {}).values()))

    def document(self) -> dict[str, Any]:
        """Its entry in the JSON document."""
        cell, usual = vars(self.cell), vars(Cell())
        shown = {k: v for k, v in cell.items() if k in ("name", "kind") or v != usual[k]}
        for name in ("texts", "model", "python", "command"):  # long, or of this machine alone
            shown.pop(name, None)
        shown["status"] = "error" if self.note else "ok"
        if self.note:
            shown["note"] = self.note
        found = {name: self.spread(name) for name in FIGURES if name in self.figures}
        return {**shown, "about": self.about, "figures": found, **self.memory}


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median, quartiles (low, high) and count of some values; None of none."""
    if not values:
        return None
    low, high = values[0], values[0]
    if len(values) > 1:
        low, _, high = quantiles(values, n=4, method="inclusive")
    return {"median": median(values), "low": low, "high": high, "count": len(values)}


def ratios(base: Result, other: Result, figure: str = "rtf") -> dict[str, float] | None:
    """How many times faster another cell is than the base, over the rounds that both have."""
    a, b = base.figures.get(figure, {}), other.figures.get(figure, {})
    return spread([a[n] / b[n] for n in sorted(a.keys() & b.keys()) if b[n] > 0])


def alike(a: Result, b: Result) -> bool:
    """Whether the difference of two neighbours is that of a setting, not of a program."""
    return (a.cell.kind, a.cell.backend) == (b.cell.kind, b.cell.backend)


def all_ratios(results: Sequence[Result]) -> list[dict[str, Any]]:
    """How many times faster each cell is than the first that was measured, and the one above it."""
    measured = [r for r in results if r.figures.get("rtf")]
    found = []
    for above, result in pairwise(measured):
        row: dict[str, Any] = {"cell": result.cell.name}
        row["first"] = ratios(measured[0], result)
        if alike(above, result):
            row["above"] = ratios(above, result)
        found.append(row)
    return found


def number(found: dict[str, float] | None, digits: int = 3) -> str:
    """A median with its quartiles."""
    if found is None:
        return ""
    if found["count"] == 1:
        return f"{found['median']:.{digits}f}"
    return f"{found['median']:.{digits}f} ({found['low']:.{digits}f} to {found['high']:.{digits}f})"


def times(found: dict[str, float] | None) -> str:
    """A ratio, and over how many pairs."""
    return f"{found['median']:.2f}" if found else ""


def megabytes(result: Result, figure: str) -> str:
    """The most memory: resident, or peak_memory where that is another one."""
    memory = result.memory
    if figure == "peak_memory" and memory.get(figure) == memory.get("resident"):
        return ""
    return f"{memory[figure] / 1e6:,.0f}" if figure in memory else ""


Column = Callable[[Sequence[Result], int], str]


def shown(figure: str, digits: int = 3) -> Column:
    """A column of medians with their quartiles."""
    return lambda results, i: number(results[i].spread(figure), digits)


def against(first: bool) -> Column:
    """A column of ratios: to the first cell of all that was measured, or to the one above."""

    def column(results: Sequence[Result], i: int) -> str:
        measured = [n for n in range(len(results)) if results[n].figures.get("rtf")]
        base = min(measured, default=i) if first else i - 1
        if not 0 <= base < i or not (first or alike(results[base], results[i])):
            return ""
        return times(ratios(results[base], results[i]))

    return column


MEMORY: dict[str, Column] = {
    "process, MB": lambda results, i: megabytes(results[i], "resident"),
    "on GPU or in MLX, MB": lambda results, i: megabytes(results[i], "peak_memory"),
}
SPEAKING: dict[str, Column] = {
    "RTF": shown("rtf"),
    "speech model": shown("rtf_speech"),
    "vocoder": shown("rtf_vocoder"),
    "first audio, s": shown("first_audio"),
    "cold start, s": shown("cold_start", 2),
    "--help, s": shown("help", 2),
    **MEMORY,
    "times the first's speed": against(first=True),
}
LADDER: dict[str, Column] = {
    "RTF": shown("rtf"),
    "by processor time": shown("rtf_cpu"),
    "times the row above": against(first=False),
    "times the first": against(first=True),
    **MEMORY,
}
SPEAKING_NOTE = (
    "Medians of {repeats} rounds, in which each cell was measured once, in turn; in brackets the"
    " quartiles. RTF: seconds of work for a second of audio."
)
LADDER_NOTE = (
    "Medians of {repeats} rounds with their quartiles. RTF is over {seconds:g} s in all, the"
    " prompt's included, and without the vocoder."
)


def table(results: Sequence[Result], columns: dict[str, Column]) -> str:
    """Markdown; a cell that failed has its note."""
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for i, result in enumerate(results):
        cells = [column(results, i) for column in columns.values()]
        if result.note:
            cells[-1] = f"failed: {result.note}".replace("|", "/")
        lines.append(f"| {result.cell.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rows(table: str, surroundings: dict[str, Any]) -> str:
    """The rows of BENCHMARKS.md: those of a table, with machine and date."""
    hardware = surroundings["hardware"]
    machine = f"{hardware.get('gpu') or hardware['cpu']}, {hardware['cores']} cores"
    head, line, *rest = table.splitlines()
    added = [" machine | date |", "---|---|"]
    added += [f" {machine} | {surroundings['date']} |"] * len(rest)
    return "\n".join(a + b for a, b in zip([head, line, *rest], added))
