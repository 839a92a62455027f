"""Workers: processes that a command starts end with it, and silently. Gives them no work."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import connection

MOST_ON_WINDOWS = 60  # a process there waits for 63 others at most, and pools for some things more


def most(jobs: int) -> int:
    """So many processes, or as many as a pool can have here."""
    return min(jobs, MOST_ON_WINDOWS) if sys.platform == "win32" else jobs


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Blocks Ctrl-C within the context: processes started inside end by it in `serve_parent` only.

    In the midst of their imports each would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve_parent() -> None:
    """Makes a process a worker: it ends without a word at Ctrl-C, and with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_parent()


def end_with_parent() -> None:
    """Ends this process when the one that started it is killed.

    It would wait for work for ever, or write on beside the run that goes on where the killed one
    was.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
