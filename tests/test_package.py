"""The package as users get it: wheel, sdist, the README's command, imports that do nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import soundfile

ROOT = Path(__file__).parent.parent
SPOKEN = ["--text", "It works from a wheel.", "--output", "hello.wav", "--seed", "1"]


def run(command: list, cwd: Path) -> subprocess.CompletedProcess:
    result = subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the tree without anything that git would not carry."""
    target = tmp_path_factory.mktemp("source") / "nanospeech"
    skip = shutil.ignore_patterns(
        ".git", ".venv*", "runs", "__pycache__", "dist", "build", "*.egg-info", ".*_cache"
    )
    shutil.copytree(ROOT, target, ignore=skip)
    return target


@pytest.fixture(scope="module")
def built(source, tmp_path_factory) -> Path:
    """A folder with the sdist and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", out, source], source)
    return out


def speech_in(path: Path) -> float:
    """Seconds of a file that is neither silent nor clipped."""
    wave, rate = soundfile.read(path)
    assert rate == 24_000 and 0.01 < (wave**2).mean() ** 0.5 < 0.5 and abs(wave).max() <= 1
    return len(wave) / rate


def test_wheel_speaks_from_a_clean_environment(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", f"{wheel}[mlx]"], tmp_path)
    run([python, "-m", "nanospeech.generate", *SPOKEN], tmp_path)
    assert 0.5 < speech_in(tmp_path / "hello.wav") < 6
    run([tmp_path / "env" / "bin" / "nanospeech", "--list-voices"], tmp_path)


def test_wheel_and_sdist_hold_what_they_should(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "nanospeech/default/model.safetensors",
        "nanospeech/default/config.json",
        "nanospeech/text/data/cmudict.txt.gz",
        "nanospeech_mlx/dit.py",
        "nanospeech_torch/dit.py",
        "convert/__main__.py",
    ):
        assert needed in names
    assert not any(n.startswith(("tests/", "scripts/", "runs/")) for n in names)
    assert wheel.stat().st_size < 40e6
    with tarfile.open(sdist) as tar:
        inside = tar.getnames()
    assert any(n.endswith("tests/test_package.py") for n in inside)
    assert not any("/runs/" in n for n in inside)


def test_readme_command_speaks(source):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"<!-- speak -->\n```sh\n(.*?)```", text, re.S)
    run(["bash", "-euo", "pipefail", "-c", command], source)
    assert 0.5 < speech_in(source / "hello.wav") < 15


def test_import_loads_no_backend():
    code = "import sys, nanospeech.generate, nanospeech.speech.speaker; print(sorted(sys.modules))"
    names = run([sys.executable, "-c", code], ROOT).stdout
    assert "'torch'" not in names and "'mlx" not in names and "'datasets'" not in names


def test_missing_extra_is_answered_by_the_pip_command():
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from nanospeech.errors import require, BackendError\n"
        "try: require('datasets', 'train')\n"
        "except BackendError as e: print(e)"
    )
    assert "pip install 'nanospeech-tts[train]'" in run([sys.executable, "-c", code], ROOT).stdout
