"""Options: length and rate of finetuning, and their defaults, which depend on where it starts."""

from __future__ import annotations

import argparse
import dataclasses

from nanospeech.config import option
from nanospeech.errors import InputError

RATES = {"full": 2e-4, "lora": 1e-3, "imitator": 1e-4}


@dataclasses.dataclass(frozen=True)
class Options:
    """Length and rate of the training; the defaults suit five minutes of one voice."""

    steps: int | None = option(
        None, "optimiser steps; default 200 from an imitator, else 300, with --rehearse 900"
    )
    lr: float | None = option(
        None, "highest learning rate; default 1e-4 from an imitator, else 2e-4, with LoRA 1e-3"
    )
    warmup: int = option(30, "steps to the highest learning rate, from which it falls to 0")
    batch_size: int = option(16, "at most so many recordings a step, over all processes")
    batch_frames: int = option(
        3000, "at most so many mel frames a step (93.75 a second), over all processes"
    )
    max_seconds: float = option(12.0, "longer recordings are left out")
    save_step: int = option(100, "steps between checkpoints")
    ema_decay: float = option(0.98, "of the averaged weights, which are the ones exported")
    rehearse_share: float = option(0.5, "share of --rehearse in each epoch's time")
    strength: float | None = option(
        None,
        "how far the exported weights go from the model's to the trained ones; default 1 from an"
        " imitator and with --rehearse, else 0.5, as a few minutes alone blur the words",
    )
    seed: int = option(0, "of the order, the draws and which recordings --minutes takes")

    def __post_init__(self):
        for name in ("steps", "batch_size", "batch_frames", "save_step"):
            value = getattr(self, name)
            if value is not None and value < 1:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} is {value}, should be at least 1")
        if self.warmup < 0:
            raise InputError(f"--warmup is {self.warmup}, should be at least 0")
        if not self.max_seconds > 0:
            raise InputError(f"--max-seconds is {self.max_seconds:g}; choose more than 0")
        if not 0 <= self.rehearse_share < 1:
            raise InputError(f"--rehearse-share is {self.rehearse_share}; choose 0 up to 1")
        if self.strength is not None and not 0 < self.strength <= 1:
            raise InputError(f"--strength is {self.strength}; choose more than 0, up to 1")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"--seed is {self.seed}; choose 0 up to {2**32 - 1}")
        if self.lr is not None and not 0 < self.lr < 1:
            raise InputError(f"--lr is {self.lr}; choose more than 0, less than 1")

    def filled_in(self, args: argparse.Namespace, imitator: bool) -> Options:
        """The same, with what was not given and depends on where training starts.

        Args:
            imitator: it starts from one, see start.is_imitator.
        """
        full = "imitator" if imitator else "full"
        usual = {
            "steps": 900 if args.rehearse else 200 if imitator else 300,
            "strength": 1.0 if args.rehearse or imitator else 0.5,
            "lr": RATES["lora" if args.lora else full],
        }
        missing = {name: value for name, value in usual.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)
