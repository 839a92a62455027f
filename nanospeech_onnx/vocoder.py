"""Vocoder: the Vocos decoder (arXiv 2306.00814), log mel to wave.

Its network is a graph; magnitudes, phases and the inverse transform behind it are NumPy's.
Counterpart of nanospeech_torch/vocoder.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nanospeech.config import VocoderConfig
from nanospeech.errors import InputError

from . import phase
from .graph import BATCH, TOKENS, Array, Graph
from .layers import GELU, Conv1d, LayerNorm, Linear, Module, ModuleList, parameter
from .networks import alike, checked
from .session import Place
from .stft import middle, synthesise

KERNEL = 7
MAX_MAGNITUDE = 100.0
MAX_LOG_MEL = 7.0
MAX_CHANGE = 5.0  # of a log magnitude


class ConvNeXtBlock(Module):
    """Depthwise convolution, then a two-layer perceptron on every frame, scaled by gamma."""

    def __init__(self, dim: int, intermediate_dim: int):
        super().__init__()
        self.dwconv = Conv1d(dim, KERNEL, groups=dim)
        self.norm = LayerNorm(dim, affine=True)
        self.pwconv1 = Linear(dim, intermediate_dim)
        self.act = GELU()
        self.pwconv2 = Linear(intermediate_dim, dim)
        self.gamma = parameter(0.0, dim)

    def __call__(self, x_BND: Array) -> Array:
        h = self.pwconv1(self.norm(self.dwconv(x_BND)))
        return x_BND + self.gamma * self.pwconv2(self.act(h))


class Backbone(Module):
    """Log mel (B, N, M) to features (B, N, D), with no change of rate."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        dim = config.dim
        self.embed = Conv1d(config.n_mels, KERNEL, dim_out=dim)
        self.norm = LayerNorm(dim, affine=True)
        self.convnext = ModuleList(
            ConvNeXtBlock(dim, config.intermediate_dim) for _ in range(config.num_layers)
        )
        self.final_layer_norm = LayerNorm(dim, affine=True)

    def __call__(self, mel_BNM: Array) -> Array:
        x = self.norm(self.embed(mel_BNM))
        for block in self.convnext:
            x = block(x)
        return self.final_layer_norm(x)


class Head(Module):
    """Layers from features to what waves are made of."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        self.out = Linear(config.dim, config.n_fft + 2)
        slopes = config.griffin_lim_iters
        self.delay = Linear(config.dim, config.n_fft // 2 + 1) if slopes else None


class VocosNetwork(Module):
    """The part of Vocos that has weights."""

    def __init__(self, config: VocoderConfig):
        super().__init__()
        self.config = config
        self.backbone = Backbone(config)
        self.head = Head(config)

    def graph(self) -> Graph:
        """Log mel to log magnitudes and phases, or to corrections of these, and of delays."""
        g = Graph("vocoder")
        features = self.backbone(g.input("mel", (BATCH, TOKENS, self.config.n_mels)))
        g.output("spectrum", self.head.out(features))
        if self.head.delay is not None:
            g.output("delay", self.head.delay(features))
        return g


class Vocos:
    """Log mel to wave at the mel's sample rate.

    Args:
        config: sizes; n_fft must be a multiple of hop_length.
        tensors: vocoder.safetensors.
        path: that file's.
        place: where it runs.

    Raises:
        InputError: n_fft is not an even multiple of hop_length.
        CheckpointError: the tensors are those of another config.
    """

    def __init__(
        self, config: VocoderConfig, tensors: Mapping[str, np.ndarray], path: Path, place: Place
    ):
        if config.n_fft % (2 * config.hop_length):
            raise InputError(
                f"n_fft is {config.n_fft}, should be an even multiple of hop_length"
                f" ({config.hop_length})"
            )
        self.config = config
        network = VocosNetwork(config)
        checked(network, tensors, path)
        self.session = place.session(network.graph(), tensors)

    def __call__(self, mel_BNM: np.ndarray, lens_B: np.ndarray | None = None) -> np.ndarray:
        """Synthesises a batch.

        Args:
            mel_BNM: natural log mels of nanospeech.audio.mel.
            lens_B: valid frames of each item; padding never changes a valid sample.

        Returns:
            float32 (B, (N - 1) * hop_length); item b is zero beyond (lens_B[b] - 1) * hop_length.
        """
        batch, frames, _ = mel_BNM.shape
        lens = np.full(batch, frames) if lens_B is None else lens_B
        waves = np.zeros((batch, (frames - 1) * self.config.hop_length), np.float32)
        for n, rows in alike(lens):
            waves[rows, : (n - 1) * self.config.hop_length] = self.waves(mel_BNM[rows, :n])
        return waves

    def waves(self, mel_BNM: np.ndarray) -> np.ndarray:
        """Waves of items of one length."""
        c = self.config
        if c.griffin_lim_iters:
            found, wanted = self.predict(mel_BNM), linear(mel_BNM)
            wave = phase.reconstruct(*found, wanted, c.griffin_lim_iters, c.n_fft, c.hop_length)
            return middle(wave, c.n_fft)
        (out,) = self.session(mel=mel_BNM)
        log_magnitude, angle = np.split(out, 2, axis=-1)
        if c.mel_prior:  # corrections of these
            smooth = phase.mel_pseudo_inverse(linear(mel_BNM), c.n_fft)
            magnitude = corrected(smooth, log_magnitude)
        else:
            magnitude = np.exp(np.minimum(log_magnitude, np.log(np.float32(MAX_MAGNITUDE))))
        spectrum = np.empty(angle.shape, np.complex64)
        np.multiply(magnitude, np.cos(angle), out=spectrum.real)
        np.multiply(magnitude, np.sin(angle), out=spectrum.imag)
        return middle(synthesise(spectrum, c.n_fft, c.hop_length), c.n_fft)

    def predict(self, mel_BNM: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Magnitudes and phase derivatives, corrected by the network; with griffin_lim_iters."""
        c = self.config
        out, later = self.session(mel=mel_BNM)
        louder, faster = np.split(out, 2, axis=-1)
        wanted = linear(mel_BNM)
        smooth = phase.mel_pseudo_inverse(wanted, c.n_fft)
        frequency, group_delay = phase.slopes(smooth, c.hop_length)
        magnitude = corrected(smooth, louder)
        magnitude = magnitude * phase.mel_gain(magnitude, wanted)
        return magnitude, frequency + faster, group_delay + later


def linear(mel_BNM: np.ndarray) -> np.ndarray:
    """Magnitudes of the bands of a log mel, finite."""
    return np.exp(np.minimum(mel_BNM, np.float32(MAX_LOG_MEL)))


def corrected(smooth_BNF: np.ndarray, change_BNF: np.ndarray) -> np.ndarray:
    """Magnitudes: the mel's pseudo-inverse, its logs changed by at most MAX_CHANGE each."""
    return smooth_BNF * np.exp(np.clip(change_BNF, -MAX_CHANGE, MAX_CHANGE))
