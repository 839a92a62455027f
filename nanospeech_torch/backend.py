"""Backend: PyTorch, as load_engine finds it. Imports torch only when an engine is loaded."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nanospeech.engine.backend import Backend
from nanospeech.machine import share_cores

if TYPE_CHECKING:
    from nanospeech.release.folder import Release

    from .engine import TorchEngine

# oneDNN keeps what it compiled for each shape, by default for 1024 of them, and texts have ever new
# lengths: ten minutes took 100 MB. With 32 speech is no slower. Read when torch is imported
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32"


class TorchBackend(Backend):
    """PyTorch, on a CPU, CUDA or Metal."""

    name = "torch"
    install = "pip install 'nanospeech-tts[torch]'"

    def installed(self) -> bool:
        return find_spec("torch") is not None

    def rank(self) -> float:
        return 2

    def load(
        self, release: Release, device: str | None, dtype: str | None, compile: bool | None
    ) -> TorchEngine:
        os.environ.setdefault(*KERNELS)
        share_cores()
        from .engine import TorchEngine

        return TorchEngine(release, device, dtype, compile)
