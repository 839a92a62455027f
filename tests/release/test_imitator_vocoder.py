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
from nanospeech.config import SampleOptions, StudentConfig, VocoderConfig
from nanospeech.publish.push import RELEASE_FILES
from nanospeech.release.folder import VOCODER, load_config, open_release
from nanospeech.release.tensors import read_tensors
from nanospeech.speech.speaker import Speaker
from nanospeech_onnx.export import export
from nanospeech_torch.vocoder import Vocos
from tests.conftest import TONE_TEXT, tone
from tests.release.test_imitator import RECORDED, TEXT, change, said
from tests.release.test_imitator import both as both
from tests.release.test_imitator import fast as fast


@pytest.fixture
def own_vocoder(both, tmp_path) -> Path:
    """The release, whose imitator has a vocoder of half the changes over frequencies."""
    folder = Path(shutil.copytree(both[0], tmp_path / "own vocoder"))
    give_own_vocoder(folder)
    return folder


def give_own_vocoder(folder: Path) -> None:
    tensors = read_tensors(folder / VOCODER)
    changed = {**tensors, "head.out.weight": tensors["head.out.weight"] / 2}
    save_file(changed, folder / "imitator" / VOCODER)
    change(folder / "imitator", vocoder=json.loads((folder / "config.json").read_text())["vocoder"])


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


def test_an_imitators_student_speaks_by_the_models_vocoder_in_the_voices_it_names(own_vocoder):
    own, given = own_vocoder / "imitator", load_config(own_vocoder).vocoder
    deeper = dataclasses.replace(given, num_layers=given.num_layers + 1)
    found = open_release(own_vocoder).imitator()
    taught = dataclasses.replace(found.config, student=StudentConfig(steps=4), vocoder=deeper)
    imitator = dataclasses.replace(found, config=taught)
    student = imitator.student()
    for network in (imitator, student):
        assert network.path(VOCODER) == own / VOCODER and network.has(VOCODER)
        assert network.config.vocoder == deeper
    named = student.with_release_vocoder()
    assert named.path(VOCODER) == own_vocoder / VOCODER and named.has(VOCODER)
    assert named.config.vocoder == given


def test_which_vocoder_a_students_speech_has(fast, tmp_path, backend, engine_of):
    """The model's in voices that the student names, the imitator's after other recordings."""
    usual, folder = (Path(shutil.copytree(fast[0], tmp_path / name)) for name in ("usual", "own"))
    for place in (usual, folder):
        (place / "voices" / "tone.json").write_text('{"imitated": true}')
        student = json.loads((place / "imitator" / "config.json").read_text())["student"]
        change(place / "imitator", student=student | {"voices": ["tone"]})
    give_own_vocoder(folder)
    for given, network in (
        ({"voice": "tone"}, "imitator/student/named"),
        (RECORDED, "imitator/student"),
    ):
        waves = []
        for place in (usual, folder):
            speaker = Speaker(
                engine_of(place, backend), seed=1, options=SampleOptions(steps=4), **given
            )
            assert speaker.network == network
            waves.append(speaker.speak(TEXT).wave)
        difference = np.abs(waves[0] - waves[1]).max()
        if given is RECORDED:
            assert difference > 1e-2
        else:
            assert difference < 1e-5


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
