"""Curate's copies: clips at other speeds, as additional speakers.

With more speakers a model generalises better between them (speed perturbation: Ko et al., Audio
augmentation for speech recognition, 2015). Pitch and formants move with the speed, as they do with
the length of a vocal tract.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import encode
from nanospeech.corpus.layouts import Sample


@dataclass(frozen=True)
class Copy:
    """A clip's MP3 at another speed.

    Attributes:
        data: the MP3.
        pace: 1.1 is 10 % faster than the clip.
        name: what is added to the speaker's name and the clip's key: "slow", "fast16".
    """

    data: bytes
    pace: float
    name: str

    def sample(self, original: Sample, speaker: str) -> Sample:
        """The clip's sample, as one of a speaker of their own."""
        extra = original.extra | {"pace": self.pace}
        return replace(original, speaker=f"{speaker}-{self.name}", extra=extra)


def make_copies(key: str, wave: np.ndarray, shares: Sequence[float]) -> tuple[Copy, ...]:
    """A copy of a clip for each share, slower or faster by it.

    Args:
        key: of the clip; it alone decides which copies are slower.
        wave: float32 (n,) at 24 kHz.
        shares: 0.1 is 10 %.
    """
    copies = []
    for share in shares:
        # one share: the bit that copies have always had; several: a bit for each
        draw = zlib.crc32(key.encode() if len(shares) == 1 else f"{key} {share:g}".encode())
        pace = 1 + share if draw >> 16 & 1 else 1 - share
        percent = f"{100 * share:g}".replace(".", "_")  # keys have no dots
        name = ("fast" if pace > 1 else "slow") + (percent if len(shares) > 1 else "")
        rate = audio.SAMPLE_RATE
        copies.append(Copy(encode(audio.resample(wave, rate * pace, rate)), pace, name))
    return tuple(copies)
