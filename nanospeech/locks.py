"""Locks: a folder that one run at a time may write to. Who holds it is told; nobody is stopped."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError, reason

NAME = "run.lock"
HELD: set[tuple[int, Path]] = set()  # of this process: its id, as a forked one holds none


@contextmanager
def alone(
    folder: Path, option: str, warn: Callable[[str], None], name: str = NAME, wait: float = 0
) -> Iterator[None]:
    """Within the context, no other process comes into `alone` with the same folder and name.

    The system releases the lock when the process ends, however it ends, so none is left over. A
    process that holds it may ask again; its forked children do not hold it. Where a file system
    has no such locks it warns; Windows has none of these, so nothing is done there.

    Args:
        folder: is made; the lock is a file in it, deleted at the end.
        option: that chooses the folder, for the message: "run_dir", "--out".
        warn: is given a line where the folder cannot be locked.
        name: of that file; another one for files that runs may write beside each other.
        wait: seconds in which another process may let go of it.

    Raises:
        InputError: another process holds it; names that process and what to do.
    """
    key = os.getpid(), folder.resolve() / name
    if key in HELD or os.name == "nt":
        yield
        return
    try:
        handle = lock(folder, option, name, wait)
    except OSError as e:
        handle = None
        warn(f"cannot lock {folder} ({reason(e)}), so a second run in it would not be refused")
    HELD.add(key)
    try:
        yield
    finally:
        HELD.discard(key)
        if handle is not None:
            (folder / name).unlink(missing_ok=True)
            os.close(handle)


def lock(folder: Path, option: str, name: str, wait: float = 0) -> int:
    """Locks a folder for `alone`; returns the open file that holds the lock.

    Args:
        wait: seconds in which another process may let go of it.

    Raises:
        InputError: another process holds it.
        OSError: the folder cannot be written to, or its file system has no locks.
    """
    import fcntl

    path, until = folder / name, time.monotonic() + wait
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                # unlike flock's, this lock is not inherited by loader workers, which may live a
                # little longer than a trainer that was killed
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except (BlockingIOError, PermissionError):  # what systems say of a lock that is held
                locked = False
                if time.monotonic() >= until:
                    raise InputError(held(os.read(handle, 4096), folder, option)) from None
                time.sleep(0.02)
            if locked and names(path, handle):
                facts = {"pid": os.getpid(), "host": platform.node(), "since": time.time()}
                os.ftruncate(handle, 0)
                os.write(handle, json.dumps(facts).encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # another has it, or deleted it in between


def names(path: Path, handle: int) -> bool:
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def held(written: bytes, folder: Path, option: str) -> str:
    """The message for a folder whose lock file says this of the process that holds it."""
    who, stop = "another process", "stop it"
    try:
        facts: dict[str, Any] = json.loads(written)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts["since"]))
        who = f"process {facts['pid']} on {facts['host']}, since {since}"
        stop = f"stop it there (kill {facts['pid']})"
    except (ValueError, KeyError, TypeError, OverflowError):  # it is just writing it
        pass
    return (
        f"{folder} is in use by {who}, and two runs would overwrite each other's files: wait for"
        f" its end, {stop}, or choose another {option}"
    )
