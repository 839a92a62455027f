"""Machine: how many processors a process may use, by what control groups say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nanospeech import machine


def groups(folder: Path, own: str, **files: str) -> tuple[Path, Path]:
    """Control groups as a kernel shows them, and what it tells a process of its own."""
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (folder / "own").write_text(own)
    return folder / "groups", folder / "own"


V1 = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"


@pytest.mark.parametrize(
    ("own", "files", "wanted"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, [2]),
        ("0::/\n", {"cpu.max": "20000 100000"}, [1]),
        ("0::/\n", {"cpu.max": "max 100000"}, []),
        ("0::/\n", {}, []),
        ("0::/a/b:c\n", {"a/b:c/cpu.max": "300000 100000"}, [3]),
        ("0::/gone\n", {"cpu.max": "400000 100000"}, [4]),
        ("0::/\n", {"cpu.max": ""}, []),
        ("strange\n", {"cpu.max": "400000 100000"}, []),
    ],
    ids=["rounded-up", "less-than-one", "unlimited", "none", "nested", "container", "empty", "odd"],
)
def test_quotas_are_those_of_the_control_group(tmp_path, own, files, wanted):
    found = machine.quotas(*groups(tmp_path, own, **files))
    assert sorted(set(found)) == wanted


@pytest.mark.parametrize(("quota", "wanted"), [("250000", [3]), ("-1", [])])
@pytest.mark.parametrize("place", ["", "docker/abc/"])
def test_quotas_of_version_1_are_found_too(tmp_path, quota, wanted, place):
    files = {"cpu_quota_us": quota, "cpu_period_us": "100000"}
    named = {f"cpu,cpuacct/{place}{k.replace('cpu_', 'cpu.cfs_')}": v for k, v in files.items()}
    assert machine.quotas(*groups(tmp_path, V1, **named)) == wanted


def test_cores_are_no_more_than_the_quota(monkeypatch):
    there = machine.cores()
    assert 1 <= there <= (os.cpu_count() or 1)
    monkeypatch.setattr(machine, "quotas", lambda: [1, there + 7])
    assert machine.cores() == 1
    monkeypatch.setattr(machine, "quotas", lambda: [there + 7])
    assert machine.cores() == there


@pytest.mark.parametrize("variables", [{}, {"OMP_NUM_THREADS": "5"}], ids=["", "variables"])
def test_pytorch_gets_threads_for_the_quota_unless_set(monkeypatch, variables):
    for limits, wanted in ([1, 3], {"OMP_NUM_THREADS": "1"}), ([], {}):
        environment = {"GOMP_SPINCOUNT": "1", **variables}
        monkeypatch.setattr(os, "environ", environment)
        monkeypatch.setattr(machine, "quotas", lambda limits=limits: limits)
        machine.share_cores()
        assert environment == {"GOMP_SPINCOUNT": "1", **wanted, **variables}


@pytest.mark.parametrize("given", [{}, {"OPENBLAS_NUM_THREADS": "5"}, {"OMP_NUM_THREADS": "5"}])
def test_numpy_gets_threads_for_the_quota_unless_set(monkeypatch, given):
    for limits, wanted in ([1, 3], given or {"OPENBLAS_NUM_THREADS": "1"}), ([], given):
        monkeypatch.setattr(os, "environ", environment := dict(given))
        monkeypatch.setattr(machine, "quotas", lambda limits=limits: limits)
        machine.set_up_blas()
        assert environment == {"OPENBLAS_THREAD_TIMEOUT": "4", **wanted}


def test_a_system_without_control_groups_has_no_quotas(tmp_path):
    assert machine.quotas(tmp_path, tmp_path / "none") == []


@pytest.mark.parametrize(("given", "found"), [(None, "4"), ("9", "9")])
def test_blas_is_told_to_sleep_before_numpy_is_there(given, found):
    code = "import sys, os, nanospeech; print('numpy' in sys.modules, os.environ[sys.argv[1]])"
    name = "OPENBLAS_THREAD_TIMEOUT"
    environment = {k: v for k, v in os.environ.items() if k != name}
    environment |= {} if given is None else {name: given}
    done = subprocess.run(
        [sys.executable, "-c", code, name],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert done.stdout.split() == ["False", found]


def test_onnx_runtime_leaves_and_reports_nothing(tmp_path):
    pytest.importorskip("onnxruntime", reason="no onnxruntime here")
    code = "import os, nanospeech, onnxruntime; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    # where CI is set it reports nothing anyway
    environment = {k: v for k, v in os.environ.items() if k.startswith("PYTHON") or k == "PATH"}
    environment |= {"HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "1\n" and not list(tmp_path.iterdir())
