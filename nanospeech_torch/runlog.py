"""Run log: progress bar, log.csv and trackers of a training run."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Any

import torch
from tqdm.auto import tqdm

if TYPE_CHECKING:
    from .trainer import Trainer


class Log:
    """Progress bar, log.csv and trackers; reads the device only every log_every steps."""

    def __init__(self, trainer: Trainer, total: int):
        self.trainer = trainer
        main = trainer.accelerator.is_main_process
        self.bar = tqdm(total=total, initial=trainer.step, unit="step", disable=not main)
        self.sums: dict[str, torch.Tensor] = {}
        self.steps = self.frames = 0
        self.since = self.start = time.monotonic()
        self.last: dict[str, float] = {}

    def add(self, means: dict[str, torch.Tensor], batch: Any) -> None:
        """Adds up a micro-batch on the device."""
        for name, value in means.items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()
        self.frames += batch.mel.shape[0] * batch.mel.shape[1]

    def step(self, norm: torch.Tensor, rate: float) -> None:
        """Counts an optimiser step."""
        self.steps += 1
        self.bar.update()
        if self.trainer.step % self.trainer.config.log_every == 0:
            self.write(float(norm), rate)

    def write(self, norm: float, rate: float) -> None:
        """One line of figures."""
        t, now = self.trainer, time.monotonic()
        micro = self.steps * t.config.accumulate
        means = {name: float(v) / micro for name, v in self.sums.items()}
        speed = self.frames * t.accelerator.num_processes / (now - self.since)
        self.last = means
        if t.accelerator.is_main_process:
            self.bar.set_postfix({k: f"{v:.4f}" for k, v in means.items()})
            row = {
                "step": t.step,
                **{k: round(v, 5) for k, v in means.items()},
                "grad_norm": round(norm, 4),
                "lr": f"{rate:.3e}",
                "frames_per_s": round(speed),
                "seconds": round(now - self.start, 1),
                "epoch": max((p.epoch for p in t.places.values()), default=0),
            }
            t.run_dir.mkdir(parents=True, exist_ok=True)
            path = t.run_dir / "log.csv"
            new = not path.exists()
            with path.open("a", newline="") as f:
                writer = csv.DictWriter(f, row)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            t.accelerator.log(means | {"lr": rate, "grad_norm": norm}, step=t.step)
        self.sums, self.steps, self.frames, self.since = {}, 0, 0, now

    def close(self) -> dict[str, float]:
        """Ends the bar and tells what was left out."""
        if self.steps and self.sums:
            micro = self.steps * self.trainer.config.accumulate
            self.last = {name: float(v) / micro for name, v in self.sums.items()}
        self.bar.close()
        skipped = self.trainer.skipped
        if skipped:
            told = ", ".join(f"{n} {why}" for why, n in skipped.most_common())
            self.trainer.accelerator.print(f"samples left out: {told}")
        return self.last
