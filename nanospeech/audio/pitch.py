"""Pitch: how high a voice speaks from one pause to the next, and whether it is two. NumPy."""

from __future__ import annotations

import numpy as np

RATE = 8000  # samples a second that are looked at: all pitches, and few formants
FRAME, HOP = 400, 160  # of these: 50 ms, which hold three periods of the lowest voices, and 20
LOWEST, HIGHEST = 65, 400  # Hz of pitches that are looked for
SMOOTHING = 13  # samples of the filter before 24 kHz become 8
PERIODIC = 0.6  # autocorrelation from which a frame is voiced
FIRST = 0.9  # of the best one: a shorter period with so much is taken, as its double fits as well
HEARD = 1e-3  # of the loudest frame's power, what a voiced one has at least
LOUD, SOFT = 95, 30.0  # percentile of the frames' power, and dB below it that are a pause
PAUSE = 12  # frames of a pause that ends a stretch: a quarter of a second
SHORTEST = 15  # voiced frames of a stretch: fewer have no pitch to go by
LEAST = 30  # voiced frames on either side of a leap


def pitches(wave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pitch of a recording by autocorrelation (Boersma 1993), without its ties over time.

    Args:
        wave: float32 (n,) at 24 kHz.

    Returns:
        For each HOP, semitones above 100 Hz, NaN where nothing is voiced, and the power.
    """
    if len(wave) < 3 * FRAME:
        return np.zeros(0), np.zeros(0)
    taper = np.hanning(SMOOTHING)
    slow = np.convolve(wave, taper / taper.sum(), "same")[::3]
    frames = np.lib.stride_tricks.sliding_window_view(slow, FRAME)[::HOP]
    shape = np.hanning(FRAME)
    frames = (frames - frames.mean(1, keepdims=True)) * shape
    power = np.square(frames).mean(1)
    alike = correlation(frames) / correlation(shape[None])[0]  # which falls as the window does
    inside = alike[:, RATE // HIGHEST : RATE // LOWEST + 1]
    best = inside.max(1, keepdims=True)
    middle = inside[:, 1:-1]
    peaks = (middle >= inside[:, :-2]) & (middle >= inside[:, 2:]) & (middle >= FIRST * best)
    voiced = (best[:, 0] > PERIODIC) & peaks.any(1) & (power > HEARD * power.max())
    period = peaks.argmax(1) + 1 + RATE // HIGHEST
    return np.where(voiced, 12 * np.log2(RATE / period / 100), np.nan), power


def correlation(frames: np.ndarray) -> np.ndarray:
    """The autocorrelation of each frame, 1 at lag 0: (N, FRAME) up to the longest period."""
    spectra = np.fft.rfft(frames, 1024)  # so long that what wraps around is no period's
    found = np.fft.irfft(np.abs(spectra) ** 2)[:, : RATE // LOWEST + 1]
    return found / np.maximum(found[:, :1], 1e-20)


def stretches(wave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The median pitch of each stretch between pauses, in semitones, and its voiced frames."""
    pitch, power = pitches(wave)
    if not len(pitch):
        return pitch, power
    loud = np.flatnonzero(power > np.percentile(power, LOUD) * 10 ** (-SOFT / 10))
    parts = np.split(pitch, loud[1:][np.diff(loud) > PAUSE])
    voices = [part[np.isfinite(part)] for part in parts]
    voices = [part for part in voices if len(part) >= SHORTEST]
    return np.array([np.median(part) for part in voices]), np.array([len(part) for part in voices])


def leap(wave: np.ndarray) -> float:
    """Semitones of pitch that no stretch of a recording has, between lower and higher ones.

    Over 6 in four of five recordings of a woman and a man in turn, in one of a hundred of one
    person. Of two women or two men it is as little as of one, mostly.

    Args:
        wave: float32 (n,) at 24 kHz.
    """
    pitch, voiced = stretches(wave)
    order = np.argsort(pitch)
    below = np.cumsum(voiced[order])[:-1]
    enough = (below >= LEAST) & (voiced.sum() - below >= LEAST)
    return float(np.diff(pitch[order])[enough].max(initial=0))
