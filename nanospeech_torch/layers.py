"""Layers: the building blocks in which PyTorch differs from MLX. Knows no model."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospeech.errors import InputError

from . import inference_cpu, packed, training_cpu

Module = nn.Module
Linear = nn.Linear
Embedding = nn.Embedding
Dropout = training_cpu.Dropout
ModuleList = nn.ModuleList
Sequential = nn.Sequential
SiLU = nn.SiLU
Mish = nn.Mish
GELU = inference_cpu.GELU
Softplus = nn.Softplus
Array = Tensor


class Conv1d(nn.Conv1d):
    """Same-length convolution over (B, N, C), with zeros past the ends."""

    def __init__(self, dim: int, kernel_size: int, groups: int = 1, dim_out: int | None = None):
        super().__init__(dim, dim_out or dim, kernel_size, padding=kernel_size // 2, groups=groups)

    def forward(self, x_BND: Tensor) -> Tensor:
        if x_BND.device.type != "cpu":
            return super().forward(x_BND.transpose(1, 2)).transpose(1, 2)
        # as of a picture one pixel high with channels last, grouped convolutions take oneDNN a
        # sixth of the time, forward and backward
        weight = self.weight[:, :, None].contiguous(memory_format=torch.channels_last)
        picture_BD1N = x_BND.transpose(1, 2)[:, :, None]
        padding = (0, self.kernel_size[0] // 2)
        out = F.conv2d(picture_BD1N, weight, self.bias, padding=padding, groups=self.groups)
        return out[:, :, 0].transpose(1, 2)


class LayerNorm(nn.LayerNorm):
    """Layer norm with eps 1e-6; without scale and shift unless asked."""

    def __init__(self, dim: int, affine: bool = False):
        super().__init__(dim, eps=1e-6, elementwise_affine=affine)


class RMSNorm(nn.Module):
    """Root-mean-square norm; eps is that of float32, as the published weights were trained."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        norm = inference_cpu.rms_norm if inference_cpu.speaks(x) else F.rms_norm
        return norm(x, self.weight.shape, self.weight.to(x.dtype), 1.1920929e-07)


def parameter(value: float, *shape: int) -> nn.Parameter:
    """A learned array that starts at one value."""
    return nn.Parameter(torch.full(shape, value))


def zero_(linear: nn.Linear) -> None:
    """Starts a linear layer at zero."""
    nn.init.zeros_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def cast(x: Tensor, like: Any) -> Tensor:
    """x in the type of another array."""
    return x.to(like.dtype)


