"""Films: sound of phones and films (AAC, AMR, CAF, WebM, WMA) that libsndfile lacks. Needs PyAV."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import InputError

# FFmpeg's reader of each extension: no other is asked, as some open further files or addresses
READERS = {
    ".m4a": "mov",
    ".mp4": "mov",
    ".m4b": "mov",
    ".m4v": "mov",
    ".mov": "mov",
    ".3gp": "mov",
    ".3g2": "mov",
    ".amr": "amr",
    ".aac": "aac",
    ".wma": "asf",
    ".webm": "matroska",
    ".mkv": "matroska",
    ".mka": "matroska",
}
# the boxes that an MP4 or a QuickTime file may begin with, of which older ones have no "ftyp"
BOXES = b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"
SYNC = b"\xff\xf0", b"\xff\xf1", b"\xff\xf8", b"\xff\xf9"  # of an AAC frame (ADTS)
# of what a CAF has (Core Audio Format, "desc" chunk); libsndfile reads its others, as PCM and ALAC
IN_CAF = b"aac ", b"opus", b"ima4"
START = 36  # bytes of a file that tell its kind
MOST_SAMPLES = 600 * 48_000 * 2  # of all channels that are decoded: ten minutes of stereo


def can_decode() -> bool:
    """Whether what decodes them is installed."""
    return find_spec("av") is not None


def plain_path(path: str | Path) -> str:
    """A path as FFmpeg should have it: "talk: a.m4a" begins as an address does."""
    return os.path.abspath(path)


def is_film(source: str | Path | bytes) -> bool:
    """Whether a file, or the bytes of one, begins as one of these, and what reads it is installed.

    A file's name may be wrong, as that of a phone's M4A which was made a .mp3 by renaming.
    """
    return reader_of(source) is not None and can_decode()


def beginnings(start: bytes) -> list[str]:
    """FFmpeg's readers of files that begin with these bytes, START of them."""
    begins = {
        "mov": start[4:8] in BOXES,
        "aac": start[:3] == b"ID3" or start[:2] in SYNC,
        "asf": start[:4] == b"\x30\x26\xb2\x75",
        "matroska": start[:4] == b"\x1a\x45\xdf\xa3",
        "amr": start[:5] == b"#!AMR",
        "caf": start[:4] == b"caff" and start[28:32] in IN_CAF,
    }
    return [reader for reader, fits in begins.items() if fits]


def reader_of(source: str | Path | bytes) -> str | None:
    """FFmpeg's reader of a film; None where it is none, or an MP3 or a tar may begin so."""
    if isinstance(source, bytes):
        start, named = source[:START], None
    else:
        named = READERS.get(Path(source).suffix.lower())
        with open(source, "rb") as f:
            start = f.read(START)
    found = beginnings(start)
    if named in found:
        return named
    # a tar begins with a file's name, which may be "takefree.mp3"
    by_chance = start[4:8] in BOXES and start[:1].isalnum() and not isinstance(source, bytes)
    return found[0] if found and start[:3] != b"ID3" and not by_chance else None


def as_wav(source: str | Path | bytes, most: float = math.inf) -> io.BytesIO:
    """The first sound track of a film as a WAV file.

    Args:
        source: its path, or its bytes.
        most: seconds of it that are taken.

    Raises:
        InputError: damaged, without sound, or of more than these, or than MOST_SAMPLES.
    """
    from nanospeech.audio.sound_file import SoundFile

    file = io.BytesIO()
    with sound_of(source) as (track, _, pieces):
        left = min(MOST_SAMPLES, most * track.rate * track.channels)
        form: dict[str, Any] = {"format": "WAV", "subtype": "FLOAT"}
        with SoundFile(file, "w", track.rate, track.channels, **form) as wav:
            for piece in pieces:
                left -= piece.size
                if left < 0:
                    over = "ten minutes of stereo at 48 kHz" if most == math.inf else f"{most:g} s"
                    raise InputError(f"{named(source)} has over {over}; cut it")
                wav.write(piece.T)
    file.seek(0)
    at = file.read(128).find(b"PEAK")  # this chunk has the second of writing
    if at > 0:
        file.seek(at + 12)
        file.write(bytes(4))
    file.seek(0)
    return file


def named(source: str | Path | bytes) -> str:
    """What errors call a film."""
    return "the recording" if isinstance(source, bytes) else str(source)


@contextmanager
def sound_of(source: str | Path | bytes) -> Iterator[tuple[Any, float, Iterator[np.ndarray]]]:
    """The first sound track of a film.

    Yields:
        PyAV's track, with rate and channels; its seconds, 0 where these are not told; its pieces,
        float32 (channels, n).

    Raises:
        InputError: damaged, or without sound.
    """
    import av
    from av.error import FFmpegError
    from soundfile import LibsndfileError

    name = named(source)
    try:
        if isinstance(source, bytes):
            file: Any = io.BytesIO(source)
        else:
            file = plain_path(source)
        reader = reader_of(source)
        # since 19 a title that is no UTF-8 is no error, and there is nothing to say of it
        old = int(av.__version__.partition(".")[0]) < 19
        lenient: dict[str, Any] = {"metadata_errors": "replace"} if old else {}
        with av.open(file, format=reader, **lenient) as film:
            if not film.streams.audio:
                raise InputError(f"{name} holds no audio")
            track = film.streams.audio[0]
            yield track, (film.duration or 0) / av.time_base, pieces_of(av, film, track)
    except InputError:
        raise
    except (FFmpegError, ValueError, LibsndfileError) as e:
        reason = getattr(e, "strerror", None) or str(e)
        raise InputError(f"cannot read {name} as audio: {reason}") from e


def pieces_of(av: Any, film: Any, track: Any) -> Iterator[np.ndarray]:
    """Float32 (channels, n) of a track, piece by piece, at one rate and in one layout."""
    plain = av.AudioResampler(format="fltp", layout=track.layout, rate=track.rate)
    for frame in film.decode(track):
        for piece in plain.resample(frame):
            yield piece.to_ndarray()
    for piece in plain.resample(None):
        yield piece.to_ndarray()
