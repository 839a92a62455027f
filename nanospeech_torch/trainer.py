"""Trainer: the loop, on Hugging Face Accelerate. Losses are in flow.py, batches in data.py."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from nanospeech.config import option
from nanospeech.errors import CheckpointError, DataError, InputError, require

from .data import BatchPlan, Loaded, Place, SpeechBatches
from .flow import DurationPredictor, Nanospeech
from .optim import EMA, SCHEDULES, lr_factor
from .runlog import Log
from .sources import Strided, undecoded


@dataclass(frozen=True)
class TrainConfig:
    """The loop's settings that have nothing to do with a single call of train()."""

    schedule: str = option("linear", "after warm-up: linear or cosine to 0, constant, or wsd")
    decay_fraction: float = option(0.2, "share of the steps in which wsd decays to 0")
    ema_decay: float = option(0.9999, "of the averaged weights, per optimiser step")
    max_grad_norm: float = option(1.0, "gradients are scaled down to this norm")
    accumulate: int = option(1, "micro-batches per optimiser step")
    log_every: int = option(50, "steps between log lines")
    keep: int = option(3, "checkpoints kept; older ones are deleted")
    shuffle_buffer: int = option(2000, "samples held to shuffle a stream")
    seed: int = option(0, "of data order, draws and dropout")
    buckets: int = option(8, "padded lengths that batches may have")

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise InputError(f"schedule {self.schedule!r}; choose from {', '.join(SCHEDULES)}")


