"""Backend: MLX, as load_engine finds it. Imports MLX only when an engine is loaded."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nanospeech.blas import advise_fast_blas, prefer_fast_blas
from nanospeech.engine.backend import Backend

if TYPE_CHECKING:
    from nanospeech.release.folder import Release

    from .engine import MlxEngine


class MlxBackend(Backend):
    """MLX, on Apple silicon or a Linux CPU."""

    name = "mlx"
    install = "pip install 'nanospeech-tts[mlx]'"

    def installed(self) -> bool:
        return find_spec("mlx") is not None and find_spec("mlx.core") is not None

    def rank(self) -> float:
        """First on Apple silicon, last elsewhere."""
        return 1 if sys.platform == "darwin" and platform.machine() == "arm64" else 4

    def load(
        self, release: Release, device: str | None, dtype: str | None, compile: bool | None
    ) -> MlxEngine:
        prefer_fast_blas()
        if release.config.echo is not None:
            from .echo.engine import MlxLatentEngine as Chosen
        else:
            from .engine import MlxEngine as Chosen

        engine = Chosen(release, device, dtype, compile)
        if engine.device == "cpu":
            advise_fast_blas()
        return engine
