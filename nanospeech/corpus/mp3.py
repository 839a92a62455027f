"""MP3: any recording to 64 kbps mono at 24 kHz, one or many in parallel. Needs no FFmpeg."""

from __future__ import annotations

import io
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import encode
from nanospeech.audio.opus import as_file
from nanospeech.errors import DataError
from nanospeech.files import whole
from nanospeech.workers import interrupts_wait, most, serve_parent

T = TypeVar("T")
R = TypeVar("R")


WHOLE = 0.95  # share of the samples that a header tells of, from which a recording is whole
OTHER = "not as long as its header says"
ENDLESS = 2**31 - 2**16  # bytes from which on a header's length is that of a pipe, not known


class BadAudio(DataError):
    """A recording that cannot be used. args: the reason, a few words to count by, and a detail."""

    def __str__(self) -> str:
        return ", ".join(str(part) for part in self.args if part)


def decode(
    data: bytes, min_seconds: float | None = None, max_seconds: float | None = None
) -> tuple[np.ndarray, bool]:
    """Reads a recording as mono at 24 kHz.

    Args:
        data: the bytes of the file, any format, rate and channel count that libsndfile knows.
        min_seconds, max_seconds: bounds of its length, or None.

    Returns:
        float32 (n,), and whether the bytes are a mono 24 kHz MP3 already. What is not has no offset
        and no sample beyond full scale, where an MP3 of it would be clipped.

    Raises:
        BadAudio: unreadable, cut off, empty, silent, not a number, too short or too long, or of too
            many channels.
    """
    import soundfile as sf

    from nanospeech.audio.sound_file import SoundFile

    other = other_length(data)
    try:
        file = as_file(data)
        assert isinstance(file, io.BytesIO)
        own = file.getbuffer().nbytes == len(data)  # as_file has not added the length of an MP3
        with SoundFile(file) as f:
            rate, seconds = f.samplerate, f.frames / f.samplerate
            ready = f.format == "MP3" and rate == audio.SAMPLE_RATE and f.channels == 1
            ready = ready and own  # others read it to its end, too
            if f.frames == 0 and not other:
                raise BadAudio("empty audio", "")
            if f.frames >= audio.UNKNOWN_FRAMES:
                raise BadAudio("unreadable audio", "its header does not tell how long it is")
            if max_seconds is not None and seconds > max_seconds:
                raise BadAudio("too long", f"{seconds:.2f} s")
            if f.channels > audio.MOST_CHANNELS:
                raise BadAudio("too many channels", str(f.channels))
            if other:
                raise BadAudio(OTHER, other)
            wave = audio.mono(f.read(f.frames, dtype="float32", always_2d=True))
            if f.format == "MP3" and len(wave) < WHOLE * f.frames:
                raise BadAudio(OTHER, f"{seconds:.2f} s, not {len(wave) / rate:.2f}")
    except MemoryError as e:  # a damaged header may tell any length
        raise BadAudio(
            "unreadable audio", f"{seconds:.0f} s by its header, more than fits the memory"
        ) from e
    except (sf.LibsndfileError, OSError, RuntimeError) as e:
        # str(e) of libsndfile's has the address of the BytesIO
        raise BadAudio("unreadable audio", getattr(e, "error_string", str(e))) from e
    if not len(wave):
        raise BadAudio("empty audio", "")
    if not np.isfinite(wave).all():
        raise BadAudio("samples that are not numbers", "")
    if not ready:  # an MP3 stays as it is
        wave = audio.unclipped(audio.centred(wave))
    if audio.is_silent(wave):
        raise BadAudio("silent", f"peak {np.abs(wave).max():.1e}")
    if min_seconds is not None and len(wave) / rate < min_seconds:
        raise BadAudio("too short", f"{len(wave) / rate:.2f} s")
    return audio.resample(wave, rate, audio.SAMPLE_RATE), ready


def other_length(data: bytes) -> str:
    """How a WAV's samples are other than its header says; "" where they are not, or it is no WAV.

    What is left of a download has not all of its words, and a recorder that was stopped may have
    written no length.
    """
    at = 12 if data[:4] == b"RIFF" else len(data)
    while at + 8 <= len(data) and data[at : at + 4] != b"data":
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    if at + 8 > len(data):
        return ""
    told, there = int.from_bytes(data[at + 4 : at + 8], "little"), len(data) - at - 8
    follows = data[at + 8 + told + told % 2 :]
    named = all(32 <= byte < 127 for byte in follows[:4])  # as a chunk is
    longer = len(follows) > told and not named
    if there < WHOLE * told < WHOLE * ENDLESS or longer:
        how = "; if all is there, ffmpeg -ignore_length 1 -i FILE new.wav mends it"
        return f"{told} bytes, not {there}{how}"
    return ""


def is_done(source: Path, target: Path) -> bool:
    """Whether the target holds the source as it is now."""
    try:
        made = target.stat()
        return made.st_size > 0 and made.st_mtime >= source.stat().st_mtime
    except OSError:
        return False


def is_own(path: Path) -> bool:
    """Whether an MP3 is of no use, or as encode makes them: mono, 24 kHz."""
    import soundfile as sf

    try:
        found = sf.info(path)
    except (sf.LibsndfileError, RuntimeError):  # missing, empty or damaged
        return True
    return (found.samplerate, found.channels) == (audio.SAMPLE_RATE, 1)


def convert(source: Path) -> tuple[str, str] | None:
    """Writes X.mp3 beside X.wav, whole or not at all; never over one that it cannot have written.

    Returns:
        None, or (reason, detail) of a file that cannot be used.
    """
    target = source.with_suffix(".mp3")
    if not is_own(target):
        return "another MP3 is there", f"{target.name} is kept; prepare shards reads what is newer"
    try:
        data = encode(decode(source.read_bytes())[0])
        with whole(target, several=True) as part:
            part.write_bytes(data)
    except BadAudio as e:
        return e.args[0], e.args[1]
    except OSError as e:
        return "not to be written or read", str(e)
    return None


def in_parallel(work: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[R]:
    """work(item) of each item, in order, by some processes. Holds few results at a time.

    Args:
        work: a function that a new process can import; it should return its failures.
        jobs: processes; 1 works in this one.

    Raises:
        DataError: a process died.
    """
    if jobs <= 1:
        yield from map(work, items)
        return
    todo = iter(items)
    # spawn: the same on every system, and safe where other threads run
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(most(jobs), context, serve_parent) as pool:
        with interrupts_wait():  # the first submit starts all processes
            waiting = deque(pool.submit(work, item) for item in islice(todo, 8 * jobs))
        started = set(multiprocessing.active_children()) - others
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in islice(todo, 1))
        except (KeyboardInterrupt, GeneratorExit):  # of a Ctrl-C here, or where results are used
            for process in started:  # else it waits for what they are at
                process.terminate()
            raise
        except BrokenProcessPool as e:
            raise DataError(
                "a worker process died, of memory or of a file that its decoder cannot bear; "
                "run again with one process to see at which (--jobs 1, or --workers 1)"
            ) from e
        finally:
            for future in waiting:
                future.cancel()
