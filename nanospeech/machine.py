"""Machine: what this process may use of it. Standard library only."""

from __future__ import annotations

import os


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on a Mac
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def share_cores() -> None:
    """Lets PyTorch's threads sleep soon where they wait; to be called before torch is imported.

    At each barrier GNU OpenMP's threads spin 300,000 rounds first. Where other work has the cores,
    that holds up the very threads that are waited for: beside two busy processes two threads
    trained at 174 frames a second and spoke at RTF 7. With 3,000 rounds that is 3,800 and 0.3, and
    where the cores are free all is as fast as before. What the user has set stays.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "3000"
