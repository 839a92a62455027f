"""Skips: unusable samples of a data set, counted by reason and listed."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nanospeech.corpus.layouts import Sample, Skip, find
from nanospeech.errors import DataError

EXAMPLES = 3  # names that are told for each reason


def nothing_usable(skips: Sequence[Skip], where: Iterable[Path]) -> DataError:
    if not skips:
        return DataError(f"there are no recordings in {', '.join(map(str, where))}")
    first = skips[0]
    reasons = ", ".join(f"{count} {reason}" for reason, count in by_reason(skips).items())
    return DataError(
        f"none of {len(skips)} recordings can be used: {reasons}; "
        f"the first is {first.name} ({first.reason}{': ' if first.detail else ''}{first.detail})"
    )


def find_some(
    inputs: Sequence[Path], layout: str = "auto", distinct: bool = False
) -> tuple[list[Sample], list[Skip]]:
    """layouts.find, where something has to be found.

    Raises:
        DataError: nothing can be used; says why.
    """
    samples, skips = find(inputs, layout, distinct=distinct)
    if not samples:
        raise nothing_usable(skips, inputs)
    return samples, skips


def by_reason(skips: Iterable[Skip]) -> dict[str, int]:
    return dict(Counter(skip.reason for skip in skips).most_common())


def list_skips(path: Path, skips: Sequence[Skip]) -> None:
    """Writes skipped.csv: what was left out and why; no rows where nothing was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as f:
        writer = csv.writer(f)
        writer.writerow(["name", "reason", "detail"])
        writer.writerows((s.name, s.reason, s.detail) for s in skips)


def examples(skips: Sequence[Skip]) -> list[str]:
    """A line for each reason: the count, and the first few that were left out for it."""
    lines = []
    for reason, count in by_reason(skips).items():
        first, *more = islice((skip for skip in skips if skip.reason == reason), EXAMPLES)
        detail = f" ({first.detail})" if first.detail else ""
        names = "".join(f", {skip.name}" for skip in more)
        lines.append(f"{count}: {reason}, for example {first.name}{detail}{names}")
    return lines


def tell(counts: dict[str, Any], skips: Sequence[Skip]) -> None:
    """Prints what was left out with an example of each reason, and the counts as JSON."""
    for line in examples(skips):
        print(f"skipped {line}", file=sys.stderr)
    print(json.dumps(counts | {"skipped": by_reason(skips)}))
