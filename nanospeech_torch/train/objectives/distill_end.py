"""Distillation to the end: where a student arrives, and whether it is understood there.

A student goes its own steps from the noise and learns where its teacher's way ends, through all of
its steps at once. A frozen listener hears which token its mel says in each patch; what it should
hear is known, as tokens are placed before. Such a loss of a recogniser, through all steps of a
student of few, is DMDSpeech's (Li et al., arXiv 2410.11097), by CTC there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from nanospeech.engine.sampling import time_grid
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch

from .base import Sums
from .distill import Distilled, Voice
from .ear import Ear
from .taught import Given


class DistilledEnd(Distilled):
    """A student with its losses at the end of its way.

    Args:
        listener: hears what the student says, or None; it does not learn.
        others, named: those of Distilled.
    """

    def __init__(self, *others: Any, listener: Listener | None = None, **named: Any):
        super().__init__(*others, **named)
        self.ear = None if listener is None else Ear(listener, self.about.postfilter)

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "words": self.distill.words}

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        found = super().counts(batch, phase)
        return found | ({"words": self.ear.count(batch)} if self.ear else {})

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
        return sums | ({"words": self.ear.words(given, end)} if self.ear else {})

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
