"""Trainer: the one loop, on Hugging Face Accelerate, for speech, duration and vocoder models.

Losses are in objectives/, batches in data/, how processes share a model in scale/parallel.py, what
a checkpoint holds in state.py. The run's position is a RunState, which only the Trainer changes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from nanospeech.errors import CheckpointError, DataError, InputError
from nanospeech_torch.train.data.batches import BatchPlan, Loaded, StreamOptions
from nanospeech_torch.train.data.loader import make_loader
from nanospeech_torch.train.data.sources import make_source
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.optimizers import steps_in_all
from nanospeech_torch.train.run_state import RunState
from nanospeech_torch.train.scale.launch import report, slow_precision
from nanospeech_torch.train.scale.parallel import check_group

from . import state
from .accelerator import make_accelerator
from .checkpoints import Checkpoints
from .config import TrainerOptions, TrainOptions
from .digest import digest
from .held_out import HeldOut, tell_shared
from .learner import Learner
from .log import Log, LogOptions
from .samples import SpokenSamples
from .settings import vocab_of
from .signals import Agreement, StopSignals

__all__ = ["DurationTrainer", "EchoTrainer", "NanospeechTrainer", "Trainer", "VocoderTrainer"]


class Trainer(Learner):
    """Trains an objective: Nanospeech, Echo, DurationPredictor, VocoderGAN or another one.

    Args:
        model: the objective; it returns sums and counts of losses for a batch.
        optimizer: one or several torch optimizers over its parameters; their rates are the peaks.
        num_warmup_steps: optimiser steps to the peak.
        accelerate_kwargs: for accelerate.Accelerator, for example {"mixed_precision": "bf16"}.
        run_dir: where checkpoints and log.csv go.
        options: all other settings.
        settings: instead of `options`, its fields by name (config, parallel, speed, log, run), and
            those of TrainConfig.

    Attributes:
        state: the run's position; changed here only.

    Raises:
        InputError: settings of the processes and the model that cannot be combined.
    """

    default_run = "runs/nanospeech"

    def __init__(
        self,
        model: Objective,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        num_warmup_steps: int = 1000,
        accelerate_kwargs: dict[str, Any] | None = None,
        run_dir: str | Path | None = None,
        options: TrainerOptions | None = None,
        **settings: Any,
    ):
        options = options or TrainerOptions.of(**settings)
        self.log_config, self.run = options.log, options.run
        self.run_dir = Path(run_dir or self.default_run)
        accelerator = make_accelerator(accelerate_kwargs or {}, options.log, self.run_dir)
        super().__init__(model, optimizer, num_warmup_steps, accelerator, options)
        keep, several = self.config.keep, self.parallel.world > 1
        self.checkpoints = Checkpoints(self.run_dir, keep, several, self.say)
        self.parts = state.RunParts(model, self.ema, self.guards, self.memories, self.parallel)
        self.state = RunState()
        self.saved_places: state.Ranks | None = None  # of the checkpoint that was resumed from
        self.saved = 0  # the step of the last checkpoint
        self.batching: dict[str, int] = {}

    @property
    def step(self) -> int:
        """Optimiser steps taken."""
        return self.state.step

    def seconds(self) -> float:
        """Time in train() since the run began, that of earlier processes included."""
        return self.state.seconds()

    def request_stop(self, reason: str = "") -> bool:
        """Asks the run to end after its step, with a checkpoint.

        Args:
            reason: printed when it ends; the name of a signal.

        Returns:
            Whether it was asked to before.
        """
        before = bool(self.state.stop_request)
        self.state.stop_request = reason or True
        return before

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Within the context signals ask the run to stop; the next call of train() goes on."""
        with StopSignals(self.request_stop):
            try:
                yield
            finally:
                self.state.stop_request = False

    def say(self, text: str) -> None:
        """Prints, once for all processes and machines, above the progress bar."""
        if self.accelerator.process_index == 0:
            tqdm.write(text)

    def model_config(self) -> dict[str, Any]:
        """Values for converters: config.json's sections."""
        return self.core.model_config()

    def vocab(self) -> list[str]:
        """The tokenizer's tokens, if it has a vocabulary."""
        return vocab_of(self.core.tokenizer)

    def settings(self) -> dict[str, Any]:
        """The resolved config of the run, as plain values."""
        found = dict(self.run) or {
            "train": asdict(self.config),
            "speed": asdict(self.speed),
            "parallel": asdict(self.parallel.config),
            "mixed_precision": self.accelerator.mixed_precision,
            "optimizer": [
                {"kind": type(m.optimizer).__name__, "rates": rates, **m.configured}
                for m, rates in zip(self.memories, self.rates)
            ],
            "loss": asdict(self.core.loss),
            "data": self.batching,
            "warmup_steps": self.warmup,
            "model": self.model_config(),
        }
        found["mixed_precision"] = self.accelerator.mixed_precision  # the config may leave it open
        return json.loads(json.dumps(found))

    def described(self) -> dict[str, Any]:
        """Values for converters beside the weights."""
        config, vocab, run = self.model_config(), self.vocab(), self.settings()
        return {"step": self.step, "config": config, "vocab": vocab, "run": run}

    def loader(self, dataset: Any, plan: BatchPlan, workers: int, cache_bytes: int) -> Any:
        """This process's batches of a dataset, from the run's position on."""
        source, s, p, c = make_source(dataset), self.state, self.parallel, self.config
        if self.saved_places:
            streams = max(1, workers)
            s.places, same, before = self.saved_places.resume(
                len(source), c.seed, p.data_rank, p.data_world, streams
            )
            if not same:
                s.consumed = 0
                self.say(
                    f"the data was read by {before} streams and is now read by "
                    f"{p.data_world * streams}: what they had left was dealt out again, "
                    "nothing is repeated or skipped"
                )
            self.saved_places = None
        stream = StreamOptions(
            seed=c.seed,
            rank=p.data_rank,
            world=p.data_world,
            places=s.places,
            consumed=s.consumed,
            cache_bytes=cache_bytes,
            shuffle_buffer=c.shuffle_buffer,
        )
        pin = self.accelerator.device.type == "cuda"
        return make_loader(self.core.batches(source, plan, stream), workers, pin)

    def resume(self, how: str) -> None:
        """Resumes from a checkpoint, or begins a run; see state.resume.

        Raises:
            InputError: a run is to begin with weights that are trained.
        """
        if how == "never" and self.step:
            raise InputError(
                f"this trainer has taken {self.step} steps, and resume='never' begins a run: make "
                "a new model, optimizer and trainer for it, or leave resume out to go on"
            )
        if found := state.resume(how, self.parts, self.checkpoints, self.settings(), self.say):
            s, self.saved_places = self.state, found.ranks
            s.step, s.elapsed_before, s.consumed = found.step, found.elapsed_before, found.consumed

    def new_log(self, total_steps: int, held_out: HeldOut | None = None) -> Log:
        """The log of a run of so many steps."""
        where = self.log_config, self.run_dir, self.config.log_every
        options = LogOptions(*where, self.speed.compile != "off", self.settings, self.say)
        # a run that the clock ends knows its steps after the first one
        total = total_steps if self.config.minutes is None else None
        return Log(options, self.core, self.parallel, self.state, self.guards, total, held_out)

    def held_out(self, plan: BatchPlan) -> HeldOut | None:
        """The held-out batches, if log.held_out names shards."""
        files = self.log_config.held_out
        return HeldOut(files, plan, self.core, self.ema, self.parallel) if files else None

    def train(
        self,
        train_dataset: Any,
        total_steps: int,
        batch_size: int = 12,
        max_batch_frames: int | None = None,
        max_duration: int = 937,
        num_workers: int = 0,
        save_step: int = 10_000,
        **more: Any,
    ) -> dict[str, float]:
        """Runs until total_steps optimiser steps.

        Args:
            train_dataset: paths or URLs of WebDataset tars, a streaming datasets.IterableDataset,
                or any re-iterable of samples.
            total_steps: of the run, those before a resumption included.
            batch_size, max_batch_frames, max_duration, num_workers, save_step: see TrainOptions.
            more: its other fields: resume, cache_bytes, minutes, on_sample.

        Returns:
            The mean losses since the last log line.

        Raises:
            InputError: samples of a model that does not speak, another run is in run_dir, a used
                trainer is to begin anew, or one of several processes has ended here.
            DataError: nothing in the data can be used, or too many steps in a row were bad.
            CheckpointError: the run cannot be resumed, or its last checkpoint not be written.
        """
        limits = batch_size, max_batch_frames, max_duration, num_workers, save_step
        return self.train_with(train_dataset, total_steps, TrainOptions(*limits, **more))

    def train_with(
        self, train_dataset: Any, total_steps: int, options: TrainOptions
    ) -> dict[str, float]:
        """Implements train(), with its settings as one object."""
        o = options
        plan = o.plan(self.config, self.speed.compile != "off", self.core.multiple())
        self.batching = plan.limits()
        on_sample = o.on_sample or self.spoken_samples()
        check_group(self.parallel.world)
        with self.stoppable(), self.checkpoints.alone():
            self.resume(o.resume)
            accelerator = self.accelerator
            self.say(report(accelerator.num_processes, accelerator.device))
            if hint := slow_precision(accelerator.mixed_precision, accelerator.device):
                self.say(hint)
            self.say(
                f"{accelerator.num_processes} x {accelerator.device.type}, each with "
                f"batches of up to {plan.batch_size} samples and {plan.max_frames} frames"
            )
            tell_shared(self.log_config.held_out, train_dataset, self.say)
            log = self.new_log(total_steps, self.held_out(plan))
            deadline = math.inf if o.minutes is None else time.monotonic() + 60 * o.minutes
            self.saved = self.step
            agreement = Agreement(self.parallel, self.step)
            self.model.train()
            try:
                batches = iter(self.loader(train_dataset, plan, o.num_workers, o.cache_bytes))
                self.state.since = time.monotonic() - self.state.elapsed_before
                while self.step < total_steps and not self.stops(agreement, deadline):
                    self.optimizer_step(batches, total_steps, log)
                    every = self.log_config.sample_every
                    if on_sample and every and self.step % every == 0:
                        with log.aside():
                            self.sample(on_sample)
                    if self.step % o.save_step == 0 and self.step < total_steps:
                        self.save(self.config.export == "all")
                        self.saved = self.step
                with self.good_steps_saved():
                    log.finish()
            except KeyboardInterrupt:
                self.say(f"stopped in the middle of step {self.step + 1}")
                raise
            finally:
                means = log.close()
            self.save_last()
            del batches  # ends the loader's workers while signals are still handled
        log.end_trackers()
        self.accelerator.end_training()
        return means

    def stops(self, agreement: Agreement, deadline: float) -> bool:
        """Whether the run ends before another step: it was asked to, or its time is up."""
        s, minutes = self.state, self.config.minutes
        fraction = s.seconds() / (60 * minutes) if minutes else 0.0
        wanted = time.monotonic() >= deadline or bool(s.stop_request)
        stop = agreement.stop(s.step, wanted, fraction)
        s.time_fraction = agreement.fraction
        return stop

    def spoken_samples(self) -> Callable[[Any], None] | None:
        """The function that speaks log.sentences; None without samples.

        Raises:
            InputError: the model does not speak.
        """
        if not self.log_config.sample_every:
            return None
        samples = SpokenSamples(self.log_config, self.core, self.run_dir)

        def speak(trainer: Any) -> None:
            # every process takes part in putting the weights together
            saved = state.weights(self.parts, self.described(), averaged_only=True)
            if saved is not None:
                samples.save(saved, self.step, self.accelerator.trackers)

        return speak

    def save_last(self) -> None:
        """Writes the checkpoint that a run ends with, if its last one is of an earlier step.

        Raises:
            CheckpointError: it could not be written.
        """
        if isinstance(reason := self.state.stop_request, str):
            self.say(f"{reason} at step {self.step}: saving, then stopping")
        self.checkpoints.wait()
        if self.parallel.broadcast(self.step > self.saved or not self.checkpoints.newest()):
            self.save(self.config.export != "never")
        if not self.checkpoints.wait():
            raise CheckpointError(
                f"the last checkpoint, of step {self.step}, could not be written to "
                f"{self.run_dir}: see above"
            )

    def sample(self, on_sample: Callable[[Trainer], None]) -> None:
        """Makes samples; an error there does not end the run."""
        try:
            on_sample(self)
        except Exception as e:
            self.say(f"no samples at step {self.step}: {type(e).__name__}: {e}")
        self.parallel.gather(None)  # the others wait here for the main process
        self.model.train()

    def optimizer_step(self, batches: Any, total_steps: int, log: Log) -> None:
        """One optimiser step over `accumulate` micro-batches, without a device synchronisation."""
        total = steps_in_all(self.step, self.state.time_fraction, total_steps)
        log.bar.total = round(total) if self.step or self.config.minutes is None else None
        norm = self.learn(self.next_batches(batches), self.step, total, log)
        self.state.step += 1
        self.ema.update(self.step)
        with self.good_steps_saved():
            log.step(norm, self.optimizers[0].param_groups[0]["lr"])

    @contextmanager
    def good_steps_saved(self) -> Iterator[None]:
        """Saves what was learnt before an error of the log, that there are too many bad steps."""
        try:
            yield
        except DataError:  # for all processes
            since = self.step - self.saved
            if any(int(guard.streak) < since for guard in self.guards.values()):
                self.save_before(f"no good steps any more at step {self.step}")
            raise

    def next_batches(self, batches: Any) -> list[Any]:
        """A step's micro-batches; where the data fail, in any process, all save what they have."""
        s = self.state
        before = s.places.copy(), s.consumed, s.skipped.copy()
        found, error = [], None
        try:
            found = [self.next_batch(batches) for _ in range(self.config.accumulate)]
        except Exception as e:
            error = e
        # none may begin a step, in which it would wait for the others for ever
        seen = digest(found) if self.parallel.tensor > 1 else 0
        if (error := self.parallel.first_error(error, seen)) is None:
            return found
        s.places, s.consumed, s.skipped = before
        if self.step > self.saved:
            self.save_before(f"no data after step {self.step} ({error})")
        raise error

    def save_before(self, end: str) -> None:
        """Saves what was trained before an error ends the run in all processes."""
        self.say(f"{end}: saving first")
        self.save(self.config.export != "never")
        self.checkpoints.wait()

    def next_batch(self, batches: Any) -> Any:
        """The next non-empty batch."""
        begun = time.monotonic()
        while True:
            try:
                loaded: Loaded = next(batches)
            except StopIteration as e:
                raise DataError("the data ended; it should be re-iterable") from e
            self.state.places[loaded.worker] = loaded.place
            self.state.consumed += 1
            self.state.skipped += loaded.skipped
            if loaded.batch is not None:
                self.state.data_wait += time.monotonic() - begun
                return loaded.batch

    def save(self, export: bool = True) -> None:
        """Begins to write a checkpoint; with `export` also the weights alone."""
        described = self.described()
        packed = state.pack(self.parts, self.state, described)
        weights = state.export(self.parts, described) if export else None
        self.checkpoints.save(self.step, *packed, weights)

    def weights(self, kind: str = "ema") -> dict[str, torch.Tensor]:
        """Whole "model" or "ema" weights on the main process's CPU; every process must call."""
        return self.parts.whole(kind)


class NanospeechTrainer(Trainer):
    """Trains the speech model; see Trainer."""


class DurationTrainer(Trainer):
    """Trains the duration model; see Trainer."""

    default_run = "runs/duration"


class EchoTrainer(Trainer):
    """Trains an EchoDiT; see Trainer."""

    default_run = "runs/echo"


class VocoderTrainer(Trainer):
    """Trains the vocoder and its discriminators; see Trainer."""

    default_run = "runs/vocoder"
