"""BLAS: a fast one for MLX on Linux, whose own is several times slower. Standard library only.

MLX's package for Linux brings the reference BLAS. The dynamic linker resolves a symbol in globally
loaded libraries first, so a system's BLAS that is loaded before MLX is used instead. PyTorch would
use it too if imported later, and its own (MKL) is faster: where one process needs both, import
torch first.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import logging
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .machine import cores, processor_flags

loaded: dict[str, ctypes.CDLL] = {}
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
# What OpenBLAS calls the kernels for processors that have these flags, the best first.
KERNELS = (
    ("SkylakeX", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("Haswell", {"avx2", "fma"}),
)
KERNEL = "OPENBLAS_CORETYPE"
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
            with kernels():
                library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            if hasattr(library, "openblas_set_num_threads"):
                loaded["openblas"] = library
        except OSError as e:
            log.warning("cannot load %s: %s", path, e)


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """Sets OpenBLAS's kernels to the best that this processor runs, unless the user chose some.

    An OpenBLAS older than the processor does not recognise it and falls back to kernels of 2004, at
    a quarter of the speed.
    """
    best = best_kernels() if KERNEL not in os.environ else None
    if best:
        os.environ[KERNEL] = best
    try:
        yield
    finally:
        if best:
            del os.environ[KERNEL]


def best_kernels() -> str | None:
    """OpenBLAS's name of the best kernels for this processor, if it is an x86 one."""
    flags = processor_flags()
    return next((name for name, needed in KERNELS if needed <= flags), None)


@cache
def advise_fast_blas() -> None:
    """Warns once where MLX runs on the reference BLAS, with what to install."""
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


@cache
def threads() -> int:
    """Threads that MLX may keep busy on the CPU: OMP_NUM_THREADS, or as many as processors."""
    limit = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or ""
    if limit.isdecimal():
        return max(1, int(limit))
    return cores()


@contextlib.contextmanager
def limited(count: int) -> Iterator[None]:
    """Limits the threads of the BLAS that prefer_fast_blas loaded, within the context."""
    library = loaded.get("openblas")
    if library is not None:
        library.openblas_set_num_threads(count)
    try:
        yield
    finally:
        if library is not None:
            library.openblas_set_num_threads(threads())


def slow() -> bool:
    """Whether MLX, once imported, computes with the reference BLAS."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return bool(REFERENCE.search(maps)) and not for_all()


def wanted() -> bool:
    """Whether to choose a BLAS at all: on Linux, unless it is switched off."""
    return sys.platform == "linux" and os.environ.get(VARIABLE) != "off"
