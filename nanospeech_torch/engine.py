"""Engine: runs a release folder with PyTorch. What it computes is in nanospeech/engine_base.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nanospeech.checkpoint import DURATION, MODEL, Release, check_tensors, read_tensors
from nanospeech.engine_base import Engine
from nanospeech.errors import BackendError, InputError

from . import layers
from .dit import DiT
from .duration import DurationHead, DurationTransformer
from .vocoder import Vocos


class TorchEngine(Engine):
    """A model in PyTorch.

    Args:
        release: an opened folder.
        device: "cpu", "cuda", "cuda:1", "mps", or None for the first there of CUDA, MPS, CPU.
        dtype: of the speech model's weights; None is float32.

    Raises:
        InputError: no such device.
        BackendError: the device is not there.
        CheckpointError: the weights do not fit the config.
    """

    backend = "torch"
    layers = layers

    def __init__(self, release: Release, device: str | None = None, dtype: str | None = None):
        super().__init__(release, pick_device(device), dtype)

    def load(self, name: str) -> nn.Module:
        c, prefix = self.config, ""
        with torch.device("meta"):
            if name == MODEL:
                module, prefix = DiT(c.dit), "transformer."
            elif name == DURATION:
                module = DurationHead(DurationTransformer(c.duration))
            else:
                assert c.vocoder is not None
                module = Vocos(c.vocoder)
        path = self.release.path(name)
        tensors = read_tensors(path)
        wanted = {prefix + n: tuple(t.shape) for n, t in module.state_dict().items()}
        check_tensors({n: t.shape for n, t in tensors.items()}, wanted, path)
        dtype = getattr(torch, self.dtype) if name == MODEL else torch.float32
        state = {
            n.removeprefix(prefix): torch.tensor(t, dtype=dtype, device=self.device)
            for n, t in tensors.items()
        }
        module.load_state_dict(state, strict=True, assign=True)
        return module.eval()

    def context(self) -> Any:
        return torch.inference_mode()

    def array(self, x: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)

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
