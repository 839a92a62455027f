"""Convolutions: the codec's layers in MLX's words, on (B, N, C). Knows no model."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn


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
        # (in, kernel, out): what the engine makes of a folder's (in, out, kernel)
        self.weight = mx.random.normal((dim, 2 * rate, out)) * dim**-0.5
        self.bias = mx.zeros((out,))

    def __call__(self, x: mx.array) -> mx.array:
        weight, rate = self.weight.transpose(2, 1, 0), self.rate
        # all of it, then cut: as long as PyTorch's with output_padding
        whole = mx.conv_transpose1d(x, weight, rate) + self.bias
        start = -(-rate // 2)
        return whole[:, start : start + x.shape[1] * rate]


class Snake(nn.Module):
    """x + sin^2(a x) / a, with an a for each channel (arXiv 2006.08195)."""

    def __init__(self, dim: int):
        super().__init__()
        self.alpha = mx.ones((dim,))

    def __call__(self, x: mx.array) -> mx.array:
        return x + mx.square(mx.sin(self.alpha * x)) / (self.alpha + 1e-9)


def inner(x_BNC: mx.array) -> mx.array:
    """(B, N, C) in the layout of these layers."""
    return x_BNC


def outer(x: mx.array) -> mx.array:
    """The layout of these layers as (B, N, C)."""
    return x


def tanh(x: mx.array) -> mx.array:
    """Hyperbolic tangent."""
    return mx.tanh(x)
