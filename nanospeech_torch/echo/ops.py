"""Ops: what EchoDiT needs beside layers.py, in PyTorch's words. Knows no model."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospeech_torch.layers import Linear


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, computed in float32; the weight may be (H, E)."""
    if weight is None or weight.ndim == 1:
        kept = None if weight is None else weight.to(x.dtype)
        return F.rms_norm(x, x.shape[-1:], kept, eps)
    # where heads are split, the weight is of this process's
    own: Any = weight.to_local() if hasattr(weight, "to_local") else weight  # type: ignore
    return F.rms_norm(x, x.shape[-1:], None, eps) * own.to(x.dtype)


def timesteps(time_B: Tensor, dim: int) -> Tensor:
    """Cosine half, then sine half, of a thousand times the time: float32 (B, dim)."""
    half = dim // 2
    steps = torch.arange(half, device=time_B.device, dtype=torch.float32)
    # in this order: a last bit of the frequency is 1e-5 of an angle
    freqs = 1000 * torch.exp(steps * (-math.log(10_000) / half))
    angles = time_B.float()[:, None] * freqs
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def spread_angles(mask_BT: Tensor, span_B: Tensor, dim_head: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles of tokens spread evenly over so many places.

    Token i of T stands in the middle of its share, at (i + 1/2) span / T - 1/2 (LARoPE, arXiv
    2509.11084). Each is float32 (B, 1, T, dim_head / 2).
    """
    steps = torch.arange(0, dim_head, 2, device=mask_BT.device, dtype=torch.float32)
    tokens = torch.arange(mask_BT.shape[1], device=mask_BT.device, dtype=torch.float32)
    share_B1 = (span_B.float() / mask_BT.sum(1).clamp(min=1))[:, None]
    places_BT = (tokens + 0.5) * share_B1 - 0.5
    angles = places_BT[:, None, :, None] * 10_000 ** -(steps / dim_head)
    return angles.cos(), angles.sin()


def at_least(x: Tensor, value: float) -> Tensor:
    """x, or the value where x is smaller."""
    return x.clamp(min=value)


def attention(
    q_BHNE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    mask_BK: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Softmax attention of N queries to K keys; keys where the mask is false are ignored."""
    mask = None if mask_BK is None else mask_BK[:, None, None, :]
    return F.scaled_dot_product_attention(q_BHNE, k_BHKE, v_BHKE, attn_mask=mask, is_causal=causal)


def linears(x: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """Several linear layers of one input."""
    return tuple(layer(x) for layer in layers)


def join(*parts: Tensor) -> Tensor:
    """Joins (B, H, N, E) along N."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def join_rows(*parts: Tensor) -> Tensor:
    """Joins (B, N, …) along N."""
    return torch.cat(parts, dim=1)


def repeated(x: Tensor, copies: int) -> Tensor:
    """The batch several times."""
    return x if copies == 1 else torch.cat([x] * copies)


def any_or_all(mask_BN: Tensor) -> Tensor:
    """The mask, with rows that are false everywhere true: softmax needs a key."""
    return mask_BN | ~mask_BN.any(1, keepdim=True)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return F.silu(x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return x.sigmoid()


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return x.tanh()
