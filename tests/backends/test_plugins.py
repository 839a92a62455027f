"""Backends are found by entry points: ours, and one that another package adds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nanospeech import load
from nanospeech.errors import BackendError, InputError

ROOT = Path(__file__).parents[2]
ABACUS = """
from nanospeech.engine.backend import Backend

class Abacus(Backend):
    name = "abacus"
    install = "pip install abacus"

    def installed(self):
        return {installed}

    def rank(self):
        return {rank}

    def load(self, release, device, dtype, compile):
        return self.name, release.config.name, device, dtype, compile
"""


@pytest.fixture
def add_package(tmp_path, monkeypatch):
    """Puts a package with backends on the path, with the metadata that pip would write."""

    def add(name: str, code: str, entries: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[nanospeech.backends]\n{entries}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return add


def test_another_package_adds_a_backend(add_package, tiny_release):
    add_package("beads", ABACUS.format(installed=True, rank=10), "abacus = beads:Abacus")
    assert load.backend_names() == ["torch", "mlx", "onnx", "abacus"]
    given = load.load_engine(tiny_release, "abacus", "left", "float16", compile=True)
    assert given == ("abacus", load.open_release(tiny_release).config.name, "left", "float16", True)
    assert load.pick_backend("auto") in ("torch", "mlx", "onnx")
    with pytest.raises(
        InputError, match="'sand' not known; choose from auto, torch, mlx, onnx, aba"
    ):
        load.load_engine(tiny_release, "sand")


def test_a_plugin_may_be_preferred_but_not_replace_a_built_in(add_package):
    entries = "abacus = beads:Abacus\ntorch = beads:Abacus"
    add_package("beads", ABACUS.format(installed=True, rank=0), entries)
    assert load.pick_backend("auto") == "abacus"
    assert type(load.find_backend("torch")).__module__ == "nanospeech_torch.backend"


def test_one_that_is_not_installed_says_how_to_get_it(add_package):
    add_package("beads", ABACUS.format(installed=False, rank=0), "abacus = beads:Abacus")
    assert load.pick_backend("auto") in ("torch", "mlx", "onnx")
    with pytest.raises(BackendError, match="abacus backend is not installed; run: pip install aba"):
        load.pick_backend("abacus")


def test_a_broken_plugin_is_left_out_and_reported(add_package, caplog):
    add_package("beads", "import no_such_module", "abacus = beads:Abacus")
    assert load.pick_backend("auto") in ("torch", "mlx", "onnx")
    assert "the backend abacus cannot be used: No module named 'no_such_module'" in caplog.text


def test_ours_are_found_in_a_checkout_that_is_not_installed(tmp_path):
    """No metadata at all is on the path: the standard library and this repository alone."""
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from nanospeech import commands, plugins\n"
        "assert not plugins.installed(plugins.BACKENDS)\n"
        "print(plugins.names(plugins.BACKENDS), commands.main(['--help']))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "['torch', 'mlx', 'onnx'] 0", done.stderr
