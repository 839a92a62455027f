"""An imitator beside a model: when it speaks, and what converting keeps of it."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import logging
import shutil
import tarfile
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from convert import convert
from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.architectures import StudentConfig
from nanospeech.audio import wave as audio
from nanospeech.commands import main
from nanospeech.config import ModelConfig
from nanospeech.engine.sampling import guide, noise, time_grid
from nanospeech.errors import CheckpointError, InputError
from nanospeech.evaluate.plan import usual_steps
from nanospeech.prepare import spoken
from nanospeech.publish.add_voice import add_voice
from nanospeech.publish.push import RELEASE_FILES
from nanospeech.release.folder import (
    IMITATOR,
    MODEL,
    STUDENT,
    VOCODER,
    load_config,
    open_release,
)
from nanospeech.release.tensors import read_tensors
from nanospeech.release.user_voices import save_voice
from nanospeech.release.voices import VoiceSettings, find_voice, model_voices
from nanospeech.speech.marked import directed
from nanospeech.speech.reference import finished
from nanospeech.text.markup import read_markup
from nanospeech_onnx.export import export
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.run import train
from tests.conftest import TONE_TEXT, tone
from tests.train.test_distill_voices import settings
from tests.two_voices import copy_with_two_voices

TEXT = "Hello there."
OWN = {"imitates": True, "steps": 3, "temperature": 0.5, "cfg_strength": 1.0}


def change(folder: Path, **values) -> None:
    """Changes values of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture(scope="module")
def both(tiny_aligned, make_release, tmp_path_factory) -> tuple[Path, Path]:
    """A release of two voices with an imitator, and the imitator's own release."""
    made = tmp_path_factory.mktemp("imitator")
    alone = Path(shutil.copytree(make_release(prompt_dim=24, text_upsampling="none"), made / "own"))
    change(alone, **OWN)
    plain = copy_with_two_voices(tiny_aligned, made / "plain")
    change(plain, imitates=False)
    convert(plain, made / "both", imitator=alone, dtype="float32")
    return made / "both", alone


def said(engine, voice: str | None = None, **more) -> np.ndarray:
    return Speaker(engine, voice, seed=1, **more).speak(TEXT).wave


def test_a_recording_is_spoken_by_the_imitator_and_voices_by_the_model(
    both, backend, engine_of, caplog
):
    folder, alone = both
    engine = engine_of(folder, backend)
    given = {"ref_audio": tone(1.5, 220.0), "ref_text": TONE_TEXT}
    with caplog.at_level(logging.WARNING):
        got = said(engine, **given)
    assert not [r for r in caplog.records if "imitate" in r.getMessage()]
    np.testing.assert_allclose(got, said(engine_of(alone, backend), **given), atol=1e-5)
    for voice in ("tone", "other"):
        speaker = Speaker(engine, voice, seed=1)
        assert speaker.network == "model" and speaker.engine.config.imitates is False
        itself = said(engine_of(folder.parent / "plain", backend), voice)
        np.testing.assert_allclose(speaker.speak(TEXT).wave, itself, atol=1e-5)


def test_the_users_voices_and_those_that_ship_are_recordings(both, user_data):
    save_voice("anna", tone(1.5), TONE_TEXT, {})
    engine = load_engine(both[0], "torch", "cpu")
    for name in ("anna", "default/kathleen"):
        speaker = Speaker(engine, name, seed=1)
        assert speaker.network == "imitator" and speaker.engine.config.steps == OWN["steps"]
        assert np.isfinite(speaker.speak(TEXT).wave).all()
        assert speaker.durations == "rule"  # the model has durations, the imitator none
    assert engine.voice_engines.keys() == {(None, "imitator")}
    assert engine._dit is None  # the model's own was not needed


