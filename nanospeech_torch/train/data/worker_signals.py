"""Worker signals: a run's loader workers ignore the signals that end it. Stops no trainer.

A terminal, SLURM or `kill -TERM -PGID` signals every process of a run, its loader workers too. They
live until their own trainer ends them, as batches are needed until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


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
