"""One student for all of a teacher's voices: what learns, of which data, and what comes of it."""

from __future__ import annotations

import copy
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import nanospeech
from convert import convert
from nanospeech.errors import InputError
from nanospeech.load import load_engine
from nanospeech.prepare import spoken
from nanospeech.release.folder import MODEL, load_config
from nanospeech.release.tensors import read_tensors
from nanospeech.release.voice_weights import added, is_thin
from nanospeech.speech.speaker import Speaker
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.data.batch import Batch
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.objectives.distill import Distilled, Voice
from nanospeech_torch.train.run import build_objective, build_student, train
from nanospeech_torch.train.scale.speed import SpeedConfig, apply_speed
from tests.train.test_distill import TINY
from tests.two_voices import copy_with_two_voices


@pytest.fixture(scope="module")
def teacher(tiny_aligned, tmp_path_factory) -> Path:
    """A release with the voices "tone" and "other", which has weights of its own."""
    return copy_with_two_voices(tiny_aligned, tmp_path_factory.mktemp("teacher") / "release")


def settings(teacher: Path, run: Path, shards: Any = (), **distill: Any) -> dict:
    return {
        "model": "distilled", "teacher": str(teacher), "run_dir": str(run), "total_steps": 3,
        "warmup_steps": 1, "save_step": 3, "mixed_precision": "no",
        "data": {"shards": [str(s) for s in shards], "batch_size": 4, "max_duration": 900},
        "distill": {"steps": 2, "method": "trajectory", **distill}, "train": TINY,
        "loss": {"pair": 1.0},
    }  # fmt: skip


def batch_of(voices: list[int], frames: int = 60) -> Batch:
    g = torch.Generator().manual_seed(3)
    count = len(voices)
    lens = torch.full((count,), frames)
    span = torch.arange(frames)[None].repeat(count, 1) >= 20
    return Batch(
        mel=torch.randn(count, frames, 100, generator=g) - 4,
        lens=lens,
        text=torch.randint(1, 20, (count, 9), generator=g),
        noise=torch.randn(count, frames, 100, generator=g),
        time=torch.rand(count, generator=g),
        span=span,
        drop_audio=torch.zeros(count, dtype=torch.bool),
        drop_text=torch.zeros(count, dtype=torch.bool),
        prompt=torch.full((count,), 20),
        voice=torch.tensor(voices),
    )


def test_each_item_is_taught_by_its_voice_and_all_move_the_same_weights(teacher, tmp_path):
    """The losses are those of students of one voice, which have its weights in their own."""
    model = begun(settings(teacher, tmp_path, voice="all"))
    assert model.names == ("other", "tone")
    assert model.model_config()["sampling"]["voices"] == ["other", "tone"]
    batch = batch_of([1, 0, 1])
    flow, count = model(batch)["flow"]
    flow.backward()
    total, gradients = 0.0, {}
    for voice, rows in (("other", [1]), ("tone", [0, 2])):
        alone = begun(settings(teacher, tmp_path, voice=voice))
        part = Batch(**{f.name: getattr(batch, f.name)[rows] for f in fields(Batch)})
        own, _ = alone(replace(part, voice=None))["flow"]
        own.backward()
        total += own.item()
        for name, p in alone.transformer.named_parameters():
            if p.grad is not None:
                gradients[name] = gradients.get(name, 0) + p.grad
    assert flow.item() == pytest.approx(total, rel=1e-5) and count.item() == 3 * 40
    learn = {n: p for n, p in model.transformer.named_parameters() if p.requires_grad}
    assert not any(n.startswith(("text_embed.", "aligner.")) for n in learn)
    assert "transformer_blocks.0.attn.to_q.weight" in learn
    # thin tensors are each voice's own: only those that take the guidance and the step learn
    start = dict(load_named(teacher))
    assert {n for n, p in learn.items() if is_thin(p)} == {
        n for n, p in learn.items() if n not in start and is_thin(p)
    }
    for name, p in learn.items():
        assert p.grad is not None, name
        torch.testing.assert_close(p.grad, gradients[name], rtol=1e-3, atol=1e-5)


