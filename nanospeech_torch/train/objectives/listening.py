"""Listening: a listener's loss, the cross entropy of the token that is spoken in each patch.

Tokens are placed by the aligner of a speech model. All random numbers are the batch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from nanospeech.config import AudioConfig, option
from nanospeech.errors import InputError
from nanospeech_torch import layers
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.speech import SpeechBatches
from nanospeech_torch.train.scale.profile import listener_flops

from .base import Objective, Sums, sections
from .text_aligner import TextAligner


@dataclass(frozen=True)
class ListeningConfig:
    """What a listener hears in training."""

    noise: float = option(
        0.3,
        "most noise that is added to half of the clips and pairs, its standard deviation in the"
        " network's units",
    )
    label_smoothing: float = option(0.05, "share of the target that all tokens have alike")

    def __post_init__(self):
        if not 0 <= self.noise <= 10:
            raise InputError(f"listening.noise is {self.noise}; choose 0 to 10, best 0.3")
        if not 0 <= self.label_smoothing < 1:
            raise InputError(
                f"listening.label_smoothing is {self.label_smoothing}; choose 0 to below 1"
            )


class Listening(Objective):
    """A listener with its loss.

    Args:
        listener: the network.
        aligner: places tokens; it does not learn.
        tokenizer: the aligner's.
        audio: the mel and its normalisation, as of the model whose student is to be understood.
        loss: pairs and augmentation of the batches.
        listening: see there.
    """

    def __init__(
        self,
        listener: Listener,
        aligner: TextAligner,
        tokenizer: Any,
        audio: AudioConfig,
        loss: LossConfig,
        listening: ListeningConfig | None = None,
    ):
        super().__init__()
        self.listener, self.aligner, self.tokenizer = listener, aligner, tokenizer
        self.audio, self.loss = audio, loss
        self.listening = listening or ListeningConfig()

    def weights(self) -> dict[str, float]:
        return {"words": 1.0}

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> SpeechBatches:
        """Speech with its text."""
        edge = self.aligner.dit.config.edge
        return SpeechBatches(samples, self.tokenizer, plan, self.audio, self.loss, stream, edge)

    def multiple(self) -> int:
        return 8 * self.listener.config.patch_size

    def flops(self, batch: Batch) -> int:
        rows, frames = batch.mel.shape[:2]
        return listener_flops(self.listener.config, rows, frames)

    def model_config(self) -> dict[str, Any]:
        return sections("listener", self.listener.config, self)

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        p = self.listener.config.patch_size
        worded = (batch.lens + p - 1) // p - batch.wordless // p
        count = (worded * (batch.text >= 0).any(1)).sum()
        return {"words": count, "accuracy": count}

    def forward(self, batch: Batch) -> Sums:
        """Cross entropy, in nats, and how many patches are heard rightly, which is only logged."""
        tokens = self.aligner.tokens(batch)
        logits = self.listener(self.heard(batch), batch.lens).float()
        smoothing = self.listening.label_smoothing if self.training else 0.0
        error = F.cross_entropy(
            logits.transpose(1, 2), tokens, ignore_index=-1, reduction="sum",
            label_smoothing=smoothing,
        )  # fmt: skip
        count = (tokens >= 0).sum()
        return {"words": (error, count), "accuracy": ((logits.argmax(-1) == tokens).sum(), count)}

    def heard(self, batch: Batch) -> Tensor:
        """The mel in the ODE's units; in training half of the items with noise.

        These are the items whose time is below 1/2, and they have noise in proportion to it.
        """
        mel = (batch.mel - self.audio.mel_mean) / self.audio.mel_std
        if self.training:
            share = (2 * batch.time).masked_fill(batch.time >= 0.5, 0)
            mel = mel + self.listening.noise * share[:, None, None] * batch.noise
        return layers.masked(mel, layers.length_mask(batch.lens, mel.shape[1]))
