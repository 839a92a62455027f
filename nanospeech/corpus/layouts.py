"""Layouts: finds the recordings and transcripts of a data set. Opens no audio.

Known: "libritts" (LibriTTS and LibriTTS-R: X.normalized.txt beside X.wav or X.mp3), "ljspeech"
(metadata.csv and wavs/), "folder" (X.txt beside X.wav), "manifest" (CSV or JSON lines with audio,
text and perhaps speaker, or a folder with metadata.csv or metadata.jsonl of these) and "webdataset"
(uncompressed tars of {key}.mp3 and {key}.json). Text that cannot be used is not left out here: it
comes as a Skip, so that it can be counted.
"""

from __future__ import annotations

import os
import re
import tarfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nanospeech.audio.films import as_wav, is_film
from nanospeech.audio.wave import FOREIGN
from nanospeech.errors import DataError, InputError, reason

from .keys import unique_keys, without_common_folder
from .tables import as_text, has_bars, parsed, rows_of, rows_with_bars, wrong_language
from .tars import Header, split_name

AUDIO = (".mp3", ".wav", ".flac", ".ogg", ".oga", ".opus", ".aiff", ".aif")
TRANSCRIPT = ".normalized.txt"
TABLES = (".csv", ".tsv", ".jsonl", ".list")
RESERVED = ("audio", "text", "speaker", "duration", "sample_rate", "__key__", "__url__")


@dataclass(frozen=True)
class Source:
    """Where the bytes of a recording lie: a file, or a stretch of one (a tar's member)."""

    path: Path
    offset: int = 0
    size: int = -1  # to the end

    def read(self) -> bytes:
        """Its bytes; of a film, where it can be read, those of its sound as WAV."""
        if is_film(self.path):
            with suppress(InputError):  # a damaged one stays as it is, and is left out
                return as_wav(self.path).getvalue()
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


def find(
    inputs: Iterable[Path], layout: str = "auto", untranscribed: bool = False
) -> tuple[list[Sample], list[Skip]]:
    """All samples of some data sets, in a fixed order, each with a key of its own.

    A recording that an earlier input has as well, or that a table lists twice with one text, is a
    Skip: it would be both trained on and held out.

    Args:
        inputs: folders, manifests or tars.
        layout: a key of LAYOUTS, or "auto" to tell each by what lies in it.
        untranscribed: whether recordings whose text is empty are samples too.

    Raises:
        InputError: an input is missing, or its layout is not recognised.
        DataError: there is nothing in them.
    """
    samples: list[Sample] = []
    skips: list[Skip] = []
    inputs, real = list(inputs), lru_cache(1)(os.path.realpath)
    several, earlier = len(inputs) > 1, set[tuple[str, int]]()
    for path in map(Path, inputs):
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        here: dict[tuple[str, int], set[Any]] = {}  # with what is said, which may be two texts
        first = len(samples)
        for found in LAYOUTS[detect(path) if layout == "auto" else layout](path):
            if isinstance(found, Skip):
                skips.append(found)
                continue
            text, audio = clean(found.text), found.audio
            place = str(real(audio.path) if several else audio.path), audio.offset
            if not (text or untranscribed):
                skips.append(Skip(found.name, "empty text"))
            elif wrong := wrong_language(found.extra.get("language")):
                skips.append(Skip(found.name, "invalid language", wrong))
            elif place in earlier:
                skips.append(Skip(found.name, "in an earlier input too"))
            elif (text, found.speaker) in here.setdefault(place, set()):
                skips.append(Skip(found.name, "listed twice", text))
            else:
                samples.append(replace(found, text=text))
                here[place].add((text, found.speaker))
        earlier |= here.keys()
        parts = without_common_folder([s.parts for s in samples[first:]])
        samples[first:] = [replace(s, parts=p) for s, p in zip(samples[first:], parts)]
    if not samples and not skips:
        raise DataError(f"no recordings in {', '.join(map(str, inputs))}")
    keys = unique_keys([s.parts for s in samples])
    return [replace(s, key=key) for s, key in zip(samples, keys)], skips


