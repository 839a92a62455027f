"""Imports point one way: the contracts of pyproject.toml, and no circle of modules."""

from __future__ import annotations

import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "nanospeech",
    "nanospeech_torch",
    "nanospeech_mlx",
    "nanospeech_onnx",
    "convert",
    "scripts",
)


def test_contracts_are_kept():
    code = "import importlinter.cli as i; raise SystemExit(i.lint_imports(no_cache=True))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()


def test_no_module_imports_itself_by_way_of_others():
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    for package in (ROOT / name for name in PACKAGES):
        files = [p for p in package.rglob("*.py") if p.name != "__init__.py"]
        names = {".".join(p.relative_to(ROOT).with_suffix("").parts) for p in files}
        assert names <= graph.modules  # a folder without __init__.py would not be looked at
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError with the modules of a circle