def test_a_voice_of_the_folder_may_be_no_more_than_a_recording(
    both, tmp_path, backend, engine_of, caplog
):
    folder, alone = both
    there = Path(shutil.copytree(folder, tmp_path / "there"))
    (there / "voices" / "tone.json").write_text('{"imitated": true}')
    speaker = Speaker(engine_of(there, backend), "tone", seed=1)
    assert speaker.network == "imitator"
    tone_of = {"ref_audio": there / "voices" / "tone.wav", "ref_text": TONE_TEXT}
    expected = said(engine_of(alone, backend), **tone_of)
    np.testing.assert_allclose(speaker.speak(TEXT).wave, expected, atol=1e-5)
    assert Speaker(engine_of(there, backend), "other").network == "model"
    with caplog.at_level(logging.WARNING):
        itself = load_engine(there, backend, "cpu", itself=True)
        assert Speaker(itself, "tone").network == "model"
    assert "does not imitate" in caplog.text
    assert [*model_voices(there)] == ["other"] and [*model_voices(folder)] == ["other", "tone"]
    convert(there, tmp_path / "again", dtype="float32")
    assert find_voice("tone", tmp_path / "again").settings.imitated


def test_a_voice_that_was_finetuned_from_the_imitator_joins_its_folder(
    both, tmp_path, backend, engine_of
):
    folder, alone = (Path(shutil.copytree(p, tmp_path / p.name)) for p in both)
    tuned = read_tensors(alone / MODEL)
    rng, name = np.random.default_rng(0), "transformer.proj_out.weight"
    grown = np.outer(*(rng.normal(0, 0.1, n) for n in tuned[name].shape))
    save_file(tuned | {name: (tuned[name] + grown).astype(np.float32)}, alone / MODEL)
    for path in list((alone / "voices").iterdir()):
        path.rename(path.with_stem("anna"))
    (alone / "voices" / "anna.json").write_text('{"pace": 1.1}')
    figures = add_voice(open_release(alone), open_release(folder), "anna", 3.0)
    assert figures["kept"] > 0.999
    assert find_voice("anna", folder).settings == VoiceSettings(pace=1.1, imitated=True)
    engine = engine_of(folder, backend)
    speaker = Speaker(engine, "anna", seed=1)
    assert speaker.network == "imitator"
    expected = said(engine_of(alone, backend), "anna")
    np.testing.assert_allclose(speaker.speak(TEXT).wave, expected, atol=2e-3)
    # and goes on from there to another folder, as one that is a recording alone does
    again = Path(shutil.copytree(both[0], tmp_path / "again"))
    assert add_voice(open_release(folder), open_release(again), "anna", 3.0)["kept"] > 0.999
    assert find_voice("anna", again).settings.imitated
    np.testing.assert_allclose(said(engine_of(again, backend), "anna"), expected, atol=2e-3)
    (again / "voices" / "anna.safetensors").unlink()
    bare = Path(shutil.copytree(both[0], tmp_path / "bare"))
    add_voice(open_release(again), open_release(bare), "anna", 3.0)
    found = find_voice("anna", bare)
    assert found.settings.imitated and found.weights is None
    (alone / "voices" / "anna.json").unlink()  # what is written anew is not taken for the old one
    add_voice(open_release(alone), open_release(bare), "anna", 3.0, overwrite=True)
    assert find_voice("anna", bare).settings == VoiceSettings(imitated=True)
    # one that the model itself speaks stays so, and so does one of a model that imitates
    add_voice(open_release(bare), open_release(again), "tone", 3.0, overwrite=True)
    assert not find_voice("tone", again).settings.imitated
    base = Path(shutil.copytree(both[1], tmp_path / "base"))
    add_voice(open_release(alone), open_release(base), "anna", 3.0)
    assert not find_voice("anna", base).settings.imitated
    # other recordings are spoken as before
    given = {"ref_audio": tone(1.5, 220.0), "ref_text": TONE_TEXT}
    before = said(engine_of(both[1], backend), **given)
    np.testing.assert_allclose(said(engine, **given), before, atol=1e-5)
    assert np.abs(said(engine_of(alone, backend), **given)[: len(before)] - before).max() > 0.01


