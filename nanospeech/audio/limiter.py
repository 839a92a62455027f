"""Limiter: true peaks (ITU-R BS.1770-5), and waves whose peaks are turned down. Looks ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

PEAK = -1.0  # dBTP that no output exceeds
SPARE = 0.2  # dB: how far below the limiter aims, for peaks between the points that it looks at
CEILING = 10 ** ((PEAK - SPARE) / 20)
AHEAD = 0.015  # seconds that the limiter looks ahead, and takes to let go
OVERSAMPLING, TAPS = 8, 16  # 192 kHz from 24 (BS.1770-5, annex 2); taps to each side of a sample
ROWS = 1 << 13  # windows that are interpolated at once


@lru_cache
def interpolators() -> np.ndarray:
    """Filters for the points between samples: float32 (OVERSAMPLING - 1, 2 * TAPS)."""
    at = np.arange(1, OVERSAMPLING)[:, None] / OVERSAMPLING
    x = np.arange(-TAPS + 1, TAPS + 1)[None] - at
    filters = np.sinc(x) * np.cos(np.pi * x / (2 * TAPS + 1)) ** 2
    return (filters / filters.sum(1, keepdims=True)).astype(np.float32)


def peaks(wave: np.ndarray, above: float = 0.0) -> np.ndarray:
    """The highest magnitude at each sample and between it and the next: float32 (n,).

    Args:
        wave: float (n,).
        above: what matters; where no higher one can be between two samples, none is looked for.
    """
    padded = np.pad(np.asarray(wave, np.float32), (TAPS - 1, TAPS))
    found = np.abs(np.asarray(wave, np.float32))
    if not len(wave):
        return found
    filters = interpolators()
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * TAPS)
    near = -lowest_around(-found, TAPS)  # the highest magnitude of each window, or of a wider one
    at = np.flatnonzero(near * np.abs(filters).sum(1).max() > above)
    for start in range(0, len(at), ROWS):
        rows = at[start : start + ROWS]
        found[rows] = np.maximum(found[rows], np.abs(windows[rows] @ filters.T).max(1))
    return found


def true_peak(wave: np.ndarray) -> float:
    """The highest true peak in dBTP, at eight times the rate (BS.1770-5); -inf for none."""
    with np.errstate(divide="ignore"):
        return float(20 * np.log10(peaks(wave).max(initial=0)))


def limited(waves: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
    """Pieces whose true peaks are turned down to PEAK, where they exceed it, and nothing else.

    The gain is that of the loudest peak within `AHEAD` seconds to each side, averaged over as long
    a time: it moves slowly and has moved before the peak comes. What needs no limiting comes out
    as it went in.
    """
    reach = max(1, int(AHEAD * rate))
    around = 2 * reach + TAPS  # samples to each side that a sample's gain depends on
    held, done = np.zeros(0, np.float32), 0  # the samples at hand; those of them already out
    for wave in waves:
        held = np.concatenate([held, np.asarray(wave, np.float32)])
        if (ready := len(held) - around) > done:
            yield limit(held, reach)[done:ready].copy()  # what is held is looked at again
            keep = max(0, ready - around)
            held, done = held[keep:], ready - keep
    if len(held) > done:
        yield limit(held, reach)[done:]


def limit(wave: np.ndarray, reach: int, found: np.ndarray | None = None) -> np.ndarray:
    """A wave with its peaks turned down; its ends count as followed by silence.

    Args:
        found: its peaks, where they are known.
    """
    found = peaks(wave, above=CEILING) if found is None else found
    gains = limiting(found, reach)
    return wave if gains is None else (wave * gains).astype(np.float32)


def limiting(found: np.ndarray, reach: int) -> np.ndarray | None:
    """The gain at each sample, float64 (n,), that takes its peaks below the ceiling; None for 1."""
    if found.max(initial=0) <= CEILING:
        return None
    found = np.maximum(found, np.pad(found, (1, 0))[:-1])  # between it and the one before, too
    wanted = np.minimum(1, CEILING / np.maximum(found, CEILING))
    lowest = lowest_around(wanted, reach)
    smooth = np.pad(np.cumsum(np.pad(lowest, reach, mode="edge"), dtype=np.float64), (1, 0))
    gain = (smooth[2 * reach + 1 :] - smooth[: -2 * reach - 1]) / (2 * reach + 1)
    return np.minimum(gain, 1)


def lowest_around(values: np.ndarray, reach: int) -> np.ndarray:
    """The least of each value's neighbours up to `reach` to each side, by doubling windows."""
    least, width = np.pad(values, reach, constant_values=np.inf), 1
    while 2 * width <= 2 * reach + 1:
        least, width = np.minimum(least[:-width], least[width:]), 2 * width
    shift = 2 * reach + 1 - width
    return np.minimum(least[: len(least) - shift], least[shift:])
