"""Compiled networks: lengths filled up to few, and the graphs of these. Knows no array library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any

STEP = 64  # patches: lengths are filled up to a multiple of it
LIMIT = 16  # graphs; the one that was not used for longest goes
Array = Any  # of the backend


class FewLengths(ABC):
    """A DiT that is called with few lengths, so that few graphs serve all.

    Padding costs up to STEP patches of work and never changes a valid frame.

    Args:
        dit: the network, loaded.
        step: patches.
        limit: graphs to keep.

    Attributes:
        graphs: by a key of the backend; the last used one is last.
    """

    layers: Any  # the backend's layers module

    def __init__(self, dit: Any, step: int = STEP, limit: int = LIMIT):
        self.dit, self.step, self.limit = dit, step, limit
        self.graphs: OrderedDict[tuple, Any] = OrderedDict()

    def __call__(
        self,
        x_BNM: Array,
        cond_BNM: Array,
        text_BND: Array,
        time_B: Array,
        lens_B: Array | None = None,
    ) -> Array:
        """As DiT."""
        frames = x_BNM.shape[1]
        patches = -(-text_BND.shape[1] // self.step) * self.step
        padded = patches * self.dit.config.patch_size
        x, cond = (self.layers.pad_length(a, padded) for a in (x_BNM, cond_BNM))
        text = self.layers.pad_length(text_BND, patches)
        lens = self.whole(x_BNM) if lens_B is None else lens_B
        return self.compute(x, cond, text, time_B, lens)[:, :frames]

    def graph(self, key: tuple, *inputs: Array) -> Any:
        """The graph of a key, made where there is none."""
        self.graphs[key] = found = self.graphs.pop(key, None) or self.make(*inputs)
        if len(self.graphs) > self.limit:
            self.graphs.popitem(last=False)
        return found

    @abstractmethod
    def whole(self, x_BNM: Array) -> Array:
        """Lengths of items that are all as long as their array: integers (B,)."""

    @abstractmethod
    def make(self, *inputs: Array) -> Any:
        """A graph for inputs of such shapes."""

    @abstractmethod
    def compute(self, *inputs: Array) -> Array:
        """What DiT makes of inputs whose lengths are filled up."""
