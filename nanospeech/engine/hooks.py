"""Hooks: what a backend adds to an engine, and the networks that it loads. Computes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.config import ModelConfig
from nanospeech.release.folder import Release

Device = Any  # an array of the backend


class Hooks(ABC):
    """The networks of a release in an array library.

    Attributes:
        release: what is loaded from.
        config: its ModelConfig.
        folder: the release folder.
        layers: the backend's module of that name.
        dit: the speech model's network.
        modules: other networks that have been loaded, by their files.
        paths: their files by name, of the network that speaks, as far as they were asked for: a
            folder may be replaced, or slow, while its model speaks.
    """

    release: Release
    config: ModelConfig
    folder: Path
    layers: Any
    dit: Any
    modules: dict[Path, Any]
    paths: dict[str, Path]

    def has(self, name: str) -> bool:
        """Whether the release has a network beside the one that samples."""
        if name not in self.paths and self.release.has(name):
            self.paths[name] = self.release.path(name)
        return name in self.paths

    def module(self, name: str) -> Any:
        """The duration model or the vocoder, loaded when it is first needed."""
        # an imitator may have a vocoder of its own
        path = self.paths.get(name) or self.release.path(name)
        if path not in self.modules:
            self.modules[path] = self.load(name)
        self.paths[name] = path
        return self.modules[path]

    @abstractmethod
    def load(self, name: str) -> Any:
        """Reads MODEL, DURATION or VOCODER of the folder into its network."""

    @abstractmethod
    def context(self) -> AbstractContextManager:
        """The context of array work: no gradients, this device."""

    @abstractmethod
    def array(self, x: np.ndarray) -> Device:
        """A NumPy array on the device, of the same type."""

    @abstractmethod
    def numpy(self, x: Device) -> np.ndarray:
        """An array of the device as float32 NumPy."""

    @abstractmethod
    def concat(self, a: Device, b: Device) -> Device:
        """Two batches as one."""

    @abstractmethod
    def ready(self, x: Device) -> None:
        """Waits until x has been computed."""

    @abstractmethod
    def to_weights(self, x: Device) -> Device:
        """Casts to the weights' type."""

    @abstractmethod
    def to_float(self, x: Device) -> Device:
        """Casts to float32."""