def detect(path: Path) -> str:
    """The layout of a data set, by what lies in it."""
    table = path if path.is_file() else path / "metadata.csv"
    bars = table.suffix.lower() in (".csv", ".txt", ".list") and table.is_file() and has_bars(table)
    if path.is_file() and bars:
        return "ljspeech"
    if path.is_file() and path.suffix.lower() in (".csv", ".tsv", ".jsonl"):
        return "manifest"
    if path.suffix.lower() == ".tar" or (path.is_dir() and shards_in(path)):
        return "webdataset"
    if path.is_dir() and table.is_file():
        return "ljspeech" if bars else "manifest"
    if path.is_dir() and any(p.name.endswith(TRANSCRIPT) for p in files_in(path)):
        return "libritts"
    if path.is_dir() and any(spelt(p.with_suffix(".txt")) for p in recordings_in(path)):
        return "folder"  # of nothing but unreadable formats too, which are then named
    if (path / "metadata.jsonl").is_file():
        return "manifest"
    raise InputError(why_unknown(path))


def why_unknown(path: Path) -> str:
    """What is wrong with a data set of no layout, and what to do."""
    files = sorted(files_in(path)) if path.is_dir() else [path]
    if found := [p for p in files if p.suffix.lower() in (".parquet", ".arrow")]:
        return (
            f"{found[0]} is a table of Hugging Face's datasets, which is not read: write its"
            " recordings to files, with a table metadata.csv beside them, as docs/training.md"
            " shows, and give their folder"
        )
    tables = " ".join([str(p) for p in files if p.suffix.lower() in TABLES][:9])
    if path.is_dir() and (found := recordings_in(path)):
        elsewhere = (
            f"one of these tables has their words, give it instead: {tables}"
            if tables
            else "they lie elsewhere, name the layout by the --layout of nanospeech prepare shards"
        )
        return (
            f"{path} has recordings ({len(found)}) without their words: write what is said in"
            f" {found[0].name} to {found[0].with_suffix('.txt').name} beside it, and so on, or all"
            f" of it to a table, metadata.csv with the columns audio,text; or, if {elsewhere}"
        )
    return (
        f"cannot tell the layout of {path}: it should be a .csv or .jsonl manifest, a .tar or a "
        f"folder of them, or a folder with metadata.csv, *{TRANSCRIPT} or X.txt beside X.wav; or "
        "name it by the --layout of nanospeech prepare shards"
    )


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
                yield from (Path(folder, f) for f in files if not f.startswith("._"))
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
    """The file of a name, whichever of Unicode's forms has its ä: a Mac's is a and a mark."""
    forms = () if path.name.isascii() else ("NFC", "NFD")
    names = (path, *(path.with_name(unicodedata.normalize(f, path.name)) for f in forms))
    return next(filter(is_file, names), None)


def choose(candidates: Iterable[Path]) -> Path | None:
    """The recording to read among those of one name: an MP3, unless another file is newer."""
    present = [found for p in candidates if (found := spelt(p))]
    if len(present) > 1 and present[0].suffix == ".mp3":
        newest = max(p.stat().st_mtime for p in present[1:])
        present.sort(key=lambda p: p.suffix == ".mp3" and p.stat().st_mtime < newest)
    return present[0] if present else None


def libritts(root: Path) -> Iterator[Sample | Skip]:
    """X.normalized.txt beside X.wav or X.mp3, at any depth; the speaker is X up to its first _."""
    files = {p for p in files_in(root) if p.name.endswith((*AUDIO, TRANSCRIPT))}
    stems = {p.with_name(re.sub(r"(\.normalized)?\.\w+$", "", p.name)) for p in files}
    for stem in sorted(stems):
        name = stem.relative_to(root).as_posix()
        text_path = stem.with_name(stem.name + TRANSCRIPT)
        audio = choose(stem.with_name(stem.name + suffix) for suffix in AUDIO)
        if audio is None:
            yield Skip(name, "no audio file")
        elif text_path not in files:
            yield Skip(name, "no transcript")
        elif isinstance(text := read_text(text_path, name), Skip):
            yield text
        else:
            yield Sample(name, (root.name, *name.split("/")), Source(audio), text, speaker(stem))


