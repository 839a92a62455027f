"""Robust: a speech model that learns to speak after a poor recording as after a good one.

The teacher, which is the model before, hears each prompt as it was recorded, and the learner the
same one noisy or narrow, or without its words. Where the teacher sees the way end, with its
guidance, so is the learner to see it: a voice is then taken from what a poor recording still tells
of it. Prompts that are not poor keep the learner what it was. Other names: teacher and student of
two views of a clip, as in noisy student training (Xie et al., arXiv 1911.04252).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nanospeech.config import ModelConfig, option
from nanospeech.errors import InputError
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch, LossConfig

from .anchored import GRID, Anchored
from .base import Sums
from .taught import Given


@dataclass(frozen=True)
class RobustConfig:
    """What a speech model learns to do without."""

    wordless: float = option(
        0.25, "share of the steps in which the learner does not know the words of the prompts"
    )
    grid: float = option(0.6, GRID)

    def __post_init__(self):
        for name in ("wordless", "grid"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"robust.{name} is {getattr(self, name)}; choose 0 to 1")


class Robust(Anchored):
    """A speech model with its loss: what it would have said after the good recording.

    Args:
        transformer, teacher, network, tokenizer, loss: see Anchored.
        robust: see there.
        seed: of the steps without words.
    """

    def __init__(
        self,
        transformer: DiT,
        teacher: ModelConfig,
        network: DiT,
        robust: RobustConfig,
        tokenizer: Any,
        loss: LossConfig | None = None,
        seed: int = 0,
    ):
        super().__init__(transformer, teacher, network, tokenizer, loss, robust.grid)
        self.robust, self.seed, self.wordless = robust, seed, False

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0}

    def begin_step(self, step: int, total: float) -> None:
        """Draws whether the learner knows the words of this step's prompts."""
        draw = np.random.default_rng((self.seed, step)).random()
        self.wordless = bool(draw < self.robust.wordless)

    def forward(self, batch: Batch) -> Sums:
        """Sum and count of the squared difference of both estimates to the teacher's."""
        batch = replace(batch, time=self.times(batch.time))
        good = replace(batch, heard=batch.mel[:, :0])
        given = self.given_by(self.transformer, good)
        state = self.state(given)
        with torch.no_grad():
            wanted = self.estimates(self.before[0].to(state.device), given, state)
        found = self.estimates(self.transformer, self.poorer(given, batch), state)
        return {"flow": self.change(given, found, wanted)}

    def poorer(self, given: Given, batch: Batch) -> Given:
        """What the learner is given: its own prompts, and in some steps none of their words."""
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        _, heard = self.spoken_and_heard(batch, valid)
        cond = layers.masked(heard, ~batch.span)
        known = given.batch
        if self.wordless and self.training:
            known = replace(known, wordless=torch.maximum(known.wordless, first(batch.span)))
        return replace(given, batch=known, cond_BNM=cond)


def first(span_BN: Tensor) -> Tensor:
    """The first frame of each row that is true."""
    return span_BN.int().argmax(1)
