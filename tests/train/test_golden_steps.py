"""Golden steps: what optimisers, schedules, the average and the guards do to a number, by hand."""

from __future__ import annotations

import inspect
import math
from dataclasses import FrozenInstanceError, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.optim.guards import Guard, GuardConfig, clip_factor, guarded_step
from nanospeech_torch.train.optim.mup import base_shapes
from nanospeech_torch.train.optim.optimizers import (
    EMA,
    OptimizerConfig,
    build_optimizers,
    fuse,
    lr_factor,
    steps_in_all,
    undecayed,
)
from tests.train.test_optimizers import tiny

wsd = partial(lr_factor, schedule="wsd", decay_fraction=0.2)


def test_defaults_are_those_of_pytorchs_optimizers():
    config = OptimizerConfig()
    adamw, muon = (inspect.signature(o).parameters for o in (torch.optim.AdamW, torch.optim.Muon))
    for name in ("betas", "eps", "weight_decay"):
        assert getattr(config, name) == adamw[name].default
    assert config.muon_momentum == muon["momentum"].default
    assert config.name == "adamw" and config.muon_lr is None and config.mup_base_dim is None


def test_settings_of_steps_do_not_change():
    for config, name in ((OptimizerConfig(), "lr"), (GuardConfig(), "skip_factor")):
        with pytest.raises(FrozenInstanceError):
            setattr(config, name, 1.0)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"betas": [0.0, 0.5]}, {"betas": [-0.1, 0.5]}),
        ({"betas": (0.0, 0)}, {"betas": [1, 0.5]}),
        ({"lr": 1e-9}, {"lr": -1.0}),
        ({"name": "muon", "muon_lr": 0.5}, {"name": "muon", "muon_lr": 0.0}),
        ({"name": "muon", "muon_lr": 1e-9}, {"name": "muon", "muon_lr": -0.5}),
        ({"weight_decay": 0.0}, {"weight_decay": -0.5}),
    ],
)
def test_optimizer_settings_end_where_they_make_no_sense(good, bad):
    OptimizerConfig(**good)
    with pytest.raises(InputError):
        OptimizerConfig(**bad)
    betas = OptimizerConfig(betas=[0, 0.5]).betas
    assert betas == (0.0, 0.5) and all(isinstance(b, float) for b in betas)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"skip_factor": 0.0}, {"skip_factor": 1.0}),
        ({"skip_factor": 1.5}, {"skip_factor": 0.5}),
        ({"skip_factor": 2}, {"skip_factor": -2.0}),
        ({"skip_factor": 3}, {"skip_factor": -1.0}),
        ({"skip_warmup": 1}, {"skip_warmup": 0}),
        ({"skip_horizon": 1}, {"skip_horizon": 0}),
        ({"max_bad_steps": 1}, {"max_bad_steps": 0}),
    ],
)
def test_guard_settings_end_where_they_make_no_sense(good, bad):
    GuardConfig(**good)
    with pytest.raises(InputError):
        GuardConfig(**bad)


def test_rates_rise_for_the_warm_up_and_then_follow_their_schedule():
    """Four steps of warm-up, ten in all: fifths, the peak, and from there on."""
    rise = [0.2, 0.4, 0.6, 0.8]
    falls = {
        "linear": [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0, 0],
        "cosine": [0.5 + 0.5 * math.cos(math.pi * k / 6) for k in (*range(7), 6)],
        "constant": [1] * 8,
    }
    for schedule, fall in falls.items():
        found = [lr_factor(step, 4, 10, schedule, 0.5) for step in range(12)]
        assert found == pytest.approx([*rise, *fall], abs=1e-12), schedule
    assert [wsd(step, 4, 10) for step in range(12)] == pytest.approx(
        [*rise, 1, 1, 1, 1, 1, 0.5, 0, 0], abs=1e-12
    )
    assert [lr_factor(0, 0, 10, s, 0.2) for s in (*falls, "wsd")] == [1] * 4


