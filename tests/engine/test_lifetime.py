"""Lifetime: engines and their threads go when nothing has them any more, without a collection."""

from __future__ import annotations

import copy
import pickle
import threading
import weakref

import numpy as np
import pytest

from nanospeech import Speaker, load_engine
from nanospeech.engine.worker import Worker
from nanospeech.errors import InputError


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


@pytest.mark.parametrize("how", ["engine", "worker"])
def test_copies_share_an_engine_and_pickling_says_what_to_do_instead(tiny_release, engine_of, how):
    engine = engine_of(tiny_release, "onnx")
    speaker = Speaker(engine if how == "engine" else Worker(lambda: engine), seed=1)
    for one in (speaker.engine, speaker):
        with pytest.raises(InputError, match=r"cannot be pickled, .* load the model there"):
            pickle.dumps(one)
    for other in (copy.copy(speaker), copy.deepcopy(speaker)):
        assert other.engine.dit is engine.dit and other.engine.with_voice(None).dit is engine.dit
