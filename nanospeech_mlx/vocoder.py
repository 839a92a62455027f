"""Vocoder: the Vocos decoder (arXiv 2306.00814), log mel to wave.

Twin of nanospeech_torch/vocoder.py; it is trained by nanospeech train vocoder.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from nanospeech.config import VocoderConfig
from nanospeech.errors import InputError

from . import layers, phase
from .activations import gelu
from .stft import frame_mask, istft, masked, middle

KERNEL = 7
MAX_MAGNITUDE = 100.0
MAX_LOG_MEL = 7.0
MAX_CHANGE = 5.0  # of a log magnitude
IGNORED = ("feature_extractor.", "head.istft.")


def sanitize(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """The published tensors without the buffers that Vocos does not need (mel tables, window)."""
    # convolutions become MLX's (out, kernel, in); those that are so already stay
    kept = {k: v for k, v in tensors.items() if not k.startswith(IGNORED)}
    return {
        k: v.swapaxes(1, 2) if v.ndim == 3 and v.shape[1] != KERNEL else v for k, v in kept.items()
    }


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, then a two-layer perceptron on every frame, scaled by gamma."""

    def __init__(self, dim: int, intermediate_dim: int, layer_scale: float):
        super().__init__()
        self.dwconv = layers.Conv1d(dim, KERNEL, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, intermediate_dim)
        self.pwconv2 = nn.Linear(intermediate_dim, dim)
        self.gamma = mx.full((dim,), layer_scale)

    def __call__(self, x_BND: mx.array) -> mx.array:
        h = self.norm(self.dwconv(x_BND))
        h = self.pwconv2(gelu(self.pwconv1(h)))
        return layers.gated(x_BND, self.gamma, h)


class Backbone(nn.Module):
    """Log mel (B, N, M) to features (B, N, D), with no change of rate."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        dim, depth = config.dim, config.num_layers
        self.embed = layers.Conv1d(config.n_mels, KERNEL, dim_out=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.convnext = [
            ConvNeXtBlock(dim, config.intermediate_dim, 1 / depth) for _ in range(depth)
        ]
        self.final_layer_norm = nn.LayerNorm(dim, eps=1e-6)

    def __call__(self, mel_BNM: mx.array, mask_BN1: mx.array | None) -> mx.array:
        x = masked(self.norm(self.embed(masked(mel_BNM, mask_BN1))), mask_BN1)
        for block in self.convnext:
            x = masked(block(x), mask_BN1)
        return self.final_layer_norm(x)


class Head(nn.Module):
    """Features (B, N, D) and the mel to real and imaginary parts of a spectrogram, (B, N, F) each.

    With mel_prior its magnitudes are corrections of phase.mel_pseudo_inverse.
    """

    def __init__(self, config: VocoderConfig):
        super().__init__()
        self.n_fft, self.mel_prior = config.n_fft, config.mel_prior
        self.out = nn.Linear(config.dim, config.n_fft + 2)

    def __call__(self, x_BND: mx.array, mel_BNM: mx.array) -> tuple[mx.array, mx.array]:
        log_magnitude, angle = self.out(x_BND).astype(mx.float32).split(2, axis=-1)
        if self.mel_prior:
            smooth = phase.mel_pseudo_inverse(linear(mel_BNM), self.n_fft)
            magnitude = corrected(smooth, log_magnitude)
        else:
            magnitude = mx.minimum(mx.exp(log_magnitude), MAX_MAGNITUDE)
        return magnitude * mx.cos(angle), magnitude * mx.sin(angle)


def linear(mel_BNM: mx.array) -> mx.array:
    """Magnitudes of the bands of a log mel, float32 and finite."""
    return mx.exp(mx.minimum(mel_BNM.astype(mx.float32), MAX_LOG_MEL))


def corrected(smooth_BNF: mx.array, change_BNF: mx.array) -> mx.array:
    """Magnitudes: the mel's pseudo-inverse, its logs changed by at most MAX_CHANGE each."""
    return smooth_BNF * mx.exp(mx.clip(change_BNF, -MAX_CHANGE, MAX_CHANGE))


class SlopeHead(nn.Module):
    """Features (B, N, D) and the mel to magnitudes and derivatives of their phases, (B, N, F) each.

    It predicts corrections of what phase.mel_pseudo_inverse and phase.slopes compute; these begin
    at zero.
    """

    def __init__(self, config: VocoderConfig):
        super().__init__()
        self.hop_length = config.hop_length
        self.n_fft = config.n_fft
        self.out = nn.Linear(config.dim, config.n_fft + 2)
        self.delay = nn.Linear(config.dim, config.n_fft // 2 + 1)

    def __call__(
        self, x_BND: mx.array, mel_BNM: mx.array, mask_BN1: mx.array | None
    ) -> tuple[mx.array, mx.array, mx.array]:
        louder, faster = self.out(x_BND).astype(mx.float32).split(2, axis=-1)
        later = self.delay(x_BND).astype(mx.float32)
        wanted = linear(mel_BNM)
        smooth = phase.mel_pseudo_inverse(wanted, self.n_fft)
        frequency, group_delay = phase.slopes(smooth, self.hop_length, mask_BN1)
        magnitude = corrected(smooth, louder)
        magnitude = magnitude * phase.mel_gain(magnitude, wanted)
        return magnitude, frequency + faster, group_delay + later


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
        self.head = SlopeHead(config) if config.griffin_lim_iters else Head(config)

    def __call__(self, mel_BNM: mx.array, lens_B: mx.array | None = None) -> mx.array:
        """Synthesises a batch.

        Args:
            mel_BNM: natural log mels of nanospeech.audio.mel.
            lens_B: valid frames of each item; padding never changes a valid sample.

        Returns:
            float32 (B, (N - 1) * hop_length); item b is zero beyond (lens_B[b] - 1) * hop_length.
        """
        c, mask = self.config, frame_mask(lens_B, mel_BNM.shape[1])
        if isinstance(self.head, SlopeHead):
            found = self.predict(mel_BNM, mask)
            wave = phase.reconstruct(
                *found, linear(mel_BNM), c.griffin_lim_iters, c.n_fft, c.hop_length, mask
            )
            return middle(wave, c.n_fft, c.hop_length, lens_B)
        real, imag = self.head(self.backbone(mel_BNM, mask), mel_BNM)
        return istft(real, imag, c.n_fft, c.hop_length, lens_B)

    def predict(
        self, mel_BNM: mx.array, mask_BN1: mx.array | None = None
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Magnitudes and phase derivatives, as SlopeHead gives them; needs griffin_lim_iters."""
        assert isinstance(self.head, SlopeHead), (
            "only a vocoder with griffin_lim_iters predicts phase derivatives"
        )
        return self.head(self.backbone(mel_BNM, mask_BN1), mel_BNM, mask_BN1)


def check(config: VocoderConfig) -> None:
    """Refuses sizes that the inverse transform cannot have."""
    if config.n_fft % (2 * config.hop_length):
        raise InputError(
            f"n_fft is {config.n_fft}, should be an even multiple of hop_length"
            f" ({config.hop_length})"
        )
