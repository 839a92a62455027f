"""Accelerator: Hugging Face Accelerate's, set up as the loop needs it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nanospeech.errors import InputError, require
from nanospeech_torch.train.scale.parallel import PATIENCE

from .config import LogConfig, TrainConfig


def make_accelerator(kwargs: dict[str, Any], log: LogConfig, folder: Path) -> Any:
    """The Accelerator; gradient accumulation is the loop's own.

    Args:
        kwargs: of accelerate.Accelerator.
        log: names the trackers.
        folder: of the run, for trackers that write files.
    """
    accelerate = require("accelerate", "train")
    kwargs = {"gradient_accumulation_steps": 1, **kwargs}
    group, handlers = accelerate.InitProcessGroupKwargs, list(kwargs.get("kwargs_handlers") or ())
    if not any(isinstance(handler, group) for handler in handlers):
        kwargs["kwargs_handlers"] = [*handlers, group(timeout=PATIENCE)]
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.accelerator.is_available():
        kwargs.setdefault("cpu", True)  # else the processes would not communicate
    for name in log.trackers:
        require(name, "trackers")
    if log.trackers:
        kwargs.setdefault("log_with", list(log.trackers))
        kwargs.setdefault("project_dir", str(folder))
    return accelerate.Accelerator(**kwargs)


def take_accumulation(accelerator: Any, config: TrainConfig) -> TrainConfig:
    """Moves Accelerate's gradient accumulation to the loop.

    Raises:
        InputError: both set it, to different numbers.
    """
    asked = accelerator.gradient_accumulation_steps
    if asked == 1:
        return config
    if config.accumulate not in (1, asked):
        raise InputError(
            f"Accelerate is to accumulate {asked} batches and train.accumulate is "
            f"{config.accumulate}; set train.accumulate alone"
        )
    accelerator.gradient_accumulation_steps = 1
    return replace(config, accumulate=asked)
