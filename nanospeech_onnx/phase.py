"""Phase: a wave from magnitudes, the phase's derivatives and the wanted mel, in NumPy. No weights.

Counterpart of nanospeech_torch/phase.py, which explains it, for items without padding.
"""

from __future__ import annotations

import math

import numpy as np

from nanospeech.audio import mel
from nanospeech.config import AudioConfig

from .stft import analyse, synthesise

MEL_ITERS = 4  # iterations of mel_pseudo_inverse
REACH = 6  # bins to each side that a bin's phase is averaged over
HANN = 0.25645  # time-frequency ratio of the Gaussian like a Hann window, in its length squared
MOMENTUM = 0.99  # of Griffin-Lim (Perraudin, Balazs and Sondergaard, 2013)
CORRECTIONS = 2  # of the iterations, the last ones
QUIET = 1e-6  # magnitudes below it have no slope
TINY = 1e-9
MAX_GAIN = 10.0


def bands(n_fft: int, n_mels: int) -> np.ndarray:
    """The mel's filters, float32 (F, M)."""
    return mel.filterbank(AudioConfig().sample_rate, n_fft, n_mels)


def shares(bank_FM: np.ndarray) -> np.ndarray:
    """How much of a bin is each band's: (M, F)."""
    return (bank_FM / np.maximum(bank_FM.sum(1, keepdims=True), np.float32(1e-3))).T


def mel_gain(magnitude_BNF: np.ndarray, wanted_BNM: np.ndarray) -> np.ndarray:
    """Gain of each bin that brings the mel of magnitudes nearer to the (linear) mel wanted_BNM."""
    bank = bands(2 * (magnitude_BNF.shape[-1] - 1), wanted_BNM.shape[-1])
    return (wanted_BNM / np.maximum(magnitude_BNF @ bank, np.float32(mel.CLAMP))) @ shares(bank)


def mel_pseudo_inverse(wanted_BNM: np.ndarray, n_fft: int) -> np.ndarray:
    """Smooth magnitudes (B, N, F) of nearly the (linear) mel wanted."""
    magnitude = wanted_BNM @ shares(bands(n_fft, wanted_BNM.shape[-1]))
    for _ in range(MEL_ITERS):
        magnitude = magnitude * mel_gain(magnitude, wanted_BNM)
    return magnitude


def padded(x_BNF: np.ndarray, frames: tuple[int, int], bins: tuple[int, int]) -> np.ndarray:
    """Zeros before and after the frames and the bins."""
    return np.pad(x_BNF, ((0, 0), frames, bins))


def slopes(magnitude_BNF: np.ndarray, hop: int) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the phase that a Gaussian window would have.

    Args:
        magnitude_BNF: magnitudes.
        hop: samples between frames.

    Returns:
        Phase differences in radians, (B, N, F) each: from the frame before to this one
        (instantaneous frequency) and from the bin below to this one (group delay, negated).
    """
    n_fft = 2 * (magnitude_BNF.shape[-1] - 1)
    ratio = hop / (HANN * n_fft)
    loud = np.log(np.maximum(magnitude_BNF, np.float32(QUIET)))
    # central differences, none at the ends
    over_bins = padded((loud[:, :, 2:] - loud[:, :, :-2]) / 2, (0, 0), (1, 1))
    over_time = np.zeros_like(loud)
    over_time[:, 1:-1] = (loud[:, 2:] - loud[:, :-2]) / 2
    turn = np.arange(n_fft // 2 + 1) * (2 * math.pi * hop / n_fft % math.tau)
    before = padded(over_bins[:, :-1], (1, 0), (0, 0))
    frequency = ratio * (over_bins + before) / 2 + turn.astype(np.float32)
    # frames begin half a window before their middle: the phase falls by pi a bin
    below = padded(over_time[:, :, :-1], (0, 0), (1, 0))
    return frequency, -(over_time + below) / (2 * ratio) - np.float32(math.pi)


def integrate(
    magnitude_BNF: np.ndarray, frequency_BNF: np.ndarray, group_delay_BNF: np.ndarray
) -> np.ndarray:
    """Integrates the derivatives of phases, from the first frame to the last.

    Args:
        magnitude_BNF: weights of the bins.
        frequency_BNF: radians from the frame before.
        group_delay_BNF: radians from the bin below.

    Returns:
        complex numbers (B, N, F) of size 1, or 0 where neighbours cancel out.
    """
    loud = np.sqrt(magnitude_BNF + np.float32(TINY))
    loud = loud / loud.max(axis=2, keepdims=True)
    weight = padded(loud[:, :-1], (1, 0), (0, 0)) * loud + np.float32(TINY)
    turn = weight * np.exp(1j * frequency_BNF.astype(np.complex64))
    neighbour = np.exp(1j * group_delay_BNF.astype(np.complex64))[:, :, 1:]
    up, down = (padded(x, (0, 0), p) for x, p in ((neighbour, (1, 0)), (neighbour.conj(), (0, 1))))
    u_BF = np.broadcast_to(1 - 2 * (np.arange(loud.shape[2]) % 2), loud[:, 0].shape)
    found = [u_BF.astype(np.complex64)]
    for n in range(1, loud.shape[1]):
        u_BF = found[-1] * turn[:, n]
        for _ in range(REACH):
            around = np.pad(u_BF, ((0, 0), (1, 1)))
            u_BF = u_BF + around[:, :-2] * up[:, n] + around[:, 2:] * down[:, n]
        found.append(u_BF / np.maximum(np.abs(u_BF), np.float32(TINY * TINY)))
    return np.stack(found, axis=1)


def reconstruct(
    magnitude_BNF: np.ndarray,
    frequency_BNF: np.ndarray,
    group_delay_BNF: np.ndarray,
    wanted_BNM: np.ndarray,
    iters: int,
    n_fft: int,
    hop: int,
) -> np.ndarray:
    """A wave of these magnitudes and phase derivatives, and nearly of the (linear) mel wanted_BNM.

    Args:
        magnitude_BNF: predicted magnitudes.
        frequency_BNF: radians from the frame before.
        group_delay_BNF: radians from the bin below.
        wanted_BNM: the mel.
        iters: Griffin-Lim iterations, at least 1; the last two correct bands, not bins.
        n_fft: window length.
        hop: samples between frames.

    Returns:
        (B, (N - 1) * hop + n_fft), as stft.synthesise.
    """
    spectrum = magnitude_BNF * integrate(magnitude_BNF, frequency_BNF, group_delay_BNF)
    before = None
    for left in reversed(range(iters)):
        rebuilt = analyse(synthesise(spectrum, n_fft, hop), n_fft, hop)
        if left < CORRECTIONS:
            gain = mel_gain(np.abs(rebuilt), wanted_BNM)
            spectrum = rebuilt * np.minimum(gain, np.float32(MAX_GAIN))
            continue
        ahead = rebuilt if before is None else rebuilt + np.float32(MOMENTUM) * (rebuilt - before)
        spectrum = magnitude_BNF * ahead / np.maximum(np.abs(ahead), np.float32(TINY))
        before = rebuilt
    return synthesise(spectrum, n_fft, hop)
