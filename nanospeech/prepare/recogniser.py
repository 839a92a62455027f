"""Recogniser: transcribes clips for curate, and keeps the transcripts in heard.csv."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio.wave import SAMPLE_RATE, resample
from nanospeech.corpus.layouts import Sample
from nanospeech.errors import InputError, require
from nanospeech.files import drop_cut_line
from nanospeech.measure.metrics import RATE, check_language, load_whisper, transcribe
from nanospeech.measure.wer import cer, normalize, wer
from nanospeech.text.languages import spoken_code

FEW_WORDS = 3  # words; in shorter texts one wrong word is a high WER, so letters count too
Recogniser = Callable[[np.ndarray, str], str]  # of a wave and the code of its language
Batched = Callable[[Sequence[np.ndarray], str], list[str]]  # of waves of at most 30 seconds
BATCH = 8  # waves at once
CHUNK = 30  # seconds that Whisper encodes


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
def loaded(name: str) -> Any:
    """A single-threaded model, one for each process.

    Raises:
        BackendError, InputError: see load_whisper.
    """
    return load_whisper(name, 1)


def whisper(name: str) -> Recogniser:
    """The recogniser of that name.

    Raises:
        BackendError, InputError: see load_whisper.
    """
    model = loaded(name)
    return lambda wave, language: transcribe(model, wave, language=language)


@cache
def batched_whisper(name: str) -> Batched:
    """As whisper, of several waves at once: in half the time, as its decoder's weights are read
    once for all. Greedy, without a beam, and without a second try at another temperature where the
    first is doubtful.
    """
    library = require("faster_whisper", "eval")
    pipeline = library.BatchedInferencePipeline(loaded(name))

    def recognise(waves: Sequence[np.ndarray], language: str) -> list[str]:
        check_language(pipeline.model, language)
        joined = np.zeros(len(waves) * CHUNK * RATE, np.float32)
        clips = []
        for i, wave in enumerate(waves):
            heard = resample(wave, SAMPLE_RATE, RATE)
            joined[i * CHUNK * RATE :][: len(heard)] = heard
            clips.append({"start": i * CHUNK, "end": i * CHUNK + len(heard) / RATE})
        texts = [""] * len(waves)
        for segment in pipeline.transcribe(
            joined,
            language=language,
            clip_timestamps=clips,
            batch_size=BATCH,
            beam_size=1,
            vad_filter=False,
            without_timestamps=True,
            condition_on_previous_text=False,
        )[0]:
            texts[int(segment.start // CHUNK)] += segment.text
        return [text.strip() for text in texts]

    return recognise


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
