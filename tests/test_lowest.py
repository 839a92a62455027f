"""The lowest versions of other packages that pyproject.toml asks for, with what calls them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.test_package import ROOT, run

# each extra's packages at work, in a few seconds: what a version lacks shows here, not to users
LOWEST = """
set -e
printf 'Chapter 1\\n\\nIt was late.\\n' > book.txt
nanospeech "It works." --output hello.mp3
nanospeech book book.txt --output book.m4b
nanospeech say-how --language de 'Am 3. Mai.'
nanospeech --print-completion bash > completion
python -c "
import asyncio
from nanospeech.serve.app import create_app
from nanospeech.serve.service import SpeechService
from nanospeech.serve.settings import Limits, ServeSettings
from nanospeech.serve.wyoming import describe
from nanospeech.text.pinyin import syllables
from nanospeech import load_engine
service = SpeechService(load_engine, Limits())
service.warm()
assert describe(service).event() and list(syllables('\u4f60\u597d')) == ['ni2', 'hao3']
assert create_app(service, ServeSettings())
service.close()
import soundfile
from nanospeech.measure.metrics import dnsmos
from nanospeech.measure.wer import normalize
assert normalize('Two.') == '2' and dnsmos(soundfile.read('hello.mp3', dtype='float32')[0])
"
"""
LOW_EXTRAS = "book", "completion", "eval", "languages", "serve", "wyoming", "zh"
# what of an extra works with the torch of this environment: packages, and what Python is to run
BESIDE_TORCH = {
    "train": (["numpy", "datasets"], ["-c", "import datasets"]),
    "t5": (
        ["transformers"],
        ["-m", "pytest", "tests/echo/test_text_encoder.py", "-k", "own and torch"],
    ),
}


def lowest(table: str) -> dict[str, str]:
    """The lowest versions that a table of pyproject.toml asks for, by package."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^{table} = \[(.*?)\]$", text, re.M | re.S)
    return dict(re.findall(r'"([\w-]+)>=([\d.]+)"', found))


def install(folder: Path, *packages: object) -> Path:
    """A new environment with these packages and what they name; the folder of its programs."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [programs / "python", "-m", "pip"]
    run([*pip, "uninstall", "-q", "-y", "setuptools"], folder)  # as from Python 3.12 on
    run([*pip, "install", "-q", *packages], folder)
    return programs


@pytest.mark.slow
def test_the_lowest_versions_that_are_asked_for_do(tmp_path):
    wanted = {k: v for t in ("dependencies", *LOW_EXTRAS) for k, v in lowest(t).items()}
    bin = install(tmp_path / "env", ROOT, *(f"{name}=={v}" for name, v in wanted.items()))
    paths = {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | paths
    done = subprocess.run(
        ["bash", "-c", LOWEST], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("extra", BESIDE_TORCH)
def test_the_lowest_versions_beside_torch_do(extra, tmp_path):
    (names, words), versions = BESIDE_TORCH[extra], lowest("dependencies") | lowest(extra)
    bin = install(tmp_path / "env", *(f"{name}=={versions[name]}" for name in names))
    (site,) = (tmp_path / "env").glob("[lL]ib/**/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run([bin / "python", *words], ROOT)


@pytest.mark.slow
def test_the_constraints_are_met_on_the_lowest_python(tmp_path):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (python,) = re.findall('requires-python = ">=(.*)"', text)
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    asked = [Requirement(line) for line in lines if not line.startswith("#")]
    there = [r for r in asked if r.marker is None or r.marker.evaluate({"python_version": python})]
    pinned = [f"{r.name}{r.specifier}" for r in there if r.name != "torch"]  # too large to look at
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--target", "none"]
    run([*pip, "--only-binary=:all:", "--python-version", python, *pinned], tmp_path)
