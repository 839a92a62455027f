"""Activations without compilation. MLX compiles each of its own, which has two drawbacks.

On a CPU the first use of one waits for a C++ compiler. And a thread that has called a compiled
function may abort the process if both end at once, as MLX then frees Python objects in the thread.
Where fusing pays, compiled.py compiles the whole network.
"""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
from mlx import nn

from . import cpu

NEAR = math.sqrt(2 / math.pi)  # of GELU's approximation


class SiLU(nn.Module):
    """x sigmoid(x)."""

    def __call__(self, x: mx.array) -> mx.array:
        return x * mx.sigmoid(x)


class Mish(nn.Module):
    """x tanh(softplus(x)) (arXiv 1908.08681)."""

    def __call__(self, x: mx.array) -> mx.array:
        return cpu.elementwise(fast_mish, x) if cpu.slow(x) else x * mx.tanh(mx.logaddexp(x, 0))


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
    if cpu.slow(x):
        return cpu.elementwise(fast_gelu, x)
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: mx.array) -> mx.array:
    """GELU's approximation by tanh."""
    if cpu.slow(x):
        return cpu.elementwise(fast_gelu_tanh, x)
    return 0.5 * x * (1 + mx.tanh(NEAR * (x + 0.044715 * x * x * x)))


def fast_gelu(x: np.ndarray) -> np.ndarray:
    """gelu of an array in NumPy."""
    y = cpu.erf(x * np.float32(math.sqrt(0.5)))
    y += 1
    y *= x
    y *= np.float32(0.5)
    return y


def fast_gelu_tanh(x: np.ndarray) -> np.ndarray:
    """gelu_tanh of an array in NumPy."""
    y = x * x
    y *= np.float32(0.044715 * NEAR)
    y += np.float32(NEAR)
    y *= x
    np.tanh(y, out=y)
    y += 1
    y *= x
    y *= np.float32(0.5)
    return y


def fast_mish(x: np.ndarray) -> np.ndarray:
    """Mish of an array in NumPy: tanh(log(1 + e)) is s / (s + 2), where s = e (e + 2)."""
    e = np.exp(np.minimum(x, np.float32(20)))
    s = e * (e + 2)
    return x * (s / (s + 2))
