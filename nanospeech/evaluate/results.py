"""Results: an evaluation on disk, a row an utterance, and its settings.

results.csv is appended to after each utterance and sorted at the end, so that an interrupted run
can be resumed. Measures nothing, and draws no tables.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError
from nanospeech.files import whole

METRICS = ("wer", "similarity", "dnsmos", "duration", "rtf", "leak")


@dataclass
class Result:
    """One utterance: its text, its transcript and its figures; None if not measured.

    Attributes:
        name: of its row in the table: a voice, or what recordings were called.
        steps: solver steps; None for recordings.
        prompt: digest of the reference recording and its words.
        done: measures that were taken, by name.
        target_similarity: similarity to --target's recordings.
        spoken: seconds from the first sound to the last.
        true_spoken: the same of the text's own recording.
        compute_seconds: that synthesis took.
        leaked: words of the prompt in the transcript that are not in the text.
    """

    name: str
    steps: int | None
    seed: int | None
    key: str
    text: str
    prompt: str | None = None
    done: str = ""
    heard: str | None = None
    words: int | None = None
    edits: int | None = None
    wer: float | None = None
    chars: int | None = None
    char_edits: int | None = None
    cer: float | None = None
    similarity: float | None = None
    target_similarity: float | None = None
    ovrl: float | None = None
    sig: float | None = None
    bak: float | None = None
    p808: float | None = None
    seconds: float | None = None
    spoken: float | None = None
    true_spoken: float | None = None
    duration_error: float | None = None
    compute_seconds: float | None = None
    leaks: int | None = None
    leaked: str | None = None

    @property
    def id(self) -> tuple[str, int | None, int | None, str]:
        return self.name, self.steps, self.seed, self.key


KINDS = {f.name: str(f.type) for f in fields(Result)}


def parse(row: dict[str, str], path: Path) -> Result:
    """A row of results.csv. What may be None is None where its field is empty."""
    if row.keys() != KINDS.keys() or None in row.values():
        raise InputError(f"{path} has other columns, of another version; choose another --out")
    values: dict[str, Any] = {}
    for name, text in row.items():
        kind = KINDS[name]
        if text == "" and "None" in kind:
            values[name] = None
        else:
            values[name] = {"i": int, "f": float}.get(kind[0], str)(text)
    result = Result(**values)
    if "wer" in result.done or "leak" in result.done:
        result.heard = result.heard or ""  # nothing was heard
    return result


class Results:
    """The rows of OUT/results.csv, read, added to and put in order.

    Args:
        folder: of the evaluation; it is made.

    Raises:
        InputError: results.csv is of something else.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.csv"
        self.rows: dict[tuple, Result] = {}
        if not self.path.exists():
            return
        with self.path.open(newline="", encoding="utf-8") as f:
            text = f.read()
        whole = text[: text.rfind("\n") + 1]  # a run may have been ended in the middle of a line
        try:
            rows = csv.DictReader(io.StringIO(whole, newline=""))
            found = [parse(row, self.path) for row in rows]
        except (ValueError, csv.Error) as e:
            raise InputError(f"cannot read {self.path}: {e}; choose another --out") from e
        self.rows = {r.id: r for r in found}  # of two rows the later one holds
        self.save()

    def add(self, result: Result) -> None:
        """Appends a row, and puts it on the disk."""
        self.rows[result.id] = result
        with self.path.open("a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, KINDS)
            if not f.tell():
                writer.writeheader()
            writer.writerow(asdict(result))

    def save(self, order: Iterable[tuple] = ()) -> None:
        """Writes the file anew: rows of these ids first and in this order, then the others."""
        first = {i: self.rows[i] for i in order if i in self.rows}
        self.rows = first | {i: r for i, r in self.rows.items() if i not in first}
        with whole(self.path) as part, part.open("w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, KINDS)
            writer.writeheader()
            writer.writerows(asdict(r) for r in self.rows.values())


def check_settings(folder: Path, settings: dict[str, Any], table: str = "results.csv") -> None:
    """Writes OUT/settings.json, or compares with an existing one, where there is a table.

    Raises:
        InputError: something that changes figures differs; it is named.
    """
    path = folder / "settings.json"
    settings = json.loads(json.dumps(settings, default=str))
    if path.exists() and (folder / table).exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as e:
            raise InputError(f"cannot read {path}: {e}; choose another --out") from e
        names = [k for k in before.keys() | settings.keys() if before.get(k) != settings.get(k)]
        if names:
            changes = "; ".join(
                f"{k} was {before.get(k)}, is {settings.get(k)}" for k in sorted(names)
            )
            raise InputError(
                f"{folder} holds results of other settings ({changes}); choose another --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