def test_options_are_kept_and_the_vocoder_is_shared(both):
    engine = load_engine(both[0], "torch", "cpu", "float32")
    speaker = Speaker(engine, ref_audio=tone(), ref_text=TONE_TEXT, seed=1)
    first = speaker.speak(TEXT).wave
    assert engine.modules.keys() == {both[0] / VOCODER}
    assert speaker.engine.modules is engine.modules
    speaker.use(SampleOptions(steps=9))
    assert speaker.network == "imitator"
    other = speaker.speak(TEXT).wave
    assert other.shape == first.shape and np.abs(other - first).max() > 1e-4


def test_steps_to_evaluate_with_are_those_of_whoever_speaks(both):
    more = {"model": str(both[0]), "sentences": "s.txt", **dataclasses.asdict(SampleOptions())}
    args = argparse.Namespace(**more)
    assert (usual_steps(args, None), usual_steps(args, "tone")) == (3, 7)


def test_converting_keeps_it_and_few_bits_leave_it(both, tmp_path):
    folder, alone = both
    convert(folder, tmp_path / "again", quantize=8)
    config = load_config(tmp_path / "again")
    assert config.imitator and config.quantization and config.takes_recordings
    whole = (tmp_path / "again" / "imitator" / MODEL).read_bytes()
    assert whole == (alone / MODEL).read_bytes()
    names = {p.name for p in (tmp_path / "again" / "imitator").iterdir()}
    assert names == {"config.json", MODEL, "vocab.txt"}
    count = sum(np.prod(shape) for shape in open_release(alone).shapes(MODEL).values())
    row = f"| imitator/{MODEL} | {count:,} | float32 |"
    assert row in (tmp_path / "again" / "README.md").read_text()
    convert(alone, tmp_path / "few", quantize=8, dtype="float16")
    convert(folder, tmp_path / "other", imitator=tmp_path / "few")
    assert f"| {count:,} | 8 bits, float16 |" in (tmp_path / "other" / "README.md").read_text()
    given = {"ref_audio": tone(1.5), "ref_text": TONE_TEXT}
    waves = [said(load_engine(f, "torch", "cpu"), **given) for f in (folder, tmp_path / "again")]
    np.testing.assert_allclose(*waves, atol=5e-3)  # the vocoder's weights are rounded
    packed = load_engine(folder, "torch", "cpu", quantize=8)
    np.testing.assert_array_equal(said(packed, **given), waves[0])


def test_what_can_not_be_an_imitator_is_told(both, tmp_path, tiny_aligned, monkeypatch):
    folder, alone = both
    with pytest.raises(InputError, match="does not imitate"):
        convert(folder, tmp_path / "x", imitator=tiny_aligned)
    with pytest.raises(InputError, match=r"such as its own imitator, .*/imitator$"):
        convert(tiny_aligned, tmp_path / "x", imitator=folder)
    other = Path(shutil.copytree(alone, tmp_path / "other"))
    audio = json.loads((other / "config.json").read_text())["audio"]
    change(other, audio=audio | {"n_fft": 2048})
    with pytest.raises(InputError, match="different mels"):
        convert(folder, tmp_path / "x", imitator=other)
    for there in (other, other / "imitator"):
        with pytest.raises(InputError, match=r"--imitator .* is in the folder"):
            convert(folder, other, imitator=there)
    gone = Path(shutil.copytree(folder, tmp_path / "mine"))
    shutil.rmtree(gone / "imitator")
    monkeypatch.chdir(tmp_path)  # "mine/imitator" could be a name on the Hub
    with pytest.raises(CheckpointError, match="is not there"):
        Speaker(load_engine("mine", "torch", "cpu"), ref_audio=tone(), ref_text=TONE_TEXT)
    with pytest.raises(CheckpointError, match="is not there"):
        convert("mine", tmp_path / "x")
    change(gone, imitator="own")
    with pytest.raises(CheckpointError, match="imitator"):
        ModelConfig.load(gone / "config.json")


