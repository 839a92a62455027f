"""Distillation: targets by hand, which grid is learnt when, a run, and what comes of it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from convert import convert
from nanospeech.config import AudioConfig, ModelConfig, SampleOptions
from nanospeech.engine.sampling import noise, rescaled_velocity
from nanospeech.errors import InputError
from nanospeech.load import load_engine
from nanospeech.release.folder import MODEL, load_config
from nanospeech.speech.speaker import Speaker
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.train.config import read_run, run_config
from nanospeech_torch.train.initial import load_objective
from nanospeech_torch.train.objectives.distill import DistillConfig, Distilled
from nanospeech_torch.train.run import build_student, dry_run, train
from tests.train.test_golden_batches import (
    BANDS,
    LENS,
    MEAN,
    PROMPTS,
    SPANS,
    STATES,
    STD,
    Network,
    answer,
    golden_batch,
    means_of_patches,
    normal,
    numbers,
    of_frames,
    text_states,
)
from tests.training import write_shards

SPREAD, MOST = 0.5, 3.0
TINY = {"log_every": 1, "ema_decay": 0.5, "buckets": 1, "schedule": "constant", "keep": 9}


class Teacher(Network):
    """A stub with the parts that do not learn."""

    def __init__(self, kind: str, patch: int, gain: float):
        super().__init__(kind, patch, gain)
        self.aligner = torch.nn.Identity()
        self.aligner.log_durations = self.log_durations  # type: ignore[assignment]
        self.text_embed = torch.nn.Identity()


class Student(Teacher):
    """It answers by time, guidance and step, each differently."""

    def forward(self, x, cond, text, time, lens):
        self.calls.append(time.numpy())
        each = text.repeat_interleave(self.config.patch_size, 1)[:, : x.shape[1]]
        time, share, step = time.T[:, :, None, None]
        return answer(x, cond, each, time, self.gain) + 0.3 * share - 2.0 * step


def grid(count: int) -> list[float]:
    """Uniform, then sway -1 (F5-TTS, eq. 5): 1 - cos(pi t / 2)."""
    return [1 - cos(pi / 2 * i / count) for i in range(count + 1)]


def distilled(
    kind: str, patch: int, cfg_rescale: float = 0.0, **fields: Any
) -> tuple[Distilled, Student, Teacher, Student]:
    """The objective, and the networks of the student, the teacher and the average."""
    audio = AudioConfig(n_mels=BANDS, mel_mean=MEAN, mel_std=STD)
    about = ModelConfig(audio=audio, temperature=SPREAD, cfg_strength=9.0, cfg_rescale=cfg_rescale)
    student, teacher = Student(kind, patch, 1.0), Teacher(kind, patch, 0.7)
    settings = DistillConfig(max_strength=MOST, **fields)
    model = Distilled(student, about, teacher, settings, None)  # type: ignore[arg-type]
    average = Student(kind, patch, 1.3)
    model.guide = (average,)  # type: ignore[assignment]
    return model, student, teacher, average


def undropped():
    batch = golden_batch()
    return replace(batch, drop_audio=batch.drop_audio & False, drop_text=batch.drop_text & False)


@pytest.mark.parametrize(("kind", "patch"), [("none", 1), ("average", 2), ("aligned", 2)])
@pytest.mark.parametrize("count", [4, 8])
def test_the_target_is_the_mean_of_two_steps_of_the_teacher(kind, patch, count):
    model, student, teacher, average = distilled(kind, patch, steps=4)
    model.count = count
    batch = golden_batch()  # whose drops are not for a student
    got = numbers(model(batch))["flow"]
    total = frames = 0
    for b, n in enumerate(LENS):
        place = batch.time[b].item() * count
        number = int(place)
        share = place - number
        begin, middle, end = grid(2 * count)[2 * number : 2 * number + 3]
        mel = normal(batch, b)
        state = (1 - begin) * SPREAD * batch.noise[b, :n].numpy() + begin * mel
        cond = np.array(
            [m if not SPANS[b][0] <= i < SPANS[b][1] else 0 * m for i, m in enumerate(mel)]
        )
        text = of_frames(text_states(batch, b, kind, patch), patch, n)
        filler = of_frames(np.repeat(STATES[:1], -(-n // patch), 0), patch, n)

        def learnt(x, t, cond=cond, text=text, filler=filler, share=share):
            if count == 4:  # of the average, on the next finer grid
                return answer(x, cond, text, t, 1.3) + 0.3 * share - 2.0 / (2 * count)
            with_text, without = answer(x, cond, text, t, 0.7), answer(x, 0 * cond, filler, t, 0.7)
            return with_text + MOST * share * (with_text - without)

        halfway = state + (middle - begin) * learnt(state, begin)
        there = halfway + (end - middle) * learnt(halfway, middle)
        aim = (there - state) / (end - begin)
        said = answer(state, cond, text, begin, 1.0) + 0.3 * share - 2.0 / count
        for i in range(*SPANS[b]):
            total, frames = total + np.square(said[i] - aim[i]).mean(), frames + 1
    assert got == pytest.approx((total, frames), rel=2e-4)
    assert {k: v.item() for k, v in model.counts(batch).items()} == {"flow": frames}
    assert model.weights() == {"flow": 1.0}
    assert (len(teacher.calls), len(average.calls)) == ((2, 0) if count == 8 else (0, 2))
    for _, cond, *_ in teacher.calls:  # without the prompt in the second half
        assert cond[: len(LENS)].any() and not cond[len(LENS) :].any()
    # a check by the teacher alone, whatever was learnt last
    assert numbers(model.eval()(batch))["flow"][1] == frames and len(teacher.calls) == (
        4 if count == 8 else 2
    )
    assert len(student.calls) == 2


@pytest.mark.parametrize(("kind", "patch"), [("none", 1), ("aligned", 2)])
@pytest.mark.parametrize(
    ("count", "parts", "rescaled"), [(2, 1, 0.0), (2, 3, 1.0), (3, 2, 0.6), (6, 1, 0.0)]
)
def test_a_trajectory_is_the_teachers_own_way_from_the_noise(kind, patch, count, parts, rescaled):
    """Every step of it is learnt, with guidance of the strength that the time says."""
    also = () if count == 2 else (count,)
    model, student, teacher, average = distilled(
        kind, patch, rescaled, method="trajectory", steps=2, substeps=parts * count // 2, also=also
    )
    assert not model.guided and model.distill.counts == (2, *also)
    model.count = count
    batch = golden_batch()
    got = numbers(model(batch))["flow"]
    total = frames = 0
    for b, n in enumerate(LENS):
        share = batch.time[b].item()
        cond = normal(batch, b)
        cond[slice(*SPANS[b])] = 0
        text = of_frames(text_states(batch, b, kind, patch), patch, n)
        filler = of_frames(np.repeat(STATES[:1], -(-n // patch), 0), patch, n)
        times, x = grid(count * parts), SPREAD * batch.noise[b, :n].numpy()
        for step in range(count):
            begin, state = times[step * parts], x
            for low, high in pairwise(times[step * parts : (step + 1) * parts + 1]):
                given, free = (
                    answer(x, c, t, low, 0.7) for c, t in ((cond, text), (0 * cond, filler))
                )
                guided = given + MOST * share * (given - free)
                if rescaled:
                    new = np.zeros((1, n, 1))
                    new[:, slice(*SPANS[b])] = 1
                    guided = rescaled_velocity(guided[None], given[None], x, low, new, rescaled)[0]
                x = x + (high - low) * guided
            aim = (x - state) / (times[(step + 1) * parts] - begin)
            said = answer(state, cond, text, begin, 1.0) + 0.3 * share - 2.0 / count
            for i in range(*SPANS[b]):
                total, frames = total + np.square(said[i] - aim[i]).mean(), frames + 1
    assert got == pytest.approx((total / count, frames // count), rel=2e-4)
    assert {k: v.item() for k, v in model.counts(batch).items()} == {"flow": frames // count}
    assert (len(teacher.calls), len(average.calls), len(student.calls)) == (count * parts, 0, 1)


def test_a_poor_prompt_is_heard_and_what_was_spoken_is_where_a_step_begins():
    model, student, *_ = distilled("aligned", 2)
    batch = golden_batch()
    batch.heard = batch.mel[:, :3] + 1
    given = model.given_by(student, batch)  # type: ignore[arg-type]
    for b, n in enumerate(LENS):
        spoken = normal(batch, b)
        heard = np.concatenate([spoken[:3] + 1 / STD, spoken[3:]])
        speaker = means_of_patches(heard, 2)[: -(-PROMPTS[b] // 2)].mean(0)
        assert np.allclose(student.speaker[b], speaker, atol=1e-5)  # type: ignore[index]
        heard[slice(*SPANS[b])] = 0
        assert np.allclose(given.cond_BNM[b, :n], heard, atol=1e-5)
        assert np.allclose(given.mel_BNM[b, :n], spoken, atol=1e-5)


def test_the_last_draw_is_the_last_step_with_the_strongest_guidance():
    """Also where float32 rounds a time up to 1."""
    model = distilled("none", 1)[0]
    number, share = model.split_time(torch.tensor([0.0, 0.375, 1.0]), 4)
    assert number.tolist() == [0, 1, 3] and share.tolist() == [0, 0.5, 1]


def test_a_coarser_grid_is_learnt_of_an_average_that_is_there():
    model = distilled("none", 1)[0]
    model.guide = ()
    assert model.guided and model.eval()(golden_batch())  # a check is by the teacher
    model.train().count = 4
    with pytest.raises(InputError, match="call guide_with"):
        model(golden_batch())


def test_what_does_not_learn():
    model = distilled("aligned", 2)[0]
    held = {id(p) for p in model.parameters()}
    taught = [*model.voices[0].network.parameters()]
    assert not held & {id(p) for p in taught} and not any(p.requires_grad for p in taught)
    reads, aligns = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    student = Student("none", 1, 1.0)
    student.text_embed, student.aligner = reads, aligns  # type: ignore[assignment]
    about = ModelConfig(temperature=0.4, cfg_strength=7, cfg_rescale=0.7)
    settings = DistillConfig(voice="anna")
    made = Distilled(student, about, Teacher("none", 1, 1.0), settings, None)  # type: ignore
    assert not any(p.requires_grad for part in (reads, aligns) for p in part.parameters())
    assert student.table.requires_grad
    assert made.model_config()["sampling"] == {
        "steps": 4, "step_counts": [4, 8], "temperature": 0.4, "cfg_strength": 5.0,
        "cfg_rescale": 0.7, "default_voice": "anna",
    }  # fmt: skip


def grids(numbers: range, total: int, **fields: Any) -> Counter:
    model = distilled("none", 1, **fields)[0]
    found: Counter = Counter()
    for number in numbers:
        model.begin_step(number, total)
        found[model.count] += 1
    return found


def test_which_grid_is_learnt_when():
    assert grids(range(1000), 2000, steps=4) == {8: 1000}
    second = grids(range(1000, 5000), 2000, steps=4, keep=0.25)
    assert second.keys() == {4, 8} and second[8] == pytest.approx(1000, abs=110)
    assert grids(range(999, 1000), 2000, steps=4, keep=0) == {8: 1}
    assert grids(range(1000, 1001), 2000, steps=4, keep=0) == {4: 1}
    one = grids(range(6000), 6000, method="shortcut", steps=4, keep=0.4)
    assert one.keys() == {1, 2, 4, 8} and one[8] == pytest.approx(2400, abs=150)
    assert [one[k] for k in (1, 2, 4)] == pytest.approx([1200] * 3, abs=130)
    model = distilled("none", 1, method="shortcut")[0]
    drawn = []
    for step in (7, 8, 7):
        model.begin_step(step, 100)
        drawn.append(model.count)
    assert drawn[0] == drawn[2]
    assert grids(range(0, 100, 9), 100, method="trajectory", steps=3) == {3: 12}
    both = grids(range(1000), 1000, method="trajectory", steps=2, substeps=4, also=[4])
    assert both.keys() == {2, 4} and both[2] == pytest.approx(500, abs=50)
    many = DistillConfig(method="trajectory", steps=4, also=[8, 1])
    assert many.counts == (1, 4, 8)  # the last is what held-out losses are of
    for wrong in (
        {"steps": 3, "method": "shortcut"},
        {"method": "x"},
        {"max_strength": 0},
        {"substeps": 0},
        {"steps": 2, "also": [4], "substeps": 4},
        {"steps": 2, "also": [3], "substeps": 4, "method": "trajectory"},
        {"steps": 2, "also": [0], "method": "trajectory"},
    ):
        with pytest.raises(InputError):
            DistillConfig(**wrong)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 2)
    return f"{folder}/*.tar"


def settings(folder: Path, teacher: Path, shards: str, steps: int, **distill) -> dict:
    return {
        "model": "distilled", "teacher": str(teacher), "run_dir": str(folder),
        "total_steps": steps, "warmup_steps": 1, "save_step": 3, "mixed_precision": "no",
        "data": {"shards": [shards], "batch_size": 2, "max_duration": 300},
        "distill": {"steps": 2, "keep": 0.5, **distill}, "train": TINY, "loss": {"pair": 0.0},
    }  # fmt: skip


def test_a_student_begins_as_its_teacher(tiny_aligned, tmp_path):
    values = settings(tmp_path / "run", tiny_aligned, "none.tar", 1)
    model = build_student(run_config(values))
    teacher = load_objective(tiny_aligned).transformer
    x, cond = torch.randn(2, 3, 22, 100)
    text, lens = torch.randn(3, 11, 32), torch.tensor([22, 9, 14])
    time = torch.rand(3, 3)
    with torch.no_grad():
        wanted = teacher.eval()(x, cond, text, time[:, 0], lens)
        got = model.transformer.eval()(x, cond, text, time, lens)
    assert torch.allclose(got, wanted, atol=1e-6)
    assert [*dict(model.named_parameters())] and not any("teacher" in n for n in model.state_dict())


def test_a_run_goes_on_exactly_and_becomes_a_release(tiny_aligned, tmp_path, shards, capsys):
    whole, parts = (
        settings(tmp_path / n, tiny_aligned, shards, 4) | {"save_step": 9}
        for n in ("whole", "parts")
    )
    train(run_config(whole))
    train(run_config(parts), minutes=1e-9)
    stopped = int((tmp_path / "parts" / "latest").read_text()[5:])
    assert stopped < 4
    train(run_config(parts))
    first, second = (read_tensors(tmp_path / n / "step_00000004") for n in ("whole", "parts"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[n], second[n]) for n in first)

    folder = tmp_path / "student"
    convert(tmp_path / "whole", folder, like=tiny_aligned, dtype="float32")
    config, old = load_config(folder), load_config(tiny_aligned)
    assert (config.steps, config.step_counts) == (2, (2, 4))
    assert (config.temperature, config.cfg_strength) == (old.temperature, old.cfg_strength)
    assert config.dit.max_strength == 5 and config.vocoder == old.vocoder
    evaluations = []
    speaker = Speaker(load_engine(folder, "torch", "cpu"), "tone", seed=1)
    run = speaker.engine.run
    speaker.engine.run = lambda *a: evaluations.append(len(a[0])) or run(*a)  # type: ignore[method-assign]
    assert np.isfinite(speaker.speak("Hello there.").wave).all()
    assert evaluations == [1, 1]
    with pytest.raises(InputError, match=r"steps is 7, .* was taught 2, 4 steps"):
        Speaker(speaker.engine, "tone", options=SampleOptions(steps=7)).speak("Hello there.")
    with pytest.raises(InputError, match="is distilled"):
        load_objective(folder)
    with pytest.raises(InputError, match="is distilled"):
        build_student(run_config(settings(tmp_path / "x", folder, shards, 1)))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"steps": 3}, "taught 2, 4 steps"),
        ({"method": "midpoint"}, "method is midpoint"),
        ({"cfg_strength": 5.5}, "strengths of 0 to 5"),
        ({"sway_sampling_coef": None}, "sway_sampling_coef is None"),
        ({"guidance": "cfg-zero"}, "guidance is cfg-zero"),
        ({"cfg_until": 0.5}, "cfg_until is 0.5"),
    ],
)
def test_what_a_student_was_not_taught_is_refused(make_release, engine_of, options, told):
    engine = engine_of(student_release(make_release), "torch")
    x = np.zeros((1, 20, 100), np.float32)
    with pytest.raises(InputError, match=told):
        engine.sample(x, x, np.array([[1, 2]]), SampleOptions(**options))


def student_release(make_release) -> Path:
    folder = make_release(text_upsampling="aligned", patch_size=2, max_strength=5.0)
    config = dataclasses.replace(load_config(folder), steps=2, step_counts=(2, 4))
    config.save(folder / "config.json")
    return folder


def test_sampling_is_one_evaluation_a_step_on_the_grid_that_was_taught(
    make_release, engine_of, backend
):
    engine = engine_of(student_release(make_release), backend)
    text, cond = np.array([[1, 5, 7, 2], [3, 4, 9, -1]]), np.zeros((2, 26, 100), np.float32)
    cond[:, :6] = np.random.default_rng(0).standard_normal((6, 100)) - 4
    x0 = np.stack([noise(26, 100, s) for s in (1, 2)])
    for steps, strength in ((2, 1.5), (4, 0.0)):
        got = engine.sample(
            x0, cond, text, SampleOptions(steps=steps, cfg_strength=strength),
            prompt_frames_B=np.array([6, 6]),
        )  # fmt: skip
        x = x0
        times = grid(steps)
        for begin, end in pairwise(times):
            inputs = np.tile(np.array([begin, strength / 5, 1 / steps], np.float32), (2, 1))
            x = x + (end - begin) * engine.velocity(x, cond, text, inputs)
        np.testing.assert_allclose(got, x * 2.5 - 4, atol=2e-3)
    with pytest.raises(InputError, match="time, guidance and step"):
        engine.velocity(x, cond, text, np.zeros(2))


def test_all_backends_speak_alike(make_release, engine_of, backend):
    folder = student_release(make_release)
    text, x0 = np.array([[1, 5, 7, 2]]), noise(26, 100, 1)[None]
    options = SampleOptions(cfg_strength=2.5)
    cond = np.zeros_like(x0)
    got, wanted = (engine_of(folder, b).sample(x0, cond, text, options) for b in (backend, "torch"))
    np.testing.assert_allclose(got, wanted, atol=1e-3)


@pytest.mark.parametrize(
    "method", ["trajectory", pytest.param("two-stage", marks=pytest.mark.slow)]
)
def test_it_learns_to_go_where_its_teacher_goes(tiny_aligned, tmp_path, shards, method):
    """On the finest grid: a student's loss falls well below that of the teacher as a student."""
    fields = {"second_stage": 1.0, "method": method, "substeps": 1}
    values = settings(tmp_path / "run", tiny_aligned, shards, 35, **fields)
    values = {**values, "save_step": 40, "optimizer": {"lr": 3e-3}}
    train(run_config(values))
    rows = (tmp_path / "run" / "log.csv").read_text().splitlines()
    column = rows[0].split(",").index("flow")
    flows = [float(row.split(",")[column]) for row in rows[1:]]
    assert np.mean(flows[-10:]) < 0.5 * np.mean(flows[:5])


def test_settings_that_do_not_go_together_are_told(tiny_aligned, tmp_path):
    with pytest.raises(InputError, match="a distilled model is made of a teacher"):
        run_config({"model": "distilled"})
    with pytest.raises(InputError, match="no other is"):
        run_config({"model": "speech", "teacher": "x"})
    recipe = Path(__file__).parents[2] / "nanospeech" / "configs" / "distill.yaml"
    config = read_run(recipe, [f"teacher={tiny_aligned}"])
    network = load_engine(tiny_aligned, "torch").load(MODEL)
    weights = sum(p.numel() for p in network.parameters())
    assert f"not in it: the teacher, {weights:,} weights" in dry_run(config)
    saved = json.loads(json.dumps(config.to_dict()))
    assert "dit" not in saved and saved["distill"]["steps"] == 4
    assert "teacher" not in run_config({"model": "speech"}).to_dict()