def folder(root: Path) -> Iterator[Sample | Skip]:
    """X.txt beside X.wav, X.mp3, X.flac, X.ogg or X.opus, at any depth; no speaker."""
    seen: set[Path] = set()
    for path in recordings_in(root):
        stem = path.with_suffix("")
        if stem in seen:  # X.mp3 beside X.wav is the same recording
            continue
        seen.add(stem)
        name = stem.relative_to(root).as_posix()
        audio = choose(path.with_suffix(suffix) for suffix in AUDIO) or path
        if (words := spelt(path.with_suffix(".txt"))) is None:
            yield Skip(name, "no transcript")
        elif path.suffix.lower() in FOREIGN and not is_film(path):
            how = "pip install 'nanospeech-tts[book]', or convert it, as by ffmpeg -i FILE new.wav"
            yield Skip(name, "a format that is not read", f"{path.suffix}; {how}")
        elif isinstance(text := read_text(words, name), Skip):
            yield text
        else:
            yield Sample(name, (root.name, *name.split("/")), Source(audio), text)


def speaker(stem: Path) -> str:
    """LibriTTS: READER/CHAPTER/READER_CHAPTER_…"""
    return stem.name.split("_")[0]


def read_text(path: Path, name: str) -> str | Skip:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        return Skip(name, "unreadable text", f"{e}; save it as UTF-8")
    except OSError as e:
        return Skip(name, "unreadable text", str(e))


def ljspeech(root: Path) -> Iterator[Sample | Skip]:
    """metadata.csv of "id|text as written|text as read" and wavs/id.wav.

    Or a file's name in the place of the id, a first line that names the columns, and a speaker
    before or behind the text. Recordings may be in wav, or beside the table, as well.
    """
    table = root if root.is_file() else root / "metadata.csv"
    root = table.parent
    below = next((root / name for name in ("wavs", "wav") if (root / name).is_dir()), root)
    for number, row in rows_with_bars(table):
        if not isinstance(row, dict):
            yield Skip(f"{table.name}:{number}", "more fields than columns", str(row))
            continue
        name = row.get("audio", "")
        if "text" not in row:
            yield Skip(f"{table.name}:{number}", "no transcript", f"no | in {name[:80]!r}")
            continue
        files = [below / (name + suffix) for suffix in (*AUDIO, "", ".WAV")]  # as recorders write
        audio = choose((*files, root / name)) if name else None
        if audio is None:
            wanted = f"; recordings should be in {root / 'wavs'}" if below == root else ""
            yield Skip(name, "no audio file", f"none of that name in {below}{wanted}")
        else:
            stem = name.removesuffix(audio.suffix)
            parts = (root.name, *(Path(stem).parts if os.path.isabs(stem) else (stem,)))
            extra = {k: v for k, v in row.items() if k not in RESERVED}
            yield Sample(name, parts, Source(audio), row["text"], row.get("speaker") or None, extra)


