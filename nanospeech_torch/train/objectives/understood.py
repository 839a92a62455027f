"""Understood: a speech model that learns to be understood, and to sound as before.

A frozen listener hears its guided estimate of the end (anchored.py), as a student's end in
distill_end.py, and gradients go through both of its forwards, with prompt and text and without.
Both estimates are to stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import ModelConfig, option
from nanospeech.errors import InputError
from nanospeech_torch.dit import DiT
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch, EarConfig, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.speech import SpeechBatches

from .anchored import GRID, Anchored
from .base import Sums
from .distill_config import check_folders
from .ear import Ear


@dataclass(frozen=True)
class UnderstoodConfig:
    """By whom a speech model learns to be understood."""

    listener: str | list | None = option(
        None,
        "run folder of a listener of the teacher's tokens (model: listener), which is needed; or a"
        " list of several, one of which hears each step",
    )
    words: float = option(0.05, "weight of the cross entropy of what the listener hears")
    grid: float = option(0.6, GRID)

    def __post_init__(self):
        check_folders("understood.listener", self.listener)
        if not 0 <= self.grid <= 1:
            raise InputError(f"understood.grid is {self.grid}; choose 0 to 1, best 0.6")
        if not self.words >= 0:
            raise InputError(f"understood.words is {self.words}; choose 0 or more, best 0.05")


class Understood(Anchored):
    """A speech model with its losses: what it was, and what a listener hears.

    Args:
        transformer: the network, which begins as the teacher's.
        teacher: the release's config: temperature, guidance and postfilter are those of speaking.
        network: the teacher's network, which does not learn.
        listeners: hear the estimates, one of them those of a step; they do not learn.
        understood: see there.
        tokenizer, loss: as of Nanospeech; conditions are never dropped.
        ear, seed: what is heard beside the estimates in training, and of who hears.
    """

    def __init__(
        self,
        transformer: DiT,
        teacher: ModelConfig,
        network: DiT,
        listeners: Sequence[Listener],
        understood: UnderstoodConfig,
        tokenizer: Any,
        loss: LossConfig | None = None,
        ear: EarConfig | None = None,
        seed: int = 0,
    ):
        super().__init__(transformer, teacher, network, tokenizer, loss, understood.grid)
        self.understood = understood
        self.ear = Ear(listeners, teacher.postfilter, ear, seed)

    def flops(self, batch: Batch) -> int:
        """Of both networks, and of the listener."""
        return super().flops(batch) + self.ear.flops(batch)

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "words": self.understood.words}

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        return super().counts(batch, phase) | {"words": self.ear.count(batch)}

    def begin_step(self, step: int, total: float) -> None:
        """Draws the listener of this step."""
        self.ear.begin_step(step)

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> SpeechBatches:
        """Speech with its text, and what is heard beside it."""
        made = super().batches(samples, plan, stream)
        made.ear = self.ear.config
        return made

    def forward(self, batch: Batch) -> Sums:
        """Sums and counts of the squared change of both estimates, and of what is heard."""
        batch = replace(batch, time=self.times(batch.time))
        given = self.given_by(self.transformer, batch)
        state = self.state(given)
        with torch.no_grad():
            before = self.estimates(self.before[0].to(state.device), given, state)
        now = self.estimates(self.transformer, given, state)
        return {
            "flow": self.change(given, now, before),
            "words": self.ear.words(given, now[0], self.training),
        }
