"""Layers: the building blocks in which MLX differs from PyTorch. Knows no model."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
from mlx import nn

from nanospeech.errors import InputError

from . import activations, cpu

Module = nn.Module
Linear = nn.Linear
Embedding = nn.Embedding
Dropout = nn.Dropout
ModuleList = list
SiLU = activations.SiLU
Mish = activations.Mish
GELU = activations.GELU
Softplus = activations.Softplus
Array = mx.array


class Sequential(list):
    """Layers in a row. A list, for nn.Sequential would put ".layers" into their names."""

    def __init__(self, *layers):
        super().__init__(layers)

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self:
            x = layer(x)
        return x


class Conv1d(nn.Conv1d):
    """Same-length convolution over (B, N, C), with zeros past the ends."""

    def __init__(self, dim: int, kernel_size: int, groups: int = 1, dim_out: int | None = None):
        super().__init__(dim, dim_out or dim, kernel_size, padding=kernel_size // 2, groups=groups)


class LayerNorm(nn.LayerNorm):
    """Layer norm with eps 1e-6; without scale and shift unless asked."""

    def __init__(self, dim: int, affine: bool = False):
        super().__init__(dim, eps=1e-6, affine=affine)


class RMSNorm(nn.Module):
    """Root-mean-square norm; eps is that of float32, as the published weights were trained."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = mx.ones((dim,))

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self.weight.astype(x.dtype), 1.1920929e-07)


def parameter(value: float, *shape: int) -> mx.array:
    """A learned array that starts at one value."""
    return mx.full(shape, value)


def zero_(linear: nn.Linear) -> None:
    """Starts a linear layer at zero."""
    linear.weight = mx.zeros_like(linear.weight)
    if "bias" in linear:
        linear.bias = mx.zeros_like(linear.bias)


def cast(x: mx.array, like: Any) -> mx.array:
    """x in the type of another array."""
    return x.astype(like.dtype)


def masked(x_BND: mx.array, mask_BN: mx.array | None) -> mx.array:
    """Zeros where the mask is false."""
    return x_BND if mask_BN is None else mx.where(mask_BN[..., None], x_BND, 0)


def global_norm(x_BND: mx.array) -> mx.array:
    """L2 norm over the sequence, relative to its mean over channels (ConvNeXt V2's GRN)."""
    norm_B1D = mx.sqrt(mx.square(x_BND.astype(mx.float32)).sum(axis=1, keepdims=True))
    return (norm_B1D / (norm_B1D.mean(axis=-1, keepdims=True) + 1e-6)).astype(x_BND.dtype)


def sinusoid(time_B: mx.array, dim: int, scale: float = 1000.0) -> mx.array:
    """Sine half, then cosine half, of a time in [0, 1]: float32 (B, dim)."""
    half = dim // 2
    steps = mx.arange(half, dtype=mx.float32)
    angles = time_B.astype(mx.float32)[:, None] * scale
    angles = angles * mx.exp(steps * (-math.log(10_000) / (half - 1)))
    return mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=-1)


def text_positions(length: int, dim: int, like: mx.array, count: int = 4096) -> mx.array:
    """Absolute positions of the text: cosine half, then sine half; float32 (length, dim).

    Places from `count` on have that of the last.
    """
    freqs = 10_000 ** -(mx.arange(0, dim, 2, dtype=mx.float32) / dim)
    steps = mx.minimum(mx.arange(length, dtype=mx.float32), count - 1)
    angles = steps[:, None] * freqs
    return mx.concatenate([mx.cos(angles), mx.sin(angles)], axis=-1)


def modulated(
    norm: LayerNorm, x_BND: mx.array, scale_B1D: mx.array, shift_B1D: mx.array
) -> mx.array:
    """Layer norm, then scale and shift (adaLN); one item of those serves a whole batch."""
    return norm(x_BND) * (1 + scale_B1D) + shift_B1D


def gated(x_BND: mx.array, gate_B1D: mx.array, change_BND: mx.array) -> mx.array:
    """x plus a scaled change (adaLN)."""
    return x_BND + gate_B1D * change_BND