def test_a_student_begins_as_its_teacher_in_every_voice(teacher, tmp_path):
    """Also in one whose thin tensors alone are its own."""
    model = begun(settings(teacher, tmp_path, voice="all"))
    base = model.voices[model.names.index("tone")].network
    own = copy.deepcopy(base)
    with torch.no_grad():
        for p in own.parameters():
            p += 0.1 * is_thin(p)
    x, cond = torch.randn(2, 3, 22, 100)
    text, lens, time = torch.randn(3, 11, 32), torch.tensor([22, 9, 14]), torch.rand(3, 3)
    found = []
    for voice in (*model.voices, Voice(base, own)):
        with torch.no_grad():
            wanted = voice.network(x, cond, text, time[:, 0], lens)
            found.append(model.student(voice, x, cond, text, time, lens))
        torch.testing.assert_close(found[-1], wanted, rtol=1e-4, atol=1e-5)
    assert all(not torch.allclose(a, b, atol=1e-2) for a, b in combinations(found, 2))


def test_all_of_a_voice_goes_to_a_device(teacher, tmp_path):
    model = begun(settings(teacher, tmp_path, voice="all"))
    voice = model.voices[model.names.index("other")].to(torch.device("meta"))
    assert voice.added and voice.whole
    tensors = [*voice.network.parameters(), *voice.added.values(), *voice.whole.values()]
    assert all(t.is_meta for t in tensors)


def begun(values: dict) -> Distilled:
    """A student; what it has beyond its teacher is drawn with the run's seed."""
    return build_objective(run_config(values), None).eval()


def test_a_student_learns_without_dropout(teacher, tmp_path):
    model = begun(settings(teacher, tmp_path, voice="all")).train()
    assert model.training and not any(part.training for part in model.transformer.modules())


def is_reading(name: str) -> bool:
    """Whether a tensor is of what reads texts, of a published name."""
    return name.startswith(("transformer.text_embed.", "transformer.aligner."))


def load_named(folder: Path) -> dict[str, np.ndarray]:
    return {n.removeprefix("transformer."): t for n, t in read_tensors(folder / MODEL).items()}


