"""Pieces: recordings of any length, read a little at a time. Knows no models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nanospeech.errors import InputError

from .editing import SAMPLE_RATE, mono
from .films import is_film, sound_of
from .opus import as_file
from .wave import BLOCK, MOST_CHANNELS, UNKNOWN_FRAMES, forward, unreadable


def seconds_of(path: str | Path) -> float:
    """How long a recording is, by its header; 0 where that does not tell.

    Raises:
        InputError: it is no audio, or of more channels than MOST_CHANNELS.
    """
    import soundfile as sf

    if is_film(path):
        with sound_of(path) as (_, seconds, _):
            return seconds
    try:
        info = sf.info(as_file(path))
    except (sf.LibsndfileError, OSError, RuntimeError) as e:
        raise unreadable(str(path), e) from e
    if info.channels > MOST_CHANNELS:
        raise InputError(f"{path} has {info.channels} channels; at most {MOST_CHANNELS} are read")
    return 0.0 if info.frames >= UNKNOWN_FRAMES else float(info.duration)


def read_pieces(path: str | Path) -> Iterator[np.ndarray]:
    """A recording as mono at SAMPLE_RATE, float32 (n,), piece by piece of a few seconds.

    Args:
        path: of a format that audio.wave.read knows.

    Raises:
        InputError: it is no audio, or damaged; what comes before the damage has been yielded.
    """
    import soxr

    seconds_of(path)  # checks it
    plain: soxr.ResampleStream | None = None
    for rate, block in blocks_of(path):
        if not np.isfinite(block).all():
            raise InputError(f"{path} holds samples that are not numbers")
        if plain is None:
            plain = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
        yield plain.resample_chunk(mono(block))
    if plain is not None:
        yield plain.resample_chunk(np.zeros(0, np.float32), last=True)


def blocks_of(path: str | Path) -> Iterator[tuple[int, np.ndarray]]:
    """The rate and float32 (n, channels) of a recording, block by block."""
    import soundfile as sf

    if is_film(path):
        with sound_of(path) as (track, _, pieces):
            for piece in pieces:
                yield track.rate, piece.T
        return
    try:
        with forward(as_file(path)) as f:
            while len(block := f.read(BLOCK, dtype="float32", always_2d=True)):
                yield f.samplerate, block
    except (sf.LibsndfileError, OSError, RuntimeError) as e:
        raise unreadable(str(path), e) from e


class Ahead:
    """The next samples of a recording that is read piece by piece.

    Attributes:
        damage: what ended it before its end, if something did.
    """

    def __init__(self, pieces: Iterator[np.ndarray]):
        self.pieces, self.rest = pieces, np.zeros(0, np.float32)
        self.damage: InputError | None = None

    def look(self, samples: int) -> np.ndarray:
        """The next samples, float32 (n,); fewer at the end."""
        parts, count = [self.rest], len(self.rest)
        try:
            while count < samples and (piece := next(self.pieces, None)) is not None:
                parts.append(piece)
                count += len(piece)
        except InputError as e:
            self.damage = e
        self.rest = np.concatenate(parts)
        return self.rest[:samples]

    def move(self, samples: int) -> None:
        """Goes on by so many samples."""
        while samples > 0 and len(passed := self.look(min(samples, BLOCK))):
            self.rest = self.rest[len(passed) :]
            samples -= len(passed)
