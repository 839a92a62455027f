"""Output: where speech goes while it is made: a file, a pipe, the loudspeakers, or memory.

Each takes waves of float32 in [-1, 1] (beyond it they are clipped) and counts their samples.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nanospeech.errors import BackendError, InputError

from . import wave as audio

PIECES_AHEAD = 8  # of speech made before they are played: memory must not grow with the text
UNKNOWN = 0xFFFFFFFF  # length in the header of a WAV that is written to a pipe, as FFmpeg has it


class Output:
    """Something that speech goes into; closed by the with statement that it is used in."""

    def __init__(self, sample_rate: int):
        self.sample_rate = sample_rate
        self.samples = 0

    @property
    def seconds(self) -> float:
        return self.samples / self.sample_rate

    def write(self, wave: np.ndarray) -> None:
        """Takes the next samples: float32 (n,)."""
        self.samples += len(wave)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        pass


class Memory(Output):
    """Keeps everything."""

    def __init__(self, sample_rate: int):
        super().__init__(sample_rate)
        self.waves: list[np.ndarray] = []

    def write(self, wave: np.ndarray) -> None:
        self.waves.append(wave)
        super().write(wave)

    @property
    def wave(self) -> np.ndarray:
        """All of it: float32 (n,)."""
        return np.concatenate([np.zeros(0, np.float32), *self.waves])


class File(Output):
    """A WAV, FLAC, Ogg, Opus or MP3 file, by extension.

    It is written to a temporary file in its folder, which is renamed when it is complete. After
    Ctrl-C the part written by then is kept, with a header of its length; after an error nothing is.

    Raises:
        InputError: it cannot be written there.
    """

    def __init__(self, path: str | Path, sample_rate: int):
        super().__init__(sample_rate)
        self.path, self.real = path, audio.check_writable(path)
        self.part = audio.beside(self.real)
        self.file: Any = None

    def __enter__(self) -> File:
        import soundfile as sf

        from nanospeech.audio.sound_file import SoundFile

        format, subtype = audio.FORMATS[self.real.suffix.lower()]
        try:
            self.file = SoundFile(
                str(self.part), "w", self.sample_rate, 1, format=format, subtype=subtype
            )
        except (sf.LibsndfileError, OSError) as e:
            raise self._error(e) from e
        finally:
            if self.file is None:  # after a Ctrl-C, too
                self.part.unlink(missing_ok=True)
        return self

    def write(self, wave: np.ndarray) -> None:
        import soundfile as sf

        wave = np.clip(wave, -1, 1)
        try:
            for start in range(0, len(wave), audio.BLOCK):
                block = wave[start : start + audio.BLOCK]
                self.file.write(block)
                super().write(block)
        except (sf.LibsndfileError, OSError) as e:
            raise self._error(e) from e

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        import soundfile as sf

        kept = kind is None or issubclass(kind, KeyboardInterrupt)
        try:
            self.file.close()
            if kind is not None and kept:  # Ctrl-C comes before or after a block is counted
                self.samples = self._samples_written()
            if kind is None:
                audio.complete(self.part, self.samples)
            if kept and self.samples:
                os.replace(self.part, self.real)
        except (sf.LibsndfileError, OSError) as e:
            raise self._error(e) from e
        finally:
            self.part.unlink(missing_ok=True)

    def _samples_written(self) -> int:
        import soundfile as sf

        try:
            return round(sf.info(self.part).duration * self.sample_rate)
        except sf.LibsndfileError:  # some formats cannot be empty
            return 0

    def _error(self, e: Exception) -> InputError:
        return audio.unwritten(self.path, self.real, e)


class Pipe(Output):
    """16-bit WAV to a pipe, whose length its header does not know."""

    def __init__(self, file: BinaryIO, sample_rate: int):
        super().__init__(sample_rate)
        self.file = file

    def write(self, wave: np.ndarray) -> None:
        header = b"" if self.samples else wav_header(self.sample_rate)
        self.file.write(header + pcm16(wave))
        self.file.flush()
        super().write(wave)


def wav_header(sample_rate: int) -> bytes:
    """Of mono 16-bit samples that are still to come, however many."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", UNKNOWN, b"WAVE"),
        *(b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16),
        *(b"data", UNKNOWN),
    )


def pcm16(wave: np.ndarray) -> bytes:
    """Samples as 16-bit integers, little end first, rounded as libsndfile does in files."""
    long = np.rint(np.clip(wave, -1, 1) * np.float32(2**31)).astype(np.int64)
    return np.minimum(long >> 16, 32767).astype("<i2").tobytes()


class Loudspeaker(Output):
    """Plays while more is made: a thread of its own hands the samples over.

    Args:
        device: the module sounddevice, or one with its OutputStream.

    Raises:
        BackendError: the device cannot be opened, or started in the with statement: it is busy, or
            does not take this rate.
    """

    def __init__(self, device: Any, sample_rate: int):
        super().__init__(sample_rate)
        try:
            self.stream = device.OutputStream(samplerate=sample_rate, channels=1, dtype="float32")
        except Exception as e:  # of sounddevice's own, which need not be there
            raise silent(e) from e
        self.waiting: queue.Queue[np.ndarray | None] = queue.Queue(PIECES_AHEAD)
        self.thread = threading.Thread(target=self._play, daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> Loudspeaker:
        try:
            self.stream.start()
        except Exception as e:
            self.stream.close()
            raise silent(e) from e
        self.thread.start()
        return self

    def _play(self) -> None:
        while (wave := self.waiting.get()) is not None:
            if self.failure is None:  # else only taken, so that write() does not wait for ever
                try:
                    self.stream.write(np.clip(wave, -1, 1).reshape(-1, 1))
                except Exception as e:
                    self.failure = e

    def write(self, wave: np.ndarray) -> None:
        """Takes the next samples; waits where playing is far behind.

        Raises:
            BackendError: the device plays no more.
        """
        self._check()
        self.waiting.put(wave)
        super().write(wave)

    def _check(self) -> None:
        if self.failure is not None:
            raise silent(self.failure)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if kind is None:
                self.waiting.put(None)
                self.thread.join()
                self._check()
                self.stream.stop()  # when all has been heard
            else:
                self.stream.abort()
        finally:
            self.stream.close()


def silent(e: Exception) -> BackendError:
    """The error of a device that does not play."""
    return BackendError(f"cannot play: {e}; write to a file with --output")
