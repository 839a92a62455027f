"""Stop: signals to all processes of a run, loader workers among them, cost it nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from nanospeech.errors import InputError
from nanospeech_torch.train.data.loader import Loader
from nanospeech_torch.train.loop import signals
from nanospeech_torch.train.loop.signals import Agreement, StopSignals, early_signals
from tests import resume_worker
from tests.forked import Forked, finish, ranks
from tests.train.test_resume import same, start
from tests.training import samples, trainer, write_shards

ROOT = Path(__file__).parents[2]
ENDLESS = 100_000
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


class Slow:
    """Samples that are read for ever."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> None:
        time.sleep(1000)


def signalled_workers() -> None:
    """A loader's workers are signalled by a stranger as soon as they are there, and once more
    later; then by their trainer. Prints who is alive, and how they end."""
    again = "read pids; kill -TERM $pids; sleep 1; kill -TERM $pids; kill -INT $pids"
    stranger = subprocess.Popen(["bash", "-c", again], stdin=subprocess.PIPE, text=True)
    loader = iter(Loader(Slow(), num_workers=4, multiprocessing_context="fork"))
    workers = loader._workers
    stranger.communicate(" ".join(str(w.pid) for w in workers) + "\n")
    time.sleep(1)
    print(sum(w.is_alive() for w in workers), "alive")
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(30)
    print([w.exitcode for w in workers], flush=True)
    os._exit(0)


pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no process groups")


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 4)
    return folder


def read_by_another(pipe: str, *arguments: str) -> None:
    """A run whose output is read from a pipe."""
    handle = os.open(pipe, os.O_WRONLY)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    resume_worker.main(*arguments)


def wait_for(what: Callable[[], object], *alive: subprocess.Popen | Forked) -> None:
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


def stepped(run: Path, steps: int) -> bool:
    """Whether a run has taken, and logged, more steps than these."""
    log = run / "log.csv"
    return log.exists() and len(log.read_text().splitlines()) > 1 + steps


def test_two_processes_go_on_exactly_after_a_signal_to_all_and_a_killed_loader_worker(
    tmp_path, shards
):
    run, whole = tmp_path / "stopped", tmp_path / "whole"
    group = start(2, run, shards, ENDLESS, ENDLESS, "workers=2", together=True)
    wait_for(lambda: stepped(run, 0), *group)
    os.killpg(group[0].pid, signal.SIGTERM)
    assert "SIGTERM at step" in finish(group)
    first = latest(run)
    assert first > 0 and not left_over(run)
    group = start(2, run, shards, ENDLESS, ENDLESS, "workers=2")
    wait_for(lambda: stepped(run, first), *group)
    psutil.Process(group[-1].pid).children()[-1].kill()
    said = [process.communicate()[0] for process in group]
    assert all(process.returncode for process in group), said
    assert f"at step {first}" in said[0] and "saving first" in said[0], said
    assert "process 1 failed: " in said[0], said
    at = latest(run)
    assert at > first and not left_over(run)
    finish(start(2, run, shards, at + 2, ENDLESS, "workers=2"))
    finish(start(2, whole, shards, at + 2, ENDLESS, "workers=2"))
    name = f"step_{at + 2:08d}"
    assert same(run / name, whole / name, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["training", "saving"])
