"""Encoders: waves to the bytes of a format while they are made. Needs SoundFile; PyAV for aac."""

from __future__ import annotations

import ctypes
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from nanospeech.audio.opus import with_serial
from nanospeech.audio.sinks import pcm16, wav_header
from nanospeech.audio.wave import BLOCK, wav_bytes

from .errors import bad

OGG_LATENCY = 0x1302  # libsndfile's SFC_SET_OGG_PAGE_LATENCY_MS
MP3_LEVEL = 0.5  # 80 kbit/s at 24 kHz
OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)  # samples a second that it knows
PAGE = 100.0  # milliseconds of an Ogg page; a page of a second would hold the first sound back


@dataclass(frozen=True)
class Format:
    """A format of answers.

    Attributes:
        media: its media type.
        streams: whether players can read it from its beginning before it is complete.
    """

    media: str
    streams: bool = True


# flac: its header holds the number of samples, without which libsndfile reads none
FORMATS = {
    "mp3": Format("audio/mpeg"),
    "opus": Format("audio/ogg"),
    "aac": Format("audio/aac"),
    "flac": Format("audio/flac", streams=False),
    "wav": Format("audio/wav"),
    "pcm": Format("audio/pcm"),
}


def check_format(name: Any, rate: int, more: tuple[str, ...] = ()) -> str:
    """A name of FORMATS, or of more, that can be made here, of so many samples a second.

    Raises:
        ApiError: there is no such format, its encoder is missing, or has no such rate.
    """
    lacks = {} if find_spec("av") else {"aac": "aac needs PyAV on the server (pip install av)"}
    if rate not in OPUS_RATES:
        lacks["opus"] = f"opus has no rate of {rate} Hz, which is the model's"
    here = [f for f in FORMATS if f not in lacks]
    if isinstance(name, str) and name in lacks:
        message = f"{lacks[name]}; choose from {', '.join(here)}"
        raise bad(message, "response_format", "format_not_available")
    if not isinstance(name, str) or name not in (*here, *more):
        choices = ", ".join((*here, *more))
        message = f"response_format {str(name)[:40]!r} not known; choose from {choices}"
        raise bad(message, "response_format")
    return name


def encode(waves: Iterable[np.ndarray], name: str, rate: int) -> Iterator[bytes]:
    """Bytes of a format, as soon as there are any; of wav and flac without a known length."""
    if name in ("wav", "pcm"):
        return _plain(waves, rate, name == "wav")
    if name == "aac":
        return _aac(waves, rate)
    found = _sndfile(waves, name, rate)
    return _numbered(found) if name == "opus" else found


def encode_whole(waves: Iterable[np.ndarray], name: str, rate: int) -> Iterator[bytes]:
    """All bytes of a format as one, with the right lengths in its header."""
    wave = np.concatenate([np.zeros(0, np.float32), *waves])
    if name == "wav":
        yield wav_bytes(wave, rate)
    elif name in ("flac", "mp3", "opus"):
        file = io.BytesIO()
        with _opened(file, name, rate) as f:
            for start in range(0, len(wave), BLOCK):
                f.write(np.clip(wave[start : start + BLOCK], -1, 1))
        yield from _numbered([file.getvalue()]) if name == "opus" else [file.getvalue()]
    else:
        yield b"".join(encode([wave], name, rate))


def _plain(waves: Iterable[np.ndarray], rate: int, header: bool) -> Iterator[bytes]:
    before = wav_header(rate) if header else b""
    for wave in waves:
        yield before + pcm16(wave)
        before = b""


class Spill(io.RawIOBase):
    """A file whose bytes are taken away as they are written; what is patched later is dropped."""

    def __init__(self):
        super().__init__()
        self.held = bytearray()
        self.gone = self.place = 0

    def take(self) -> bytes:
        """What was written since."""
        found = bytes(self.held)
        self.gone += len(found)
        self.held.clear()
        return found

    def write(self, data: Any) -> int:
        data = bytes(data)
        start = self.place - self.gone
        self.place += len(data)
        if start >= 0:
            self.held[start : start + len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self.place = (0, self.place, self.gone + len(self.held))[whence] + offset
        return self.place

    def tell(self) -> int:
        return self.place

    def readinto(self, buffer: Any) -> int:
        return 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _opened(file: Any, name: str, rate: int) -> Any:
    """A SoundFile that encodes into a file."""
    import soundfile as sf

    from nanospeech.audio.sound_file import SoundFile

    kinds = {
        "mp3": {"format": "MP3", "subtype": "MPEG_LAYER_III"},
        "opus": {"format": "OGG", "subtype": "OPUS"},
        "flac": {"format": "FLAC", "subtype": "PCM_16"},
    }
    # with a variable bit rate the length is patched into the first frame at the end; without a
    # compression level soundfile 0.14 ignores the mode
    constant = {"bitrate_mode": "CONSTANT", "compression_level": MP3_LEVEL}
    more: dict[str, Any] = constant if name == "mp3" else {}
    f = SoundFile(file, "w", rate, 1, **kinds[name], **more)
    if name == "opus":
        value = sf._ffi.new("double *", PAGE)
        sf._snd.sf_command(f._file, OGG_LATENCY, value, ctypes.sizeof(ctypes.c_double))
    return f


def _sndfile(waves: Iterable[np.ndarray], name: str, rate: int) -> Iterator[bytes]:
    file = Spill()
    with _opened(file, name, rate) as f:
        for wave in waves:
            wave = np.clip(wave, -1, 1)
            for start in range(0, len(wave), BLOCK):
                f.write(wave[start : start + BLOCK])
            if data := file.take():
                yield data
    if data := file.take():
        yield data


def _numbered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Opus whose bytes are those of its sound: libsndfile draws the number of a stream.

    Other sound has another number, as streams one behind the other in a file need.
    """
    number = None
    for pages in parts:
        if number is None:
            number = zlib.crc32(with_serial(pages, 0))
        yield with_serial(pages, number)


def _aac(waves: Iterable[np.ndarray], rate: int) -> Iterator[bytes]:
    """ADTS, which any AAC player reads from anywhere."""
    import av

    file = Spill()
    with av.open(file, "w", format="adts") as container:
        stream: Any = container.add_stream("aac", rate=rate, layout="mono")
        for wave in waves:
            frame = av.AudioFrame.from_ndarray(
                np.clip(wave, -1, 1)[None].astype(np.float32), format="fltp", layout="mono"
            )
            frame.sample_rate = rate
            container.mux(stream.encode(frame))
            if data := file.take():
                yield data
        container.mux(stream.encode(None))
    if data := file.take():
        yield data
