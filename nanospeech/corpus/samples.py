"""Samples of data sets, and the files that they are made of. Opens no audio."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nanospeech.audio.films import as_wav, is_film
from nanospeech.audio.wave import FOREIGN
from nanospeech.errors import InputError
from nanospeech.files import is_of_mac

from .mp3 import BadAudio

AUDIO = (".mp3", ".wav", ".flac", ".ogg", ".oga", ".opus", ".aiff", ".aif")
MOST_TEXT = 2**24  # bytes of what is said in a recording
# a line of Audacity's labels, of HTK's, of subtitles, or of what Whisper prints
TIMES = re.compile(
    r"^(\d+[.,]\d+\t\d+[.,]\d+\t|\d+ \d{5,} |\[?(\d+:)?\d\d:\d\d[.,]\d{3} --> )", re.M
)
NO_TIMES = (
    "labels or subtitles are no text: write the words alone, and cut what is longer than a minute"
    " by nanospeech prepare cut"
)


@dataclass(frozen=True)
class Source:
    """Where the bytes of a recording lie: a file, or a stretch of one (a tar's member)."""

    path: Path
    offset: int = 0
    size: int = -1  # to the end

    def read(self) -> bytes:
        """Its bytes; of a film, where it can be read, those of its sound as WAV.

        Raises:
            BadAudio: the file cannot be read.
        """
        try:
            film = self.path if self.size < 0 else self.raw()  # of a tar's member alone
            if is_film(film):
                with suppress(InputError):  # a damaged one stays as it is, and is left out
                    return as_wav(film).getvalue()
            return film if isinstance(film, bytes) else self.raw()
        except OSError as e:
            raise BadAudio("unreadable audio", str(e)) from e

    def raw(self) -> bytes:
        """Its bytes as they are."""
        with self.path.open("rb") as f:
            f.seek(self.offset)
            return f.read(self.size)


@dataclass(frozen=True)
class Sample:
    """One recording and what is said in it."""

    name: str  # for people: where it was found
    parts: tuple[str, ...]  # what a key is made of, the most telling last
    audio: Source
    text: str
    speaker: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # kept in the shard's JSON
    key: str = ""


@dataclass(frozen=True)
class Skip:
    """A recording that cannot be used, and why."""

    name: str
    reason: str
    detail: str = ""


def files_in(root: Path) -> Iterator[Path]:
    """Files at any depth, also in linked folders; each folder once, by its own name if it has one.

    Not the ._NAME that a Mac adds to an archive.
    """
    seen, todo = set(), [os.fspath(root)]
    while todo:
        links = []
        for top in todo:
            for folder, names, files in os.walk(top):
                if (real := os.path.realpath(folder)) in seen:
                    names.clear()
                    continue
                seen.add(real)
                yield from (Path(folder, f) for f in files if not is_of_mac(f))
                paths = (os.path.join(folder, name) for name in names)
                links += [path for path in paths if os.path.islink(path)]
        todo = sorted(links)


def recordings_in(root: Path) -> list[Path]:
    """Audio files at any depth, in order; those of formats that cannot be read come last."""
    files = [p for p in files_in(root) if p.suffix.lower() in (*AUDIO, *FOREIGN)]
    return sorted(files, key=lambda p: (p.suffix.lower() in FOREIGN, p))


def clean(text: str) -> str:
    """A transcript on one line: any run of white space becomes one space, the ends none."""
    return " ".join(text.split())


def is_file(path: Path) -> bool:
    """Whether there is such a file; a text in the place of a name may be too long for one."""
    try:
        return path.is_file()
    except OSError:
        return False


def spelt(path: Path) -> Path | None:
    """The file of a name, whichever of Unicode's forms has its ä: a Mac's is a and a mark.

    Its folders are all of one form, or as they are given; a table of Windows has \\ between them.
    """
    forms = () if str(path).isascii() else ("NFC", "NFD")
    names = (path.with_name(unicodedata.normalize(f, path.name)) for f in forms)
    whole = (Path(unicodedata.normalize(f, str(path))) for f in forms)
    found = next(filter(is_file, (path, *names, *whole)), None)
    if found is None and os.sep == "/" and "\\" in str(path):
        return spelt(Path(str(path).replace("\\", "/")))
    return found


def words_beside(path: Path, kind: str = ".txt") -> Path | None:
    """The file with what is said in a recording: X.txt, or X.TXT as recorders write, of X.wav."""
    return spelt(path.with_suffix(kind)) or spelt(path.with_suffix(kind.upper()))


def choose(candidates: Iterable[Path]) -> Path | None:
    """The recording to read among those of one name: an MP3, unless another file is newer."""
    present = [found for p in candidates if (found := spelt(p))]
    if len(present) > 1 and present[0].suffix == ".mp3":
        newest = max(p.stat().st_mtime for p in present[1:])
        present.sort(key=lambda p: p.suffix == ".mp3" and p.stat().st_mtime < newest)
    return present[0] if present else None


def read_text(path: Path, name: str) -> str | Skip:
    """A file's text, if it is UTF-8, no longer than a recording's can be, and without times."""
    try:
        if (size := path.stat().st_size) > MOST_TEXT:
            return Skip(name, "unreadable text", f"{size:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
        return Skip(name, "times in its text", NO_TIMES) if TIMES.search(text) else text
    except UnicodeDecodeError as e:
        return Skip(name, "unreadable text", f"{e}; save it as UTF-8")
    except OSError as e:
        return Skip(name, "unreadable text", str(e))
