"""Config: the settings of the loop, of its log and of a call of train(). Runs nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nanospeech.config import option
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batches import BatchPlan
from nanospeech_torch.train.data.pairing import PAIR_MB
from nanospeech_torch.train.optim.optimizers import SCHEDULES
from nanospeech_torch.train.scale.mesh import ParallelConfig
from nanospeech_torch.train.scale.speed import SpeedConfig

EXPORTS = ("all", "last", "never")
TRACKERS = ("wandb", "tensorboard", "trackio")

# what is drawn in a step has a seed of 64 bits: of the run's, the step and the process
SEEDS = 2**32


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the loop for all calls of train()."""

    schedule: str = option("linear", "after warm-up: linear or cosine to 0, constant, or wsd")
    decay_fraction: float = option(0.2, "share of the steps in which wsd decays to 0")
    ema_horizon: float = option(10_000, "time constant of the averaged weights, in optimiser steps")
    ema_decay: float | None = option(
        None, "decay of the averaged weights a step, instead of ema_horizon"
    )
    max_grad_norm: float = option(1.0, "gradients are scaled down to this norm; 0: never")
    skip_factor: float = option(
        10.0, "skip steps with so many times the usual gradient norm; 0: only NaN and inf"
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
    pair_mb: int = option(PAIR_MB, "MB for clips that wait for a partner, in each worker")
    seed: int = option(0, "of data order, draws and dropout")
    buckets: int = option(8, "number of padded lengths, each a multiple of 8 patches")

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
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}, should be at least 0")
        if self.seed >= SEEDS:
            raise InputError(f"seed is {self.seed}, should be less than {SEEDS}")
        if self.ema_decay is not None and not 0 <= self.ema_decay < 1:
            raise InputError(
                f"ema_decay is {self.ema_decay}, should be at least 0 (no average) and below 1"
            )
        if self.minutes is not None and self.minutes <= 0:
            raise InputError(f"minutes is {self.minutes}, should be above 0, or left out")
        for name, low, high in (
            ("decay_fraction", 0, 1),
            ("max_grad_norm", 0, math.inf),
        ):
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is {getattr(self, name)}, should be {low} to {high}")


@dataclass(frozen=True)
class LogConfig:
    """Logging beside log.csv and the progress bar, which are always there."""

    trackers: list = option((), "of wandb, tensorboard, trackio; each is a package to install")
    project: str = option("nanospeech", "name of the project in the trackers")
    name: str | None = option(None, "name of the run in the trackers; None: its folder's")
    held_out: list = option((), "shards for held-out losses in log.csv, never trained on")
    held_out_every: int = option(500, "steps between those measurements")
    sample_every: int = option(0, "steps between spoken samples and mel pictures; 0: none")
    sentences: list = option(
        (
            "The birch canoe slid on the smooth planks.",
            "Is this the voice that you wanted, or another one?",
        ),
        "texts of the samples",
    )
    voices: str | None = option(
        None, "release folder of the prompts' voices; None: the shipped one"
    )
    vocoder: str | None = option(None, "release folder of the vocoder; None: the shipped one")

    RENAMED: ClassVar[dict[str, str]] = {"heldout": "held_out", "heldout_every": "held_out_every"}

    def __post_init__(self):
        object.__setattr__(self, "trackers", tuple(self.trackers))
        object.__setattr__(self, "sentences", tuple(self.sentences))
        object.__setattr__(self, "held_out", tuple(self.held_out))
        if wrong := sorted(set(self.trackers) - set(TRACKERS)):
            raise InputError(f"log.trackers {wrong} not known; choose from {', '.join(TRACKERS)}")
        if self.held_out_every < 1:
            raise InputError(f"log.held_out_every is {self.held_out_every}, should be 1 or more")
        if self.sample_every < 0:
            raise InputError(f"log.sample_every is {self.sample_every}, should be 0 or more")


@dataclass(frozen=True)
class TrainerOptions:
    """All settings of a trainer; see the classes of its fields.

    Attributes:
        run: the resolved settings of the run, kept in every checkpoint and compared on resume;
            empty: those of the trainer.
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    log: LogConfig = field(default_factory=LogConfig)
    run: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **settings: Any) -> TrainerOptions:
        """Fields of this class by name, None being their default, and of TrainConfig."""
        names = {f.name for f in dataclasses.fields(cls)}
        own = {k: v for k, v in settings.items() if k in names and v is not None}
        loop = {k: v for k, v in settings.items() if k not in names}
        if loop:
            config = own.get("config")
            own["config"] = dataclasses.replace(config, **loop) if config else TrainConfig(**loop)
        return cls(**own)


@dataclass(frozen=True)
class TrainOptions:
    """Settings of a call of train() beside its data and its steps.

    Attributes:
        batch_size: most samples a batch, on each process.
        max_batch_frames: most padded mel frames a batch; batch_size * max_duration if None.
        max_duration: longest sample, in mel frames (93.75 a second).
        num_workers: processes that decode; with 0 a thread runs ahead.
        save_step: steps between checkpoints.
        resume: "auto" goes on from the newest checkpoint of run_dir, "never" starts afresh, a
            path goes on from that folder.
        cache_bytes: memory for decoded mels, for each worker.
        minutes: stop and save after this many minutes.
        on_sample: called with the trainer every log.sample_every steps, on every process; left
            out, a speech model speaks log.sentences.
    """

    batch_size: int = 12
    max_batch_frames: int | None = None
    max_duration: int = 937
    num_workers: int = 0
    save_step: int = 10_000
    resume: str = "auto"
    cache_bytes: int = 0
    minutes: float | None = None
    on_sample: Callable[[Any], None] | None = None

    def plan(self, loop: TrainConfig, carry: bool, multiple: int) -> BatchPlan:
        """How batches are formed.

        Args:
            loop: settings of the loop.
            carry: only full batches, for compiled models: one shape a bucket.
            multiple: frames that padded lengths are multiples of.
        """
        return BatchPlan(
            self.batch_size,
            self.max_batch_frames or self.batch_size * self.max_duration,
            self.max_duration,
            loop.buckets,
            carry=carry,
            pair_mb=loop.pair_mb,
            multiple=multiple,
        )