def rotary_angles(length: int, dim_head: int, like: mx.array) -> tuple[mx.array, mx.array]:
    """Cosine and sine of the rotary angles, each float32 (length, dim_head / 2)."""
    steps = mx.arange(0, dim_head, 2, dtype=mx.float32)
    angles = mx.arange(length, dtype=mx.float32)[:, None]
    angles = angles * 10_000 ** -(steps / dim_head)
    return mx.cos(angles), mx.sin(angles)


def rotate(x_BHNE: mx.array, angles: tuple[mx.array, mx.array], heads: int) -> mx.array:
    """Rotates interleaved pairs of the first `heads` heads (RoFormer, arXiv 2104.09864)."""
    cos, sin = (a.astype(x_BHNE.dtype) for a in angles)
    turned, rest = x_BHNE[:, :heads], x_BHNE[:, heads:]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = mx.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    turned = pairs.reshape(turned.shape)
    return turned if rest.shape[1] == 0 else mx.concatenate([turned, rest], axis=1)


def seen(mask_BN: mx.array | None, like: mx.array, dim_head: int) -> mx.array | None:
    """The argument of `attention` for a mask of keys; the same for all blocks."""
    return mask_BN


def attention(
    q_BHNE: mx.array, k_BHNE: mx.array, v_BHNE: mx.array, mask_BN: mx.array | None
) -> mx.array:
    """Softmax attention; keys where the mask is false are ignored."""
    if cpu.slow(q_BHNE):
        return cpu.attention(q_BHNE, k_BHNE, v_BHNE, mask_BN)
    mask = None if mask_BN is None else mask_BN[:, None, None, :]
    scale = q_BHNE.shape[-1] ** -0.5
    return mx.fast.scaled_dot_product_attention(q_BHNE, k_BHNE, v_BHNE, scale=scale, mask=mask)


def split_heads(x_BND: mx.array, heads: int) -> mx.array:
    """(B, N, H*E) to (B, H, N, E)."""
    return x_BND.reshape(*x_BND.shape[:2], heads, -1).swapaxes(1, 2)


def merge_heads(x_BHNE: mx.array) -> mx.array:
    """(B, H, N, E) to (B, N, H*E)."""
    return x_BHNE.swapaxes(1, 2).flatten(2)


def concat(*parts: mx.array) -> mx.array:
    """Joins along the last axis."""
    return mx.concatenate(list(parts), axis=-1)


def chunks(x: mx.array, count: int) -> tuple[mx.array, ...]:
    """Splits the last axis into equal parts."""
    return tuple(x.split(count, axis=-1))


def pad_length(x_BND: mx.array, length: int, value: float = 0) -> mx.array:
    """Lengthens axis 1 to at least `length`."""
    missing = length - x_BND.shape[1]
    if missing <= 0:
        return x_BND
    shape = (x_BND.shape[0], missing, *x_BND.shape[2:])
    return mx.concatenate([x_BND, mx.full(shape, value, dtype=x_BND.dtype)], axis=1)


def length_mask(lens_B: mx.array, length: int) -> mx.array:
    """True in the first lens_B[i] of `length` positions: bool (B, length)."""
    return mx.arange(length) < lens_B[:, None]


def gather_tokens(x_BTD: mx.array, index_BN: mx.array) -> mx.array:
    """Row index_BN[b, n] of x_BTD[b] for each frame: (B, N, D)."""
    return mx.take_along_axis(x_BTD, index_BN[..., None], axis=1)


def check_tokens(text_BT: mx.array, count: int) -> None:
    """Raises InputError where an id is not of the vocabulary: a lookup would read past it."""
    if text_BT.size and int(text_BT.max()) >= count:
        raise InputError(f"token id {int(text_BT.max())}, but the vocabulary has {count} tokens")


def longer(a_B: mx.array, b_B: mx.array) -> mx.array:
    """The larger of two counts."""
    return mx.maximum(a_B, b_B)
