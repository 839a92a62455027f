"""Distill: a speech model of few evaluations, learnt from one of many. No optimiser, no data.

A step of the student goes where two steps of its teacher go: of the speech model with guidance on
the finest grid, of the student's own average on coarser ones. Two-stage distillation as in
ZipVoice (arXiv 2506.13053) learns two grids, one after the other; shortcut models
(arXiv 2410.12557) learn all of them at once. Both begin a step between noise and a recording. A
trajectory begins at the noise and goes as the teacher goes, with guidance, so that the student
learns where it will be when it speaks (Luhman and Luhman, arXiv 2101.02388; each step of the way,
not its end alone). Guidance strength and step are inputs of the student, so each evaluation is one
forward of the network (Meng et al., arXiv 2210.03142).

A teacher whose voices have weights of their own has one student for all of them: what a voice adds
to its teacher's weights is added to the student's, which learn in every voice, and are shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from nanospeech.config import ModelConfig
from nanospeech.engine.sampling import time_grid
from nanospeech.errors import InputError
from nanospeech.release.voice_weights import is_thin
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.speech import SpeechBatches

from .base import Sums
from .distill_config import ALL, WHOLE, DistillConfig
from .taught import Given, Taught, Velocity


class Voice:
    """A voice of the teacher.

    Args:
        base: the teacher's network as it is.
        network: with the voice's weights; the base itself for a voice that has none.

    Attributes:
        added: what the voice adds to each of the student's weights.
        whole: its own values of the thin tensors, which are not the student's to learn.
    """

    def __init__(self, base: DiT, network: DiT):
        self.network = network.requires_grad_(False).eval()
        self.added: dict[str, Tensor] = {}
        self.whole: dict[str, Tensor] = {}
        if network is base:
            return
        old = dict(base.named_parameters())
        for name, new in network.named_parameters():
            if is_thin(new):
                self.whole[name] = new.detach()
            elif not torch.equal(new, old[name]):
                self.added[name] = new.detach() - old[name].detach()

    def to(self, device: torch.device) -> Voice:
        """The same on a device."""
        self.network.to(device)
        for tensors in (self.added, self.whole):
            tensors.update({n: t.to(device) for n, t in tensors.items()})
        return self

    def weights(self, student: DiT) -> dict[str, Tensor]:
        """The student's weights as this voice has them; gradients are the student's."""
        own = dict(student.named_parameters())
        return self.whole | {name: own[name] + more for name, more in self.added.items()}


class Distilled(Taught):
    """A student with its loss: the mean velocity of two steps of its teacher.

    The student reads texts with the teacher's text embedding and aligner, which do not learn, so
    tokens last as long as the teacher has them last.

    Args:
        transformer: the student, with dit.max_strength.
        teacher: the release's config; its temperature and guidance become the student's.
        network: the teacher's network.
        distill: see there.
        tokenizer, audio, loss: as of Nanospeech; conditions are never dropped.
        seed: of the grids that are learnt.
        voices: with distill.voice "all", the teacher's network with each voice's weights, by name.
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
        voices: Mapping[str, DiT] | None = None,
    ):
        super().__init__(transformer, teacher, tokenizer, loss)
        self.distill, self.seed = distill, seed
        self.names = tuple(voices or ())
        # in a tuple: not parts of this model
        self.voices = tuple(Voice(network, own) for own in (voices or {"": network}).values())
        for name in {name for voice in self.voices for name in voice.whole}:
            transformer.get_parameter(name).requires_grad_(False)
        self.count = distill.counts[-1]

    @property
    def guided(self) -> bool:
        """Whether the average teaches coarser grids."""
        return self.distill.method not in WHOLE

    def flops(self, batch: Batch) -> int:
        """Of the student's evaluations, and of those that it learns of."""
        whole = self.distill.method in WHOLE
        finest = whole or self.count == self.distill.counts[-1]
        given = self.distill.steps * self.distill.substeps if whole else 2
        learned = self.count if whole else 1
        return self.flops_of(batch, learned, given * (2 if finest else 1))

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0}

    def model_config(self) -> dict[str, Any]:
        c = self.distill
        sampling = {
            "steps": c.steps,
            "step_counts": list(c.counts),
            "temperature": self.about.temperature,
            "cfg_strength": min(self.about.cfg_strength, c.max_strength),
            "cfg_rescale": self.about.cfg_rescale,
        }
        if c.voice == ALL:
            sampling["voices"] = list(self.names)
            sampling["default_voice"] = self.about.default_voice
        elif c.voice is not None:
            sampling["default_voice"] = c.voice
        return {**super().model_config(), "sampling": sampling}

    def teachers(self) -> tuple[DiT, ...]:
        """The networks of the voices, each once."""
        return tuple({id(v.network): v.network for v in self.voices}.values())

    def begin_step(self, step: int, total: float) -> None:
        """Chooses the grid of this step, the same in every process."""
        c = self.distill
        draw = np.random.default_rng((self.seed, step))
        if c.method in WHOLE:
            self.count = int(draw.choice(c.counts))
            return
        *coarser, finest = c.counts
        if c.method == "two-stage" and step < c.second_stage * total:
            coarser = []
        known = not coarser or draw.random() < c.keep
        self.count = finest if known else int(draw.choice(coarser))

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> SpeechBatches:
        """Speech with its text, of the voices that are taught alone."""
        made = super().batches(samples, plan, stream)
        made.voices = self.names
        return made

    def forward(self, batch: Batch) -> Sums:
        """Sum and count of the squared error of the velocity.

        Where a step begins, and the guidance's strength, come of batch.time: its first digits are
        the step, to base `count`, and the rest is the strength. For a trajectory, of which all
        steps are learnt, it is the strength alone.
        """
        each = [self.taught_by(voice, part) for voice, part in self.by_voice(batch)]
        return {
            name: (sum(sums[name][0] for sums in each), sum(sums[name][1] for sums in each))
            for name in each[0]
        }  # type: ignore[return-value]

    def by_voice(self, batch: Batch) -> Iterator[tuple[Voice, Batch]]:
        """The voices of a batch, each with its items."""
        if not self.names:
            (voice,) = self.voices
            yield voice, batch
            return
        for number in batch.voice.unique().tolist():
            rows = (batch.voice == number).nonzero().flatten()
            items = {f.name: getattr(batch, f.name)[rows] for f in fields(batch)}
            yield self.voices[number], Batch(**items)

    def given(self, voice: Voice, batch: Batch) -> Given:
        """What teacher and student are given of items of one voice."""
        # text embedding and aligner do not learn: a voice's teacher has those of its student
        return self.given_by(voice.network if self.names else self.transformer, batch)

    def taught_by(self, voice: Voice, batch: Batch) -> Sums:
        """Sum and count of the squared error of items of one voice."""
        finest, voice = self.distill.counts[-1], voice.to(batch.mel.device)
        count = self.count if self.training else finest
        whole = self.distill.method in WHOLE  # of which the teacher knows all steps
        number, share = self.split_time(batch.time, count)
        given = self.given(voice, batch)
        cond, text, learned = given.cond_BNM, given.text_BND, given.learned_BN
        with torch.no_grad():
            if whole or count == finest:
                source = self.guided_by(voice.network, given, share * self.distill.max_strength)
            else:
                source = self.averaged_by(batch, cond, text, share, 2 * count)
            if whole:
                begin, state, target = self.along(source, given.noise_BNM, count)
            else:
                begin, state, target = between(
                    source, given.noise_BNM, given.mel_BNM, number, count
                )
        each = len(begin) // len(share)  # steps of each item, which are items of the student's
        share, lens = share.repeat(each), batch.lens.repeat(each)
        cond, text = cond.repeat(each, 1, 1), text.repeat(each, 1, 1)
        inputs = torch.stack([begin, share, torch.full_like(share, 1 / count)], 1)
        velocity = self.student(voice, state, cond, text, inputs, lens).float()
        error = (velocity - target).square().mean(-1)
        total = error.masked_fill(~learned.repeat(each, 1), 0).sum()
        return {"flow": (total / each, learned.sum())}

    def student(self, voice: Voice, *inputs: Tensor) -> Tensor:
        """The student's velocity in a voice."""
        if not (voice.added or voice.whole):
            return self.transformer(*inputs)
        return functional_call(self.transformer, voice.weights(self.transformer), inputs)

    def split_time(self, time_B: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The number of a step, of `count`, and the share of the strongest guidance: (B,) each."""
        if self.distill.method in WHOLE:
            return torch.zeros_like(time_B), time_B
        place = time_B * count
        number = place.floor().clamp(max=count - 1)
        return number, place - number

    def along(
        self, source: Velocity, noise_BNM: Tensor, count: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The student's `count` steps on the way that the teacher goes from the noise.

        Returns:
            Times (S * B,), states and mean velocities (S * B, N, M) of all S steps, step by step.
        """
        total = self.distill.steps * self.distill.substeps
        parts, grid, state = total // count, time_grid(total, "uniform"), noise_BNM
        begins, states, means = [], [], []
        for start in range(0, total, parts):
            begins.append(noise_BNM.new_full((len(noise_BNM),), grid[start]))
            states.append(state)
            for low, high in pairwise(grid[start : start + parts + 1]):
                time_B = noise_BNM.new_full((len(noise_BNM),), low)
                state = state + (high - low) * source(time_B, state)
            means.append((state - states[-1]) / (grid[start + parts] - grid[start]))
        return torch.cat(begins), torch.cat(states), torch.cat(means)

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
