"""Voice weights: a built-in voice's changes to the speech model beside it. NumPy alone.

voices/NAME.safetensors beside a voice's recording holds low-rank changes of weights, W + up @ down
as in LoRA (arXiv 2106.09685), and new values of small tensors. So a folder can have several voices,
each as clear as a model of its own, for a tenth of its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError, InputError

from .quantization import PackedWeight, unpacked

UP, DOWN = ".up", ".down"
THIN = 8  # tensors with no more rows or columns are kept whole
ENTRY = 110  # bytes of a tensor in the header of a file, at most, beside its name


def added(
    base: Mapping[str, np.ndarray | PackedWeight], change: Mapping[str, np.ndarray], path: Path
) -> dict[str, np.ndarray]:
    """A model's tensors as a voice has them.

    Args:
        base: the model's, by name; packed ones are unpacked as they are changed, so that no other
            floats of the whole model are held.
        change: those of the voice's file.
        path: of that file, to be named.

    Raises:
        CheckpointError: the file is of another model, or half of a pair is missing.
    """
    tensors: dict[str, Any] = dict(base)
    names = {name.removesuffix(UP).removesuffix(DOWN) for name in change}
    for name in sorted(names):
        whole, up, down = (change.get(name + end) for end in ("", UP, DOWN))
        old = tensors.get(name)
        if old is not None and whole is not None and whole.shape == old.shape:
            tensors[name] = whole
        elif old is not None and up is not None and down is not None and fits(old, up, down):
            product = (up.astype(np.float32) @ down.astype(np.float32)).reshape(old.shape)
            product += old.unpack() if isinstance(old, PackedWeight) else old
            tensors[name] = product
        else:
            raise CheckpointError(
                f"{path} does not fit the model beside it at {name}; it belongs to the model that"
                " it was made from"
            )
    return unpacked(tensors)


def fits(old: Any, up: np.ndarray, down: np.ndarray) -> bool:
    """Whether up @ down has the shape of a weight, seen as (out, rest)."""
    rows, *rest = old.shape
    return up.shape == (rows, len(down)) and down.shape[1:] == (prod(rest),)


def is_thin(tensor: Any) -> bool:
    """Whether low-rank factors of a tensor, of either framework, would save almost nothing."""
    shape = tuple(tensor.shape)
    return len(shape) < 2 or min(shape[0], prod(shape[1:])) <= THIN


def header_bytes(base: Mapping[str, np.ndarray]) -> int:
    """Bytes of a voice's file beside its numbers, at most.

    Args:
        base: the model's tensors.
    """
    return ENTRY + sum((len(n) + ENTRY) * (1 if is_thin(t) else 2) for n, t in base.items())


def difference(
    base: Mapping[str, np.ndarray], tuned: Mapping[str, np.ndarray], numbers: int
) -> dict[str, np.ndarray]:
    """What a voice's file holds: the change from one model to another, cut to a size.

    Thin tensors are kept whole. Of the other changes those singular vectors are kept that carry
    most energy for their length, over the whole model.

    Args:
        base, tuned: two models' tensors, alike in names and shapes.
        numbers: how many the file may hold.

    Returns:
        float16.

    Raises:
        InputError: the models are not of one kind, or the thin tensors alone are more numbers.
    """
    if {n: t.shape for n, t in base.items()} != {n: t.shape for n, t in tuned.items()}:
        raise InputError("the two models differ in their tensors; the voice's should be finetuned")
    change = {n: t.astype(np.float16) for n, t in tuned.items() if is_thin(t)}
    left = numbers - sum(t.size for t in change.values())
    if left < 0:
        least = numbers - left
        raise InputError(f"{numbers:,} numbers are too few: biases and the like are {least:,}")
    factors, worth = {}, []
    for name in base.keys() - change.keys():
        flat = (tuned[name].astype(np.float32) - base[name]).reshape(len(base[name]), -1)
        factors[name] = u, s, v = np.linalg.svd(flat, full_matrices=False)
        length = len(u) + v.shape[1]
        worth += [(value**2 / length, length, name) for value in s]
    ranks = dict.fromkeys(factors, 0)
    for _, length, name in sorted(worth, reverse=True):
        if length <= left:
            ranks[name] += 1
            left -= length
    for name, rank in ranks.items():
        u, s, v = factors[name]
        if rank:
            root = np.sqrt(s[:rank])
            change[name + UP] = (u[:, :rank] * root).astype(np.float16)
            change[name + DOWN] = (root[:, None] * v[:rank]).astype(np.float16)
    return change
