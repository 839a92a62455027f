"""Compiled: the speech model's network as few graphs of MLX, each for one padded length."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from nanospeech.engine.compiled import FewLengths

from . import cpu, layers


class CompiledNetwork(FewLengths):
    """A DiT, compiled once for each batch size and padded length.

    Times and lengths are arrays, since MLX would compile anew for each number. Its graphs are kept
    by batch, times, patches and type, and the oldest let go, for MLX itself forgets none.
    """

    layers = layers

    def whole(self, x_BNM: mx.array) -> mx.array:
        batch, frames = x_BNM.shape[:2]
        return mx.full((batch,), frames, dtype=mx.int32)

    def make(self, *inputs: mx.array) -> Callable[..., mx.array]:
        # a function of its own for each: MLX forgets a function's graphs when the function goes
        def network(x, cond, text, time, lens):
            with cpu.compiling():
                return self.dit(x, cond, text, time, lens)

        return mx.compile(network)

    def compute(self, *inputs: mx.array) -> mx.array:
        x, _, text, time, _ = inputs
        return self.graph((len(x), len(time), text.shape[1], x.dtype))(*inputs)
