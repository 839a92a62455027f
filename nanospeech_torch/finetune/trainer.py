"""Finetune trainer: a speech model with adapters, in the one loop; and its weights as a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nanospeech_torch.adapters import LoraConfig
from nanospeech_torch.checkpoint_reader import root_cause
from nanospeech_torch.train.loop.trainer import NanospeechTrainer


class FinetuneTrainer(NanospeechTrainer):
    """NanospeechTrainer whose checkpoints tell a converter of their adapters.

    Args:
        lora: as given to add_lora; None for a model without adapters.
    """

    def __init__(self, *args: Any, lora: LoraConfig | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.lora = lora

    def model_config(self) -> dict[str, Any]:
        config = super().model_config()
        return config | {"lora": asdict(self.lora)} if self.lora else config


def save(state: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint of weights, to be converted.

    Raises:
        OSError: it cannot be written, as where the disk is full.
    """
    try:
        torch.save(state, path)
    except RuntimeError as e:
        raise OSError(f"cannot write {path}: {root_cause(e)}") from e
