"""Run state: the position of a training run. Numbers alone; no trainer, no model and no files."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from nanospeech_torch.train.data.stream_state import StreamState


@dataclass
class RunState:
    """The position of a run. Only the Trainer changes it; the log, checkpoints and others read it.

    Attributes:
        step: optimiser steps taken.
        consumed: batches that this process has taken from its loader.
        places: states of its streams after these, by loader worker.
        skipped: samples left out since this process began, by reason.
        data_wait: seconds that this process has waited for batches.
        elapsed_before: seconds of training before this process began.
        since: time.monotonic() at the run's beginning, as if never interrupted.
        time_fraction: fraction of train.minutes that has passed, in [0, 1]; the same on all
            processes.
        stop_request: the name of a signal, or True, if the run should end after its step.
    """

    step: int = 0
    consumed: int = 0
    places: dict[int, StreamState] = field(default_factory=dict)
    skipped: Counter = field(default_factory=Counter)
    data_wait: float = 0.0
    elapsed_before: float = 0.0
    since: float = field(default_factory=time.monotonic)
    time_fraction: float = 0.0
    stop_request: str | bool = False

    def seconds(self) -> float:
        """Time of training since the run began, that of earlier processes included."""
        return time.monotonic() - self.since

    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch that this process's streams are in."""
        found = [place.epoch for place in self.places.values()]
        return min(found, default=0), max(found, default=0)
