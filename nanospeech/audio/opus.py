"""Opus: files whose header names no rate, which libsndfile decodes at its lowest."""

from __future__ import annotations

import io
from pathlib import Path

from .films import as_wav, is_film
from .mp3_length import BEGINNING, first_frame, lacks_length, with_length

HEAD = 28  # bytes of the first Ogg page before OpusHead, which has one segment (RFC 3533)
CHECKSUM = slice(22, 26)
RATE = slice(HEAD + 12, HEAD + 16)  # of what was encoded (RFC 7845, 5.1)
FULL = 48_000  # Hz; a decoder's own
MOST_COUNTED = 2**28  # bytes of an MP3 whose frames are counted: some hours


def as_file(source: str | Path | bytes) -> str | io.BytesIO:
    """What SoundFile should open for a path, of films too, or the bytes of a whole file."""
    if isinstance(source, bytes):
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


def checksum(page: bytes | bytearray) -> int:
    """Ogg's sum of a page: a CRC of 32 bits by 0x04C11DB7 (RFC 3533, 6)."""
    found = 0
    for byte in page:
        found ^= byte << 24
        for _ in range(8):
            found = (found << 1) ^ (0x04C11DB7 if found >> 31 else 0)
            found &= 0xFFFFFFFF
    return found
