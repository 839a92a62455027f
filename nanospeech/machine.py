"""Machine: the processors that this process may use. Standard library only."""

from __future__ import annotations

import math
import os
import re
import shutil
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
# how many threads a library starts: read when it is loaded
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def cores() -> int:
    """Processors that this process may use: its CPU affinity, or its container's quota if lower."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on a Mac
    there = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min([there, *quotas()])


def quotas(groups: Path = CONTROL_GROUPS, own: Path = OWN_GROUPS) -> list[int]:
    """Limits to the processors' time, in processors, rounded up; Linux only.

    docker --cpus, Kubernetes' limits.cpu and systemd's CPUQuota are kept in a control group, either
    version 2's cpu.max or version 1's pair of files. Within a container the path that
    the process sees may not exist; its group is at the root then.
    """
    found = []
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        for folder in groups / controllers / path.lstrip("/"), groups / controllers:
            try:
                values = [(folder / name).read_text(encoding="utf-8") for name in names]
            except OSError:
                continue
            quota, period = [*" ".join(values).split(), "", ""][:2]
            if quota.isdecimal() and period.isdecimal():  # not max or -1: no limit
                found.append(max(1, math.ceil(int(quota) / max(1, int(period)))))
    return found


def processor_flags() -> set[str]:
    """Names of what an x86 processor has, as Linux tells them; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def has_gpu() -> bool:
    """Whether there is a driver of an NVIDIA or AMD GPU, by its files or its tool."""
    return any(Path(p).exists() for p in GPU_DRIVERS) or shutil.which("nvidia-smi") is not None


def set_up_blas() -> None:
    """Has threads of NumPy's matrix products sleep, and bounds them; call it before NumPy.

    OpenBLAS has them spin for 2^26 ticks, some 25 ms, beside whatever comes next: a passage of 13
    seconds took 0.36 instead of 0.28 s of two cores. It also starts a thread for each core of the
    machine, even where a container has a quota of few. What the user has set stays.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2^4 ticks, its least
    if not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys() and quotas():
        os.environ["OPENBLAS_NUM_THREADS"] = str(cores())


def report_nothing() -> None:
    """Keeps ONNX Runtime from reporting to its makers; call it before that is imported.

    Since 1.29 its import alone has it write an identifier of the machine and its processor into the
    home folder and send them on, before disable_telemetry_events() can be called. What the user has
    set stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def share_cores() -> None:
    """Sets OpenMP up for busy machines and containers; call it before torch is imported.

    GNU OpenMP's threads spin 300,000 times at each barrier before they sleep. On busy cores that
    delays the threads that they wait for: next to two busy processes two threads trained at 174
    frames a second and spoke at RTF 7. With 3,000 spins it is 3,800 and 0.3, and on free cores as
    fast as before. OpenMP also starts a thread for each core of the machine, even where a container
    has a quota of few. Variables that the user has set stay.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "3000"
    if quotas():
        os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
