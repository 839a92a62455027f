"""The trainers' import path of the training guide; the code is in nanospeech_torch.trainer."""

from .errors import require
from .machine import share_cores

share_cores()
require("torch", "train")
require("accelerate", "train")

from nanospeech_torch.trainer import (  # noqa: E402
    DurationTrainer,
    NanospeechTrainer,
    TrainConfig,
)

__all__ = ["DurationTrainer", "NanospeechTrainer", "TrainConfig"]
