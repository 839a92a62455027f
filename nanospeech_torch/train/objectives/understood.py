"""Understood: a speech model that learns to be understood, and to sound as before.

Between noise and a clip it estimates where its way ends, with the guidance that it speaks with. A
frozen listener hears the estimate, as a student's end in distill_end.py, and gradients go through
both of its forwards, with prompt and text and without. Both estimates are to stay what they were:
the teacher is the model before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import ModelConfig, option
from nanospeech.errors import InputError
from nanospeech_torch.dit import DiT
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch, LossConfig

from .base import Sums
from .ear import Ear
from .taught import Given, Taught


@dataclass(frozen=True)
class UnderstoodConfig:
    """By whom a speech model learns to be understood."""

    listener: str | None = option(
        None, "run folder of a listener of the teacher's tokens (model: listener); it is needed"
    )
    words: float = option(0.05, "weight of the cross entropy of what the listener hears")

    def __post_init__(self):
        if not self.words >= 0:
            raise InputError(f"understood.words is {self.words}; choose 0 or more, best 0.05")


class Understood(Taught):
    """A speech model with its losses: what it was, and what a listener hears.

    Args:
        transformer: the network, which begins as the teacher's.
        teacher: the release's config: temperature, guidance and postfilter are those of speaking.
        network: the teacher's network, which does not learn.
        listener: hears the estimates; it does not learn.
        understood: see there.
        tokenizer, loss: as of Nanospeech; conditions are never dropped.
    """

    def __init__(
        self,
        transformer: DiT,
        teacher: ModelConfig,
        network: DiT,
        listener: Listener,
        understood: UnderstoodConfig,
        tokenizer: Any,
        loss: LossConfig | None = None,
    ):
        super().__init__(transformer, teacher, tokenizer, loss)
        self.understood = understood
        self.before = (network.requires_grad_(False).eval(),)  # a tuple: not a part of this model
        self.ear = Ear(listener, teacher.postfilter)

    @property
    def guided(self) -> bool:
        """The average teaches nothing."""
        return False

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "words": self.understood.words}

    def teachers(self) -> tuple[DiT, ...]:
        return self.before

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        return super().counts(batch, phase) | {"words": self.ear.count(batch)}

    def forward(self, batch: Batch) -> Sums:
        """Sums and counts of the squared change of both estimates, and of what is heard."""
        given, time = self.given_by(self.transformer, batch), batch.time[:, None, None]
        state = (1 - time) * given.noise_BNM + time * given.mel_BNM
        with torch.no_grad():
            before = self.estimates(self.before[0].to(state.device), given, state)
        guided, free = self.estimates(self.transformer, given, state)
        changes = torch.stack([guided - before[0], free - before[1]])
        error = changes.square().mean(-1).sum(0)
        learned = given.learned_BN
        return {
            "flow": (error.masked_fill(~learned, 0).sum(), learned.sum()),
            "words": self.ear.words(given, guided),
        }

    def estimates(self, network: DiT, given: Given, state_BNM: Tensor) -> tuple[Tensor, Tensor]:
        """The mels (B, N, M) at which a network sees its way end: guided, without prompt and text.

        The times are the batch's.
        """
        time_B = given.batch.time
        strength_B = torch.full_like(time_B, self.about.cfg_strength)
        guided, free = self.velocities_by(network, given, strength_B)(time_B, state_BNM)
        rest = (1 - time_B)[:, None, None]
        return state_BNM + rest * guided, state_BNM + rest * free
