"""BLAS: MLX on Linux computes with the machine's fast one, or says how. Real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nanospeech import blas

pytest.importorskip("mlx.core", reason="no mlx here")

ROOT = Path(__file__).resolve().parents[2]
LOAD = "from nanospeech import load_engine; load_engine(backend='mlx', device='cpu')"
MULTIPLY = "import mlx.core as mx; a = mx.ones((64, 64)); mx.eval(a @ a)"
linux = pytest.mark.skipif(sys.platform != "linux", reason="only MLX for Linux brings a slow BLAS")
found = pytest.mark.skipif(blas.find_blas() is None, reason="no fast BLAS on this machine")


def run(code: str, tmp_path: Path, **variables: str) -> tuple[str, str]:
    """What a process says on stderr, and the library from which MLX took its matrix product.

    PyTorch's library, if it is loaded, must not take anything from there.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", blas.VARIABLE)}
    env |= {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(tmp_path / "bindings"), **variables}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {MULTIPLY}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (log,) = tmp_path.glob("bindings.*")
    bound = r"binding file \S*libmlx\.so \[0\] to (\S+) \[0\]: normal symbol `cblas_sgemm'"
    lines = log.read_text(errors="replace")
    log.unlink()
    (library,) = set(re.findall(bound, lines))
    assert not re.search(r"binding file \S*libtorch_cpu\.so \[0\] to \S*blas", lines)
    return done.stderr, library


@linux
@found
def test_mlx_computes_with_the_fast_blas(tmp_path):
    said, library = run(LOAD, tmp_path)
    assert said == ""
    assert Path(library).parent.samefile(Path(str(blas.find_blas())).parent)


@linux
def test_off_leaves_all_as_it_is_and_is_silent(tmp_path):
    said, library = run(LOAD, tmp_path, NANOSPEECH_BLAS="off")
    assert said == "" and blas.REFERENCE.search(library)


@linux
@found
def test_mlx_imported_too_early_is_warned_of_once(tmp_path):
    said, library = run(f"import mlx.core; {LOAD}; {LOAD}", tmp_path)
    assert blas.REFERENCE.search(library)
    assert said.count("\n") == 1 and f"LD_PRELOAD={blas.find_blas()}" in said


@linux
@found
def test_a_preloaded_blas_is_left_alone(tmp_path):
    path = str(blas.find_blas())
    said, library = run(f"import mlx.core; {LOAD}", tmp_path, LD_PRELOAD=path)
    assert said == "" and Path(library).parent.samefile(Path(path).parent)


@linux
def test_a_missing_blas_is_warned_of_with_how_to_get_one(tmp_path):
    nowhere = "import nanospeech.blas as b; b.PLACES = ()"
    said, library = run(f"{nowhere}; {LOAD}; {LOAD}", tmp_path)
    assert blas.REFERENCE.search(library)
    assert said.count("\n") == 1 and "libopenblas" in said


@linux
@found
def test_torch_keeps_its_own_if_it_is_imported_first(tmp_path):
    pytest.importorskip("torch")
    code = f"import torch; {LOAD}; torch.ones(64, 64) @ torch.ones(64, 64)"
    said, library = run(code, tmp_path)
    assert said == "" and Path(library).parent.samefile(Path(str(blas.find_blas())).parent)


@linux
@found
def test_openblas_takes_the_kernels_of_this_processor(tmp_path):
    if blas.best_kernels() is None:
        pytest.skip("no kernels to choose for OpenBLAS on this processor")
    core = "import ctypes, os; from nanospeech import blas; name = ctypes.c_char_p; "
    core += "lib = blas.loaded['openblas']; lib.openblas_get_corename.restype = name; "
    core += "print(lib.openblas_get_corename().decode(), blas.KERNEL in os.environ)"
    for variables, wanted in (({}, blas.best_kernels()), ({blas.KERNEL: "Prescott"}, "Prescott")):
        env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", blas.KERNEL)}
        done = subprocess.run(
            [sys.executable, "-c", f"{LOAD}; {core}"],
            cwd=ROOT,
            env=env | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout.split() == [wanted, str(bool(variables))], done.stderr[-2000:]


def test_threads_are_those_that_are_asked_for(monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert blas.threads.__wrapped__() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert blas.threads.__wrapped__() == 3
