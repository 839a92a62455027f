"""A run that is killed again and again ends with the bits of one that was left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_kills_leave_no_trace():
    """Six of them; by itself the script makes fifty."""
    command = [sys.executable, "-m", "scripts.experiments.crash_test", "--kills", "6"]
    command += ["--steps", "16"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] == 6 and found["inside_a_save"] >= 1
    assert found["went_on"] >= 2  # from a checkpoint, which a slow machine must have reached first
    assert found["different"] == {} and found["went_back"] == []
