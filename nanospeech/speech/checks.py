"""Checks: what a Speaker is given, before any work."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from reprlib import repr
from types import NoneType
from typing import Any

import numpy as np

from nanospeech.arguments import check_kind
from nanospeech.config import BatchLimits, ModelConfig, SampleOptions
from nanospeech.errors import InputError
from nanospeech.output import OutputOptions
from nanospeech.text.markup import Marked

RECORDING = "a recording: its path, bytes or open file, or an array of floats"


def check_engine(name: str, engine: Any) -> None:
    """Raises InputError where something is no engine, nor stands for one."""
    if not isinstance(getattr(engine, "config", None), ModelConfig):
        raise InputError(f"{name} should be what load_engine() gives, got {repr(engine)}")


def check_given(
    voice: Any, ref_text: Any, options: SampleOptions, output: OutputOptions, aligner: Any
) -> None:
    """Checks the types of arguments of a Speaker.

    Raises:
        InputError: one is of another type.
    """
    named = "the name of a voice (a recording goes into ref_audio)"
    check_kind("voice", voice, (str, NoneType), named)
    check_kind("ref_text", ref_text, (str, NoneType), "the words of the recording")
    check_kind("options", options, SampleOptions, "SampleOptions(...) or left out")
    check_kind("output", output, OutputOptions, "OutputOptions(...) or left out")
    if aligner is not None:
        check_engine("aligner", aligner)


def recording(ref_audio: Any) -> str | Path | bytes | np.ndarray | None:
    """A recording: a path, the bytes of a file, or samples.

    Raises:
        InputError: it is none.
    """
    if hasattr(ref_audio, "read"):
        ref_audio = ref_audio.read()
        check_kind("what ref_audio.read() gives", ref_audio, bytes, "bytes; open the file as 'rb'")
    if isinstance(ref_audio, (bytearray, memoryview)):
        ref_audio = bytes(ref_audio)
    check_kind("ref_audio", ref_audio, (str, PathLike, bytes, np.ndarray, NoneType), RECORDING)
    return Path(ref_audio) if isinstance(ref_audio, PathLike) else ref_audio


def many(texts: Any, seeds: Any, limits: Any) -> list[Any]:
    """The texts of speak_many(), of any iterable, as a list.

    Raises:
        InputError: one text instead of several, or arguments of another type.
    """
    if isinstance(texts, (str, bytes, Marked)):  # each letter of which would be a text
        raise InputError("texts is a single text; give a list of texts, or use speak()")
    check_kind("texts", texts, Iterable, "a list of texts")
    check_kind("seeds", seeds, (Iterable, NoneType), "a whole number for each text")
    check_kind("limits", limits, BatchLimits, "BatchLimits(...) or left out")
    return list(texts)


def arriving(parts: Any) -> Iterable[str]:
    """The parts of a text that is still being written, each checked when it is there.

    Raises:
        InputError: they are no iterable, at once; or one of them is no string.
    """
    if isinstance(parts, (bytes, bytearray, memoryview)) or not isinstance(parts, Iterable):
        wanted = "a string, of read_markup, or an iterable of strings"
        raise InputError(f"a text should be {wanted}, got {repr(parts)}")
    return map(part_of, parts)


def part_of(part: Any) -> str:
    """A part of a text.

    Raises:
        InputError: it is no string.
    """
    check_kind("a part of a text", part, str, "a string")
    return part
