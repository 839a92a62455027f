"""Learner: a model, its optimizers and its average, and one optimiser step.

Knows no data set, no checkpoints and no end of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nanospeech.errors import InputError
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.guards import Guard, GuardConfig, clip_factor, guarded_step
from nanospeech_torch.train.optim.optimizers import EMA, fuse, lr_factor
from nanospeech_torch.train.scale import speed
from nanospeech_torch.train.scale.parallel import Parallel

from .accelerator import take_accumulation
from .config import TrainerOptions
from .log import Log
from .means import StepMeans
from .optimizer_state import OptimizerState


class Learner:
    """The state that a step changes, on its devices.

    Args:
        model: the objective; it returns sums and counts of losses for a batch.
        optimizer: one or several torch optimizers over its parameters; their rates are the peaks.
        warmup: optimiser steps to the peak.
        accelerator: accelerate.Accelerator.
        options: all other settings.

    Attributes:
        core: the objective itself.
        model: the objective, or what it is wrapped in to be shared by processes.
        phases: {phase: the parameters of its optimizers}.

    Raises:
        InputError: settings of the processes and the model that cannot be combined.
    """

    def __init__(
        self,
        model: Objective,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        warmup: int,
        accelerator: Any,
        options: TrainerOptions,
    ):
        self.speed, self.accelerator = options.speed, accelerator
        self.config = c = take_accumulation(accelerator, options.config)
        self.core, self.warmup = model, warmup
        single = isinstance(optimizer, torch.optim.Optimizer)
        self.optimizers: list[Any] = [optimizer] if single else list(optimizer)  # type: ignore
        for o in self.optimizers:
            fuse(o)
        self.rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.parallel = Parallel(accelerator, options.parallel, model)
        speed.check_graphs(self.speed, c.accumulate, self.parallel.split)
        self.model = self.parallel.wrap(model, self.optimizers, self.apply_speed, c.seed)
        self.memories = [OptimizerState(i, o, model) for i, o in enumerate(self.optimizers)]
        held = {id(p) for o in self.optimizers for g in o.param_groups for p in g["params"]}
        self.phases = {k: [p for p in ps if id(p) in held] for k, ps in model.phases().items()}
        self.phase_of = [self.find_phase(o) for o in self.optimizers]
        horizon = c.ema_horizon if c.ema_decay is None else None
        self.ema = EMA(model.averaged(), horizon, decay=c.ema_decay)
        if model.guided:
            model.guide_with(self.ema.state_dict())
        limits = GuardConfig(skip_factor=c.skip_factor, max_bad_steps=c.max_bad_steps)
        self.guards = {phase: Guard(limits, accelerator.device) for phase in self.phases}

    def apply_speed(self, objective: Any) -> None:
        """Compiles and checkpoints the blocks as configured."""
        split = self.parallel.split
        speed.apply_speed(objective, self.speed, 3 * self.config.buckets, sharded=split)

    def find_phase(self, optimizer: torch.optim.Optimizer) -> str:
        """The phase whose parameters an optimizer updates."""
        first = optimizer.param_groups[0]["params"][0]
        for name, params in self.phases.items():
            if any(first is p for p in params):
                return name
        raise InputError("an optimizer holds parameters that no phase of the model trains")

    def learn(self, batches: Sequence[Any], step: int, total: float, log: Log) -> torch.Tensor:
        """One optimiser step over micro-batches; without synchronising with the device.

        Args:
            batches: of this process.
            step: steps taken before.
            total: steps of the run, as the schedule has it.
            log: for the losses.

        Returns:
            The gradient's norm, of the first phase.
        """
        c = self.config
        self.core.begin_step(step, total)
        speed.begin_step()
        active = self.core.active_phases()
        self.set_rates(lr_factor(step, self.warmup, total, c.schedule, c.decay_fraction))
        means = StepMeans(self.core, self.parallel, batches, active)
        # dropout depends on step and data alone, so there is no state to save
        torch.manual_seed((c.seed * 1_000_003 + step) * 4096 + self.parallel.data_rank)
        for micro, batch in enumerate(batches):
            batch = batch.to(self.accelerator.device)
            for phase in active:
                with self.parallel.no_sync(micro < c.accumulate - 1):
                    with self.accelerator.autocast():
                        sums = (
                            self.model(batch, phase) if len(self.phases) > 1 else self.model(batch)
                        )
                    self.accelerator.backward(means.loss(phase, sums))
            log.count(batch)
        for phase in active:
            log.add(means.means(phase))
        norms = [self.update(phase) for phase in active]
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.update()
        for p in self.core.parameters():
            p.grad = None
        return norms[0]

    def set_rates(self, factor: float) -> None:
        """Sets every group's rate: its peak, scaled by the schedule and the phase."""
        for optimizer, rates, phase in zip(self.optimizers, self.rates, self.phase_of):
            for rate, group in zip(rates, optimizer.param_groups):
                group["lr"] = rate * factor * self.core.rate(phase)

    def update(self, phase: str) -> torch.Tensor:
        """Updates the parameters of a phase, unless their gradient is bad. Returns its norm."""
        mine = [o for o, p in zip(self.optimizers, self.phase_of) if p == phase]
        if self.accelerator.scaler is not None:  # fp16: overflows are bad steps like others
            for optimizer in mine:
                self.accelerator.scaler.unscale_(optimizer)
        norm = self.parallel.grad_norm(self.phases[phase])
        most = self.config.max_grad_norm
        factor = clip_factor(norm, most) if most else None
        guarded_step(mine, self.guards[phase].check(norm), factor)
        return norm
