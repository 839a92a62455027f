"""Work: the folder where a book's finished passages and chapters are kept until it is bound.

passages/KEY.flac is speech, passages/KEY.json what is known of it; the second is written last, and
each is whole or not there. So Ctrl-C, a full disk or a power cut cost the passage at hand at most.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.errors import InputError
from nanospeech.files import whole


class Work:
    """A folder of finished passages; it is made at the first one.

    Args:
        folder: beside the output.
        rate: samples a second of all passages.
        worded: whether a passage without the times of its words counts as missing.
    """

    def __init__(self, folder: Path, rate: int, worded: bool = False):
        self.folder, self.rate, self.worded = folder, rate, worded
        self.passages, self.chapters = folder / "passages", folder / "chapters"

    def exists(self) -> bool:
        """Whether something was kept here before."""
        return self.passages.is_dir()

    def has(self, key: str) -> bool:
        """Whether a passage is there, whole."""
        names = (self.passages / f"{key}.{kind}" for kind in ("json", "flac"))
        if not all(path.is_file() for path in names):
            return False
        return not self.worded or self.facts(key).get("words") is not None

    def save(self, key: str, wave: np.ndarray, **more: Any) -> None:
        """Keeps a passage.

        Args:
            key: of passages.key.
            wave: float32 (n,).
            more: what else is known of it, for facts().

        Raises:
            OSError: the disk is full, or no file can be written here.
        """
        self.passages.mkdir(parents=True, exist_ok=True)
        start, stop = audio.loud_span(wave, self.rate)
        facts = {"samples": len(wave), "start": start, "stop": stop or len(wave), **more}
        # encoded in memory: libsndfile does not always tell that a disk is full
        write(self.passages / f"{key}.flac", audio.flac_bytes(wave, self.rate))
        write(self.passages / f"{key}.json", json.dumps(facts, ensure_ascii=False).encode())

    def facts(self, key: str) -> dict[str, Any]:
        """samples, and the first and last of them that sound, and what else was saved."""
        try:
            return json.loads((self.passages / f"{key}.json").read_bytes())
        except (OSError, ValueError) as e:
            raise self._damaged(key, e) from e

    def wave(self, key: str) -> np.ndarray:
        """A passage's speech, float32 (n,).

        Raises:
            InputError: its file is damaged; it is removed, so that the same command makes it anew.
        """
        try:
            wave = audio.read(self.passages / f"{key}.flac", self.rate)
        except InputError as e:
            raise self._damaged(key, e) from e
        if len(wave) != self.facts(key)["samples"]:
            raise self._damaged(key, ValueError("it was cut off"))
        return wave

    def _damaged(self, key: str, e: Exception) -> InputError:
        for kind in ("json", "flac"):
            (self.passages / f"{key}.{kind}").unlink(missing_ok=True)
        return InputError(f"a kept passage is damaged ({e}); the same command makes it anew")

    def finish_chapter(self, number: int, state: dict[str, Any]) -> None:
        """Notes that a chapter is complete, and what it consists of."""
        self.chapters.mkdir(parents=True, exist_ok=True)
        data = json.dumps(state, ensure_ascii=False, indent=1).encode()
        write(self.chapters / f"{number:04d}.json", data)

    def finished_chapter(self, number: int) -> dict[str, Any] | None:
        """What was noted of a chapter; None if it is not complete."""
        try:
            return json.loads((self.chapters / f"{number:04d}.json").read_bytes())
        except (OSError, ValueError):
            return None

    def count(self, keys: Sequence[str]) -> int:
        """How many of these passages are there."""
        return sum(map(self.has, keys))

    def others(self, keys: Collection[str]) -> bool:
        """Whether passages beside these are there, as of chapters that were not asked for."""
        return any(path.stem not in keys for path in self.passages.glob("*.json"))

    def remove(self) -> None:
        """Deletes what was kept."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write(path: Path, data: bytes) -> None:
    """Bytes to a file that is whole, and on the disk, or not there."""
    with whole(path, several=True, sync=True) as part:
        part.write_bytes(data)
