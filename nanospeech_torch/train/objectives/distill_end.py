"""Distillation to the end: where a student arrives, and whether it is understood there.

A student goes its own steps from the noise and learns where its teacher's way ends, through all of
its steps at once. A frozen listener hears which token its mel says in each patch; what it should
hear is known, as tokens are placed before. Such a loss of a recogniser, through all steps of a
student of few, is DMDSpeech's (Li et al., arXiv 2410.11097), by CTC there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from nanospeech.engine.sampling import time_grid
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch, EarConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.speech import SpeechBatches

from .base import Sums
from .distill import Distilled, Voice
from .ear import Ear
from .taught import Given


class DistilledEnd(Distilled):
    """A student with its losses at the end of its way.

    Args:
        listeners: hear what the student says, one of them in a step; they do not learn.
        ear: what is heard beside it in training.
        others, named: those of Distilled.
    """

    def __init__(
        self,
        *others: Any,
        listeners: Sequence[Listener] = (),
        ear: EarConfig | None = None,
        **named: Any,
    ):
        super().__init__(*others, **named)
        filters = self.about.postfilter
        self.ear = Ear(listeners, filters, ear, self.seed) if listeners else None

    def flops(self, batch: Batch) -> int:
        """Of the student's steps, chained, of its teacher's, and of the listener."""
        c = self.distill
        given = 2 * c.steps * c.substeps  # with conditions and without
        running = self.flops_of(batch, c.steps, given, chained=c.steps - 1)
        return running + (self.ear.flops(batch) if self.ear else 0)

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "words": self.distill.words}

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        found = super().counts(batch, phase)
        return found | ({"words": self.ear.count(batch)} if self.ear else {})

    def begin_step(self, step: int, total: float) -> None:
        """Draws the listener of this step; there is one grid."""
        if self.ear:
            self.ear.begin_step(step)

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> SpeechBatches:
        """Speech with its text, and what is heard beside it."""
        made = super().batches(samples, plan, stream)
        made.ear = self.ear.config if self.ear else None
        return made

    def taught_by(self, voice: Voice, batch: Batch) -> Sums:
        """Sums and counts of the squared error of the end and of what is heard, of one voice."""
        voice, share = voice.to(batch.mel.device), batch.time  # of the greatest strength
        given = self.given(voice, batch)
        with torch.no_grad():
            source = self.guided_by(voice.network, given, share * self.distill.max_strength)
            _, noise, way = self.along(source, given.noise_BNM, 1)
        end = self.end(voice, given, share)
        error = (end - (noise + way)).square().mean(-1)
        learned = given.learned_BN
        sums = {"flow": (error.masked_fill(~learned, 0).sum(), learned.sum())}
        if self.ear:
            sums["words"] = self.ear.words(given, end, self.training)
        return sums

    def end(self, voice: Voice, given: Given, share_B: Tensor) -> Tensor:
        """The mel (B, N, M) at which the student arrives, in the ODE's units."""
        state, step = given.noise_BNM, torch.full_like(share_B, 1 / self.distill.steps)
        for low, high in pairwise(time_grid(self.distill.steps, "uniform")):
            inputs = torch.stack([torch.full_like(share_B, low), share_B, step], 1)
            velocity = self.student(
                voice, state, given.cond_BNM, given.text_BND, inputs, given.batch.lens
            )
            state = state + (high - low) * velocity.float()
        return state
