"""Trainer: the one loop, on Hugging Face Accelerate, for speech, duration and vocoder models.

Losses are in flow.py and vocoder_gan.py, batches in data.py, how processes share a model in
parallel.py, what a checkpoint holds in state.py.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from nanospeech.errors import CheckpointError, DataError, InputError, require
from nanospeech_torch.train.data import loader as feed
from nanospeech_torch.train.data.speech import BatchPlan, Loaded, StreamState
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.guards import Guard, GuardConfig, clip_factor, guarded_step
from nanospeech_torch.train.optim.optimizers import EMA, fuse, lr_factor, steps_in_all
from nanospeech_torch.train.samples import listener
from nanospeech_torch.train.scale import speed
from nanospeech_torch.train.scale.launch import report
from nanospeech_torch.train.scale.parallel import Parallel, ParallelConfig
from nanospeech_torch.train.scale.speed import SpeedConfig

from . import state
from .checkpoints import Checkpoints
from .config import TrainConfig
from .held_out import HeldOut
from .log import Log, LogConfig
from .means import StepMeans
from .optimizer_state import OptimizerState
from .signals import Agreement, StopSignals

__all__ = ["DurationTrainer", "NanospeechTrainer", "TrainConfig", "Trainer", "VocoderTrainer"]


class Trainer:
    """Trains an objective: Nanospeech, DurationPredictor, VocoderGAN or another Objective.

    Args:
        model: the objective; it returns sums and counts of losses for a batch.
        optimizer: one or several torch optimizers over its parameters; their rates are the peaks.
        num_warmup_steps: optimiser steps to the peak.
        accelerate_kwargs: for accelerate.Accelerator, for example {"mixed_precision": "bf16"}.
        run_dir: where checkpoints and log.csv go.
        config: loop settings; or give TrainConfig's fields by name.
        parallel, speed, log: see their modules; by default every process has the whole model.
        run: the resolved settings of the run, kept in every checkpoint and compared on resume.

    Raises:
        InputError: what is asked of the processes or the model does not go together.
    """

    default_run = "runs/nanospeech"

    def __init__(
        self,
        model: Objective,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        num_warmup_steps: int = 1000,
        accelerate_kwargs: dict[str, Any] | None = None,
        run_dir: str | Path | None = None,
        config: TrainConfig | None = None,
        *,
        parallel: ParallelConfig | None = None,
        speed: SpeedConfig | None = None,
        log: LogConfig | None = None,
        run: dict[str, Any] | None = None,
        **settings: Any,
    ):
        self.config = config or TrainConfig(**settings)
        self.speed, self.log_config = speed or SpeedConfig(), log or LogConfig()
        self.run_dir = Path(run_dir or self.default_run)
        self.accelerator = self.accelerate(accelerate_kwargs or {})
        self.take_accumulation()
        self.core, self.warmup = model, num_warmup_steps
        single = isinstance(optimizer, torch.optim.Optimizer)
        self.optimizers: list[Any] = [optimizer] if single else list(optimizer)  # type: ignore
        for o in self.optimizers:
            fuse(o)
        self.rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.parallel = Parallel(self.accelerator, parallel or ParallelConfig(), model)
        self.model = self.parallel.wrap(model, self.optimizers, self.apply_speed, self.config.seed)
        self.memories = [OptimizerState(i, o, model) for i, o in enumerate(self.optimizers)]
        held = {id(p) for o in self.optimizers for g in o.param_groups for p in g["params"]}
        self.phases = {k: [p for p in ps if id(p) in held] for k, ps in model.phases().items()}
        self.phase_of = [self.find_phase(o) for o in self.optimizers]
        c = self.config
        horizon = {"decay": c.ema_decay} if c.ema_decay else {"horizon": c.ema_horizon}
        self.ema = EMA(model.averaged(), **horizon)
        if model.guided:
            model.guide_with(self.ema.state_dict())
        limits = GuardConfig(skip_factor=c.skip_factor, max_bad_steps=c.max_bad_steps)
        self.guards = {phase: Guard(limits, self.accelerator.device) for phase in self.phases}
        self.checkpoints = Checkpoints(self.run_dir, c.keep, self.parallel.world > 1, self.say)
        self.run = run or {}
        self.step = self.consumed = 0
        self.places: dict[int, StreamState] = {}
        self.saved_places: state.Ranks | None = None
        self.skipped: Counter = Counter()
        self.data_wait = 0.0
        self.stopping: str | bool = False
        self.batching: dict[str, int] = {}
        self.since = time.monotonic()
        self.elapsed_before = 0.0  # seconds of training before this process
        self.time_fraction = 0.0  # of config.minutes, as all processes have it

    def seconds(self) -> float:
        """Time in train() since the run began, that of earlier processes included."""
        return time.monotonic() - self.since

    def accelerate(self, kwargs: dict[str, Any]) -> Any:
        """The Accelerator; gradient accumulation is the loop's own."""
        accelerate = require("accelerate", "train")
        kwargs = {"gradient_accumulation_steps": 1, **kwargs}
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.accelerator.is_available():
            kwargs.setdefault("cpu", True)  # else each process would train on its own
        for name in self.log_config.trackers:
            require(name, "trackers")
        if self.log_config.trackers:
            kwargs.setdefault("log_with", list(self.log_config.trackers))
            kwargs.setdefault("project_dir", str(self.run_dir))
        return accelerate.Accelerator(**kwargs)

    def take_accumulation(self) -> None:
        """Gradient accumulation asked for in Accelerate's way becomes the loop's own."""
        asked = self.accelerator.gradient_accumulation_steps
        if asked == 1:
            return
        if self.config.accumulate not in (1, asked):
            raise InputError(
                f"Accelerate is to accumulate {asked} batches and train.accumulate is "
                f"{self.config.accumulate}; set train.accumulate alone"
            )
        self.config = replace(self.config, accumulate=asked)
        self.accelerator.gradient_accumulation_steps = 1

    def say(self, text: str) -> None:
        """Prints, once for all processes and machines, above the progress bar."""
        if self.accelerator.process_index == 0:
            tqdm.write(text)

    def apply_speed(self, objective: Any) -> None:
        """Compiles and checkpoints the blocks as configured."""
        split = self.parallel.split
        speed.apply_speed(objective, self.speed, 3 * self.config.buckets, sharded=split)

    def find_phase(self, optimizer: torch.optim.Optimizer) -> str:
        """The phase whose parameters an optimizer moves."""
        first = optimizer.param_groups[0]["params"][0]
        for name, params in self.phases.items():
            if any(first is p for p in params):
                return name
        raise InputError("an optimizer holds parameters that no phase of the model trains")

    def model_config(self) -> dict[str, Any]:
        """What a converter needs to know of this model: config.json's sections."""
        return self.core.model_config()

    def vocab(self) -> list[str]:
        """The tokenizer's tokens, as far as it tells them."""
        tokenizer: Any = self.core.tokenizer
        if hasattr(tokenizer, "vocab"):
            return list(tokenizer.vocab)
        return list(getattr(tokenizer, "keywords", {}).get("vocab", {}))

    def loader(self, dataset: Any, plan: BatchPlan, workers: int, cache_bytes: int) -> Any:
        """This process's batches of a dataset, from where the run stands; see feed.py."""
        return feed.loader(self, dataset, plan, workers, cache_bytes)

    def train(
        self,
        train_dataset: Any,
        total_steps: int,
        batch_size: int = 12,
        max_batch_frames: int | None = None,
        max_duration: int = 937,
        num_workers: int = 0,
        save_step: int = 10_000,
        resume: str = "auto",
        cache_bytes: int = 0,
        minutes: float | None = None,
        on_sample: Callable[[Trainer], None] | None = None,
    ) -> dict[str, float]:
        """Runs until total_steps optimiser steps.

        Args:
            train_dataset: paths or URLs of WebDataset tars, a streaming datasets.IterableDataset,
                or any re-iterable of samples.
            batch_size: most samples a batch, on each process.
            max_batch_frames: most padded mel frames a batch; batch_size * max_duration if None.
            max_duration: longest sample, in mel frames (93.75 a second).
            num_workers: processes that decode; with 0 a thread runs ahead.
            save_step: steps between checkpoints.
            resume: "auto" goes on from the newest checkpoint of run_dir, "never" starts afresh, a
                path goes on from that folder.
            cache_bytes: memory for decoded mels, for each worker.
            minutes: stop and save after this many minutes.
            on_sample: called every log.sample_every steps, on every process; left out, a speech
                model speaks log.sentences.

        Returns:
            The mean losses since the last log line.

        Raises:
            InputError: samples are asked of a model that does not speak.
            DataError: nothing in the data can be used, or too many steps in a row were bad.
            CheckpointError: the run cannot be resumed, or its last checkpoint not be written.
        """
        frames = max_batch_frames or batch_size * max_duration
        carry = self.speed.compile != "off"  # one shape a bucket
        self.batching = {"batch_size": batch_size, "max_frames": frames, "longest": max_duration}
        c = self.config
        plan = BatchPlan(
            batch_size,
            frames,
            max_duration,
            c.buckets,
            carry=carry,
            pair_mb=c.pair_mb,
            multiple=self.core.multiple(),
        )
        on_sample = listener(self, on_sample)
        with StopSignals(self):
            state.resume(self, resume)
            self.say(report(self.accelerator.num_processes, self.accelerator.device))
            self.say(
                f"{self.accelerator.num_processes} x {self.accelerator.device.type}, each with "
                f"batches of up to {plan.batch_size} samples and {plan.max_frames} frames"
            )
            log = Log(self, total_steps, HeldOut(self, plan) if self.log_config.held_out else None)
            batches = iter(self.loader(train_dataset, plan, num_workers, cache_bytes))
            deadline = time.monotonic() + 60 * minutes if minutes else math.inf
            self.since = time.monotonic() - self.elapsed_before
            saved = self.step
            agreement = Agreement(self)
            self.model.train()
            try:
                while self.step < total_steps and not agreement.stop(time.monotonic() >= deadline):
                    self.optimizer_step(batches, total_steps, log)
                    every = self.log_config.sample_every
                    if on_sample and every and self.step % every == 0:
                        self.sample(on_sample)
                    if self.step % save_step == 0 and self.step < total_steps:
                        self.save(self.config.export == "all")
                        saved = self.step
            except KeyboardInterrupt:
                self.say(f"stopped in the middle of step {self.step + 1}")
                raise
            finally:
                means = log.close()
            self.save_last(saved)
            del batches  # ends the loader's workers while a signal is still nothing to fear
        self.accelerator.end_training()
        return means

    def save_last(self, saved: int) -> None:
        """Writes the checkpoint that a run ends with, if its last one is of an earlier step.

        Raises:
            CheckpointError: it could not be written.
        """
        if isinstance(self.stopping, str):
            self.say(f"{self.stopping} at step {self.step}: saving, then stopping")
        self.checkpoints.wait()
        if self.parallel.broadcast(self.step > saved or not self.checkpoints.newest()):
            self.save(self.config.export != "never")
        if not self.checkpoints.wait():
            raise CheckpointError(
                f"the last checkpoint, of step {self.step}, could not be written to "
                f"{self.run_dir}: see above"
            )

    def sample(self, on_sample: Callable[[Trainer], None]) -> None:
        """Lets the run be heard; what goes wrong there does not end it."""
        try:
            on_sample(self)
        except Exception as e:
            self.say(f"no samples at step {self.step}: {type(e).__name__}: {e}")
        self.parallel.gather(None)  # the others wait here for the one that speaks
        self.model.train()

    def optimizer_step(self, batches: Any, total_steps: int, log: Log) -> None:
        """One optimiser step over `accumulate` micro-batches; it never waits for the device."""
        c = self.config
        total = steps_in_all(self.step, self.time_fraction, total_steps)
        log.bar.total = round(total)
        self.core.begin_step(self.step, total)
        speed.begin_step()
        active = self.core.active_phases()
        factor = lr_factor(self.step, self.warmup, total, c.schedule, c.decay_fraction)
        self.set_rates(factor)
        found = [self.next_batch(batches) for _ in range(c.accumulate)]
        means = StepMeans(self, found, active)
        # dropout's draws depend on step and data alone, so there is no state to lose
        torch.manual_seed((c.seed * 1_000_003 + self.step) * 4096 + self.parallel.data_rank)
        for micro, batch in enumerate(found):
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
        self.step += 1
        self.ema.update(self.step)
        log.step(norms[0], self.optimizers[0].param_groups[0]["lr"])

    def set_rates(self, factor: float) -> None:
        """Sets every group's rate: its peak, scaled by the schedule and the phase."""
        for optimizer, rates, phase in zip(self.optimizers, self.rates, self.phase_of):
            for rate, group in zip(rates, optimizer.param_groups):
                group["lr"] = rate * factor * self.core.rate(phase)

    def update(self, phase: str) -> torch.Tensor:
        """Moves the parameters of a phase, unless their gradient is bad. Returns its norm."""
        mine = [o for o, p in zip(self.optimizers, self.phase_of) if p == phase]
        if self.accelerator.scaler is not None:  # fp16: what overflows is a bad step like others
            for optimizer in mine:
                self.accelerator.scaler.unscale_(optimizer)
        norm = self.parallel.grad_norm(self.phases[phase])
        most = self.config.max_grad_norm
        factor = clip_factor(norm, most) if most else None
        guarded_step(mine, self.guards[phase].check(norm), factor)
        return norm

    def next_batch(self, batches: Any) -> Any:
        """The next batch with something in it."""
        begun = time.monotonic()
        while True:
            try:
                loaded: Loaded = next(batches)
            except StopIteration as e:
                raise DataError("the data ended; it should be re-iterable") from e
            self.places[loaded.worker] = loaded.place
            self.consumed += 1
            self.skipped += loaded.skipped
            if loaded.batch is not None:
                self.data_wait += time.monotonic() - begun
                return loaded.batch

    def save(self, export: bool = True) -> None:
        """Begins to write a checkpoint; with `export` also the weights alone."""
        self.checkpoints.save(self.step, *state.pack(self), state.export(self) if export else None)

    def weights(self, kind: str = "ema") -> dict[str, torch.Tensor]:
        """Whole "model" or "ema" weights on the main process's CPU; every process must call."""
        tensors = self.ema.state_dict() if kind == "ema" else self.core.state_dict()
        return self.parallel.full_state(tensors)


class NanospeechTrainer(Trainer):
    """Trains the speech model; see Trainer."""


class DurationTrainer(Trainer):
    """Trains the duration model; see Trainer."""

    default_run = "runs/duration"


class VocoderTrainer(Trainer):
    """Trains the vocoder and its discriminators; see Trainer."""

    default_run = "runs/vocoder"
