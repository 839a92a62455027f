"""Short-time Fourier transform: frames to a wave and back, masks of frames. No weights.

Twin of nanospeech_torch/stft.py. The window is that of nanospeech.audio.mel.
"""

from __future__ import annotations

import mlx.core as mx

from nanospeech.audio import mel


def frame_mask(lens_B: mx.array | None, frames: int) -> mx.array | None:
    """Ones in the valid frames, (B, N, 1) float32; None where all frames are valid."""
    if lens_B is None:
        return None
    n = mx.arange(frames)
    return (n[None, :] < lens_B[:, None])[:, :, None].astype(mx.float32)


def masked(x_BND: mx.array, mask_BN1: mx.array | None) -> mx.array:
    """Zeros beyond each item's length, as a convolution's own padding has them."""
    return x_BND if mask_BN1 is None else x_BND * mask_BN1.astype(x_BND.dtype)


def overlap_add(frames_BNW: mx.array, hop: int) -> mx.array:
    """Sums frames laid `hop` samples apart. (B, N, W) to (B, (N - 1) * hop + W)."""
    B, N, W = frames_BNW.shape
    parts = W // hop
    blocks = frames_BNW.reshape(B, N, parts, hop)
    # block j of frame n lands in hop n + j
    shifted = [mx.pad(blocks[:, :, j], [(0, 0), (j, parts - 1 - j), (0, 0)]) for j in range(parts)]
    return sum(shifted).reshape(B, (N + parts - 1) * hop)  # type: ignore[union-attr]


def synthesise(
    spectrum_BNF: mx.array, n_fft: int, hop: int, mask_BN1: mx.array | None = None
) -> mx.array:
    """The wave whose frames' spectra are nearest to these, the outer halves of frames included.

    Args:
        spectrum_BNF: complex, F = n_fft / 2 + 1.
        n_fft: window length, an even multiple of hop.
        hop: samples between frames.
        mask_BN1: ones in the frames to use, or None for all.

    Returns:
        (B, (N - 1) * hop + n_fft), zero where there are no frames.
    """
    window = mx.array(mel.window(n_fft))
    # a real wave's spectrum is real at 0 Hz and Nyquist; not every MLX backend sees to that
    real, imag = mx.real(spectrum_BNF), mx.imag(spectrum_BNF)
    imag = mx.pad(imag[:, :, 1:-1], [(0, 0), (0, 0), (1, 1)])
    frames = mx.fft.irfft(real + 1j * imag, n=n_fft) * window
    squares = mx.broadcast_to(window * window, (1, frames.shape[1], n_fft))
    wave = overlap_add(masked(frames, mask_BN1), hop)
    # Griffin and Lim, 1984, eq. 6: the least squares wave divides by the sum of SQUARED windows
    weight = overlap_add(squares if mask_BN1 is None else squares * mask_BN1, hop)
    return wave / mx.maximum(weight, 1e-8)


def analyse(wave_BS: mx.array, n_fft: int, hop: int) -> mx.array:
    """Complex spectra (B, N, F) of the frames of what synthesise returns."""
    parts = n_fft // hop
    blocks = wave_BS.reshape(wave_BS.shape[0], -1, hop)
    N = blocks.shape[1] - parts + 1
    frames = mx.concatenate([blocks[:, j : j + N] for j in range(parts)], axis=-1)
    return mx.fft.rfft(frames * mx.array(mel.window(n_fft)))


def middle(wave_BS: mx.array, n_fft: int, hop: int, lens_B: mx.array | None = None) -> mx.array:
    """What synthesise returns without the halves of frames that stand out at the ends.

    Args:
        wave_BS: S = (N - 1) * hop + n_fft.
        n_fft: window length.
        hop: samples between frames.
        lens_B: valid frames of each item.

    Returns:
        (B, (N - 1) * hop), zero beyond each item's (lens_B[b] - 1) * hop.
    """
    samples = wave_BS.shape[1] - n_fft
    wave_BS = wave_BS[:, n_fft // 2 : n_fft // 2 + samples]
    if lens_B is None:
        return wave_BS
    n = mx.arange(samples)
    return wave_BS * (n[None, :] < (lens_B[:, None] - 1) * hop)


def istft(
    real_BNF: mx.array,
    imag_BNF: mx.array,
    n_fft: int,
    hop: int,
    lens_B: mx.array | None = None,
) -> mx.array:
    """Inverse of the centred short-time Fourier transform with the Hann window of
    nanospeech.audio.mel.

    Args:
        real_BNF: real parts, F = n_fft / 2 + 1.
        imag_BNF: imaginary parts.
        n_fft: window length, an even multiple of hop.
        hop: samples between frames.
        lens_B: valid frames of each item; the rest are left out.

    Returns:
        (B, (N - 1) * hop), zero beyond each item's (lens_B[b] - 1) * hop.
    """
    mask = frame_mask(lens_B, real_BNF.shape[1])
    wave = synthesise(real_BNF + 1j * imag_BNF, n_fft, hop, mask)
    return middle(wave, n_fft, hop, lens_B)
