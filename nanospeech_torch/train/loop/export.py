"""Export: the weights alone, for convert and others. Reads checkpoints, knows no training.

Small ones are gathered, and are one step_N.pt. Others become a folder step_N.weights, put together
from the checkpoint's own files once it is written, a tensor at a time: no process ever holds all of
them, and training does not wait.

    step_N.weights/export.json                        step, config, vocabulary, settings
    step_N.weights/ema.safetensors.index.json         which file holds which averaged weight
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
    """Bytes of what is exported, of all that a checkpoint holds."""
    kept = [t for name, t in tensors.items() if name.partition(".")[0] in PARTS]
    return sum(t.numel() * t.element_size() for t in kept)


def write_weights(checkpoint: Path, folder: Path, told: dict[str, Any]) -> None:
    """Writes a checkpoint's weights as sharded safetensors, whole or not at all.

    Args:
        checkpoint: step_N/, complete.
        folder: step_N.weights.
        told: for export.json.

    Raises:
        OSError, CheckpointError: the one cannot be written, or the other not be read.
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
        (part / "export.json").write_text(json.dumps(told), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
