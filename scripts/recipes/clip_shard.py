"""Clip shards: speech that a recipe made or found, as tars that training reads."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio.mp3 import encode
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.errors import InputError
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


def check_alike(out: Path, prefix: str, settings: dict[str, Any]) -> None:
    """Makes sure that shards which are there were made as those that will be added.

    Else a speaker's name would stand for two voices, and a voice be there that is to be left out.

    Args:
        out: their folder; PREFIX.json in it has the settings.
        prefix: of their names.
        settings: what they were made of, as JSON.

    Raises:
        InputError: they were made otherwise.
    """
    path = out / f"{prefix}.json"
    if path.exists() and any(out.glob(f"{prefix}-*.tar")):
        old = json.loads(path.read_text(encoding="utf-8"))
        if other := [name for name, value in settings.items() if old.get(name) != value]:
            raise InputError(
                f"the shards {out / prefix}-*.tar were made of other {', '.join(other)}: remove "
                "them, or choose another --out or --seed"
            )
    with whole(path, several=True, sync=True) as part:
        part.write_text(json.dumps(settings), encoding="utf-8")
