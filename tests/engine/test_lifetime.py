"""Lifetime: engines and their threads go when nothing has them any more, without a collection."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from nanospeech import load_engine
from nanospeech.engine.worker import Worker


def test_an_engine_goes_with_its_last_reference(tiny_release, backend, uncollected):
    engine = load_engine(tiny_release, backend, "cpu", "float32")
    gone = weakref.ref(engine)
    del engine
    assert gone() is None


def test_a_worker_ends_its_thread_and_frees_its_engine(tiny_release, uncollected):
    def threads() -> int:
        return sum(t.name == "nanospeech" for t in threading.enumerate())

    def ended(wanted: int) -> bool:
        for t in threading.enumerate():
            if t.name == "nanospeech" and threads() > wanted:
                t.join(0.5)
        return threads() == wanted

    there = threads()
    worker = Worker(lambda: load_engine(tiny_release, "torch", "cpu", "float32"))
    gone = weakref.ref(worker._engine)
    beside = worker.with_voice(None)
    del worker
    assert threads() == there + 1 and beside.backend == "torch"
    del beside
    assert ended(there) and gone() is None

    def fails():
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        Worker(fails)
    assert ended(there)


def test_a_worker_may_be_called_while_it_works(tiny_release):
    worker = Worker(lambda: load_engine(tiny_release, "torch", "cpu", "float32"))
    x, heard = np.zeros((1, 60, 100), np.float32), []

    def speak():
        worker.sample(x, x, np.array([[1, 2]]), on_step=lambda *_: heard.append(worker.vocode(x)))

    thread = threading.Thread(target=speak, daemon=True)  # which may wait for ever
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and len(heard) == worker.config.steps
