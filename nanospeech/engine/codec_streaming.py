"""Codec streaming: a codec's waves and latents in pieces that equal the whole.

Knows no array library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nanospeech.errors import InputError
from nanospeech.latent_architectures import CodecConfig

REACH = 3 + 9 + 27  # samples to either side that a stage's residual units see


def context(config: CodecConfig) -> int:
    """Latents to either side on which a decoded latent's samples depend; 8 for the published."""
    seen = 3  # samples after its last one that the last convolution sees; before it are no more
    for rate in reversed(config.decoder_rates):
        seen = -(-(seen + REACH + -(-rate // 2)) // rate)
    return seen + 3


def encoder_context(config: CodecConfig) -> int:
    """Latents to either side whose samples an encoded latent depends on; 6 for the published."""
    seen = 1  # of what the last convolution reads; then of each stage's input
    for rate in reversed(config.encoder_rates):
        seen = seen * rate + -(-rate // 2) + REACH
    return -(-(seen + 3) // config.hop_length)


def decode_pieces(
    decode: Callable[[np.ndarray], np.ndarray],
    latent_NC: np.ndarray,
    config: CodecConfig,
    size: int = 25,
) -> Iterator[np.ndarray]:
    """The wave of latents, `size` of them at a time.

    Args:
        decode: of (N, C) latents, the (N * hop_length,) samples.
        latent_NC: all latents.
        size: of a piece.

    Yields:
        Pieces that follow one another; together they are decode(latent_NC) but for rounding.
    """
    around, hop = context(config), config.hop_length
    for start in range(0, len(latent_NC), size):
        stop = min(start + size, len(latent_NC))
        first = max(0, start - around)
        wave = decode(latent_NC[first : stop + around])
        yield wave[(start - first) * hop : (stop - first) * hop]


def encode_pieces(
    encode: Callable[[np.ndarray], np.ndarray],
    wave: np.ndarray,
    config: CodecConfig,
    size: int,
) -> Iterator[np.ndarray]:
    """The latents of a wave of whole hops, `size` of them at a time; see decode_pieces.

    Args:
        encode: of (N * hop_length,) samples, the (N, C) latents.
    """
    around, hop = encoder_context(config), config.hop_length
    count = len(wave) // hop
    for start in range(0, count, size):
        stop = min(start + size, count)
        first = max(0, start - around)
        latents = encode(wave[first * hop : (stop + around) * hop])
        yield latents[start - first : stop - first]


def whole_hops(wave: np.ndarray, hop: int) -> np.ndarray:
    """A wave lengthened to a multiple of the hop by its reflection, as DAC-VAE reads it.

    Raises:
        InputError: not (n,), or empty.
    """
    wave = np.ascontiguousarray(wave, np.float32)
    if wave.ndim != 1 or len(wave) == 0:
        raise InputError(f"the wave has shape {wave.shape}, should be (samples,)")
    missing = -len(wave) % hop
    # reflection takes no more than there is; what is shorter than half a hop is reflected again
    while missing > 0 and len(wave) > 1:
        step = min(missing, len(wave) - 1)
        wave, missing = np.pad(wave, (0, step), mode="reflect"), missing - step
    return np.pad(wave, (0, missing), mode="edge")
