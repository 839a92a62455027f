"""Duration: the duration model's loss. No optimiser, no data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import AudioConfig
from nanospeech.errors import InputError
from nanospeech_torch import layers
from nanospeech_torch.duration import DurationHead, DurationTransformer
from nanospeech_torch.train.data.batch import Batch, DurationBatch, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.durations import DurationBatches
from nanospeech_torch.train.scale.profile import train_flops

from .base import Objective, Sums, sections


class DurationPredictor(DurationHead, Objective):
    """The duration model with its loss: a prompt and all the text, as at inference.

    The prompt is another clip of the speaker; where there is none, the clip's own beginning.

    Args:
        transformer: the network.
        tokenizer: as for Nanospeech.
        audio: the mel.
    """

    def __init__(
        self,
        transformer: DurationTransformer,
        tokenizer: Callable | object | None = None,
        audio: AudioConfig | None = None,
    ):
        super().__init__(transformer)
        self.tokenizer = tokenizer
        self.audio = audio or AudioConfig()
        self.loss = LossConfig(pair=1.0)

    def weights(self) -> dict[str, float]:
        return {"duration": 1.0}

    def counts(self, batch: DurationBatch | Batch, phase: str = "") -> dict[str, Tensor]:
        """Clips of a batch, which the loss is a mean over."""
        return {"duration": torch.ones_like(batch.lens).sum()}

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> DurationBatches:
        """Prompts with all the text."""
        if self.tokenizer is None:
            raise InputError("the model has no tokenizer; build it with tokenizer=...")
        edge = self.transformer.config.edge
        return DurationBatches(
            samples, self.tokenizer, plan, self.audio, self.loss, stream, edge=edge
        )

    def flops(self, batch: DurationBatch | Batch) -> int:
        rows, frames = batch.mel.shape[:2]
        return train_flops(self.transformer.config, rows, frames, batch.text.shape[1])

    def model_config(self) -> dict[str, Any]:
        return sections("duration", self.transformer.config, self)

    def forward(
        self,
        batch: DurationBatch | Batch | Tensor,
        text_BT: Tensor | None = None,
        lens_B: Tensor | None = None,
    ) -> Sums | Tensor:
        """The loss of a batch, or the seconds of (mel_BNM, text_BT, lens_B).

        The loss is |log(predicted / true)| of the new speech, a relative error that weighs too long
        and too short predictions alike.
        """
        if isinstance(batch, Tensor):
            assert text_BT is not None
            return super().forward(batch, text_BT, lens_B)
        known = getattr(batch, "known", torch.zeros_like(batch.prompt))
        rate = self.audio.frame_rate
        heard = batch.prompt.float().masked_fill(known == 0, 0) / rate
        total = batch.lens.float() / rate
        wanted = (total - heard).clamp(min=0.1)
        if self.transformer.config.pooling == "mean":
            guess = super().forward(batch.mel, batch.text, batch.prompt).float()
            share = (total / wanted).clamp(max=4)  # d log(total) of the new speech's own
            error = (guess.clamp(min=1e-3) / total).log().abs() * share
        else:
            each = self.token_seconds(batch.mel, batch.text, batch.prompt).float()
            old = layers.length_mask(known, each.shape[1])
            guess = each.masked_fill(old, 0).sum(1)
            said = each.masked_fill(~old, 0).sum(1).clamp(min=1e-3)
            stretch = torch.where(known > 0, heard.clamp(min=1e-3) / said, torch.ones_like(said))
            guess = guess * stretch**self.transformer.config.pace  # upsampling.total_seconds
            error = (guess.clamp(min=1e-3) / wanted).log().abs()
        return {"duration": (error.sum(), torch.ones_like(error).sum())}
