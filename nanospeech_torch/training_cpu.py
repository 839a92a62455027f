"""Training on the CPU: attention written out, a few heads at a time, and dropout. Torch only.

The library's fused attention computes the scores again in backward, which on some processors takes
three times as long; plain autograd moves the (N, K) scores through memory about twice as often.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.errors import InputError

ROOM = 4 * 2**20  # bytes of scores worked on at a time, so that they stay in the processor's cache


class AttentionOnCPU(torch.autograd.Function):
    """softmax(q k^T / sqrt(E) + bias) v over (H, N, E), H heads of all items; all of one type.

    The bias is (H, N, K), or (H, 1, K) of all queries alike.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        H, N, E = q.shape
        weights, out = q.new_empty(H, N, k.shape[1]), torch.empty_like(q)
        for few in some(weights):
            scores = weights[few]
            torch.baddbmm(bias[few], q[few], k[few].mT, alpha=E**-0.5, out=scores)
            torch.softmax(scores, -1, out=scores)  # row by row: in place is safe
            torch.bmm(scores, v[few], out=out[few])
        ctx.save_for_backward(q, k, v, weights)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, weights = ctx.saved_tensors
        grad = grad.contiguous()
        dq, dk, dv = (torch.empty_like(t) for t in (q, k, v))
        room = torch.empty_like(weights[some(weights)[0]])
        for few in some(weights):
            w = weights[few]
            ds = room[: len(w)]
            torch.bmm(w.mT, grad[few], out=dv[few])
            torch.bmm(grad[few], v[few].mT, out=ds)
            # ds = w * (ds - sum(ds * w)), row by row, in place
            torch.ops.aten._softmax_backward_data.out(ds, w, -1, ds.dtype, grad_input=ds)
            torch.bmm(ds, k[few], out=dq[few])
            torch.bmm(ds.mT, q[few], out=dk[few])
        scale = q.shape[-1] ** -0.5
        return dq.mul_(scale), dk.mul_(scale), dv, None


def some(weights_HNK: Tensor) -> list[slice]:
    """The heads, a few at a time."""
    heads = len(weights_HNK)
    step = max(1, ROOM // max(1, weights_HNK[0].nbytes))
    return [slice(i, i + step) for i in range(0, heads, step)]


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention over (B, H, N, E) in the type of autocast, or of v; see layers.attention.

    Args:
        mask: (B, K), true where a key is seen; or (B, H, N, K), what is added to the scores.
    """
    B, H, N, E = q.shape
    K = k.shape[2]
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else v.dtype
    if mask is not None and mask.ndim == 4:
        bias = mask.to(kind).reshape(B * H, N, K)
    else:
        bias = torch.zeros(B, K, dtype=kind)
        if mask is not None:
            bias.masked_fill_(~mask, torch.finfo(kind).min / 2)
        bias = bias[:, None, None].expand(B, H, 1, K).reshape(B * H, 1, K)
    q, k, v = (t.to(kind).reshape(B * H, -1, E) for t in (q, k, v))
    return AttentionOnCPU.apply(q, k, v, bias).view(B, H, N, E)  # type: ignore[union-attr]


class DropoutOnCPU(torch.autograd.Function):
    """Dropout whose chance is a multiple of 2^-16: 16 random bits an element are enough."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = round((1 - p) * 2**16)
        mask = draws.view(torch.int16)[: x.numel()].view(x.shape) < kept - 2**15
        ctx.save_for_backward(mask)
        ctx.scale = 2**16 / kept
        return torch.ops.aten.native_dropout_backward(x, mask, ctx.scale)  # x * mask * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (mask,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(grad, mask, ctx.scale), None


class Dropout(nn.Dropout):
    """Dropout; on the CPU with four draws from each random number, which are dear there."""

    def forward(self, x: Tensor) -> Tensor:
        dear = x.device.type == "cpu" and self.training and 0 < self.p < 1
        if not dear or torch.compiler.is_compiling():
            return super().forward(x)
        return DropoutOnCPU.apply(x, self.p)  # type: ignore[return-value]


def set_threads(threads: int) -> None:
    """Has torch compute in as many threads as --threads says.

    Raises:
        InputError: it is below 1.
    """
    if threads < 1:
        raise InputError(f"--threads is {threads}; choose at least 1")
    torch.set_num_threads(threads)
