"""Eight bits: weights as codes and scales, as DynamicQuantizeMatMul takes them. Knows no graph."""

from __future__ import annotations

import functools
import platform

import numpy as np

from nanospeech.machine import processor_flags

from .graph import floats


@functools.cache
def largest_code() -> int:
    """The largest code of a weight in eight bits.

    x86 processors without VNNI add up two products of codes and inputs (0 to 255) in 16 bits, which
    larger codes overflow: a layer's error would be 2.8 % in the mean, up to 4.8, instead of 1.8.
    """
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return 63 if x86 and not any("vnni" in flag for flag in processor_flags()) else 127


def int8_scales(tensor: np.ndarray) -> np.ndarray:
    """Of each row of a stored matrix: what a code of 1 stands for."""
    return np.maximum(np.abs(floats(tensor)).max(1), 1e-8) / np.float32(largest_code())


def int8_codes(tensor: np.ndarray) -> np.ndarray:
    """A stored matrix the other way round, its rows rounded to codes times their scales."""
    codes = np.rint(floats(tensor) / int8_scales(tensor)[:, None])
    return np.ascontiguousarray(codes.T.astype(np.int8))
