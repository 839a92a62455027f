"""Backend: picks PyTorch or MLX and loads an engine. The only file that knows both."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

from nanospeech.engine.base import DTYPES, Engine
from nanospeech.release.folder import Release, open_release

from .blas import advise_fast_blas, prefer_fast_blas
from .errors import BackendError, InputError
from .machine import share_cores

BACKENDS = ("auto", "torch", "mlx")
# oneDNN keeps what it compiled for each shape, by default for 1024 of them, and texts have ever new
# lengths: ten minutes took 100 MB. With 32 speech is no slower. Read when torch is imported
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32"

__all__ = ["BACKENDS", "Engine", "installed", "load_engine", "pick_backend"]


def installed(name: str) -> bool:
    """Whether a backend's package can be imported, without importing it."""
    return find_spec("mlx.core" if name == "mlx" and find_spec("mlx") else name) is not None


def pick_backend(backend: str = "auto") -> str:
    """The name of the backend to use.

    Args:
        backend: "torch", "mlx", or "auto": MLX on Apple silicon where it is installed, else
            PyTorch, else MLX.

    Raises:
        InputError: another name.
        BackendError: not installed; the message has the pip command.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend {backend!r} not known; choose from {', '.join(BACKENDS)}")
    if backend == "auto":
        apple = sys.platform == "darwin" and platform.machine() == "arm64"
        order = ("mlx", "torch") if apple else ("torch", "mlx")
        found = [name for name in order if installed(name)]
        if not found:
            raise BackendError(
                f"no backend is installed; run: pip install 'nanospeech-tts[{order[0]}]'"
            )
        return found[0]
    if not installed(backend):
        raise BackendError(
            f"the {backend} backend is not installed; run: pip install 'nanospeech-tts[{backend}]'"
        )
    return backend


def load_engine(
    folder_or_repo: str | Path | None = None,
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    quantize: int | None = None,
    compile: bool | None = None,
) -> Engine:
    """Loads a model into one of the backends.

    Args:
        folder_or_repo: a release folder, a Hub name, or None for the voice that is shipped.
        backend: "auto", "torch" or "mlx".
        device: torch: "cpu", "cuda", "cuda:1", "mps"; mlx: "cpu", "gpu". None takes a GPU if any.
        dtype: of the speech model's transformer: "float32", "float16" or "bfloat16". None is
            float32 in MLX, and in PyTorch what the processor multiplies fastest in. MLX warns
            where another is asked for on a CPU: it is ten times slower there.
        quantize: round the speech model's weights to 4 or 8 bits. MLX on a GPU computes with
            them packed; elsewhere it only sounds alike. See python -m convert --quantize.
        compile: compile the network for a few lengths, to which others are filled up. MLX does so
            on a GPU where this is None; PyTorch only when asked: its compiler takes most of a
            minute at first, which long work on a CUDA GPU makes up for.

    Raises:
        InputError: no such model, backend, device, type or bits.
        CheckpointError: the release folder is incomplete, damaged or contradicts itself.
        BackendError: the backend or the device is not there.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} not known; choose from {', '.join(DTYPES)}")
    name = pick_backend(backend)
    release = open_release(folder_or_repo)
    if quantize is not None:
        release = release.quantize(quantize)
    return start(release, name, device, dtype, compile)


def start(
    release: Release,
    name: str,
    device: str | None = None,
    dtype: str | None = None,
    compile: bool | None = None,
) -> Engine:
    """An engine of an opened release; `name` is that of an installed backend. See load_engine."""
    if name == "torch":
        os.environ.setdefault(*KERNELS)
        share_cores()
        from nanospeech_torch.engine import TorchEngine

        return TorchEngine(release, device, dtype, compile)
    prefer_fast_blas()
    from nanospeech_mlx.engine import MlxEngine

    engine = MlxEngine(release, device, dtype, compile)
    if engine.device == "cpu":
        advise_fast_blas()
    return engine
