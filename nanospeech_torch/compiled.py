"""Compiled: the speech model at few padded lengths, with compiled blocks and CUDA graphs."""

from __future__ import annotations

import threading
import types
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from nanospeech.errors import BackendError

from . import layers
from .dit import DiT

STEP = 64  # patches: lengths are filled up to a multiple of it
LIMIT = 16  # CUDA graphs; the one that was not used for longest goes


class CompiledNetwork:
    """A DiT whose blocks are compiled and whose lengths are few.

    torch.compile makes one program for all blocks and lengths (a second one where a batch is
    single), so that only the first calls wait for it. On CUDA all launches of a forward are then
    recorded, once for each batch size and padded length, and replayed as one. Padding costs up to
    STEP patches of work and never changes a valid frame.

    Args:
        dit: the network, loaded; its blocks are changed in place.
        step: patches.
        limit: CUDA graphs to keep.

    Attributes:
        graphs: CUDA graphs by batch, times, patches and type, the last used one last.
    """

    def __init__(self, dit: DiT, step: int = STEP, limit: int = LIMIT):
        self.dit, self.step, self.limit = dit, step, limit
        self.graphs: OrderedDict[tuple, Graph] = OrderedDict()
        self.lock = threading.Lock()  # a graph has one set of inputs
        blocks = list(dit.transformer_blocks)
        forward = torch.compile(type(blocks[0]).forward, dynamic=True)
        for block in blocks:
            block.forward = types.MethodType(forward, block)

    def __call__(
        self,
        x_BNM: Tensor,
        cond_BNM: Tensor,
        text_BND: Tensor,
        time_B: Tensor,
        lens_B: Tensor | None = None,
    ) -> Tensor:
        """As DiT.

        Raises:
            BackendError: what torch.compile needs beside PyTorch is not there.
        """
        batch, frames = x_BNM.shape[:2]
        patches = -(-text_BND.shape[1] // self.step) * self.step
        padded = patches * self.dit.config.patch_size
        x, cond = (layers.pad_length(a, padded) for a in (x_BNM, cond_BNM))
        text = layers.pad_length(text_BND, patches)
        lens = torch.full((batch,), frames, device=x.device) if lens_B is None else lens_B
        inputs = x, cond, text, time_B, lens
        cuda = x.device.type == "cuda"
        try:
            if not cuda:
                return self.dit(*inputs)[:, :frames]
            with self.lock:
                graph = self.graph(inputs, batch, len(time_B), patches, x.dtype)
                return graph(inputs)[:, :frames]
        except torch._dynamo.exc.TorchDynamoException as e:  # type: ignore[attr-defined]
            wanted = "Triton and a C compiler" if cuda else "a C++ compiler"
            raise BackendError(
                f"torch.compile failed, which needs {wanted}; speech is the same without:"
                f" {str(e).strip().splitlines()[0]}"
            ) from e

    def graph(self, inputs: tuple[Tensor, ...], *key) -> Graph:
        """The CUDA graph for a key of graphs."""
        self.graphs[key] = found = self.graphs.pop(key, None) or Graph(self.dit, inputs)
        if len(self.graphs) > self.limit:
            self.graphs.popitem(last=False)
        return found


class Graph:
    """What a network launches on an NVIDIA GPU for inputs of one shape, replayed as a whole.

    Args:
        network: called with the inputs; three times, so that all it does once is done.
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
            # other threads may go on with what only they use
            with torch.cuda.graph(self.recorded, capture_error_mode="thread_local"):
                self.out = network(*self.inputs)

    def __call__(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """A copy of what the network makes of these inputs."""
        for own, given in zip(self.inputs, inputs):
            own.copy_(given)
        self.recorded.replay()
        return self.out.clone()
