"""Backend: ONNX Runtime, as load_engine finds it. Imports it only when an engine is loaded."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nanospeech.engine.backend import Backend
from nanospeech.errors import BackendError

if TYPE_CHECKING:
    from nanospeech.config import ModelConfig
    from nanospeech.release.folder import Release

    from .engine import OnnxEngine

log = logging.getLogger("nanospeech")


class OnnxBackend(Backend):
    """ONNX Runtime, on a CPU or on another of its execution providers."""

    name = "onnx"
    install = "pip install onnxruntime"
    dtypes = ("float32", "int8")

    def installed(self) -> bool:
        return find_spec("onnxruntime") is not None

    def rank(self) -> float:
        """Between PyTorch where that is fast and where it is not; see docs/onnx.md."""
        return 2.5

    def suits(self, config: ModelConfig, device: str | None, dtype: str | None) -> bool:
        """Not for EchoDiT; and where another device than the CPU is named, another is meant."""
        here = config.echo is None and device in (None, "auto", "cpu")
        return here and super().suits(config, device, dtype)

    def load(
        self, release: Release, device: str | None, dtype: str | None, compile: bool | None
    ) -> OnnxEngine:
        """An engine; graphs are optimised when they are loaded, whatever `compile` says."""
        if release.config.echo is not None:
            raise BackendError(
                f"the model in {release.folder} is an EchoDiT, for which there are no graphs; take"
                " another backend, pip install 'nanospeech-tts[torch]'"
            )
        if compile:
            log.warning("compile changes nothing here: ONNX Runtime optimises any graph on load")
        from .engine import OnnxEngine

        return OnnxEngine(release, device, dtype)
