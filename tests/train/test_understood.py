"""A model that learns to be understood: losses by hand, what learns, a run, its release, errors."""

from __future__ import annotations

import copy
import csv
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from convert import convert
from nanospeech.config import DiTConfig, ModelConfig, PostfilterConfig
from nanospeech.engine.sampling import rescaled_velocity, time_grid
from nanospeech.errors import CheckpointError, InputError
from nanospeech.load import load_engine
from nanospeech.release.folder import load_config
from nanospeech.speech.speaker import Speaker
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.config import read_run, run_config
from nanospeech_torch.train.data.batch import EarConfig
from nanospeech_torch.train.data.speech import BatchPlan, StreamOptions
from nanospeech_torch.train.initial import load_objective
from nanospeech_torch.train.objectives.ear import Ear
from nanospeech_torch.train.objectives.understood import Understood, UnderstoodConfig
from nanospeech_torch.train.run import dry_run, train
from nanospeech_torch.train.students import build_understood
from tests.train.test_distill import Teacher
from tests.train.test_golden_batches import (
    BANDS,
    LENS,
    SPANS,
    STATES,
    WIDTH,
    answer,
    golden_batch,
    normal,
    numbers,
    of_frames,
    text_states,
)
from tests.train.test_listener import (
    AUDIO,
    SMALL,
    SPREAD,
    beside,
    learn_words,
    listener,
    listening,
    settings,
    with_few_words,
    words_by_hand,
)
from tests.training import write_shards

STRENGTH = 1.5


def understood(
    network: Any, before: Any, patch: int = 2, grid: float = 0.0, **about: Any
) -> Understood:
    known = {"temperature": SPREAD, "cfg_strength": STRENGTH, "cfg_rescale": 0.6, **about}
    config = ModelConfig(audio=AUDIO, **known)
    ears = [listener(patch_size=patch, dim=dim) for dim in (16, 24)]
    return Understood(network, config, before, ears, UnderstoodConfig("a run", grid=grid), None)


def estimates_by_hand(batch, b: int, patch: int, gain: float, share: float):
    """The mel at the end of an item's way: guided, and without prompt and text."""
    n, (first, last), t = LENS[b], SPANS[b], batch.time[b].item()
    mel = normal(batch, b)
    state = (1 - t) * SPREAD * batch.noise[b, :n].numpy() + t * mel
    fresh = np.zeros((1, n, 1))
    fresh[0, first:last] = 1
    cond = np.where(fresh[0] > 0, 0, mel)
    text = of_frames(text_states(batch, b, "aligned", patch), patch, n)
    with_text = answer(state, cond, text, t, gain)
    free = answer(state, 0 * cond, np.repeat(STATES[:1], n, 0), t, gain)
    found = with_text + STRENGTH * (with_text - free)
    found = rescaled_velocity(found[None], with_text[None], state[None], t, fresh, share)[0]
    return state + (1 - t) * found, state + (1 - t) * free


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("filters", [None, PostfilterConfig(smooth=0.2, sharpen=0.5)])
def test_its_losses_are_of_both_estimates_of_the_end(share, filters):
    batch = golden_batch()
    network, before = Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7)
    model = understood(network, before, cfg_rescale=share, postfilter=filters)
    got = numbers(model(batch))
    given, time = model.given_by(network, batch), batch.time[:, None, None]  # type: ignore
    state = (1 - time) * given.noise_BNM + time * given.mel_BNM
    both = torch.stack(model.estimates(network, given, state)).detach()  # type: ignore
    change, frames, ends = 0.0, 0, []
    for b, n in enumerate(LENS):
        first, last = SPANS[b]
        new, free = estimates_by_hand(batch, b, 2, 0.9, share)
        wanted = np.stack([new, free])[:, first:last]
        assert np.allclose(both[:, b, first:last].numpy(), wanted, rtol=1e-4, atol=1e-4)
        old, old_free = estimates_by_hand(batch, b, 2, 0.7, share)
        for got_one, wanted in ((new, old), (free, old_free)):
            change += np.square(got_one - wanted)[first:last].mean(-1).sum()
        frames += last - first
        ends.append(new)
        assert n >= last
    words, patches = words_by_hand(model.ear.listeners[0], batch, ends, filters)
    assert got["flow"] == (pytest.approx(change, rel=1e-4), frames)
    assert got["words"] == (pytest.approx(words, rel=1e-4), patches)
    assert {k: v.item() for k, v in model.counts(batch).items()} == {
        "flow": frames, "words": patches
    }  # fmt: skip
    assert model.weights() == {"flow": 1.0, "words": 0.05} and not model.guided


