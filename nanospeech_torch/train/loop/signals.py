"""Stop: what Ctrl-C and SIGTERM do to a training run and its loader workers. Saves nothing itself.

A terminal, SLURM or `kill -TERM -PGID` signals every process of a run. The trainers end their step
and save; the loader workers live until their trainer ends them, as batches are needed until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Trainer

AGREE_EVERY = 10  # most steps between questions to the other processes whether to stop
AGREE_SECONDS = 5.0  # and about the most time: who stops a run does not wait long for it
ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


EARLY: list[str] = []  # signals that came before there was a trainer to stop


@contextlib.contextmanager
def early_signals() -> Iterator[None]:
    """A SIGTERM that comes inside, but before training, stops the run at its first step.

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
    """While open, Ctrl-C and SIGTERM ask a trainer to stop after its step.

    A second Ctrl-C ends it at once. In another thread than the main one it does nothing: only the
    main one hears signals.
    """

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in ASKING:
                self.before[number] = signal.signal(number, self.ask)
        if EARLY:
            self.trainer.stopping = EARLY[0]

    def __exit__(self, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ask(self, number: int, frame: Any) -> None:
        if self.trainer.stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.trainer.stopping = signal.Signals(number).name  # told by the loop: not from in here


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Signals that arrive inside are dealt with afterwards; processes started inside inherit that.

    So none reaches a loader worker before `outlive` does.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive(worker: int) -> None:
    """Makes a loader worker deaf to signals, but for a SIGTERM from its own trainer.

    That is how a DataLoader ends a worker that still reads when the run is over. Where the sender
    cannot be told (macOS), such a worker ends after its read.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=obey, args=(os.getppid(),), name="stop", daemon=True).start()
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def obey(trainer: int) -> None:
    """Ends this process at a SIGTERM from the process `trainer`; takes all others for nothing."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(0)


class Agreement:
    """Whether processes stop: they agree on it every few steps, as one alone would hang.

    Args:
        trainer: gives processes, step and clock; its `time_fraction` is kept up to date here.
    """

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.ask_at = self.asked = trainer.step
        self.began = time.monotonic()

    def stop(self, late: bool) -> bool:
        """Whether all processes stop; late: this one's time is up."""
        t = self.trainer
        now, minutes = late or bool(t.stopping), t.config.minutes
        share = t.seconds() / (60 * minutes) if minutes else 0.0
        if t.parallel.world == 1:
            t.time_fraction = share
            return now or share >= 1
        if t.step < self.ask_at:
            return False
        span, self.began = time.monotonic() - self.began, time.monotonic()
        steps = max(1, t.step - self.asked)
        told = t.parallel.gather((now, AGREE_SECONDS * steps / max(span, 1e-9), share))
        self.asked = t.step
        self.ask_at = t.step + max(1, min(AGREE_EVERY, int(min(n for _, n, _ in told))))
        t.time_fraction = max(share for *_, share in told)
        return any(stop for stop, *_ in told) or t.time_fraction >= 1
