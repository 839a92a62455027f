"""Optimizer state: it is restored exactly, or refused at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nanospeech.errors import InputError
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.train.loop.optimizer_state import OptimizerState
from tests.training import CPU, NanospeechTrainer, samples, speech_model


class Counting(torch.optim.Optimizer):
    """Steps that shrink with an integer count, lean on lists, and on a group's running number."""

    def __init__(self, params, lr: float = 1e-2):
        super().__init__(params, {"lr": lr, "k": 0, "weight": torch.zeros(()), "betas": (0.9, 0.5)})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            group["weight"] += 1 / group["k"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(p), "nothing": None}
                    state["past"] = {
                        "axes": [torch.zeros_like(p), torch.zeros_like(p)],
                        2: (1, "a"),
                    }
                state["step"] += 1
                state["mean"].lerp_(p.grad, 0.5)
                state["past"]["axes"][state["step"] % 2].add_(p.grad)
                state["past"][2] = (state["step"], "a")
                pull = state["mean"] + 0.1 * state["past"]["axes"][0]
                scale = group["lr"] / (state["step"] * group["k"] * group["weight"].item())
                p.sub_(pull / (pull.abs().mean() + 1e-8), alpha=scale)


def train(
    folder, steps: int, optimizer: Callable[..., Any] = Counting, **settings
) -> NanospeechTrainer:
    model = speech_model()
    settings = {"log_every": 1, "ema_decay": 0.9, "buckets": 1, "skip_factor": 0.0, **settings}
    run = NanospeechTrainer(model, optimizer(model.parameters()), 2, CPU, folder, **settings)
    run.train(samples(), steps, 2, max_duration=200, save_step=100)
    return run


def test_counts_lists_and_group_values_go_on_as_if_never_stopped(tmp_path):
    whole = train(tmp_path / "whole", 4)
    train(tmp_path / "parts", 2)
    parts = train(tmp_path / "parts", 4)
    for a, b in zip(whole.core.parameters(), parts.core.parameters()):
        assert torch.equal(a, b)
    for run in (whole, parts):
        (optimizer,) = run.optimizers
        (group,) = optimizer.param_groups
        state = optimizer.state[group["params"][0]]
        assert (group["k"], state["step"], state["past"][2]) == (4, 4, (4, "a"))
        assert group["weight"].item() == pytest.approx(sum(1 / k for k in range(1, 5)))
        assert state["nothing"] is None and len(state["past"]["axes"]) == 2
    one, two = (read_tensors(tmp_path / n / "step_00000004") for n in ("whole", "parts"))
    assert one.keys() == two.keys() and any(n.endswith(".past.axes.1") for n in one)
    assert all(torch.equal(one[n], two[n]) for n in one)


