"""Clip shards: speech that a recipe made or found, as a tar that training reads."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanospeech.audio.mp3 import encode
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.files import whole
from nanospeech.prepare.shards import add_files


@dataclass(frozen=True)
class Clip:
    """One clip: float32 (n,) at SAMPLE_RATE, and what is known of it.

    Attributes:
        key: of its files, no other clip's of the shard.
        text: what is said in it; nothing where that is not known.
        license: nothing where that is told elsewhere.
    """

    key: str
    wave: np.ndarray
    text: str
    speaker: str
    source: str
    license: str = ""


def write_clips(path: Path, clips: Iterable[Clip]) -> float:
    """Writes clips into a shard, renamed when it is whole: {key}.mp3 and {key}.json.

    Returns:
        Their seconds.
    """
    total = 0.0
    with whole(path, several=True) as part, tarfile.open(part, "w") as tar:
        for clip in clips:
            seconds = len(clip.wave) / SAMPLE_RATE
            meta = {
                "text": clip.text,
                "duration": round(seconds, 4),
                "speaker": clip.speaker,
                "source": clip.source,
            }
            if clip.license:
                meta["license"] = clip.license
            add_files(tar, clip.key, {"mp3": encode(clip.wave), "json": json.dumps(meta).encode()})
            total += seconds
    return total