def test_it_hears_what_disturbs_in_training_by_the_listener_of_the_step():
    batch = golden_batch()
    loud = replace(batch, disturbance=beside(batch))
    model = understood(Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7), cfg_rescale=0.0)
    ends = [estimates_by_hand(batch, b, 2, 0.9, 0.0)[0] for b in range(len(LENS))]
    turns = []
    for step in range(8):
        model.begin_step(step, 8.0)
        turns.append(model.ear.turn)
        ear = model.ear.listeners[turns[-1]]
        want, patches = words_by_hand(ear, batch, ends, None, loud.disturbance)
        assert numbers(model(loud))["words"] == (pytest.approx(want, rel=1e-4), patches)
    assert {*turns} == {0, 1}
    plain, patches = words_by_hand(model.ear.listeners[0], batch, ends, None)
    assert numbers(model.eval()(loud))["words"] == (pytest.approx(plain, rel=1e-4), patches)
    model.tokenizer = print
    assert model.batches([], BatchPlan(2, 200, 100), StreamOptions()).ear == model.ear.config


@pytest.mark.parametrize("steps", [1, 4, 7])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_a_share_of_the_times_is_the_solvers_each_as_its_step_is_long(share, steps):
    model = understood(
        Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7), 2, share, steps=steps
    )
    uniform = (torch.arange(10_000) + 0.5) / 10_000
    got = model.times(uniform).numpy()
    grid = time_grid(steps)
    at = [np.isclose(got, stop, atol=1e-6) & (uniform.numpy() < share) for stop in grid[:-1]]
    for here, step in zip(at, np.diff(grid)):
        assert here.mean() == pytest.approx(share * step, abs=2e-4)
    others = np.sort(got[~np.any(at, 0)])
    assert len(others) == round(10_000 * (1 - share))
    assert np.allclose(others, (np.arange(len(others)) + 0.5) / max(len(others), 1), atol=1e-4)
    top = model.times(torch.ones(1)).item()  # a draw that float32 rounds up to 1
    assert top == pytest.approx(grid[-2] if share == 1 else 1, abs=1e-6)
    off = understood(Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7))
    assert off.times(uniform) is uniform


def test_estimates_are_at_these_times():
    batch = golden_batch()
    model = understood(Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7), 2, 1.0, steps=4)
    moved = replace(batch, time=model.times(batch.time))
    assert not torch.equal(moved.time, batch.time)
    model.understood = replace(model.understood, grid=0.0)
    want = numbers(model(moved))
    model.understood = replace(model.understood, grid=1.0)
    assert numbers(model(batch)) == want


def test_what_has_no_text_has_no_words_to_hear():
    without = with_few_words()
    model = understood(Teacher("aligned", 2, 0.9), Teacher("aligned", 2, 0.7))
    said, unsaid = (model.counts(b)["words"] for b in (golden_batch(), without))
    assert numbers(model(without))["words"][1] == unsaid < said


def real_network(**fields: Any) -> DiT:
    torch.manual_seed(3)
    sizes = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16, "text_dim": 16, "conv_layers": 1}
    kind = {"text_upsampling": "aligned", "patch_size": 2, "dropout": 0.0, "aligner_dim": 16}
    config = {**sizes, **kind, "n_mels": BANDS, "text_num_embeds": 6, **fields}
    network = DiT(DiTConfig(**config))  # type: ignore[arg-type]
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return network


