"""Audio: read and write waves. NumPy; knows no models.

A wave is float32 (n,), mono, in [-1, 1]. What resamples, levels, trims and joins waves is in
editing.py; its names are here too. SoundFile is imported when used.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nanospeech.errors import InputError

from .editing import (
    SAMPLE_RATE,
    SILENCE,
    TARGET_RMS,
    centred,
    cross_fade,
    fade_edges,
    is_silent,
    join,
    loud_span,
    mono,
    overshoot,
    resample,
    rms,
    set_level,
    trim,
    unclipped,
)
from .films import READERS, can_decode
from .opus import as_file, number_by_sound

if TYPE_CHECKING:
    import soundfile as sf

__all__ = ["BLOCK", "FOREIGN", "FORMATS", "MOST_CHANNELS", "UNKNOWN_FRAMES", "WAV_HEADER"]
__all__ += ["beside", "check_end", "check_frames", "check_length", "check_writable", "complete"]
__all__ += ["flac_bytes", "forward", "read", "unreadable", "unwritten", "wav_bytes", "write"]
# of editing.py
__all__ += ["SAMPLE_RATE", "SILENCE", "TARGET_RMS", "centred", "cross_fade", "fade_edges"]
__all__ += ["is_silent", "join", "loud_span", "mono", "overshoot", "resample", "rms"]
__all__ += ["set_level", "trim", "unclipped"]
# what write() can make: SoundFile's format and subtype of each extension
FORMATS = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".opus": ("OGG", "OPUS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
}
FOREIGN = tuple(READERS)  # of what libsndfile knows nothing: AAC, WMA and films
UNKNOWN_FRAMES = 2**62  # libsndfile says as many or more where a header leaves the length open
MOST_SAMPLES = 400_000  # of all channels, for each second that a recording may have
MOST_CHANNELS = 32  # of a clip: a few silent bytes of an Ogg may be 255 channels
ADDRESS = re.compile(r"[a-z]{2,}:/", re.I)  # one letter is a disk's
WAV_HEADER = 44  # bytes before the samples of a WAV as it is written here
BLOCK = 65_536  # samples a write; libsndfile's Vorbis encoder overflows its stack on long ones


def read(
    source: str | Path | bytes,
    sample_rate: int = SAMPLE_RATE,
    max_seconds: float | None = None,
) -> np.ndarray:
    """Reads any format, rate and channel count that libsndfile knows, as mono at one rate.

    Where PyAV is installed, files of phones and films too (.m4a, .mp4), whatever they are called.

    Args:
        source: a path, or the bytes of a whole file.
        sample_rate: wanted rate in Hz.
        max_seconds: a longer recording is refused before it is decoded.

    Returns:
        float32 (n,).

    Raises:
        InputError: there is no such file, it is no audio, empty, damaged or too long.
    """
    import soundfile as sf

    from nanospeech.audio.sound_file import SoundFile

    name = "the recording" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes):
        check_there(source)
    try:
        with SoundFile(as_file(source, max_seconds or float("inf"))) as f:
            rate = f.samplerate
            check_frames(name, f, max_seconds)
            # no more than the header claims, whatever follows; where libsndfile cannot seek, as in
            # GSM 6.10 of telephones, SoundFile has to be told how much that is
            wave = mono(f.read(f.frames, dtype="float32", always_2d=True))
    except (sf.LibsndfileError, OSError, RuntimeError) as e:
        raise unreadable(name, e) from e
    if not len(wave):
        raise InputError(f"{name} holds no audio")
    if not np.isfinite(wave).all():
        raise InputError(f"{name} holds samples that are not numbers")
    return resample(wave, rate, sample_rate)


def forward(source: Any) -> sf.SoundFile:
    """A file that is read on and on, without the seek of SoundFile after each read.

    MP3s do not stand it: mpg123 prints errors of the frames around.
    """
    from nanospeech.audio.sound_file import SoundFile

    class Forward(SoundFile):
        def seekable(self) -> bool:
            return False

    return Forward(source)


def unreadable(name: str, e: Exception) -> InputError:
    """The error of a file that libsndfile cannot read."""
    reason = getattr(e, "error_string", str(e)).rstrip(".")  # without the name, or an object's
    if reason.startswith("File does not exist"):  # what libsndfile says of an MP3 that is none
        reason = "Format not recognised"
    message = f"cannot read {name} as audio: {reason}"
    if Path(name).suffix.lower() in (*FOREIGN, ".caf"):  # some of CAF's codecs are PyAV's
        if can_decode():
            message += "; it is damaged, or of another kind than its name says:"
        else:
            message += "; pip install 'nanospeech-tts[book]' brings what reads these, or"
        message += " convert it, as by ffmpeg -i FILE new.wav"
    else:
        message += "; WAV, FLAC, MP3, Ogg and AIFF can be read: convert others, as by"
        message += " ffmpeg -i FILE new.wav"
    return InputError(message)


def check_there(path: str | Path) -> None:
    """
    Raises:
        InputError: there is no such file; the message says what else was named instead.
    """
    name = str(path)
    if not os.path.exists(path):
        message = f"there is no file {name}"
        if ADDRESS.match(name):
            message += "; addresses are not opened: download it, and name the file"
        elif name == "-":
            message += "; standard input is not read: save the recording, and name the file"
        raise InputError(message)
    if os.path.isdir(path):
        raise InputError(f"{name} is a folder; name a recording in it")
    if not os.path.isfile(path):
        raise InputError(f"{name} is no plain file; save the recording, and name that file")


def check_length(path: str | Path, max_seconds: float) -> float:
    """The seconds of a recording, from its header alone.

    Raises:
        InputError: it is missing, no audio, empty, or longer than max_seconds.
    """
    import soundfile as sf

    check_there(path)
    try:
        info = sf.info(as_file(path))
    except (sf.LibsndfileError, OSError, RuntimeError) as e:
        raise unreadable(str(path), e) from e
    if not info.frames:
        raise InputError(f"{path} holds no audio")
    check_frames(str(path), info, max_seconds)
    return float(info.duration)


def check_frames(name: str, header: Any, max_seconds: float | None) -> None:
    """Makes sure that a header tells a length, of at most max_seconds, and what can be read.

    Args:
        header: of SoundFile: frames, samplerate and channels.
    """
    frames, rate = header.frames, header.samplerate
    if frames >= UNKNOWN_FRAMES:
        raise InputError(
            f"cannot read {name}: its header does not tell how long it is, as of a FLAC that went"
            " through a pipe; write it anew, as by ffmpeg -i FILE new.wav"
        )
    if max_seconds is not None and frames > max_seconds * rate:
        lasts = f"{name} lasts {frames / rate:.1f} s"
        raise InputError(f"{lasts}; at most {max_seconds:g} s are taken: cut it to fewer")
    if max_seconds is not None and frames * header.channels > max_seconds * MOST_SAMPLES:
        raise InputError(
            f"{name} has {rate} samples a second in {header.channels} channels, too many to read;"
            " make it one of 48000 in one channel"
        )


def check_writable(path: str | Path) -> Path:
    """Makes sure, by trying, that write() could write here.

    Returns:
        The real path, links followed.

    Raises:
        InputError: unknown extension, missing folder, no permission, or not a plain file.
    """
    real = Path(os.path.realpath(path))
    if real.suffix.lower() in FOREIGN:
        raise InputError(
            f"cannot write {path}: {real.suffix} needs an encoder that libsndfile lacks; write"
            f" {', '.join(FORMATS)}, or make it of one of these by ffmpeg -i speech.wav {real.name}"
        )
    if real.suffix.lower() not in FORMATS:
        raise InputError(
            f"cannot write {path}: its extension should be one of {', '.join(FORMATS)}"
        )
    if not real.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {real.parent}")
    try:
        if real.is_dir() or (real.exists() and not real.is_file()):
            raise InputError(f"cannot write {path}: it is not a plain file")
        if real.exists() and not os.access(real, os.W_OK):
            raise InputError(f"cannot write {path}: it is read-only")
        probe = beside(real)
        try:
            probe.touch(exist_ok=False)
        finally:
            probe.unlink(missing_ok=True)  # after a Ctrl-C, too
    except OSError as e:
        raise InputError(f"cannot write {path}: {e.strerror or e}") from e
    return real


def write(path: str | Path, wave: np.ndarray, sample_rate: int = SAMPLE_RATE) -> None:
    """Writes WAV, FLAC, Ogg Vorbis, Opus or MP3, by extension; whole or not at all.

    Args:
        wave: float32 (n,); clipped to [-1, 1].

    Raises:
        InputError: it cannot be written there.
    """
    import soundfile as sf

    real = check_writable(path)
    part = beside(real)
    try:
        _encode(str(part), wave, sample_rate, *FORMATS[real.suffix.lower()])
        complete(part, len(wave))
        os.replace(part, real)
    except (sf.LibsndfileError, OSError) as e:
        raise unwritten(path, real, e) from e
    finally:
        part.unlink(missing_ok=True)


def complete(part: Path, samples: int) -> None:
    """Has a file that was closed be whole, and the same to the byte whenever its sound is.

    Raises:
        OSError, LibsndfileError: its last sample is not there, or it cannot be written.
    """
    check_end(part, samples)
    number_by_sound(part)


def check_end(part: Path, samples: int) -> None:
    """Looks for the last sample of a file that was closed.

    libsndfile does not tell where the disk has no room for what it writes at last: the end of a
    FLAC, Ogg, Opus or MP3 file, and all of a short one.

    Raises:
        OSError, LibsndfileError: it is not there.
    """
    if not samples:  # some formats cannot be empty
        return
    if part.suffix.lower() == ".wav":  # beyond 4 GB, its header tells no length
        missing = max(0, samples - (part.stat().st_size - WAV_HEADER) // 2)
    else:
        with forward(str(part)) as f:
            missing = samples
            if f.format != "MP3":  # whose decoder prints errors of frames that it begins at
                missing -= f.seek(samples - 1)
            while missing > 0 and (read := len(f.read(min(missing, BLOCK)))):
                missing -= read
    if missing:
        raise OSError("the end of the file could not be written")


def unwritten(path: str | Path, real: Path, e: Exception) -> InputError:
    """The error of a file that could not be written to the end.

    libsndfile says "System error." where the disk is full, so the reason is asked of the system:
    by a file in the same folder.
    """
    why, probe = str(e), beside(real)
    try:
        probe.write_bytes(bytes(2 * BLOCK))
    except OSError as of_system:
        why = of_system.strerror or why
    finally:
        probe.unlink(missing_ok=True)
    return InputError(f"cannot write {path}: {why}")


def wav_bytes(wave: np.ndarray, sample_rate: int = SAMPLE_RATE) -> bytes:
    """A whole 16-bit WAV file."""
    file = io.BytesIO()
    _encode(file, wave, sample_rate, *FORMATS[".wav"])
    return file.getvalue()


def flac_bytes(wave: np.ndarray, sample_rate: int = SAMPLE_RATE) -> bytes:
    """A whole 16-bit FLAC file."""
    file = io.BytesIO()
    _encode(file, wave, sample_rate, *FORMATS[".flac"])
    return file.getvalue()


def _encode(file: Any, wave: np.ndarray, sample_rate: int, format: str, subtype: str) -> None:
    from nanospeech.audio.sound_file import SoundFile

    wave = np.clip(wave, -1, 1)
    with SoundFile(file, "w", sample_rate, 1, format=format, subtype=subtype) as f:
        for start in range(0, len(wave), BLOCK):
            f.write(wave[start : start + BLOCK])


def beside(path: Path) -> Path:
    """A name for a temporary file in the same folder, so that a rename never crosses disks."""
    return path.with_name(f".nanospeech-{secrets.token_hex(6)}{path.suffix}")
