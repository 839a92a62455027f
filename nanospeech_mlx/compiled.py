"""Compiled: the speech model's network as few graphs of MLX, each for one padded length."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from nanospeech.engine.compiled import FewLengths

from . import cpu, layers


class CompiledNetwork(FewLengths):
    """A DiT, compiled once for each batch size and padded length.

    Times and lengths are arrays, as MLX would compile anew for each Python number. Graphs are
    cached by batch, times, patches and type, and the oldest dropped, as MLX itself keeps all.
    """

    layers = layers

    def whole(self, x_BNM: mx.array) -> mx.array:
        batch, frames = x_BNM.shape[:2]
        return mx.full((batch,), frames, dtype=mx.int32)

    def make(self, *inputs: mx.array) -> Callable[..., mx.array]:
        dit = self.dit  # alone: with self, which has the graph, it would wait for the collector

        # a function of its own for each: MLX frees a function's graphs with the function
        def network(x, cond, text, time, lens):
            with cpu.compiling():
                return dit(x, cond, text, time, lens)

        return mx.compile(network)

    def compute(self, *inputs: mx.array) -> mx.array:
        x, _, text, time, _ = inputs
        return self.graph((len(x), len(time), text.shape[1], x.dtype))(*inputs)
