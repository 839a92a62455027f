"""Ops: what EchoDiT needs beside layers.py, in MLX's words. Knows no model."""

from __future__ import annotations

import math

import mlx.core as mx

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


def durations(log_BT: mx.array | None, mask_BT: mx.array) -> mx.array:
    """How long each token lasts, float32 (B, T): of its log, or one; zero where nothing is read."""
    if log_BT is None:
        return mask_BT.astype(mx.float32)
    lasts_BT = mx.exp(mx.minimum(log_BT.astype(mx.float32), 7))
    return mx.where(mask_BT, lasts_BT, 0)


def middles(durations_BT: mx.array, span_B: mx.array) -> mx.array:
    """Where each token is spoken: the middle of its share of so many places, float32 (B, T).

    Token i of T that last equally long is at (i + 1/2) span / T - 1/2 (LARoPE, arXiv 2509.11084).
    """
    lasts_BT = durations_BT.astype(mx.float32)
    total_B1 = lasts_BT.sum(1, keepdims=True)
    share_B1 = span_B.astype(mx.float32)[:, None] / (total_B1 + (total_B1 == 0))
    return (lasts_BT.cumsum(1) - lasts_BT / 2) * share_B1 - 0.5


def place_angles(places_BT: mx.array, dim_head: int) -> tuple[mx.array, mx.array]:
    """Cosine and sine of the rotary angles of places, each float32 (B, 1, T, dim_head / 2)."""
    steps = mx.arange(0, dim_head, 2, dtype=mx.float32)
    angles = places_BT[:, None, :, None] * 10_000 ** -(steps / dim_head)
    return mx.cos(angles), mx.sin(angles)


def window(
    mask_BK: mx.array,
    places_BT: mx.array,
    count: int,
    heads: int,
    windowed: int,
    width: float,
    like: mx.array,
) -> mx.array:
    """What is added to the scores of each head: (B, H, N, K), in the type of another array.

    Keys that are not seen have -inf. In the first heads a token's has log L - (n - place)^2 / (2
    width^2) at query n, so that at its place it weighs as much as all L latents that are seen.

    Args:
        mask_BK: keys that are seen: those of N latents, of T tokens, and others.
        places_BT: where the tokens are spoken.
        count: N.
        heads: H.
        windowed: how many of them have the window.
        width: its standard deviation.
    """
    at_N1 = mx.arange(count, dtype=mx.float32)[:, None]
    seen_B11 = mask_BK[:, :count].sum(1)[:, None, None]
    near_BNT = mx.log(seen_B11) - mx.square((at_N1 - places_BT[:, None]) / width) / 2
    after = mask_BK.shape[1] - count - places_BT.shape[1]
    near_B1NK = mx.pad(near_BNT, [(0, 0), (0, 0), (count, after)])[:, None]
    first_H11 = mx.arange(heads)[:, None, None] < windowed
    added_BHNK = mx.where(mask_BK[:, None, None], near_B1NK * first_H11, -mx.inf)
    return added_BHNK.astype(like.dtype)


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
    """Softmax attention of N queries to K keys; keys where the mask is false are ignored.

    Or the mask is what `window` makes.
    """
    mask = mask_BK[:, None, None, :] if mask_BK is not None and mask_BK.ndim == 2 else mask_BK
    mask = "causal" if causal else mask
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
    return x * mx.sigmoid(x)  # MLX's own is compiled, see activations.py


def sigmoid(x: mx.array) -> mx.array:
    """1 / (1 + exp(-x))."""
    return mx.sigmoid(x)


def tanh(x: mx.array) -> mx.array:
    """Hyperbolic tangent."""
    return mx.tanh(x)
