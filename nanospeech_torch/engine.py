"""Engine: runs a release folder with PyTorch. What it computes is in nanospeech/engine/base.py."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nanospeech.engine.base import Engine
from nanospeech.errors import BackendError, InputError
from nanospeech.release.folder import DURATION, MODEL, Release
from nanospeech.release.tensors import check_tensors

from . import layers
from .compiled import CompiledNetwork
from .dit import DiT
from .duration import DurationHead, DurationTransformer
from .vocoder import Vocos

# Width of networks from which bfloat16 is faster on a CPU that has it: 14 ms a forward for 17 of
# float32 at 128, 8.4 for 7.7 at 64 (4 blocks, 400 frames, one core of an AMD EPYC).
WIDE = 128
USERS: list[int] = []  # the process that has used PyTorch here, last
log = logging.getLogger("nanospeech")


def check_process() -> None:
    """Limits a process that was forked from one that has used PyTorch to a thread.

    The other threads are not there after a fork, and it would wait for them for ever.
    """
    before, here = USERS[0] if USERS else None, os.getpid()
    if before == here:
        return
    USERS[:] = [here]
    if before is not None and torch.get_num_threads() > 1:
        log.warning(
            "process %d was forked from %d, where PyTorch was in use, whose threads it has not:"
            " it computes in one; for more, start processes with multiprocessing's method spawn",
            here,
            before,
        )
        torch.set_num_threads(1)


class TorchEngine(Engine):
    """A model in PyTorch.

    Args:
        release: an opened folder.
        device: "cpu", "cuda", "cuda:1", "mps", or None for the first there of CUDA, MPS, CPU.
        dtype: of the speech model's transformer; None is bfloat16 where the processor multiplies
            in it (float16 on older NVIDIA GPUs), but for networks so narrow that float32 is as
            fast on a CPU; else float32.
        compile: compile the network's blocks and, on CUDA, replay its launches as graphs.

    Raises:
        InputError: no such device.
        BackendError: the device is not there.
        CheckpointError: the weights do not fit the config.
    """

    backend = "torch"
    layers = layers
    compiler = CompiledNetwork

    def __init__(
        self,
        release: Release,
        device: str | None = None,
        dtype: str | None = None,
        compile: bool | None = None,
    ):
        check_process()
        super().__init__(release, pick_device(device), dtype, bool(compile))

    def load(self, name: str) -> nn.Module:
        prefix = "transformer." if name == MODEL else ""
        with weightless():
            module = self.network_of(name)
        path = self.release.path(name)
        tensors = self.release.weights(name)
        wanted = {prefix + n: tuple(t.shape) for n, t in module.state_dict().items()}
        check_tensors({n: t.shape for n, t in tensors.items()}, wanted, path)
        names = [n.removeprefix(prefix) for n in tensors]
        state = {
            n: torch.tensor(t, dtype=getattr(torch, self.type_of(name, n)), device=self.device)
            for n, t in zip(names, tensors.values())
        }
        module.load_state_dict(state, strict=True, assign=True)
        return module.eval()

    def network_of(self, name: str) -> nn.Module:
        """MODEL, DURATION or VOCODER without weights."""
        c = self.config
        if name == MODEL:
            return DiT(c.dit)
        if name == DURATION:
            return DurationHead(DurationTransformer(c.duration))
        assert c.vocoder is not None
        return Vocos(c.vocoder)

    def usual_dtype(self, device: str) -> str:
        if device.startswith("cuda"):
            return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        width = self.config.echo.dim if self.config.echo else self.config.dit.dim
        halves = device == "cpu" and width >= WIDE and has_bfloat16()
        return "bfloat16" if halves else "float32"

    def context(self) -> Any:
        check_process()
        return torch.inference_mode()

    def array(self, x: np.ndarray) -> Tensor:
        # PyTorch warns of arrays that are read-only, as those of a mapped file: "W" copies them
        return torch.from_numpy(np.require(x, requirements=["C", "W", "E"])).to(self.device)

    def numpy(self, x: Tensor) -> np.ndarray:
        return x.float().cpu().numpy()

    def concat(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b])

    def ready(self, x: Tensor) -> None:
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)

    def to_weights(self, x: Tensor) -> Tensor:
        return x.to(getattr(torch, self.dtype))

    def to_float(self, x: Tensor) -> Tensor:
        return x.float()


def has_bfloat16() -> bool:
    """Whether this processor multiplies matrices in bfloat16; elsewhere float32 is faster."""
    found = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of torch lack it
    return any(found.get(k) for k in ("avx512_bf16", "amx_bf16"))


class Unfilled(TorchFunctionMode):
    """Modules made under it do not draw their first weights, which loading replaces.

    Drawing on the device "meta" would import torch's compiler: seconds, for nothing.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@contextmanager
def weightless() -> Iterator[None]:
    """Modules made within have the shapes of their weights, without memory or values."""
    with torch.device("meta"), Unfilled():
        yield


def pick_device(name: str | None) -> str:
    """The device to run on.

    Raises:
        InputError: not a device's name.
        BackendError: not there.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name is None or name == "auto":
        return "cuda" if cuda else "mps" if mps else "cpu"
    try:
        device = torch.device("cuda" if name == "gpu" else name)
    except RuntimeError as e:
        raise InputError(f"device {name!r} not known; choose from cpu, cuda, cuda:N, mps") from e
    if device.type == "cpu" or (device.type == "mps" and mps):
        return str(device)
    if device.type == "cuda" and cuda and (device.index or 0) < torch.cuda.device_count():
        return str(device)
    found = ", ".join(["cpu"] + ["cuda"] * cuda + ["mps"] * mps)
    raise BackendError(f"device {name!r} is not there; PyTorch finds here: {found}")
