"""Trains a small Vocos on WebDataset shards, for `accelerate launch` or plain python.

    python scripts/train_vocoder.py --data shards/*.tar --held-out shards/last.tar --minutes 60
    python scripts/train_vocoder.py --data … --minutes 120             # goes on where it stopped
    python scripts/train_vocoder.py --data … --export folder           # vocoder.safetensors
    python scripts/train_vocoder.py --data … --held-out … --evaluate   # against Griffin-Lim

Spectral losses alone come first (quick, but buzzy), then discriminators join. Ctrl-C saves.
The files of a run: checkpoint.pt, spectral.pt (as it was when the discriminators joined; --export
and --evaluate take it with --checkpoint), log.csv, and the decoded recordings under data/.
"""

from __future__ import annotations

import argparse
import csv
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from vocoder_data import AUDIO, Clip, Segments, save_atomically, split_clips
from vocoder_evaluate import evaluate, export, load_checkpoint, mel_distance

from nanospeech.config import VocoderConfig, from_dict
from nanospeech.errors import NanospeechError, require
from nanospeech_torch import vocoder_loss as losses
from nanospeech_torch.vocoder import Vocos

COLUMNS: list[str] = [
    "step",
    "minutes",
    "lr",
    "mel",
    "magnitude",
    "convergence",
    "judge",
    "adversarial",
    "matching",
    "held_out",
]
LOG_EVERY = 50


