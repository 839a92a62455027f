"""Portions on many machines, by Ray Data (extra "cluster"): who works on what, and nothing else.

Each portion is a row of a dataset and a task on one processor; Ray hands tasks to the machines of
the cluster, and again to another one where a machine or a process died. Rows carry numbers alone:
recordings and shards go between the machines and the file system that they share.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nanospeech.cli import say
from nanospeech.errors import BackendError, DataError, require

STORE = 100 * 2**20  # bytes of shared memory of a cluster of this machine alone; rows are small
REACH = 5.0  # seconds to wait for a cluster to answer


def on_ray(jobs: int) -> Callable[..., Iterator[tuple[int, str]]]:
    """A Runner (portions.py) on the cluster of RAY_ADDRESS, or on one of this machine alone, which
    ends with the run.

    Args:
        jobs: processes on this machine alone.

    Raises:
        BackendError: Ray is not installed, or there is no cluster at RAY_ADDRESS.
    """
    ray = require("ray", "cluster")
    data = require("ray.data", "cluster")

    def run(work: Callable[[int], tuple[int, str]], numbers: Sequence[int]):
        mine = start(ray, jobs)
        try:
            cpus = int(ray.cluster_resources().get("CPU", 1))
            if len(numbers) < cpus:
                say(
                    f"{len(numbers)} portions keep {len(numbers)} of {cpus} processors busy; a "
                    "smaller --size makes more of them"
                )
            yield from rows(ray, data, work, numbers)
        finally:
            if mine:
                ray.shutdown()

    return run


def start(ray: Any, jobs: int) -> bool:
    """Joins a cluster or starts one; returns whether it is to be ended here."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if (address := os.environ.get("RAY_ADDRESS", "local")) != "local":
        try:
            reach(address)
            ray.init(address=address, **quiet)
        except OSError as e:  # ConnectionError of Ray is one, too
            raise BackendError(f"no Ray cluster at RAY_ADDRESS {address}: {e}") from e
        return True
    store: dict[str, Any] = {"include_dashboard": False, "object_store_memory": STORE}
    ray.init(address="local", num_cpus=jobs, **store, **quiet)
    return True


def reach(address: str) -> None:
    """
    Raises:
        OSError: nothing listens at HOST:PORT; Ray itself would wait for minutes.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACH).close()


def rows(
    ray: Any, data: Any, work: Callable[[int], tuple[int, str]], numbers: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """Each number with its error or "", as they are done."""
    context = data.DataContext.get_current()
    context.enable_progress_bars = False  # portions.py has one, of clips
    logging.getLogger("ray.data").setLevel(logging.ERROR)

    def do(row: dict[str, Any]) -> dict[str, Any]:
        number, error = work(int(row["number"]))
        return {"number": number, "error": error}

    items = data.from_items([{"number": n} for n in numbers], override_num_blocks=len(numbers))
    try:
        for row in items.map(do, num_cpus=1).iter_rows():
            yield int(row["number"]), str(row["error"])
    except ray.exceptions.RayError as e:
        reason = str(e).strip().splitlines()
        raise DataError(
            f"the cluster gave up: {reason[0] if reason else type(e).__name__}; what is done is "
            "kept, and the same command goes on; Ray's logs are in /tmp/ray"
        ) from e
