"""Clips: reads and checks a sample's text, audio or features. Draws nothing.

Audio becomes a log mel; a sample with "npy" has its features already. Either is float16, so
that audio, a cache in memory and encoded shards give the same numbers.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from nanospeech.audio.films import reader_of
from nanospeech.audio.mel import log_mel
from nanospeech.audio.opus import as_file
from nanospeech.audio.sound_file import SoundFile
from nanospeech.audio.wave import FOREIGN, MOST_CHANNELS, mono
from nanospeech.config import AudioConfig
from nanospeech.corpus.tables import parsed
from nanospeech.errors import InputError

AUDIO_KEYS = ("mp3", "flac", "wav", "ogg", "oga", "opus", "aiff", "aif", "audio")
RATES = (8_000, 192_000)  # Hz
TOLERANCE = 0.1  # relative difference allowed between a clip's length and its metadata
PADDING = 0.15  # seconds that a codec may add


class Skip(Exception):
    """A sample that cannot be used; the text is the reason under which it is counted."""


def describe(sample: dict, audio: AudioConfig, untranscribed: bool = False) -> dict[str, Any]:
    """A sample's metadata and data, not decoded.

    Args:
        sample: with an audio field of AUDIO_KEYS holding bytes or {"bytes"}, or features in "npy";
            and "json" {"text", "duration", …} or plain fields of these names.
        untranscribed: whether a sample without a text is used; its text is then empty.

    Returns:
        key, text, frames (as the metadata has it), speaker or None, claimed seconds or None,
        language where the metadata names one, and data: encoded audio, or features (N, M);
        "reference", such an item, where there is one, its text empty if the sample does not have
        it as "ref_text".

    Raises:
        Skip: something is missing or malformed.
    """
    meta = metadata(sample)
    text = meta.get("text")
    text = "" if untranscribed and text in (None, "") else spoken(text)
    claimed = positive(meta.get("duration"), "duration")
    if "npy" in sample:
        data: Any = features(sample["npy"], audio.n_mels)
        target = positive(meta.get("target_duration"), "target_duration")
        check_length(len(data) / audio.frame_rate, target)
        frames = len(data)
    else:
        data = audio_bytes(sample)
        check_rate(meta.get("sample_rate"))
        frames = 0
    if claimed is None and not frames:
        try:
            claimed = soundfile.info(as_file(data)).duration
        except soundfile.LibsndfileError as e:
            raise Skip("unreadable audio") from e
    if claimed is not None:
        frames = int(claimed * audio.frame_rate) + 1
    raw = data if isinstance(data, bytes) else data.tobytes()
    item = {
        "key": str(sample.get("__key__") or zlib.crc32(raw)),
        "text": text,
        "data": data,
        "frames": frames,
        "claimed": claimed,
        "rate": meta.get("sample_rate"),
        "speaker": None if meta.get("speaker") in (None, "") else str(meta["speaker"]),
    }
    if meta.get("language") not in (None, ""):
        item["language"] = str(meta["language"])
    if sample.get("ref.npy") is not None:
        heard = features(sample["ref.npy"], audio.n_mels)
        item["reference"] = {
            **item,
            "key": f"{item['key']}.ref",
            "text": spoken(said) if (said := meta.get("ref_text")) and str(said).strip() else "",
            "data": heard,
            "frames": len(heard),
            "claimed": None,
        }
    return item


def metadata(sample: dict) -> dict:
    """The JSON of a sample, or the sample where its fields are plain; its .txt if that has no text.

    As nanospeech prepare reads them (nanospeech/corpus/layouts.py).
    """
    text = sample.get("txt")
    text = text.decode("utf-8-sig", "replace") if isinstance(text, bytes) else text
    said = {"text": text} if isinstance(text, str) else {}
    if said and "json" not in sample:
        return said
    meta = sample.get("json", sample)
    try:
        meta = parsed(meta) if isinstance(meta, (str, bytes)) else meta
    except ValueError as e:
        raise Skip("unreadable JSON") from e
    if not isinstance(meta, dict):
        raise Skip("unreadable JSON")
    return said | meta


def spoken(text: Any) -> str:
    """The text of a clip."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)) or not str(text).strip():
        raise Skip("without text")
    return str(text).strip()


