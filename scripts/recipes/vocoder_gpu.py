"""Vocoder on a GPU: adversarial training with all recordings in its memory.

    nanospeech prepare mels FOLDER/imitator shards/*.tar --each-speaker --out made
    nanospeech prepare spoken FOLDER texts.txt --out spoken
    python -m scripts.recipes.vocoder_gpu FOLDER --recordings shards/*.tar --made made/*.tar \\
        --spoken spoken/*.tar --minutes 8 --out runs/vocoder

nanospeech/configs/vocoder_made.yaml for whoever has a GPU for minutes, not a core for hours: every
discriminator sees every segment, where the other draws two of nine a step, and a step is replayed
as one CUDA graph. Four kinds of segments are in a batch: recordings; clear recordings, which the
discriminators compare with; clear recordings with the mel that a speech model made of them; and
spoken mels, which no recording belongs to, so that the discriminators alone say how they should
sound (adversarial domain adaptation, Ganin et al., arXiv 1505.07818). FOLDER's vocoder is where it
begins. Writes vocoder.safetensors, which `nanospeech convert --vocoder OUT` reads, log.csv, and
discriminators.safetensors, every minute, at the end, and on Ctrl-C or SIGTERM; to go on, name OUT
as FOLDER and these discriminators. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nanospeech.audio.postfilter import blurred
from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from nanospeech.files import whole, write_json
from nanospeech.locks import alone
from nanospeech_torch.train.loop.signals import StopSignals
from nanospeech_torch.train.objectives import vocoder_loss as losses
from nanospeech_torch.vocoder import Vocos

from .gpu_clips import AUDIO, KINDS, Clips, gather, read

Spectra = dict[int, Tensor]


@dataclass(frozen=True)
class Recipe:
    """Sizes, weights and rates of a training."""

    frames: int = 64  # of a segment: 0.7 s
    segments: tuple[int, ...] = (8, 20, 20, 16)  # of each of KINDS in a batch
    gain: tuple[float, ...] = (-6.0, 2.0)  # dB
    sharpen: float = 0.6  # at most, of made and spoken mels: nanospeech.audio.postfilter
    mel: float = 30.0  # of recordings
    made_mel: float = 15.0  # of made and spoken mels
    input_mel_share: float = 0.8  # of that distance: to the mel itself, not to the recording's
    magnitude: float = 1.0  # of recordings
    convergence: float = 1.0
    made_magnitude: float = 0.3  # of both, where the mel was made
    adversarial: float = 2.0
    matching: float = 6.0
    period_channels: int = 64
    spectrogram_channels: int = 32
    lr: float = 4e-4
    discriminator_lr: float = 5e-4
    warmup: int = 200
    decay_from: float = 0.5  # of the time; the rates then fall to `last` of their peaks
    last: float = 0.02
    ema: float = 0.999
    max_norm: float = 10.0


class Trainer:
    """A vocoder, its discriminators and one step of both.

    Args:
        vocoder: on its device.
        clips: on the same.
        recipe: sizes, weights, rates; kinds that clips lack get no segments.
    """

    def __init__(self, vocoder: Vocos, clips: Clips, recipe: Recipe):
        self.vocoder, self.clips, self.recipe = vocoder.train(), clips, recipe
        self.device = device = clips.hops.device
        widths = recipe.period_channels, recipe.spectrogram_channels
        self.discriminators = losses.Discriminators(*widths).to(device)
        asked = zip(KINDS, recipe.segments, strict=True)
        self.counts = {kind: n if kind in clips.starts else 0 for kind, n in asked}
        self.rows = sum(self.counts.values())
        self.own = self.counts["recordings"] + self.counts["clear"]  # with their own mels
        self.real = self.rows - self.counts["spoken"]  # with a recording
        self.begin = torch.zeros(self.rows, dtype=torch.long, device=device)
        # rates are tensors, and the optimisers' steps too, so that a graph reads them anew
        self.lr, self.judge_lr = (torch.tensor(0.0, device=device) for _ in range(2))
        options: dict[str, Any] = {"betas": (0.8, 0.99), "weight_decay": 0.01}
        options |= {"capturable": True, "foreach": True} if device.type == "cuda" else {}
        self.optimizer = torch.optim.AdamW(vocoder.parameters(), lr=self.lr, **options)
        judges = self.discriminators.parameters()
        self.judge_optimizer = torch.optim.AdamW(judges, lr=self.judge_lr, **options)
        self.average = [p.detach().clone() for p in vocoder.parameters()]
        eye = np.eye(AUDIO.n_mels, dtype=np.float32)
        detail = (eye - blurred(eye)).astype(np.float32)  # mel @ it is what sharpening adds
        self.detail = torch.from_numpy(detail).to(device)
        self.found: dict[str, Tensor] = {}

    def amp(self) -> Any:
        """bfloat16 where it is safe. Without a cache of weights, which a graph would replay."""
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """The segments at `begin`: mels in, and mels and waves of the recordings there are."""
        c, own, real = self.clips, self.own, self.real
        at = self.begin[:, None] + torch.arange(self.recipe.frames, device=self.device)
        truth = c.mels[at[:real]].float()
        given = [truth[:own], c.made[at[own:real]].float(), c.spoken[at[real:]].float()]
        low, high = self.recipe.gain
        gain = torch.rand(self.rows, 1, device=self.device) * (high - low) + low
        gain = 10 ** (gain / 20)
        wave = c.hops[at[:real, :-1]].reshape(real, -1).float() / 32767 * gain[:real]
        mel = torch.cat(given)
        sharp = torch.rand(self.rows, 1, 1, device=self.device) * self.recipe.sharpen
        sharp = sharp * (torch.arange(self.rows, device=self.device) >= own)[:, None, None]
        louder = gain.log()[:, :, None]
        return mel + sharp * (mel @ self.detail) + louder, truth + louder[:real], wave

    def mel_distance(self, spectra: Spectra, mel: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted L1 of log mels, to the input and to the recordings; and that of recordings."""
        r, own, real = self.recipe, self.own, self.real
        inner = slice(losses.EDGE, r.frames - losses.EDGE)  # a wave knows not what lies around it
        again = losses.mel_of_magnitude(spectra[AUDIO.n_fft].abs(), AUDIO)[:, inner]
        to_input = (again - mel[:, inner]).abs().mean((1, 2))
        to_truth = (again[:real] - truth[:, inner]).abs().mean((1, 2))
        near = r.input_mel_share
        total = r.mel * to_input[:own].sum() + r.made_mel * near * to_input[own:].sum()
        total = total + r.made_mel * (1 - near) * to_truth[own:].sum()
        return total / self.rows, to_input[:own].mean()

    def spectral(self, spectra: Spectra, true: Spectra) -> tuple[Tensor, Tensor]:
        """L1 of log magnitudes, and relative errors of magnitudes, of what has a recording."""
        weight = torch.ones(self.real, device=self.device)
        weight[self.own :] = self.recipe.made_magnitude
        magnitude, convergence = [], []
        for n_fft, t in true.items():
            f, t = spectra[n_fft][: self.real].abs(), t.abs()
            magnitude.append((weight * losses.log_distances(f, t).mean((1, 2))).mean())
            convergence.append((weight * losses.relative_errors(f, t)).mean())
        return torch.stack(magnitude).mean(), torch.stack(convergence).mean()

    def judged(self, wave: Tensor, spectra: Spectra, learn: bool) -> list[losses.Scores]:
        """The discriminators' scores and features, of all but the first kind of segments."""
        first = self.counts["recordings"]
        for p in self.discriminators.parameters():
            p.requires_grad_(learn)
        with self.amp():
            return self.discriminators(wave[first:], {w: s[first:] for w, s in spectra.items()})

    def generator_losses(
        self, fake: list[losses.Scores], true: list[losses.Scores]
    ) -> tuple[Tensor, Tensor]:
        """Hinge loss, and feature matching of the segments that have a recording."""
        first = self.counts["recordings"]
        share = (self.rows - first, self.real - first)

        def paired(f: Tensor) -> Tensor:
            return f[: len(f) // share[0] * share[1]]  # each period is a row of its own

        return losses.generator_losses([(s, [paired(f) for f in fs]) for s, fs in fake], true)

    def step(self) -> None:
        """One step of the vocoder, then one of the discriminators, on the segments at `begin`."""
        r = self.recipe
        mel, truth, wave = self.batch()
        with self.amp():
            fake = self.vocoder(mel).float()
        spectra = losses.spectrograms(fake)
        with torch.no_grad():
            true = losses.spectrograms(wave)
            true_scores = self.judged(wave, true, False)
        mel_loss, mel_distance = self.mel_distance(spectra, mel, truth)
        magnitude, convergence = self.spectral(spectra, true)
        scores = self.judged(fake, spectra, False)
        adversarial, matching = self.generator_losses(scores, true_scores)
        total = mel_loss + r.magnitude * magnitude + r.convergence * convergence
        total = total + r.adversarial * adversarial + r.matching * matching
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.vocoder.parameters(), r.max_norm)
        self.optimizer.step()
        with torch.no_grad():
            for mean, p in zip(self.average, self.vocoder.parameters(), strict=True):
                mean.lerp_(p, 1 - r.ema)
        of_true = self.judged(wave, true, True)
        of_fake = self.judged(fake.detach(), {w: s.detach() for w, s in spectra.items()}, True)
        discriminator = losses.discriminator_loss(of_true, of_fake)
        self.judge_optimizer.zero_grad(set_to_none=True)
        discriminator.backward()
        torch.nn.utils.clip_grad_norm_(self.discriminators.parameters(), r.max_norm)
        self.judge_optimizer.step()
        named = {"mel": mel_loss, "mel_of_recordings": mel_distance, "magnitude": magnitude}
        named |= {"convergence": convergence, "adversarial": adversarial, "matching": matching}
        named |= {"discriminator": discriminator, "norm": norm}
        self.found = {k: v.detach() for k, v in named.items()}

    def set_rates(self, step: int, part: float) -> None:
        """The learning rates of a step, after such a part of the time."""
        r = self.recipe
        left = 1.0 if part < r.decay_from else max(r.last, (1 - part) / (1 - r.decay_from))
        scale = left * min(1.0, (step + 1) / r.warmup)
        self.lr.fill_(r.lr * scale)
        self.judge_lr.fill_(r.discriminator_lr * scale)

    def ready(self, rng: np.random.Generator) -> Callable[[], None]:
        """A step as one CUDA graph; as it is where there is no GPU, or it cannot be captured."""
        if self.device.type != "cuda":
            return self.step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                self.begin.copy_(self.clips.draw(self.counts, rng))
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(captured):
                self.step()
        except RuntimeError as e:
            print(f"no CUDA graph, so steps are slower: {e}", file=sys.stderr, flush=True)
            torch.cuda.synchronize()
            return self.step
        return captured.replay

    def save(self, out: Path) -> None:
        """Writes the averaged vocoder, as it is released, its sizes, and the discriminators."""
        names = [name for name, _ in self.vocoder.named_parameters()]
        vocoder = {n: t.float() for n, t in zip(names, self.average)}
        judges = {n: t.half() for n, t in self.discriminators.state_dict().items()}
        for name, tensors in {"vocoder": vocoder, "discriminators": judges}.items():
            with whole(out / f"{name}.safetensors") as part:
                save_file({n: t.cpu().contiguous() for n, t in tensors.items()}, part)
        stated = {"vocoder": asdict(self.vocoder.config), "audio": asdict(AUDIO)}
        write_json(out / "config.json", stated, indent=2)