@pytest.mark.parametrize("processes", [1, 2])
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


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGHUP]
)
def test_a_run_whose_reader_is_gone_saves_what_it_has(tmp_path, shards, number):
    """As behind a pipe to tee, which Ctrl-C ends first, or in a terminal that is closed."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = map(str, (tmp_path / "run", shards, ENDLESS, ENDLESS, "workers=2"))
    run = Forked(read_by_another, str(pipe), *arguments, env=ranks(1)[0])
    with pipe.open() as reader:
        assert reader.readline()
    wait_for((tmp_path / "run" / "log.csv").exists, run)
    run.send_signal(number)
    said, _ = run.communicate()
    assert run.returncode == 0, said
    assert latest(tmp_path / "run") > 0 and not left_over(tmp_path / "run")


@pytest.mark.slow
def test_a_run_under_nohup_goes_on_when_its_terminal_is_closed(tmp_path, shards):
    arguments = map(str, (tmp_path / "run", shards, 6, ENDLESS))
    command = ["nohup", sys.executable, "-m", "tests.resume_worker", *arguments]
    run = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **PIPES)
    wait_for((tmp_path / "run" / "log.csv").exists, run)
    run.send_signal(signal.SIGHUP)
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0 and latest(tmp_path / "run") == 6, said


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_loader_worker_costs_no_step(tmp_path, shards, processes):
    run, whole = tmp_path / "stopped", tmp_path / "whole"
    group = start(processes, run, shards, ENDLESS, ENDLESS, "workers=2")
    wait_for((run / "log.csv").exists, *group)
    psutil.Process(group[-1].pid).children()[-1].kill()
    said = [process.communicate()[0] for process in group]
    assert all(process.returncode for process in group), said
    assert "saving first" in said[0], said
    assert processes == 1 or "process 1 failed: " in said[0], said
    at = latest(run)
    assert at > 0 and not left_over(run)
    finish(start(processes, run, shards, at + 3, ENDLESS, "workers=2"))
    finish(start(processes, whole, shards, at + 3, ENDLESS, "workers=2"))
    name = f"step_{at + 3:08d}"
    assert same(run / name, whole / name, 0 if processes == 1 else 1e-6)


def everyone(launcher: subprocess.Popen) -> None:
    """SIGTERM to a launcher and all that it started, loader workers too, as SLURM sends it."""
    parent = psutil.Process(launcher.pid)
    for process in [parent, *parent.children(recursive=True)]:
        process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("shielded", [True, False])
def test_torchrun_and_all_below_it_may_be_signalled(tmp_path, shards, shielded):
    """Left to itself torchrun passes the signal on and ends with 1; shielded from it, with 0."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    worker = ["--nproc_per_node", "2", "-m", "tests.resume_worker"]
    arguments = [tmp_path, shards, ENDLESS, ENDLESS, "workers=2"]
    if shielded:
        shield = ["bash", "-c", 'trap "" TERM; exec "$@"', "bash"]
        torchrun = [*shield, *torchrun, "--signals_to_handle", "SIGINT"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen([*torchrun, *worker, *map(str, arguments)], env=env, **PIPES)
    wait_for((tmp_path / "log.csv").exists, run)
    everyone(run)
    out = run.communicate(timeout=300)[0]
    assert "SIGTERM at step" in out and "Traceback" not in out.partition("SIGTERM at step")[0], out
    assert (run.returncode == 0) == shielded, out
    at = latest(tmp_path)
    assert at > 0 and not left_over(tmp_path)
    again = finish(start(2, tmp_path, shards, at + 1, ENDLESS, "workers=2"))
    assert f"at step {at}" in again


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="sees when signals are heard")
def test_a_signal_while_the_program_loads_is_not_lost(tmp_path, shards):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"run_dir: {tmp_path / 'run'}\n"
        f"data: {{shards: [{shards}/*.tar], tokenizer: phonemes, batch_size: 1}}\n"
        "dit: {dim: 32, depth: 1, heads: 1, text_dim: 32, conv_layers: 1}\n"
    )
    command = [sys.executable, "-m", "nanospeech.train", "--config", str(config)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, env=env, cwd=ROOT, **PIPES)
    status = Path(f"/proc/{run.pid}/status")

    def heard() -> bool:
        (line,) = (n for n in status.read_text().splitlines() if n.startswith("SigCgt:"))
        return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    wait_for(heard, run)
    assert not (tmp_path / "run").exists()
    run.terminate()
    out = run.communicate(timeout=300)[0]
    assert run.returncode == 0 and "SIGTERM at step 0: saving" in out, out
    assert latest(tmp_path / "run") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="others cannot tell who signals")
def test_a_worker_ends_when_its_trainer_says_so_and_not_before():
    out, _ = Forked(signalled_workers, env={}).communicate()
    assert out.splitlines()[-2:] == ["4 alive", "[0, 0, 0, 0]"], out


def test_a_signal_before_the_first_step_loses_nothing(tmp_path):
    for name, stopping in (("stopped", "SIGTERM"), ("stopped", ""), ("whole", "")):
        run = trainer(tmp_path / name)
        if stopping:
            assert not run.request_stop(stopping) and run.request_stop(stopping)
        run.train(samples(), 3, 2, max_duration=200)
    assert (tmp_path / "stopped" / "step_00000000").is_dir()
    name = "step_00000003"
    assert same(tmp_path / "stopped" / name, tmp_path / "whole" / name, 0)


def test_no_minutes_left_end_a_run_at_once(tmp_path):
    """A script that reckons how many a job still has may come to none, which set no limit."""
    run = trainer(tmp_path)
    run.train(samples(), 2, batch_size=2, max_duration=200, minutes=0)
    assert run.step == 0 and (tmp_path / "step_00000000").is_dir()


