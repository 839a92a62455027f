"""Compiled: the speech model at few padded lengths, with compiled blocks and CUDA graphs."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nanospeech.engine.compiled import FewLengths
from nanospeech.errors import BackendError

from . import layers
from .dit import DiT


class CompiledNetwork(FewLengths):
    """A DiT whose blocks are compiled, in place, and whose lengths are few.

    torch.compile makes one program for all blocks and lengths (a second one where a batch is
    single), so that only the first calls wait for it. On CUDA all launches of a forward are then
    recorded, once for each batch size and padded length, and replayed as one. These graphs are
    kept by batch, times, patches and type.
    """

    layers = layers

    def __init__(self, dit: DiT, *sizes: int):
        super().__init__(dit, *sizes)
        self.lock = threading.Lock()  # a graph has one set of inputs
        blocks: list[Any] = list(dit.transformer_blocks)
        forward = torch.compile(type(blocks[0]).forward, dynamic=True)
        for block in blocks:
            block.forward = types.MethodType(forward, block)

    def whole(self, x_BNM: Tensor) -> Tensor:
        batch, frames = x_BNM.shape[:2]
        return torch.full((batch,), frames, device=x_BNM.device)

    def make(self, *inputs: Tensor) -> Graph:
        return Graph(self.dit, inputs)

    def replayed(self, *inputs: Tensor) -> Tensor:
        """The output of the graph for such inputs, which is recorded at first use."""
        x, _, text, time, _ = inputs
        with self.lock:
            return self.graph((len(x), len(time), text.shape[1], x.dtype), *inputs)(inputs)

    def compute(self, *inputs: Tensor) -> Tensor:
        """As FewLengths.

        Raises:
            BackendError: what torch.compile needs beside PyTorch is not there.
        """
        cuda = inputs[0].device.type == "cuda"
        try:
            if not cuda:
                return self.dit(*inputs)
            return self.replayed(*inputs)
        except torch._dynamo.exc.TorchDynamoException as e:  # type: ignore[attr-defined]
            wanted = "Triton and a C compiler" if cuda else "a C++ compiler"
            raise BackendError(
                f"torch.compile failed, which needs {wanted}; speech is the same without:"
                f" {str(e).strip().splitlines()[0]}"
            ) from e


class Graph:
    """A CUDA graph of a network for inputs of one shape.

    Args:
        network: called with the inputs; three times first, to warm up.
        inputs: tensors on one device.
    """

    def __init__(self, network: Callable[..., Tensor], inputs: tuple[Tensor, ...]):
        self.inputs = tuple(x.clone() for x in inputs)
        self.recorded = torch.cuda.CUDAGraph()
        with torch.cuda.device(inputs[0].device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    network(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            # other threads may go on working
            with torch.cuda.graph(self.recorded, capture_error_mode="thread_local"):
                self.out = network(*self.inputs)

    def __call__(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """A copy of the network's output for these inputs."""
        for own, given in zip(self.inputs, inputs):
            own.copy_(given)
        self.recorded.replay()
        return self.out.clone()
