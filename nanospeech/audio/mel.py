"""Mel: the one definition of a mel spectrogram. NumPy; the torch trainer uses the same tables."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from nanospeech.config import AudioConfig

CLAMP = 1e-5  # magnitudes below it are silence


@lru_cache
def window(n_fft: int) -> np.ndarray:
    """Periodic Hann window, float32 (n_fft,)."""
    n = np.arange(n_fft, dtype=np.float64)
    return (0.5 - 0.5 * np.cos(2 * np.pi * n / n_fft)).astype(np.float32)


def to_mels(hertz: np.ndarray | float) -> Any:
    """Frequencies on the HTK mel scale."""
    return 2595 * np.log10(1 + hertz / 700)


def to_hertz(mels: np.ndarray | float) -> Any:
    """Back from the HTK mel scale."""
    return 700 * (10 ** (mels / 2595) - 1)


def band_edges(sample_rate: int, n_mels: int) -> np.ndarray:
    """Hz at which bands begin, peak and end: (M + 2,), of band i those at i, i + 1 and i + 2."""
    return to_hertz(np.linspace(0, to_mels(sample_rate / 2), n_mels + 2))


@lru_cache
def filterbank(sample_rate: int, n_fft: int, n_mels: int) -> np.ndarray:
    """Triangular filters on the HTK mel scale from 0 to Nyquist, peak 1: float32 (n_fft/2+1, M)."""
    nyquist = sample_rate / 2
    bins = np.linspace(0, nyquist, n_fft // 2 + 1)
    edges = band_edges(sample_rate, n_mels)
    width = np.diff(edges)
    distance = edges[None, :] - bins[:, None]
    rising = -distance[:, :-2] / width[:-1]
    falling = distance[:, 2:] / width[1:]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def log_mel(wave: np.ndarray, audio: AudioConfig = AudioConfig()) -> np.ndarray:
    """Natural log of the clamped magnitude mel spectrogram.

    Args:
        wave: float32 (n,) in [-1, 1] at audio.sample_rate; more than n_fft / 2 samples.

    Returns:
        float32 (N, M) with N = n // hop_length + 1.
    """
    n_fft, hop = audio.n_fft, audio.hop_length
    padded = np.pad(np.asarray(wave, np.float32), n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop]
    return log_bands(np.abs(np.fft.rfft(frames * window(n_fft), axis=-1)).astype(np.float32), audio)


def log_bands(magnitude: np.ndarray, audio: AudioConfig = AudioConfig()) -> np.ndarray:
    """Natural log of the clamped mel bands of magnitudes (N, n_fft/2+1): (N, M)."""
    mel = magnitude @ filterbank(audio.sample_rate, audio.n_fft, audio.n_mels)
    return np.log(np.maximum(mel, CLAMP))
