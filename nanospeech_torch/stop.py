"""Stop: what Ctrl-C and SIGTERM do to a training run. Saves nothing itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Trainer


class StopSignals:
    """While open, Ctrl-C and SIGTERM ask a trainer to stop after its step.

    A second Ctrl-C ends it at once.
    """

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self.ask)

    def __exit__(self, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ask(self, number: int, frame: Any) -> None:
        if self.trainer.stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.trainer.stopping = signal.Signals(number).name  # told by the loop: not from in here
