"""Export: the weights alone, for convert and others. Reads checkpoints, knows no training.

Small weights are gathered into one step_N.pt. Others become a folder step_N.weights, written from
the checkpoint's own files, a tensor at a time: no process holds all of them, and training goes on.

    step_N.weights/export.json                        step, config, vocabulary, settings
    step_N.weights/ema.safetensors.index.json         the file of each averaged weight
    step_N.weights/ema-00001-of-00009.safetensors …   and the same with model- for the raw weights
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from nanospeech.errors import require
from nanospeech.release import sharded
from nanospeech_torch.checkpoint_reader import OneByOne

PARTS = ("model", "ema")


def is_small(tensors: dict[str, Tensor]) -> bool:
    """Whether a run's weights and their average, split or not, may be gathered into one file."""
    return exported_bytes(tensors) <= sharded.SHARD_BYTES


def exported_bytes(tensors: dict[str, Tensor]) -> int:
    """Bytes of the exported tensors of a checkpoint."""
    kept = [t for name, t in tensors.items() if name.partition(".")[0] in PARTS]
    return sum(t.numel() * t.element_size() for t in kept)


def write_weights(checkpoint: Path, folder: Path, metadata: dict[str, Any]) -> None:
    """Writes a checkpoint's weights as sharded safetensors, whole or not at all.

    Args:
        checkpoint: step_N/, complete.
        folder: step_N.weights.
        metadata: for export.json.

    Raises:
        OSError: the folder cannot be written.
        CheckpointError: the checkpoint cannot be read.
    """
    save_file = require("safetensors.torch", "torch").save_file
    reader = OneByOne(checkpoint)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()

    def save(tensors: dict[str, Tensor], path: Path) -> None:
        save_file(tensors, path, metadata={"format": "pt"})
        path.chmod(0o644)  # safetensors makes it readable by its owner alone
        with path.open("rb+") as f:
            os.fsync(f.fileno())

    try:
        for kind in PARTS:
            with sharded.ShardWriter(
                part / f"{kind}.safetensors", save, sharded.SHARD_BYTES
            ) as out:
                for name in reader.shapes():
                    if name.startswith(f"{kind}."):
                        out.add(name.removeprefix(f"{kind}."), reader.read(name))
        (part / "export.json").write_text(json.dumps(metadata), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
