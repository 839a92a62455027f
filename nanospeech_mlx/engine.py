"""Engine: runs a release folder with MLX. What it computes is in nanospeech/engine/base.py."""

from __future__ import annotations

import logging
import os
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from nanospeech import blas
from nanospeech.engine.base import EXACT, Engine
from nanospeech.errors import BackendError, InputError
from nanospeech.release.folder import DURATION, MODEL, Release
from nanospeech.release.quantization import PackedWeight, stored
from nanospeech.release.tensors import check_tensors

from . import cpu, layers
from .compiled import CompiledNetwork
from .dit import DiT
from .duration import DurationHead, DurationTransformer
from .quantize import insert
from .vocoder import Vocos

log = logging.getLogger("nanospeech")
CACHE_BYTES = 512 << 20  # of freed memory that MLX may keep; its own limit is most of the machine's
USERS: list[int] = []  # the process that has used MLX


def check_process() -> None:
    """Refuses a process that was forked from one that has used MLX, as it would wait forever.

    Raises:
        BackendError: it was.
    """
    if not USERS:
        USERS.append(os.getpid())
    if USERS[0] != os.getpid():
        raise BackendError(
            f"process {os.getpid()} was forked from {USERS[0]}, where MLX was in use, whose"
            " threads it has not: load the model after the fork alone, or start"
            " processes with multiprocessing's method spawn"
        )


class MlxEngine(Engine):
    """A model in MLX.

    Threads may share it on the CPU. On a GPU one thread at a time should use it:
    nanospeech.engine.worker gives it a thread of its own.

    Args:
        release: an opened folder.
        device: "cpu", "gpu", or None for the GPU if there is one.
        dtype: of the speech model's transformer; None is float32. On a CPU, where MLX has no fast
            products for others, weights are rounded to them and computed with in float32.
        compile: compile the network for each of a few lengths; None does so on a GPU.
        packed: compute with packed weights as they are, which saves memory; else they are
            unpacked when loaded. None is True on a GPU: on a CPU floats are many times as fast.

    Raises:
        InputError: no such device.
        BackendError: the device is not there.
        CheckpointError: the weights do not fit the config.
    """

    backend = "mlx"
    layers = layers
    half_on_cpu = False  # whether a CPU computes in short types as a GPU does, ten times slower
    compiler = CompiledNetwork

    def __init__(
        self,
        release: Release,
        device: str | None = None,
        dtype: str | None = None,
        compile: bool | None = None,
        packed: bool | None = None,
    ):
        check_process()
        device = pick_device(device)
        gpu = device == "gpu"
        if not gpu and not self.half_on_cpu and dtype in ("float16", "bfloat16"):
            log.info("MLX rounds weights to %s and computes in float32 on a CPU", dtype)
            self.rounding, dtype = dtype, "float32"
        self.packed = gpu if packed is None else packed
        mx.set_cache_limit(CACHE_BYTES)
        super().__init__(release, device, dtype, gpu if compile is None else compile)

    def load(self, name: str) -> nn.Module:
        prefix = "transformer." if name == MODEL else ""
        module = self.network_of(name)
        path = self.release.path(name)
        tensors = self.release.weights(name, self.packed and name == MODEL)
        flat: Any = tree_flatten(module.parameters())
        shapes = {n: tuple(p.shape) for n, p in flat}
        wanted = {prefix + n: published(n, shape) for n, shape in shapes.items()}
        check_tensors({n: t.shape for n, t in tensors.items()}, wanted, path)
        weights = {n.removeprefix(prefix): t for n, t in tensors.items()}
        insert(module, {n: t for n, t in weights.items() if isinstance(t, PackedWeight)})
        arrays = {n: mx.array(swapped(n, t)) for n, t in stored(weights).items()}
        # codes are uint32; all else is of the network's type
        module.load_weights([(n, self.typed(a, name, n)) for n, a in arrays.items()], strict=True)
        module.eval()
        mx.eval(module.parameters())
        return module

    def typed(self, a: mx.array, part: str, name: str) -> mx.array:
        """A tensor of MODEL, DURATION or VOCODER in its type; codes stay what they are."""
        if a.dtype == mx.uint32:
            return a
        if self.rounding and part == MODEL and not name.startswith(EXACT):
            a = a.astype(getattr(mx, self.rounding))
        return a.astype(getattr(mx, self.type_of(part, name)))

    def network_of(self, name: str) -> nn.Module:
        """MODEL, DURATION or VOCODER without weights."""
        c = self.config
        if name == MODEL:
            return DiT(c.dit)
        if name == DURATION:
            return DurationHead(DurationTransformer(c.duration))
        assert c.vocoder is not None
        return Vocos(c.vocoder)

    def run(self, *inputs: Any) -> mx.array:
        if self.device != "cpu" or self.compiled:
            return super().run(*inputs)
        parts = min(len(inputs[0]), blas.threads())
        if parts == 1:
            return self.dit(*inputs)
        with blas.limited(blas.threads() // parts):
            return cpu.side_by_side(self.dit, inputs, parts)

    def context(self) -> Any:
        check_process()
        if self.device != "cpu":
            return mx.stream(mx.gpu)
        cpu.use_streams_again()
        return mx.stream(mx.cpu)

    def array(self, x: np.ndarray) -> mx.array:
        x = np.ascontiguousarray(x)
        return mx.array(x.astype(np.int32) if x.dtype == np.int64 else x)

    def numpy(self, x: mx.array) -> np.ndarray:
        return np.array(x.astype(mx.float32))

    def concat(self, a: mx.array, b: mx.array) -> mx.array:
        return mx.concatenate([a, b])

    def clear_cache(self) -> None:
        mx.clear_cache()

    def ready(self, x: mx.array) -> None:
        mx.eval(x)

    def to_weights(self, x: mx.array) -> mx.array:
        return x.astype(getattr(mx, self.dtype))

    def to_float(self, x: mx.array) -> mx.array:
        return x.astype(mx.float32)


def is_convolution(name: str, rank: int) -> bool:
    """Whether a parameter is a convolution's kernel: (out, kernel, in) in MLX."""
    return rank == 3 and name.endswith(".weight")


def published(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a parameter of MLX has in a release folder."""
    return (shape[0], shape[2], shape[1]) if is_convolution(name, len(shape)) else shape


def swapped(name: str, tensor: np.ndarray) -> np.ndarray:
    """A folder's tensor in MLX's layout: convolutions from (out, in, kernel)."""
    return tensor.swapaxes(1, 2) if is_convolution(name, tensor.ndim) else tensor


def pick_device(name: str | None) -> str:
    """The device to run on: "cpu" or "gpu".

    Raises:
        InputError: not a device's name.
        BackendError: not there.
    """
    gpu = mx.default_device().type == mx.gpu or mx.metal.is_available()
    if name is None or name == "auto":
        return "gpu" if gpu else "cpu"
    if name not in ("cpu", "gpu", "metal", "mps"):
        raise InputError(f"device {name!r} not known; MLX has cpu and gpu")
    if name != "cpu" and not gpu:
        raise BackendError(f"device {name!r} is not there; MLX finds here: cpu")
    return "cpu" if name == "cpu" else "gpu"
