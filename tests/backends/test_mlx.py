"""MLX's engine: graphs for a few lengths, threads that share it, memory that is given back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.engine.worker import Worker
from nanospeech.errors import BackendError, CheckpointError, InputError
from nanospeech.release.folder import open_release
from tests.engine.test_compiled import OPTIONS, items

pytest.importorskip("mlx.core", reason="no mlx here")

import mlx.core as mx
from mlx.utils import tree_flatten

from nanospeech_mlx.compiled import CompiledNetwork
from nanospeech_mlx.engine import MlxEngine

ROOT = Path(__file__).resolve().parents[2]


def steps_of(folder, step: int, limit: int = 16) -> MlxEngine:
    """An engine that compiles for multiples of `step` patches."""
    engine = MlxEngine(open_release(folder), "cpu", compile=True)
    engine.compiled = CompiledNetwork(engine.dit, step, limit)
    return engine


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_types_are_computed_in_float32_on_a_cpu(tiny_aligned, monkeypatch, dtype):
    rounded = MlxEngine(open_release(tiny_aligned), "cpu", dtype)
    assert (rounded.dtype, rounded.rounding) == ("float32", dtype)
    weights = dict(tree_flatten(rounded.dit.parameters()))
    exact = dict(tree_flatten(load_engine(tiny_aligned, "mlx", "cpu").dit.parameters()))
    for name, weight in weights.items():
        kept = name.startswith(("text_embed.", "aligner."))
        wanted = exact[name] if kept else exact[name].astype(getattr(mx, dtype))
        assert weight.dtype == mx.float32 and mx.array_equal(weight, wanted.astype(mx.float32))
    # as a GPU computes: in the short type
    monkeypatch.setattr(MlxEngine, "half_on_cpu", True)
    short = MlxEngine(open_release(tiny_aligned), "cpu", dtype)
    assert short.dtype == dtype and short.dit.proj_out.weight.dtype == getattr(mx, dtype)
    x = np.random.default_rng(0).standard_normal((1, 40, 100)).astype(np.float32)
    args = x, x * 0, np.array([[1, 5, 7]]), np.array([0.4], np.float32)
    a, b = (engine.velocity(*args) for engine in (rounded, short))
    assert a.dtype == b.dtype == np.float32 and 0 < np.abs(a - b).max() < 0.1


# Compiled graphs.


def test_lengths_of_one_step_share_a_graph(tiny_aligned):
    engine = steps_of(tiny_aligned, 32)
    for frames in (65, 100, 128):
        engine.sample(**items(engine, frames), options=OPTIONS)
    assert engine.compiled is not None and len(engine.compiled.graphs) == 1
    engine.sample(**items(engine, 129), options=OPTIONS)
    assert len(engine.compiled.graphs) == 2


def test_the_oldest_graph_goes(tiny_aligned):
    engine = steps_of(tiny_aligned, 8, limit=2)
    first = engine.sample(**items(engine, 60), options=OPTIONS)
    for frames in (80, 60, 100):
        engine.sample(**items(engine, frames), options=OPTIONS)
    assert engine.compiled is not None
    assert [patches for _, _, patches, _ in engine.compiled.graphs] == [32, 56]
    engine.sample(**items(engine, 120), options=OPTIONS)
    assert np.array_equal(engine.sample(**items(engine, 60), options=OPTIONS), first)


def test_a_compiled_network_goes_with_its_engine(tiny_aligned, uncollected):
    engine = steps_of(tiny_aligned, 32)
    engine.sample(**items(engine, 60), options=OPTIONS)
    gone = weakref.ref(engine.dit)
    del engine
    assert gone() is None


def test_compiling_is_asked_for_on_a_cpu(tiny_aligned):
    for wish, there in ((None, False), (False, False), (True, True)):
        engine = load_engine(tiny_aligned, "mlx", "cpu", compile=wish)
        assert (engine.compiled is not None) == there  # type: ignore[attr-defined]


# Threads.


def together(*calls) -> list:
    """What calls return that start at once, each in a thread; or what they raise."""
    found: list = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def run(i: int) -> None:
        gate.wait()
        try:
            found[i] = calls[i]()
        except Exception as e:
            found[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("compile", [False, True])
def test_threads_may_share_an_engine_on_the_cpu(tiny_aligned, engine_of, compile):
    engine = load_engine(tiny_aligned, "mlx", "cpu", compile=compile)
    given = [items(engine, n) for n in (75, 131)]
    calls = [lambda g=g: engine.vocode(engine.sample(**g, options=OPTIONS))[0] for g in given * 2]
    found = together(*calls)
    plain = engine_of(tiny_aligned, "mlx")
    for g, wave in zip(given * 2, found):
        wanted = plain.vocode(plain.sample(**g, options=OPTIONS))[0]
        assert np.abs(wave - wanted).max() <= 1e-3


@pytest.mark.parametrize("rounds", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_threads_may_speak_one_text_for_the_first_time(tiny_aligned, rounds):
    engine = load_engine(tiny_aligned, "mlx", "cpu", compile=False)
    given, one = items(engine, 48), SampleOptions("euler", 1)
    wanted = engine.sample(**given, options=one)
    for _ in range(rounds):  # two that compute one lazy array crash, or wait for ever, at times
        engine.embedded = (None, None, None)
        for mel in together(*[lambda: engine.sample(**given, options=one)] * 4):
            assert np.abs(mel - wanted).max() <= 1e-3


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux does")
def test_threads_that_come_and_go_leave_none_of_the_system(tiny_aligned, engine_of):
    engine = engine_of(tiny_aligned, "mlx")
    given = items(engine, 60)
    wanted = engine.sample(**given, options=OPTIONS)

    def speak():
        mel = engine.sample(**given, options=OPTIONS)
        engine.clear_cache()
        return mel

    counts = []
    for _ in range(8):
        for mel in together(speak, speak):
            assert np.abs(mel - wanted).max() <= 1e-3
        counts.append(len(os.listdir("/proc/self/task")))
    assert max(counts[2:]) <= counts[1] + 2


def test_threads_speak_through_a_worker(tiny_aligned, backend):
    names = set()

    def load():
        names.add(threading.current_thread().name)
        return load_engine(tiny_aligned, backend, "cpu")

    engine = Worker(load)
    speak = [Speaker(engine, options=OPTIONS, seed=s).speak for s in (0, 1)]  # type: ignore[arg-type]
    a, b = together(*(lambda f=f: f("hello there.").wave for f in speak))
    assert np.array_equal(a, speak[0]("hello there.").wave)
    assert np.array_equal(b, speak[1]("hello there.").wave)
    (wrong,) = together(lambda: engine.sample(1, 2, 3))
    assert isinstance(wrong, InputError)
    assert (engine.backend, engine.folder) == (backend, tiny_aligned)
    assert len(names) == 1 and threading.current_thread().name not in names


ENDS = """
import sys, threading
import numpy as np
from nanospeech import load_engine
from nanospeech.engine.worker import Worker
own = sys.argv[2] == "worker"
def load():
    return load_engine(sys.argv[1], "mlx", "cpu", compile=own)