def positive(value: Any, name: str) -> float | None:
    """A length in seconds, or None where there is none."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise Skip(f"invalid {name}")
    return seconds


def audio_bytes(sample: dict) -> bytes:
    """The encoded recording.

    Raises:
        InputError: it is decoded already, which is so of all samples or of none.
        Skip: there is none.
    """
    audio = next((sample[k] for k in AUDIO_KEYS if sample.get(k) is not None), None)
    if hasattr(audio, "get_all_samples") or (isinstance(audio, Mapping) and "array" in audio):
        raise InputError(
            f"a recording of the dataset is decoded already ({type(audio).__name__}), and the bytes"
            " of its file are wanted: a dataset that is mapped decodes its audio columns before;"
            " call map on nanospeech_torch.train.data.sources.undecoded(dataset)"
        )
    data = audio.get("bytes") if isinstance(audio, dict) else audio
    if data is None and isinstance(audio, dict) and audio.get("path"):
        try:
            path = Path(audio["path"])
            data = path.read_bytes() if path.is_file() else b""  # of /dev/zero there is no end
        except (OSError, TypeError, ValueError) as e:
            raise Skip("unreadable audio") from e
        if not data:
            raise Skip("unreadable audio")
    foreign = data is None and any(sample.get(kind[1:]) for kind in FOREIGN)
    if foreign or (isinstance(data, bytes) and reader_of(data) is not None):
        raise Skip("of a format that prepare shards has to convert")
    if not data or not isinstance(data, bytes):
        raise Skip("without audio")
    return data


def features(value: Any, width: int) -> np.ndarray:
    """Features (N, M) of a .npy file's bytes, or of nested lists, as float16.

    Args:
        value: bytes, {"bytes"} or numbers.
        width: M.
    """
    value = value.get("bytes") if isinstance(value, dict) else value
    try:
        array = read_npy(value) if isinstance(value, bytes) else np.asarray(value, np.float16)
    except Exception as e:  # a damaged header is read as Python, which fails in many ways
        raise Skip("unreadable features") from e
    if array.ndim != 2 or array.shape[1] != width or not len(array):
        raise Skip("features of another shape")
    with np.errstate(over="ignore"):
        array = array.astype(np.float16)
    if not np.isfinite(array).all():
        raise Skip("not finite")
    return array


def read_npy(data: bytes) -> np.ndarray:
    """The numbers of a .npy file, whose header must match its length; never objects."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version}")
    shape, fortran, dtype = readers[version](file)
    if dtype.kind != "f":
        raise ValueError(f"numbers of type {dtype}")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"shape {shape} in {len(data)} bytes")
    array = np.frombuffer(data, dtype, offset=file.tell())
    return array.reshape(shape, order="F" if fortran else "C")


def check_rate(rate: Any) -> None:
    """Raises Skip for an implausible sample rate."""
    if rate is not None and not (
        isinstance(rate, (int, float, np.number)) and RATES[0] <= rate <= RATES[1]  # false for NaN
    ):
        raise Skip("wrong rate")


def check_length(seconds: float, claimed: float | None) -> None:
    """Raises Skip if a clip's length differs from its metadata."""
    if claimed is not None and abs(seconds - claimed) > max(TOLERANCE * claimed, PADDING):
        raise Skip("wrong duration")


def read_wave(data: bytes, audio: AudioConfig, item: dict, longest: float) -> np.ndarray:
    """Decodes a recording to float32 (n,) at audio.sample_rate.

    Args:
        data: of any format that libsndfile reads.
        item: its "claimed" seconds and "rate", where they are known.
        longest: seconds; a longer clip is not decoded to its end.

    Raises:
        Skip: unreadable, not finite, of too many channels, or of another rate or length than the
            metadata has it.
    """
    claimed, rate = item.get("claimed"), item.get("rate")
    try:
        with SoundFile(as_file(data)) as f:
            check_rate(f.samplerate)
            if rate is not None and f.samplerate != rate:
                raise Skip("wrong rate")
            if f.channels > MOST_CHANNELS:
                raise Skip("too many channels")
            most = 1.2 * max(longest, claimed or 0) + 1
            wave = mono(f.read(int(most * f.samplerate), dtype="float32", always_2d=True))
            found = f.samplerate
    except (soundfile.LibsndfileError, ValueError, TypeError) as e:
        raise Skip("unreadable audio") from e
    check_length(len(wave) / found, claimed)
    if not np.isfinite(wave).all():
        raise Skip("not finite")
    if found != audio.sample_rate:
        import soxr

        wave = soxr.resample(wave, found, audio.sample_rate)
    return wave


def mel(item: dict, audio: AudioConfig, shortest: int, longest: int) -> np.ndarray:
    """Log mel or features of a described sample: float16 (N, M), shortest <= N <= longest.

    Raises:
        Skip: it cannot be read, or is too short or too long.
    """
    if isinstance(item["data"], np.ndarray):
        found = item["data"]
    else:
        wave = read_wave(item["data"], audio, item, longest / audio.frame_rate)
        if len(wave) <= audio.n_fft // 2:
            raise Skip("too short")
        found = log_mel(wave, audio).astype(np.float16)
    if len(found) < shortest:
        raise Skip("too short")
    if len(found) > longest + PADDING * audio.frame_rate:
        raise Skip("too long")
    return found[:longest]  # cut at most what a codec may add