@pytest.mark.parametrize("inner", [True, False])
def test_neither_a_release_nor_its_imitator_is_written_over_the_other(both, tmp_path, inner):
    folder = Path(shutil.copytree(both[0], tmp_path / "whole"))
    source, output = (folder / IMITATOR, folder) if inner else (folder, folder / IMITATOR)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match="would write over"):
        convert(source, output)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_the_hub_is_asked_for_it(both):
    inside = [f"imitator/{p.name}" for p in (both[0] / "imitator").iterdir()]
    assert all(any(fnmatch(name, pattern) for pattern in RELEASE_FILES) for name in inside)
    assert open_release(both[0]).imitator().path(MODEL).is_file()


def test_subtitles_of_an_imitator_that_cannot_find_words_are_the_models(both, tmp_path, capsys):
    audio.write(tmp_path / "me.wav", tone(1.5))
    out, words = tmp_path / "out.wav", tmp_path / "out.srt"
    given = ["--model", str(both[0]), "--backend", "torch", "--ref-audio", str(tmp_path / "me.wav")]
    given += ["--ref-text", TONE_TEXT, "--text", TEXT, "--output", str(out)]
    assert main([*given, "--subtitles", str(words), "--seed", "1", "--quiet"]) == 0
    assert "Hello there." in words.read_text()


def test_a_voice_of_markup_has_the_lengths_of_its_own_network(both, user_data):
    save_voice("anna", tone(1.5), TONE_TEXT, {})
    speaker = Speaker(load_engine(both[0], "torch", "cpu"), "tone", seed=1)
    marked = directed(speaker, read_markup("Hello [voice: anna]there[/voice]."))
    (other,) = marked.casts.values()
    assert (speaker.durations, other.durations) == ("model", "rule")
    assert other.network == "imitator" and speaker.network == "model"
    assert np.isfinite(speaker.speak(read_markup("Hello [voice: anna]there[/voice].")).wave).all()


@pytest.fixture(scope="module")
def fast(both, tmp_path_factory) -> tuple[Path, Path, Path]:
    """A release whose imitator has a student of 2 and 4 steps; the two alone; the student alone."""
    made = tmp_path_factory.mktemp("fast")
    own, student = (Path(shutil.copytree(both[1], made / n)) for n in ("own", "student"))
    config = load_config(own)
    torch.manual_seed(1)
    network = DiT(dataclasses.replace(config.dit, max_strength=4.0))
    rng = np.random.default_rng(2)
    weights = {f"transformer.{n}": t.numpy() for n, t in network.state_dict().items()}
    weights |= {n: t.astype(np.float32) for n, t in read_tensors(own / MODEL).items()}
    for name in weights:
        if "text_embed" not in name:
            move = rng.standard_normal(weights[name].shape) * 0.02
            weights[name] = weights[name] + move.astype(np.float32)
    learnt = {n: t for n, t in weights.items() if "text_embed" not in n}
    save_file(learnt, own / STUDENT)
    save_file(weights, student / MODEL)
    change(own, student={"voices": [], "max_strength": 4.0, "steps": 2, "step_counts": [2, 4]})
    load_config(own).as_student().save(student / "config.json")
    convert(both[0].parent / "plain", made / "fast", imitator=own, dtype="float32")
    return made / "fast", own, student


RECORDED = {"ref_audio": tone(1.5, 220.0), "ref_text": TONE_TEXT}


def test_an_imitators_student_speaks_after_recordings(fast, backend, engine_of):
    folder, own, student = fast
    wanted = said(engine_of(student, backend), **RECORDED)
    for there, name in ((folder, "imitator/student"), (own, "student")):
        speaker = Speaker(engine_of(there, backend), seed=1, **RECORDED)
        assert speaker.network == name and speaker.engine.config.steps == 2
        np.testing.assert_allclose(speaker.speak(TEXT).wave, wanted, atol=1e-5)
    speaker = Speaker(engine_of(folder, backend), "tone", seed=1)
    assert speaker.network == "model" and not speaker.engine.distilled


