"""Load: finds a backend by its name and loads a model into it. Knows no array library."""

from __future__ import annotations

import logging
from os import PathLike
from pathlib import Path
from types import NoneType

from . import plugins
from .arguments import check_kind, whole
from .config import ModelConfig
from .engine.backend import Backend
from .engine.base import Engine
from .errors import BackendError, InputError
from .release.folder import Release, open_release

log = logging.getLogger("nanospeech")

__all__ = ["Engine", "backend_names", "installed", "load_engine", "pick_backend", "start"]


def backend_names() -> list[str]:
    """The names of all backends, whether their libraries are installed or not."""
    return plugins.names(plugins.BACKENDS)


def find_backend(name: str) -> Backend:
    """A backend by its name, which need not be installed.

    Raises:
        InputError: there is none of that name.
    """
    where = plugins.find(plugins.BACKENDS, name)
    if where is None:
        choices = ", ".join(("auto", *backend_names()))
        raise InputError(f"backend {name!r} not known; choose from {choices}")
    return plugins.load(where)()


def usable() -> dict[str, Backend]:
    """All backends by name; one of another package that fails when it is imported is left out."""
    found = {}
    for name in backend_names():
        try:
            found[name] = find_backend(name)
        except (ImportError, AttributeError) as e:
            log.warning("the backend %s cannot be used: %s", name, e)
    return found


def installed(name: str) -> bool:
    """Whether a backend's library can be imported, without importing it."""
    return find_backend(name).installed()


def ranked(config: ModelConfig) -> list[str]:
    """The installed backends, the one that "auto" prefers for a model first.

    Raises:
        BackendError: there is none.
    """
    found = sorted(usable().items(), key=lambda item: item[1].rank_for(config))
    names = [name for name, one in found if one.installed()]
    if not names:
        raise BackendError(f"no backend is installed; run: {found[0][1].install}")
    return names


def pick_backend(
    backend: str = "auto",
    config: ModelConfig | None = None,
    device: str | None = None,
    dtype: str | None = None,
) -> str:
    """The name of the backend to use.

    Args:
        backend: "torch", "mlx", "onnx", one of another package, or "auto": the fastest of those
            that are installed, as docs/onnx.md has measured them, and that run the model.
        config: the model's, for "auto".
        device, dtype: as for load_engine.

    Raises:
        InputError: another name.
        BackendError: not installed; the message has the command that installs it.
    """
    if backend == "auto":
        config = config or ModelConfig()
        names = ranked(config)
        suited = [n for n in names if find_backend(n).suits(config, device, dtype)]
        return (suited or names)[0]
    chosen = find_backend(backend)
    if not chosen.installed():
        raise BackendError(f"the {backend} backend is not installed; run: {chosen.install}")
    return backend


def load_engine(
    folder_or_repo: str | Path | None = None,
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    quantize: int | None = None,
    compile: bool | None = None,
    itself: bool = False,
) -> Engine:
    """Loads a model into one of the backends.

    Args:
        folder_or_repo: a release folder, a Hub name, or None for the voice that is shipped.
        backend: "auto", "torch", "mlx", "onnx" or one that another package adds; see pick_backend.
        device: torch: "cpu", "cuda", "cuda:1", "mps"; mlx: "cpu", "gpu"; None takes a GPU if any.
            onnx: "cpu" (None), "cuda", "coreml", "directml".
        dtype: of the speech model's transformer: "float32", "float16" or "bfloat16", in ONNX
            Runtime "float32" or "int8". None is float32 in MLX and ONNX Runtime, and in PyTorch the
            type that the processor multiplies fastest. MLX on a CPU is ten times slower in other
            types, and warns.
        quantize: round the speech model's weights to 4 or 8 bits. MLX on a GPU computes with
            packed weights; elsewhere they are unpacked first. See nanospeech convert --quantize.
        compile: compile the network for a few lengths, to which others are padded. None compiles
            in MLX on a GPU. PyTorch compiles only with True: it takes most of a minute, which
            pays for long work on a CUDA GPU. ONNX Runtime optimises its graphs anyway, and warns.
        itself: the model itself always speaks, neither its student nor its imitator
            (docs/distillation.md, docs/voices.md).

    Raises:
        InputError: no such model, backend, device, type or bits.
        CheckpointError: the release folder is incomplete, damaged or contradicts itself.
        BackendError: the backend or the device is not there.
    """
    model = "a release folder, a name on the Hub or None"
    check_kind("folder_or_repo", folder_or_repo, (str, PathLike, NoneType), model)
    check_kind("device", device, (str, NoneType), "a name such as 'cpu', or None")
    bits = None if quantize is None else whole("quantize", quantize)
    pick_backend(backend)  # before a download
    release = open_release(folder_or_repo)
    if itself:
        release = release.itself()
    name = pick_backend(backend, release.config, device, dtype)
    known = find_backend(name).dtypes
    if dtype is not None and dtype not in known:
        raise InputError(f"dtype {dtype!r} not known; {name} has {', '.join(known)}")
    if bits is not None:
        release = release.quantize(bits)
    return start(release, name, device, dtype, compile)


def start(
    release: Release,
    name: str,
    device: str | None = None,
    dtype: str | None = None,
    compile: bool | None = None,
) -> Engine:
    """An engine of an opened release; `name` is that of an installed backend. See load_engine."""
    return find_backend(name).load(release, device, dtype, compile)
