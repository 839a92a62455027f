"""Convolutions for training on CPU, where oneDNN's grouped backward passes are slow. Torch only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class DepthwiseOnCPU(torch.autograd.Function):
    """Depthwise convolution as shifted products: oneDNN's backward is several times slower."""

    @staticmethod
    def forward(ctx, x_BND: Tensor, weight_D1K: Tensor) -> Tensor:
        ctx.save_for_backward(x_BND, weight_D1K)
        return shifted_sum(x_BND, weight_D1K[:, 0].t())

    @staticmethod
    def backward(ctx, grad_BND: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x_BND, weight_D1K = ctx.saved_tensors
        grad_x = shifted_sum(grad_BND, weight_D1K[:, 0].t().flip(0))
        kernel, length = weight_D1K.shape[2], x_BND.shape[1]
        padded = F.pad(x_BND, (0, 0, kernel // 2, kernel // 2))
        taps = [(padded[:, k : k + length] * grad_BND).sum((0, 1)) for k in range(kernel)]
        return grad_x, torch.stack(taps, 1)[:, None]


def shifted_sum(x_BND: Tensor, taps_KD: Tensor) -> Tensor:
    """Sum over k of x shifted by k - K // 2 places, times taps_KD[k]."""
    kernel, length = len(taps_KD), x_BND.shape[1]
    padded = F.pad(x_BND, (0, 0, kernel // 2, kernel // 2))
    out = padded[:, :length] * taps_KD[0]
    for k in range(1, kernel):
        out = torch.addcmul(out, padded[:, k : k + length], taps_KD[k])
    return out


class GroupedOnCPU(torch.autograd.Function):
    """Grouped convolution as one matrix product a group, for the same reason."""

    @staticmethod
    def forward(ctx, x_BND: Tensor, weight_DCK: Tensor) -> Tensor:
        groups = x_BND.shape[2] // weight_DCK.shape[1]
        windows = group_windows(x_BND, groups, weight_DCK.shape[2])
        ctx.save_for_backward(windows, weight_DCK)
        weight = weight_DCK.unflatten(0, (groups, -1)).flatten(2)  # (G, out, C * K)
        return ungroup(torch.bmm(windows, weight.transpose(1, 2)), x_BND.shape[0])

    @staticmethod
    def backward(ctx, grad_BND: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        windows, weight_DCK = ctx.saved_tensors
        groups, kernel = windows.shape[0], weight_DCK.shape[2]
        batch, length, dim = grad_BND.shape
        grouped = grad_BND.reshape(batch * length, groups, -1).permute(1, 2, 0)  # (G, out, B * N)
        grad_weight = torch.bmm(grouped, windows).reshape(weight_DCK.shape)
        flipped = weight_DCK.unflatten(0, (groups, -1)).flip(3).transpose(1, 2).flatten(2)
        grads = group_windows(grad_BND, groups, kernel)
        return ungroup(torch.bmm(grads, flipped.transpose(1, 2)), batch), grad_weight


def group_windows(x_BND: Tensor, groups: int, kernel: int) -> Tensor:
    """What each place of a grouped convolution sees: (G, B * N, C * K)."""
    padded = F.pad(x_BND, (0, 0, kernel // 2, kernel // 2)).unflatten(2, (groups, -1))
    windows = padded.permute(2, 0, 1, 3).contiguous().unfold(2, kernel, 1)  # (G, B, N, C, K)
    return windows.reshape(groups, x_BND.shape[0] * x_BND.shape[1], -1)


def ungroup(x_GPC: Tensor, batch: int) -> Tensor:
    """(G, B * N, C) to (B, N, G * C)."""
    return x_GPC.transpose(0, 1).reshape(batch, -1, x_GPC.shape[0] * x_GPC.shape[2])
