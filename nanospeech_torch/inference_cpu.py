"""Inference on the CPU: the same arithmetic by faster operations. Torch only; knows no model."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LANES = 16  # rows of scores are so many numbers long or a multiple: others take twice the time
QUERIES = 192  # at a time: their scores stay in the cache


def speaks(x: Tensor) -> bool:
    """Whether this is inference on a CPU, one operation after the other."""
    there = x.device.type == "cpu" and not torch.is_grad_enabled()
    return there and not torch.compiler.is_compiling()


@functools.cache
def has_tiles() -> bool:
    """Whether the processor multiplies bfloat16 in tiles (Intel's AMX)."""
    asks = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return asks is not None and bool(asks())


def writes_attention(q_BHNE: Tensor) -> bool:
    """Whether `attention` is faster than PyTorch's own, which takes half of its time with tiles."""
    return speaks(q_BHNE) and q_BHNE.dtype == torch.bfloat16 and not has_tiles()


class GELU(nn.GELU):
    """GELU; in bfloat16 by erf: tanh takes five times as long and differs by less than rounding."""

    def forward(self, x: Tensor) -> Tensor:
        if speaks(x) and x.dtype == torch.bfloat16:
            return F.gelu(x)
        return super().forward(x)


def rms_norm(x: Tensor, shape: tuple[int, ...], weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis: a fourth of the time of PyTorch's own.

    Args:
        shape: of the last axis, as F.rms_norm has it.
    """
    here = x.float()
    length = torch.linalg.vector_norm(here, dim=-1, keepdim=True)
    length = length.square_().add_(shape[0] * eps).sqrt_()
    return (here / length).mul_(weight.float() * shape[0] ** 0.5).to(x.dtype)


def rotate(x_BHNE: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotates interleaved pairs, each a complex number: one multiplication, in float32."""
    pairs = torch.view_as_complex(x_BHNE.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.complex(*angles)).flatten(-2).to(x_BHNE.dtype)


def attention(q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Softmax attention in bfloat16, written out: half the time of PyTorch's own without tiles.

    Scores are rounded to bfloat16 before the softmax: about as far from float32 again as the rest.

    Args:
        mask_BN: True in the first positions of each row; other keys are masked.
    """
    rows, heads, length, width = q_BHNE.shape
    counts = [length] * rows if mask_BN is None else mask_BN.sum(dim=1).tolist()
    out_BNHE = q_BHNE.new_empty(rows, length, heads, width)
    room = q_BHNE.new_empty(heads * min(length, QUERIES) * -(-length // LANES) * LANES)
    q_BHNE = q_BHNE * width**-0.5
    for q, k, v, out, count in zip(q_BHNE, k_BHNE, v_BHNE, out_BNHE, counts):
        missing = -count % LANES
        k, v = (F.pad(x[:, :count], (0, 0, 0, missing)).contiguous() for x in (k, v))
        for q_HQE, out_QHE in zip(q.split(QUERIES, dim=1), out.split(QUERIES)):
            shape = heads, q_HQE.shape[1], count + missing
            scores = room[: math.prod(shape)].view(shape)
            torch.bmm(q_HQE, k.transpose(1, 2), out=scores)
            scores[..., count:] = -math.inf
            torch.softmax(scores, dim=-1, out=scores)
            out_QHE.copy_(torch.bmm(scores, v).transpose(0, 1))
    return out_BNHE.transpose(1, 2)
