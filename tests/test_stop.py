"""Stop: signals to all processes of a run, loader workers among them, cost it nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .test_resume import finish, same, start
from .training import samples, trainer, write_shards

ROOT = Path(__file__).parent.parent
ENDLESS = 100_000

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no process groups")


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 4)
    return folder


def wait_for(what: Callable[[], object], *alive: subprocess.Popen) -> None:
    """Until something is there, or a process has ended before it."""
    end = time.monotonic() + 200
    while not what():
        assert time.monotonic() < end and all(p.poll() is None for p in alive)
        time.sleep(0.002)


def latest(run: Path) -> int:
    """The step of a run's newest checkpoint."""
    return int((run / "latest").read_text().strip().removeprefix("step_"))


def left_over(run: Path) -> list[str]:
    """What an unfinished save leaves."""
    return [p.name for p in run.glob("*.part")]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("when", ["training", "saving"])
def test_a_signal_to_the_whole_group_saves_and_the_run_goes_on_exactly(
    tmp_path, shards, processes, when
):
    run, whole = tmp_path / "stopped", tmp_path / "whole"
    every = 1 if when == "saving" else ENDLESS
    group = start(processes, run, shards, ENDLESS, every, "workers=2", together=True)
    if when == "saving":
        wait_for(lambda: (run / "latest").exists(), *group)
        wait_for(lambda: list(run.glob("step_*.part")), *group)
    else:
        wait_for((run / "log.csv").exists, *group)
    os.killpg(group[0].pid, signal.SIGTERM)
    assert "SIGTERM at step" in finish(group)
    at = latest(run)
    assert at > 0 and not left_over(run)
    out = finish(start(processes, run, shards, at + 3, ENDLESS, "workers=2"))
    assert f"at step {at}" in out
    finish(start(processes, whole, shards, at + 3, ENDLESS, "workers=2"))
    name = f"step_{at + 3:08d}"
    assert same(run / name, whole / name, 0 if processes == 1 else 1e-6)


def test_a_signal_before_the_first_step_loses_nothing(tmp_path):
    for name, stopping in (("stopped", "SIGTERM"), ("stopped", False), ("whole", False)):
        run = trainer(tmp_path / name)
        run.stopping = stopping
        run.train(samples(), 3, 2, max_duration=200)
    assert (tmp_path / "stopped" / "step_00000000").is_dir()
    name = "step_00000003"
    assert same(tmp_path / "stopped" / name, tmp_path / "whole" / name, 0)
