"""Means: the losses of one optimiser step, over all its batches on all processes. Trains nothing.

A mean is a sum over a count, both over the whole step: k micro-batches, k processes and one large
batch have the same gradient. A mean of means would weight short batches like long ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nanospeech_torch.train.objectives.base import Objective, Sums
from nanospeech_torch.train.scale.parallel import Parallel


class StepMeans:
    """The counts of a step's losses, and their means; all on the device.

    Elements of all micro-batches are counted before the first backward pass, so that no graph has
    to be kept until the last forward pass.

    Args:
        objective: whose losses they are.
        parallel: the processes.
        batches: the step's micro-batches of this process, anywhere.
        phases: of the step.
    """

    def __init__(
        self,
        objective: Objective,
        parallel: Parallel,
        batches: Sequence[Any],
        phases: Sequence[str],
    ):
        self.objective, self.parallel = objective, parallel
        self.phases, self.several = phases, len(batches) > 1
        self.counts: dict[str, dict[str, Tensor]] = {}
        self.totals: dict[str, dict[str, Tensor]] = {}
        if self.several:
            self.count(batches)

    def count(self, batches: Sequence[Any]) -> None:
        """Counts the elements of all micro-batches on all processes."""
        device = self.parallel.accelerator.device
        found = [self.counts_of(batch) for batch in batches]
        for phase in self.phases:
            names = list(found[0][phase])
            each = [torch.stack([micro[phase][name] for name in names]) for micro in found]
            here = torch.stack(each).float().sum(0)
            reduced = self.reduce(here.to(device, non_blocking=True))
            self.counts[phase] = dict(zip(names, reduced.unbind()))

    def loss(self, phase: str, sums: Sums) -> Tensor:
        """A micro-batch's part of the step's loss.

        Its gradient, averaged over processes and added up over micro-batches, is that of the mean
        over all of them.
        """
        totals = {name: total.detach().float() for name, (total, _) in sums.items()}
        if self.several:
            before = self.totals.get(phase, {})
            self.totals[phase] = {k: before[k] + v if before else v for k, v in totals.items()}
        else:  # one message for sums and counts
            counts = torch.stack([n.float() for _, n in sums.values()])
            reduced = self.reduce(torch.stack([counts, torch.stack(list(totals.values()))]))
            self.counts[phase], self.totals[phase] = (
                dict(zip(sums, row.unbind())) for row in reduced
            )
        world, weights = self.parallel.data_world, self.objective.weights()
        return sum(  # type: ignore[return-value]
            weights.get(name, 0.0) * world * total / self.counts[phase][name].clamp(min=1)
            for name, (total, _) in sums.items()
        )

    def means(self, phase: str) -> dict[str, Tensor]:
        """The mean losses of a phase over the whole step."""
        totals = self.totals[phase]
        if self.several:
            totals = dict(zip(totals, self.reduce(torch.stack(list(totals.values()))).unbind()))
        return {name: v / self.counts[phase][name].clamp(min=1) for name, v in totals.items()}

    def reduce(self, tensor: Tensor) -> Tensor:
        """Sum over the processes that have data of their own."""
        p = self.parallel
        return p.reduce(tensor) if p.data_world > 1 else tensor

    def counts_of(self, batch: Any) -> dict[str, dict[str, Tensor]]:
        """Elements of each phase's losses in a batch, by name.

        An objective without `counts` is run once more, without gradients.
        """
        core, accelerator = self.objective, self.parallel.accelerator
        by_phase = {phase: core.counts(batch, phase) for phase in self.phases}
        found = {phase: counts for phase, counts in by_phase.items() if counts is not None}
        if len(found) == len(by_phase):
            return found
        several = len(core.phases()) > 1
        batch = batch.to(accelerator.device)
        with torch.no_grad(), accelerator.autocast():
            for phase in self.phases:
                sums = core(batch, phase) if several else core(batch)
                found[phase] = {name: count for name, (_, count) in sums.items()}
        return found