class Trainer:
    """Trains a Nanospeech or DurationPredictor.

    Args:
        model: returns sums and counts of losses for a Batch.
        optimizer: any torch optimizer over the model's parameters; its rate is the peak.
        num_warmup_steps: optimiser steps to the peak.
        accelerate_kwargs: for accelerate.Accelerator, for example {"mixed_precision": "bf16"}.
        run_dir: where checkpoints and log.csv go.
        config: loop settings.
    """

    default_run = "runs/nanospeech"

    def __init__(
        self,
        model: Nanospeech | DurationPredictor,
        optimizer: torch.optim.Optimizer,
        num_warmup_steps: int = 1000,
        accelerate_kwargs: dict[str, Any] | None = None,
        run_dir: str | Path | None = None,
        config: TrainConfig | None = None,
        **settings: Any,
    ):
        accelerate = require("accelerate", "train")
        self.config = config or TrainConfig(**settings)
        self.run_dir = Path(run_dir or self.default_run)
        kwargs = {"gradient_accumulation_steps": 1, **(accelerate_kwargs or {})}
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.accelerator.is_available():
            kwargs.setdefault("cpu", True)  # else each process would train on its own
        kwargs.setdefault(
            "kwargs_handlers",
            [accelerate.DistributedDataParallelKwargs(find_unused_parameters=False)],
        )
        self.accelerator = accelerate.Accelerator(**kwargs)
        self.core = model
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.warmup = num_warmup_steps
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.ema = EMA(model, self.config.ema_decay)
        self.step = self.consumed = 0
        self.places: dict[int, Place] = {}
        self.skipped: Counter = Counter()

    def model_config(self) -> dict[str, Any]:
        """What a converter needs to know of this model: config.json's sections."""
        part = "dit" if isinstance(self.core, Nanospeech) else "duration"
        tokenizer = self.core.tokenizer
        return {
            part: asdict(self.core.transformer.config),
            "audio": asdict(self.core.audio),
            "tokenizer": getattr(tokenizer, "kind", "chars"),
        }

    def vocab(self) -> list[str]:
        """The tokenizer's tokens, as far as it tells them."""
        tokenizer: Any = self.core.tokenizer
        if hasattr(tokenizer, "vocab"):
            return list(tokenizer.vocab)
        return list(getattr(tokenizer, "keywords", {}).get("vocab", {}))

    def loader(self, dataset: Any, plan: BatchPlan, workers: int, cache_bytes: int) -> DataLoader:
        """This process's batches of a dataset, from where the run stands."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        tokenizer: Any = self.core.tokenizer
        if tokenizer is None:
            raise InputError("the model has no tokenizer; build it with tokenizer=...")
        if hasattr(dataset, "cast_column"):
            dataset = undecoded(dataset)
            if hasattr(dataset, "to_iterable_dataset"):  # not a stream: deal it out as one
                dataset = dataset.to_iterable_dataset(min(len(dataset), world * max(1, workers)))
            dataset = dataset.shuffle(self.config.seed, buffer_size=self.config.shuffle_buffer)
            workers = min(workers, max(1, dataset.n_shards // world))
            if world > 1:
                from datasets.distributed import split_dataset_by_node

                dataset = split_dataset_by_node(dataset, rank, world)
        else:
            workers = min(workers, 1)  # each would read all of it
            dataset = Strided(dataset, rank, world) if world > 1 else dataset
        if len(self.places) > max(1, workers):
            workers = len(self.places)
        batches = SpeechBatches(
            dataset,
            tokenizer,
            plan,
            self.core.audio,
            self.core.loss,
            self.config.seed,
            cache_bytes,
            self.places,
            self.consumed,
            getattr(self.core.transformer.config, "edge", ""),
        )
        return DataLoader(
            batches,
            batch_size=None,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
            # the other ways to start a process run an unguarded training script once more in it
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            pin_memory=self.accelerator.device.type == "cuda",
        )

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
    ) -> dict[str, float]:
        """Runs until total_steps optimiser steps.

        Args:
            train_dataset: a streaming datasets.IterableDataset of shards, or any re-iterable.
            batch_size: most samples a batch, on each process.
            max_batch_frames: most padded mel frames a batch; batch_size * max_duration if None.
            max_duration: longest sample, in mel frames (93.75 a second).
            num_workers: processes that decode, at most one for each shard of this process (a plain
                iterable is one shard).
            save_step: steps between checkpoints.
            resume: "auto" goes on from the newest checkpoint of run_dir, "never" starts afresh, a
                path goes on from that file.
            cache_bytes: memory for decoded mels, for each worker.
            minutes: stop and save after this many minutes (several processes: at the next log
                line).

        Returns:
            The mean losses since the last log line.
        """
        plan = BatchPlan(
            batch_size,
            max_batch_frames or batch_size * max_duration,
            max_duration,
            self.config.buckets,
        )
        self.resume(resume)
        self.accelerator.print(
            f"{self.accelerator.num_processes} x {self.accelerator.device.type}, each with batches "
            f"of up to {plan.batch_size} samples and {plan.max_frames} frames"
        )
        self.accelerator.init_trackers("nanospeech", config=asdict(self.config))
        log = Log(self, total_steps)
        stream = iter(self.loader(train_dataset, plan, num_workers, cache_bytes))
        deadline = time.monotonic() + 60 * minutes if minutes else math.inf
        self.model.train()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # save, as for Ctrl-C
        try:
            while self.step < total_steps and not self.late(deadline):
                self.optimizer_step(stream, total_steps, log)
                if self.step % save_step == 0 and self.step < total_steps:
                    self.save()
        except KeyboardInterrupt:
            self.accelerator.print(f"interrupted at step {self.step}; saving")
        self.save()
        means = log.close()
        self.accelerator.end_training()
        return means

    def late(self, deadline: float) -> bool:
        """Whether time is up; processes agree on it at log steps, as one alone would hang."""
        now = time.monotonic() >= deadline
        if self.accelerator.num_processes == 1:
            return now
        if deadline == math.inf or self.step % self.config.log_every:
            return False
        vote = torch.tensor(float(now), device=self.accelerator.device)
        return bool(self.accelerator.reduce(vote, reduction="sum") > 0)

    def optimizer_step(self, stream: Any, total_steps: int, log: Log) -> None:
        """One optimiser step over `accumulate` micro-batches."""
        c = self.config
        factor = lr_factor(self.step, self.warmup, total_steps, c.schedule, c.decay_fraction)
        for rate, group in zip(self.rates, self.optimizer.param_groups):
            group["lr"] = rate * factor
        # dropout's draws depend on step and process alone, so there is no state to save
        torch.manual_seed((c.seed * 1_000_003 + self.step) * 4096 + self.accelerator.process_index)
        for micro in range(c.accumulate):
            batch = self.next_batch(stream).to(self.accelerator.device)
            last = micro == c.accumulate - 1
            with self.accelerator.no_sync(self.model) if not last else contextlib.nullcontext():
                with self.accelerator.autocast():
                    sums = self.model(batch)
                loss, means = self.reduce(sums)
                self.accelerator.backward(loss / c.accumulate)
            log.add(means, batch)
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), c.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.ema.update(self.step)
        log.step(norm, factor * self.rates[0])

    def reduce(self, sums: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss whose gradient, averaged over processes, is that of the global batch's mean."""
        world = self.accelerator.num_processes
        counts = torch.stack([n.float() for _, n in sums.values()])
        totals = torch.stack([s.detach().float() for s, _ in sums.values()])
        if world > 1:
            both = self.accelerator.reduce(torch.stack([counts, totals]), reduction="sum")
            counts, totals = both[0], both[1]
        weights = self.core.weights()
        loss = sum(
            weights[name] * world * total / counts[i].clamp(min=1)
            for i, (name, (total, _)) in enumerate(sums.items())
        )
        means = {name: totals[i] / counts[i].clamp(min=1) for i, name in enumerate(sums)}
        return loss, means  # type: ignore[return-value]

    def next_batch(self, stream: Any) -> Any:
        """The next batch with something in it."""
        while True:
            try:
                loaded: Loaded = next(stream)
            except StopIteration as e:
                raise DataError("the dataset has fewer shards than there are processes") from e
            self.places[loaded.worker] = loaded.place
            self.consumed += 1
            self.skipped += loaded.skipped
            if loaded.batch is not None:
                return loaded.batch

    def save(self) -> Path | None:
        """Writes run_dir/step_N.pt, whole or not at all, and deletes the oldest beyond `keep`."""
        place = {w: (p.epoch, p.batch) for w, p in self.places.items()}
        places = [(place, self.consumed)]
        if self.accelerator.num_processes > 1:
            from accelerate.utils import gather_object

            places = gather_object(places)
        path = self.run_dir / f"step_{self.step:08d}.pt"
        if self.accelerator.is_main_process:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            state = {
                "model_state_dict": self.core.state_dict(),
                "ema_state_dict": self.ema.state_dict(),
                "optimizer_state_dict": self.optimizer.state_dict(),
                "step": self.step,
                "places": places,
                "config": self.model_config(),
                "vocab": self.vocab(),
            }
            part = path.with_suffix(".part")
            torch.save(state, part)
            os.replace(part, path)
            for old in sorted(self.run_dir.glob("step_*.pt"))[: -self.config.keep]:
                old.unlink()
        self.accelerator.wait_for_everyone()
        return path

    def resume(self, resume: str) -> None:
        """Loads the state to go on from, and says so."""
        found = sorted(self.run_dir.glob("step_*.pt")) if resume == "auto" else []
        if resume not in ("auto", "never"):
            found = [Path(resume)]
        if not found:
            self.accelerator.print(f"starting a new run in {self.run_dir}")
            return
        try:
            state = torch.load(found[-1], map_location="cpu", weights_only=True)
            self.core.load_state_dict(state["model_state_dict"])
            self.ema.load_state_dict(state["ema_state_dict"])
            self.optimizer.load_state_dict(state["optimizer_state_dict"])
        except (OSError, RuntimeError, KeyError, ValueError) as e:
            raise CheckpointError(
                f"cannot go on from {found[-1]}: {e}; to start afresh, move the folder "
                f"{self.run_dir} away or pass resume='never'"
            ) from e
        self.step = state["step"]
        places, rank = state["places"], self.accelerator.process_index
        if len(places) == self.accelerator.num_processes:
            place, self.consumed = places[rank]
            self.places = {w: Place(*p) for w, p in place.items()}
        else:
            epoch = min((e for place, _ in places for e, _ in place.values()), default=0)
            self.places = {0: Place(epoch, 0)}
            self.accelerator.print(
                f"{len(places)} processes saved, {self.accelerator.num_processes} go on: "
                f"the data starts at epoch {epoch} again"
            )
        self.accelerator.print(f"going on from {found[-1]} at step {self.step}")


class NanospeechTrainer(Trainer):
    """Trains the speech model; see Trainer."""


class DurationTrainer(Trainer):
    """Trains the duration model; see Trainer."""

    default_run = "runs/duration"
