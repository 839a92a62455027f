"""Digest: a number by which processes see whether they are about to train on the same batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import torch


def digest(batches: Iterable[Any]) -> int:
    """A checksum of batches: of their shapes, and of the texts, lengths and draws of their clips.

    Sound and noise, which are nearly all of a batch, are not read: they follow from the others.

    Args:
        batches: on the CPU.
    """
    found = 0
    for batch in batches:
        for name, value in sorted(vars(batch).items()):
            if torch.is_tensor(value):
                found = zlib.crc32(f"{name}{tuple(value.shape)}".encode(), found)
                if value.dim() <= 2:
                    found = zlib.crc32(value.contiguous().numpy().tobytes(), found)
    return found
