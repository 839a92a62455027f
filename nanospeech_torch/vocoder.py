"""Vocoder: the Vocos decoder (arXiv 2306.00814), log mel to wave.

Twin of nanospeech_mlx/vocoder.py; it is trained by scripts/train_vocoder.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from nanospeech import mel
from nanospeech.config import VocoderConfig
from nanospeech.errors import InputError

from .mel import table

KERNEL = 7
MAX_MAGNITUDE = 100.0
IGNORED = ("feature_extractor.", "head.istft.")


def sanitize(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The published tensors without the buffers that Vocos does not need (mel tables, window)."""
    return {k: v for k, v in tensors.items() if not k.startswith(IGNORED)}


def frame_mask(lens_B: torch.Tensor | None, frames: int) -> torch.Tensor | None:
    """Ones in the valid frames, (B, N, 1) float32; None where all frames are valid."""
    if lens_B is None:
        return None
    n = torch.arange(frames, device=lens_B.device)
    return (n[None, :] < lens_B[:, None])[:, :, None].float()


def masked(x_BND: torch.Tensor, mask_BN1: torch.Tensor | None) -> torch.Tensor:
    """Zeros beyond each item's length, as a convolution's own padding has them."""
    return x_BND if mask_BN1 is None else x_BND * mask_BN1.to(x_BND.dtype)


class FrameConv(nn.Conv1d):
    """A convolution over frames that keeps their number. (B, N, in) to (B, N, out)."""

    def __init__(self, dim_in: int, dim_out: int, groups: int = 1):
        super().__init__(dim_in, dim_out, KERNEL, padding=KERNEL // 2, groups=groups)

    def forward(self, x_BND: torch.Tensor) -> torch.Tensor:
        return super().forward(x_BND.mT).mT


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, then a two-layer perceptron on every frame, scaled by gamma."""

    def __init__(self, dim: int, intermediate_dim: int, layer_scale: float):
        super().__init__()
        self.dwconv = FrameConv(dim, dim, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, intermediate_dim)
        self.pwconv2 = nn.Linear(intermediate_dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), layer_scale))

    def forward(self, x_BND: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.dwconv(x_BND))
        h = self.pwconv2(F.gelu(self.pwconv1(h)))
        return x_BND + self.gamma * h


class Backbone(nn.Module):
    """Log mel (B, N, M) to features (B, N, D), with no change of rate."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        dim, layers = config.dim, config.num_layers
        self.embed = FrameConv(config.n_mels, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.convnext = nn.ModuleList(
            [ConvNeXtBlock(dim, config.intermediate_dim, 1 / layers) for _ in range(layers)]
        )
        self.final_layer_norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, mel_BNM: torch.Tensor, mask_BN1: torch.Tensor | None) -> torch.Tensor:
        x = masked(self.norm(self.embed(masked(mel_BNM, mask_BN1))), mask_BN1)
        for block in self.convnext:
            x = masked(block(x), mask_BN1)
        return self.final_layer_norm(x)


class Head(nn.Module):
    """Features (B, N, D) to the real and imaginary parts of a spectrogram, (B, N, F) each."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        self.out = nn.Linear(config.dim, config.n_fft + 2)

    def forward(self, x_BND: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_magnitude, phase = self.out(x_BND).float().chunk(2, dim=-1)
        magnitude = torch.exp(log_magnitude).clamp(max=MAX_MAGNITUDE)
        return magnitude * torch.cos(phase), magnitude * torch.sin(phase)


class Vocos(nn.Module):
    """Log mel to wave at the mel's sample rate.

    Args:
        config: sizes; n_fft must be a multiple of hop_length.

    Raises:
        InputError: n_fft is not a multiple of hop_length.
    """

    def __init__(self, config: VocoderConfig = VocoderConfig()):
        super().__init__()
        check(config)
        self.config = config
        self.backbone = Backbone(config)
        self.head = Head(config)

    def forward(self, mel_BNM: torch.Tensor, lens_B: torch.Tensor | None = None) -> torch.Tensor:
        """Synthesises a batch.

        Args:
            mel_BNM: natural log mels of nanospeech.mel.
            lens_B: valid frames of each item; padding never changes a valid sample.

        Returns:
            float32 (B, (N - 1) * hop_length); item b is zero beyond (lens_B[b] - 1) * hop_length.
        """
        mask = frame_mask(lens_B, mel_BNM.shape[1])
        real, imag = self.head(self.backbone(mel_BNM, mask))
        return istft(real, imag, self.config.n_fft, self.config.hop_length, lens_B)


def check(config: VocoderConfig) -> None:
    """Refuses sizes that the inverse transform cannot have."""
    if config.n_fft % (2 * config.hop_length):
        raise InputError(
            f"n_fft is {config.n_fft}, should be an even multiple of hop_length"
            f" ({config.hop_length})"
        )


def overlap_add(frames_BNW: torch.Tensor, hop: int) -> torch.Tensor:
    """Sums frames laid `hop` samples apart. (B, N, W) to (B, (N - 1) * hop + W)."""
    B, N, W = frames_BNW.shape
    parts = W // hop
    blocks = frames_BNW.reshape(B, N, parts, hop)
    # block j of frame n lands in hop n + j
    shifted = [F.pad(blocks[:, :, j], (0, 0, j, parts - 1 - j)) for j in range(parts)]
    return sum(shifted).reshape(B, (N + parts - 1) * hop)  # type: ignore[union-attr]


def istft(
    real_BNF: torch.Tensor,
    imag_BNF: torch.Tensor,
    n_fft: int,
    hop: int,
    lens_B: torch.Tensor | None = None,
) -> torch.Tensor:
    """Inverse of the centred short-time Fourier transform with the Hann window of nanospeech.mel.

    Args:
        real_BNF: real parts, F = n_fft / 2 + 1.
        imag_BNF: imaginary parts.
        n_fft: window length, an even multiple of hop.
        hop: samples between frames.
        lens_B: valid frames of each item; the rest are left out.

    Returns:
        (B, (N - 1) * hop), zero beyond each item's (lens_B[b] - 1) * hop.
    """
    B, N, _ = real_BNF.shape
    window = table(real_BNF.device, mel.window, n_fft)
    frames = torch.fft.irfft(torch.complex(real_BNF, imag_BNF), n=n_fft) * window
    squares = (window * window).expand(1, N, n_fft)
    mask = frame_mask(lens_B, N)
    wave = overlap_add(masked(frames, mask), hop)
    # Griffin and Lim, 1984, eq. 6: the least squares wave divides by the sum of SQUARED windows
    weight = overlap_add(squares if mask is None else squares * mask, hop)
    start, samples = n_fft // 2, (N - 1) * hop
    wave = wave[:, start : start + samples] / weight[:, start : start + samples].clamp(min=1e-8)
    if lens_B is None:
        return wave
    n = torch.arange(samples, device=wave.device)
    return wave * (n[None, :] < (lens_B[:, None] - 1) * hop)
