"""Locks: one process at a time, named to the others, and free again however it ends."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanospeech.errors import InputError
from nanospeech.locks import NAME, alone

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no such locks")
HOLD = """
import sys, time
from pathlib import Path
from nanospeech.locks import alone
with alone(Path(sys.argv[1]), "", print):
    print("held", flush=True)
    time.sleep(100)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen]:
    """Another process, which holds the lock of a folder until it is killed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_told_of_the_first_and_may_begin_when_that_is_killed(tmp_path):
    folder = tmp_path / "new" / "run"
    with holder(folder) as other:
        said = rf"in use by process {other.pid} on \S+, since 2.*kill {other.pid}.*another --run"
        with pytest.raises(InputError, match=said), alone(folder, "--run", pytest.fail):
            pass
        (folder / NAME).write_text("{")  # as where it is being written
        said = re.escape(f"{folder} is in use by another process")
        with pytest.raises(InputError, match=said), alone(folder, "--run", pytest.fail):
            pass
    with alone(folder, "--run", pytest.fail):
        assert f'"pid": {os.getpid()},' in (folder / NAME).read_text()
    assert not list(folder.iterdir())


def tried(folder: Path) -> bool:
    try:
        with alone(folder, "", print):
            return True
    except InputError:
        return False


def test_the_holder_may_ask_again_and_its_children_may_not(tmp_path):
    fork = multiprocessing.get_context("fork")
    with alone(tmp_path, "", pytest.fail):
        with alone(tmp_path / ".." / tmp_path.name, "", pytest.fail):
            pass
        with fork.Pool(1) as pool:
            assert not pool.apply(tried, [tmp_path])
    with fork.Pool(1) as pool:
        assert pool.apply(tried, [tmp_path])


def test_a_worker_that_outlives_a_trainer_keeps_no_lock(tmp_path):
    with alone(tmp_path, "", pytest.fail):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
        child.start()
    try:
        with holder(tmp_path):
            pass
    finally:
        child.kill()
        child.join()


def test_a_folder_that_cannot_be_locked_is_warned_of_and_used(tmp_path):
    (tmp_path / NAME).mkdir()
    said: list[str] = []
    with alone(tmp_path, "", said.append):
        pass
    assert len(said) == 1 and f"cannot lock {tmp_path} (Is a directory)" in said[0]
