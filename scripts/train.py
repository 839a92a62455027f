"""Trains a speech or duration model from one YAML file.

    accelerate launch scripts/train.py --config scripts/configs/default_voice.yaml
    accelerate launch scripts/train.py --config FILE --set total_steps=20000 optimizer.lr=2e-4

Running the same command again goes on from the newest checkpoint of run_dir.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import sys
from pathlib import Path
from typing import Any

from nanospeech.config import AudioConfig, DiTConfig, DurationConfig, from_dict
from nanospeech.errors import InputError, NanospeechError, require
from nanospeech.tokenizer import Tokenizer, phoneme_vocab


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where samples come from and how they are batched."""

    tokenizer: str = "chars"
    vocab: str | None = None  # vocab.txt; not needed for phonemes and bytes
    workers: int = 0
    cache_mb: int = 0
    batch_size: int = 64
    max_batch_frames: int = 30_000
    max_duration: int = 937


SECTIONS = {"data", "audio", "dit", "duration", "loss", "optimizer", "train"}
PLAIN = {
    "model": "speech",
    "run_dir": "runs/nanospeech",
    "total_steps": 100_000,
    "warmup_steps": 1000,
    "save_step": 10_000,
    "mixed_precision": "no",
}


def read_config(path: str, changes: list[str]) -> dict[str, Any]:
    """The YAML mapping with --set changes applied.

    Raises:
        InputError: no such file, not a mapping, an unknown key or a malformed change.
    """
    yaml = require("yaml", "train")
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as e:
        raise InputError(f"cannot read {path}: {e}") from e
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise InputError(f"--set {change!r} should be KEY=VALUE")
        *parents, last = key.split(".")
        inner = values
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = yaml.safe_load(value)
        if isinstance(inner[last], str):  # YAML reads 2e-4 as text
            try:
                inner[last] = float(value)
            except ValueError:
                pass
    if extra := sorted(values.keys() - SECTIONS - PLAIN.keys()):
        raise InputError(
            f"unknown keys {extra} in {path}; it may hold {sorted(SECTIONS | set(PLAIN))}"
        )
    return PLAIN | values


def build(config: dict[str, Any], tokenizer: Tokenizer) -> Any:
    """The model with its loss."""
    from nanospeech_torch.dit import DiT
    from nanospeech_torch.duration import DurationTransformer
    from nanospeech_torch.flow import DurationPredictor, LossConfig, Nanospeech

    audio = from_dict(AudioConfig, config.get("audio") or {}, "audio")
    if config["model"] == "speech":
        sizes = {**(config.get("dit") or {}), "text_num_embeds": len(tokenizer)}
        network = DiT(from_dict(DiTConfig, sizes, "dit"))
        loss = from_dict(LossConfig, config.get("loss") or {}, "loss")
        return Nanospeech(network, tokenizer, audio, loss)
    if config["model"] == "duration":
        sizes = {**(config.get("duration") or {}), "text_num_embeds": len(tokenizer)}
        network = DurationTransformer(from_dict(DurationConfig, sizes, "duration"))
        return DurationPredictor(network, tokenizer, audio)
    raise InputError(f"model is {config['model']!r}; choose speech or duration")


def run(config: dict[str, Any], resume: str = "auto", minutes: float | None = None) -> None:
    """Trains what a config says."""
    import torch

    from nanospeech_torch.trainer import DurationTrainer, NanospeechTrainer, TrainConfig

    datasets = require("datasets", "train")
    section = dict(config.get("data") or {})
    patterns = section.pop("shards", [])
    patterns = [patterns] if isinstance(patterns, str) else patterns
    files = sorted(f for pattern in patterns for f in glob.glob(pattern))
    if not files:
        raise InputError(f"no shards match data.shards = {patterns}")
    data = from_dict(DataConfig, section, "data")
    if data.tokenizer == "phonemes" and data.vocab is None:
        tokenizer = Tokenizer("phonemes", phoneme_vocab())
    elif data.tokenizer == "bytes" or data.vocab:
        tokenizer = Tokenizer.load(data.tokenizer, data.vocab or "")
    else:
        raise InputError("data.vocab should name the vocab.txt of the characters")
    model = build(config, tokenizer)
    options = {k: v for k, v in (config.get("optimizer") or {}).items()}
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
    kind = NanospeechTrainer if config["model"] == "speech" else DurationTrainer
    trainer = kind(
        model,
        optimizer,
        config["warmup_steps"],
        {"mixed_precision": config["mixed_precision"]},
        config["run_dir"],
        from_dict(TrainConfig, config.get("train") or {}, "train"),
    )
    count = sum(p.numel() for p in model.parameters())
    trainer.accelerator.print(f"{count:,} parameters, {len(files)} shards")
    dataset = datasets.load_dataset("webdataset", data_files=files, split="train", streaming=True)
    trainer.train(
        dataset,
        config["total_steps"],
        data.batch_size,
        data.max_batch_frames,
        data.max_duration,
        data.workers,
        config["save_step"],
        resume,
        data.cache_mb * 2**20,
        minutes,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="YAML file, see scripts/configs")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to it")
    parser.add_argument("--resume", default="auto", help="auto (default), never, or a checkpoint")
    parser.add_argument("--minutes", type=float, help="save and stop after this long")
    parser.add_argument("--threads", type=int, help="CPU threads of torch")
    args = parser.parse_args(argv)
    try:
        config = read_config(args.config, args.set)
        if args.threads:
            import torch

            torch.set_num_threads(args.threads)
        run(config, args.resume, args.minutes)
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
