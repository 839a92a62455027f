"""Recogniser: transcribes clips for curate, and keeps the transcripts in heard.csv."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import InputError
from nanospeech.files import drop_cut_line
from nanospeech.measure.metrics import load_whisper, transcribe
from nanospeech.measure.wer import cer, normalize, wer

FEW_WORDS = 3  # words; in shorter texts one wrong word is a high WER, so letters count too
Recogniser = Callable[[np.ndarray], str]


def misheard(text: str, heard: str) -> float:
    """Share of a text's words that were not heard; letters count where there are few words."""
    words = normalize(text).split()
    if not words:  # hesitations alone, which the normaliser drops
        return 0.0
    share = wer([(text, heard)])
    return min(share, cer([(text, heard)])) if len(words) <= FEW_WORDS else share


@cache
def whisper(name: str) -> Recogniser:
    """A single-threaded recogniser, one for each process.

    Raises:
        BackendError, InputError: see load_whisper.
    """
    model = load_whisper(name, 1)
    return lambda wave: transcribe(model, wave)


class Heard:
    """heard.csv: the transcript of each clip; a line is appended for each clip.

    Args:
        used: whether clips are transcribed; if not, no file is read or written.

    Raises:
        InputError: the file is of another kind.
    """

    COLUMNS = ("key", "crc32", "recogniser", "text", "heard")

    def __init__(self, path: Path, recogniser: str, used: bool = True):
        self.path, self.recogniser, self.used = path, recogniser, used
        self.known: dict[str, dict[int, str]] = {}
        if not used or not path.exists():
            return
        drop_cut_line(path, self.COLUMNS)  # of a run that was killed
        try:
            with path.open(newline="", encoding="utf-8") as f:
                rows = csv.DictReader(f)
                if rows.fieldnames not in (None, list(self.COLUMNS)):
                    raise ValueError(f"columns {rows.fieldnames}")
                for row in rows:
                    if row["recogniser"] == recogniser:
                        self.known.setdefault(row["key"], {})[int(row["crc32"])] = row["heard"]
        except (KeyError, TypeError, ValueError, csv.Error) as e:
            what = f"{path} is no list of what was heard ({e!r})"
            raise InputError(f"{what}; name another file, or delete it") from e

    def __enter__(self) -> Heard:
        if self.used:
            new = not self.path.exists() or not self.path.stat().st_size
            self.file = self.path.open("a", newline="", encoding="utf-8")
            self.writer = csv.writer(self.file)
            if new:
                self.writer.writerow(self.COLUMNS)
                self.file.flush()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.used:
            self.file.close()

    def add(self, key: str, data: bytes, text: str, heard: str) -> None:
        """Appends the transcript of a clip of these bytes."""
        self.add_crc(key, zlib.crc32(data), text, heard)

    def add_crc(self, key: str, crc: int, text: str, heard: str) -> None:
        """Appends the transcript of a clip whose bytes have this CRC-32."""
        line = " ".join(text.split())  # one line a row, so that a truncated row can be detected
        self.writer.writerow([key, crc, self.recogniser, line, heard])
        self.file.flush()
