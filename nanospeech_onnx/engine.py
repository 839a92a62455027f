"""Engine: runs a release folder with ONNX Runtime. See nanospeech/engine/base.py."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from nanospeech.engine.base import Engine
from nanospeech.release.folder import DURATION, MODEL, Release

from . import layers
from .networks import Duration, Speech
from .session import Place, device_of, pick_provider, threads
from .vocoder import Vocos


class OnnxEngine(Engine):
    """A model in ONNX Runtime, whose graphs are made from the config when it is loaded.

    Threads may share it.

    Args:
        release: an opened folder.
        device: an execution provider: "cpu", "cuda", "coreml", "directml"; None is the CPU.
        dtype: "float32" (None), or "int8": linear layers of the transformer multiply in eight
            bits, their weights rounded for each output and their inputs for each place.

    Raises:
        InputError: no such device.
        BackendError: the device is not there.
        CheckpointError: the weights do not fit the config.
    """

    backend = "onnx"
    layers = layers

    def __init__(self, release: Release, device: str | None = None, dtype: str | None = None):
        provider = pick_provider(device)
        self.place = Place(provider, threads())
        super().__init__(release, device_of(provider), dtype)

    def load(self, name: str) -> Any:
        c, path = self.config, self.release.path(name)
        tensors = self.release.weights(name)
        if name == MODEL:
            return Speech(c.dit, tensors, path, self.place, self.dtype == "int8")
        if name == DURATION:
            assert c.duration is not None
            return Duration(c.duration, tensors, path, self.place)
        assert c.vocoder is not None
        return Vocos(c.vocoder, tensors, path, self.place)

    def context(self) -> AbstractContextManager:
        return nullcontext()

    def array(self, x: np.ndarray) -> np.ndarray:
        return x

    def numpy(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32, copy=False)

    def concat(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.concatenate([a, b])

    def ready(self, x: np.ndarray) -> None:
        pass

    def to_weights(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32, copy=False)

    def to_float(self, x: np.ndarray) -> np.ndarray:
        return x
