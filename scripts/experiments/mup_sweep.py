"""Learning rate against loss at several widths, in the standard parametrisation and in muP.

    python -m scripts.experiments.mup_sweep --shards 'shards/*.tar' --csv mup.csv --out mup.png

Trains a small speech model for each cell of widths x rates x {standard, muP} on the same clips with
the same draws, and measures the flow loss on clips held out. Cells that the CSV already has are
not run again. In muP the best rate should not change with the width. Needs matplotlib:
pip install 'nanospeech-tts[eval]'.
"""

from __future__ import annotations

import argparse
import csv
import glob
import io
import json
import math
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import torch

from nanospeech.audio.mel import log_mel
from nanospeech.cli import command
from nanospeech.config import AudioConfig, DiTConfig
from nanospeech.errors import DataError, InputError
from nanospeech.pictures import pyplot
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.optim.mup import base_shapes, scale_outputs_
from nanospeech_torch.train.optim.optimizers import OptimizerConfig, build_optimizers, lr_factor

COLUMNS = ("kind", "dim", "lr", "steps", "loss", "train_loss", "seconds")
# few bands, so that a patch of two frames passes through the narrowest model
AUDIO = AudioConfig(n_mels=32, mel_mean=-0.9, mel_std=2.8)
TOKENS = 256  # bytes
Clip = tuple[np.ndarray, np.ndarray]  # mel, token ids


def clips(patterns: list[str], most: int, frames: int) -> list[Clip]:
    """The first `most` clips of some shards that last no more than `frames`."""
    found: list[Clip] = []
    files = sorted(f for p in patterns for f in glob.glob(p))
    for path in files:
        samples: dict[str, dict] = {}
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, kind = member.name.partition(".")
                part = samples.setdefault(key, {})
                part[kind] = tar.extractfile(member).read()  # type: ignore[union-attr]
                if len(part) < 2 or len(found) == most:
                    continue
                sound = next(v for k, v in part.items() if k != "json")
                wave, rate = soundfile.read(io.BytesIO(sound), dtype="float32", always_2d=True)
                text = json.loads(part["json"])["text"]
                if rate != AUDIO.sample_rate or len(wave) > (frames - 1) * AUDIO.hop_length:
                    continue
                found.append((log_mel(wave.mean(1), AUDIO), np.frombuffer(text.encode(), np.uint8)))
        if len(found) == most:
            return found
    raise DataError(
        f"{files or patterns} hold {len(found)} clips of up to {frames} frames, not {most}"
    )


