"""Run log: progress bar, log.csv and trackers of a training run. Decides nothing."""

from __future__ import annotations

import contextlib
import csv
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from nanospeech.errors import InputError
from nanospeech.files import whole
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.guards import Guard
from nanospeech_torch.train.run_state import RunState
from nanospeech_torch.train.scale import profile, speed
from nanospeech_torch.train.scale.parallel import Parallel

from .config import LogConfig
from .held_out import HeldOut
from .settings import flat


@dataclass(frozen=True)
class LogOptions:
    """Settings of a run's log.

    Attributes:
        config: the log's settings.
        folder: of the run, for log.csv.
        log_every: steps between lines.
        compiled: whether the model is compiled, and its graphs are counted.
        settings: gives the run's, nested, for the trackers.
        say: prints a line, once for all processes.
    """

    config: LogConfig
    folder: Path
    log_every: int
    compiled: bool
    settings: Callable[[], Mapping[str, Any]]
    say: Callable[[str], None]


class Log:
    """Progress bar, log.csv and trackers; synchronises with the device only every log_every steps.

    Args:
        options: see LogOptions.
        objective, parallel, guards: for the figures.
        state: the run's, which is only read.
        total: steps of the run; None where they are not known yet.
        held_out: for held-out losses, or None.
    """

    def __init__(
        self,
        options: LogOptions,
        objective: Objective,
        parallel: Parallel,
        state: RunState,
        guards: Mapping[str, Guard],
        total: int | None,
        held_out: HeldOut | None = None,
    ):
        self.options, self.objective, self.parallel = options, objective, parallel
        self.state, self.guards, self.held_out = state, guards, held_out
        self.config, self.accelerator = options.config, parallel.accelerator
        self.main = self.accelerator.is_main_process
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: Counter = Counter()
        self.steps = self.frames = self.flops = 0
        self.newest: tuple[torch.Tensor, float] | None = None  # norm and rate of the last step
        self.epoch: int | None = None
        self.last: dict[str, float] = {}
        self.reported: Counter = Counter(state.skipped)
        self.waited = state.data_wait
        self.skipped_total: Counter = Counter()  # of an epoch, in all processes
        self.left_out: Counter = Counter()  # the same since this log began
        self.log_failed = False
        self.untracked: set[str] = set()  # trackers that have failed
        precision = self.accelerator.mixed_precision
        if self.main:  # where it is measured, before training starts
            profile.peak_flops(self.accelerator.device, precision)
        self.start_trackers()
        self.bar = tqdm(
            total=total, initial=state.step, unit="step", disable=not self.main, dynamic_ncols=True
        )
        self.since = self.start = time.monotonic()

    def start_trackers(self) -> None:
        """Starts Accelerate's trackers with the run's settings."""
        accelerator, folder = self.accelerator, self.options.folder
        if not accelerator.log_with:
            return
        plain = (int, float, str, bool)
        settings = flat(self.options.settings()).items()
        config = {k: v if isinstance(v, plain) else str(v) for k, v in settings}
        name = self.config.name or folder.name
        names = {getattr(k, "value", str(k)) for k in accelerator.log_with}
        options: dict[str, Any] = {k: {"name": name} for k in names & {"wandb", "trackio"}}
        if self.main and "wandb" in options:
            folder.mkdir(parents=True, exist_ok=True)
            options["wandb"]["dir"] = str(folder)
        try:
            accelerator.init_trackers(self.config.project, config=config, init_kwargs=options)
        except Exception as e:  # trackers raise errors of any type
            raise InputError(
                f"log.trackers {', '.join(sorted(names))} could not start: {e}; log in there, or "
                "leave it out of log.trackers"
            ) from e

    def each_tracker(self, work: Callable[[Any], object]) -> None:
        """Does something with each tracker; a server out of reach must not end the run."""
        for tracker in self.accelerator.trackers:
            try:
                work(tracker)
            except Exception as e:  # trackers raise errors of any type
                if tracker.name not in self.untracked:
                    self.options.say(f"{tracker.name} has failed: {e}; the run goes on without it")
                self.untracked.add(tracker.name)

    def end_trackers(self) -> None:
        """Has the trackers write what they hold, and lets go of them."""
        self.each_tracker(lambda tracker: tracker.finish())
        self.accelerator.trackers = []

    def add(self, means: dict[str, torch.Tensor]) -> None:
        """Adds up a micro-batch's losses on the device."""
        for name, value in means.items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()
            self.counts[name] += 1

    def count(self, batch: Any) -> None:
        """Counts a micro-batch's frames and operations from its shape."""
        rows, frames = batch.mel.shape[:2]
        self.frames += rows * frames
        self.flops += self.objective.flops(batch)

    def step(self, norm: torch.Tensor, rate: float) -> None:
        """Counts an optimiser step."""
        self.steps += 1
        self.newest = norm, rate
        self.bar.update()
        due = self.held_out is not None and self.state.step % self.config.held_out_every == 0
        if due or self.state.step % self.options.log_every == 0:
            self.write(norm, rate, due)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves out of the speed, and of what is made of it, the time that samples take."""
        began = time.monotonic()
        yield
        self.since += time.monotonic() - began

    def finish(self) -> None:
        """Writes a line of the steps since the last one; every process calls it, once a run ends.

        So a run that is shorter than log_every, or was stopped between two lines, has its losses.
        """
        if self.steps and self.newest is not None:
            self.write(*self.newest)

    def means(self) -> dict[str, float]:
        """Mean losses since the last line."""
        return {name: float(v) / self.counts[name] for name, v in self.sums.items()}

    def write(self, norm: torch.Tensor, rate: float, measure: bool = False) -> None:
        """One line of figures; with `measure`, those of held-out speech too."""
        state, device = self.state, self.accelerator.device
        self.last = self.means()
        bad = sum(guard.report()["skipped"] for guard in self.guards.values())
        now = time.monotonic()
        span, world = now - self.since, self.parallel.data_world
        speed_now = self.frames * world / span
        row = {
            "step": state.step,
            **{k: round(v, 5) for k, v in self.last.items()},
            "grad_norm": round(float(norm), 4),
            "lr": f"{rate:.3e}",
            "frames_per_s": round(speed_now),
            "audio_s_per_s": round(speed_now / self.objective.audio.frame_rate, 2),
            "data_wait": round((state.data_wait - self.waited) / span, 4),
            "memory_gb": round(memory(device) / 2**30, 3),
            "mfu": round(self.mfu(span), 2),
            "skipped_steps": bad,
            "graphs": speed.recompiles() if self.options.compiled else 0,
            "seconds": round(now - self.start, 1),
            "epoch": state.epochs()[1],
        }
        if measure and self.held_out is not None:
            held = self.held_out.losses()
            row |= {k: round(v, 5) for k, v in held.items()}
            self.last |= held
        if self.main:
            shown = {k: f"{v:.4f}" for k, v in self.last.items()}
            self.bar.set_postfix(shown | {"frames/s": f"{speed_now:,.0f}"})
            self.append(row)
            figures = {k: float(v) for k, v in row.items() if k != "step"}
            self.each_tracker(lambda tracker: tracker.log(figures, step=state.step))
        self.tell_skipped()
        self.sums, self.counts = {}, Counter()
        self.steps = self.frames = self.flops = 0
        self.waited = state.data_wait
        self.since = time.monotonic()

    def mfu(self, seconds: float) -> float:
        """Model FLOPs utilisation, percent of what the devices can do."""
        if not self.main:
            return 0.0
        device, precision = self.accelerator.device, self.accelerator.mixed_precision
        flops = self.flops * self.parallel.data_world
        return profile.mfu(flops, seconds, device, precision, self.parallel.world)

    def append(self, row: dict[str, Any]) -> None:
        """Adds a row to log.csv."""
        path = self.options.folder / "log.csv"
        try:
            self.write_row(path, row)
        except OSError as e:  # a full disk must not end the run
            if not self.log_failed:
                self.options.say(f"could not write {path}: {e}; the run goes on without it")
            self.log_failed = True

    def write_row(self, path: Path, row: dict[str, Any]) -> None:
        """Appends to the table, with new columns where there are some."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or not path.stat().st_size
        if not new:
            with path.open(newline="", encoding="utf-8") as f:
                header = next(csv.reader(f))
            if row.keys() - set(header):
                header = self.widen(path, header, row)
        before = 0 if new else path.stat().st_size
        try:
            with path.open("a", newline="", encoding="utf-8") as f:
                writer = csv.DictWriter(f, row if new else header, restval="")
                if new:
                    writer.writeheader()
                writer.writerow(row)
        except OSError:  # no half of a row, which the next one would be added to
            if path.exists():
                os.truncate(path, before)
            raise

    @staticmethod
    def widen(path: Any, header: list[str], row: dict[str, Any]) -> list[str]:
        """Adds columns to log.csv, such as those of losses that join later; returns all columns."""
        names = list(row) + [n for n in header if n not in row]
        with path.open(newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        with whole(path) as part, part.open("w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, names, restval="")
            writer.writeheader()
            writer.writerows(rows)
        return names

    def tell_skipped(self) -> None:
        """Reports samples left out, by reason, once every process has finished an epoch."""
        mine = (self.state.epochs()[0], self.state.skipped - self.reported)
        self.reported = Counter(self.state.skipped)
        gathered = self.parallel.gather(mine)
        found = sum((new for _, new in gathered), Counter())
        self.skipped_total += found
        self.left_out += found
        epoch = min(epoch for epoch, _ in gathered)
        before, self.epoch = self.epoch, epoch
        if before is None or epoch <= before:
            return
        if self.skipped_total:
            self.options.say(
                f"epoch {epoch - 1} done; samples left out: {listed(self.skipped_total)}"
            )
        self.skipped_total = Counter()

    def close(self) -> dict[str, float]:
        """Ends the bar and reports samples left out."""
        if self.sums:
            self.last = self.means()
        self.bar.close()
        # what came after the last line is known of this process alone: others may have ended
        if left_out := self.left_out + (self.state.skipped - self.reported):
            self.options.say(f"samples left out: {listed(left_out)}")
        return self.last


def listed(counts: Counter) -> str:
    """Reasons with their counts."""
    return ", ".join(f"{n} {why}" for why, n in counts.most_common())


def memory(device: torch.device) -> int:
    """Most bytes held so far: of the accelerator, or of the process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
