"""A model that learns to speak after poor recordings: losses by hand, what learns, runs, errors."""

from __future__ import annotations

import copy
import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from convert import convert
from nanospeech.config import AudioConfig, ModelConfig
from nanospeech.errors import InputError
from nanospeech.load import load_engine
from nanospeech.release.folder import load_config
from nanospeech.speech.speaker import Speaker
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.train.config import read_run, run_config
from nanospeech_torch.train.data import clips
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.speech import BatchPlan
from nanospeech_torch.train.objectives.robust import Robust, RobustConfig
from nanospeech_torch.train.run import dry_run, train
from nanospeech_torch.train.students import build_robust
from tests.train.shared import npy
from tests.train.test_data import features, until
from tests.train.test_distill import Teacher
from tests.train.test_golden_batches import (
    BANDS,
    LENS,
    MEAN,
    SPANS,
    STATES,
    STD,
    answer,
    golden_batch,
    normal,
    numbers,
    of_frames,
    text_states,
)
from tests.train.test_listener import AUDIO, SPREAD, settings
from tests.train.test_stream import write_tar
from tests.train.test_understood import STRENGTH, estimates_by_hand, real_network

SHARE = 0.6  # of the guidance's rescale


def robust(network: Any, before: Any, seed: int = 0, **fields: float) -> Robust:
    known = {"temperature": SPREAD, "cfg_strength": STRENGTH, "cfg_rescale": 0.0}
    config = ModelConfig(audio=AUDIO, **known)  # type: ignore[arg-type]
    return Robust(network, config, before, RobustConfig(**{"grid": 0.0, **fields}), None, seed=seed)


def poorly_heard(batch):
    """The same batch, of whose clips all before the span is heard otherwise."""
    rng, frames = np.random.default_rng(7), max(first for first, _ in SPANS)
    heard = batch.mel[:, :frames].clone()
    for b, (first, _) in enumerate(SPANS):
        change = rng.standard_normal((first, BANDS)).astype(np.float32)
        heard[b, :first] += STD * torch.from_numpy(change)
    return replace(batch, heard=heard)


def poor_estimates(batch, b: int, gain: float):
    """As estimates_by_hand without rescale, after what is heard."""
    n, (first, last), t = LENS[b], SPANS[b], batch.time[b].item()
    state = (1 - t) * SPREAD * batch.noise[b, :n].numpy() + t * normal(batch, b)
    cond = np.zeros((n, BANDS))
    cond[:first] = (batch.heard[b, :first].numpy() - MEAN) / STD
    cond[last:] = normal(batch, b)[last:]
    with_text = answer(state, cond, of_frames(text_states(batch, b, "aligned", 2), 2, n), t, gain)
    free = answer(state, 0 * cond, np.repeat(STATES[:1], n, 0), t, gain)
    guided = with_text + STRENGTH * (with_text - free)
    return state + (1 - t) * guided, state + (1 - t) * free


def test_it_is_to_end_after_a_poor_prompt_where_its_teacher_does_after_the_good_one():
    batch = poorly_heard(golden_batch())
    model = robust(Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7), wordless=0.0)
    change, frames = 0.0, 0
    for b in range(len(LENS)):
        first, last = SPANS[b]
        wanted = estimates_by_hand(batch, b, 2, 0.7, 0.0)
        found = poor_estimates(batch, b, 0.9)
        change += sum(np.square(f - w)[first:last].mean(-1).sum() for f, w in zip(found, wanted))
        frames += last - first
    assert numbers(model(batch)) == {"flow": (pytest.approx(change, rel=1e-4), frames)}
    assert model.counts(batch)["flow"] == frames and model.weights() == {"flow": 1.0}


