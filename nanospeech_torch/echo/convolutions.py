"""Convolutions: the codec's layers in PyTorch's words, on (B, C, N). Knows no model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Conv(nn.Conv1d):
    """Convolution that gives a stride-th of the length."""

    def __init__(self, dim: int, out: int, kernel: int, stride: int = 1, dilation: int = 1):
        padding = -(-stride // 2) if stride > 1 else dilation * (kernel // 2)
        super().__init__(dim, out, kernel, stride, padding, dilation)


class Transposed(nn.Module):
    """Transposed convolution that gives `rate` times the length."""

    def __init__(self, dim: int, out: int, rate: int):
        super().__init__()
        self.rate = rate
        self.weight = nn.Parameter(torch.empty(dim, out, 2 * rate))
        nn.init.normal_(self.weight, std=dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(
            x, self.weight, self.bias, self.rate, -(-self.rate // 2), self.rate % 2
        )


class Snake(nn.Module):
    """x + sin^2(a x) / a, with an a for each channel (arXiv 2006.08195)."""

    def __init__(self, dim: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        return torch.addcdiv(x, (alpha * x).sin().square(), alpha + 1e-9)


def inner(x_BNC: Tensor) -> Tensor:
    """(B, N, C) in the layout of these layers."""
    return x_BNC.transpose(1, 2)


def outer(x: Tensor) -> Tensor:
    """The layout of these layers as (B, N, C)."""
    return x.transpose(1, 2)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return x.tanh()
