"""Activations, written out. MLX's own are compiled, each by itself, and that has a price.

On a CPU the first use of one waits for a C++ compiler. And a thread that has called a compiled
function may abort the whole process when both end at once: MLX then frees in the dying thread what
belongs to Python. Where fusing pays, CompiledNetwork compiles the network with all of them.
"""

from __future__ import annotations

import math

import mlx.core as mx
from mlx import nn


class SiLU(nn.Module):
    """x sigmoid(x)."""

    def __call__(self, x: mx.array) -> mx.array:
        return x * mx.sigmoid(x)


class Mish(nn.Module):
    """x tanh(softplus(x)) (arXiv 1908.08681)."""

    def __call__(self, x: mx.array) -> mx.array:
        return x * mx.tanh(mx.logaddexp(x, 0))


class Softplus(nn.Module):
    """log(1 + exp(x))."""

    def __call__(self, x: mx.array) -> mx.array:
        return mx.logaddexp(x, 0)


class GELU(nn.Module):
    """x times the normal distribution's share below x (arXiv 1606.08415), or near it by tanh."""

    def __init__(self, approx: str = "none"):
        super().__init__()
        self._tanh = approx == "tanh"

    def __call__(self, x: mx.array) -> mx.array:
        return gelu_tanh(x) if self._tanh else gelu(x)


def gelu(x: mx.array) -> mx.array:
    """GELU by the error function."""
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: mx.array) -> mx.array:
    """GELU's approximation by tanh."""
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