def test_what_its_student_was_not_taught_the_imitator_does_itself(fast, both):
    speaker = Speaker(load_engine(fast[0], "torch", "cpu"), seed=1, **RECORDED)
    for options, name in (
        (SampleOptions(steps=4), "imitator/student"),
        (SampleOptions(steps=3), "imitator"),
        (SampleOptions(cfg_strength=4.5), "imitator"),
        (SampleOptions(method="midpoint"), "imitator"),
        (SampleOptions(), "imitator/student"),
    ):
        speaker.use(options)
        assert speaker.network == name, options
        assert speaker.engine.distilled == (name != "imitator")
    speaker.use(SampleOptions(steps=3))
    slow = Speaker(load_engine(both[0], "torch", "cpu"), seed=1, **RECORDED)
    np.testing.assert_allclose(speaker.speak(TEXT).wave, slow.speak(TEXT).wave, atol=1e-5)


def test_users_voices_and_imitated_ones_are_its_students_too(fast, tmp_path, user_data):
    save_voice("anna", tone(1.5), TONE_TEXT, {})
    folder = Path(shutil.copytree(fast[0], tmp_path / "there"))
    (folder / "voices" / "tone.json").write_text('{"imitated": true}')
    engine = load_engine(folder, "torch", "cpu")
    for name in ("anna", "tone", "default/kathleen"):
        assert Speaker(engine, name).network == "imitator/student"
    assert Speaker(engine, "other").network == "model"
    (folder / "voices" / "tone.json").write_text('{"imitated": true, "cfg_strength": 5}')
    assert Speaker(engine, "tone").network == "imitator"
    more = {"sentences": "s.txt", **dataclasses.asdict(SampleOptions())}
    args = argparse.Namespace(model=str(folder), **more)
    assert (usual_steps(args, None), usual_steps(args, "tone")) == (2, 3)
    alone = load_engine(fast[1], "torch", "cpu")
    assert Speaker(alone, "anna").network == "student"


def test_a_student_of_some_recordings_speaks_after_others_where_its_steps_are_asked_for(
    fast, tmp_path, user_data, backend
):
    save_voice("anna", tone(1.5), TONE_TEXT, {})
    folder = Path(shutil.copytree(fast[0], tmp_path / "there"))
    (folder / "voices" / "tone.json").write_text('{"imitated": true}')
    own = json.loads((folder / "imitator" / "config.json").read_text())["student"]
    change(folder / "imitator", student=own | {"voices": ["tone"]})
    engine = load_engine(folder, backend, "cpu", "float32")
    assert Speaker(engine, "tone", seed=1).network == "imitator/student/named"
    for given in ({"voice": "anna"}, RECORDED):
        speaker = Speaker(engine, seed=1, **given)
        assert speaker.network == "imitator"
        for steps, name in ((4, "imitator/student"), (3, "imitator"), (None, "imitator")):
            speaker.use(SampleOptions(steps=steps))
            assert speaker.network == name
    assert Speaker(engine, "other", options=SampleOptions(steps=4)).network == "model"
    named, student, itself = (
        engine.with_voice(None, f"imitator{name}") for name in ("/student/named", "/student", "")
    )
    assert named is not student and named.dit is student.dit is not itself.dit  # read once


@pytest.fixture(scope="module")
def begun(fast, tmp_path_factory) -> tuple[Path, Path]:
    """A release whose imitator's student takes the first of its two steps; the imitator alone."""
    made = tmp_path_factory.mktemp("begun")
    folder, own = (Path(shutil.copytree(fast[i], made / str(i))) for i in (0, 1))
    student = json.loads((own / "config.json").read_text())["student"] | {"begins": 1}
    for place in (folder / "imitator", own):
        change(place, student=student, steps=7)
    return folder, own


