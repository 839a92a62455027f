"""Curate's report: speakers of a data set, their hours and sources, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from nanospeech.corpus.layouts import Sample, Skip
from nanospeech.corpus.skips import examples

SIDES = ("train", "heldout")


class Speakers:
    """Counts of each speaker: clips and seconds by side, sources, licences, reasons of drops."""

    def __init__(self, max_hours: float | None = None, unnamed: str | None = None):
        self.max_hours, self.unnamed = max_hours, unnamed
        self.seconds: dict[str, dict[str, float]] = {}
        self.clips: dict[str, Counter] = {}
        self.about: dict[str, dict[str, dict[str, float]]] = {}
        self.dropped: dict[str, Counter] = {}

    def name(self, sample: Sample) -> str:
        """Of the sample's speaker."""
        return sample.speaker or self.unnamed or "unknown"

    def full(self, sample: Sample) -> bool:
        """Whether the sample's speaker has reached --max-hours."""
        most = self.max_hours
        return most is not None and self.seconds.get(self.name(sample), {}).get("train", 0) >= (
            3600 * most
        )

    def keep(self, sample: Sample, seconds: float, side: str) -> None:
        """Counts a clip that was written."""
        name = self.name(sample)
        add(self.seconds.setdefault(name, {}), side, seconds)
        self.clips.setdefault(name, Counter())[side] += 1
        for kind in ("source", "license"):
            about = self.about.setdefault(name, {}).setdefault(kind, {})
            add(about, str(sample.extra.get(kind) or "unknown"), seconds)

    def drop(self, sample: Sample, reason: str) -> None:
        """Counts a clip that was left out."""
        self.dropped.setdefault(self.name(sample), Counter())[reason] += 1

    def summary(self) -> dict[str, Any]:
        """By name: clips and hours of both sides, hours by source and licence, what was dropped."""
        out = {}
        for name in sorted({*self.clips, *self.dropped}):
            clips, seconds = self.clips.get(name, {}), self.seconds.get(name, {})
            about = self.about.get(name, {})
            out[name] = {
                **{f"{side}_clips": clips.get(side, 0) for side in SIDES},
                **{f"{side}_hours": round(seconds.get(side, 0) / 3600, 4) for side in SIDES},
                **{k: {v: round(s / 3600, 4) for v, s in c.items()} for k, c in about.items()},
                "dropped": dict(self.dropped.get(name, {})),
            }
        return out


def add(sums: dict[str, float], name: str, seconds: float) -> None:
    sums[name] = sums.get(name, 0.0) + seconds


def table(summary: dict[str, Any], skips: Sequence[Skip]) -> str:
    """The summary for people: a row a speaker, then the reasons, each with examples."""
    lines = [f"{'speaker':24} {'train':>14} {'held out':>14}  dropped"]
    for name, s in summary["speakers"].items():
        sides = [f"{s[f'{side}_clips']:6} {s[f'{side}_hours']:5.2f} h" for side in SIDES]
        lines.append(f"{name[:24]:24} {sides[0]:>14} {sides[1]:>14}  {sum(s['dropped'].values())}")
    lines += [f"dropped {line}" for line in examples(skips)]
    return "\n".join(lines)
