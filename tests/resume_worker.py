"""A small training run from shards, for one or several processes.

FOLDER SHARDS STEPS SAVE_STEP [SHARD TENSOR BATCH] [workers=N]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from nanospeech_torch.train.data.sources import find_shards
from nanospeech_torch.train.scale.parallel import ParallelConfig
from tests.training import samples, speech_model, trainer


def tell_what_is_read(event: str, args: tuple) -> None:
    """Prints which processes' parts of a checkpoint this process opens for reading."""
    if event == "open" and args[1] == "r" and Path(str(args[0])).name.startswith("rank_"):
        print("opened", Path(args[0]).name)


def main(*arguments: str) -> None:
    sys.addaudithook(tell_what_is_read)
    plain = [arg for arg in arguments if not arg.startswith("workers=")]
    workers = sum(int(arg.partition("=")[2]) for arg in arguments if arg not in plain)
    folder, shards, steps, save_step, *split = plain
    shard, tensor, batch = (int(n) for n in split or (1, 1, 2))
    torch.set_num_threads(1)
    aligned = {"text_upsampling": "aligned", "patch_size": 2, "qk_norm": True, "rope_heads": 2}
    run = trainer(
        Path(folder),
        speech_model(**(aligned if split else {})),
        schedule="constant",
        shuffle_buffer=3,
        keep=9,
        parallel=ParallelConfig(shard=shard, tensor=tensor),
    )
    # a plain list keeps its order: batches are then the same however many processes share them
    data = samples() if split else find_shards([f"{shards}/*.tar"])
    plan = {"batch_size": batch, "max_duration": 200, "num_workers": workers}
    run.train(data, int(steps), **plan, save_step=int(save_step))


if __name__ == "__main__":
    main(*sys.argv[1:])
