"""Ops: what EchoDiT needs beside layers.py, in MLX's words. Knows no model."""

from __future__ import annotations

import math

import mlx.core as mx
from mlx import nn

from nanospeech_mlx.layers import Linear


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """Root-mean-square norm over the last axis, computed in float32; the weight may be (H, E)."""
    if weight is None or weight.ndim == 1:
        kept = None if weight is None else weight.astype(x.dtype)
        return mx.fast.rms_norm(x, kept, eps)
    return mx.fast.rms_norm(x, None, eps) * weight.astype(x.dtype)


def timesteps(time_B: mx.array, dim: int) -> mx.array:
    """Cosine half, then sine half, of a thousand times the time: float32 (B, dim)."""
    half = dim // 2
    steps = mx.arange(half, dtype=mx.float32)
    # in this order: a last bit of the frequency is 1e-5 of an angle
    freqs = 1000 * mx.exp(steps * (-math.log(10_000) / half))
    angles = time_B.astype(mx.float32)[:, None] * freqs
    return mx.concatenate([mx.cos(angles), mx.sin(angles)], axis=-1)


def spread_angles(mask_BT: mx.array, span_B: mx.array, dim_head: int) -> tuple[mx.array, mx.array]:
    """Cosine and sine of the rotary angles of tokens spread evenly over so many places.

    Token i of T stands in the middle of its share, at (i + 1/2) span / T - 1/2 (LARoPE, arXiv
    2509.11084). Each is float32 (B, 1, T, dim_head / 2).
    """
    steps = mx.arange(0, dim_head, 2, dtype=mx.float32)
    tokens = mx.arange(mask_BT.shape[1], dtype=mx.float32)
    share_B1 = (span_B.astype(mx.float32) / mx.maximum(mask_BT.sum(1), 1))[:, None]
    places_BT = (tokens + 0.5) * share_B1 - 0.5
    angles = places_BT[:, None, :, None] * 10_000 ** -(steps / dim_head)
    return mx.cos(angles), mx.sin(angles)


def at_least(x: mx.array, value: float) -> mx.array:
    """x, or the value where x is smaller."""
    return mx.maximum(x, value)


def attention(
    q_BHNE: mx.array,
    k_BHKE: mx.array,
    v_BHKE: mx.array,
    mask_BK: mx.array | None = None,
    causal: bool = False,
) -> mx.array:
    """Softmax attention of N queries to K keys; keys where the mask is false are ignored."""
    mask = "causal" if causal else None if mask_BK is None else mask_BK[:, None, None, :]
    scale = q_BHNE.shape[-1] ** -0.5
    return mx.fast.scaled_dot_product_attention(q_BHNE, k_BHKE, v_BHKE, scale=scale, mask=mask)


def linears(x: mx.array, *layers: Linear) -> tuple[mx.array, ...]:
    """Several linear layers of one input."""
    return tuple(layer(x) for layer in layers)


def join(*parts: mx.array) -> mx.array:
    """Joins (B, H, N, E) along N."""
    return parts[0] if len(parts) == 1 else mx.concatenate(list(parts), axis=2)


def join_rows(*parts: mx.array) -> mx.array:
    """Joins (B, N, …) along N."""
    return mx.concatenate(list(parts), axis=1)


def repeated(x: mx.array, copies: int) -> mx.array:
    """The batch several times."""
    return x if copies == 1 else mx.concatenate([x] * copies)


def any_or_all(mask_BN: mx.array) -> mx.array:
    """The mask, with rows that are false everywhere true: softmax needs a key."""
    return mask_BN | ~mask_BN.any(1, keepdims=True)


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x)."""
    return nn.silu(x)


def sigmoid(x: mx.array) -> mx.array:
    """1 / (1 + exp(-x))."""
    return mx.sigmoid(x)


def tanh(x: mx.array) -> mx.array:
    """Hyperbolic tangent."""
    return mx.tanh(x)
