"""Run log: progress bar, log.csv and trackers of a training run. Decides nothing."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from tqdm.auto import tqdm

from nanospeech.config import option
from nanospeech.errors import InputError
from nanospeech_torch.train.scale import profile, speed

if TYPE_CHECKING:
    from .held_out import HeldOut
    from .trainer import Trainer

TRACKERS = ("wandb", "tensorboard", "trackio")


@dataclass(frozen=True)
class LogConfig:
    """Where a run is seen and heard; log.csv and the progress bar are always there."""

    trackers: list = option((), "of wandb, tensorboard, trackio; each is a package to install")
    project: str = option("nanospeech", "name of the project in the trackers")
    name: str | None = option(None, "name of the run in the trackers; None: its folder's")
    held_out: list = option(
        (), "shards to measure on, never to train on; their losses join log.csv"
    )
    held_out_every: int = option(500, "steps between those measurements")
    sample_every: int = option(0, "steps between spoken samples and mel pictures; 0: none")
    sentences: list = option(
        (
            "The birch canoe slid on the smooth planks.",
            "Is this the voice that you wanted, or another one?",
        ),
        "what the samples say",
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


class Log:
    """Progress bar, log.csv and trackers; reads the device only every log_every steps."""

    def __init__(self, trainer: Trainer, total: int, held_out: HeldOut | None = None):
        self.trainer, self.held_out = trainer, held_out
        t = trainer
        self.config = t.log_config
        self.main = t.accelerator.is_main_process
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: Counter = Counter()
        self.steps = self.frames = self.flops = 0
        self.epoch: int | None = None
        self.last: dict[str, float] = {}
        self.reported: Counter = Counter(t.skipped)
        self.skipped_total: Counter = Counter()
        self.log_failed = False
        precision = t.accelerator.mixed_precision
        if self.main:  # where it has to be measured, now and not while training
            profile.peak_flops(t.accelerator.device, precision)
        self.start_trackers()
        self.bar = tqdm(
            total=total, initial=t.step, unit="step", disable=not self.main, dynamic_ncols=True
        )
        self.since = self.start = time.monotonic()

    def start_trackers(self) -> None:
        """Starts Accelerate's trackers with the run's settings."""
        from .state import flat, settings

        t = self.trainer
        if not t.accelerator.log_with:
            return
        plain = (int, float, str, bool)
        config = {k: v if isinstance(v, plain) else str(v) for k, v in flat(settings(t)).items()}
        name = self.config.name or t.run_dir.name
        names = {getattr(k, "value", str(k)) for k in t.accelerator.log_with}
        options: dict[str, Any] = {k: {"name": name} for k in names & {"wandb", "trackio"}}
        if self.main and "wandb" in options:
            t.run_dir.mkdir(parents=True, exist_ok=True)
            options["wandb"]["dir"] = str(t.run_dir)
        try:
            t.accelerator.init_trackers(self.config.project, config=config, init_kwargs=options)
        except Exception as e:  # each has its own kinds
            raise InputError(
                f"log.trackers {', '.join(sorted(names))} could not start: {e}; log in there, or "
                "leave it out of log.trackers"
            ) from e

    def add(self, means: dict[str, torch.Tensor]) -> None:
        """Adds up a micro-batch's losses on the device."""
        for name, value in means.items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()
            self.counts[name] += 1

    def count(self, batch: Any) -> None:
        """Counts a micro-batch's frames and operations from its shape."""
        rows, frames = batch.mel.shape[:2]
        self.frames += rows * frames
        self.flops += self.trainer.core.flops(batch)

    def step(self, norm: torch.Tensor, rate: float) -> None:
        """Counts an optimiser step."""
        self.steps += 1
        self.bar.update()
        due = self.held_out is not None and self.trainer.step % self.config.held_out_every == 0
        if due or self.trainer.step % self.trainer.config.log_every == 0:
            self.write(norm, rate, due)

    def means(self) -> dict[str, float]:
        """Mean losses since the last line."""
        return {name: float(v) / self.counts[name] for name, v in self.sums.items()}

    def write(self, norm: torch.Tensor, rate: float, measure: bool = False) -> None:
        """One line of figures; with `measure`, those of held-out speech too."""
        t = self.trainer
        self.last = self.means()
        bad = sum(guard.report()["skipped"] for guard in t.guards.values())
        now = time.monotonic()
        span, world = now - self.since, t.parallel.data_world
        speed_now = self.frames * world / span
        row = {
            "step": t.step,
            **{k: round(v, 5) for k, v in self.last.items()},
            "grad_norm": round(float(norm), 4),
            "lr": f"{rate:.3e}",
            "frames_per_s": round(speed_now),
            "audio_s_per_s": round(speed_now / t.core.audio.frame_rate, 2),
            "data_wait": round(t.data_wait / span, 4),
            "memory_gb": round(memory(t.accelerator.device) / 2**30, 3),
            "mfu": round(self.mfu(span), 2),
            "skipped_steps": bad,
            "graphs": speed.recompiles() if t.speed.compile != "off" else 0,
            "seconds": round(now - self.start, 1),
            "epoch": max((p.epoch for p in t.places.values()), default=0),
        }
        if measure and self.held_out is not None:
            held = self.held_out.losses()
            row |= {k: round(v, 5) for k, v in held.items()}
            self.last |= held
        if self.main:
            shown = {k: f"{v:.4f}" for k, v in self.last.items()}
            self.bar.set_postfix(shown | {"frames/s": f"{speed_now:,.0f}"})
            self.append(row)
            t.accelerator.log({k: float(v) for k, v in row.items() if k != "step"}, step=t.step)
        self.tell_skipped()
        self.sums, self.counts = {}, Counter()
        self.steps = self.frames = self.flops = 0
        t.data_wait = 0.0
        self.since = time.monotonic()

    def mfu(self, seconds: float) -> float:
        """Model FLOPs utilisation, percent of what the devices can do."""
        if not self.main:
            return 0.0
        t = self.trainer
        device, precision = t.accelerator.device, t.accelerator.mixed_precision
        flops = self.flops * t.parallel.data_world
        return profile.mfu(flops, seconds, device, precision, t.parallel.world)

    def append(self, row: dict[str, Any]) -> None:
        """Adds a row to log.csv."""
        path = self.trainer.run_dir / "log.csv"
        try:
            self.write_row(path, row)
        except OSError as e:  # a full disk must not end the run
            if not self.log_failed:
                self.trainer.say(f"could not write {path}: {e}; the run goes on without it")
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
        with path.open("a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, row if new else header, restval="")
            if new:
                writer.writeheader()
            writer.writerow(row)

    @staticmethod
    def widen(path: Any, header: list[str], row: dict[str, Any]) -> list[str]:
        """Gives log.csv columns that come later, such as those of losses that join; all of them."""
        names = list(row) + [n for n in header if n not in row]
        with path.open(newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        part = path.with_suffix(".part")
        with part.open("w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, names, restval="")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(part, path)
        return names

    def tell_skipped(self) -> None:
        """Once every process is through an epoch: what was left out in it, and why."""
        t = self.trainer
        mine = (min((p.epoch for p in t.places.values()), default=0), t.skipped - self.reported)
        self.reported = Counter(t.skipped)
        gathered = t.parallel.gather(mine)
        self.skipped_total += sum((new for _, new in gathered), Counter())
        epoch = min(epoch for epoch, _ in gathered)
        before, self.epoch = self.epoch, epoch
        if before is None or epoch <= before:
            return
        if self.skipped_total:
            t.say(f"epoch {epoch - 1} done; samples left out: {listed(self.skipped_total)}")
        self.skipped_total = Counter()

    def close(self) -> dict[str, float]:
        """Ends the bar and tells what was left out."""
        if self.sums:
            self.last = self.means()
        self.bar.close()
        if self.trainer.skipped:
            self.trainer.say(f"samples left out: {listed(self.trainer.skipped)}")
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
