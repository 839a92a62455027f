"""Short-time Fourier transform: frames to a wave and back, masks of frames. No weights.

Twin of nanospeech_mlx/stft.py. The window is that of nanospeech.audio.mel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from nanospeech.audio import mel

from .mel import table


def frame_mask(lens_B: torch.Tensor | None, frames: int) -> torch.Tensor | None:
    """Ones in the valid frames, (B, N, 1) float32; None where all frames are valid."""
    if lens_B is None:
        return None
    n = torch.arange(frames, device=lens_B.device)
    return (n[None, :] < lens_B[:, None])[:, :, None].float()


def masked(x_BND: torch.Tensor, mask_BN1: torch.Tensor | None) -> torch.Tensor:
    """Zeros beyond each item's length, as a convolution's own padding has them."""
    return x_BND if mask_BN1 is None else x_BND * mask_BN1.to(x_BND.dtype)


def overlap_add(frames_BNW: torch.Tensor, hop: int) -> torch.Tensor:
    """Sums frames laid `hop` samples apart. (B, N, W) to (B, (N - 1) * hop + W)."""
    B, N, W = frames_BNW.shape
    parts = W // hop
    blocks = frames_BNW.reshape(B, N, parts, hop)
    # block j of frame n lands in hop n + j
    shifted = [F.pad(blocks[:, :, j], (0, 0, j, parts - 1 - j)) for j in range(parts)]
    return sum(shifted).reshape(B, (N + parts - 1) * hop)  # type: ignore[union-attr]


def synthesise(
    spectrum_BNF: torch.Tensor, n_fft: int, hop: int, mask_BN1: torch.Tensor | None = None
) -> torch.Tensor:
    """The wave whose frames' spectra are nearest to these, the outer halves of frames included.

    Args:
        spectrum_BNF: complex, F = n_fft / 2 + 1.
        n_fft: window length, an even multiple of hop.
        hop: samples between frames.
        mask_BN1: ones in the frames to use, or None for all.

    Returns:
        (B, (N - 1) * hop + n_fft), zero where there are no frames.
    """
    window = table(spectrum_BNF.device, mel.window, n_fft)
    frames = torch.fft.irfft(spectrum_BNF, n=n_fft) * window
    squares = (window * window).expand(1, frames.shape[1], n_fft)
    wave = overlap_add(masked(frames, mask_BN1), hop)
    # Griffin and Lim, 1984, eq. 6: the least squares wave divides by the sum of SQUARED windows
    weight = overlap_add(squares if mask_BN1 is None else squares * mask_BN1, hop)
    return wave / weight.clamp(min=1e-8)


def analyse(wave_BS: torch.Tensor, n_fft: int, hop: int) -> torch.Tensor:
    """Complex spectra (B, N, F) of the frames of what synthesise returns."""
    parts = n_fft // hop
    blocks = wave_BS.reshape(wave_BS.shape[0], -1, hop)
    N = blocks.shape[1] - parts + 1
    frames = torch.cat([blocks[:, j : j + N] for j in range(parts)], dim=-1)
    return torch.fft.rfft(frames * table(wave_BS.device, mel.window, n_fft))


def middle(
    wave_BS: torch.Tensor, n_fft: int, hop: int, lens_B: torch.Tensor | None = None
) -> torch.Tensor:
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
    n = torch.arange(samples, device=wave_BS.device)
    return wave_BS * (n[None, :] < (lens_B[:, None] - 1) * hop)


def istft(
    real_BNF: torch.Tensor,
    imag_BNF: torch.Tensor,
    n_fft: int,
    hop: int,
    lens_B: torch.Tensor | None = None,
) -> torch.Tensor:
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
    wave = synthesise(torch.complex(real_BNF, imag_BNF), n_fft, hop, mask)
    return middle(wave, n_fft, hop, lens_B)
