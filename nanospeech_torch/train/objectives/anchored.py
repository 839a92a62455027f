"""Anchored: a speech model that learns something, and is held near what it was.

Between noise and a clip it estimates where its way ends, with the guidance that it speaks with; so
does the teacher, which is the model before. No losses of its own; see understood.py and robust.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nanospeech.config import ModelConfig
from nanospeech.engine.sampling import time_grid
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch, LossConfig

from .taught import Given, Taught

GRID = (
    "share of the times at which the teacher's solver evaluates, each as often as the step that"
    " follows is long; the others are uniform"
)


class Anchored(Taught):
    """A speech model whose teacher is what it was.

    Args:
        transformer: the network, which begins as the teacher's.
        teacher: the release's config: temperature, guidance and postfilter are those of speaking.
        network: the teacher's network, which does not learn.
        tokenizer, loss: as of Nanospeech; conditions are never dropped.
        grid: see GRID.
    """

    def __init__(
        self,
        transformer: DiT,
        teacher: ModelConfig,
        network: DiT,
        tokenizer: Any,
        loss: LossConfig | None = None,
        grid: float = 0.6,
    ):
        super().__init__(transformer, teacher, tokenizer, loss)
        self.before = (network.requires_grad_(False).eval(),)  # a tuple: not a part of this model
        self.grid = grid

    @property
    def guided(self) -> bool:
        """The average teaches nothing."""
        return False

    def flops(self, batch: Batch) -> int:
        """Of both networks with and without conditions, and gradients through one."""
        return self.flops_of(batch, learned=2, given=2)

    def teachers(self) -> tuple[DiT, ...]:
        return self.before

    def times(self, time_B: Tensor) -> Tensor:
        """Times (B,) of estimates: of `grid` of uniform ones, the solver's stop before.

        So each stop comes as often as the step that follows it is long.
        """
        if not (share := self.grid):
            return time_B
        stops = torch.tensor(time_grid(self.about.steps), device=time_B.device)
        solver = stops[torch.bucketize(time_B / share, stops[1:-1])]
        return torch.where(time_B <= share, solver, (time_B - share) / (1 - share))

    def state(self, given: Given) -> Tensor:
        """Where each item is at its time, between noise and mel: (B, N, M)."""
        time = given.batch.time[:, None, None]
        return (1 - time) * given.noise_BNM + time * given.mel_BNM

    def change(self, given: Given, now: tuple[Tensor, ...], before: tuple[Tensor, ...]) -> tuple:
        """Sum and count of the squared change of estimates in the frames that are learnt."""
        changes = torch.stack([new - old for new, old in zip(now, before)])
        error = changes.square().mean(-1).sum(0)
        return error.masked_fill(~given.learned_BN, 0).sum(), given.learned_BN.sum()

    def estimates(self, network: DiT, given: Given, state_BNM: Tensor) -> tuple[Tensor, Tensor]:
        """The mels (B, N, M) at which a network sees its way end: guided, without prompt and text.

        The times are those of the batch given.
        """
        time_B = given.batch.time
        strength_B = torch.full_like(time_B, self.about.cfg_strength)
        guided, free = self.velocities_by(network, given, strength_B)(time_B, state_BNM)
        rest = (1 - time_B)[:, None, None]
        return state_BNM + rest * guided, state_BNM + rest * free