engine = Worker(load) if own else load()
x = np.zeros((1, 60, 100), np.float32)
args = x, x, np.array([[1, 2]]), np.array([0.5], np.float32)
thread = threading.Thread(target=engine.velocity, args=args)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("how", ["thread", "worker"])
def test_a_program_ends_well_right_after_a_thread_that_spoke(tiny_aligned, how):
    command = [sys.executable, "-c", ENDS, str(tiny_aligned), how]
    for _ in range(3):  # ending at once is a matter of luck
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        advice = "MLX has no fast BLAS here"  # where there is none
        errors = [e for e in done.stderr.splitlines() if not e.startswith(advice)]
        assert (done.returncode, errors) == (0, [])


def test_a_worker_whose_engine_cannot_be_loaded(tmp_path):
    with pytest.raises(CheckpointError, match="has no model"):
        Worker(lambda: load_engine(tmp_path))


# Memory.


def test_long_work_keeps_no_arrays(tiny_aligned):
    import mlx.core as mx

    engine = load_engine(tiny_aligned, "mlx", "cpu")
    kept = []
    for frames in (60, 120, 90, 200, 75, 160):
        engine.vocode(engine.sample(**items(engine, frames), options=OPTIONS))
        engine.clear_cache()
        kept.append(mx.get_active_memory())
    assert kept[-1] == kept[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("way", ["kept", "new"])
def test_a_forked_process_is_told_that_mlx_cannot_go_on(tiny_aligned, engine_of, way):
    engine = engine_of(tiny_aligned, "mlx")
    given = items(engine, 60)
    engine.sample(**given, options=OPTIONS)
    child = os.fork()
    if not child:
        try:
            one = engine if way == "kept" else MlxEngine(open_release(tiny_aligned), "cpu")
            one.sample(**given, options=OPTIONS)
        except BackendError as e:
            os._exit(7 if "forked from" in str(e) else 1)
        finally:
            os._exit(1)
    ends = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < ends:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended[0] and os.waitstatus_to_exitcode(ended[1]) == 7
