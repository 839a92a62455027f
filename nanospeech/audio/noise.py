"""Noise: a loud, steady noise taken out of a recording, by what speech is like. Knows no models.

Where noise is as loud as a part of the speech, a filter leaves holes or noise. Log mels of speech
are nearly a Gaussian (narrow.py), and of speech in noise y = log(e^2x + e^2n) / 2 is heard, so that
bands above the noise tell what those below it are: the most probable x given y, by Gauss-Newton
steps from frame to frame (vector Taylor series, Moreno, Raj and Stern, ICASSP 1996). A network
corrects that by what is heard around (restorer.py).
"""

from __future__ import annotations

import numpy as np

from nanospeech.audio.editing import SAMPLE_RATE, rms
from nanospeech.audio.mel import CLAMP, band_edges, log_bands
from nanospeech.audio.narrow import SpeechMels, speech_mels
from nanospeech.audio.recording import overlapped, spectra
from nanospeech.audio.restorer import restored

SIZE, HOP = 1024, 256  # of the spectra, those of AudioConfig
PAUSES = 12  # percent of the frames, the quietest, whose power is the noise's
OVER = 1.2  # times the noise's magnitude, as its loudest moments are heard too
# Such noise is so many dB below speech, and its frames differ by less than so many nats (0.3 are
# chance, 0.9 to 3 the quietest frames of recordings without noise).
LOUD, STEADY = (8.0, 28.0), 0.7
SHORTEST = SAMPLE_RATE // 2  # samples in which there are pauses to go by
HEARD = 0.1  # variance of the log mels heard around what speech and noise make
OWN = 0.05  # variance that bands of speech have by themselves
STEPS, STRIDE = 6, 0.7  # Gauss-Newton steps, and the share of each that is taken
CLOSE = 1e-5  # of the right side's length, what a frame's equations may be off by
BLOCK = 4096  # frames at once, 44 s
TINY = 1e-300  # the least sum of squares that is divided by


def most_likely(heard: np.ndarray, noise: np.ndarray, speech: SpeechMels) -> np.ndarray:
    """The log mels of speech that are heard with noise.

    Args:
        heard: float (N, M), log mels at speech.rms.
        noise: (M,), those of the noise.
        speech: what log mels of speech are like.

    Returns:
        float64 (N, M), nowhere above what is heard.
    """
    y = heard.astype(np.float64)
    prior = speech.covariance + OWN * np.eye(len(noise))
    over = np.maximum(np.exp(2 * y) - np.exp(2 * noise), CLAMP**2)
    x = np.where(y > noise + 0.3, np.log(over) / 2, speech.mean)
    weights = np.zeros_like(y)
    for _ in range(STEPS):
        slope = 1 / (1 + np.exp(2 * (noise - x)))  # of y by x
        error = y - np.logaddexp(2 * x, 2 * noise) / 2 + slope * (x - speech.mean)
        weights = solved(prior, slope, error, weights)
        x += STRIDE * (speech.mean + (slope * weights) @ prior - x)
    return np.minimum(x, y)


def solved(
    prior: np.ndarray, slope: np.ndarray, right: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """w of (S prior S + HEARD) w = right, where S is the diagonal matrix of a frame's slopes.

    Conjugate gradients for all frames at once (Hestenes and Stiefel 1952): a few dozen products of
    a whole matrix, where solving frame by frame takes four times as long on free cores, and
    OpenBLAS's threads, which wait for one another in each of the small systems, far more on busy
    ones.

    Args:
        prior: float64 (M, M), a covariance.
        slope: (N, M).
        right: (N, M).
        start: (N, M), where to begin.

    Returns:
        (N, M); each frame is off by at most CLOSE of its right side's length, or CLOSE if that is
        shorter than 1.
    """

    def times(w: np.ndarray) -> np.ndarray:
        return slope * ((slope * w) @ prior) + HEARD * w

    w, left = start, right - times(start)
    way, size = left, np.square(left).sum(1, keepdims=True)
    enough = CLOSE**2 * np.maximum(1, np.square(right).sum(1, keepdims=True))
    for _ in range(2 * len(prior)):  # M without rounding
        if (size <= enough).all():
            break
        along = times(way)
        step = size / np.maximum((way * along).sum(1, keepdims=True), TINY)
        w, left = w + step * way, left - step * along
        before, size = size, np.square(left).sum(1, keepdims=True)
        way = left + size / np.maximum(before, TINY) * way
    return w


def pauses(mel: np.ndarray) -> np.ndarray:
    """The quietest frames of padded log mels, (P, M)."""
    inside = mel[SIZE // HOP : -2 * SIZE // HOP]
    power = np.exp(2 * inside).sum(1)
    return inside[power <= np.percentile(power, PAUSES)]


def noise_in(mel: np.ndarray) -> np.ndarray:
    """The log mels (M,) of the noise in padded log mels, the mean power of their pauses."""
    return np.log(np.exp(2 * pauses(mel)).mean(0)) / 2


def without_noise(wave: np.ndarray, depth: float) -> np.ndarray | None:
    """A recording without the loud, steady noise of its pauses.

    Args:
        wave: float32 (n,) at SAMPLE_RATE.
        depth: in dB, as recording.depth has it.

    Returns:
        float32 (n,); None where there is no such noise that could be told from speech.
    """
    if len(wave) < SHORTEST or not LOUD[0] <= depth < LOUD[1]:
        return None
    found = spectra(wave, SIZE, HOP)
    heard = log_bands(np.abs(found))
    if not pauses(heard).std(0).mean() < STEADY:
        return None
    speech = speech_mels()
    heard = heard - np.log(rms(wave) / speech.rms)
    noise = noise_in(heard)
    blocks = (heard[i : i + BLOCK] for i in range(0, len(heard), BLOCK))
    loudest = noise + np.log(OVER)
    likely = np.concatenate([most_likely(block, loudest, speech) for block in blocks])
    gain = restored(heard, likely, noise, speech.mean) - heard
    bins = np.linspace(0, SAMPLE_RATE / 2, SIZE // 2 + 1)
    centres = band_edges(SAMPLE_RATE, len(noise))[1:-1]
    for frame, logs in zip(found, gain):
        frame *= np.exp(np.interp(bins, centres, logs))
    return overlapped(found, SIZE, HOP, len(wave))
