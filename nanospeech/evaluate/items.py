"""Items to measure: sentences, lists in Seed-TTS-eval's format, recordings with their texts.

Reads names and texts; waves are read when they are used. Measures nothing.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.corpus.samples import AUDIO, words_beside
from nanospeech.corpus.tars import Header
from nanospeech.errors import InputError, reason
from nanospeech.files import is_of_mac

SENTENCES = Path(__file__).with_name("sentences.txt")
LARGEST_TEXT = 1 << 20  # bytes


@dataclass(frozen=True)
class Recording:
    """The location of a wave: a file, or a span of bytes of an uncompressed tar."""

    path: Path
    offset: int = 0
    size: int = -1
    name: str = ""  # inside the tar

    def bytes(self) -> bytes:
        try:
            with self.path.open("rb") as f:
                f.seek(self.offset)
                return f.read(self.size)
        except OSError as e:
            raise InputError(f"cannot read {self.path}: {reason(e)}") from e

    def source(self) -> Path | bytes:
        """What to read it of: a whole file's path, as a phone's is known by its name."""
        return self.path if self.size < 0 else self.bytes()

    def wave(self) -> np.ndarray:
        """float32 (n,) at 24 kHz."""
        try:
            return audio.read(self.source())
        except InputError as e:
            raise InputError(f"{self.path} {self.name}: {e}" if self.name else str(e)) from e


@dataclass(frozen=True)
class Prompt:
    """A recording to imitate and its words, if they are known."""

    recording: Recording
    text: str

    @property
    def digest(self) -> str:
        """Tells prompts apart, in results.csv."""
        return sha256(self.recording.bytes() + self.text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Item:
    """A text, with its prompt and its true recording, if any.

    Attributes:
        key: its name in results.csv, and that of its wave.
        prompt: of a list: the prompt of this text.
        truth: the text, spoken by the prompt's speaker. Of recordings it is the wave to measure.
    """

    key: str
    text: str
    prompt: Prompt | None = None
    truth: Recording | None = None


def read_items(path: Path, limit: int | None = None) -> list[Item]:
    """The texts of a file of sentences, of a Seed-TTS-eval list, or of recordings.

    Args:
        path: a tar or folder of recordings; or lines, where the first with three or four "|" makes
            it a list: id|prompt text|prompt wave|text, or with the true wave as a fifth field.
        limit: only the first so many.

    Raises:
        InputError: there is nothing in it, or it cannot be read.
    """
    if path.is_dir() or path.suffix.lower() == ".tar":
        return read_recordings([path], limit)
    lines = read_texts(path)
    listed = lines[0].count("|") in (3, 4)
    items = [
        list_item(path, n, line) if listed else Item(f"{n:03d}", line)
        for n, line in enumerate(lines[:limit])
    ]
    if len({i.key for i in items}) < len(items):
        raise InputError(f"{path} uses an id more than once; each line needs its own")
    return items


def list_item(path: Path, n: int, line: str) -> Item:
    """One line of a Seed-TTS-eval list; its waves' paths are relative to the list."""
    fields = [field.strip() for field in line.split("|")]
    if len(fields) not in (4, 5) or not all(fields[:4]):
        raise InputError(
            f"line {n + 1} of {path} is {line[:60]!r}; write id|prompt text|prompt wave|text"
        )
    key, prompt_text, prompt_wave, text = fields[:4]
    recordings = [Recording(path.parent / wave) for wave in (prompt_wave, *fields[4:]) if wave]
    for recording in recordings:
        if not recording.path.is_file():
            raise InputError(f"line {n + 1} of {path}: there is no file {recording.path}")
    key = "".join(c if c.isalnum() or c in "-_." else "_" for c in key)
    truth = recordings[1] if len(recordings) > 1 else None
    return Item(key, text, Prompt(recordings[0], prompt_text), truth)