def test_a_trainer_that_was_stopped_goes_on_when_it_is_called_again(tmp_path):
    run = trainer(tmp_path)
    run.request_stop("SIGINT")
    for steps in (0, 2):  # as a notebook's cell that was interrupted, and is run again
        run.train(samples(), 2, batch_size=2, max_duration=200)
        assert run.step == steps
    with pytest.raises(InputError, match="this trainer has taken 2 steps"):
        run.train(samples(), 1, batch_size=2, max_duration=200, resume="never")
    assert (tmp_path / "step_00000002").is_dir()


def test_signals_and_output_are_a_programs_own_again_when_a_run_is_over():
    """While it lasts each asks it to stop; a second Ctrl-C ends it at once, others never do."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(n) for n in numbers], sys.stdout, sys.stderr
    asked: list[str] = []

    def request(name: str) -> bool:
        asked.append(name)
        return len(asked) > 1

    with pytest.raises(KeyboardInterrupt), StopSignals(request):
        for number in numbers:
            signal.raise_signal(number)
        assert asked == ["SIGINT", "SIGTERM", "SIGHUP"]
        signal.raise_signal(signal.SIGINT)
    assert asked == ["SIGINT", "SIGTERM", "SIGHUP", "SIGINT"]
    assert ([signal.getsignal(n) for n in numbers], sys.stdout, sys.stderr) == before


def test_a_signal_before_a_run_is_told_to_it_and_to_no_later_one():
    before, asked = signal.getsignal(signal.SIGTERM), []
    with early_signals():
        signal.raise_signal(signal.SIGTERM)
        for _ in range(2):  # of one program
            with StopSignals(lambda name: asked.append(name) or False):
                pass
    assert asked == ["SIGTERM"] * 2 and signal.getsignal(signal.SIGTERM) is before
    with StopSignals(lambda name: asked.append(name) or False):
        pass
    assert len(asked) == 2


def ended(
    monkeypatch, first: int, seconds: list[float], wanted: Callable, fraction: Callable
) -> tuple[list[tuple[int, float]], list[int]]:
    """When each process of a run ends, and what fraction it knows of; when they asked each other.

    They are threads here, with clocks of their own.

    Args:
        first: step.
        seconds: that a step takes each process.
        wanted, fraction: what a process (its number) says at a step.
    """
    here, said = threading.local(), [None] * len(seconds)
    barrier, asked = threading.Barrier(len(seconds), timeout=10), []

    def gather(mine: Any) -> list[Any]:
        said[here.rank] = mine
        asked.extend([here.step] * (here.rank == 0))
        barrier.wait()
        found = list(said)
        barrier.wait()
        return found

    def run(rank: int) -> tuple[int, float]:
        here.rank, here.step, here.now = rank, first, 1000.0 * rank
        agreement = Agreement(SimpleNamespace(world=len(seconds), gather=gather), first)  # type: ignore
        while not agreement.stop(here.step, wanted(rank, here.step), fraction(rank, here.step)):
            here.step, here.now = here.step + 1, here.now + seconds[rank]
            assert here.step < 1000
        return here.step, agreement.fraction

    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: here.now))
    with ThreadPoolExecutor(len(seconds)) as pool:
        return list(pool.map(run, range(len(seconds)))), asked


@pytest.mark.parametrize(
    ("seconds", "asking"),
    [
        ([0.01, 0.01], [7, 17, 27, 37]),  # ten steps take no time
        ([0.01, 2.0, 0.01], [7, 17, 19, 21, 23, 25, 27, 29, 31]),  # two take nearly five seconds
        ([60.0, 60.0], [7, *range(17, 32)]),
    ],
)
def test_processes_stop_together_soon_after_one_is_asked_to(monkeypatch, seconds, asking):
    """The last one, from step 31 on; they ask every ten steps, or five seconds of the slowest."""
    last = len(seconds) - 1
    ends, asked = ended(
        monkeypatch, 7, seconds, lambda rank, step: rank == last and step > 30, lambda *_: 0.0
    )
    assert asked == asking and ends == [(asking[-1], 0.0)] * len(seconds)


def test_processes_go_by_the_clock_that_is_ahead(monkeypatch):
    """By it they know what part of the time is over, and that none is left."""
    pace = [0.01, 0.03, 0.02]
    ends, asked = ended(
        monkeypatch, 0, [60.0] * 3, lambda *_: False, lambda rank, step: pace[rank] * step
    )
    assert asked[-1] == 34 and ends == [(34, pytest.approx(1.02))] * 3


def test_a_process_alone_stops_at_once(monkeypatch):
    ends, asked = ended(
        monkeypatch, 5, [1.0], lambda _, step: step == 8, lambda _, step: step / 100
    )
    assert ends == [(8, 0.08)] and not asked
    ends, _ = ended(monkeypatch, 5, [1.0], lambda *_: False, lambda _, step: step / 9)
    assert ends == [(9, 1.0)]