def train(
    trainer: Trainer, out: Path, seconds: float, every: int = 100, seed: int = 0, save: float = 60.0
) -> dict[str, Any]:
    """Trains for so many seconds, or until Ctrl-C or SIGTERM; returns steps and the last losses.

    Args:
        trainer: what is trained.
        out: folder of what save writes, and of log.csv.
        seconds: of training.
        every: steps between rows of the log.
        seed: of the segments.
        save: seconds between two times that the weights are written.
    """
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    begun = written = time.monotonic()
    trainer.set_rates(0, 0.0)
    run = trainer.ready(rng)
    step, row, writer = 0, {}, None
    asked: list[str] = []

    def ask(name: str) -> bool:
        asked.append(name)
        return len(asked) > 1

    with StopSignals(ask), (out / "log.csv").open("w", newline="", encoding="utf-8") as f:
        while not asked and (part := (time.monotonic() - begun) / seconds) < 1:
            trainer.set_rates(step, part)
            trainer.begin.copy_(trainer.clips.draw(trainer.counts, rng))
            run()
            step += 1
            if step % every:
                continue
            row = {"step": step, "seconds": round(time.monotonic() - begun, 1)}
            row |= {k: round(v.item(), 4) for k, v in trainer.found.items()}
            if writer is None:
                writer = csv.DictWriter(f, list(row))
                writer.writeheader()
            writer.writerow(row)
            f.flush()
            print(json.dumps(row), file=sys.stderr, flush=True)
            if time.monotonic() - written > save:
                written = time.monotonic()
                trainer.save(out)
    trainer.save(out)
    found = {**row, "steps": step, "seconds": round(time.monotonic() - begun, 1)}
    return found | {"stopped_by": asked[0]} if asked else found


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Loads, trains, writes."""
    from convert.vocoder import read_vocoder

    recipe = replace(Recipe(), **dict(map(change, args.set)))
    config, tensors = read_vocoder(args.initial)
    if config.griffin_lim_iters:
        raise InputError(f"{args.initial}: discriminators train no vocoder of griffin_lim_iters")
    vocoder = Vocos(config)
    vocoder.load_state_dict({k: v.float() for k, v in tensors.items()})
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    recordings, spoken = read(args.recordings, args.made, args.spoken, args.level, args.held_out)
    clear = None if args.clear is None else set(args.clear.read_text(encoding="utf-8").split())
    clips = gather(recordings, spoken, clear, recipe.frames, device)
    trainer = Trainer(vocoder.to(device), clips, recipe)
    if args.discriminators:
        trainer.discriminators.load_state_dict(load_file(args.discriminators))
    found = train(trainer, args.out, 60 * args.minutes, args.log_every)
    hours = {"recordings": len(clips.hops), "spoken": len(clips.spoken)}
    hours = {k: round(v / AUDIO.frame_rate / 3600, 3) for k, v in hours.items()}
    return {"hours": hours, "recipe": asdict(recipe), **found}


def change(text: str) -> tuple[str, Any]:
    """A field of Recipe and its value, from NAME=VALUE.

    Raises:
        InputError: it is not, or no field of the recipe.
    """
    name, _, value = text.partition("=")
    usual = asdict(Recipe())
    try:
        found = json.loads(value)
        return name, tuple(found) if isinstance(usual[name], tuple) else type(usual[name])(found)
    except (KeyError, TypeError, ValueError) as e:
        names = ", ".join(usual)
        raise InputError(f"--set {text!r} should be NAME=VALUE, a name of {names}") from e


def build_parser() -> argparse.ArgumentParser:
    p = Parser("python -m scripts.recipes.vocoder_gpu", __doc__)
    p.add_argument("initial", type=Path, help="folder or run whose vocoder it begins with")
    p.add_argument("--recordings", type=Path, nargs="+", required=True, help="shards")
    p.add_argument("--made", type=Path, nargs="+", default=[], help="of nanospeech prepare mels")
    p.add_argument("--spoken", type=Path, nargs="+", default=[], help="of prepare spoken")
    p.add_argument("--clear", type=Path, help="keys of the recordings to sound like; default: all")
    p.add_argument("--discriminators", type=Path, help="discriminators.safetensors to go on from")
    p.add_argument("--minutes", type=float, default=8.0, help="of training (%(default)g)")
    p.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="of Recipe")
    p.add_argument("--level", type=float, default=0.068, help="RMS of recordings (%(default)g)")
    p.add_argument("--held-out", type=float, default=0.01, help="share of clips (%(default)g)")
    p.add_argument("--log-every", type=int, default=100, help="steps (%(default)d)")
    p.add_argument("--cpu", action="store_true", help="leave GPUs alone")
    p.add_argument("--out", type=Path, required=True, help="folder")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    with alone(args.out, "--out", print):
        print(json.dumps(run(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
