"""Layouts: finds the recordings and transcripts of a data set. Opens no audio.

Known: "ljspeech" (metadata.csv and wavs/), "folder" (X.txt or X.json beside X.wav), "manifest" (CSV
or JSON lines with audio, text and perhaps speaker, or a folder with metadata.csv or metadata.jsonl
of these; Common Voice's and Hi-Fi TTS's too), "webdataset" (uncompressed tars of {key}.mp3 and
{key}.json), and those of published.py. Text that cannot be used is not left out here: it comes as
a Skip, so that it can be counted.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import Any

from nanospeech.audio.films import can_decode, is_film
from nanospeech.audio.wave import FOREIGN
from nanospeech.errors import DataError, InputError, reason

from .keys import unique_keys, without_common_folder
from .namesakes import set_of, told_apart, warn_of_namesakes
from .published import CHAPTER, TRANSCRIPT, aishell3, librispeech, libritts, mls, published, vctk
from .samples import (
    AUDIO,
    MOST_TEXT,
    Sample,
    Skip,
    Source,
    choose,
    clean,
    files_in,
    read_text,
    recordings_in,
    spelt,
    words_beside,
)
from .tables import (
    as_text,
    has_bars,
    has_objects,
    parsed,
    rows_of,
    rows_with_bars,
    start_of,
    wrong_language,
)
from .tars import Header, split_name
from .unknown import why_unknown

HIFI_TTS = re.compile(r"(\d+)_manifest_(clean|other)_\w+\.json")
RESERVED = ("audio", "text", "speaker", "duration", "sample_rate", "__key__", "__url__")


def find(
    inputs: Iterable[Path],
    layout: str = "auto",
    untranscribed: bool = False,
    distinct: bool = False,
) -> tuple[list[Sample], list[Skip]]:
    """All samples of some data sets, in a fixed order, each with a key of its own.

    A recording that an earlier input has as well, or that is there twice with one text, as by a
    link, is a Skip: it would be both trained on and held out. Speakers of one name are one person,
    with a warning where that is a number in several folders.

    Args:
        inputs: folders, manifests or tars.
        layout: a key of LAYOUTS, or "auto" to tell each by what lies in it.
        untranscribed: whether recordings whose text is empty are samples too.
        distinct: whether speakers of one name in inputs of several folders are several people, who
            then have their folder's name before their own.

    Raises:
        InputError: an input is missing, or its layout is not recognised.
        DataError: there is nothing in them.
    """
    samples: list[Sample] = []
    skips: list[Skip] = []
    sets: list[Path] = []  # of each sample
    inputs, real = list(inputs), lru_cache(1)(os.path.realpath)
    earlier: set[tuple[str, int]] = set()
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
            place = str(real(audio.path)), audio.offset
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
        sets += [set_of(path)] * len(parts)
    if not samples and not skips:
        raise DataError(f"no recordings in {', '.join(map(str, inputs))}")
    if distinct:
        samples = told_apart(samples, sets)
    else:
        warn_of_namesakes(samples, sets)
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
    if path.is_file() and path.suffix.lower() == ".json" and has_objects(path):
        return "manifest"
    if path.suffix.lower() == ".tar" or (path.is_dir() and shards_in(path)):
        return "webdataset"
    if path.is_dir() and table.is_file():
        return "ljspeech" if bars else "manifest"
    if path.is_dir() and (found := "manifest" if published_tables(path) else published(path)):
        return found
    if path.is_dir() and any(p.name.endswith(TRANSCRIPT) for p in files_in(path)):
        return "libritts"
    if path.is_dir() and any(p.name.endswith(CHAPTER) for p in files_in(path)):
        return "librispeech"
    if path.is_dir() and any(map(words_beside, recordings_in(path))):
        return "folder"  # of nothing but unreadable formats too, which are then named
    if (path / "metadata.jsonl").is_file():
        return "manifest"
    if path.is_dir() and any(
        words_beside(p, kind) for p in recordings_in(path) for kind in (".json", ".lab")
    ):
        return "folder"
    raise InputError(why_unknown(path))


def published_tables(folder: Path) -> list[Path]:
    """Tables of Common Voice's, of a language or several, or of Hi-Fi TTS's readers."""
    for name in ("validated.tsv", "train.tsv", "*/validated.tsv", "*/train.tsv"):
        if found := [p for p in sorted(folder.glob(name)) if (p.parent / "clips").is_dir()]:
            return found
    return sorted(p for p in folder.glob("*.json") if HIFI_TTS.fullmatch(p.name))


def folder(root: Path) -> Iterator[Sample | Skip]:
    """X.txt beside X.wav, X.mp3, X.flac, X.ogg or X.opus, at any depth; no speaker.

    Or X.json with "text" and perhaps "speaker" and "language", as Emilia's; or X.lab, as of the
    Montreal Forced Aligner, where it lies in a folder of who speaks.
    """
    seen: set[Path] = set()
    for path in recordings_in(root):
        stem = path.with_suffix("")
        if stem in seen:  # X.mp3 beside X.wav is the same recording
            continue
        seen.add(stem)
        name = stem.relative_to(root).as_posix()
        audio = choose(path.with_suffix(suffix) for suffix in AUDIO) or spelt(path)
        words = words_beside(path) or words_beside(path, ".json") or words_beside(path, ".lab")
        if words is None:
            yield Skip(name, "no transcript")
        elif audio is None:
            yield Skip(name, "no audio file", f"{path.name} is no file, or a link to none")
        elif path.suffix.lower() in FOREIGN and not is_film(path):
            yield not_read(name, path.suffix)
        elif isinstance(text := read_text(words, name), Skip):
            yield text
        else:
            found = (text, None, {})
            if words.suffix.lower() == ".json":
                found = said_in(name, text)
            elif words.suffix.lower() == ".lab" and stem.parent not in (root, *in_wavs(root)):
                found = (text, stem.parent.name, {})
            parts = (root.name, *name.split("/"))
            yield found if isinstance(found, Skip) else Sample(name, parts, Source(audio), *found)


def not_read(name: str, suffix: str) -> Skip:
    """A recording that nothing here decodes."""
    how = "pip install 'nanospeech-tts[book]', or convert it, as by ffmpeg -i FILE new.wav"
    return Skip(name, "a format that is not read", f"{suffix}; {how}")


def in_wavs(root: Path) -> list[Path]:
    """Where the recordings of a data set may lie."""
    return [root / "wavs", root / "wav"]


def ljspeech(root: Path) -> Iterator[Sample | Skip]:
    """metadata.csv of "id|text as written|text as read" and wavs/id.wav.

    Or a file's name in the place of the id, a first line that names the columns, and a speaker
    before or behind the text. Recordings may be in wav, or beside the table, as well.
    """
    table = root if root.is_file() else root / "metadata.csv"
    root = table.parent
    below = next(filter(Path.is_dir, in_wavs(root)), root)
    for number, row in rows_with_bars(table):
        if not isinstance(row, dict):
            yield Skip(f"{table.name}:{number}", "more fields than columns", str(row))
            continue
        row = {column: value.strip() for column, value in row.items()}  # as of "id | text"
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

    Or a folder with such a metadata.csv or metadata.jsonl, or with tables of published_tables().
    Paths of recordings are relative to the manifest's folder; other fields are kept.

    Raises:
        InputError: it cannot be read, or is of parts of recordings, as NeMo's may be.
    """
    if path.is_dir():
        own = [p for p in (path / "metadata.csv", path / "metadata.jsonl") if p.is_file()][:1]
        for table in own or published_tables(path) or [path / "metadata.jsonl"]:
            yield from manifest(table)
        return
    reader = HIFI_TTS.fullmatch(path.name)
    starts: dict[str, float] = {}  # of recordings that have one
    for number, row in rows_of(path):
        name = f"{path.name}:{number}"
        if not isinstance(row, dict):
            yield Skip(name, "unreadable row", str(row))
            continue
        file, text, who = (row.get(k) for k in ("audio", "text", "speaker"))
        since, is_part = start_of(row)
        if is_part or (since is not None and starts.setdefault(str(file), since) != since):
            raise InputError(
                f"{name} is a part of {str(file)[:80]}, from {since:g} s on, and whole recordings"
                " are read: cut the parts out first, as by ffmpeg -ss and -t, and list their files"
            )
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
            if PureWindowsPath(file).root:  # of any system
                where += "; where it is another machine's, write paths relative to the table"
            yield Skip(f"{name} {file[:80]}", "no audio file", where)
        else:
            parts = tuple(p for p in Path(file).with_suffix("").parts if p not in ("..", "."))
            extra = {k: v for k, v in row.items() if k and k not in RESERVED}
            who = reader[1] if reader and who is None else who
            person = str(who).strip() if who is not None else None
            try:
                said = as_text(text)
            except ValueError as e:
                yield Skip(name, "unreadable text", str(e))
                continue
            yield Sample(file, (path.stem, *parts), Source(audio), said, person or None, extra)


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
    suffix = next((suffix for suffix in (*AUDIO, *FOREIGN) if suffix in files), None)
    if suffix is None:
        dotted = any(kind.endswith((*AUDIO, *FOREIGN)) for kind in files)
        mend = "; a key ends at the first dot: pack it under a name without dots" if dotted else ""
        return Skip(name, "no audio file", f"it has {', '.join(sorted(files))}"[:80] + mend)
    if suffix in FOREIGN and not can_decode():
        return not_read(name, suffix)
    given = [files[kind] for kind in (".json", ".txt") if kind in files]
    if not given:
        unpack = "no .json or .txt of its name; unpack what is no WebDataset, and give the folder"
        return Skip(name, "no transcript", unpack)
    if (size := max(source.size for source in given)) > MOST_TEXT:
        return Skip(name, "unreadable text", f"{size:,} bytes")
    json, txt = (files[kind].raw() if kind in files else None for kind in (".json", ".txt"))
    found = said_in(name, json, txt)
    if isinstance(found, Skip):
        return found
    return Sample(name, (tar_path.stem, *key.split("/")), files[suffix], *found)


def said_in(
    name: str, json: str | bytes | None, txt: bytes | None = None
) -> tuple[str, str | None, dict[str, Any]] | Skip:
    """Text, speaker and other fields of a recording's JSON; another file's text if it has none."""
    try:
        meta = parsed(json) if json is not None else {}
        if not isinstance(meta, dict):
            raise ValueError("no object with a text")
        if "text" not in meta and txt is not None:
            meta["text"] = txt.decode("utf-8-sig")
        text = as_text(meta["text"])
    except KeyError:
        return Skip(name, "no transcript", "the field text is missing")
    except ValueError as e:
        return Skip(name, "unreadable text", str(e))
    extra = {k: v for k, v in meta.items() if k not in RESERVED}
    who = str(meta["speaker"]) if meta.get("speaker") not in (None, "") else None
    return text, who, extra


LAYOUTS: dict[str, Callable[[Path], Iterator[Sample | Skip]]] = {
    "libritts": libritts,
    "librispeech": librispeech,
    "ljspeech": ljspeech,
    "folder": folder,
    "manifest": manifest,
    "webdataset": webdataset,
    "vctk": vctk,
    "mls": mls,
    "aishell3": aishell3,
}
