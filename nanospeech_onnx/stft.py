"""Short-time Fourier transform: frames to a wave and back, in NumPy. No weights.

Counterpart of nanospeech_torch/stft.py for items without padding. The window is that of
nanospeech.audio.mel.
"""

from __future__ import annotations

import numpy as np

from nanospeech.audio import mel


def overlap_add(frames_BNW: np.ndarray, hop: int) -> np.ndarray:
    """Sums frames laid `hop` samples apart. (B, N, W) to (B, (N - 1) * hop + W)."""
    B, N, W = frames_BNW.shape
    parts = W // hop
    blocks = frames_BNW.reshape(B, N, parts, hop)
    out = np.zeros((B, N + parts - 1, hop), frames_BNW.dtype)
    for j in range(parts):  # block j of frame n lands in hop n + j
        out[:, j : j + N] += blocks[:, :, j]
    return out.reshape(B, -1)


def synthesise(spectrum_BNF: np.ndarray, n_fft: int, hop: int) -> np.ndarray:
    """The wave whose frames' spectra are nearest to these, the outer halves of frames included.

    Args:
        spectrum_BNF: complex, F = n_fft / 2 + 1.
        n_fft: window length, an even multiple of hop.
        hop: samples between frames.

    Returns:
        float32 (B, (N - 1) * hop + n_fft).
    """
    window = mel.window(n_fft)
    frames = np.fft.irfft(spectrum_BNF, n=n_fft).astype(np.float32, copy=False)
    frames *= window
    squares = np.broadcast_to(window * window, (1, frames.shape[1], n_fft))
    # Griffin and Lim, 1984, eq. 6: the least squares wave divides by the sum of SQUARED windows
    return overlap_add(frames, hop) / np.maximum(overlap_add(squares, hop), np.float32(1e-8))


def analyse(wave_BS: np.ndarray, n_fft: int, hop: int) -> np.ndarray:
    """Complex spectra (B, N, F) of the frames of what synthesise returns."""
    frames = np.lib.stride_tricks.sliding_window_view(wave_BS, n_fft, axis=1)[:, ::hop]
    return np.fft.rfft(frames * mel.window(n_fft)).astype(np.complex64, copy=False)


def middle(wave_BS: np.ndarray, n_fft: int) -> np.ndarray:
    """What synthesise returns without the halves of frames that stand out at the ends."""
    return wave_BS[:, n_fft // 2 : wave_BS.shape[1] - n_fft // 2]
