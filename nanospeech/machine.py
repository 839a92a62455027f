"""Machine: what this process may use of it. Standard library only."""

from __future__ import annotations

import os


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on a Mac
    return len(affinity(0)) if affinity else os.cpu_count() or 1
