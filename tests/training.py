"""Tiny models and real samples for the training tests; also what each of two processes runs."""

from __future__ import annotations

import io
import json
import tarfile
from functools import partial
from pathlib import Path

import torch

from nanospeech.config import AudioConfig, DiTConfig
from nanospeech.nanospeech_torch import (
    DiT,
    DurationPredictor,
    DurationTransformer,
    Nanospeech,
    list_str_to_vocab_tensor,
)
from nanospeech.trainer_torch import DurationTrainer, NanospeechTrainer
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.loop.config import LogConfig

SHARD = Path(__file__).parent / "fixtures" / "speech-000000.tar"
VOCAB = {c: i for i, c in enumerate(" '.,ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")}
CPU = {"cpu": True}


def samples() -> list[dict]:
    """The shard's samples as the datasets library would give them."""
    found: dict[str, dict] = {}
    with tarfile.open(SHARD) as tar:
        for member in tar:
            key, _, kind = member.name.partition(".")
            data = tar.extractfile(member).read()  # type: ignore[union-attr]
            value = {"bytes": data} if kind == "mp3" else json.loads(data)
            found.setdefault(key, {"__key__": key})[kind] = value
    return list(found.values())


def write_tar(path: Path, files: list[tuple[str, bytes]]) -> Path:
    """A tar of (name, content)."""
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_shards(folder: Path, count: int = 2) -> list[str]:
    """The samples dealt over `count` shards."""
    paths = []
    for index in range(count):
        path = folder / f"shard-{index:06d}.tar"
        with tarfile.open(path, "w") as tar:
            for sample in samples()[index::count]:
                meta = json.dumps(sample["json"]).encode()
                for kind, data in (("mp3", sample["mp3"]["bytes"]), ("json", meta)):
                    info = tarfile.TarInfo(f"{sample['__key__']}.{kind}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        paths.append(str(path))
    return paths


def speech_model(**options) -> Nanospeech:
    """A tiny speech model; the same weights at every call."""
    torch.manual_seed(0)
    sizes = {"dim": 64, "depth": 1, "heads": 2, "dim_head": 32, "text_dim": 32, "conv_layers": 1}
    config = DiTConfig(**{**sizes, "text_num_embeds": len(VOCAB), "dropout": 0.0, **options})
    tokenizer = partial(list_str_to_vocab_tensor, vocab=VOCAB)
    audio = AudioConfig(mel_mean=-3.0, mel_std=3.0)
    # pairs depend on which clips a process sees, so two processes make others than one
    return Nanospeech(DiT(config), tokenizer, audio, LossConfig(pair=0.0))


def duration_model() -> DurationPredictor:
    """A tiny duration model."""
    torch.manual_seed(0)
    transformer = DurationTransformer(
        dim=64,
        depth=1,
        heads=1,
        text_dim=32,
        conv_layers=1,
        text_num_embeds=len(VOCAB),
        dropout=0.0,
    )
    return DurationPredictor(transformer, partial(list_str_to_vocab_tensor, vocab=VOCAB))


def trainer(run_dir: Path, model=None, lr: float = 1e-3, **settings) -> NanospeechTrainer:
    """A trainer of a tiny model on the CPU."""
    model = model or speech_model()
    kind = DurationTrainer if isinstance(model, DurationPredictor) else NanospeechTrainer
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    settings = {"log_every": 1, "ema_decay": 0.9, "buckets": 1, **settings}
    return kind(model, optimizer, 2, CPU, run_dir, **settings)


def train_share(folder: Path, size: int, aligned: bool, times: int) -> None:
    """A short run of one process or of each of several, whose global batches are the same.

    Args:
        size, times: of the batches, and how many micro-batches a step has; 1 and 1 in each of two
            processes are 2 and 1, or 1 and 2, in one.
    """
    options = {"text_upsampling": "aligned", "patch_size": 2} if aligned else {}
    torch.set_num_threads(1)
    log = LogConfig(held_out=[str(SHARD)], held_out_every=2)
    run = trainer(folder, speech_model(**options), log=log, accumulate=times)
    run.train(samples(), 4, batch_size=size, max_duration=200, save_step=100)


def train_beside_bad_samples(folder: Path) -> None:
    """Two steps of one process or of each of two, which leave out one of two samples each."""
    bad = [{"__key__": key, "json": {"duration": 1.0}} for key in ("mute", "dumb")]
    torch.set_num_threads(1)
    trainer(folder).train([*samples(), *bad], 2, batch_size=2, max_duration=200)