def manifest(path: Path) -> Iterator[Sample | Skip]:
    """A table with a header (CSV; TSV) or an object a line (JSONL): audio, text[, speaker, …].

    Or a folder with such a metadata.csv or metadata.jsonl. Paths of recordings are relative to the
    manifest's folder; other fields are kept.
    """
    if path.is_dir():
        table = path / "metadata.csv"
        path = table if table.is_file() else path / "metadata.jsonl"
    for number, row in rows_of(path):
        name = f"{path.name}:{number}"
        if not isinstance(row, dict):
            yield Skip(name, "unreadable row", str(row))
            continue
        file, text, who = (row.get(k) for k in ("audio", "text", "speaker"))
        if not isinstance(file, str) or not file.strip():
            yield Skip(name, "no audio file", "the field audio is empty or missing")
        elif text is None:
            yield Skip(name, "no transcript", "the field text is missing")
        elif more := [f for f in row.get(None, ()) if f.strip()]:  # DictReader has them there
            tabs = path.suffix.lower() == ".tsv"
            mend = "is a tab in its text?" if tabs else "put quotes around a text with commas"
            yield Skip(
                name, "more fields than columns", f"{', '.join(more)[:80]!r} is behind; {mend}"
            )
        elif (audio := spelt(path.parent / file)) is None:
            where = f"there is no {str(path.parent / file)[:200]}"
            yield Skip(f"{name} {file[:80]}", "no audio file", where)
        else:
            parts = tuple(p for p in Path(file).with_suffix("").parts if p not in ("..", "."))
            extra = {k: v for k, v in row.items() if k and k not in RESERVED}
            person = str(who) if who not in (None, "") else None
            try:
                said = as_text(text)
            except ValueError as e:
                yield Skip(name, "unreadable text", str(e))
                continue
            yield Sample(file, (path.stem, *parts), Source(audio), said, person, extra)


def webdataset(path: Path) -> Iterator[Sample | Skip]:
    """Tars of {key}.mp3 (or another format) and {key}.json with "text" (or {key}.txt)."""
    for tar_path in [path] if path.is_file() else shards_in(path):
        groups, damage = groups_of(tar_path)
        for key, files in groups:
            yield tar_sample(tar_path, key, files)
        if damage is not None:
            yield damage


def shards_in(folder: Path) -> list[Path]:
    """The tars of a folder, but for hidden ones."""
    return sorted(p for p in folder.glob("*.tar") if not p.name.startswith("."))


def groups_of(path: Path) -> tuple[list[tuple[str, dict[str, Source]]], Skip | None]:
    """Key and files, by extension, of each sample of a tar; and what of the tar is damaged.

    Raises:
        InputError: it cannot be read at all.
    """
    groups: list[tuple[str, dict[str, Source]]] = []
    places: dict[str, int] = {}
    last, damage, size = "", None, path.stat().st_size
    try:
        with tarfile.open(path, "r:", tarinfo=Header) as tar:
            for m in tar:
                key, kind = split_name(m.name)
                if not m.isfile() or not kind or m.offset_data + m.size > size:
                    continue
                if key not in places or (key == last and "." + kind in groups[places[key]][1]):
                    places[key] = len(groups)  # a name that follows itself is another sample
                    groups.append((key, {}))
                last = key
                groups[places[key]][1]["." + kind] = Source(path, m.offset_data, m.size)
    except (OSError, tarfile.TarError) as e:
        if not groups:
            why = reason(e) if size else "it is empty"
            raise InputError(f"cannot read {path} as an uncompressed tar: {why}") from e
        damage = Skip(path.name, "broken shard", f"{reason(e)}; samples before that are used")
    return groups, damage


def tar_sample(tar_path: Path, key: str, files: dict[str, Source]) -> Sample | Skip:
    name = f"{tar_path.name}/{key}"
    audio = next((files[suffix] for suffix in AUDIO if suffix in files), None)
    if audio is None:
        return Skip(name, "no audio file", f"it has {', '.join(sorted(files))}"[:80])
    try:
        meta = parsed(files[".json"].read()) if ".json" in files else {}
        if "text" not in meta and ".txt" in files:
            meta["text"] = files[".txt"].read().decode("utf-8-sig")
        text = as_text(meta["text"])
    except KeyError:
        return Skip(name, "no transcript")
    except (ValueError, TypeError) as e:
        return Skip(name, "unreadable text", str(e))
    extra = {k: v for k, v in meta.items() if k not in RESERVED}
    who = str(meta["speaker"]) if meta.get("speaker") not in (None, "") else None
    return Sample(name, (tar_path.stem, *key.split("/")), audio, text, who, extra)


LAYOUTS: dict[str, Callable[[Path], Iterator[Sample | Skip]]] = {
    "libritts": libritts,
    "ljspeech": ljspeech,
    "folder": folder,
    "manifest": manifest,
    "webdataset": webdataset,
}
