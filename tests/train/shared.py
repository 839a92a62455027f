"""What tests of data and of settings share: arrays and waves as files, and the ranges of fields."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import soundfile

from nanospeech.errors import InputError


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    """An array as a .npy file's bytes; by default of the oldest version that can hold it."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def wav_bytes(wave: np.ndarray, rate: int = 24_000, subtype: str = "PCM_16") -> bytes:
    """A wave as a WAV file's bytes."""
    file = io.BytesIO()
    soundfile.write(file, wave, rate, format="WAV", subtype=subtype)
    return file.getvalue()


def check_range(config: Any, name: str, allowed: Iterable, refused: Iterable, section: str) -> None:
    """A field of a config takes the one kind of values, and says of the other what they are."""
    for value in allowed:
        assert getattr(config(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(InputError, match=re.escape(f"{section}{name} is {value!r}")):
            config(**{name: value})