def batch_of(items: list[Clip], frames: int, rng: np.random.Generator) -> Batch:
    """A padded batch with draws; conditions are dropped as in training."""
    count, bands = len(items), AUDIO.n_mels
    mel = np.zeros((count, frames, bands), np.float32)
    text = np.full((count, max(len(t) for _, t in items)), -1, np.int64)
    span = np.zeros((count, frames), bool)
    for i, (m, t) in enumerate(items):
        mel[i, : len(m)], text[i, : len(t)] = m, t
        start = int(rng.integers(0, max(1, len(m) // 4)))
        span[i, start : len(m)] = True
    lens = np.array([len(m) for m, _ in items])
    both = rng.random(count) < 0.2
    arrays = {
        "mel": mel,
        "lens": lens,
        "text": text,
        "noise": rng.standard_normal(mel.shape, dtype=np.float32),
        "time": rng.random(count, dtype=np.float32),
        "span": span,
        "drop_audio": both | (rng.random(count) < 0.3),
        "drop_text": both,
        "prompt": np.maximum(1, lens // 4),
    }
    return Batch(**{k: torch.from_numpy(v) for k, v in arrays.items()})


def draws(items: list[Clip], size: int, frames: int, count: int, seed: int) -> Iterator[Batch]:
    """`count` batches over the clips in turn; the same for the same seed."""
    for step in range(count):
        rng = np.random.default_rng([seed, step])
        picked = rng.choice(len(items), size, replace=False)
        yield batch_of([items[i] for i in picked], frames, rng)


def model_of(dim: int, depth: int) -> Nanospeech:
    """A model whose heads have 64 channels; the same start for the same width."""
    torch.manual_seed(0)
    heads = dim // 64
    config = DiTConfig(
        dim=dim,
        depth=depth,
        heads=heads,
        rope_heads=heads,
        text_dim=dim,
        conv_layers=1,
        text_num_embeds=TOKENS,
        qk_norm=True,
        text_upsampling="average",
        text_masking=True,
        n_mels=AUDIO.n_mels,
        patch_size=2,
        dropout=0.0,
    )
    return Nanospeech(DiT(config), audio=AUDIO)


def cell(kind: str, dim: int, lr: float, data: list[Clip], args: argparse.Namespace) -> dict:
    """Trains one model; its losses, infinite where it diverged."""
    began = time.perf_counter()
    model = model_of(dim, args.depth)
    base = args.widths[0] if kind == "mup" else None
    if base:
        scale_outputs_(model, base_shapes(model, base))
    config = OptimizerConfig(lr=lr, betas=[0.9, 0.99], mup_base_dim=base)
    optimizers = build_optimizers(model, config)
    peaks = [[g["lr"] for g in o.param_groups] for o in optimizers]
    train, held = data[: -args.held], data[-args.held :]
    losses = []
    for step, batch in enumerate(draws(train, args.batch, args.frames, args.steps, 1)):
        factor = lr_factor(step, args.steps // 10, args.steps, "linear", 0)
        for optimizer, rates in zip(optimizers, peaks):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor
        with torch.autocast("cpu", torch.bfloat16):
            total, count = model(batch)["flow"]
        loss = total / count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        pairs = [model(b)["flow"] for b in draws(held, args.batch, args.frames, 8, 2)]
    loss = float(sum(s for s, _ in pairs) / sum(n for _, n in pairs))
    tail = losses[-max(1, len(losses) // 5) :]
    return {
        "kind": kind,
        "dim": dim,
        "lr": lr,
        "steps": args.steps,
        "loss": loss if math.isfinite(loss) else math.inf,
        "train_loss": sum(tail) / len(tail),
        "seconds": round(time.perf_counter() - began, 1),
    }


def read(path: Path) -> list[dict]:
    """The cells measured so far."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as f:
        return [
            {k: v if k == "kind" else float(v) for k, v in row.items()} for row in csv.DictReader(f)
        ]


def sweep(args: argparse.Namespace) -> list[dict]:
    """Runs the cells that are missing, narrow ones first, and appends each to the CSV."""
    path = Path(args.csv)
    rows = read(path)
    done = {(r["kind"], r["dim"], r["lr"]) for r in rows}
    todo = [
        (kind, dim, lr)
        for dim in args.widths
        for lr in args.rates
        for kind in ("standard", "mup")
        if (kind, dim, lr) not in done
    ]
    if not todo:
        return rows
    data = clips(args.shards, args.clips, args.frames)
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind, dim, lr in todo:
        twin = [r for r in rows if (r["dim"], r["lr"]) == (dim, lr)]
        if dim == args.widths[0] and twin:  # at the base width both are the same
            row = {**twin[0], "kind": kind}
        else:
            row = cell(kind, dim, lr, data, args)
        rows.append(row)
        print(f"{kind} dim {dim} lr {lr:g}: loss {row['loss']:.4f}, {row['seconds']} s", flush=True)
        new = not path.exists()
        with open(path, "a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)
    return rows


def best_rate(rows: list[dict]) -> tuple[float, float]:
    """The lowest point (rate, loss) of a parabola, in log rate, over the best cell's neighbours.

    Losses are cut at 1.25 times the best, as a diverged neighbour would distort the parabola.
    """
    rows = sorted(rows, key=lambda r: r["lr"])
    at = min(range(len(rows)), key=lambda i: rows[i]["loss"])
    near = rows[max(0, at - 1) : at + 2]
    if len(near) < 3:
        return rows[at]["lr"], rows[at]["loss"]
    x = np.log2([r["lr"] for r in near])
    y = [min(r["loss"], 1.25 * rows[at]["loss"]) for r in near]
    a, b, c = np.polyfit(x - x[1], y, 2)
    return float(2 ** (x[1] - b / (2 * a))), float(c - b * b / (4 * a))


def draw(rows: list[dict], out: str) -> None:
    """Two panels, one line a width, a cross where each is lowest."""
    plt = pyplot()

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, constrained_layout=True)
    top = 1.6 * min(r["loss"] for r in rows)
    for axis, (kind, title) in zip(axes, (("standard", "standard"), ("mup", "muP"))):
        for i, dim in enumerate(sorted({r["dim"] for r in rows})):
            line = [r for r in rows if r["kind"] == kind and r["dim"] == dim]
            if not line:
                continue
            line.sort(key=lambda r: r["lr"])
            shown = [r for r in line if math.isfinite(r["loss"])]
            axis.plot(
                [r["lr"] for r in shown], [r["loss"] for r in shown], "o-", ms=3, color=f"C{i}",
                label=f"width {dim:.0f}",
            )  # fmt: skip
            axis.plot(*best_rate(line), "x", ms=10, mew=2, color=f"C{i}")
        axis.set_xscale("log", base=2)
        axis.set(title=title, xlabel="peak learning rate")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="flow loss, held out")
    low = min(r["loss"] for r in rows)
    axes[0].set_ylim(low * 0.98, top)
    axes[0].legend()
    figure.savefig(out, dpi=130)


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.experiments.mup_sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--shards", nargs="+", default=[], help="WebDataset tars, globs allowed")
    parser.add_argument("--csv", default="docs/mup.csv", help="results, added to (%(default)s)")
    parser.add_argument("--out", default="docs/mup.png", help="picture to write (%(default)s)")
    parser.add_argument(
        "--widths", nargs="+", type=int, default=[64, 128, 256], help="of the networks (64 128 256)"
    )
    rates = [2**-n for n in range(10, 4, -1)]
    parser.add_argument("--rates", nargs="+", type=float, default=rates, help="peak rates")
    parser.add_argument("--steps", type=int, default=120, help="of each cell (%(default)s)")
    parser.add_argument("--depth", type=int, default=4, help="blocks of each network (%(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="clips a step (%(default)s)")
    parser.add_argument(
        "--frames", type=int, default=240, help="longest clip, in mel frames (%(default)s)"
    )
    parser.add_argument(
        "--clips", type=int, default=96, help="of all, held ones among them (%(default)s)"
    )
    parser.add_argument(
        "--held", type=int, default=16, help="clips that are not trained on (%(default)s)"
    )
    parser.add_argument("--threads", type=int, help="CPU threads of torch")
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    if any(w % 64 for w in args.widths) or args.widths != sorted(args.widths):
        raise InputError("widths should be multiples of 64, the narrowest first")
    rows = sweep(args)
    for kind in ("standard", "mup"):
        for dim in args.widths:
            line = [r for r in rows if r["kind"] == kind and r["dim"] == dim]
            print(f"{kind} width {dim}: best rate {best_rate(line)[0]:.2e}")
    draw(rows, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
