"""Finetune trainer: a speech model with adapters, in the one loop."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nanospeech_torch.adapters import LoraConfig
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
