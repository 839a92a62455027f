"""Processes of tests, forked from a server that has imported torch once: no start costs seconds."""

from __future__ import annotations

import array
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("tests.parallel_worker", "tests.resume_worker", "tests.training", "accelerate"),
        # what a first step imports
        *("torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp"),
        *("torch.distributed.tensor.parallel", "torch.nn.parallel.distributed"),
        "tests.measured",
    ]
)


class Forked:
    """A process that calls a function; told of and spoken to as a subprocess.Popen.

    Args:
        call: importable, as all arguments are pickled.
        env: is added to the environment.
        leader: process whose group it joins; its own id for 0.
    """

    def __init__(
        self, call: Callable, *args: object, env: dict[str, str], leader: int | None = None
    ):
        handle, self.output = tempfile.mkstemp()
        os.close(handle)
        self.process = CONTEXT.Process(target=begin, args=(call, args, env, self.output, leader))
        self.process.start()
        self.pid: int = self.process.pid  # type: ignore[assignment]
        while leader is not None and self.poll() is None and os.getpgid(self.pid) == os.getpgid(0):
            time.sleep(0.001)

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[str, None]:
        """Waits for the end, or kills what takes longer; all that was printed. Call it once."""
        self.process.join(timeout)
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)
            self.process.join()
        said = Path(self.output).read_text(encoding="utf-8", errors="replace")
        Path(self.output).unlink()
        return said, None


def begin(
    call: Callable, args: tuple, env: dict[str, str], output: str, leader: int | None
) -> None:
    """What a forked process does."""
    if leader is not None:
        os.setpgid(0, leader)
    with open(output, "ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(env)
    try:
        call(*args)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def finish(run: list[Forked]) -> str:
    """Waits for processes that must all end well; what the first one printed."""
    out = [process.communicate()[0] for process in run]
    assert [process.returncode for process in run] == [0] * len(run), "\n".join(out)[-4000:]
    return out[0]


def module(*words: str) -> None:
    """`python -m WORDS`, for Forked."""
    sys.argv = list(words)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


# `python -m WORDS`: hands on its words, folder, environment and standard files
CLIENT = """
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    files = array.array("i", [0, 1, 2])
    s.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    s.sendall(json.dumps([sys.argv[3:], os.getcwd(), dict(os.environ)]).encode())
    s.shutdown(socket.SHUT_WR)
    sys.exit(int(s.recv(9) or 1))
"""


@contextmanager
def interpreter() -> Iterator[str]:
    """A program for scripts that start `python -m MODULE` often: it forks, and imports nothing."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's name is short
        client, program, address = (Path(folder, name) for name in ("client.py", "python", "s"))
        client.write_text(CLIENT, encoding="utf-8")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS {client} {address} "$@"\n')
        program.chmod(0o755)
        server = Forked(serve, str(address), env={})
        while server.poll() is None and not address.exists():
            time.sleep(0.001)
        try:
            yield str(program)
        finally:
            server.send_signal(signal.SIGKILL)
            server.communicate()


def serve(address: str) -> None:
    """Forks for each client of interpreter()."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{address}.new")
        server.listen()
        os.rename(f"{address}.new", address)
        while True:
            client, _ = server.accept()
            if os.fork():
                client.close()
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            status = 1
            try:
                answer(client)
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(bool(end.code))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                client.sendall(str(status).encode())
                os._exit(status)


def answer(client: socket.socket) -> None:
    """Does what a client of interpreter() asks for, in this process."""
    files = array.array("i", [0, 0, 0])
    _, ((_, _, sent),), *_ = client.recvmsg(1, socket.CMSG_SPACE(len(files) * files.itemsize))
    files = array.array("i", sent)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    words, folder, variables = json.loads(b"".join(iter(lambda: client.recv(65536), b"")))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    module(*words)


def ranks(processes: int) -> list[dict[str, str]]:
    """The environment of each process of a run, as a launcher sets it."""
    common = {
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return [{**common, "RANK": str(r), "LOCAL_RANK": str(r)} for r in range(processes)]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
