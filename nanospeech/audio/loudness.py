"""Loudness: integrated loudness, true peaks, and waves levelled without clipping. NumPy and soxr.

ITU-R BS.1770-5 and EBU R 128 define the measures; a limiter that looks ahead keeps the peaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

import numpy as np

BLOCK, STEP = 0.4, 0.1  # seconds of a gating block, and between two
ABSOLUTE, RELATIVE = -70.0, -10.0  # LUFS, and LU below the mean of the louder blocks
OFFSET = -0.691  # dB, so that a sine of 997 Hz at full scale has -3.01 LUFS
PEAK = -1.0  # dBTP that no output exceeds
SPARE = 0.2  # dB: how far below the limiter aims, for peaks between the points that it looks at
AHEAD = 0.015  # seconds that the limiter looks ahead, and takes to let go
EDGE = 0.01  # seconds of the fades at both ends
MEASURED = 30.0  # seconds of a long wave that its gain goes by
SOON = 1.0  # and of a voice's first stream
CORRECTIONS, MOST_CORRECTED = 2, 3.0  # rounds, and dB, that make up for what limiting takes away
LOUDEST_GAIN = 30.0  # dB: what is nearly silent is not raised to noise
OVERSAMPLING, TAPS = 8, 16  # 192 kHz from 24 (BS.1770-5, annex 2); taps to each side of a sample
ROWS = 1 << 13  # windows that are interpolated at once
CLIPPED = 0.999  # a magnitude from which samples count as clipped
RUN = 3  # such samples in a row: a single one may be a peak that just fits


@lru_cache
def k_weighting(rate: int) -> np.ndarray:
    """Impulse response of the K weighting at a sample rate: float64 (n,), 0.35 s long.

    A high shelf and a high pass, bilinear transforms of analogue filters whose digital form at 48
    kHz is that of BS.1770 (De Man, "Evaluation of implementations of the EBU R128 loudness
    measurement", 2018).
    """
    n = 1 << int(rate * 2).bit_length()  # long enough that nothing of the tail comes round
    z = np.exp(-2j * np.pi * np.arange(n // 2 + 1) / n)
    k, high = np.tan(np.pi * 1681.974450955533 / rate), 10 ** (3.999843853973347 / 20)
    shelf = biquad(z, k, 0.7071752369554196, (high, high**0.4996667741545416, 1.0))
    k = np.tan(np.pi * 38.13547087602444 / rate)
    # BS.1770 has 1, -2, 1 for this filter's numerator at any rate: without its gain
    passed = biquad(z, k, 0.5003270373238773, (1.0, 0.0, 0.0)) * (
        1 + k / 0.5003270373238773 + k * k
    )
    return np.fft.irfft(shelf * passed, n)[: int(0.35 * rate)]


def biquad(z: np.ndarray, k: float, q: float, zeros: tuple[float, float, float]) -> np.ndarray:
    """Response at z of (a s^2 + b s/q + c) / (s^2 + s/q + 1), for s = (1 - z) / (1 + z) / k.

    Args:
        z: complex, e^(-jw): a delay of one sample.
        k: tangent of half the corner's angle.
        q: quality.
        zeros: a, b and c.
    """

    def quadratic(a: float, b: float, c: float) -> np.ndarray:
        middle, c = b * k / q, c * k * k
        return a + middle + c + 2 * (c - a) * z + (a - middle + c) * z * z

    return quadratic(*zeros) / quadratic(1.0, 1.0, 1.0)


def filtered(wave: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The first len(wave) samples of a convolution, by transforms of bounded length."""
    size = 1 << (4 * len(kernel)).bit_length()
    room = size - len(kernel) + 1
    spectrum = np.fft.rfft(kernel, size)
    out = np.zeros(len(wave) + size)
    for start in range(0, len(wave), room):
        part = np.fft.rfft(np.asarray(wave[start : start + room], np.float64), size)
        out[start : start + size] += np.fft.irfft(part * spectrum, size)
    return out[: len(wave)]


def loudness(wave: np.ndarray, rate: int) -> float:
    """Integrated loudness of a mono wave, in LUFS (BS.1770-5).

    Args:
        wave: float (n,). One shorter than a gating block of 0.4 s counts as one block.
        rate: its samples a second.

    Returns:
        LUFS; -inf for silence.
    """
    if not len(wave):
        return -np.inf
    power = np.concatenate([[0.0], np.cumsum(np.square(filtered(wave, k_weighting(rate))))])
    block = min(len(wave), round(BLOCK * rate))
    starts = np.arange(0, len(wave) - block + 1, round(STEP * rate))
    mean = (power[starts + block] - power[starts]) / block

    def level(blocks: np.ndarray) -> float:
        return OFFSET + 10 * np.log10(blocks.mean()) if len(blocks) else -np.inf

    least = 10 ** ((ABSOLUTE - OFFSET) / 10)
    heard = mean[mean > least]
    if not len(heard):
        return -np.inf
    return float(level(heard[heard > heard.mean() * 10 ** (RELATIVE / 10)]))


@lru_cache
def interpolators() -> np.ndarray:
    """Filters for the points between samples: float64 (OVERSAMPLING - 1, 2 * TAPS)."""
    at = np.arange(1, OVERSAMPLING)[:, None] / OVERSAMPLING
    x = np.arange(-TAPS + 1, TAPS + 1)[None] - at
    filters = np.sinc(x) * np.cos(np.pi * x / (2 * TAPS + 1)) ** 2
    return filters / filters.sum(1, keepdims=True)


def peaks(wave: np.ndarray, above: float = 0.0) -> np.ndarray:
    """The highest magnitude at each sample and between it and the next: float64 (n,).

    Args:
        wave: float (n,).
        above: what matters; where no higher one can be between two samples, none is looked for.
    """
    padded = np.pad(np.asarray(wave, np.float64), (TAPS - 1, TAPS))
    found = np.abs(np.asarray(wave, np.float64))
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


def clipped_share(wave: np.ndarray) -> float:
    """Share of a recording's samples that are clipped: in runs of three or more at full scale.

    Args:
        wave: float (n,) in [-1, 1].

    Returns:
        0 to 1. Good recordings have 0; from about 1e-4 on clipping is heard.
    """
    full = np.abs(wave) >= CLIPPED
    edges = np.flatnonzero(np.diff(np.concatenate([[False], full, [False]]).astype(np.int8)))
    runs = edges[1::2] - edges[::2]
    return float(runs[runs >= RUN].sum() / max(1, len(wave)))


class Leveller:
    """Brings waves that come in pieces to a loudness; the pieces' borders change nothing.

    Both ends fade over 10 ms, and no true peak exceeds -1 dBTP.

    Args:
        rate: samples a second.
        target: LUFS; None leaves the level as it is, but for what would clip.
        known: LUFS of the voice before it is levelled, for streams; None measures the first
            second of the first stream, and keeps its gain for those that follow.
    """

    def __init__(self, rate: int, target: float | None, known: float | None = None):
        self.rate, self.target = rate, target
        self.gain = None if target is None or known is None else target - known

    def __call__(self, waves: Iterable[np.ndarray], early: bool = False) -> Iterator[np.ndarray]:
        """
        Args:
            waves: float32 (n,) pieces that follow each other.
            early: go by what is known of the voice; else by the first 30 seconds of these waves,
                which are waited for.

        Yields:
            float32 pieces; as many samples as came in.
        """
        waves, gain = iter(waves), self.gain if early else None
        interrupted: KeyboardInterrupt | None = None
        if self.target is None:
            gain = 0.0
        if gain is None:
            wanted = round((SOON if early else MEASURED) * self.rate)
            first: list[np.ndarray] = []
            try:
                while sum(map(len, first)) < wanted and (wave := next(waves, None)) is not None:
                    first.append(wave)
            except KeyboardInterrupt as e:  # what was spoken by then is not lost
                waves, interrupted = iter(()), e
            start = np.concatenate([np.zeros(0, np.float32), *first])
            gain = gain_to(self.target, start if early else start[:wanted], self.rate)
            waves = chain([start], waves)
            if early:
                self.gain = gain
        factor = np.float32(10 ** (gain / 20))
        louder = (wave * factor for wave in waves)
        yield from limited(faded(louder, int(EDGE * self.rate)), self.rate)
        if interrupted is not None:
            raise interrupted


def gain_to(target: float | None, wave: np.ndarray, rate: int) -> float:
    """dB that bring a wave to a loudness, with what the limiter takes away; none for silence."""
    measured = loudness(wave, rate)
    if target is None or not np.isfinite(measured):
        return 0.0
    gain = target - measured
    for _ in range(CORRECTIONS):
        louder = wave * np.float32(10 ** (gain / 20))
        limit = _limit(louder, max(1, int(AHEAD * rate)))
        if limit is louder:
            break
        gain += target - loudness(limit, rate)
    return min(gain, target - measured + MOST_CORRECTED, LOUDEST_GAIN)


def faded(waves: Iterable[np.ndarray], samples: int) -> Iterator[np.ndarray]:
    """Pieces whose whole rises from zero and falls to it over so many samples, at most its half."""
    held = np.zeros(0, np.float32)
    begun = False
    ramp = (np.arange(samples, dtype=np.float32) + np.float32(0.5)) / np.float32(max(samples, 1))
    for wave in waves:
        held = np.concatenate([held, wave])
        if not begun and len(held) < 2 * samples:
            continue
        if not begun:
            held[:samples] *= ramp
            begun = True
        cut = len(held) - samples
        if cut > 0:
            yield held[:cut]
            held = held[cut:]
    n = len(held) if begun else (len(held) + 1) // 2
    short = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(max(n, 1))
    if not begun:
        held[:n] *= short
    held[len(held) - n :] *= short[::-1]
    if len(held):
        yield held


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
            yield _limit(held, reach)[done:ready]
            keep = max(0, ready - around)
            held, done = held[keep:], ready - keep
    if len(held) > done:
        yield _limit(held, reach)[done:]


def _limit(wave: np.ndarray, reach: int) -> np.ndarray:
    """A wave with its peaks turned down; its ends count as followed by silence."""
    ceiling = 10 ** ((PEAK - SPARE) / 20)
    found = peaks(wave, above=ceiling)
    if found.max(initial=0) <= ceiling:
        return wave
    found = np.maximum(found, np.pad(found, (1, 0))[:-1])  # between it and the one before, too
    wanted = np.minimum(1, ceiling / np.maximum(found, ceiling))
    lowest = lowest_around(wanted, reach)
    smooth = np.pad(np.cumsum(np.pad(lowest, reach, mode="edge")), (1, 0))
    gain = (smooth[2 * reach + 1 :] - smooth[: -2 * reach - 1]) / (2 * reach + 1)
    return (wave * np.minimum(gain, 1)).astype(np.float32)


def lowest_around(values: np.ndarray, reach: int) -> np.ndarray:
    """The least of each value's neighbours up to `reach` to each side, by doubling windows."""
    least, width = np.pad(values, reach, constant_values=np.inf), 1
    while 2 * width <= 2 * reach + 1:
        least, width = np.minimum(least[:-width], least[width:]), 2 * width
    shift = 2 * reach + 1 - width
    return np.minimum(least[: len(least) - shift], least[shift:])