def masked(x_BND: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Zeros where the mask is false."""
    return x_BND if mask_BN is None else x_BND.masked_fill(~mask_BN[..., None], 0)


def global_norm(x_BND: Tensor) -> Tensor:
    """L2 norm over the sequence, relative to its mean over channels (ConvNeXt V2's GRN)."""
    norm_B1D = torch.linalg.vector_norm(x_BND.float(), dim=1, keepdim=True)
    return (norm_B1D / (norm_B1D.mean(dim=-1, keepdim=True) + 1e-6)).to(x_BND.dtype)


def sinusoid(time_B: Tensor, dim: int, scale: float = 1000.0) -> Tensor:
    """Sine half, then cosine half, of a time in [0, 1]: float32 (B, dim)."""
    half = dim // 2
    steps = torch.arange(half, device=time_B.device, dtype=torch.float32)
    angles = scale * time_B.float()[:, None] * torch.exp(steps * (-math.log(10_000) / (half - 1)))
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def text_positions(length: int, dim: int, like: Tensor, count: int = 4096) -> Tensor:
    """Absolute positions of the text: cosine half, then sine half; float32 (length, dim).

    Places from `count` on have that of the last.
    """
    freqs = 10_000 ** -(torch.arange(0, dim, 2, device=like.device, dtype=torch.float32) / dim)
    steps = torch.arange(length, device=like.device, dtype=torch.float32).clamp(max=count - 1)
    angles = steps[:, None] * freqs
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def modulated(norm: LayerNorm, x_BND: Tensor, scale_B1D: Tensor, shift_B1D: Tensor) -> Tensor:
    """Layer norm, then scale and shift (adaLN); one item of those serves a whole batch."""
    if len(scale_B1D) == 1 and not torch.is_grad_enabled():  # one pass instead of three
        return F.layer_norm(
            x_BND, norm.normalized_shape, 1 + scale_B1D[0, 0], shift_B1D[0, 0], norm.eps
        )
    return norm(x_BND) * (1 + scale_B1D) + shift_B1D


def gated(x_BND: Tensor, gate_B1D: Tensor, change_BND: Tensor) -> Tensor:
    """x plus a scaled change (adaLN)."""
    if not torch.is_grad_enabled():
        return torch.addcmul(x_BND, gate_B1D, change_BND)
    return x_BND + gate_B1D * change_BND


def rotary_angles(length: int, dim_head: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles, each float32 (length, dim_head / 2)."""
    steps = torch.arange(0, dim_head, 2, device=like.device, dtype=torch.float32)
    angles = torch.arange(length, device=like.device, dtype=torch.float32)[:, None]
    angles = angles * 10_000 ** -(steps / dim_head)
    return angles.cos(), angles.sin()


def rotate(x_BHNE: Tensor, angles: tuple[Tensor, Tensor], heads: int) -> Tensor:
    """Rotates interleaved pairs of the first `heads` heads (RoFormer, arXiv 2104.09864)."""
    turned, rest = x_BHNE[:, :heads], x_BHNE[:, heads:]
    if inference_cpu.speaks(x_BHNE):
        # in place: what comes here is nobody else's
        turned.copy_(inference_cpu.rotate(turned, angles))
        return x_BHNE
    cos, sin = (a.to(x_BHNE.dtype) for a in angles)
    even, odd = turned[..., 0::2], turned[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    return turned if rest.shape[1] == 0 else torch.cat([turned, rest], dim=1)


def seen(mask_BN: Tensor | None, like: Tensor, dim_head: int) -> Tensor | None:
    """The argument of `attention` for a mask of keys; the same for all blocks."""
    if mask_BN is None or not packed.usable(like, dim_head):
        return mask_BN
    return packed.segments(mask_BN)


def attention(q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Softmax attention; keys where the mask is false are ignored."""
    if mask_BN is not None and mask_BN.dtype == torch.int32:  # segments, as `seen` makes them
        return packed.attention(q_BHNE, k_BHNE, v_BHNE, mask_BN)
    if inference_cpu.writes_attention(q_BHNE):
        return inference_cpu.attention(q_BHNE, k_BHNE, v_BHNE, mask_BN)
    mask = None if mask_BN is None else mask_BN[:, None, None, :]
    if q_BHNE.device.type == "cpu" and torch.is_grad_enabled():
        if not torch.compiler.is_compiling():
            return training_cpu.attention(q_BHNE, k_BHNE, v_BHNE, mask_BN)
        scores = q_BHNE @ k_BHNE.transpose(-1, -2) * q_BHNE.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1).to(v_BHNE.dtype) @ v_BHNE
    return F.scaled_dot_product_attention(q_BHNE, k_BHNE, v_BHNE, attn_mask=mask)


def split_heads(x_BND: Tensor, heads: int) -> Tensor:
    """(B, N, H*E) to (B, H, N, E)."""
    return x_BND.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x_BHNE: Tensor) -> Tensor:
    """(B, H, N, E) to (B, N, H*E)."""
    return x_BHNE.transpose(1, 2).flatten(2)


def concat(*parts: Tensor) -> Tensor:
    """Joins along the last axis."""
    return torch.cat(parts, dim=-1)


def chunks(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """Splits the last axis into equal parts."""
    return x.chunk(count, dim=-1)


def pad_length(x_BND: Tensor, length: int, value: float = 0) -> Tensor:
    """Lengthens axis 1 to at least `length`."""
    missing = length - x_BND.shape[1]
    if missing <= 0:
        return x_BND
    pads = (0, 0) * (x_BND.ndim - 2) + (0, missing)
    return F.pad(x_BND, pads, value=value)


def length_mask(lens_B: Tensor, length: int) -> Tensor:
    """True in the first lens_B[i] of `length` positions: bool (B, length)."""
    return torch.arange(length, device=lens_B.device) < lens_B[:, None]


def gather_tokens(x_BTD: Tensor, index_BN: Tensor) -> Tensor:
    """Row index_BN[b, n] of x_BTD[b] for each frame: (B, N, D)."""
    return torch.gather(x_BTD, 1, index_BN[..., None].expand(-1, -1, x_BTD.shape[-1]))


def check_tokens(text_BT: Tensor, count: int) -> None:
    """Raises InputError where an id is not of the vocabulary: a lookup would read past it."""
    if text_BT.numel() and int(text_BT.max()) >= count:
        raise InputError(f"token id {int(text_BT.max())}, but the vocabulary has {count} tokens")


def longer(a_B: Tensor, b_B: Tensor) -> Tensor:
    """The larger of two counts."""
    return torch.maximum(a_B, b_B)