def test_a_model_speaks_its_own_lessons_and_a_student_of_all_voices_comes_of_them(
    teacher, tmp_path, capsys
):
    texts, without = tmp_path / "texts.txt", tmp_path / "test.txt"
    texts.write_text("Hello there.\nA red fox ran.\nNot this one.\n", encoding="utf-8")
    without.write_text("Not this one.\n", encoding="utf-8")
    command = [str(teacher), str(texts), "--out", str(tmp_path / "made"), "--clips", "8"]
    assert spoken.main([*command, "--exclude", str(without), "--backend", "torch"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {n: told[n]["clips"] for n in told} == {"other": 4, "tone": 4}
    [shard] = (tmp_path / "made").glob("*.tar")
    with tarfile.open(shard) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    about = json.loads(files["other_000000.json"])
    assert about["speaker"] == "other" and about["ref_text"] and about["text"] != "Not this one."
    mel, prompt = (np.load(io.BytesIO(files[f"other_000000.{e}"])) for e in ("npy", "ref.npy"))
    assert mel.dtype == np.float16 and mel.shape[1] == prompt.shape[1] == 100
    assert about["target_duration"] == pytest.approx(len(mel) * 256 / 24000)
    assert len(prompt) == len(Speaker(load_engine(teacher, "torch", "cpu"), "tone").prompt.mel)

    run = tmp_path / "run"
    train(run_config(settings(teacher, run, [shard], voice="all")))
    folder = tmp_path / "student"
    convert(run, folder, like=teacher, dtype="float32")
    config = load_config(folder)
    assert (config.steps, config.dit.max_strength) == (2, 5)
    assert config.default_voice == load_config(teacher).default_voice
    names = {p.name for p in (teacher / "voices").iterdir()}
    assert {p.name for p in (folder / "voices").iterdir()} == names
    # a voice of it is the student's weights and what the voice adds
    base, other = read_tensors(folder / MODEL), folder / "voices" / "other.safetensors"
    wanted = added({n: t.astype(np.float32) for n, t in base.items()}, read_tensors(other), other)
    engine = load_engine(folder, "torch", "cpu", "float32").with_voice(other)
    key = "transformer_blocks.0.attn.to_q.weight"
    got = engine.dit.state_dict()[key].numpy()
    np.testing.assert_allclose(got, wanted[f"transformer.{key}"], atol=1e-6)
    tone, other = (Speaker(engine, n, seed=1).speak("Hello there.").wave for n in ("tone", "other"))
    assert np.isfinite(tone).all() and np.isfinite(other).all() and not np.array_equal(tone, other)

    # a student of fewer steps goes on from it, whether it is alone or beside its teacher
    convert(teacher, tmp_path / "beside", student=run, dtype="float32")
    for flag, value in (("student_voices", ["tone"]), ("student_begins", 1)):
        with pytest.raises(InputError, match=r"was taught other, tone"):
            convert(teacher, tmp_path / "x", student=run, **{flag: value})
    fewer = settings(teacher, tmp_path / "one", [shard], voice="all", steps=1)
    for there in (folder, tmp_path / "beside"):
        student = begun({**fewer, "initial": str(there)})
        for name, tensor in student.transformer.state_dict().items():
            np.testing.assert_array_equal(tensor.numpy(), base[f"transformer.{name}"], name)
    # of another teacher it takes what reads texts, which does not learn
    another = tmp_path / "another"
    shutil.copytree(teacher, another)
    reading = {n: 2 * t for n, t in read_tensors(another / MODEL).items() if is_reading(n)}
    save_file({**read_tensors(another / MODEL), **reading}, another / MODEL)
    student = begun({**fewer, "initial": str(folder), "teacher": str(another)})
    for name, tensor in student.transformer.state_dict().items():
        name = f"transformer.{name}"
        np.testing.assert_array_equal(tensor.numpy(), reading.get(name, base[name]), name)
    assert len(reading) > 10
    with pytest.raises(InputError, match="has no student and is none"):
        begun({**fewer, "initial": str(teacher)})
    fewer["distill"]["max_strength"] = 2.0
    with pytest.raises(InputError, match="has another student"):
        begun({**fewer, "initial": str(folder)})


def test_what_the_teacher_says_is_the_text_that_is_kept(teacher, tmp_path, capsys):
    texts, out = tmp_path / "texts.txt", tmp_path / "made"
    texts.write_text("Dr. Ann is 9.\n", encoding="utf-8")
    command = [str(teacher), str(texts), "--out", str(out), "--clips", "1", "--backend", "torch"]
    assert spoken.main(command) == 0
    with tarfile.open(out / "spoken-000000.tar") as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    [about] = (json.loads(data) for name, data in files.items() if name.endswith(".json"))
    assert about["text"] == "Doctor Ann is nine."
    assert spoken.main([*command, "--seed", "1"]) == 2
    assert "pass --overwrite" in capsys.readouterr().err
    (out / "spoken-000007.tar").write_bytes(b"of another run")
    assert spoken.main([*command, "--overwrite"]) == 0
    assert [p.name for p in out.glob("*.tar")] == ["spoken-000000.tar"]


@pytest.mark.parametrize("why", ["Ctrl-C", "a full disk"])
def test_what_was_spoken_before_stays_until_the_new_set_is_whole(teacher, tmp_path, why):
    out, texts = tmp_path / "made", tmp_path / "texts.txt"
    texts.write_text("Hello there.\n", encoding="utf-8")
    out.mkdir()
    (out / "spoken-000000.tar").write_bytes(b"of another run")
    (out / "spoken-000001.tar").write_bytes(b"of the same")
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    argv = [sys.executable, "-m", "nanospeech", "prepare", "spoken", str(teacher), str(texts)]
    argv += ["--out", str(out), "--clips", "5000", "--backend", "onnx", "--overwrite"]
    few = 300_000  # bytes, of some clips

    def limit() -> None:
        if why == "a full disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (few, few))

    with subprocess.Popen(
        argv,
        env=os.environ | {"PYTHONPATH": str(Path(nanospeech.__file__).parents[1])},
        stderr=subprocess.PIPE,
        preexec_fn=limit,
    ) as process:
        part = out / ".spoken-000000.part"
        while why == "Ctrl-C" and process.poll() is None:
            if part.exists() and part.stat().st_size > few:
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.01)
        told = process.communicate(timeout=120)[1].decode()
    assert process.returncode == (130 if why == "Ctrl-C" else 2), told
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_clips_of_other_speakers_are_left_out(teacher, tmp_path):
    model = build_student(run_config(settings(teacher, tmp_path, voice="all")))
    mel = np.zeros((90, 100), np.float16)
    out = io.BytesIO()
    np.save(out, mel)
    samples = [
        {"__key__": f"{i}", "npy": out.getvalue(), "json": {"text": "hi", "speaker": name}}
        for i, name in enumerate(["tone", "nobody", "other"])
    ]
    plan = BatchPlan(2, 4000, 900, buckets=1)
    found = next(iter(model.batches(samples, plan, StreamOptions())))
    assert sorted(found.batch.voice.tolist()) == [0, 1]
    assert found.skipped["of none of the teacher's voices"] == 1


def test_what_cannot_be_taught_is_told(teacher, tiny_release, tmp_path, capsys):
    with pytest.raises(InputError, match="all voices learn by trajectory"):
        run_config(settings(teacher, tmp_path, voice="all", method="shortcut"))
    again = settings(teacher, tmp_path, voice="all") | {"speed": {"checkpoint_interval": 1}}
    with pytest.raises(InputError, match="leave speed"):
        build_student(run_config(again))
    bare = tmp_path / "bare"
    shutil.copytree(teacher, bare)
    shutil.rmtree(bare / "voices")
    with pytest.raises(InputError, match="has no voices"):
        build_student(run_config(settings(bare, tmp_path, voice="all")))
    empty = tmp_path / "empty.txt"
    empty.write_text("\n", encoding="utf-8")
    assert spoken.main([str(teacher), str(empty), "--out", str(tmp_path / "x")]) == 2
    assert "has no line to speak" in capsys.readouterr().err
    measured = tmp_path / "measured.txt"
    measured.write_text("One.\n\nTwo.\n", encoding="utf-8")
    without = ["--out", str(tmp_path / "x"), "--exclude", str(empty), str(measured)]
    assert spoken.main([str(teacher), str(measured), *without]) == 2
    assert f"all 2 lines of {measured} are in those of --exclude: " in capsys.readouterr().err


def test_voices_of_any_number_of_clips_are_not_compiled_on_gpus(teacher, tmp_path, monkeypatch):
    compiled = {"speed": {"compile": "default"}}
    values = settings(teacher, tmp_path, voice="all") | compiled
    build_student(run_config(values))  # one function for all numbers, on a CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InputError, match=r"Set speed\.compile=off"):
        build_student(run_config(values))
    build_student(run_config(settings(teacher, tmp_path, voice=None) | compiled))


def test_the_teachers_blocks_are_compiled_with_the_students(teacher, tmp_path):
    values = settings(teacher, tmp_path, voice="all")
    model, batch = begun(values), batch_of([0, 1])
    wanted = model(batch)["flow"][0].item()
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    apply_speed(model, SpeedConfig(compile="default"), backend=backend)
    assert model(batch)["flow"][0].item() == pytest.approx(wanted, rel=1e-5)
    forwards = [b.forward for n in model.teachers() for b in n.transformer_blocks]
    assert len(model.teachers()) == 2 and len({f.__func__ for f in forwards}) == 1
    assert forwards[0].__func__ is model.transformer.transformer_blocks[0].forward.__func__
    assert len(compiled) <= 4  # with gradients and without, not one a voice
