"""Backend: what a package tells of the array library that its engine computes with.

To add one, write a subclass in a module that imports the library only within `load`, and name it in
the package's entry points:

    [project.entry-points."nanospeech.backends"]
    jax = "nanospeech_jax.backend:JaxBackend"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanospeech.release.folder import Release

    from .base import Engine


class Backend(ABC):
    """One way to run a model.

    Attributes:
        name: by which it is asked for; its entry point's.
        install: the command that installs its library.
    """

    name: str
    install: str

    @abstractmethod
    def installed(self) -> bool:
        """Whether the library can be imported, without importing it."""

    def rank(self) -> float:
        """Its place among the installed ones where none is asked for; the lowest is taken."""
        return 10

    @abstractmethod
    def load(
        self, release: Release, device: str | None, dtype: str | None, compile: bool | None
    ) -> Engine:
        """An engine of an opened release; arguments and errors are those of load_engine."""
