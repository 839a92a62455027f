"""Train config: the settings of the loop and what they may be. Runs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nanospeech.config import option
from nanospeech.errors import InputError
from nanospeech_torch.train.data.pairing import PAIR_MB
from nanospeech_torch.train.optim.optimizers import SCHEDULES

EXPORTS = ("all", "last", "never")


@dataclass(frozen=True)
class TrainConfig:
    """The loop's settings that have nothing to do with a single call of train()."""

    schedule: str = option("linear", "after warm-up: linear or cosine to 0, constant, or wsd")
    decay_fraction: float = option(0.2, "share of the steps in which wsd decays to 0")
    ema_horizon: float = option(10_000, "optimiser steps that the averaged weights reach back")
    ema_decay: float | None = option(None, "share of the average kept a step, instead of a horizon")
    max_grad_norm: float = option(1.0, "gradients are scaled down to this norm; 0: never")
    skip_factor: float = option(
        10.0, "a step whose gradient norm is so many usual ones is skipped; 0: only NaN and inf"
    )
    max_bad_steps: int = option(20, "skipped steps in a row after which the run stops")
    minutes: float | None = option(
        None, "end after this much training, resumptions counted; the schedule follows the clock"
    )
    accumulate: int = option(1, "micro-batches per optimiser step")
    log_every: int = option(50, "steps between log lines")
    keep: int = option(3, "checkpoints kept; older ones are deleted")
    export: str = option("all", "checkpoints that get a step_N.pt of weights: all, last or never")
    shuffle_buffer: int = option(2000, "samples held to shuffle a stream")
    pair_mb: int = option(PAIR_MB, "MB for clips that wait to be paired, in each worker")
    seed: int = option(0, "of data order, draws and dropout")
    buckets: int = option(8, "padded lengths that batches may have, each a multiple of 8 patches")

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise InputError(f"schedule {self.schedule!r}; choose from {', '.join(SCHEDULES)}")
        if self.export not in EXPORTS:
            raise InputError(f"export {self.export!r}; choose from {', '.join(EXPORTS)}")
        for name in (
            "accumulate",
            "log_every",
            "keep",
            "buckets",
            "shuffle_buffer",
            "pair_mb",
            "max_bad_steps",
            "ema_horizon",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, should be at least 1")
        if self.minutes is not None and self.minutes <= 0:
            raise InputError(f"minutes is {self.minutes}, should be above 0, or left out")
        for name, low, high in (
            ("decay_fraction", 0, 1),
            ("ema_decay", 0, 1),
            ("max_grad_norm", 0, math.inf),
        ):
            if not low <= (getattr(self, name) or 0) <= high:
                raise InputError(f"{name} is {getattr(self, name)}, should be {low} to {high}")
