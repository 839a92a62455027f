"""Backend: the interface of a package that runs models with an array library.

To add one, write a subclass in a module that imports the library only within `load`, and name it in
the package's entry points:

    [project.entry-points."nanospeech.backends"]
    jax = "nanospeech_jax.backend:JaxBackend"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanospeech.config import ModelConfig
    from nanospeech.release.folder import Release

    from .base import Engine


class Backend(ABC):
    """One way to run a model.

    Attributes:
        name: for `backend=` and `--backend`; that of its entry point.
        install: the command that installs its library.
        dtypes: the types that `dtype` takes.
    """

    name: str
    install: str
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")

    @abstractmethod
    def installed(self) -> bool:
        """Whether the library can be imported, without importing it."""

    def rank(self) -> float:
        """Its rank among installed backends for "auto"; the lowest is chosen."""
        return 10

    def rank_for(self, config: ModelConfig) -> float:
        """Its rank where that depends on the model."""
        return self.rank()

    def suits(self, config: ModelConfig, device: str | None, dtype: str | None) -> bool:
        """Whether "auto" may choose it for a model, a device and a type; see load_engine."""
        return dtype is None or dtype in self.dtypes

    @abstractmethod
    def load(
        self, release: Release, device: str | None, dtype: str | None, compile: bool | None
    ) -> Engine:
        """An engine of an opened release; arguments and errors are those of load_engine."""
