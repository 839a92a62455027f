"""Held-out losses: the average is measured in the model's place, and both are as before."""

from __future__ import annotations

import contextlib
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.batches import BatchPlan
from nanospeech_torch.train.loop import held_out
from nanospeech_torch.train.loop.config import LogConfig
from nanospeech_torch.train.optim.optimizers import EMA
from tests.training import SHARD, samples, speech_model, trainer, write_shards


class Alive(TorchDispatchMode):
    """Bytes of the memory that is made inside and alive at once, at the most."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        old = {t.untyped_storage()._cdata for t in tree_leaves(args) if torch.is_tensor(t)}
        made = func(*args, **(kwargs or {}))
        for t in tree_leaves(made):
            if torch.is_tensor(t) and (store := t.untyped_storage())._cdata not in old:
                self.now += store.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(t, self.drop, store.nbytes())
        return made

    def drop(self, count: int) -> None:
        self.now -= count


def follower(dtype: torch.dtype = torch.float32) -> SimpleNamespace:
    """A model of 16 matrices of 64 kB and its average, which is elsewhere."""
    model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(16)]).to(dtype)
    ema = EMA(model, decay=0.5)
    for mean in ema.mean:
        mean.add_(0.123456789)
    return SimpleNamespace(ema=ema, model=model, core=SimpleNamespace(guided=False))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_and_average_are_swapped_and_restored(dtype):
    run = follower(dtype)
    before = [p.clone() for p in run.ema.live], [m.clone() for m in run.ema.mean]
    places = [p.data_ptr() for p in run.ema.live]
    with pytest.raises(KeyboardInterrupt), held_out.averaged(run.model, run.core, run.ema):
        assert all(torch.equal(p, m.to(dtype)) for p, m in zip(run.ema.live, before[1]))
        assert places == [p.data_ptr() for p in run.ema.live] and not run.model.training
        raise KeyboardInterrupt
    for now, then in zip((run.ema.live, run.ema.mean), before):
        assert all(torch.equal(a, b) for a, b in zip(now, then))
    assert run.model.training


@torch.no_grad()
def test_no_weights_are_held_twice(monkeypatch):
    monkeypatch.setattr(held_out, "PIECE", 1024)
    run = follower()
    with Alive() as alive, held_out.averaged(run.model, run.core, run.ema):
        pass
    assert 0 < alive.most <= 2 * 4 * 1024  # of a megabyte


def test_a_guided_models_teacher_is_still_the_average(tmp_path):
    model = speech_model()
    model.loss = LossConfig(pair=0.0, model_guidance=0.5)
    run = trainer(tmp_path, model)
    run.train(samples(), 2, 2, max_duration=200)
    teacher, name = model.guide[0], "proj_out.weight"
    want = dict(teacher.named_parameters())[name].clone()
    with torch.no_grad(), held_out.averaged(run.model, run.core, run.ema):
        assert torch.equal(dict(model.guide[0].named_parameters())[name], want)
    assert model.guide[0].state_dict()[name].data_ptr() == (
        run.ema.state_dict()[f"transformer.{name}"].data_ptr()
    )


def measured(size: int, world: int = 1, rank: int = 0, **plan) -> held_out.HeldOut:
    """Held-out speech as one of several processes sees it; it notes what it gives to the others."""
    model = speech_model()
    device = SimpleNamespace(device="cpu", autocast=contextlib.nullcontext)
    parallel: Any = SimpleNamespace(
        model=model, data_world=world, data_rank=rank, accelerator=device, given=[]
    )
    parallel.reduce = lambda sums: parallel.given.append(sums) or sums
    options = BatchPlan(size, 200 * size, 200, buckets=1, **plan)
    return held_out.HeldOut([str(SHARD)], options, model, EMA(model, decay=0.5), parallel)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_processes_share_the_batches_and_wait_for_each_other(world):
    """Parts add up to the whole, and the model runs as often on each, however many there are."""
    alone = measured(1)
    del alone.batches[3:]
    whole = alone.losses()
    parts, runs = [], []
    for rank in range(world):
        held, calls = measured(1, world, rank), []
        del held.batches[3:]
        held.objective.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        held.losses()
        parts += held.parallel.given
        runs.append(len(calls))
    assert runs == [-(-3 // world)] * world
    (want,) = alone.parallel.given
    torch.testing.assert_close(torch.stack(parts).sum(0), want)
    assert list(whole.values()) == pytest.approx((want[:, 0] / want[:, 1]).tolist())


def test_a_loss_of_no_elements_is_nothing():
    held = measured(4)
    held.objective.forward = lambda batch: {"empty": (torch.tensor(0.0), torch.tensor(0))}
    assert held.losses() == {"held_out_empty": 0.0}


def test_nothing_is_kept_for_a_backward_pass():
    held = measured(4)
    grad_enabled = []
    held.objective.register_forward_pre_hook(
        lambda *_: grad_enabled.append(torch.is_grad_enabled())
    )
    held.losses()
    assert grad_enabled and not any(grad_enabled)


def test_models_of_several_phases_have_no_held_out_losses():
    held = measured(4)
    held.objective.phases = lambda: {"vocoder": [], "judges": []}
    with pytest.raises(InputError, match="for speech and duration models"):
        held_out.HeldOut(
            [str(SHARD)], BatchPlan(4, 800, 200), held.objective, held.ema, held.parallel
        )


def test_shards_without_a_clip_that_can_be_used_are_refused():
    held = measured(4)
    with pytest.raises(DataError, match=f"log.held_out={SHARD}: nothing in .* 4 too long"):
        held_out.HeldOut(
            [str(SHARD)], BatchPlan(4, 800, 20), held.objective, held.ema, held.parallel
        )


@pytest.mark.parametrize("most", [1, 130, 250, 60_000, "two", "two and one frame"])
def test_held_out_speech_is_read_once_and_no_longer_than_needed(monkeypatch, most):
    """The first batches that have so many frames, or all clips once, also those of a small rest."""
    for size, carry in ((1, False), (3, True)):
        if isinstance(most, str):
            first = measured(size, carry=carry).batches[:2]
            most = sum(b.mel.shape[0] * b.mel.shape[1] for b in first) + most.endswith("frame")
        monkeypatch.setattr(held_out, "MOST_FRAMES", most)
        batches = measured(size, carry=carry).batches
        frames = [batch.mel.shape[0] * batch.mel.shape[1] for batch in batches]
        assert sum(frames[:-1]) < most
        assert sum(frames) >= most or sum(len(b.lens) for b in batches) == len(samples())


def test_shards_that_are_trained_on_and_held_out_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shards = write_shards(tmp_path, 3)
    held = ["shard-00000[12].tar"]
    assert held_out.shared_shards(held, str(tmp_path / "*.tar")) == shards[1:]
    assert held_out.shared_shards(held, [shards[0]]) == []
    assert held_out.shared_shards([], shards) == held_out.shared_shards(held, samples()) == []
    assert held_out.shared_shards(held, iter(shards)) == []  # of a stream nothing is taken
    run = trainer(tmp_path / "run", log=LogConfig(held_out=held))
    run.train(shards, 1, 2, max_duration=200)
    said = f"{shards[1]} is in log.held_out and is trained on as well (2 are)"
    assert said in capsys.readouterr().out
    held_out.tell_shared(held[:1], shards[:2], print)
    assert (
        f"{shards[1]} is in log.held_out and is trained on as well, so" in capsys.readouterr().out
    )