def test_a_run_that_is_shorter_than_its_warm_up():
    assert [wsd(step, 8, 5) for step in range(6)] == pytest.approx(
        [1 / 9, 2 / 9, 3 / 9, 4 / 9, 5 / 9, 0]
    )
    assert [lr_factor(step, 8, 5, "linear", 0.2) for step in range(5)] == pytest.approx(
        [k / 9 for k in range(1, 6)]
    )
    # without room to fall, a step beyond the warm-up is the end
    assert [lr_factor(step, 3, 3, "linear", 0.2) for step in (2, 3, 4)] == [0.75, 1.0, 0.0]


def test_the_pace_of_a_timed_run_tells_its_steps():
    assert steps_in_all(50, 0.25, 1000) == 200
    assert steps_in_all(50, 0.01, 1000) == 1000  # never more than total_steps
    assert steps_in_all(50, 1.5, 1000) == 50  # the time is up
    assert steps_in_all(1, 0.5, 1000) == 2
    assert steps_in_all(0, 0.25, 1000) == steps_in_all(50, 0.0, 1000) == 1000
    assert isinstance(steps_in_all(0, 0.0, 7), float)


class Parts(nn.Module):
    """One of each kind of parameter."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(3, 4)
        self.linear = nn.Linear(4, 2)
        self.one = nn.Linear(4, 1)
        self.gain = nn.Parameter(torch.ones(1, 1, 4))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_embeddings_and_what_is_no_matrix_are_not_decayed():
    kept = {"embedding.weight", "linear.bias", "one.weight", "one.bias", "gain", "frozen.bias"}
    assert undecayed(Parts()) == kept


@pytest.mark.parametrize("eps", [1e-8, 0.3])
def test_adamw_is_that_of_the_paper(eps):
    """Loshchilov and Hutter (arXiv 1711.05101), algorithm 2, with the decay scaled by the rate."""
    torch.manual_seed(0)
    model = Parts()
    config = OptimizerConfig(lr=0.1, betas=[0.8, 0.9], eps=eps, weight_decay=0.5)
    (adamw,) = build_optimizers(model, config)
    names = {id(p): n for n, p in model.named_parameters()}
    assert "frozen.weight" not in {names[id(p)] for g in adamw.param_groups for p in g["params"]}
    rng, kept = np.random.default_rng(0), undecayed(model)
    live = {n: p for n, p in model.named_parameters() if p.requires_grad}
    want = {n: p.detach().numpy().astype(np.float64) for n, p in live.items()}
    m, v = ({n: np.zeros_like(w) for n, w in want.items()} for _ in range(2))
    for step in range(1, 4):
        for n, p in live.items():
            g = rng.standard_normal(want[n].shape)
            p.grad = torch.from_numpy(g).float()
            m[n] = 0.8 * m[n] + 0.2 * g
            v[n] = 0.9 * v[n] + 0.1 * g * g
            size = np.sqrt(v[n] / (1 - 0.9**step)) + eps
            decay = 0.0 if n in kept else 0.5
            want[n] = want[n] * (1 - 0.1 * decay) - 0.1 * m[n] / (1 - 0.8**step) / size
        adamw.step()
    for n, p in live.items():
        assert np.allclose(p.detach().numpy(), want[n], atol=1e-5), n


def groups_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict]:
    names = {id(p): n for n, p in model.named_parameters()}
    return {names[id(p)]: g for g in optimizer.param_groups for p in g["params"]}


@pytest.mark.parametrize("own_rate", [None, 0.02])
@pytest.mark.parametrize("has_base", [False, True])
def test_rates_of_a_model_twice_as_wide_as_its_base(own_rate, has_base):
    """Adam's fall with the width, Muon's with its root; rate x decay stays."""
    model = tiny()
    config = OptimizerConfig(
        "muon", lr=0.01, weight_decay=0.1, muon_lr=own_rate, muon_momentum=0.7, mup_base_dim=32
    )
    base = base_shapes(model, 32) if has_base else None
    if has_base:
        config = replace(config, mup_base_dim=None)
    muon, adamw = build_optimizers(model, config, base=base)
    block = "transformer.transformer_blocks.0"
    wide, peak = groups_by_name(model, muon), own_rate or 0.01
    assert wide[f"{block}.attn.to_q.weight"]["lr"] == pytest.approx(peak * 0.5**0.5)
    assert all(g["lr"] * g["weight_decay"] == pytest.approx(0.1 * peak) for g in wide.values())
    assert all(g["momentum"] == 0.7 for g in wide.values())
    rest = groups_by_name(model, adamw)
    out, bias = rest["transformer.proj_out.weight"], rest[f"{block}.attn.to_q.bias"]
    assert out["lr"] == pytest.approx(0.005) and bias["lr"] == 0.01
    assert out["weight_decay"] == pytest.approx(0.2) and bias["weight_decay"] == 0
    plain = build_optimizers(model, replace(config, mup_base_dim=None))
    for optimizer, lr in zip(plain, (peak, 0.01)):
        assert {g["lr"] for g in optimizer.param_groups} == {lr}
        decays = {g["weight_decay"] for g in optimizer.param_groups}
        assert decays == ({0.1} if lr == peak and optimizer is plain[0] else {0.1, 0.0})


def test_the_average_follows_faster_at_first():
    """m <- d m + (1 - d) w, d = min(decay, (1 + step) / (10 + step))."""
    for decay in (0.9, 0.5, 0.2):
        weight, mean = nn.Linear(1, 1, bias=False), 2.0
        nn.init.constant_(weight.weight, mean)
        ema = EMA(weight, decay=decay)
        for step, value in enumerate((1.0, -3.0, 5.0), 1):
            nn.init.constant_(weight.weight, value)
            ema.update(step)
            d = min(decay, (1 + step) / (10 + step))
            mean = d * mean + (1 - d) * value
            assert ema.state_dict()["weight"].item() == pytest.approx(mean, rel=1e-5)
    late = EMA(weight, 4)
    nn.init.zeros_(weight.weight)
    late.update(10**6)
    assert late.state_dict()["weight"].item() == pytest.approx(0.75 * 5)
    nothing = EMA(weight, 1)  # keeps nothing of what was
    nn.init.constant_(weight.weight, 7.0)
    nothing.update(10**6)
    assert nothing.state_dict()["weight"].item() == 7
    for wrong in ({}, {"horizon": 5, "decay": 0.9}, {"horizon": 0.5}, {"horizon": 0}):
        with pytest.raises(InputError):
            EMA(weight, **wrong)


def test_the_averages_are_no_part_of_a_graph_and_no_views_of_weights():
    weight = nn.Linear(2, 1)
    ema = EMA(weight, 10)
    kept = {n: m.clone() for n, m in ema.state_dict().items()}
    nn.init.zeros_(weight.weight)
    assert all(torch.equal(m, kept[n]) and not m.requires_grad for n, m in ema.state_dict().items())
    with torch.enable_grad():
        ema.update(1)
        ema.load_state_dict({n: p * 2 for n, p in weight.named_parameters()})
    assert not any(m.requires_grad for m in ema.state_dict().values())
    assert torch.equal(ema.state_dict()["bias"], weight.bias * 2)


def test_a_guards_mean_is_that_of_the_good_norms():
    """The plain mean of the first ones, then with 1 / horizon; a spike counts as the limit."""
    guard = Guard(GuardConfig(skip_factor=4, skip_warmup=2, skip_horizon=3))
    steps = [
        # norm, good?, the mean after it
        (2.0, True, 2.0),
        (6.0, True, 4.0),  # the second of two of warm-up
        (16.0, True, 8.0),  # just the limit
        (33.0, False, 8 + (32 - 8) / 3),  # a little more
        (math.nan, False, 16.0),
        (math.inf, False, 16.0),
        (1.0, True, 16 + (1 - 16) / 3),
        (2.0, True, 11 + (2 - 11) / 3),
    ]
    for norm, good, mean in steps:
        assert bool(guard.check(torch.tensor(norm, requires_grad=True))) == good, norm
        assert guard.state_dict()["mean"].item() == pytest.approx(mean), norm
    assert guard.report() == {"skipped": 3, "spikes": 1, "streak": 0}
    assert guard.state_dict().keys() == {"mean", "good", "bad", "spikes", "streak"}
    assert guard.state_dict()["good"] == 5


def test_warm_up_of_a_guard_ends_after_its_steps():
    for warmup in (1, 3):
        guard = Guard(GuardConfig(skip_factor=2, skip_warmup=warmup))
        for _ in range(warmup - 1):
            assert guard.check(torch.tensor(1.0))
        assert guard.check(torch.tensor(50.0))  # the last that is not compared
        assert not guard.check(torch.tensor(1000.0))


def test_a_guard_that_is_off_refuses_what_is_not_finite_alone():
    guard = Guard(GuardConfig(skip_factor=0, skip_warmup=1, max_bad_steps=2))
    norms = (1.0, 1e30, math.nan, 1.0, -math.inf)
    assert [bool(guard.check(torch.tensor([n]))) for n in norms] == [True, True, False, True, False]
    assert guard.report() == {"skipped": 2, "spikes": 0, "streak": 1}
    guard.check(torch.tensor(math.nan))
    with pytest.raises(DataError, match="2 steps in a row"):
        guard.report()


def test_clipping_scales_to_the_norm_and_never_up():
    found = [clip_factor(torch.tensor(n), 2.0).item() for n in (8.0, 2.0, 0.5, 0.0)]
    assert found == pytest.approx([0.25, 1.0, 1.0, 1.0], rel=1e-5)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_guarded_step_leaves_nothing_behind(name):
    """A bad step does nothing, and the next one, also without a guard, is as if it had not been."""
    weights = []
    for bad_first in (True, False):
        weight = nn.Parameter(torch.tensor([1.0, -2.0]))
        kind = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        if name == "adamw":
            kind = torch.optim.AdamW([weight], lr=0.1, fused=True)
        if bad_first:
            weight.grad = torch.tensor([5.0, 5.0])
            guarded_step([kind], torch.tensor(False), torch.tensor(0.5))
            assert weight.tolist() == [1.0, -2.0]
        weight.grad = torch.tensor([1.0, 3.0])
        kind.step()
        weight.grad = torch.tensor([-1.0, 1.0])
        guarded_step([kind], torch.tensor(True))
        weights.append(weight.detach())
    assert torch.equal(*weights) and weights[0][0] != 1.0


def test_a_guarded_step_scales_gradients_first():
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    unused = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight, unused], lr=0.1)
    weight.grad = torch.tensor([4.0, 8.0])
    guarded_step([optimizer], torch.tensor(True), torch.tensor(0.25))
    assert weight.tolist() == pytest.approx([0.9, -2.2]) and unused.item() == 1


def test_new_adam_optimizers_are_fused_unless_set_otherwise():
    """A run's own optimisers, not those that went on with a state, and no others."""
    weight = nn.Parameter(torch.ones(2))

    def fused(kind: type, used: bool = False, **options) -> bool:
        optimizer = kind([weight], lr=0.1, **options)
        if used:
            weight.grad = torch.ones(2)
            optimizer.step()
        fuse(optimizer)
        (group,) = optimizer.param_groups
        return bool(group.get("fused"))

    for kind in (torch.optim.Adam, torch.optim.AdamW):
        assert fused(kind) and not fused(kind, used=True)
        assert not fused(kind, fused=False)
        assert not fused(kind, foreach=True) and not fused(kind, amsgrad=True)
    assert not fused(torch.optim.SGD) and not fused(torch.optim.NAdam)