def test_at_the_start_nothing_has_changed_and_words_move_all_but_what_reads():
    before = real_network()
    network = copy.deepcopy(before)
    model = understood(network, before).train()
    sums = model(golden_batch())
    assert numbers(sums)["flow"][0] < 1e-8
    assert model.teachers() == (before,)
    total, count = sums["words"]
    (total / count).backward()
    moved = {n for n, p in network.named_parameters() if p.grad is not None and p.grad.any()}
    reading = {n for n, _ in network.named_parameters() if n.startswith(("text_embed", "aligner"))}
    assert reading and not moved & reading
    assert any("attn" in n for n in moved) and any(n.startswith("proj_out") for n in moved)
    assert not any(p.requires_grad for p in before.parameters())
    assert all(p.grad is None for p in model.ear.listeners[0].parameters())
    assert all(name.startswith("transformer.") for name in model.state_dict())
    assert model.model_config()["dit"] == asdict(network.config)


def test_a_model_of_dropout_learns_without_it_as_the_one_before_runs():
    before = real_network(dropout=0.5)
    model = understood(copy.deepcopy(before), before).train()
    for part in (model, torch.nn.ModuleList([model]).train()):  # in what wraps it too
        assert part.training and not any(m.training for m in model.transformer.modules())
    batch = golden_batch()
    first, again, plain = (numbers(m(batch)) for m in (model, model, model.eval()))
    assert first == again == plain and first["flow"][0] < 1e-8


class Learner(Teacher):
    """It begins as its teacher, and learns what to say of each token."""

    def __init__(self):
        super().__init__("aligned", 2, 0.7)
        torch.manual_seed(1)
        last = torch.nn.Linear(16, BANDS)
        self.own = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.Tanh(), last)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)

    def forward(self, x, cond, text, time, lens):
        with torch.no_grad():
            velocity = super().forward(x, cond, text, time, lens)
        return velocity + self.own(text).repeat_interleave(2, 1)[:, : x.shape[1]]


@pytest.fixture(scope="module")
def taught_ear() -> Ear:
    model = listening(2, noise=0.0)
    learn_words(model, model.parameters(), 40, 0.01)
    return Ear([model.listener], None)