def read_texts(path: Path, limit: int | None = None) -> list[str]:
    """A sentence a line; empty lines do not count."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read the sentences in {path}: {reason(e)}") from e
    if not (texts := [line for line in lines if line][:limit]):
        raise InputError(f"{path} holds no sentences; write one a line")
    return texts


def read_recordings(
    paths: Sequence[Path], limit: int | None = None, texts: Path = SENTENCES
) -> list[Item]:
    """Recordings of tars (KEY.mp3 and KEY.json with "text", or KEY.txt) and of folders.

    Args:
        limit: only the first so many.
        texts: file with the texts of a folder's waves, line by line, if they have no .txt files.

    Raises:
        InputError: there are none, or one cannot be read.
    """
    items: list[Item] = []
    for path in paths:
        read = from_folder(path, texts) if path.is_dir() else from_tar(path)
        items += read
        if limit is not None and len(items) >= limit:
            break
    if not items:
        raise InputError(f"there are no recordings with texts in {', '.join(map(str, paths))}")
    return items[:limit]


def from_tar(path: Path) -> list[Item]:
    """The recordings of a WebDataset shard, in its order."""
    sounds: dict[str, Recording] = {}
    texts: dict[str, str] = {}
    try:
        with tarfile.open(path, "r:", tarinfo=Header) as tar:
            for member in tar:
                folder, slash, base = member.name.rpartition("/")
                stem, _, extension = base.partition(".")
                key, extension = folder + slash + stem, extension.lower()
                if f".{extension}" in AUDIO:
                    sounds[key] = Recording(path, member.offset_data, member.size, member.name)
                elif extension in ("json", "txt") and (file := tar.extractfile(member)):
                    text = file.read(LARGEST_TEXT).decode("utf-8-sig")
                    text = str(json.loads(text)["text"]) if extension == "json" else text
                    texts[key] = " ".join(text.split())
    except (OSError, tarfile.TarError) as e:
        raise InputError(f"cannot read the shard {path}: {reason(e)}") from e
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"a text in {path} cannot be read: {e}") from e
    return [
        Item(key.replace("/", "_"), texts[key], truth=sound)
        for key, sound in sounds.items()
        if texts.get(key)
    ]


def named(given: str) -> tuple[str | None, Path]:
    """The name and the path of "NAME=PATH"; of a path alone, which may have a = in it, no name."""
    name, equals, path = given.partition("=")
    return (name, Path(path)) if equals and not Path(given).exists() else (None, Path(given))


def sound_files(folder: Path) -> list[Path]:
    """What is sound in a folder, by name; of a film that was converted too, what it became."""
    files = sorted(p for p in folder.iterdir() if not is_of_mac(p))
    inside = [p for p in files if p.suffix.lower() in (*AUDIO, *audio.FOREIGN)]
    plain = {p.stem for p in inside if p.suffix.lower() in AUDIO}
    return [p for p in inside if p.suffix.lower() in AUDIO or p.stem not in plain]


def from_folder(folder: Path, texts: Path = SENTENCES) -> list[Item]:
    """Waves of a folder in order of their names, each with its .txt, or else the line of texts.

    Raises:
        InputError: no waves, too few lines, or some have a .txt and others none, and no texts are
            named.
    """
    paths = sound_files(folder)
    if not paths:
        raise InputError(f"there are no {', '.join(AUDIO)} files in {folder}")
    beside = {p: words for p in paths if (words := words_beside(p))}
    bare = [p for p in paths if p not in beside]
    if texts == SENTENCES and 0 < len(bare) < len(paths):
        raise InputError(f"{bare[0]} has no {bare[0].stem}.txt, as {len(beside)} others have")
    said = read_texts(texts) if bare else [" ".join(read_texts(beside[p])) for p in paths]
    if len(said) < len(paths):
        raise InputError(f"{folder} holds {len(paths)} waves, but {texts} only {len(said)} lines")
    return [Item(p.stem, text, truth=Recording(p)) for p, text in zip(paths, said)]


def waves(paths: Iterable[Path], limit: int | None = None, least: float = 1.0) -> list[np.ndarray]:
    """The recordings of a person, with or without texts: of files, folders and tars, sorted.

    Args:
        limit: only the first so many that are long enough.
        least: seconds.

    Returns:
        float32 (n,) at 24 kHz each.

    Raises:
        InputError: something is missing or unreadable.
    """
    found: list[np.ndarray] = []
    for recording in (r for path in paths for r in sounds_of(path)):
        if limit is not None and len(found) >= limit:
            break
        wave = recording.wave()
        if len(wave) >= least * audio.SAMPLE_RATE:
            found.append(wave)
    return found


def sounds_of(path: Path) -> list[Recording]:
    """What is sound in a file, folder or tar."""
    if not path.exists():
        raise InputError(f"there is no file or folder {path}")
    if path.suffix.lower() != ".tar":
        return [Recording(p) for p in (sound_files(path) if path.is_dir() else [path])]
    try:
        with tarfile.open(path, "r:", tarinfo=Header) as tar:
            return [
                Recording(path, m.offset_data, m.size, m.name)
                for m in tar
                if Path(m.name).suffix.lower() in AUDIO and not is_of_mac(m.name)
            ]
    except (OSError, tarfile.TarError) as e:
        raise InputError(f"cannot read {path}: {reason(e)}") from e