def test_a_student_begins_and_the_imitator_goes_on(begun, backend, engine_of):
    for folder, names in (
        (begun[0], ("imitator", "imitator/student")),
        (begun[1], ("model", "student")),
    ):
        speaker = Speaker(engine_of(folder, backend), seed=1, **RECORDED)
        assert speaker.network == names[0]
        engine, config, usual = speaker.engine, speaker.engine.config, SampleOptions()
        times = engine.grid(usual)
        own = time_grid(7)
        assert times == [0.0, *own[own.index(times[1]) :]] and len(times) == 4
        assert times[1] == time_grid(2, "uniform")[1]

        x = noise(90, config.audio.n_mels, 3)[None]
        cond = np.zeros_like(x)
        cond[:, :30] = -2.0
        text = np.arange(1, 13)[None]
        found = engine.sample(x, cond, text, usual, prompt_tokens_B=np.array([5]))

        # the same by hand: the student's velocity first, the guided one of the imitator's then
        student = engine.with_voice(None, names[1])
        strength = student.config.cfg_strength / 4.0
        with engine.context():
            places = np.array([90]), np.array([30]), np.array([5])
            states, filler = engine.text_states(text, cond, *places)
            normal = engine.array(engine.normalised(cond))
            state = engine.array(x * np.float32(config.temperature))
            for index, (t, after) in enumerate(pairwise(times)):
                if index == 0:
                    time = engine.array(np.array([[t, strength, 0.5]], np.float32))
                    v = student.network(state, normal, states, time, None)
                else:
                    time = engine.array(np.array([t], np.float32))
                    v = engine.network(state, normal, states, time, None)
                    without = engine.network(state, normal * 0, filler, time, None)
                    v = guide(v, without, config.cfg_strength)
                state = state + (after - t) * v
            wanted = engine.numpy(state) * config.audio.mel_std + config.audio.mel_mean
        np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_a_student_begins_only_as_it_was_taught_and_where_no_steps_are_asked_for(begun):
    speaker = Speaker(load_engine(begun[0], "torch", "cpu"), seed=1, **RECORDED)
    for options, network, steps in (
        (SampleOptions(), "imitator", 3),
        (SampleOptions(cfg_strength=2.0), "imitator", 3),
        (SampleOptions(steps=7), "imitator", 7),
        (SampleOptions(steps=2), "imitator/student", 2),
        (SampleOptions(cfg_strength=4.5), "imitator", 7),  # more than it was taught
        (SampleOptions(cfg_rescale=0.5), "imitator", 7),
        (SampleOptions(method="midpoint"), "imitator", 7),
        (SampleOptions(temperature=0.9), "imitator", 7),
    ):
        speaker.use(options)
        assert speaker.network == network, options
        assert len(speaker.engine.grid(options)) == steps + 1, options
        assert np.isfinite(speaker.speak("Hi.").wave).all()
    itself = Speaker(load_engine(begun[1], "torch", "cpu", itself=True), seed=1, **RECORDED)
    assert len(itself.engine.grid(SampleOptions())) == 8


@pytest.mark.parametrize("bad", [-1, 2, 1.0, True])
def test_a_student_begins_with_some_of_its_steps(bad):
    assert StudentConfig(steps=2, step_counts=(2,), begins=1).begins == 1
    with pytest.raises(InputError, match=f"begins is {bad!r}; choose 0 to 1 of the 2 steps"):
        StudentConfig(steps=2, step_counts=(2,), begins=bad)


def test_converting_keeps_an_imitators_student(fast, tmp_path):
    folder, own, _ = fast
    convert(folder, tmp_path / "again", quantize=8)
    names = {p.name for p in (tmp_path / "again" / "imitator").iterdir()}
    assert names == {"config.json", MODEL, STUDENT, "vocab.txt"}
    rows = [r for r in (tmp_path / "again" / "README.md").read_text().splitlines() if "| imi" in r]
    assert [r.split("|")[1].strip() for r in rows] == [f"imitator/{MODEL}", f"imitator/{STUDENT}"]
    convert(own, tmp_path / "few", quantize=8)
    config = load_config(tmp_path / "few")
    assert config.quantization and config.quantization.student and not config.student.voices
    speaker = Speaker(load_engine(tmp_path / "few", "torch", "cpu"), seed=1, **RECORDED)
    assert speaker.network == "student" and np.isfinite(speaker.speak(TEXT).wave).all()
    engine = load_engine(folder, "torch", "cpu", itself=True)
    assert Speaker(engine, seed=1, **RECORDED).network == "model"
    inside = [f"imitator/{p.name}" for p in (folder / "imitator").iterdir()]
    assert f"imitator/{STUDENT}" in inside
    assert all(any(fnmatch(name, pattern) for pattern in RELEASE_FILES) for name in inside)


