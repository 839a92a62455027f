"""Writers: chapters to one .m4b by PyAV, or to a folder of files with a playlist."""

from __future__ import annotations

import io
import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.films import plain_path
from nanospeech.audio.sinks import File
from nanospeech.errors import InputError, require
from nanospeech.files import whole

from .pages import Book

log = logging.getLogger("nanospeech")

FORMATS = ("opus", "mp3")
BITRATE = 64_000  # of AAC, mono at 24 kHz
FRAME = 1024  # samples of an AAC frame
MISSING = 0.1  # seconds by which a finished file may be shorter than its speech
LONGEST_NAME = 80  # characters of a file's name, without its ending
PLAYLIST = "playlist.m3u8"


@dataclass(frozen=True)
class Marked:
    """A chapter as players show it.

    Attributes:
        title: of the chapter.
        samples: of its speech.
        waves: float32 pieces, that many samples in all.
    """

    title: str
    samples: int
    waves: Iterable[np.ndarray]


def write_m4b(
    path: Path, book: Book, chapters: Sequence[Marked], rate: int, bitrate: int = BITRATE
) -> None:
    """Writes an audiobook: AAC with chapter marks, facts and the cover; whole or not at all.

    Raises:
        InputError: it cannot be written, or a passage is damaged.
        BackendError: PyAV is not installed.
    """
    av: Any = require("av", "book")
    try:
        with whole(path, sync=True) as part:
            options = {"movflags": "+faststart", "brand": "M4B "}
            there = plain_path(part)
            with av.open(there, "w", format="mp4", options=options) as out:
                stream = prepare(av, out, book, chapters, rate, bitrate)
                encode(av, out, stream, chapters, rate)
            with av.open(there) as made:
                check_whole(path, made.duration / 1e6, chapters, rate)
    except av.error.FFmpegError as e:
        if isinstance(e, OSError) and e.errno:  # as for any file: a full disk, no permission
            raise OSError(e.errno, os.strerror(e.errno), str(path)) from e
        raise InputError(f"cannot write {path}: {e}") from e


def check_whole(path: Path, seconds: float, chapters: Sequence[Marked], rate: int) -> None:
    """
    Raises:
        InputError: a file that has been written is shorter than what was written into it.
    """
    wanted = sum(chapter.samples for chapter in chapters) / rate
    if seconds < wanted - MISSING:
        raise InputError(
            f"{path} has {seconds:.1f} of {wanted:.1f} s; is the disk full? The same command goes"
            " on from what is kept"
        )


def prepare(
    av: Any, out: Any, book: Book, chapters: Sequence[Marked], rate: int, bitrate: int
) -> Any:
    """Writes the facts, the marks and the cover; returns the stream for the speech."""
    facts = {"title": book.title, "album": book.title, "artist": book.author, "genre": "Audiobook"}
    out.metadata.update({k: v for k, v in facts.items() if v})
    stream = out.add_stream("aac", rate=rate, layout="mono")
    stream.bit_rate = bitrate
    if book.language:
        stream.metadata["language"] = iso_639_2(book.language)
    marks, at = [], 0
    for index, chapter in enumerate(chapters):
        mark = {"id": index, "start": at, "end": at + chapter.samples}
        marks.append({**mark, "time_base": Fraction(1, rate), "metadata": {"title": chapter.title}})
        at += chapter.samples
    out.set_chapters(marks)
    if book.cover:
        add_cover(av, out, book.cover)
    return stream


def without_damaged_cover(book: Book) -> Book:
    """A book without its cover where no .m4b could take it, which would cost the whole file.

    Raises:
        BackendError: PyAV is not installed.
    """
    av: Any = require("av", "book")
    try:
        with av.open(io.BytesIO(book.cover or b"")) as picture:
            source = picture.streams.video[0]
            if source.width and source.height and any(p.size for p in picture.demux(source)):
                return book
    except (av.error.FFmpegError, IndexError):
        pass
    if book.cover:
        log.warning("left out the cover, which is damaged; choose another one by --cover FILE")
    return replace(book, cover=None)


def add_cover(av: Any, out: Any, cover: bytes) -> None:
    """Puts a picture into the file as it is."""
    with av.open(io.BytesIO(cover)) as picture:
        source = picture.streams.video[0]
        stream = out.add_stream_from_template(source)
        stream.disposition = av.stream.Disposition.attached_pic
        packet = next(p for p in picture.demux(source) if p.size)
        packet.stream, packet.pts, packet.dts = stream, 0, 0
        out.mux(packet)


def encode(av: Any, out: Any, stream: Any, chapters: Sequence[Marked], rate: int) -> None:
    """Encodes the chapters one after another; a frame at a time is in memory."""
    done, held = 0, np.zeros(0, np.float32)
    for chapter in chapters:
        for wave in chapter.waves:
            held = np.concatenate([held, np.clip(wave, -1, 1)])
            full = len(held) // FRAME * FRAME
            for start in range(0, full, FRAME):
                done = mux(av, out, stream, held[start : start + FRAME], done, rate)
            held = held[full:]
    if len(held):
        mux(av, out, stream, held, done, rate)
    out.mux(stream.encode(None))


