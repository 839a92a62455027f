"""The PyTorch import path of the training guide; the code is in the package nanospeech_torch."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import require
from .machine import share_cores

share_cores()
require("torch", "torch")

import numpy as np  # noqa: E402
import torch  # noqa: E402

from nanospeech.text.tokenizer import Tokenizer, pad_tokens  # noqa: E402
from nanospeech_torch.dit import DiT  # noqa: E402
from nanospeech_torch.duration import DurationTransformer  # noqa: E402
from nanospeech_torch.mel import MelSpec  # noqa: E402
from nanospeech_torch.train.objectives.duration import DurationPredictor  # noqa: E402
from nanospeech_torch.train.objectives.flow import Nanospeech  # noqa: E402

from .config import AudioConfig  # noqa: E402

SAMPLES_PER_SECOND = AudioConfig().frame_rate  # mel frames: 93.75

__all__ = [
    "SAMPLES_PER_SECOND",
    "DiT",
    "DurationPredictor",
    "DurationTransformer",
    "MelSpec",
    "Nanospeech",
    "list_str_to_tensor",
    "list_str_to_vocab_tensor",
]


def list_str_to_vocab_tensor(text: list[str], vocab: Mapping[str, int]) -> torch.Tensor:
    """Character ids int64 (B, T), padded with -1; unknown characters are left out."""
    ids = [[vocab[c] for c in line if c in vocab] for line in text]
    return torch.from_numpy(pad_tokens([np.array(row, np.int64) for row in ids]))


def list_str_to_tensor(text: list[str]) -> torch.Tensor:
    """UTF-8 bytes int64 (B, T), padded with -1."""
    tokenizer = Tokenizer("bytes", [])
    return torch.from_numpy(pad_tokens([tokenizer.encode(line) for line in text]))
