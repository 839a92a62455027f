"""Editing: resample, level, trim, fade and join waves. NumPy; reads and writes no files.

A wave is float32 (n,), mono, in [-1, 1]. soxr is imported when used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from nanospeech.config import AudioConfig

SAMPLE_RATE = AudioConfig().sample_rate
TARGET_RMS = 0.1  # prompts quieter than this are raised to it (F5-TTS does the same)
SILENCE = 1e-3  # a peak below it, -60 dB, is no recording of speech
CANCELLED = 1e-3  # of a channel's power, what is left of the mean of channels that cancel out


def mono(wave_NC: np.ndarray) -> np.ndarray:
    """The mean of all channels; the loudest alone where they cancel out, as inverted ones do.

    Args:
        wave_NC: float32 (n, channels).

    Returns:
        float32 (n,).
    """
    mean = wave_NC.mean(axis=1)
    if wave_NC.shape[1] > 1:
        power = np.einsum("nc,nc->c", wave_NC, wave_NC, dtype=np.float64)
        if np.einsum("n,n", mean, mean, dtype=np.float64) < CANCELLED * power.max():
            return wave_NC[:, power.argmax()].copy()
    return mean


def resample(wave: np.ndarray, rate: float, wanted: float) -> np.ndarray:
    """float32 (n,) at `rate` Hz -> float32 (about n * wanted / rate,)."""
    if rate == wanted:
        return np.ascontiguousarray(wave, np.float32)
    import soxr

    return np.asarray(soxr.resample(wave, rate, wanted), np.float32)


def rms(wave: np.ndarray) -> float:
    """Root mean square of a wave; 0 for an empty one."""
    return float(np.sqrt(np.mean(np.square(wave, dtype=np.float64)))) if len(wave) else 0.0


def is_silent(wave: np.ndarray) -> bool:
    return not len(wave) or float(np.abs(wave).max()) < SILENCE


def centred(wave: np.ndarray) -> np.ndarray:
    """A recording without its sound card's offset, which a model would imitate, and louder.

    Beside an offset no silence is silent, either. One of less than SILENCE stays: no recording's
    mean is quite 0.
    """
    mean = np.mean(wave, dtype=np.float64) if len(wave) else 0.0
    return wave if abs(mean) < SILENCE else (wave - mean).astype(np.float32)


def set_level(wave: np.ndarray, target_rms: float | None = None) -> tuple[np.ndarray, float]:
    """Brings a wave to the level that a model was trained at.

    Args:
        target_rms: root mean square wanted; None raises a too quiet wave to TARGET_RMS and leaves
            a louder one as it is.

    Returns:
        The wave and the gain; dividing by the gain brings the first level back.
    """
    level = rms(wave)
    gain = (target_rms or max(level, TARGET_RMS)) / level if level > 0 else 1.0
    return (wave * np.float32(gain)).astype(np.float32), gain


def unclipped(wave: np.ndarray) -> np.ndarray:
    """A wave softer where a file of integers would cut it at full scale."""
    return wave / overshoot(wave)


def overshoot(wave: np.ndarray) -> float:
    """How many times full scale its peak is; 1 where it is within."""
    return max(1.0, float(np.abs(wave).max(initial=0)))


def loud_span(wave: np.ndarray, rate: int = SAMPLE_RATE, below_db: float = 40) -> tuple[int, int]:
    """Where sound begins and ends: samples (start, stop) of the 10 ms blocks that are loud.

    Args:
        below_db: a block is loud if it is at most this far below the loudest one.
    """
    block = rate // 100
    count = -(-len(wave) // block)
    blocks = np.pad(wave, (0, count * block - len(wave))).reshape(count, block)
    level = np.sqrt(np.mean(np.square(blocks, dtype=np.float64), axis=1))
    loud = np.flatnonzero(level > max(level.max(initial=0) * 10 ** (-below_db / 20), 1e-6))
    if not len(loud):
        return 0, 0
    return int(loud[0]) * block, min(len(wave), int(loud[-1] + 1) * block)


def trim(wave: np.ndarray, rate: int = SAMPLE_RATE, keep_seconds: float = 0.05) -> np.ndarray:
    """Cuts silence off both ends, except keep_seconds of it."""
    start, stop = loud_span(wave, rate)
    keep = int(keep_seconds * rate)
    return wave[max(0, start - keep) : stop + keep]


def cross_fade(
    waves: Iterable[np.ndarray | Iterable[np.ndarray]], overlap: int
) -> Iterator[np.ndarray]:
    """Joins waves as they come: the concatenation of what it yields is the joined whole.

    Each wave's last `overlap` samples (fewer if either is shorter) are mixed linearly with the next
    one's first, so a tail is held back until the next wave is there. A wave may come in pieces that
    follow each other; what is mixed with the wave before is taken from the first of them.
    """
    tail = np.zeros(0, np.float32)
    for wave in waves:
        most = overlap
        for piece in [wave] if isinstance(wave, np.ndarray) else wave:
            head = np.asarray(piece, np.float32)
            n = min(most, len(tail), len(head))
            up = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(n)
            mixed = tail[len(tail) - n :] * (1 - up) + head[:n] * up
            head = np.concatenate([tail[: len(tail) - n], mixed, head[n:]])
            cut, most = max(0, len(head) - overlap), 0
            tail = head[cut:]
            if cut:
                yield head[:cut]
    if len(tail):
        yield tail


def join(waves: Iterable[np.ndarray], overlap: int) -> np.ndarray:
    """The cross-faded whole: float32 (sum of lengths - overlaps,)."""
    return np.concatenate([np.zeros(0, np.float32), *cross_fade(waves, overlap)])


def fade_edges(
    wave: np.ndarray, samples: int, begins: bool = True, ends: bool = True
) -> np.ndarray:
    """A copy that rises from and falls to zero over `samples`, so that no edge clicks.

    Args:
        begins: whether it rises.
        ends: whether it falls.
    """
    wave = np.array(wave, np.float32)
    n = min(samples, len(wave) // 2)
    ramp = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(n)
    if begins:
        wave[:n] *= ramp
    if ends:
        wave[len(wave) - n :] *= ramp[::-1]
    return wave
