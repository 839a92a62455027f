"""Published data sets whose layouts are their own: LibriTTS, LibriSpeech, VCTK, MLS, AISHELL-3."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .samples import AUDIO, Sample, Skip, Source, choose, files_in, read_text, recordings_in
from .tables import lines_of

TRANSCRIPT = ".normalized.txt"
CHAPTER = ".trans.txt"
WAV48 = "wav48_silence_trimmed", "wav48"  # VCTK's, of 0.92 and older


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
            yield Sample(name, (root.name, *name.split("/")), Source(audio), text, reader(stem))


def reader(stem: Path) -> str:
    """LibriTTS: READER/CHAPTER/READER_CHAPTER_…"""
    return stem.name.split("_")[0]


def librispeech(root: Path) -> Iterator[Sample | Skip]:
    """READER-CHAPTER.trans.txt of "READER-CHAPTER-NUMBER TEXT" beside the recordings, at any depth.

    The texts are in capitals alone, and become small letters.
    """
    untold = {p.with_suffix(""): p for p in recordings_in(root)}
    for table in sorted(p for p in files_in(root) if p.name.endswith(CHAPTER)):
        for line in filter(str.strip, lines_of(table)):
            name, _, text = line.strip().partition(" ")
            untold.pop(table.parent / name, None)
            audio = choose(table.parent / (name + suffix) for suffix in AUDIO)
            if audio is None:
                yield Skip(name, "no audio file", f"none of that name in {table.parent}")
            else:
                parts, said = (root.name, name), text.lower() if text.isupper() else text
                yield Sample(name, parts, Source(audio), said, name.split("-")[0])
    yield from (Skip(p.relative_to(root).as_posix(), "no transcript") for p in untold.values())


def vctk(root: Path) -> Iterator[Sample | Skip]:
    """txt/SPEAKER/X.txt and wav48_silence_trimmed/SPEAKER/X_mic1.flac, or wav48/SPEAKER/X.wav.

    What the second microphone recorded is read where there is nothing of the first.
    """
    sound = next((root / name for name in WAV48 if (root / name).is_dir()), root / WAV48[0])
    found = (p for p in files_in(root / "txt") if p.suffix == ".txt")
    texts = {p.relative_to(root / "txt").with_suffix("") for p in found}
    heard = (p.relative_to(sound).with_suffix("") for p in recordings_in(sound))
    for stem in sorted(texts | {p.with_name(re.sub(r"_mic\d$", "", p.name)) for p in heard}):
        name = stem.as_posix()
        places = (
            choose(sound / f"{name}{mic}{suffix}" for suffix in AUDIO)
            for mic in ("_mic1", "_mic2", "")
        )
        if (audio := next(filter(None, places), None)) is None:
            yield Skip(name, "no audio file", f"none of that name in {sound}")
        elif stem not in texts:
            yield Skip(name, "no transcript")
        elif isinstance(text := read_text(root / "txt" / f"{name}.txt", name), Skip):
            yield text
        else:
            parts = (root.name, *name.split("/"))
            yield Sample(name, parts, Source(audio), text, stem.parent.name or None)


def mls(root: Path) -> Iterator[Sample | Skip]:
    """transcripts.txt of "READER_BOOK_NUMBER<tab>text", audio/READER/BOOK/READER_BOOK_NUMBER.flac.

    Or a folder of train, dev and test with these.
    """
    for table in lists(root, "transcripts.txt", "audio"):
        for number, name, text in rows_with_tabs(table):
            reader, *more = name.split("_")
            if len(more) != 2:
                yield Skip(number, "unreadable row", f"no READER_BOOK_NUMBER: {name[:80]!r}")
                continue
            folder = table.parent / "audio" / reader / more[0]
            audio = choose(folder / (name + suffix) for suffix in AUDIO)
            if audio is None:
                yield Skip(name, "no audio file", f"none of that name in {folder}")
            else:
                yield Sample(name, (root.name, name), Source(audio), text, reader)


def aishell3(root: Path) -> Iterator[Sample | Skip]:
    """content.txt of "NAME.wav<tab>character pinyin character pinyin …", wav/SPEAKER/NAME.wav.

    Or a folder of train and test with these. The characters are kept.
    """
    for table in lists(root, "content.txt", "wav"):
        for number, file, text in rows_with_tabs(table):
            name, words = Path(file).stem, text.split()
            speaker = name[:7]
            folder = table.parent / "wav" / speaker
            if len(words) % 2 or not all(word.isascii() for word in words[1::2]):
                why = f"no characters and pinyin by turns: {text[:80]!r}"
                yield Skip(number, "unreadable text", why)
            elif (audio := choose(folder / (name + suffix) for suffix in AUDIO)) is None:
                yield Skip(name, "no audio file", f"none of that name in {folder}")
            else:
                said, parts = "".join(words[::2]), (root.name, speaker, name)
                yield Sample(name, parts, Source(audio), said, speaker, {"language": "zh"})


def lists(root: Path, name: str, beside: str) -> list[Path]:
    """Files of a name with a folder beside them, in a folder or those in it."""
    found = [root / name, *sorted(root.glob(f"*/{name}"))]
    return [p for p in found if p.is_file() and (p.parent / beside).is_dir()]


def rows_with_tabs(table: Path) -> Iterator[tuple[str, str, str]]:
    """The place of each line of "name<tab>text", its name and its text."""
    for number, line in enumerate(lines_of(table), 1):
        if line.strip():
            name, _, text = line.partition("\t")
            yield f"{table.name}:{number}", name.strip(), text


def published(root: Path) -> str | None:
    """Which of these layouts a folder has, if its first files tell: not LibriTTS's."""
    if (root / "txt").is_dir() and any((root / name).is_dir() for name in WAV48):
        return "vctk"
    if lists(root, "transcripts.txt", "audio"):
        return "mls"
    return "aishell3" if lists(root, "content.txt", "wav") else None
