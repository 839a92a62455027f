"""Recogniser: transcribes clips for curate, and keeps the transcripts in heard.csv."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.corpus.layouts import Sample
from nanospeech.errors import InputError
from nanospeech.files import drop_cut_line
from nanospeech.measure.metrics import load_whisper, transcribe
from nanospeech.measure.wer import cer, normalize, wer
from nanospeech.text.languages import spoken_code

FEW_WORDS = 3  # words; in shorter texts one wrong word is a high WER, so letters count too
Recogniser = Callable[[np.ndarray, str], str]  # of a wave and the code of its language


def language_of(sample: Sample, other: str | None) -> str:
    """What is spoken in a clip: the language that it names, else another's, else English.

    Raises:
        InputError: it is no code of a language.
    """
    own = sample.extra.get("language")
    return spoken_code(None if own is None else str(own), other)


def languages_of(samples: Iterable[Sample], other: str | None) -> dict[str, str]:
    """Those by key; clips that name what is no code are left out."""
    found = {}
    for sample in samples:
        with suppress(InputError):
            found[sample.key] = language_of(sample, other)
    return found


def misheard(text: str, heard: str, language: str = "en") -> float:
    """Share of a text's words that were not heard; letters count where there are few words."""
    words = normalize(text, language).split()
    if not words:  # hesitations alone, which the normaliser drops
        return 0.0
    pair = [(text, heard)]
    share = wer(pair, language)
    return min(share, cer(pair, language)) if len(words) <= FEW_WORDS else share


@cache
def whisper(name: str) -> Recogniser:
    """A single-threaded recogniser, one for each process.

    Raises:
        BackendError, InputError: see load_whisper.
    """
    model = load_whisper(name, 1)
    return lambda wave, language: transcribe(model, wave, language=language)


class Heard:
    """heard.csv: the transcript of each clip; a line is appended for each clip.

    Args:
        recogniser: whose transcripts are read and added.
        languages: that it listens for, by key; English where there is none.
        used: whether clips are transcribed; if not, no file is read or written.

    Raises:
        InputError: the file is of another kind.
    """

    COLUMNS = ("key", "crc32", "recogniser", "text", "heard")

    def __init__(
        self,
        path: Path,
        recogniser: str,
        languages: Mapping[str, str] | None = None,
        used: bool = True,
    ):
        self.path, self.recogniser, self.used = path, recogniser, used
        self.languages = languages or {}
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
                    if row["recogniser"] == self.listener(row["key"]):
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

    def listener(self, key: str) -> str:
        """The recogniser of a clip, with the language that it listened for where not English."""
        language = self.languages.get(key, "en")
        return self.recogniser if language == "en" else f"{self.recogniser} {language}"

    def add(self, key: str, data: bytes, text: str, heard: str) -> None:
        """Appends the transcript of a clip of these bytes."""
        self.add_crc(key, zlib.crc32(data), text, heard)

    def add_crc(self, key: str, crc: int, text: str, heard: str) -> None:
        """Appends the transcript of a clip whose bytes have this CRC-32."""
        line = " ".join(text.split())  # one line a row, so that a truncated row can be detected
        self.writer.writerow([key, crc, self.listener(key), line, heard])
        self.file.flush()