class Shared(torch.optim.Optimizer):
    """Keeps what all parameters share under names of its own, a dictionary and a list."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-2, "scale": 1.0})

    @torch.no_grad()
    def step(self, closure=None):
        params = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        shared = self.state["shared"]
        if not shared:
            shared |= {"step": 0, "mean": torch.zeros(()), 3: "three"}
            self.state["past"] = [0, [torch.zeros(())]]  # type: ignore[assignment]
        shared["step"] += 1
        shared["mean"].lerp_(torch.stack([p.grad.norm() for p in params]).mean(), 0.5)
        self.state["past"][0] += 2
        self.state["past"][1][0].add_(shared["mean"])
        past = self.state["past"][0] + self.state["past"][1][0]
        for group in self.param_groups:
            group["scale"] *= 0.9
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad * group["lr"] * group["scale"] / (shared["step"] + past))


def two_groups(kind, **options):
    """An optimizer of two groups, of different rates."""
    return lambda params: kind(
        [{"params": params[:2], "lr": 0.02}, {"params": params[2:]}], **options
    )


KINDS = {
    "adamw": two_groups(torch.optim.AdamW, lr=1e-2),
    "amsgrad": two_groups(torch.optim.Adam, lr=1e-2, amsgrad=True),
    "momentum": two_groups(torch.optim.SGD, lr=1e-2, momentum=0.9),
    "plain": two_groups(torch.optim.SGD, lr=1e-2),
    "nadam": two_groups(torch.optim.NAdam, lr=1e-2),
    "rprop": two_groups(torch.optim.Rprop, lr=1e-2),
    "counting": two_groups(Counting),
    "shared": Shared,
}


class Driven:
    """A small network, one of whose weights never has a gradient, moved by seeded gradients."""

    def __init__(self, kind: str):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        self.optimizer = KINDS[kind](list(self.model.parameters()))
        self.memory = OptimizerState(2, self.optimizer, self.model)

    def step(self, number: int) -> None:
        g = torch.Generator().manual_seed(number)
        for p in list(self.model.parameters())[:-1]:
            p.grad = torch.randn(p.shape, generator=g)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_state_comes_back_to_the_last_bit(kind):
    """Tensors by name and values as JSON are all that the next steps depend on."""
    run, again = Driven(kind), Driven(kind)
    for number in range(3):
        run.step(number)
    saved = json.loads(json.dumps(run.memory.values()))
    tensors = {name: t.clone() for name, t in run.memory.tensors().items()}
    assert all(name.startswith("optimizer.2.") and ".1.bias" not in name for name in tensors)

    again.model.load_state_dict(run.model.state_dict())
    rates = [group["lr"] for group in again.optimizer.param_groups]
    again.memory.allocate(dict.fromkeys(tensors), saved)
    assert torch.equal(again.weights(), run.weights())  # its step moved nothing
    assert [group["lr"] for group in again.optimizer.param_groups] == rates
    assert all(p.grad is None for p in again.model.parameters())
    found = again.memory.tensors()
    assert found.keys() == tensors.keys()
    for name, tensor in found.items():
        tensor.copy_(tensors[name])
    assert again.memory.restore(saved) == []
    assert json.loads(json.dumps(again.memory.values())) == saved
    for number in range(3, 6):
        run.step(number)
        again.step(number)
        assert torch.equal(again.weights(), run.weights())


def test_groups_restore_counters_and_keep_configured_values(tmp_path):
    def other(params):
        optimizer = Counting(params)
        optimizer.param_groups[0]["betas"] = (0.1, 0.2)
        return optimizer

    train(tmp_path, 2)
    (group,) = train(tmp_path, 3, other).optimizers[0].param_groups
    assert (group["betas"], group["k"]) == ((0.1, 0.2), 3)


def test_a_checkpoint_of_an_older_version_loads_and_says_what_it_lacks(tmp_path, capsys):
    train(tmp_path, 2)
    path = tmp_path / "step_00000002" / "meta.json"
    meta = json.loads(path.read_text())
    del meta["optimizers"]
    path.write_text(json.dumps(meta))
    capsys.readouterr()
    assert train(tmp_path, 3).step == 3
    assert "did not save k, past, step, weight of optimizer 0 (Counting)" in capsys.readouterr().out
    # torch's own lack nothing there
    adam = tmp_path / "adam"
    train(adam, 2, lambda params: torch.optim.AdamW(params, lr=1e-3))
    path = adam / "step_00000002" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "optimizers": None}))
    capsys.readouterr()
    train(adam, 3, lambda params: torch.optim.AdamW(params, lr=1e-3))
    assert "older version" not in capsys.readouterr().out


class Keeping(torch.optim.SGD):
    """Keeps what no checkpoint can hold."""

    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["draws"] = torch.Generator()


class Hiding(torch.optim.SGD):
    """Counts outside of its state."""

    def __init__(self, params):
        super().__init__(params, lr=1e-3)
        self.count = 0

    def step(self, closure=None):
        self.count += 1
        super().step()


class Telling(torch.optim.SGD):
    """Has a state_dict of its own."""

    def state_dict(self):
        return {**super().state_dict(), "count": 3}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Keeping, r"Keeping\) keeps a Generator as .*draws: a checkpoint holds tensors"),
        (Hiding, r"remembers count outside of its state"),
        (Telling, r"remembers count outside of its state"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_a_step(tmp_path, kind, said):
    with pytest.raises(InputError, match=said):
        train(tmp_path, 1, kind)
    assert not list(tmp_path.iterdir())


def test_group_values_that_no_json_holds_are_refused(tmp_path):
    def optimizer(params):
        made = torch.optim.SGD(params, lr=1e-3)
        made.param_groups[0]["table"] = torch.zeros(5000)
        return made

    with pytest.raises(InputError, match=r"keeps a Tensor as groups\.0\.table"):
        train(tmp_path, 1, optimizer)
