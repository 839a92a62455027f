"""A student beside its teacher: when it speaks, in which voices, what converting keeps of it."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.numpy import save_file

from convert import convert
from convert.__main__ import main as convert_main
from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.audio import wave as audio
from nanospeech.errors import CheckpointError, InputError
from nanospeech.evaluate.plan import usual_steps
from nanospeech.prepare import spoken
from nanospeech.publish.add_voice import add_voice
from nanospeech.release.folder import MODEL, STUDENT, load_config, open_release
from nanospeech.release.tensors import read_tensors
from nanospeech.speech.beginning import First
from nanospeech.speech.chunks import sample
from nanospeech.text.markup import read_markup
from nanospeech_onnx.export import export
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.run import train
from tests.conftest import tone
from tests.train.test_distill_voices import settings
from tests.train.test_distill_voices import teacher as teacher
from tests.two_voices import copy_with_two_voices

TEXT = "Hello there."


@pytest.fixture(scope="module")
def both(tiny_aligned, tmp_path_factory) -> tuple[Path, Path]:
    """A release with a student of "other" and "tone", and a release that is the student alone."""
    made = tmp_path_factory.mktemp("student")
    folder, alone = (copy_with_two_voices(tiny_aligned, made / n) for n in ("both", "alone"))
    config = load_config(folder)
    torch.manual_seed(1)
    network = DiT(dataclasses.replace(config.dit, max_strength=4.0))
    fresh = {f"transformer.{n}": t.numpy() for n, t in network.state_dict().items()}
    rng = np.random.default_rng(2)
    weights = {n: t.astype(np.float32) for n, t in fresh.items()}
    weights |= {n: t.astype(np.float32) for n, t in read_tensors(folder / MODEL).items()}
    apart = {n for n in weights if "text_embed" not in n and "aligner" not in n}
    for name in apart:
        move = rng.standard_normal(weights[name].shape) * 0.02
        weights[name] = weights[name] + move.astype(np.float32)
    save_file(weights, folder / STUDENT)
    save_file(weights, alone / MODEL)
    values = json.loads((folder / "config.json").read_text())
    student = {"voices": ["tone", "other"], "max_strength": 4.0, "steps": 3, "step_counts": [3]}
    (folder / "config.json").write_text(json.dumps({**values, "student": student}))
    load_config(folder).as_student().save(alone / "config.json")
    return folder, alone


def said(engine, voice: str | None = None, steps: int | None = None, **more) -> np.ndarray:
    return (
        Speaker(engine, voice, options=SampleOptions(steps=steps), seed=1, **more).speak(TEXT).wave
    )


@pytest.mark.parametrize("voice", ["tone", "other"])
def test_the_student_speaks_unless_something_else_is_asked_for(both, backend, engine_of, voice):
    folder, alone = both
    engine = engine_of(folder, backend)
    got, wanted = said(engine, voice), said(engine_of(alone, backend), voice)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert np.array_equal(said(engine, voice, 3), got)
    plain = dataclasses.replace(
        engine.whole, config=dataclasses.replace(engine.whole.config, student=None)
    )
    itself = type(engine)(plain, "cpu", "float32")
    slow = said(engine, voice, 7)
    np.testing.assert_allclose(slow, said(itself, voice, 7), atol=1e-5)
    assert slow.shape != got.shape or np.abs(slow - got).max() > 1e-3


def test_one_evaluation_a_step_and_two_of_the_model_itself(both, monkeypatch):
    engine = load_engine(both[0], "torch", "cpu", "float32")
    assert engine._dit is None  # not read before it is needed
    speaker = Speaker(engine, "other", seed=1)
    calls: list[int] = []

    run = type(engine).run
    monkeypatch.setattr(type(engine), "run", lambda e, *a: calls.append(len(a[0])) or run(e, *a))
    speaker.speak(TEXT)
    assert calls == [1, 1, 1] and engine._dit is None
    speaker.use(SampleOptions(steps=2, cfg_strength=1.5))
    calls.clear()
    speaker.speak(TEXT)
    assert calls == [2, 2]
    speaker.use(SampleOptions(cfg_strength=1.5))
    calls.clear()
    speaker.speak(TEXT)
    assert calls == [1, 1, 1]


@pytest.mark.parametrize(
    "asked",
    [
        {"steps": 4},
        {"method": "midpoint"},
        {"cfg_strength": 4.5},
        {"cfg_until": 0.5},
        {"temperature": 0.2},
        {"cfg_rescale": 0.5},
        {"schedule": "uniform"},
    ],
)
def test_what_it_was_not_taught_the_model_does_itself(both, asked):
    speaker = Speaker(load_engine(both[0], "torch", "cpu"), "tone", options=SampleOptions(**asked))
    assert speaker.network == "model" and not speaker.engine.distilled


@pytest.fixture
def three(both, tmp_path) -> Path:
    """The same folder with one more voice, "new"."""
    folder = Path(shutil.copytree(both[0], tmp_path / "three"))
    for suffix in (".wav", ".txt"):
        shutil.copy(folder / f"voices/tone{suffix}", folder / f"voices/new{suffix}")
    return folder


def test_other_voices_are_not_the_students(three):
    folder = three
    engine = load_engine(folder, "torch", "cpu")
    recording = folder / "voices" / "new.wav"
    text = (folder / "voices" / "new.txt").read_text()
    for who in (Speaker(engine, "new"), Speaker(engine, None, recording, text)):
        assert who.network == "model"
        who.use(SampleOptions())
        assert who.network == "model" and not who.engine.distilled
    assert Speaker(engine, "tone").network == "student"


def test_a_voice_whose_own_guidance_is_stronger_is_not_the_students(three):
    settings = three / "voices" / "tone.json"
    values = json.loads(settings.read_text()) if settings.is_file() else {}
    settings.write_text(json.dumps({**values, "cfg_strength": 6}))
    speaker = Speaker(load_engine(three, "torch", "cpu"), "tone", seed=1)
    assert speaker.network == "model" and np.isfinite(speaker.speak(TEXT).wave).all()
    speaker.use(SampleOptions(cfg_strength=3))
    assert speaker.network == "student"


def test_a_voice_that_is_replaced_is_no_longer_the_students(three, tmp_path):
    tuned = Path(shutil.copytree(three, tmp_path / "tuned"))
    with pytest.raises(InputError, match="--overwrite"):
        add_voice(open_release(tuned), open_release(three), "tone", 3)
    with pytest.raises(InputError, match="too few"):  # and nothing is changed
        add_voice(open_release(tuned), open_release(three), "tone", 0, overwrite=True)
    assert load_config(three).student.voices == ("tone", "other")
    add_voice(open_release(tuned), open_release(three), "tone", 3, overwrite=True)
    assert load_config(three).student.voices == ("other",)
    engine = load_engine(three, "torch", "cpu")
    assert Speaker(engine, "tone").network == "model"
    assert Speaker(engine, "other").network == "student"
    add_voice(open_release(tuned), open_release(three), "new", 3, overwrite=True)
    assert load_config(three).student.voices == ("other",)
    add_voice(open_release(tuned), open_release(three), "other", 3, overwrite=True)
    assert load_config(three).student is None


def test_converting_keeps_it_packs_it_and_leaves_it_out_at_another_temperature(
    both, tmp_path, capsys
):
    folder = both[0]
    assert convert_main([str(folder), "--output", str(tmp_path / "told")]) == 0
    assert "wrote model, vocab, student, " in capsys.readouterr().out
    convert(folder, tmp_path / "again", dtype="float32")
    assert load_config(tmp_path / "again").student == load_config(folder).student
    old, new = read_tensors(folder / STUDENT), read_tensors(tmp_path / "again" / STUDENT)
    assert old.keys() == new.keys() and all(np.array_equal(old[n], new[n]) for n in old)
    convert(folder, tmp_path / "packed", quantize=8)
    config = load_config(tmp_path / "packed")
    assert config.quantization is not None and config.quantization.student
    size = (tmp_path / "packed" / STUDENT).stat().st_size
    assert size < 0.5 * (tmp_path / "again" / STUDENT).stat().st_size
    packed = open_release(tmp_path / "packed").student().weights(MODEL)
    loaded = open_release(folder).quantize(8).student().weights(MODEL)
    for name, wanted in old.items():
        assert np.abs(packed[name] - wanted).max() <= 0.02 * np.abs(wanted).max() + 1e-3, name
        np.testing.assert_allclose(packed[name], loaded[name], atol=2e-3)
    speaker = Speaker(load_engine(tmp_path / "packed", "torch", "cpu"), "other", seed=1)
    assert speaker.network == "student" and np.isfinite(speaker.speak(TEXT).wave).all()
    changes = {"temperature": 0.9}, {"voices": folder / "voices"}, {"average": folder}
    for name, change in zip(("warm", "new", "mean"), changes):
        convert(folder, tmp_path / name, **change)
        assert load_config(tmp_path / name).student is None
        assert not (tmp_path / name / STUDENT).exists()


def test_a_run_of_all_voices_is_added_to_its_teacher(teacher, both, tmp_path):
    mels = tmp_path / "made"
    (tmp_path / "t.txt").write_text(f"{TEXT}\n")
    command = [str(teacher), str(tmp_path / "t.txt"), "--out", str(mels), "--clips", "4"]
    assert spoken.main([*command, "--backend", "torch"]) == 0
    run = tmp_path / "run"
    once = {"total_steps": 1, "save_step": 1}
    train(run_config(settings(teacher, run, mels.glob("*.tar"), voice="all") | once))
    folder = tmp_path / "release"
    convert(teacher, folder, student=run, dtype="float32")
    config = load_config(folder)
    assert config.student is not None and config.student.voices == ("other", "tone")
    assert (config.student.steps, config.student.max_strength) == (2, 5.0)
    assert (config.student.cfg_strength, config.student.cfg_rescale) == (3.0, 0.0)
    assert config.dit == load_config(teacher).dit and config.steps == load_config(teacher).steps
    card = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    [row] = [i for i, line in enumerate(card) if line.startswith(f"| {STUDENT} |")]
    assert card[row - 1].startswith("| vocoder.safetensors |")
    names = read_tensors(folder / STUDENT).keys()  # what did not learn is the model's
    assert names and not any(".text_embed." in n or ".aligner." in n for n in names)
    assert Speaker(load_engine(folder, "torch", "cpu"), "other").network == "student"
    convert(folder, tmp_path / "calm", cfg_strength=2.0, cfg_rescale=1.0)  # the model; the student
    calm = load_config(tmp_path / "calm")  # speaks as it was taught
    assert (calm.cfg_strength, calm.cfg_rescale, calm.student) == (2.0, 1.0, config.student)
    assert (calm.as_student().cfg_strength, calm.as_student().cfg_rescale) == (3.0, 0.0)
    for wrong, match in (
        ({"temperature": 0.9}, "was taught at temperature"),
        ({"voices": teacher / "voices"}, "--voices replaces"),
    ):
        with pytest.raises(InputError, match=match):
            convert(teacher, tmp_path / "z", student=run, **wrong)
    other = Path(shutil.copytree(teacher, tmp_path / "other"))
    weights = read_tensors(other / MODEL)
    save_file({n: t * 2 if ".aligner." in n else t for n, t in weights.items()}, other / MODEL)
    with pytest.raises(InputError, match="is not a student of"):
        convert(other, tmp_path / "z", student=run)
    [last] = run.glob("step_*.pt")
    state = torch.load(last, weights_only=True)
    del state["config"]["sampling"]
    torch.save(state, tmp_path / "speech.pt")
    with pytest.raises(CheckpointError, match="is no student"):
        convert(teacher, tmp_path / "x", student=tmp_path / "speech.pt")
    one = tmp_path / "one"
    train(run_config(settings(teacher, one, mels.glob("*.tar"), voice="tone") | once))
    with pytest.raises(InputError, match="knows a single voice"):
        convert(teacher, tmp_path / "y", student=one)


def test_the_exported_graph_is_the_students(both, tmp_path):
    convert(both[0], tmp_path / "made", dtype="float32")
    names = {p.name for p in export(tmp_path / "made")}
    assert {"velocity.onnx", "student.onnx"} <= names
    rng = np.random.default_rng(0)
    x, cond = rng.standard_normal((2, 1, 40, 100)).astype("f")
    text = rng.standard_normal((1, 20, 32)).astype("f")
    time = np.array([[0.3, 0.5, 1 / 3]], "f")
    given = {"x": x, "cond": cond, "text": text, "time": time}
    (got,) = onnxruntime.InferenceSession(tmp_path / "made" / "student.onnx").run(None, given)
    engine = load_engine(tmp_path / "made", "onnx").with_voice(None, "student")
    assert np.abs(got - engine.dit(x, cond, text, time)).max() <= 1e-5


def test_a_config_that_cannot_be_is_told(both, tmp_path):
    folder = tmp_path / "wrong"
    shutil.copytree(both[0], folder)
    values = json.loads((folder / "config.json").read_text())
    for wrong in (
        {"voices": []},
        {"voices": ["tone"], "max_strength": 0},
        {"voices": ["a"], "steps": 3},
    ):
        (folder / "config.json").write_text(json.dumps({**values, "student": wrong}))
        with pytest.raises(CheckpointError):
            load_engine(folder, "torch", "cpu")
    (folder / "config.json").write_text(json.dumps(values))
    (folder / STUDENT).unlink()
    with pytest.raises(CheckpointError, match=r"student\.safetensors"):
        Speaker(load_engine(folder, "torch", "cpu"), "tone")


def test_an_evaluation_takes_the_students_steps_in_its_voices_alone(three):
    more = {"model": str(three), "sentences": "s.txt", **dataclasses.asdict(SampleOptions())}
    args = argparse.Namespace(**more)
    assert usual_steps(args, "tone") == usual_steps(args, "Tone") == 3
    assert usual_steps(args, None) == usual_steps(args, "new") == load_config(three).steps
    args.temperature = 0.1
    assert usual_steps(args, "tone") == load_config(three).steps
    assert Speaker(load_engine(three, "torch", "cpu"), "Tone").network == "student"


def test_a_first_chunk_has_fewer_steps_unless_the_student_speaks(both):
    """One choice serves both networks: the student keeps the steps that it was taught."""
    folder, _ = both
    speaker = Speaker(load_engine(folder, "torch"), "tone", seed=0)
    speaker.first = First(speaker.prompt, 2)
    steps = []

    def counted() -> int:
        steps.clear()
        list(speaker.stream(TEXT, on_step=lambda done, of: steps.append(done)))
        return len(steps)

    assert speaker.network == "student" and counted() == 3
    speaker.use(SampleOptions(method="midpoint"))
    assert speaker.network == "model" and counted() == 2
    speaker.first = First(speaker.prompt, 100)
    assert counted() == load_config(folder).steps


def test_progress_adds_up_where_voices_have_networks_of_other_steps(both, tmp_path):
    folder = shutil.copytree(both[0], tmp_path / "both")
    values = json.loads((folder / "config.json").read_text())
    values["student"]["voices"] = ["tone"]
    (folder / "config.json").write_text(json.dumps(values))
    speaker = Speaker(load_engine(folder, "torch"), "tone", seed=0)
    text = read_markup(f"{TEXT} [voice: other]{TEXT}[/voice] {TEXT} [pause 1s] {TEXT}")
    told: list[tuple[int, int]] = []
    list(speaker.pieces(text, on_step=lambda *counts: told.append(counts)))
    steps = load_config(folder).steps + 3 * (len(speaker.parts(text)) - 1)
    assert told == [(n + 1, steps) for n in range(steps)]


def test_spoken_mels_are_the_models_or_those_that_users_hear(both, tmp_path):
    (tmp_path / "t.txt").write_text(f"{TEXT}\n")
    made = {}
    for name, more in (("taught", []), ("heard", ["--as-heard"])):
        command = [str(both[0]), str(tmp_path / "t.txt"), "--out", str(tmp_path / name)]
        command += ["--voices", "tone", "--clips", "1", "--backend", "torch", *more]
        assert spoken.main(command) == 0
        with tarfile.open(tmp_path / name / "spoken-000000.tar") as tar:
            made[name] = np.load(io.BytesIO(tar.extractfile("tone_000000.npy").read()))  # type: ignore[union-attr]
    rng = np.random.default_rng((0, 0))
    rng.integers(1)
    seed, pace = int(rng.integers(2**31)), float(rng.uniform(*spoken.PACES))
    for name, itself in (("taught", True), ("heard", False)):
        engine = load_engine(both[0], "torch", "cpu", itself=itself)
        who = Speaker(engine, "tone", seed=0)
        who.speed = pace
        [part] = who.parts(TEXT)
        [mel] = sample(who.engine, who.prompt, [who.part_chunk(part, seed)], who.options)
        np.testing.assert_allclose(made[name], mel, atol=2e-2)
    assert np.abs(made["taught"] - made["heard"]).max() > 0.1


def test_clips_that_could_not_be_spoken_are_counted_with_the_reason(both, tmp_path, capsys):
    (tmp_path / "t.txt").write_text(f"{TEXT}\n{' '.join([TEXT] * 30)}\n")
    command = [str(both[0]), str(tmp_path / "t.txt"), "--out", str(tmp_path / "made")]
    assert spoken.main([*command, "--voices", "tone", "--clips", "6", "--backend", "torch"]) == 0
    out, err = capsys.readouterr()
    made = json.loads(out.splitlines()[-1])["tone"]["clips"]
    assert 0 < made < 6
    assert f"{6 - made} of 6 clips were left out: {6 - made} its line is more than one" in err
    short = tmp_path / "short.wav"
    audio.write(short, tone(1.0))
    short.with_suffix(".txt").write_text(TEXT)
    command += ["--recordings", str(tmp_path), "--overwrite"]
    assert spoken.main([*command, "--clips", "2"]) == 2
    assert "can be imitated: its recording is too short" in capsys.readouterr().err
