"""Fork: a forked process speaks or says why it cannot; it never waits for threads that it lacks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import BACKENDS, needs

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
ROOT = Path(__file__).resolve().parents[2]
FORKS = """
import os, sys
import numpy as np
from nanospeech import load_engine
from nanospeech.engine.worker import Worker
from nanospeech.errors import BackendError

folder, backend, how = sys.argv[1:]
if backend == "torch":
    import torch
    torch.ones(1 << 21).exp()  # which takes all threads
def load():
    return load_engine(folder, backend, "cpu", "float32")
engine = Worker(load) if how == "worker" else load()
x = np.random.default_rng(0).standard_normal((2, 400, 100)).astype("f")
args = x, x, np.array([[1, 2], [3, 4]]), np.array([0.5, 0.5], "f")
wanted = None if how == "unused" else engine.velocity(*args)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    got = engine.velocity(*args)
    print("spoke", wanted is None or np.abs(got - wanted).max() < 1e-4)
except BackendError as e:
    print(e)
"""


# a Worker's answer is no backend's: the one that is loaded soonest gives it
QUICK = [*((name, "used") for name in BACKENDS), ("mlx", "worker")]
KINDS = [
    pytest.param(*kind, marks=[] if kind in QUICK else pytest.mark.slow)
    for kind in product(BACKENDS, ("unused", "used", "worker"))
]


@pytest.mark.parametrize(("backend", "how"), KINDS)
def test_a_forked_process_does_not_wait_without_end(tiny_aligned, backend, how):
    needs(backend)
    run = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tiny_aligned), backend, how],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = run.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        raise
    assert run.returncode == 0, err
    if how == "worker" or backend == "mlx":
        assert "was forked from" in out and "spawn" in out
    else:
        assert out == "spoke True\n"
        assert ("computes in one" in err) == (backend == "torch")