def test_without_words_the_learner_reads_none_before_what_is_learnt():
    batch, network = golden_batch(), Teacher("aligned", 2, 0.7)
    model = robust(network, Teacher("aligned", 2, 0.7), wordless=1.0)
    given = model.given_by(network, batch)  # type: ignore[arg-type]
    states = []
    for training in (False, True):
        model.train(training).begin_step(0, 1.0)
        poorer = model.poorer(given, batch)
        states.append(model.text_states(network, poorer.batch, *given.placed))  # type: ignore
    whole, partial = (s.detach() for s in states)
    for b, (first, _) in enumerate(SPANS):
        assert np.allclose(partial[b, : first // 2], STATES[0])
        assert torch.equal(partial[b, first // 2 :], whole[b, first // 2 :])
    assert not torch.equal(whole, partial)
    before = real_network()
    model = robust(copy.deepcopy(before), before, wordless=1.0)
    for training in (False, True):
        model.train(training).begin_step(0, 1.0)
        lost = numbers(model(batch))["flow"][0]
        assert lost > 1e-4 if training else lost < 1e-8


def test_steps_without_words_come_as_often_as_asked_for():
    drawn = {}
    for seed in (0, 1):
        model = robust(Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7), seed, wordless=0.3)
        drawn[seed] = []
        for step in range(1000):
            model.begin_step(step, 1.0)
            drawn[seed].append(model.wordless)
        assert 250 < sum(drawn[seed]) < 350
    assert drawn[0] != drawn[1]


def test_after_good_prompts_nothing_is_to_be_learnt_and_after_poor_ones_all_but_reading():
    before = real_network()
    network = copy.deepcopy(before)
    model = robust(network, before, grid=0.6).train()
    assert numbers(model(golden_batch()))["flow"][0] < 1e-8
    total, count = model(poorly_heard(golden_batch()))["flow"]
    assert total > 1e-3
    (total / count).backward()
    moved = {n for n, p in network.named_parameters() if p.grad is not None and p.grad.any()}
    reading = {n for n, _ in network.named_parameters() if n.startswith(("text_embed", "aligner"))}
    assert reading and not moved & reading
    assert any("attn" in n for n in moved) and any(n.startswith("proj_out") for n in moved)
    assert not any(p.requires_grad for p in before.parameters())
    assert model.teachers() == (before,) and not model.guided
    assert all(name.startswith("transformer.") for name in model.state_dict())
    assert model.model_config()["dit"] == asdict(network.config)


def test_it_learns_to_speak_after_poor_prompts_and_stays_near_after_good_ones():
    before = real_network()
    network = copy.deepcopy(before)
    model, good = robust(network, before).train(), golden_batch()
    poor = poorly_heard(good)
    first = numbers(model(poor))["flow"][0]
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
    for _ in range(40):
        losses = [model(batch)["flow"] for batch in (good, poor)]
        optimizer.zero_grad()
        sum(total / count for total, count in losses).backward()  # type: ignore[union-attr]
        optimizer.step()
    last, kept = (numbers(model(batch))["flow"][0] for batch in (poor, good))
    assert last < 0.8 * first and kept < 0.5 * first


def poor_shards(folder: Path, count: int, frames: int = 30) -> list[str]:
    """Clips of 60 frames, near 1, after references near 3 that are heard near 5."""
    rng, files = np.random.default_rng(0), []
    for i in range(count):
        parts = {"npy": (60, 1.0), "ref.npy": (30, 3.0), "heard.npy": (frames, 5.0)}
        for kind, (length, level) in parts.items():
            files.append((f"{i}.{kind}", npy(rng.uniform(level, level + 1, (length, 4)))))
        meta = {"text": f"c{i}", "speaker": "x", "ref_text": "c9"}
        files.append((f"{i}.json", json.dumps(meta).encode()))
    return [str(write_tar(folder / "poor.tar", files))]


def test_what_is_heard_of_a_prompt_comes_with_its_clip(tmp_path):
    paths = poor_shards(tmp_path, 6)
    for loaded in until(features(paths, loss=LossConfig(pair=1.0, spoil=1.0, room=1.0)), 1):
        b = loaded.batch
        assert b.heard.shape[1] == 30 and (b.heard >= 5).all() and b.prompt.eq(30).all()
        assert (b.mel[:, :30] < 4.01).all() and (b.mel[:, :30] >= 3).all()
        assert b.span[:, 30:90].all() and not b.span[:, :30].any()
    alone = until(features(paths, loss=LossConfig(pair=0.0)), 1)
    assert all(x.batch.heard.shape[1] == 0 for x in alone)


@pytest.mark.parametrize("kind", ["warp", "colour"])
def test_what_is_heard_is_warped_and_coloured_as_its_clip(tmp_path, kind):
    """Of bands that rise alike in both: half of the items are changed, and both parts alike."""
    bands, files = np.arange(4.0), []
    for i in range(12):
        for part, (length, level) in {
            "npy": (60, 1),
            "ref.npy": (30, 3),
            "heard.npy": (30, 5),
        }.items():
            files.append((f"{i}.{part}", npy(np.tile(level + bands, (length, 1)))))
        files.append((f"{i}.json", json.dumps({"text": f"c{i}", "ref_text": "c9"}).encode()))
    path = [str(write_tar(tmp_path / "p.tar", files))]
    changed = 0
    for loaded in until(
        features(path, BatchPlan(1, 130, 130), loss=LossConfig(pair=1, **{kind: 0.4})), 1
    ):
        mel, heard = loaded.batch.mel[0, :90].numpy(), loaded.batch.heard[0].numpy()
        np.testing.assert_allclose(heard - 5, mel[60:] - 1, atol=1e-2)
        np.testing.assert_allclose(heard - 5, mel[:30] - 3, atol=1e-2)
        changed += not np.allclose(heard - 5, bands, atol=1e-2)
    assert 0 < changed < 12


def test_a_prompt_heard_at_another_length_is_left_out():
    rows = np.ones((30, 100), np.float16)
    sample = {"__key__": "a", "npy": npy(rows), "ref.npy": npy(rows), "json": {"text": "so"}}
    found = clips.describe({**sample, "heard.npy": npy(rows + 1)}, AudioConfig())
    assert found["reference"]["heard"].tolist() == (rows + 1).tolist()
    assert "heard" not in clips.describe(sample, AudioConfig())["reference"]
    with pytest.raises(clips.Skip, match="heard at another length"):
        clips.describe({**sample, "heard.npy": npy(rows[1:])}, AudioConfig())


@pytest.fixture(scope="module")
def spoken(tmp_path_factory) -> str:
    """Shards of clips of 100 bands with references that are heard poorly."""
    rng, files = np.random.default_rng(0), []
    for i in range(8):
        for part, length in {"npy": 60, "ref.npy": 40, "heard.npy": 40}.items():
            files.append((f"{i}.{part}", npy(rng.uniform(-6, 0, (length, 100)))))
        meta = {"text": "Hello there.", "speaker": "x", "ref_text": "So it is."}
        files.append((f"{i}.json", json.dumps(meta).encode()))
    return str(write_tar(tmp_path_factory.mktemp("spoken") / "s.tar", files))


def test_a_run_goes_on_exactly_and_becomes_a_release(spoken, tiny_aligned, tmp_path):
    more = {"robust": {"wordless": 0.5}, "loss": {"pair": 1.0}}
    whole, parts = (
        settings("robust", tmp_path / name, tiny_aligned, spoken, 3, **more)
        for name in ("whole", "parts")
    )
    train(run_config(whole))
    train(run_config(parts), minutes=1e-9)
    assert int((tmp_path / "parts" / "latest").read_text()[5:]) < 3
    train(run_config(parts))
    first, second = (read_tensors(tmp_path / n / "step_00000003") for n in ("whole", "parts"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[n], second[n]) for n in first)
    [*_, row] = csv.DictReader((tmp_path / "whole" / "log.csv").open())
    assert float(row["flow"]) > 0
    convert(tmp_path / "whole", tmp_path / "own", like=tiny_aligned, dtype="float32")
    config, old = load_config(tmp_path / "own"), load_config(tiny_aligned)
    assert replace(config, name=old.name, default_voice=old.default_voice) == old
    engine = load_engine(tmp_path / "own", "torch", "cpu")
    assert np.isfinite(Speaker(engine, "tone", seed=1).speak("Hello there.").wave).all()


def test_what_does_not_go_together_is_told(tiny_aligned, make_release, tmp_path, spoken):
    def build(teacher: Path, **more: Any) -> None:
        build_robust(run_config(settings("robust", tmp_path, teacher, spoken, 1, **more)))

    with pytest.raises(InputError, match="model that learns to be understood, or robust"):
        run_config({"model": "robust"})
    with pytest.raises(InputError, match="is distilled itself"):
        build(make_release(text_upsampling="aligned", patch_size=2, max_strength=5.0))
    with pytest.raises(InputError, match="robust is whole on every process"):
        build(tiny_aligned, parallel={"shard": 2})
    for name in ("wordless", "grid"):
        for wrong in (-0.1, 1.1):
            with pytest.raises(InputError, match=rf"robust\.{name} is {wrong}; choose 0 to 1"):
                RobustConfig(**{name: wrong})
    assert RobustConfig(wordless=1, grid=0).wordless == 1
    recipe = Path(__file__).parents[2] / "nanospeech" / "configs" / "robust.yaml"
    config = read_run(recipe, [f"teacher={tiny_aligned}"])
    assert config.robust == RobustConfig() == RobustConfig(wordless=0.25, grid=0.6)
    told = dry_run(config)
    assert "not in it: the teacher, " in told and "the robust model's further ones" in told
    saved = config.to_dict()
    assert saved["robust"]["wordless"] == 0.25 and not {"dit", "ear", "understood"} & saved.keys()
