"""Belonging: parts that are not whole, or not of one model, are refused before they are written."""

from __future__ import annotations

import pytest
import torch

from convert import convert
from nanospeech.errors import CheckpointError

GAMMA = "backbone.convnext.0.gamma"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.pop(GAMMA), f"missing {GAMMA}"),
        (lambda t: t.update({"backbone.other": torch.zeros(3)}), "unknown backbone.other"),
        (lambda t: t.update({GAMMA: torch.zeros(3)}), rf"{GAMMA} \(3,\) instead of \(64,\)"),
    ],
)
def test_a_vocoder_that_is_not_whole_is_refused(golden, tmp_path, change, told):
    tensors = torch.load(golden / "vocos_pytorch_model.bin", weights_only=True)
    change(tensors)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    options = {"vocab": golden / "vocab.txt", "vocoder": tmp_path / "pytorch_model.bin"}
    with pytest.raises(CheckpointError, match=told):
        convert(golden / "model.safetensors", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