def mux(av: Any, out: Any, stream: Any, wave: np.ndarray, done: int, rate: int) -> int:
    """Encodes samples; returns how many have been by then."""
    samples = np.ascontiguousarray(wave[None], np.float32)
    frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = rate, done, Fraction(1, rate)
    out.mux(stream.encode(frame))
    return done + len(wave)


def iso_639_2(language: str) -> str:
    """The three letters that MP4 has for a language such as "de-AT"; und for unknown ones."""
    code = language.replace("_", "-").split("-")[0].lower()
    return code if len(code) == 3 else ISO_639_2.get(code, "und")


# two letters and three, of the terminological set that MP4 uses
LETTERS = """ar:ara bg:bul ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng eo:epo es:spa et:est
eu:eus fa:fas fi:fin fr:fra ga:gle gl:glg he:heb hi:hin hr:hrv hu:hun id:ind is:isl it:ita ja:jpn
ko:kor la:lat lt:lit lv:lav nb:nob nl:nld nn:nno no:nor pl:pol pt:por ro:ron ru:rus sk:slk sl:slv
sr:srp sv:swe sw:swa ta:tam th:tha tr:tur uk:ukr ur:urd vi:vie zh:zho"""
ISO_639_2 = {pair[:2]: pair[3:] for pair in LETTERS.split()}


class Tagged(File):
    """A sound file with a title, its author, the book and the number in it."""

    def __init__(self, path: Path, rate: int, tags: dict[str, str]):
        super().__init__(path, rate)
        self.tags = tags
        # the same in the next run, so that what a power cut leaves is written over
        self.part = self.part.with_name(f".nanospeech-{tags['tracknumber']}{self.part.suffix}")

    def __enter__(self) -> Tagged:
        super().__enter__()
        for name, value in self.tags.items():
            if value:
                setattr(self.file, name, value)
        return self


def write_chapter(path: Path, book: Book, number: int, chapter: Marked, rate: int) -> None:
    """Writes a chapter's file of a folder; whole or not at all.

    Raises:
        InputError: it cannot be written, or a passage is damaged.
    """
    tags = {"title": chapter.title, "artist": book.author, "album": book.title}
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        with Tagged(part, rate, {**tags, "tracknumber": str(number)}) as out:
            for wave in chapter.waves:
                out.write(wave)
        check_whole(path, audio.check_length(part, float("inf")), [chapter], rate)
        os.replace(part, path)  # here: the file is kept at Ctrl-C, and must not look complete
    finally:
        part.unlink(missing_ok=True)


def file_name(number: int, title: str, format: str, count: int) -> str:
    """A chapter's file name that every system takes: "03 The Storm.opus".

    Sorted by name, the files of a book of `count` chapters are in its order.
    """
    said = unicodedata.normalize("NFC", title)
    # vowels of Hindi and Thai are marks, which are parts of words
    marks = {c for c in said if unicodedata.category(c)[0] == "M"}
    said = "".join(c if c in marks or re.match(r"[\w\s.,'()&-]", c) else " " for c in said)
    said = " ".join(said.split())[:LONGEST_NAME].strip(" .")
    width = max(2, len(str(count)))
    return f"{number:0{width}d} {said}".strip() + f".{format}"


def others_listed(
    folder: Path, book: Book, files: Sequence[tuple[str, str, float]]
) -> list[tuple[str, str, float]]:
    """Files of a folder's playlist beside those just written: other chapters in their format.

    Args:
        folder: may have a playlist.
        book: a playlist of another title is not read.
        files: that were written, as for write_playlist.
    """
    try:
        lines = (folder / PLAYLIST).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    if lines[1:2] != [titled(book)]:
        return []
    written = {number_of(name) for name, _, _ in files}
    formats = {Path(name).suffix for name, _, _ in files}
    found = []
    for about, name in pairwise(lines):
        info = re.fullmatch(r"#EXTINF:(\d{1,9}),(.*)", about)
        number = number_of(name)
        if info and number not in written and 0 < number <= len(book.chapters):
            path = folder / Path(name).name
            if path.suffix in formats and path.is_file():
                found.append((path.name, info[2], float(info[1])))
    return found


def number_of(name: str) -> int:
    """The chapter that a file of file_name is of; 0 for other names."""
    digits = re.match(r"\d{1,9}", name)
    return int(digits[0]) if digits else 0


def titled(book: Book) -> str:
    """The second line of a playlist."""
    return f"#PLAYLIST:{' '.join(book.title.split())}"


def write_playlist(folder: Path, book: Book, files: Sequence[tuple[str, str, float]]) -> None:
    """Writes playlist.m3u8, in the order of chapters; others of the book stay in it.

    Args:
        folder: of the files.
        book: for its title.
        files: name, title and seconds of each that was written.
    """
    listed = [*files, *others_listed(folder, book, files)]
    lines = ["#EXTM3U", titled(book)]
    for name, title, seconds in sorted(listed, key=lambda file: number_of(file[0])):
        lines += [f"#EXTINF:{round(seconds)},{' '.join(title.split())}", name]
    with whole(folder / PLAYLIST) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def write_cover(folder: Path, cover: bytes) -> None:
    """Writes cover.jpg or cover.png."""
    kind = "png" if cover.startswith(b"\x89PNG") else "jpg"
    with whole(folder / f"cover.{kind}") as part:
        part.write_bytes(cover)