def test_graphs_of_an_imitators_student_are_written(fast, tmp_path, engine_of):
    folder = Path(shutil.copytree(fast[0], tmp_path / "there"))
    written = {str(p.relative_to(folder)) for p in export(folder)}
    assert {"velocity.onnx", "imitator/velocity.onnx", "imitator/student.onnx"} <= written


def test_a_student_of_recordings_goes_on_from_its_teacher(both, tmp_path, capsys):
    """Spoken lessons after recordings, a run of them, and what is made of the run."""
    people = tmp_path / "people"
    for name, pitch in (("ann", 180.0), ("ben", 240.0), ("short", 200.0)):
        (people / name).mkdir(parents=True)
        length = 0.7 if name == "short" else 1.6
        audio.write(people / name / "1.wav", tone(length, pitch))
    names = ("ann", "ben", "short")
    rows = [{"audio": f"{n}/1.wav", "text": TONE_TEXT, "speaker": n} for n in names]
    (people / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "t.txt").write_text("A red fox ran.\n")
    out, run = tmp_path / "made", tmp_path / "run"
    command = [str(both[1]), str(tmp_path / "t.txt"), "--recordings", str(people / "m.jsonl")]
    command += ["--out", str(out), "--clips", "6", "--backend", "torch"]
    assert spoken.main(command) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {n: told[n]["clips"] for n in told} == {"ann": 2, "ben": 2, "short": 0}
    with tarfile.open(out / "spoken-000000.tar") as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    mel = np.load(io.BytesIO(files["ann_000000.ref.npy"]))
    wave = finished(audio.read(people / "ann" / "1.wav"), [])
    expected = Speaker(load_engine(both[1], "torch", "cpu"), None, wave, TONE_TEXT)
    np.testing.assert_allclose(mel, expected.prompt.mel, atol=2e-2)
    assert json.loads(files["ann_000000.json"])["ref_text"] == TONE_TEXT
    assert spoken.main([*command, "--overwrite", "--without", "ann", "carl"]) == 2
    assert "no recordings of ['carl']" in capsys.readouterr().err

    once = {"total_steps": 1, "save_step": 1}
    train(run_config(settings(both[1], run, [out / "spoken-000000.tar"], also=[1]) | once))
    convert(both[1], tmp_path / "two", student=run, dtype="float32")
    student = load_config(tmp_path / "two").student
    assert (student.voices, student.steps, student.step_counts) == ((), 2, (1, 2))
    speaker = Speaker(load_engine(tmp_path / "two", "torch", "cpu"), seed=1, **RECORDED)
    assert speaker.network == "student" and np.isfinite(speaker.speak(TEXT).wave).all()
    convert(both[1], tmp_path / "named", student=run, student_voices=["tone"], dtype="float32")
    assert load_config(tmp_path / "named").student.voices == ("tone",)
    convert(both[1], tmp_path / "begun", student=run, student_begins=1, dtype="float32")
    assert load_config(tmp_path / "begun").student.begins == 1
    speaker = Speaker(load_engine(tmp_path / "begun", "torch", "cpu"), seed=1, **RECORDED)
    assert speaker.network == "model" and np.isfinite(speaker.speak(TEXT).wave).all()
    for flag, value in (("student_voices", ["tone"]), ("student_begins", 1)):
        with pytest.raises(InputError, match=f"--{flag.replace('_', '-')} goes with --student"):
            convert(both[1], tmp_path / "x", **{flag: value})
    with pytest.raises(InputError, match=r"or recordings, which .* does not imitate"):
        convert(both[0].parent / "plain", tmp_path / "x", student=run)
