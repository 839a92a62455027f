"""Opus: files whose header names no rate, which libsndfile decodes at its lowest; Ogg's pages."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .films import as_wav, is_film
from .mp3_length import BEGINNING, first_frame, lacks_length, with_length

HEAD = 28  # bytes of the first Ogg page before OpusHead, which has one segment (RFC 3533)
SERIAL, CHECKSUM = slice(14, 18), slice(22, 26)
COUNT = 26  # of a page's segments, whose sizes follow
RATE = slice(HEAD + 12, HEAD + 16)  # of what was encoded (RFC 7845, 5.1)
FULL = 48_000  # Hz; a decoder's own
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
MOST_COUNTED = 2**28  # bytes of an MP3 whose frames are counted: some hours


def as_file(source: str | Path | bytes, films: float = 0.0) -> str | io.BytesIO:
    """What SoundFile should open for a path, of films too, or the bytes of a whole file.

    Args:
        source: the path, or the bytes.
        films: seconds that a film of bytes may last; 0: it is opened as if it were none.
    """
    if isinstance(source, bytes):
        if films and is_film(source):
            return as_wav(source, films)
        return io.BytesIO(with_rate(source) if names_no_rate(source) else with_length(source))
    if is_film(source):
        return as_wav(source)
    with open(source, "rb") as f:
        start = f.read(RATE.stop)
        if names_no_rate(start):
            return io.BytesIO(with_rate(start + f.read()))
        f.seek(first_frame(start))
        lacking = lacks_length(f.read(BEGINNING))
        if lacking and f.seek(0, io.SEEK_END) <= MOST_COUNTED:  # else nothing of it is read
            f.seek(0)
            data = f.read()
            if (told := with_length(data)) is not data:
                return io.BytesIO(told)
    return str(source)


def names_no_rate(start: bytes) -> bool:
    """Whether a file that starts so is Opus of rate 0, which stands for one that is not told.

    libsndfile decodes it at 8 kHz, and all sound above 4 kHz is lost.
    """
    is_opus = start[:4] == b"OggS" and start[HEAD : HEAD + 8] == b"OpusHead"
    return is_opus and start[HEAD - 2] == 1 and start[RATE] == bytes(4)


def with_rate(data: bytes) -> bytes:
    """The file of names_no_rate with the rate of a decoder in its header."""
    size = HEAD + data[HEAD - 1]
    page = bytearray(data[:size])
    page[RATE], page[CHECKSUM] = FULL.to_bytes(4, "little"), bytes(4)
    page[CHECKSUM] = checksum(page).to_bytes(4, "little")
    return bytes(page) + data[size:]


def with_serial(pages: bytes, serial: int) -> bytes:
    """Whole pages of Ogg with this number of their stream; libsndfile draws one."""
    return b"".join(numbered(page, serial) for page in pages_of(io.BytesIO(pages)))


def number_by_sound(path: Path) -> None:
    """Has a file of Ogg be the same to the byte whenever its sound is; others stay as they are.

    Other sound has another number, as streams one behind the other in a file need.
    """
    with open(path, "r+b") as f:
        if f.read(4) != b"OggS":
            return
        number = 0
        f.seek(0)
        for page in pages_of(f):
            number = zlib.crc32(numbered(page, 0), number)
        f.seek(0)
        for page in pages_of(f):
            f.seek(-len(page), io.SEEK_CUR)
            f.write(numbered(page, number))


def pages_of(file: BinaryIO) -> Iterator[bytes]:
    """The pages of an Ogg file (RFC 3533, 6)."""
    while head := file.read(COUNT + 1):
        sizes = file.read(head[COUNT])
        yield head + sizes + file.read(sum(sizes))


def numbered(page: bytes, serial: int) -> bytes:
    """A page of Ogg with this number of its stream."""
    found = bytearray(page)
    found[SERIAL], found[CHECKSUM] = serial.to_bytes(4, "little"), bytes(4)
    found[CHECKSUM] = checksum(found).to_bytes(4, "little")
    return bytes(found)


def checksum(page: bytes | bytearray) -> int:
    """Ogg's sum of a page (RFC 3533, 6): zlib's CRC with bits reversed, and nothing inverted."""
    found = zlib.crc32(bytes(page).translate(REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{found:032b}"[::-1], 2)
