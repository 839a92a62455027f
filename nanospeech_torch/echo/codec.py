"""Codec: DAC-VAE, waves to latents and back (facebookresearch/dacvae). Twin of the other backend's.

The published decoder puts a watermark into its audio; here that part is left out. Arrays within are
in the layout of the library's convolutions.
"""

from __future__ import annotations

from nanospeech.latent_architectures import CodecConfig

from .. import layers
from ..layers import Array
from . import convolutions as conv

DILATIONS = (1, 3, 9)


class ResidualUnit(layers.Module):
    """Snake, dilated convolution, snake, convolution; added to the input."""

    def __init__(self, dim: int, dilation: int):
        super().__init__()
        self.snake1 = conv.Snake(dim)
        self.conv1 = conv.Conv(dim, dim, 7, dilation=dilation)
        self.snake2 = conv.Snake(dim)
        self.conv2 = conv.Conv(dim, dim, 1)

    def forward(self, x: Array) -> Array:
        return x + self.conv2(self.snake2(self.conv1(self.snake1(x))))


class Down(layers.Module):
    """Residual units, then a stride to twice the width."""

    def __init__(self, dim: int, rate: int):
        super().__init__()
        self.units = layers.ModuleList([ResidualUnit(dim, d) for d in DILATIONS])
        self.snake = conv.Snake(dim)
        self.conv = conv.Conv(dim, 2 * dim, 2 * rate, stride=rate)

    def forward(self, x: Array) -> Array:
        for unit in self.units:
            x = unit(x)
        return self.conv(self.snake(x))


class Up(layers.Module):
    """A transposed stride to half the width, then residual units."""

    def __init__(self, dim: int, rate: int):
        super().__init__()
        self.snake = conv.Snake(dim)
        self.conv = conv.Transposed(dim, dim // 2, rate)
        self.units = layers.ModuleList([ResidualUnit(dim // 2, d) for d in DILATIONS])

    def forward(self, x: Array) -> Array:
        x = self.conv(self.snake(x))
        for unit in self.units:
            x = unit(x)
        return x


class Encoder(layers.Module):
    """Waves to hidden states, one for each hop."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        c, dim = config, config.encoder_dim
        self.first = conv.Conv(1, dim, 7)
        self.stages = layers.ModuleList(
            [Down(dim << i, rate) for i, rate in enumerate(c.encoder_rates)]
        )
        wide = dim << len(c.encoder_rates)
        self.snake = conv.Snake(wide)
        self.last = conv.Conv(wide, c.hidden_dim, 3)

    def forward(self, x: Array) -> Array:
        x = self.first(x)
        for stage in self.stages:
            x = stage(x)
        return self.last(self.snake(x))


class Decoder(layers.Module):
    """Hidden states to waves."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        c, dim = config, config.decoder_dim
        self.first = conv.Conv(c.hidden_dim, dim, 7)
        self.stages = layers.ModuleList(
            [Up(dim >> i, rate) for i, rate in enumerate(c.decoder_rates)]
        )
        narrow = dim >> len(c.decoder_rates)
        self.snake = conv.Snake(narrow)
        self.last = conv.Conv(narrow, 1, 7)

    def forward(self, x: Array) -> Array:
        x = self.first(x)
        for stage in self.stages:
            x = stage(x)
        return conv.tanh(self.last(self.snake(x)))


class DACVAE(layers.Module):
    """The codec; defaults of its config are the published 48 kHz one."""

    def __init__(self, config: CodecConfig = CodecConfig()):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.to_latent = conv.Conv(config.hidden_dim, 2 * config.latent_dim, 1)
        self.from_latent = conv.Conv(config.latent_dim, config.hidden_dim, 1)
        self.decoder = Decoder(config)

    def distribution(self, wave_BW: Array) -> tuple[Array, Array]:
        """Means and scales of the latents, (B, N, C) each, of N * hop_length samples.

        The standard deviation is softplus(scale) + 1e-4.
        """
        both = self.to_latent(self.encoder(conv.inner(wave_BW[:, :, None])))
        mean, scale = layers.chunks(conv.outer(both), 2)
        return mean, scale

    def encode(self, wave_BW: Array) -> Array:
        """The means of the latents, (B, N, C), of N * hop_length samples."""
        return self.distribution(wave_BW)[0]

    def decode(self, latent_BNC: Array) -> Array:
        """Waves (B, N * hop_length) in -1 to 1."""
        return conv.outer(self.decoder(self.from_latent(conv.inner(latent_BNC))))[:, :, 0]
