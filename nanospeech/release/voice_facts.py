"""Voice facts: what is known of a voice beside its sound, read from its NAME.json."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from nanospeech.errors import CheckpointError

ABOUT = "about"  # the key of NAME.json that holds them
MAX_BYTES = 100_000  # of a NAME.json
NARROW = 10_000.0  # Hz: a recording that ends below sounds duller than 24 kHz can


@dataclass(frozen=True)
class VoiceFacts:
    """What a voice's NAME.json says under "about"; all of it may be missing.

    Attributes:
        sex: of the voice, in a word.
        accent: of its English, or "unknown".
        origin: "human" or "synthetic", or what else its recording is.
        licence: short name of the recording's licence.
        bandwidth: Hz where its recording's sound ends (audio.recording.bandwidth).
        wer: percent of its words that a recogniser mishears.
    """

    sex: str = ""
    accent: str = ""
    origin: str = ""
    licence: str = ""
    bandwidth: float | None = None
    wer: float | None = None

    @property
    def is_narrow(self) -> bool:
        return self.bandwidth is not None and self.bandwidth < NARROW


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a NAME.json; empty where there is no such file.

    Raises:
        CheckpointError: it is no JSON, no mapping, or absurdly large.
    """
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise CheckpointError(f"cannot read {path}: {e}") from e
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} should be a mapping, got {type(values).__name__}")
    return values


def load_facts(recording: Path) -> VoiceFacts:
    """The facts of a voice, from the NAME.json beside its recording.

    Keys that are not known here are left alone, so that later versions may tell more.

    Raises:
        CheckpointError: a fact that is of another type, or see read_settings.
    """
    path = recording.with_suffix(".json")
    about_mapping = read_settings(path).get(ABOUT, {})
    if not isinstance(about_mapping, dict):
        raise CheckpointError(f'{path}: "{ABOUT}" should be a mapping, got {about_mapping!r}')
    found: dict[str, Any] = {}
    for field in dataclasses.fields(VoiceFacts):
        value = about_mapping.get(field.name)
        number = "float" in str(field.type)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float) if number else str):
            kind = "a number" if number else "text"
            raise CheckpointError(f"{path}: {field.name} should be {kind}, got {value!r}")
        found[field.name] = one_line(value) if isinstance(value, str) else value
    return VoiceFacts(**found)


def one_line(text: str) -> str:
    """A fact for a line of a terminal: without line ends and signs that control one."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def printable(text: str) -> str:
    """The lines of a file for a terminal, without signs that control one."""
    return "\n".join(map(one_line, text.strip().splitlines()))


def table(voices: Mapping[str, VoiceFacts]) -> list[str]:
    """Lines of a table of voices by name, its head first; narrow recordings have an asterisk."""
    rows = [("voice", "sex", "accent", "origin", "licence", "bandwidth", "WER")]
    for name, facts in voices.items():
        wide = "" if facts.bandwidth is None else f"{facts.bandwidth / 1000:.1f} kHz"
        rows.append(
            (
                one_line(name),
                facts.sex,
                facts.accent,
                facts.origin,
                facts.licence,
                wide + " *" * facts.is_narrow,
                "" if facts.wer is None else f"{facts.wer:.1f} %",
            )
        )
    rows = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*rows)]
    padded = ((cell + " " * (w - columns(cell)) for cell, w in zip(row, widths)) for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for 愛, none for a mark on a letter."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me") else 1 + (east_asian_width(c) in "WF")
        for c in unicodedata.normalize("NFC", text)
    )
