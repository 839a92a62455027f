"""Convert: trainer checkpoints and other projects' files to a release folder. Trains nothing.

What is here is imported when it is first used, so that a command's help needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .converter import convert
    from .model import Model, network_shapes
    from .options import ConvertOptions
    from .source import Source, find_checkpoint, read_source
    from .vocoder import read_vocoder, read_vocoder_source

__all__ = [
    "ConvertOptions",
    "Model",
    "Source",
    "convert",
    "find_checkpoint",
    "network_shapes",
    "read_source",
    "read_vocoder",
    "read_vocoder_source",
]
MODULES = {
    "converter": ("convert",),
    "model": ("Model", "network_shapes"),
    "options": ("ConvertOptions",),
    "source": ("Source", "find_checkpoint", "read_source"),
    "vocoder": ("read_vocoder", "read_vocoder_source"),
}


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"convert.{module}"), name)
    raise AttributeError(f"module 'convert' has no attribute {name!r}")