def learnt(ear: Ear, weights: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Mean losses of the first step and after some."""
    network, batch = Learner(), replace(golden_batch(), time=torch.full((len(LENS),), 0.2))
    model, means = understood(network, Teacher("aligned", 2, 0.7)), []
    model.ear = ear
    optimizer = torch.optim.AdamW(network.own.parameters(), lr=0.02)
    for _ in range(30):
        losses = {name: total / count for name, (total, count) in model(batch).items()}
        optimizer.zero_grad()
        sum(weights[name] * loss for name, loss in losses.items()).backward()  # type: ignore
        optimizer.step()
        means.append({name: loss.item() for name, loss in losses.items()})
    return means[0], means[-1]


def test_it_learns_to_be_understood_and_stays_near_what_it_was(taught_ear):
    first, alone = learnt(taught_ear, {"flow": 0.0, "words": 1.0})
    assert first["flow"] < 1e-8 and alone["words"] < 0.8 * first["words"]
    first, both = learnt(taught_ear, {"flow": 1.0, "words": 0.05})
    assert both["words"] < first["words"] - 1e-3
    assert 0 < both["flow"] < 0.1 * alone["flow"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 2)
    return f"{folder}/*.tar"


@pytest.fixture(scope="module")
def heard(tmp_path_factory, tiny_aligned, shards) -> str:
    """A run of a listener, of two steps."""
    folder = tmp_path_factory.mktemp("heard") / "run"
    train(run_config(settings("listener", folder, tiny_aligned, shards, 2, **SMALL)))
    return str(folder)


@pytest.fixture(scope="module")
def wider(tmp_path_factory, tiny_aligned, shards) -> str:
    """A run of another listener, of one step."""
    folder = tmp_path_factory.mktemp("wider") / "run"
    sizes = {"listener": {"dim": 24, "dilations": [1]}}
    train(run_config(settings("listener", folder, tiny_aligned, shards, 1, **sizes)))
    return str(folder)


def test_a_run_goes_on_exactly_and_becomes_a_release(heard, wider, tiny_aligned, tmp_path, shards):
    more = {"understood": {"listener": [heard, wider]}, "loss": {"pair": 1.0, "min_span": 0.5}}
    whole, parts = (
        settings("understood", tmp_path / name, tiny_aligned, shards, 3, **more)
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
    assert float(row["flow"]) > 0 and float(row["words"]) > 0

    given = {"like": tiny_aligned, "dtype": "float32"}
    convert(tmp_path / "whole", tmp_path / "own", **given)
    config, old = load_config(tmp_path / "own"), load_config(tiny_aligned)
    assert replace(config, name=old.name, default_voice=old.default_voice) == old
    old, own = (
        load_objective(f).transformer.state_dict() for f in (tiny_aligned, tmp_path / "own")
    )
    for share in (0.0, 0.7, 1.0):
        folder = tmp_path / f"share{share}"
        convert(tmp_path / "whole", folder, average=tiny_aligned, share=share, **given)
        got = load_objective(folder).transformer.state_dict()
        for name, tensor in got.items():
            want = share * own[name] + (1 - share) * old[name]
            assert torch.equal(tensor, want)
            if name.startswith(("text_embed", "aligner")):
                assert torch.allclose(tensor, old[name], rtol=1e-6)
    assert any(not torch.equal(own[n], old[n]) for n in own)
    wave = Speaker(load_engine(folder, "torch", "cpu"), "tone", seed=1).speak("Hello there.").wave
    assert np.isfinite(wave).all()


def test_what_does_not_go_together_is_told(heard, tiny_aligned, make_release, tmp_path, shards):
    def build(teacher: Path, **more: Any) -> None:
        more = {"understood": {"listener": heard}, **more}
        build_understood(run_config(settings("understood", tmp_path, teacher, shards, 1, **more)))

    with pytest.raises(InputError, match=r"understood\.listener is not set"):
        build(tiny_aligned, understood={})
    with pytest.raises(InputError, match="model that learns to be understood"):
        run_config({"model": "understood", "understood": {"listener": heard}})
    with pytest.raises(InputError, match=r"dit\.text_upsampling=average"):
        build(make_release(text_upsampling="average", patch_size=2))
    with pytest.raises(InputError, match="is distilled itself"):
        build(make_release(text_upsampling="aligned", patch_size=2, max_strength=5.0))
    with pytest.raises(InputError, match=r"patch_size 2, .* 1; train a listener with teacher="):
        build(make_release(text_upsampling="aligned", patch_size=1))
    with pytest.raises(InputError, match="whole on every process"):
        build(tiny_aligned, parallel={"shard": 2})
    for wrong, told in (
        ({"words": -1}, r"understood\.words is -1"),
        ({"grid": 1.1}, r"understood\.grid is 1\.1; choose 0 to 1"),
        ({"grid": -0.1}, r"understood\.grid is -0\.1; choose 0 to 1"),
        ({"listener": ["a", None]}, r"understood\.listener is \['a', None\]; name run folders"),
    ):
        with pytest.raises(InputError, match=told):
            UnderstoodConfig(**wrong)  # type: ignore[arg-type]
    assert not UnderstoodConfig(words=0, grid=0).words
    with pytest.raises(CheckpointError, match="holds no step_"):
        build(tiny_aligned, understood={"listener": [heard, str(tiny_aligned)]})
    recipe = Path(__file__).parents[2] / "nanospeech" / "configs" / "understood.yaml"
    config = read_run(recipe, [f"teacher={tiny_aligned}", f"understood.listener={heard}"])
    assert config.understood.words == 0.05 and config.loss.pair == 1
    assert config.ear == EarConfig() == EarConfig(noise=0.3, level=0.2, colour=0.1)
    several = read_run(recipe, [f"teacher={tiny_aligned}", "understood.listener=[a, b]"])
    assert several.to_dict()["understood"]["listener"] == ["a", "b"]
    told = dry_run(config)
    assert "not in it: the teacher, " in told and "the understood model's further ones" in told
    saved = config.to_dict()
    assert saved["understood"]["listener"] == heard and saved["teacher"]
    assert saved["ear"]["noise"] == 0.3
    assert not {"dit", "distill", "listening"} & saved.keys()
