"""The trainers' import path of the training guide; see nanospeech_torch.train.loop.trainer."""

from .errors import require
from .machine import share_cores

share_cores()
require("torch", "train")
require("accelerate", "train")

from nanospeech_torch.train.loop.config import TrainConfig  # noqa: E402
from nanospeech_torch.train.loop.trainer import DurationTrainer, NanospeechTrainer  # noqa: E402

__all__ = ["DurationTrainer", "NanospeechTrainer", "TrainConfig"]
