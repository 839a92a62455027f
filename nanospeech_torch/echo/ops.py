"""Ops: what EchoDiT needs beside layers.py, in PyTorch's words. Knows no model."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospeech_torch import training_cpu
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


def durations(log_BT: Tensor | None, mask_BT: Tensor) -> Tensor:
    """How long each token lasts, float32 (B, T): of its log, or one; zero where nothing is read."""
    if log_BT is None:
        return mask_BT.float()
    return log_BT.float().clamp(max=7).exp().masked_fill(~mask_BT, 0)


def middles(durations_BT: Tensor, span_B: Tensor) -> Tensor:
    """Where each token is spoken: the middle of its share of so many places, float32 (B, T).

    Token i of T that last equally long is at (i + 1/2) span / T - 1/2 (LARoPE, arXiv 2509.11084).
    """
    lasts_BT = durations_BT.float()
    total_B1 = lasts_BT.sum(1, keepdim=True)
    share_B1 = span_B.float()[:, None] / (total_B1 + (total_B1 == 0))
    return (lasts_BT.cumsum(1) - lasts_BT / 2) * share_B1 - 0.5


def place_angles(places_BT: Tensor, dim_head: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles of places, each float32 (B, 1, T, dim_head / 2)."""
    steps = torch.arange(0, dim_head, 2, device=places_BT.device, dtype=torch.float32)
    angles = places_BT[:, None, :, None] * 10_000 ** -(steps / dim_head)
    return angles.cos(), angles.sin()


def window(
    mask_BK: Tensor,
    places_BT: Tensor,
    count: int,
    heads: int,
    windowed: int,
    width: float,
    like: Tensor,
) -> Tensor:
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
    at_N1 = torch.arange(count, device=places_BT.device, dtype=torch.float32)[:, None]
    seen_B11 = mask_BK[:, :count].sum(1)[:, None, None]
    near_BNT = seen_B11.log() - ((at_N1 - places_BT[:, None]) / width).square() / 2
    after = mask_BK.shape[1] - count - places_BT.shape[1]
    near_B1NK = F.pad(near_BNT, (count, after))[:, None]
    first_H11 = torch.arange(heads, device=places_BT.device)[:, None, None] < windowed
    added_BHNK = (near_B1NK * first_H11).masked_fill(~mask_BK[:, None, None], -torch.inf)
    return added_BHNK.to(like.dtype)


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
    """Softmax attention of N queries to K keys; keys where the mask is false are ignored.

    Or the mask is what `window` makes.
    """
    lower = q_BHNE.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    if lower and torch.is_grad_enabled() and not causal and not torch.compiler.is_compiling():
        # the fused one takes twice as long there
        return training_cpu.attention(q_BHNE, k_BHKE, v_BHKE, mask_BK)
    mask = mask_BK[:, None, None, :] if mask_BK is not None and mask_BK.ndim == 2 else mask_BK
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
