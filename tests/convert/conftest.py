"""Fixtures: release folders converted from other projects' tiny checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from convert import convert

PEERS = Path(__file__).resolve().parents[1] / "golden" / "peers"


@pytest.fixture(scope="session")
def f5_release(tmp_path_factory, golden):
    """f5_release("v1" or "v0") -> its release folder, converted once."""
    made: dict[str, Path] = {}

    def make(version: str) -> Path:
        if version not in made:
            folder = tmp_path_factory.mktemp("f5") / version
            convert(
                PEERS / f"f5_{version}.safetensors",
                folder,
                kind=f"f5-{version}",
                vocab=PEERS / "f5_vocab.txt",
                vocoder=golden / "vocos_pytorch_model.bin",
                licence="mit",
            )
            made[version] = folder
        return made[version]

    return make
