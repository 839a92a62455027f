"""Fixtures of the commands' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
