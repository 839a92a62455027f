"""The folder of clips that recordings are cut into: their table, and how far each recording is."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.corpus.layouts import Skip
from nanospeech.corpus.skips import list_skips
from nanospeech.corpus.tables import rows_of
from nanospeech.errors import InputError, reason
from nanospeech.files import whole, write_json
from nanospeech.speech.reference import EDGE

from .cut_places import Clip

STATE, TABLE, SKIPPED = ".cut.json", "metadata.csv", "skipped.csv"
GIVEN = "speaker", "language"  # columns of what all clips are


@dataclass
class Progress:
    """How far a recording is cut.

    Attributes:
        name: that its clips begin with.
        samples: that are done, at audio.SAMPLE_RATE.
        words: of its text that are behind.
        done: whether all of it is.
        torn: whether what is done ends where nobody pauses.
        size: bytes of its file.
    """

    name: str
    size: int
    samples: int = 0
    words: int = 0
    done: bool = False
    torn: bool = False


@dataclass
class ClipFolder:
    """Clips with their texts in metadata.csv; what a run before left is taken up.

    Args:
        out: the folder.
        settings: of the run: "speaker" and "language" of all clips, or None, and more.

    Raises:
        InputError: it was made with other settings, or has a table that is of something else.
    """

    out: Path
    settings: dict[str, Any]
    recordings: dict[str, Progress] = field(default_factory=dict)
    skips: list[Skip] = field(default_factory=list)
    clips: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        state = self.out / STATE
        if not state.exists():
            if (self.out / TABLE).exists():
                raise InputError(f"{self.out} has a {TABLE} of something else; name another --out")
            return
        try:
            found = json.loads(state.read_text(encoding="utf-8"))
            self.recordings = {k: Progress(**v) for k, v in found["recordings"].items()}
            self.skips = [Skip(*row) for row in found["skips"]]
            self.clips, self.seconds = int(found["clips"]), float(found["seconds"])
            before = dict(found["settings"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise InputError(f"{state} is damaged ({reason(e)}); name another --out") from e
        if before != self.settings:
            other = [k for k in self.settings if before.get(k) != self.settings[k]]
            told = ", ".join(given(f"--{k.replace('_', '-')}", before.get(k)) for k in other)
            raise InputError(f"{self.out} was cut with {told}; give that again, or another --out")

    def save(self) -> None:
        """Writes down how far all is."""
        list_skips(self.out / SKIPPED, self.skips)
        state = {
            "settings": self.settings,
            "recordings": {k: asdict(v) for k, v in self.recordings.items()},
            "skips": [(s.name, s.reason, s.detail) for s in self.skips],
            "clips": self.clips,
            "seconds": self.seconds,
        }
        write_json(self.out / STATE, state)

    def columns(self) -> list[str]:
        return ["audio", "text", *(name for name in GIVEN if self.settings[name])]

    def progress(self, path: Path) -> Progress:
        """How far a recording is, wherever it was moved; its clips get a name of their own.

        Raises:
            InputError: it is not what was cut before.
        """
        key, size = str(path.resolve()), path.stat().st_size
        if key not in self.recordings:
            moved = (
                old
                for old, known in self.recordings.items()
                if Path(old).name == path.name and known.size == size and not Path(old).exists()
            )
            if old := next(moved, None):
                self.recordings[key] = self.recordings.pop(old)
            else:
                self.recordings[key] = Progress(self.free_name(path.stem), size)
        found = self.recordings[key]
        if found.size != size and not found.samples:  # it could not be read, and was mended
            found = self.recordings[key] = Progress(found.name, size)
        if found.size != size:
            raise InputError(f"{path} has changed since it was cut; name another --out")
        return found

    def free_name(self, stem: str) -> str:
        """A name of no other recording's clips, on disks that tell no capitals either."""
        taken = {p.name.casefold() for p in self.recordings.values()}
        names = [stem, *(f"{stem}-{n}" for n in range(2, len(taken) + 2))]
        return next(n for n in names if n.casefold() not in taken)

    def go_back(self, progress: Progress) -> None:
        """Drops the lines of clips that were written after the last `save`."""
        self.save()  # before the table, which would be of something else without it

        def is_later(file: str) -> bool:
            name, _, number = Path(file).stem.rpartition("_")
            of_ours = name == progress.name and number.isdecimal()
            return of_ours and int(number) >= hundredths(progress.samples)

        rows = self.rows()
        kept = [row for row in rows if not is_later(row["audio"] or "")]
        if kept != rows or not rows:
            self.write(kept)

    def rows(self) -> list[dict[str, str]]:
        """What the table has, which users may have looked through and saved as they like.

        Raises:
            InputError: it is no table any more.
        """
        table = self.out / TABLE
        found = [*rows_of(table)] if table.exists() else []
        for line, row in found:
            if None in row:
                raise InputError(
                    f"line {line} of {table} has more fields than columns; put quotes around a"
                    " text that has a comma"
                )
        return [row for _, row in found]

    def write(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Writes the table, with the columns that users added to it."""
        names = dict.fromkeys([*(name for row in rows[:1] for name in row), *self.columns()])
        with whole(self.out / TABLE) as part, part.open("w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, list(names))
            writer.writeheader()
            writer.writerows(rows)

    def add(self, progress: Progress, wave: np.ndarray, clips: Sequence[Clip]) -> None:
        """Writes the clips of the next seconds of a recording."""
        rows = []
        for clip in clips:
            start, stop = (int(x * audio.SAMPLE_RATE) for x in (clip.start, clip.stop))
            name = f"{progress.name}_{hundredths(progress.samples + start):07d}"
            if clip.reason:
                self.skips.append(Skip(name, clip.reason, clip.text))
                continue
            sound = audio.trim(audio.centred(wave[start:stop]), keep_seconds=EDGE)
            audio.write(self.out / f"{name}.flac", sound)
            own = {"audio": f"{name}.flac", "text": clip.text, **self.settings}
            rows.append({column: own[column] for column in self.columns()})
            self.clips, self.seconds = self.clips + 1, self.seconds + len(sound) / audio.SAMPLE_RATE
        if rows:
            self.write([*self.rows(), *rows])


def given(option: str, value: Any) -> str:
    """An option as a command had it."""
    return f"no {option}" if value is None else f"{option} {value}"


def hundredths(samples: int) -> int:
    """Samples as hundredths of a second."""
    return samples * 100 // audio.SAMPLE_RATE
