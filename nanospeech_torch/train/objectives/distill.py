"""Distill: a speech model of few evaluations, learnt from one of many. No optimiser, no data.

A step of the student goes where two steps of its teacher go: of the speech model with guidance on
the finest grid, of the student's own average on coarser ones. Two-stage distillation as in
ZipVoice (arXiv 2506.13053) learns two grids, one after the other; shortcut models
(arXiv 2410.12557) learn all of them at once. Both begin a step between noise and a recording. A
trajectory begins at the noise and goes as the teacher goes, with guidance, so that the student
learns where it will be when it speaks (Luhman and Luhman, arXiv 2101.02388; each step of the way,
not its end alone). Guidance strength and step are inputs of the student, so each evaluation is one
forward of the network (Meng et al., arXiv 2210.03142).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nanospeech.config import ModelConfig, option
from nanospeech.engine.sampling import guide, time_grid
from nanospeech.errors import InputError
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch, LossConfig

from .base import Sums
from .flow import Nanospeech

METHODS = ("trajectory", "two-stage", "shortcut")
Velocity = Callable[[Tensor, Tensor], Tensor]  # (times (B,), states (B, N, M)) -> (B, N, M)


@dataclass(frozen=True)
class DistillConfig:
    """What a student learns of its teacher."""

    voice: str | None = option(None, "teach this built-in voice, with its weights if it has some")
    method: str = option(
        "two-stage",
        "trajectory: steps alone, on the teacher's own way; two-stage: 2 x steps, then steps; "
        "shortcut: 1, 2, 4, ... 2 x steps at once",
    )
    steps: int = option(4, "steps of the solver, each one evaluation, that the model is made for")
    max_strength: float = option(5.0, "guidance strengths of 0 to this are learnt")
    substeps: int = option(2, "steps of the teacher for each one of the student, of trajectory")
    second_stage: float = option(0.5, "share of the run at which two-stage halves its steps")
    keep: float = option(
        0.25, "share of steps in which the finest grid goes on to be learnt of the teacher"
    )

    def __post_init__(self):
        if self.method not in METHODS:
            raise InputError(f"distill.method is {self.method!r}; choose from {METHODS}")
        if not 1 <= self.steps <= 64:
            raise InputError(f"distill.steps is {self.steps}; choose 1 to 64, best 4")
        if self.method == "shortcut" and self.steps & (self.steps - 1):
            raise InputError(f"distill.steps is {self.steps}; for shortcut choose 1, 2, 4, 8, ...")
        if not 1 <= self.substeps <= 64:
            raise InputError(f"distill.substeps is {self.substeps}; choose 1 to 64, best 2")
        if not 0 < self.max_strength <= 100:
            raise InputError(f"distill.max_strength is {self.max_strength}; choose 0 to 100")
        for name in ("second_stage", "keep"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"distill.{name} is {getattr(self, name)}; choose 0 to 1")

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of steps that are learnt, ascending; the last of the teacher."""
        if self.method == "trajectory":
            return (self.steps,)
        if self.method == "two-stage":
            return self.steps, 2 * self.steps
        return tuple(2**k for k in range(self.steps.bit_length() + 1))


