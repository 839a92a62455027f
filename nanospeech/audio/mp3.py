"""MP3 as shards have it: 64 kbps, mono, 24 kHz. Needs no FFmpeg."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from . import wave as audio

KBPS = 64
# libsndfile takes a constant bit rate as a compression level: at 16 to 24 kHz (MPEG-2 layer III)
# level 0 is 160 kbps, level 1 is 8 kbps, and it is linear between them
LEVEL = (160 - KBPS) / (160 - 8)


def encode(wave: np.ndarray) -> bytes:
    """float32 (n,) at 24 kHz -> the bytes of an MP3, 64 kbps, mono; decodes to n samples again."""
    from nanospeech.audio.sound_file import SoundFile

    file = io.BytesIO()
    kind: dict[str, Any] = {"format": "MP3", "subtype": "MPEG_LAYER_III"}
    kind |= {"bitrate_mode": "CONSTANT", "compression_level": LEVEL}
    wave = np.clip(wave, -1, 1)
    with SoundFile(file, "w", audio.SAMPLE_RATE, 1, **kind) as f:
        for start in range(0, len(wave), audio.BLOCK):
            f.write(wave[start : start + audio.BLOCK])
    return file.getvalue()


def coded(wave: np.ndarray) -> np.ndarray:
    """float32 (n,) at 24 kHz -> the same as the MP3 of it sounds: without most of its top.

    The encoder leaves out what is above 11.25 kHz, and from 9 kHz on what is masked. What a level
    has raised above full scale is encoded softer, not clipped.
    """
    import soundfile as sf

    loudest = audio.overshoot(wave)
    return sf.read(io.BytesIO(encode(wave / loudest)), dtype="float32")[0] * loudest
