"""Compiled: the speech model's network as few graphs of MLX, each for one padded length."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import mlx.core as mx

from . import cpu, layers
from .dit import DiT

STEP = 64  # patches: lengths are filled up to a multiple of it
LIMIT = 16  # graphs; the one that was not used for longest goes, for MLX itself forgets none


class CompiledNetwork:
    """A DiT, compiled once for each batch size and padded length.

    Padding costs up to STEP patches of work and never changes a valid frame. Times and lengths
    are arrays, since MLX would compile anew for each number.

    Args:
        dit: the network, loaded.
        step: patches.
        limit: graphs to keep.

    Attributes:
        graphs: compiled functions by batch, times, patches and type, the last used one last.
    """

    def __init__(self, dit: DiT, step: int = STEP, limit: int = LIMIT):
        self.dit, self.step, self.limit = dit, step, limit
        self.graphs: OrderedDict[tuple, Callable[..., mx.array]] = OrderedDict()

    def __call__(
        self,
        x_BNM: mx.array,
        cond_BNM: mx.array,
        text_BND: mx.array,
        time_B: mx.array,
        lens_B: mx.array | None = None,
    ) -> mx.array:
        """As DiT."""
        batch, frames = x_BNM.shape[:2]
        patches = -(-text_BND.shape[1] // self.step) * self.step
        padded = patches * self.dit.config.patch_size
        x, cond = (layers.pad_length(a, padded) for a in (x_BNM, cond_BNM))
        text = layers.pad_length(text_BND, patches)
        lens = mx.full((batch,), frames, dtype=mx.int32) if lens_B is None else lens_B
        graph = self.graph(batch, len(time_B), patches, x.dtype)
        return graph(x, cond, text, time_B, lens)[:, :frames]

    def graph(self, *key) -> Callable[..., mx.array]:
        """The compiled function for a key of graphs."""

        # a function of its own for each: MLX forgets a function's graphs when the function goes
        def network(x, cond, text, time, lens):
            with cpu.compiling():
                return self.dit(x, cond, text, time, lens)

        self.graphs[key] = found = self.graphs.pop(key, None) or mx.compile(network)
        if len(self.graphs) > self.limit:
            self.graphs.popitem(last=False)
        return found
