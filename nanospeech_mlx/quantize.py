"""Quantize: linear layers that compute with packed weights. How they are packed is shared code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlx import nn

from nanospeech.release.quantization import PackedWeight


def insert(module: nn.Module, weights: Mapping[str, PackedWeight]) -> None:
    """Replaces linear layers by layers of MLX for packed weights, which are still to be loaded.

    Args:
        module: a network.
        weights: by their names in the network.
    """
    for name, packed in weights.items():
        *path, last = name.removesuffix(".weight").split(".")
        parent: Any = module
        for key in path:
            parent = child(parent, key)
        linear = child(parent, last)
        rows, columns = packed.shape
        layer = nn.QuantizedLinear(columns, rows, "bias" in linear, packed.group_size, packed.bits)
        if isinstance(parent, list):
            parent[int(last)] = layer
        else:
            setattr(parent, last, layer)


def child(parent: Any, key: str) -> Any:
    """A layer of a module, or of a list of them."""
    return parent[int(key)] if isinstance(parent, list) else getattr(parent, key)
