"""Worker: an engine that lives in one thread, for programs with many. Knows no array library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any

from .base import Engine


class Worker:
    """An engine whose work is done in a thread of its own, one call after the other.

    It has the interface of an engine, so a Speaker can use it, from any thread. MLX on a GPU needs
    this, because a lazy array can only be computed in the thread that made it.

    Args:
        load: makes the engine, for example `lambda: load_engine(backend="mlx")`. It is called in
            the new thread; an exception in it is raised here.
    """

    def __init__(self, load: Callable[[], Engine]):
        self._calls: SimpleQueue = SimpleQueue()
        # it waits for calls until the program ends: a thread that ends at the same time as that
        # aborts it, where MLX has compiled something in the thread
        Thread(target=work, args=(self._calls,), name="nanospeech", daemon=True).start()
        self._engine: Engine = self._run(load)

    def _run(self, call: Callable, *args: Any, **options: Any) -> Any:
        """Calls in the thread; returns its result or raises its exception."""
        done: Future = Future()
        self._calls.put((done, call, args, options))
        return done.result()

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
        worker._calls, worker._engine = self._calls, engine
        return worker


def work(calls: SimpleQueue) -> None:
    """Does calls in order, for ever."""
    while True:
        done, call, args, options = calls.get()
        try:
            done.set_result(call(*args, **options))
        except BaseException as e:
            done.set_exception(e)
        del done, call, args, options  # the last call's arrays are not kept
