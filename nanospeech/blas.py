"""BLAS: a fast one for MLX on Linux, whose own takes several times as long. Standard library only.

MLX's package for Linux brings the reference BLAS. The loader takes a function from what was loaded
for all before it looks into that, so a BLAS of the system's that is loaded before MLX is used in
its place. PyTorch, if it is imported after that, uses it too, and its own (MKL) is the faster one:
import torch first where one process needs both.
"""

from __future__ import annotations

import ctypes
import glob
import logging
import os
import re
import sys
from functools import cache
from pathlib import Path

log = logging.getLogger("nanospeech")
VARIABLE = "NANOSPEECH_BLAS"  # "off": leave all as it is, and say nothing
# Where conda, Debian, and Fedora or Arch have OpenBLAS, the best of each first.
PLACES = (
    f"{sys.prefix}/lib/libopenblas.so.0",
    "/usr/lib/*/openblas-pthread/libblas.so.3",
    "/usr/lib/*/openblas-openmp/libblas.so.3",
    "/usr/lib*/libopenblasp.so.0",
    "/usr/lib*/libopenblas.so.0",
)
REFERENCE = re.compile(r"/mlx\w*\.libs/libblas")  # the one that MLX's package brings


def find_blas() -> str | None:
    """The path of a fast BLAS of this machine."""
    return next((path for place in PLACES for path in sorted(glob.glob(place))), None)


def for_all() -> bool:
    """Whether a BLAS is loaded for all of the process, as by LD_PRELOAD."""
    return hasattr(ctypes.CDLL(None), "cblas_sgemm")


def prefer_fast_blas() -> None:
    """Loads a fast BLAS if there is one and MLX is still to be imported. Linux only."""
    if not wanted() or "mlx.core" in sys.modules or for_all():
        return
    if path := find_blas():
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as e:
            log.warning("cannot load %s: %s", path, e)


@cache
def advise_fast_blas() -> None:
    """Says, once, how MLX's sums become faster, where they are slow."""
    if not wanted() or not slow():
        return
    if path := find_blas():
        log.warning(
            "MLX was imported too early for a fast BLAS, and is several times slower without;"
            " load the engine first, or start with LD_PRELOAD=%s",
            path,
        )
    else:
        log.warning(
            "MLX has no fast BLAS here, and is several times slower without; run: apt install"
            " libopenblas0-pthread (Debian, Ubuntu), or conda install libopenblas"
        )


def slow() -> bool:
    """Whether MLX, once imported, computes with the reference BLAS."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return bool(REFERENCE.search(maps)) and not for_all()


def wanted() -> bool:
    """Whether to look after the BLAS at all."""
    return sys.platform == "linux" and os.environ.get(VARIABLE) != "off"
