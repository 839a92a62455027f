"""nanospeech: text-to-speech by PyTorch, MLX or ONNX Runtime. Its import loads none, nor NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .machine import report_nothing, set_up_blas

if TYPE_CHECKING:
    from nanospeech.speech.speaker import Speaker, Utterance

    from .config import ModelConfig, SampleOptions
    from .errors import BackendError, CheckpointError, DataError, InputError, NanospeechError
    from .load import load_engine
    from .output import OutputOptions

    __version__: str

set_up_blas()
report_nothing()

# what is exported, and the module that it is taken from when it is first asked for
EXPORTS = {
    "load_engine": "load",
    "ModelConfig": "config",
    "SampleOptions": "config",
    "OutputOptions": "output",
    "Speaker": "speech.speaker",
    "Utterance": "speech.speaker",
    "NanospeechError": "errors",
    "InputError": "errors",
    "CheckpointError": "errors",
    "BackendError": "errors",
    "DataError": "errors",
}

__all__ = [  # noqa: RUF022, the order that the README introduces them in
    "load_engine",
    "Speaker",
    "SampleOptions",
    "OutputOptions",
    "Utterance",
    "ModelConfig",
    "NanospeechError",
    "InputError",
    "CheckpointError",
    "BackendError",
    "DataError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("nanospeech-tts")
        except PackageNotFoundError:  # run from a source tree that is not installed
            return "0+unknown"
    if name in EXPORTS:
        return getattr(import_module(f".{EXPORTS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
