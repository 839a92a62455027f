"""Vocoder: the Vocos decoder (arXiv 2306.00814), log mel to wave.

Twin of nanospeech_torch/vocoder.py; it is trained by scripts/train_vocoder.py.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from nanospeech import mel
from nanospeech.config import VocoderConfig
from nanospeech.errors import InputError

KERNEL = 7
MAX_MAGNITUDE = 100.0
IGNORED = ("feature_extractor.", "head.istft.")


def sanitize(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """The published tensors without the buffers that Vocos does not need (mel tables, window)."""
    # convolutions become MLX's (out, kernel, in); those that are so already stay
    kept = {k: v for k, v in tensors.items() if not k.startswith(IGNORED)}
    return {
        k: v.swapaxes(1, 2) if v.ndim == 3 and v.shape[1] != KERNEL else v for k, v in kept.items()
    }


def frame_mask(lens_B: mx.array | None, frames: int) -> mx.array | None:
    """Ones in the valid frames, (B, N, 1) float32; None where all frames are valid."""
    if lens_B is None:
        return None
    n = mx.arange(frames)
    return (n[None, :] < lens_B[:, None])[:, :, None].astype(mx.float32)


def masked(x_BND: mx.array, mask_BN1: mx.array | None) -> mx.array:
    """Zeros beyond each item's length, as a convolution's own padding has them."""
    return x_BND if mask_BN1 is None else x_BND * mask_BN1.astype(x_BND.dtype)


class FrameConv(nn.Conv1d):
    """A convolution over frames that keeps their number. (B, N, in) to (B, N, out)."""

    def __init__(self, dim_in: int, dim_out: int, groups: int = 1):
        super().__init__(dim_in, dim_out, KERNEL, padding=KERNEL // 2, groups=groups)


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, then a two-layer perceptron on every frame, scaled by gamma."""

    def __init__(self, dim: int, intermediate_dim: int, layer_scale: float):
        super().__init__()
        self.dwconv = FrameConv(dim, dim, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, intermediate_dim)
        self.pwconv2 = nn.Linear(intermediate_dim, dim)
        self.gamma = mx.full((dim,), layer_scale)

    def __call__(self, x_BND: mx.array) -> mx.array:
        h = self.norm(self.dwconv(x_BND))
        h = self.pwconv2(nn.gelu(self.pwconv1(h)))
        return x_BND + self.gamma * h


class Backbone(nn.Module):
    """Log mel (B, N, M) to features (B, N, D), with no change of rate."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        dim, layers = config.dim, config.num_layers
        self.embed = FrameConv(config.n_mels, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.convnext = [
            ConvNeXtBlock(dim, config.intermediate_dim, 1 / layers) for _ in range(layers)
        ]
        self.final_layer_norm = nn.LayerNorm(dim, eps=1e-6)

    def __call__(self, mel_BNM: mx.array, mask_BN1: mx.array | None) -> mx.array:
        x = masked(self.norm(self.embed(masked(mel_BNM, mask_BN1))), mask_BN1)
        for block in self.convnext:
            x = masked(block(x), mask_BN1)
        return self.final_layer_norm(x)


class Head(nn.Module):
    """Features (B, N, D) to the real and imaginary parts of a spectrogram, (B, N, F) each."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        self.out = nn.Linear(config.dim, config.n_fft + 2)

    def __call__(self, x_BND: mx.array) -> tuple[mx.array, mx.array]:
        log_magnitude, phase = self.out(x_BND).astype(mx.float32).split(2, axis=-1)
        magnitude = mx.minimum(mx.exp(log_magnitude), MAX_MAGNITUDE)
        return magnitude * mx.cos(phase), magnitude * mx.sin(phase)


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

    def __call__(self, mel_BNM: mx.array, lens_B: mx.array | None = None) -> mx.array:
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


def overlap_add(frames_BNW: mx.array, hop: int) -> mx.array:
    """Sums frames laid `hop` samples apart. (B, N, W) to (B, (N - 1) * hop + W)."""
    B, N, W = frames_BNW.shape
    parts = W // hop
    blocks = frames_BNW.reshape(B, N, parts, hop)
    # block j of frame n lands in hop n + j
    shifted = [mx.pad(blocks[:, :, j], [(0, 0), (j, parts - 1 - j), (0, 0)]) for j in range(parts)]
    return sum(shifted).reshape(B, (N + parts - 1) * hop)  # type: ignore[union-attr]


def istft(
    real_BNF: mx.array,
    imag_BNF: mx.array,
    n_fft: int,
    hop: int,
    lens_B: mx.array | None = None,
) -> mx.array:
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
    window = mx.array(mel.window(n_fft))
    # a real wave's spectrum is real at 0 Hz and Nyquist; not every MLX backend sees to that
    imag_BNF = mx.pad(imag_BNF[:, :, 1:-1], [(0, 0), (0, 0), (1, 1)])
    frames = mx.fft.irfft(real_BNF + 1j * imag_BNF, n=n_fft) * window
    squares = mx.broadcast_to(window * window, (1, N, n_fft))
    mask = frame_mask(lens_B, N)
    wave = overlap_add(masked(frames, mask), hop)
    # Griffin and Lim, 1984, eq. 6: the least squares wave divides by the sum of SQUARED windows
    weight = overlap_add(squares if mask is None else squares * mask, hop)
    start, samples = n_fft // 2, (N - 1) * hop
    wave = wave[:, start : start + samples] / mx.maximum(weight[:, start : start + samples], 1e-8)
    if lens_B is None:
        return wave
    n = mx.arange(samples)
    return wave * (n[None, :] < (lens_B[:, None] - 1) * hop)
