"""Worker: an engine that lives in one thread, for programs with many. Knows no array library."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any
from weakref import finalize

from nanospeech.errors import BackendError

from .base import Engine
from .shared import Shared


class Worker(Shared):
    """An engine whose work is done in a thread of its own, one call after the other.

    It has the interface of an engine, so a Speaker can use it, from any thread. MLX on a GPU needs
    this, because a lazy array can only be computed in the thread that made it. The thread ends when
    nothing refers to the worker any more.

    Args:
        load: makes the engine, for example `lambda: load_engine(backend="mlx")`. It is called in
            the new thread; an exception in it is raised here.
    """

    def __init__(self, load: Callable[[], Engine]):
        self._line = Line()
        try:
            self._engine: Engine = self._run(load)
        except BaseException:
            self._line.end()
            raise

    def _run(self, call: Callable, *args: Any, **options: Any) -> Any:
        """Calls in the thread; returns its result or raises its exception."""
        if (here := os.getpid()) != self._line.process:
            raise BackendError(
                f"process {here} was forked from {self._line.process}, in a thread of which the"
                " engine lives: make the Worker after the fork, or start processes with"
                " multiprocessing's method spawn"
            )
        if current_thread() is self._line.thread:  # an on_step that speaks must not wait
            return call(*args, **options)
        done: Future = Future()
        self._line.calls.put((done, call, args, options))
        try:
            return done.result()
        finally:
            del done  # an exception's traceback has this frame

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._engine, name)
        if not inspect.ismethod(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            result = self._run(value, *args, **options)
            return self._beside(result) if isinstance(result, Engine) else result

        return call

    def _beside(self, engine: Engine) -> Worker:
        """A worker for another engine, in the same thread."""
        worker = Worker.__new__(Worker)
        worker._line, worker._engine = self._line, engine
        return worker


class Line:
    """The way to a thread, which ends when nothing has it any more."""

    def __init__(self) -> None:
        self.process = os.getpid()  # a forked one has no such thread
        self.calls: SimpleQueue = SimpleQueue()
        self.thread = Thread(target=work, args=(self.calls,), name="nanospeech", daemon=True)
        self.thread.start()
        # not when the program ends: a thread that ends at the same time as that aborts it, where
        # MLX has compiled something in the thread
        self.end = finalize(self, self.calls.put, None)
        self.end.atexit = False


def work(calls: SimpleQueue) -> None:
    """Does calls in order, until there is None."""
    while (asked := calls.get()) is not None:
        done, call, args, options = asked
        try:
            done.set_result(call(*args, **options))
        except BaseException as e:
            done.set_exception(e)
        del asked, done, call, args, options  # the last call's arrays are not kept
