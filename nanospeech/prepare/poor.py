"""Poor: good recordings made noisy, narrow or both, to learn from.

Those that are measured are evaluate/prompts.py's.
"""

from __future__ import annotations

import numpy as np

from nanospeech.audio.editing import rms
from nanospeech.audio.wave import SAMPLE_RATE

NOISE = 6.0, 28.0  # dB of noise below the speech
SLOPE = 0.0, 1.5  # of its amplitude: 0 white, 0.5 pink, 1 brown
LOW, HIGH = (50.0, 400.0), (2800.0, 7500.0)  # Hz where a narrow band begins and ends
STEEP = 60.0, 300.0  # dB an octave beyond
KINDS = {"noise": 0.4, "narrow": 0.4, "both": 0.2}  # how often


END = 12  # frames that may be more or fewer at its end, where another silence is cut off


def poor(wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A recording as by a poor microphone, through a narrow band, or both.

    Args:
        wave: float32 (n,) at SAMPLE_RATE.
        rng: everything is drawn from it.

    Returns:
        float32 (n,), as loud.
    """
    kind = rng.choice(list(KINDS), p=list(KINDS.values()))
    if kind != "narrow":
        wave = noisy(wave, rng)
    if kind != "noise":
        wave = narrow(wave, rng)
    return wave


def noisy(wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A recording with steady noise of some colour and level."""
    hertz = np.fft.rfftfreq(len(wave), 1 / SAMPLE_RATE)
    curve = np.maximum(hertz, 40.0) ** -rng.uniform(*SLOPE)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(len(wave))) * curve, len(wave))
    gain = rms(wave) / rms(noise) * 10 ** (-rng.uniform(*NOISE) / 20)
    return (wave + gain * noise).astype(np.float32)


def narrow(wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A recording whose band begins and ends somewhere, by slopes of some steepness."""
    low, high = (float(np.exp(rng.uniform(*np.log(ends)))) for ends in (LOW, HIGH))
    hertz = np.maximum(np.fft.rfftfreq(len(wave), 1 / SAMPLE_RATE), 1.0)
    octaves = np.maximum(np.maximum(np.log2(low / hertz), np.log2(hertz / high)), 0)
    gain = 10 ** (-rng.uniform(*STEEP) / 20 * octaves)
    found = np.fft.irfft(np.fft.rfft(wave) * gain, len(wave)).astype(np.float32)
    return found * np.float32(rms(wave) / max(rms(found), 1e-9))


def fitted(mel: np.ndarray, frames: int) -> np.ndarray | None:
    """A poor recording's mel at the good one's length: cut, or its last frame repeated.

    Returns:
        (frames, M); None where they differ by more than END frames, as its beginning is then
        another one too.
    """
    if abs(len(mel) - frames) > END:
        return None
    return np.pad(mel, ((0, max(0, frames - len(mel))), (0, 0)), "edge")[:frames]
