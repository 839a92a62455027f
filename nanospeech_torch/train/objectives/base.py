"""Objective: the training loop's interface to a model with its losses. No losses here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from nanospeech.config import AudioConfig
from nanospeech_torch.train.data.batches import Batches, BatchPlan, StreamOptions

# name of a loss -> (sum over its elements, number of elements); the trainer divides, after adding
# up both over processes, so that two processes give the loss of one with the same global batch
Sums = dict[str, tuple[Tensor, Tensor]]


class Objective(nn.Module):
    """A model with its losses: `forward(batch)` returns their sums and counts, and nothing else.

    With several phases it is `forward(batch, phase)`. A subclass defines forward, weights and
    batches; the other methods have defaults for one phase at the schedule's rate.

    Attributes:
        audio: the mel of its batches.
        loss: settings of its losses, a dataclass.
        tokenizer: nanospeech.text.tokenizer.Tokenizer, or a function of a list of texts that
            returns ids (B, T) padded with -1; None for a model that reads no text.
    """

    audio: AudioConfig
    loss: Any
    tokenizer: Any
    speaks = False  # whether it can speak log.sentences (log.sample_every)

    def weights(self) -> dict[str, float]:
        """Weights of the losses in the total; a loss without a weight is only logged."""
        raise NotImplementedError

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> Batches:
        """Endless batches of a dataset, as forward takes them; see data/batches.py."""
        raise NotImplementedError

    def phases(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that each pass over a batch trains; one unnamed pass here."""
        return {"": [p for p in self.parameters() if p.requires_grad]}

    def active_phases(self) -> tuple[str, ...]:
        """The phases of this step, in order."""
        return tuple(self.phases())

    def rate(self, phase: str) -> float:
        """Learning rate of a phase in this step, relative to the schedule's."""
        return 1.0

    def rates(self) -> dict[str, float]:
        """Peak rates of parameters that learn slower or faster, by name, relative to the others."""
        return {}

    def begin_step(self, step: int, total: float) -> None:
        """Called before optimiser step `step` of `total`; random draws depend on these alone."""

    def counts(self, batch: Any, phase: str = "") -> dict[str, Tensor] | None:
        """Elements of each loss of a batch, those of forward, without running the network.

        None: unknown, so that forward is run once more where micro-batches are accumulated.
        """
        return None

    def averaged(self) -> nn.Module:
        """The part that the moving average follows."""
        return self

    def teachers(self) -> tuple[nn.Module, ...]:
        """Networks that forward runs beside the one that learns, to be compiled as it is."""
        return ()

    @property
    def guided(self) -> bool:
        """Whether targets contain the average's guidance; the loop then calls guide_with."""
        return False

    def guide_with(self, ema: dict[str, Tensor]) -> None:
        """Sets the average's parameters by name, which are not copied."""

    def multiple(self) -> int:
        """Frames that padded lengths are multiples of: 8 positions of the network."""
        return 8

    def flops(self, batch: Any) -> int:
        """Operations of forward and backward of a batch, by its shape; 0: not known."""
        return 0

    def model_config(self) -> dict[str, Any]:
        """The sections of config.json that a converter builds the model from."""
        return {}


def sections(name: str, config: Any, model: Objective) -> dict[str, Any]:
    """config.json's sections of a network that reads texts.

    Args:
        name, config: of the network.
        model: has the audio and the tokenizer.
    """
    return {
        name: asdict(config),
        "audio": asdict(model.audio),
        "tokenizer": getattr(model.tokenizer, "kind", "chars"),
        "language": getattr(model.tokenizer, "language", ""),
    }
