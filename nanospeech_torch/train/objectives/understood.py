"""Understood: a speech model that learns to be understood, and to sound as before.

Between noise and a clip it estimates where its way ends, with the guidance that it speaks with. A
frozen listener hears the estimate, as a student's end in distill_end.py, and gradients go through
both of its forwards, with prompt and text and without. Both estimates are to stay what they were:
the teacher is the model before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import ModelConfig, option
from nanospeech.engine.sampling import time_grid
from nanospeech.errors import InputError
from nanospeech_torch.dit import DiT
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch, EarConfig, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.speech import SpeechBatches

from .base import Sums
from .distill_config import check_folders
from .ear import Ear
from .taught import Given, Taught


@dataclass(frozen=True)
class UnderstoodConfig:
    """By whom a speech model learns to be understood."""

    listener: str | list | None = option(
        None,
        "run folder of a listener of the teacher's tokens (model: listener), which is needed; or a"
        " list of several, one of which hears each step",
    )
    words: float = option(0.05, "weight of the cross entropy of what the listener hears")
    grid: float = option(
        0.6,
        "share of the times at which the teacher's solver evaluates, each as often as the step that"
        " follows is long; the others are uniform",
    )

    def __post_init__(self):
        check_folders("understood.listener", self.listener)
        if not 0 <= self.grid <= 1:
            raise InputError(f"understood.grid is {self.grid}; choose 0 to 1, best 0.6")
        if not self.words >= 0:
            raise InputError(f"understood.words is {self.words}; choose 0 or more, best 0.05")


class Understood(Taught):
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
        super().__init__(transformer, teacher, tokenizer, loss)
        self.understood = understood
        self.before = (network.requires_grad_(False).eval(),)  # a tuple: not a part of this model
        self.ear = Ear(listeners, teacher.postfilter, ear, seed)

    @property
    def guided(self) -> bool:
        """The average teaches nothing."""
        return False

    def flops(self, batch: Batch) -> int:
        """Of both networks with and without conditions, gradients through one, and the listener."""
        return self.flops_of(batch, learned=2, given=2) + self.ear.flops(batch)

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "words": self.understood.words}

    def teachers(self) -> tuple[DiT, ...]:
        return self.before

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
            "words": self.ear.words(given, guided, self.training),
        }

    def times(self, time_B: Tensor) -> Tensor:
        """Times (B,) of estimates: of `understood.grid` of uniform ones, the solver's stop before.

        So each stop comes as often as the step that follows it is long.
        """
        if not (share := self.understood.grid):
            return time_B
        stops = torch.tensor(time_grid(self.about.steps), device=time_B.device)
        solver = stops[torch.bucketize(time_B / share, stops[1:-1])]
        return torch.where(time_B <= share, solver, (time_B - share) / (1 - share))

    def estimates(self, network: DiT, given: Given, state_BNM: Tensor) -> tuple[Tensor, Tensor]:
        """The mels (B, N, M) at which a network sees its way end: guided, without prompt and text.

        The times are those of the batch given.
        """
        time_B = given.batch.time
        strength_B = torch.full_like(time_B, self.about.cfg_strength)
        guided, free = self.velocities_by(network, given, strength_B)(time_B, state_BNM)
        rest = (1 - time_B)[:, None, None]
        return state_BNM + rest * guided, state_BNM + rest * free
