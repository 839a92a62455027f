"""Signals: handling of Ctrl-C, SIGTERM and SIGHUP by a training run. Saves nothing itself.

A terminal, SLURM or `kill -TERM -PGID` signals every process of a run. The trainers end their step
and save; what loader workers do is in data/worker_signals.py.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nanospeech.cli import Lasting
from nanospeech_torch.train.data.worker_signals import ASKING

if TYPE_CHECKING:  # it imports torch, before which OpenMP has to be set up
    from nanospeech_torch.train.scale.parallel import Parallel

AGREE_EVERY = 10  # most steps between agreements of the processes on stopping
AGREE_SECONDS = 5.0  # and about the most seconds
EARLY: list[str] = []  # signals that came before there was a trainer to stop


@contextlib.contextmanager
def early_signals() -> Iterator[None]:
    """Within the context, a SIGTERM before training stops the run at its first step.

    Imports and a large model take a while. One that comes after training changes nothing any more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: EARLY.append("SIGTERM"))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        EARLY.clear()


class StopSignals:
    """While open, Ctrl-C, SIGTERM and SIGHUP ask a run to stop after its step.

    A second Ctrl-C ends it at once; under nohup a SIGHUP is still ignored. In another thread than
    the main one no signal is handled: only the main one hears them. What the run prints never
    ends it: Ctrl-C ends the `tee` behind a run before the run has saved.

    Args:
        request: is given a signal's name; returns whether the run was asked to stop before.
    """

    def __init__(self, request: Callable[[str], bool]):
        self.request = request
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        self.printed = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (Lasting(stream) for stream in self.printed)  # type: ignore
        if threading.current_thread() is threading.main_thread():
            for number in ASKING:
                ignored = signal.getsignal(number) == signal.SIG_IGN
                if not (ignored and signal.Signals(number).name == "SIGHUP"):  # under nohup
                    self.before[number] = signal.signal(number, self.ask)
        if EARLY:
            self.request(EARLY[0])

    def __exit__(self, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        sys.stdout, sys.stderr = self.printed

    def ask(self, number: int, frame: Any) -> None:
        """The handler; the loop reports the request, as no handler may print."""
        if self.request(signal.Signals(number).name) and number == signal.SIGINT:
            raise KeyboardInterrupt


class Agreement:
    """The processes' agreement to stop, every few steps: none may stop alone.

    Args:
        parallel: the processes.
        step: that the run begins at.

    Attributes:
        fraction: of the run's time that is over, as the processes agree on it.
    """

    def __init__(self, parallel: Parallel, step: int):
        self.parallel = parallel
        self.ask_at = self.asked = step
        self.began = time.monotonic()
        self.fraction = 0.0

    def stop(self, step: int, wanted: bool, fraction: float) -> bool:
        """Whether all processes stop before another step.

        Args:
            step: steps taken.
            wanted: this process wants to stop.
            fraction: of the run's time that is over, by this process's clock.
        """
        if self.parallel.world == 1:
            self.fraction = fraction
            return wanted or fraction >= 1
        if step < self.ask_at:
            return False
        span, self.began = time.monotonic() - self.began, time.monotonic()
        steps = max(1, step - self.asked)
        mine = (wanted, AGREE_SECONDS * steps / max(span, 1e-9), fraction)
        gathered = self.parallel.gather(mine)
        self.asked = step
        self.ask_at = step + max(1, min(AGREE_EVERY, int(min(n for _, n, _ in gathered))))
        self.fraction = max(fraction for *_, fraction in gathered)
        return any(stop for stop, *_ in gathered) or self.fraction >= 1
