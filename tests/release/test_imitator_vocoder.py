"""An imitator's own vocoder: when it sounds, and what converting keeps of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from convert import convert
from convert.vocoder import read_vocoder
from nanospeech.config import StudentConfig, VocoderConfig
from nanospeech.publish.push import RELEASE_FILES
from nanospeech.release.folder import VOCODER, load_config, open_release
from nanospeech.release.tensors import read_tensors
from nanospeech_onnx.export import export
from nanospeech_torch.vocoder import Vocos
from tests.conftest import TONE_TEXT, tone
from tests.release.test_imitator import both as both
from tests.release.test_imitator import change, said


@pytest.fixture
def own_vocoder(both, tmp_path) -> Path:
    """The release, whose imitator has a vocoder of half the changes over frequencies."""
    folder = Path(shutil.copytree(both[0], tmp_path / "own vocoder"))
    tensors = read_tensors(folder / VOCODER)
    changed = {**tensors, "head.out.weight": tensors["head.out.weight"] / 2}
    save_file(changed, folder / "imitator" / VOCODER)
    change(folder / "imitator", vocoder=json.loads((folder / "config.json").read_text())["vocoder"])
    return folder


def test_an_imitator_may_have_a_vocoder_of_its_own(both, own_vocoder, tmp_path, backend, engine_of):
    usual, engine = engine_of(both[0], backend), engine_of(own_vocoder, backend)
    alone = Path(shutil.copytree(both[1], tmp_path / "alone"))
    shutil.copy(own_vocoder / "imitator" / VOCODER, alone)
    given = {"ref_audio": tone(1.5, 220.0), "ref_text": TONE_TEXT}
    got = said(engine, **given)
    np.testing.assert_allclose(got, said(engine_of(alone, backend), **given), atol=1e-5)
    assert np.abs(got - said(usual, **given)).max() > 1e-2
    np.testing.assert_allclose(said(engine, "tone"), said(usual, "tone"), atol=1e-5)
    assert engine.modules.keys() == {own_vocoder / VOCODER, own_vocoder / "imitator" / VOCODER}


def test_an_imitators_student_speaks_by_the_models_vocoder(own_vocoder):
    own = own_vocoder / "imitator"
    imitator = open_release(own_vocoder).imitator()
    assert imitator.path(VOCODER) == own / VOCODER
    taught = dataclasses.replace(imitator.config, student=StudentConfig(steps=4))
    student = dataclasses.replace(imitator, config=taught).student()
    assert student.path(VOCODER) == own_vocoder / VOCODER
    assert student.config.vocoder == load_config(own_vocoder).vocoder
    assert student.has(VOCODER) and imitator.has(VOCODER)


def test_converting_keeps_an_imitators_own_vocoder(both, own_vocoder, tmp_path):
    convert(own_vocoder, tmp_path / "again")
    kept = read_tensors(tmp_path / "again" / "imitator" / VOCODER)
    mine = read_tensors(own_vocoder / "imitator" / VOCODER)
    assert all((kept[n] == mine[n]).all() for n in mine)
    card = (tmp_path / "again" / "README.md").read_text()
    assert "| imitator/vocoder.safetensors |" in card
    inside = [f"imitator/{p.name}" for p in (tmp_path / "again" / "imitator").iterdir()]
    assert all(any(fnmatch(name, pattern) for pattern in RELEASE_FILES) for name in inside)
    graphs = {str(p.relative_to(tmp_path / "again")) for p in export(tmp_path / "again")}
    assert {"vocoder.onnx", "imitator/vocoder.onnx"} <= graphs
    # the model's own is not kept twice, in whatever type
    convert(both[0], tmp_path / "one", imitator=both[1], dtype="float16")
    assert not (tmp_path / "one" / "imitator" / VOCODER).exists()


def test_a_packed_vocoder_is_read_to_convert_and_measure_it(both, tmp_path):
    torch.manual_seed(0)
    sizes = VocoderConfig(dim=64, intermediate_dim=128, num_layers=1)
    wide = {n: t.numpy() for n, t in Vocos(sizes).state_dict().items()}
    (tmp_path / "wide").mkdir()
    save_file(wide, tmp_path / "wide" / VOCODER)
    folder, few = tmp_path / "few", ["vocoder"]
    convert(both[0], folder, vocoder=tmp_path / "wide", quantize=8, quantize_only=few)
    assert load_config(folder).quantization.vocoder
    config, tensors = read_vocoder(folder)
    assert config == sizes
    for name, given in wide.items():
        assert np.abs(tensors[name].numpy() - given).max() <= 0.01 * np.abs(given).max(), name