class Distilled(Nanospeech):
    """A student with its loss: the mean velocity of two steps of its teacher.

    The student reads texts with the teacher's text embedding and aligner, which do not learn, so
    tokens last as long as the teacher has them last.

    Args:
        transformer: the student, with dit.max_strength.
        teacher: the release's config; its temperature and guidance become the student's.
        network: the teacher's network.
        distill: see there.
        tokenizer, audio, loss: as of Nanospeech; conditions are never dropped.
    """

    def __init__(
        self,
        transformer: DiT,
        teacher: ModelConfig,
        network: DiT,
        distill: DistillConfig,
        tokenizer: Any,
        loss: LossConfig | None = None,
        seed: int = 0,
    ):
        super().__init__(transformer, tokenizer, teacher.audio, loss)
        self.distill, self.seed, self.about = distill, seed, teacher
        # in a tuple: not a part of this model
        self.teacher = (network.requires_grad_(False).eval(),)
        transformer.text_embed.requires_grad_(False)
        if transformer.aligner is not None:
            transformer.aligner.requires_grad_(False)
        self.count = distill.counts[-1]

    @property
    def guided(self) -> bool:
        """Whether the average teaches coarser grids."""
        return len(self.distill.counts) > 1

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0}

    def model_config(self) -> dict[str, Any]:
        c = self.distill
        sampling = {
            "steps": c.steps,
            "step_counts": list(c.counts),
            "temperature": self.about.temperature,
            "cfg_strength": min(self.about.cfg_strength, c.max_strength),
        }
        if c.voice is not None:
            sampling["default_voice"] = c.voice
        return {**super().model_config(), "sampling": sampling}

    def begin_step(self, step: int, total: float) -> None:
        """Chooses the grid of this step, the same in every process."""
        c = self.distill
        *coarser, finest = c.counts
        if c.method == "two-stage" and step < c.second_stage * total:
            coarser = []
        draw = np.random.default_rng((self.seed, step))
        known = not coarser or draw.random() < c.keep
        self.count = finest if known else int(draw.choice(coarser))

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        return {"flow": (batch.span & valid).sum()}

    def forward(self, batch: Batch) -> Sums:
        """Sum and count of the squared error of the velocity.

        Where a step begins, and the guidance's strength, come of batch.time: its first digits are
        the step, to base `count`, and the rest is the strength. For a trajectory, of which all
        steps are learnt, all of it is the strength.
        """
        finest, (network,) = self.distill.counts[-1], self.teacher
        count = self.count if self.training else finest
        network.to(batch.mel.device)
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        mel = layers.masked((batch.mel - self.audio.mel_mean) / self.audio.mel_std, valid)
        cond = layers.masked(mel, ~batch.span)
        number, share = self.split_time(batch.time, count)
        noise = self.about.temperature * batch.noise
        with torch.no_grad():
            batch = replace(batch, drop_text=torch.zeros_like(batch.drop_text))
            hidden, index, _ = self.place_tokens(batch, mel)
            text = self.text_states(self.transformer, batch, hidden, index)
            if count == finest:
                strength = share * self.distill.max_strength
                source = self.guided_by(network, batch, cond, (hidden, index), strength)
            else:
                source = self.averaged_by(batch, cond, text, share, 2 * count)
            if self.distill.method == "trajectory":
                begin, state, target = self.along(source, noise)
            else:
                begin, state, target = between(source, noise, mel, number, count)
        each = len(begin) // len(share)  # steps of each item, which are items of the student's
        share, lens = share.repeat(each), batch.lens.repeat(each)
        cond, text = cond.repeat(each, 1, 1), text.repeat(each, 1, 1)
        inputs = torch.stack([begin, share, torch.full_like(share, 1 / count)], 1)
        velocity = self.transformer(state, cond, text, inputs, lens).float()
        error = (velocity - target).square().mean(-1)
        learned = (batch.span & valid).repeat(each, 1)
        return {"flow": (error.masked_fill(~learned, 0).sum() / each, learned.sum() // each)}

    def split_time(self, time_B: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The number of a step, of `count`, and the share of the strongest guidance: (B,) each."""
        if self.distill.method == "trajectory":
            return torch.zeros_like(time_B), time_B
        place = time_B * count
        number = place.floor().clamp(max=count - 1)
        return number, (place - number).clamp(0, 1)

    def along(self, source: Velocity, noise_BNM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The student's steps on the way that the teacher goes from the noise.

        Returns:
            Times (S * B,), states and mean velocities (S * B, N, M) of all S steps, step by step.
        """
        count, parts = self.distill.steps, self.distill.substeps
        grid, state = time_grid(count * parts, "uniform"), noise_BNM
        begins, states, means = [], [], []
        for start in range(0, count * parts, parts):
            begins.append(torch.full_like(noise_BNM[:, 0, 0], grid[start]))
            states.append(state)
            for low, high in pairwise(grid[start : start + parts + 1]):
                state = state + (high - low) * source(torch.full_like(begins[0], low), state)
            means.append((state - states[-1]) / (grid[start + parts] - grid[start]))
        return torch.cat(begins), torch.cat(states), torch.cat(means)

    def guided_by(
        self,
        network: DiT,
        batch: Batch,
        cond: Tensor,
        placed: tuple[Tensor | None, Tensor | None],
        strength_B: Tensor,
    ) -> Velocity:
        """The teacher's velocity with guidance."""
        without = replace(batch, drop_text=torch.ones_like(batch.drop_text))
        texts = [self.text_states(network, b, *placed) for b in (batch, without)]
        text, both = torch.cat(texts), torch.cat([cond, torch.zeros_like(cond)])
        lens, strength = torch.cat([batch.lens, batch.lens]), strength_B[:, None, None]

        def velocity(time_B: Tensor, state: Tensor) -> Tensor:
            twice, times = torch.cat([state, state]), torch.cat([time_B, time_B])
            given, free = network(twice, both, text, times, lens).float().chunk(2)
            return guide(given, free, strength)

        return velocity

    def averaged_by(
        self, batch: Batch, cond: Tensor, text: Tensor, share_B: Tensor, count: int
    ) -> Velocity:
        """The velocity of the student's average on the grid of `count` steps."""
        if not self.guide:
            raise InputError("a coarser grid is learnt of the averaged model; call guide_with(ema)")
        (network,) = self.guide
        step = torch.full_like(share_B, 1 / count)

        def velocity(time_B: Tensor, state: Tensor) -> Tensor:
            inputs = torch.stack([time_B, share_B, step], 1)
            return network(state, cond, text, inputs, batch.lens).float()

        return velocity


def between(
    source: Velocity, noise_BNM: Tensor, mel_BNM: Tensor, number_B: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of each item, which begins between its noise and its recording.

    Returns:
        Times (B,), states and mean velocities (B, N, M) of two steps of the source.
    """
    grid = torch.tensor(time_grid(2 * count, "uniform"), device=mel_BNM.device)
    begin, middle, end = (grid[(2 * number_B + i).long()] for i in range(3))
    state = (1 - begin)[:, None, None] * noise_BNM + begin[:, None, None] * mel_BNM
    first = source(begin, state)
    second = source(middle, state + (middle - begin)[:, None, None] * first)
    weight = ((middle - begin) / (end - begin))[:, None, None]
    return begin, state, weight * first + (1 - weight) * second
