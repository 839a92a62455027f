"""Worker signals: a run and its loader workers do not end each other's steps. Stops no trainer.

A terminal, SLURM or `kill -TERM -PGID` signals every process of a run, its loader workers too. They
live until their own trainer ends them, as it needs batches until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
ASKING = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Blocks signals within the context; processes started inside inherit that.

    So none reaches a loader worker before `outlive` has run.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def deaths_wait() -> Iterator[None]:
    """Within the context, a DataLoader is kept from a handler of its workers' deaths.

    It would raise in the midst of a step. Without it the death is found, within five seconds, where
    a batch is asked for, and the steps before can be saved.
    """
    here = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
    before = signal.getsignal(signal.SIGCHLD) if here else None
    try:
        yield
    finally:
        if here:
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def outlive(worker: int) -> None:
    """Makes a loader worker ignore signals, except for a SIGTERM from its own trainer.

    A DataLoader sends that to a worker that still reads at the end of a run. Where the sender is
    not known (macOS), such a worker ends after its read.
    """
    for number in set(ASKING) - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=obey, args=(os.getppid(),), name="stop", daemon=True).start()
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def obey(trainer: int) -> None:
    """Ends this process on a SIGTERM from the process `trainer`; ignores all others."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(0)
