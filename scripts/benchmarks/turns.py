"""Turns: cells measured round robin, one at a time, in processes that stay alive. Knows no model.

A B A B …: other load on the machine affects all cells alike, and the figures of one round can be
compared. A cell that fails has a note; the others are still measured.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nanospeech.machine import THREADS

from .report import Result
from .speech import Cell

ROOT = Path(__file__).parents[2]
# the workers of the kinds of cells; a kind without one is a command
WORKERS = {
    "speak": "scripts.benchmarks.speech",
    "stream": "scripts.benchmarks.speech",
    "sample": "scripts.benchmarks.speech",
    "piper": "scripts.benchmarks.speech",
    "kokoro": "scripts.benchmarks.speech",
    "upstream": str(Path(__file__).with_name("upstream_sample.py")),
    "matmul": "scripts.benchmarks.parts",
    "parts": "scripts.benchmarks.parts",
    "kinds": "scripts.benchmarks.parts",
}
LINES = 3  # of a failed process's standard error


def worker(kind: str) -> list[str]:
    """Arguments of Python that start a kind's worker: a module of ours, or a file."""
    where = WORKERS[kind]
    return [where] if where.endswith(".py") else ["-m", where]


class Failed(Exception):
    """A cell's process ended or timed out; with the end of its standard error."""


def environment(cell: Cell) -> dict[str, str]:
    """A process's environment: with this project's path, except for upstream's; threads are set."""
    found = dict(os.environ)
    if cell.kind == "upstream":
        found.pop("PYTHONPATH", None)
    elif cell.kind != "command":
        paths = [str(ROOT), found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    if cell.threads:
        found.update({name: str(cell.threads) for name in THREADS})
    return found


def last_words(text: str) -> str:
    """The end of what a process wrote to standard error."""
    # a traceback's lines of carets say nothing by themselves
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip(" ~^")]
    return " | ".join(lines[-LINES:])[-500:]


class Worker:
    """A process that measures on request (see serve.py); it loads and warms up first.

    Raises:
        Failed: it ended, or did not answer in time.
    """

    def __init__(self, cell: Cell, timeout: float):
        self.timeout = timeout
        # read when the process has died, so it cannot be a pipe that fills up
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115, end() closes
        self.process = subprocess.Popen(
            [cell.python or sys.executable, *worker(cell.kind)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment(cell),
            start_new_session=True,  # Ctrl-C is the parent's
            bufsize=0,
        )
        try:
            self.about = self.ask(json.dumps(asdict(cell)))
        except BaseException:
            self.end()
            raise

    def measure(self) -> dict[str, float]:
        return self.ask("measure")

    def memory(self) -> dict[str, int]:
        return self.ask("memory")

    def ask(self, line: str) -> dict[str, Any]:
        """Sends a line, and returns the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except OSError:  # it has ended; its error output is reported below
            pass
        answer, until = b"", time.monotonic() + self.timeout
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], until - time.monotonic())
            if not ready:
                raise Failed(f"not done in {self.timeout:g} s")
            if not (more := self.process.stdout.read(65536)):
                raise Failed(self.died())
            answer += more
        return json.loads(answer)

    def died(self) -> str:
        """The error output of a process that ended."""
        code = self.process.wait()
        self.errors.seek(0)
        return last_words(self.errors.read()) or f"ended with exit status {code}"

    def end(self) -> None:
        end(self.process)
        for file in (self.process.stdin, self.process.stdout, self.errors):
            if file is not None:
                file.close()


class Command:
    """Any program, started anew each time; what it writes to {out} is measured in seconds."""

    def __init__(self, cell: Cell, timeout: float):
        self.cell, self.timeout = cell, timeout
        self.folder = tempfile.mkdtemp()
        words = ["python" if w == sys.executable else w for w in cell.command]
        self.about: dict[str, Any] = {"command": shlex.join(words)}
        try:
            self.measure()  # files are in the system's cache from now on; not counted
        except BaseException:
            self.end()
            raise

    def measure(self) -> dict[str, float]:
        out = Path(self.folder, "out.wav")
        out.unlink(missing_ok=True)
        text = " ".join(self.cell.texts)
        words = [w.replace("{text}", text).replace("{out}", str(out)) for w in self.cell.command]
        begin = time.perf_counter()
        self.run(words)
        figures = {"seconds": time.perf_counter() - begin}
        if any("{out}" in word for word in self.cell.command):
            figures["audio_seconds"] = wave_seconds(out)
        return figures

    def run(self, words: list[str]) -> None:
        """Runs the program to its end."""
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment(self.cell),
                start_new_session=True,
            )
        except OSError as e:
            raise Failed(f"cannot run {words[0]}: {e}") from e
        try:
            _, errors = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done in {self.timeout:g} s") from None
        finally:
            end(process)
        if process.returncode:
            said = last_words(errors.decode("utf-8", "replace"))
            raise Failed(said or f"ended with exit status {process.returncode}")

    def memory(self) -> dict[str, int]:
        return {}

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def wave_seconds(path: Path) -> float:
    """How long a sound file is."""
    import soundfile

    try:
        return soundfile.info(str(path)).duration
    except (OSError, soundfile.LibsndfileError) as e:
        raise Failed(f"the command wrote no sound to {{out}}: {e}") from e


def end(process: subprocess.Popen) -> None:
    """Ends a process with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def turns(
    results: Sequence[Result], rounds: int, timeout: float, say: Callable[[str], None]
) -> None:
    """Measures all cells, `rounds` times each, in turn; what is found goes into the results.

    Interrupted, it ends its processes and leaves what was measured.
    """
    workers: dict[int, Worker | Command] = {}

    def start(index: int) -> None:
        result = results[index]
        kind = Worker if result.cell.kind in WORKERS else Command
        workers[index] = kind(result.cell, timeout)
        result.about = workers[index].about

    def measure(index: int, number: int) -> None:
        result = results[index]
        result.add(number, workers[index].measure())
        say(f"round {number + 1} of {rounds}, {result.cell.name}: {described(result, number)}")

    def remember(index: int) -> None:
        results[index].memory = workers[index].memory()

    def attempt(work: Callable[..., None], index: int, *more: int) -> None:
        try:
            work(index, *more)
        except Failed as e:
            results[index].note = str(e)
            say(f"{results[index].cell.name}: failed: {e}")
            if index in workers:
                workers.pop(index).end()

    try:
        for index, result in enumerate(results):
            if not result.note:
                attempt(start, index)
        for number in range(rounds):
            for index in list(workers):
                attempt(measure, index, number)
        for index in list(workers):
            attempt(remember, index)
    finally:
        for worker in workers.values():
            worker.end()


def described(result: Result, number: int) -> str:
    """One round of a cell, in words."""
    figures = result.figures
    if number in figures.get("rtf", {}):
        return f"RTF {figures['rtf'][number]:.3f}"
    if number in figures.get("seconds", {}):
        return f"{figures['seconds'][number]:.2f} s"
    return "done"
