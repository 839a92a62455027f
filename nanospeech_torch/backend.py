"""Backend: PyTorch, as load_engine finds it. Imports torch only when an engine is loaded."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nanospeech.engine.backend import Backend
from nanospeech.machine import has_gpu, processor_flags, share_cores

if TYPE_CHECKING:
    from nanospeech.config import ModelConfig
    from nanospeech.release.folder import Release

    from .engine import TorchEngine

# oneDNN keeps what it compiled for each shape, by default for 1024 of them, and texts have ever new
# lengths: ten minutes took 100 MB. With 32 speech is no slower. Read when torch is imported
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32"
FAST_BFLOAT16 = {"avx512_bf16", "amx_bf16"}
BEFORE_ONNX, AFTER_ONNX = 2, 3  # ranks; see docs/onnx.md


def on_gpu() -> bool:
    """Whether PyTorch would find a GPU, Apple's among them."""
    return has_gpu() or (sys.platform == "darwin" and platform.machine() == "arm64")


class TorchBackend(Backend):
    """PyTorch, on a CPU, CUDA or Metal."""

    name = "torch"
    install = "pip install 'nanospeech-tts[torch]'"

    def installed(self) -> bool:
        return find_spec("torch") is not None

    def rank(self) -> float:
        """Before ONNX Runtime where there is a GPU, or fast bfloat16 on the CPU; else after it."""
        return BEFORE_ONNX if on_gpu() or FAST_BFLOAT16 & processor_flags() else AFTER_ONNX

    def rank_for(self, config: ModelConfig) -> float:
        """On a CPU after ONNX Runtime for a student, whose forwards are of half the rows."""
        return AFTER_ONNX if config.student and not on_gpu() else self.rank()

    def load(
        self, release: Release, device: str | None, dtype: str | None, compile: bool | None
    ) -> TorchEngine:
        os.environ.setdefault(*KERNELS)
        share_cores()
        if release.config.echo is not None:
            from .echo.engine import TorchLatentEngine as Chosen
        else:
            from .engine import TorchEngine as Chosen

        return Chosen(release, device, dtype, compile)
