"""Heard: mels augmented by pace, pitch, colour and poor recording, and where their sound begins."""

from __future__ import annotations

import numpy as np

from nanospeech.audio.mel import CLAMP, band_edges, to_mels
from nanospeech.config import AudioConfig


def quiet_start(mel_NM: np.ndarray) -> int:
    """Frames before the first sound: those more than 35 dB below the loudest one."""
    level = mel_NM.astype(np.float32).mean(1)
    return int(np.argmax(level > level.max() - 4))  # nats of the amplitude


def stretched(mel_NM: np.ndarray, pace: float) -> np.ndarray:
    """The mel stretched to `pace` times its length, at the same pitch."""
    frames = max(1, round(len(mel_NM) * pace))
    if frames == len(mel_NM):
        return mel_NM
    at = np.linspace(0, len(mel_NM) - 1, frames)
    low = at.astype(int)
    share = (at - low)[:, None].astype(mel_NM.dtype)
    high = np.minimum(low + 1, len(mel_NM) - 1)
    return mel_NM[low] * (1 - share) + mel_NM[high] * share


def warped(mel_NM: np.ndarray, stretch: float, sample_rate: int) -> np.ndarray:
    """The log mel as of a voice whose pitch and formants are `stretch` times as high.

    Vocal tract length perturbation (Jaitly and Hinton, 2013), with the pitch. A prompt and what
    follows it change alike, so that a model of few speakers has to listen to its prompt. Where a
    lower voice has nothing to say at the top, the last band is repeated.
    """
    bands = mel_NM.shape[1]
    top = to_mels(sample_rate / 2)
    hertz = band_edges(sample_rate, bands)[1:-1]
    # the band, as a fraction, whose frequency is mapped to each band
    at = np.clip(to_mels(hertz / stretch) / top * (bands + 1) - 1, 0, bands - 1)
    low = np.minimum(at.astype(int), bands - 2)
    share = (at - low).astype(mel_NM.dtype)
    return mel_NM[:, low] * (1 - share) + mel_NM[:, low + 1] * share


def coloured(mel_NM: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    """The log mel as through another room, microphone or mouth: a smooth curve over the bands.

    A prompt and what follows it are coloured alike. The curve is six cosines over the bands with
    normal weights, `strength` nats the first and 1/k of it the k-th; it leaves the mean as it is.
    """
    bands = mel_NM.shape[1]
    place = (np.arange(bands) + 0.5) / bands
    orders = np.arange(1, 7)
    weights = rng.standard_normal(6) * strength / orders
    curve = weights @ np.cos(np.pi * orders[:, None] * place)
    return mel_NM + curve.astype(mel_NM.dtype)


def spoiled(mel_NM: np.ndarray, audio: AudioConfig, rng: np.random.Generator) -> np.ndarray:
    """The log mel as of a poor recording: with noise, through a narrow band, or both.

    For a prompt alone: what follows it stays clean, so that a model learns the voice and not the
    recording. Noise is steady, 5 to 30 dB below the speech and falls with frequency by 0 to 9 dB an
    octave; the band begins at 50 to 400 Hz and ends at 2,500 to 8,000 Hz, with 40 to 200 dB an
    octave beyond, where it sinks to a floor 50 to 110 dB below the speech.

    Args:
        mel_NM: log of the magnitudes' mel.
        audio: its bands.
        rng: everything is drawn from it.
    """
    width = audio.sample_rate / audio.n_fft
    edges = band_edges(audio.sample_rate, audio.n_mels)
    bins = np.maximum((edges[2:] - edges[:-2]) / (2 * width), 1)  # that a band is the sum of
    hertz = edges[1:-1]
    kind = rng.random()
    mel = mel_NM.astype(np.float64)

    def level_of(mel: np.ndarray) -> float:
        # a band of k bins of magnitude a is ka, and its power ka^2
        return float(0.5 * np.log(np.mean(np.sum(np.exp(2 * mel) / bins, 1))))

    level = level_of(mel)

    def with_noise(mel: np.ndarray, below: float, slope: float) -> np.ndarray:
        curve = np.log(bins) - slope * np.log(hertz)
        curve += level - below - 0.5 * np.log(np.sum(np.exp(2 * curve) / bins))
        # Rayleigh magnitudes, averaged over the bins
        texture = 0.52 / np.sqrt(bins) * rng.standard_normal(mel.shape)
        return 0.5 * np.logaddexp(2 * mel, 2 * (curve + np.clip(texture, -1.5, 1.0)))

    decibels = np.log(10) / 20
    if kind < 0.7:
        mel = with_noise(mel, rng.uniform(5, 30) * decibels, rng.uniform(0, 1.5))
    if kind > 0.4:
        low, high = rng.uniform(50, 400), np.exp(rng.uniform(np.log(2500), np.log(8000)))
        octaves = np.maximum(np.log2(low / hertz), np.log2(hertz / high))
        mel -= rng.uniform(40, 200) * decibels * np.maximum(octaves, 0)
        mel = with_noise(mel, rng.uniform(50, 110) * decibels, 0.0)
    mel += level - level_of(mel)  # as a prompt, it is brought to the level of others
    return np.maximum(mel, np.log(CLAMP)).astype(mel_NM.dtype)