class Trainer:
    """The vocoder, its moving average, the judges and both optimisers."""

    def __init__(self, args: argparse.Namespace):
        accelerate = require("accelerate", "train")
        parallel = accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)
        self.accelerator = accelerate.Accelerator(
            mixed_precision=args.precision, kwargs_handlers=[parallel]
        )
        self.args = args
        self.path = args.run / "checkpoint.pt"
        self.spectral_path = args.run / "spectral.pt"
        self.step, self.minutes = 0, 0.0
        torch.manual_seed(args.seed)
        state = load_checkpoint(self.path) if self.path.exists() else None
        self.config = (
            from_dict(VocoderConfig, state["config"], str(self.path))
            if state
            else VocoderConfig(args.dim, args.intermediate_dim, args.layers)
        )
        model, judges = Vocos(self.config), losses.Discriminators()
        self.average = Vocos(self.config).requires_grad_(False)
        self.average.load_state_dict(model.state_dict())
        betas = (0.8, 0.99)  # as every GAN vocoder since HiFi-GAN
        optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas, weight_decay=0.01)
        judges_optimizer = torch.optim.AdamW(judges.parameters(), args.gan_lr, betas)
        if state:
            model.load_state_dict(state["model"])
            judges.load_state_dict(state["judges"])
            self.average.load_state_dict(state["average"])
            optimizer.load_state_dict(state["optimizer"])
            judges_optimizer.load_state_dict(state["judges_optimizer"])
            self.step, self.minutes = state["step"], state["minutes"]
        prepared = self.accelerator.prepare(model, judges, optimizer, judges_optimizer)
        self.model, self.judges, self.optimizer, self.judges_optimizer = prepared
        self.average.to(self.accelerator.device)

    def progress(self) -> float:
        """How much of the run is done, 0 to 1."""
        return max(self.step / self.args.steps, self.minutes / self.args.minutes)

    def learning_rate(self) -> float:
        """Warm-up, then steady, then down to a twentieth; lower once the judges are there."""
        warm = min(1, (self.step + 1) / self.args.warmup)
        left = min(1, (1 - self.progress()) / self.args.decay)
        peak = self.args.gan_lr if self.adversarial() else self.args.lr
        return peak * warm * max(0.05, left)

    def adversarial(self) -> bool:
        return self.progress() >= self.args.gan_from

    def train_step(self, segments: Segments) -> dict[str, torch.Tensor]:
        """One update of everything. Returns the losses, still on the device."""
        seed = (self.args.seed, self.step, self.accelerator.process_index)
        real, log_mel = (x.to(self.accelerator.device) for x in segments.draw(seed))
        random = np.random.default_rng((self.args.seed, self.step))
        # the mel's own window always, and one other at a time: the same mean for less work
        others = [w for w in losses.WINDOWS if w != AUDIO.n_fft]
        windows = (AUDIO.n_fft, int(random.choice(others)))
        period = int(random.choice(losses.PERIODS))
        for group in self.optimizer.param_groups + self.judges_optimizer.param_groups:
            group["lr"] = self.learning_rate()

        fake = self.model(log_mel)
        fake_spectra = losses.spectrograms(fake, windows)
        with torch.no_grad():
            real_spectra = losses.spectrograms(real, windows)
        parts = losses.spectral_losses(fake_spectra, real_spectra, AUDIO)
        loss = 20 * parts["mel"] + 5 * (parts["magnitude"] + parts["convergence"])
        if self.adversarial():
            judged = int(random.choice(windows))
            few = slice(self.args.judged)
            r, f = {judged: real_spectra[judged][few]}, {judged: fake_spectra[judged][few]}
            parts["judge"] = self.train_judges(real[few], r, fake[few], f, period)
            loss = loss + self.persuade(parts, real[few], r, fake[few], f, period)
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 10.0)
        self.optimizer.step()
        self.update_average()
        self.step += 1
        return {k: v.detach() for k, v in parts.items()}

    def train_judges(self, real, real_spectra, fake, fake_spectra, period) -> torch.Tensor:
        """Teaches the judges to tell the recording from the vocoder's output."""
        hidden = {w: s.detach() for w, s in fake_spectra.items()}
        loss = losses.discriminator_loss(
            self.judges(real, real_spectra, (period,)),
            self.judges(fake.detach(), hidden, (period,)),
        )
        self.judges_optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.judges.parameters(), 10.0)
        self.judges_optimizer.step()
        return loss

    def persuade(self, parts, real, real_spectra, fake, fake_spectra, period) -> torch.Tensor:
        """The vocoder's adversarial loss; the judges' weights stay out of its graph."""
        judges = self.accelerator.unwrap_model(self.judges).requires_grad_(False)
        with self.accelerator.autocast():
            of_fake = judges(fake, fake_spectra, (period,))
            with torch.no_grad():
                of_real = judges(real, real_spectra, (period,))
        judges.requires_grad_(True)
        parts["adversarial"], parts["matching"] = losses.generator_losses(of_fake, of_real)
        return parts["adversarial"] + 2 * parts["matching"]

    def update_average(self) -> None:
        decay = min(self.args.ema, (1 + self.step) / (10 + self.step))
        mine = self.accelerator.unwrap_model(self.model)
        with torch.no_grad():
            for a, b in zip(self.average.parameters(), mine.parameters()):
                a.lerp_(b, 1 - decay)

    def save(self, path: Path | None = None) -> None:
        """Writes the checkpoint whole or not at all."""
        if not self.accelerator.is_main_process:
            return
        unwrap = self.accelerator.unwrap_model
        state = {
            "config": asdict(self.config),
            "step": self.step,
            "minutes": self.minutes,
            "model": unwrap(self.model).state_dict(),
            "average": self.average.state_dict(),
            "judges": unwrap(self.judges).state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "judges_optimizer": self.judges_optimizer.state_dict(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        save_atomically(path or self.path, lambda f: torch.save(state, f))

    def fit(self, segments: Segments, held: list[Clip]) -> None:
        """Trains until --steps or --minutes, logging, checking and saving on the way."""
        bar = tqdm(
            total=self.args.steps,
            initial=self.step,
            mininterval=10,
            disable=not self.accelerator.is_main_process,
        )
        stop, stopping = StopFlag(), False
        seen: list[dict[str, torch.Tensor]] = []
        clock, saved = time.monotonic(), time.monotonic()
        try:
            while self.progress() < 1 and not stopping:
                if self.adversarial() and not self.spectral_path.exists():
                    self.save(self.spectral_path)
                seen.append(self.train_step(segments))
                bar.update()
                now = time.monotonic()
                if self.accelerator.num_processes == 1 or self.step % 10 == 0:
                    stopping = self.agree((now - clock) / 60, stop.asked)
                    clock = now
                last = self.progress() >= 1
                if self.step % LOG_EVERY == 0 or last:
                    row = {k: mean(s[k] for s in seen if k in s) for k in COLUMNS[3:-1]}
                    if self.step % self.args.check_every == 0 or last:
                        row["held_out"] = mel_distance(self.average, held[: self.args.check_clips])
                    bar.set_postfix(mel=f"{row['mel']:.3f}")
                    self.log(row)
                    seen.clear()
                if now - saved > 60 * self.args.save_minutes:
                    self.save()
                    saved = now
        finally:
            bar.close()
            self.save()
        print(f"saved {self.path} at step {self.step}, after {self.minutes:.1f} minutes")

    def agree(self, minutes: float, stop: bool) -> bool:
        """Adds to the minutes, alike in every process; whether any of them was asked to stop."""
        told = torch.tensor([minutes, float(stop)], device=self.accelerator.device)
        told = self.accelerator.reduce(told, "mean")
        self.minutes += float(told[0])
        return bool(told[1] > 0)

    def log(self, row: dict[str, float | None]) -> None:
        if not self.accelerator.is_main_process:
            return
        path = self.args.run / "log.csv"
        new = not path.exists()
        values: dict[str, float | None] = {
            "step": self.step,
            "minutes": round(self.minutes, 2),
            "lr": self.learning_rate(),
        }
        values.update((k, None if v is None else round(v, 5)) for k, v in row.items())
        with path.open("a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow(values)


class StopFlag:
    """Set by the first Ctrl-C or SIGTERM, so that a step ends whole; a second one interrupts."""

    def __init__(self):
        self.asked = False
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self.ask)

    def ask(self, number, frame) -> None:
        self.asked = True
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.default_int_handler)


def mean(values) -> float | None:
    values = list(values)
    return float(torch.stack(values).mean()) if values else None


def parse_weight(text: str) -> tuple[str, float]:
    prefix, _, weight = text.partition("=")
    return prefix, float(weight)


def build_parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    p.add_argument("--data", nargs="+", type=Path, default=[], help="shards to train on")
    p.add_argument("--held-out", nargs="+", type=Path, default=[], help="shards to leave out")
    p.add_argument("--held-out-clips", type=int, default=3, help="left out of each other shard")
    p.add_argument("--run", type=Path, default=Path("runs/vocoder"), help="folder of the run")
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--intermediate-dim", type=int, default=768)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--frames", type=int, default=64, help="mel frames of a training segment")
    p.add_argument("--batch", type=int, default=16, help="segments a step, in each process")
    p.add_argument("--weight", type=parse_weight, nargs="*", default=[], help="KEY_PREFIX=FACTOR")
    p.add_argument("--steps", type=int, default=1_000_000, help="end after so many steps")
    p.add_argument("--minutes", type=float, default=60, help="or after so many, resumed ones too")
    p.add_argument("--lr", type=float, default=1e-3, help="before the discriminators join")
    p.add_argument("--gan-lr", type=float, default=4e-4, help="afterwards, and theirs")
    p.add_argument("--gan-from", type=float, default=0.3, help="progress at which they join")
    p.add_argument("--judged", type=int, default=8, help="segments of a step that they judge")
    p.add_argument("--warmup", type=int, default=200, help="steps")
    p.add_argument("--decay", type=float, default=0.25, help="last part of the run that decays")
    p.add_argument("--ema", type=float, default=0.998, help="decay of the moving average")
    p.add_argument("--precision", choices=("bf16", "no"), default="bf16", help="autocast")
    p.add_argument("--threads", type=int, default=None, help="CPU threads")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--check-every", type=int, default=250, help="steps between held-out checks")
    p.add_argument("--check-clips", type=int, default=6, help="clips of such a check")
    p.add_argument("--save-minutes", type=float, default=3)
    p.add_argument("--export", type=Path, metavar="FOLDER", help="write the weights and end")
    p.add_argument("--checkpoint", type=Path, help="what those take instead of RUN/checkpoint.pt")
    p.add_argument("--dtype", choices=("float16", "float32"), default="float16", help="of --export")
    p.add_argument("--evaluate", action="store_true", help="resynthesise held-out clips and end")
    p.add_argument("--evaluate-clips", type=int, default=40)
    p.add_argument("--waves", type=Path, help="where its waves go; None: RUN/evaluation")
    return p


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    checkpoint = args.checkpoint or args.run / "checkpoint.pt"
    try:
        if args.export:
            export(checkpoint, args.export, args.dtype)
            return 0
        train, held = split_clips(args.data, args.held_out, args.held_out_clips, args.run / "data")
        if args.evaluate:
            waves = args.waves or args.run / "evaluation"
            evaluate(checkpoint, held[: args.evaluate_clips], waves)
            return 0
        trainer = Trainer(args)
        hours = sum(len(c.samples) for c in train) / AUDIO.sample_rate / 3600
        sizes = sum(p.numel() for p in trainer.average.parameters())
        print(
            f"{len(train)} clips, {hours:.2f} h; {len(held)} held out; {sizes / 1e6:.2f}M"
            f" parameters; from step {trainer.step}, minute {trainer.minutes:.1f}",
            flush=True,
        )
        checks = held[:3] + held[-(args.check_clips - 3) :]
        trainer.fit(Segments(train, args.frames, args.batch, dict(args.weight)), checks)
        return 0
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
