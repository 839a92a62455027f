"""nanospeech_torch.parallel: every split trains like one process, and what cannot be is refused."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nanospeech.errors import InputError
from nanospeech_torch.flow import LossConfig
from nanospeech_torch.parallel import Parallel, ParallelConfig, check, replicas

from . import parallel_worker as worker

SPLITS = {
    "ddp": {"replicate": 2},
    "fsdp": {"shard": 2},
    "hsdp": {"replicate": 2, "shard": 2},
    "tp": {"tensor": 2},
    "fsdp+tp": {"shard": 2, "tensor": 2},
    "ddp+tp": {"replicate": 2, "tensor": 2},
}
# name -> (split, what else a job may say); each is compared with one process told the same
MORE = {
    "duration": ("tp", {"model": "duration", "steps": 5}),
    "accumulate-ddp": ("ddp", {"accumulate": 2, "steps": 5}),
    "accumulate-fsdp": ("fsdp", {"accumulate": 2, "steps": 5}),
    "checkpoint-fsdp": ("fsdp", {"speed": {"checkpoint_interval": 1}, "steps": 5}),
    "ops-tp": ("tp", {"speed": {"checkpoint_ops": True}, "steps": 5}),
    "compile-ddp": ("ddp", {"speed": {"compile": "default"}, "steps": 3}),
    "compile-fsdp": (
        "fsdp",
        {"speed": {"compile": "default", "checkpoint_interval": 2}, "steps": 3},
    ),
    "compile-tp": ("tp", {"speed": {"compile": "default"}, "steps": 3}),
    "empty-fsdp": ("fsdp", {"device": "meta", "steps": 5}),
    "empty-tp": ("tp", {"device": "meta", "steps": 5}),
    "empty-duration": ("fsdp", {"device": "meta", "steps": 5, "model": "duration"}),
    "empty-fsdp+tp": ("fsdp+tp", {"device": "meta", "steps": 5}),
    "muon-fsdp": ("fsdp", {"optimizer": "muon", "steps": 5}),
    "muon-tp": ("tp", {"optimizer": "muon", "steps": 5}),
}


def world_of(split: dict) -> int:
    return split.get("replicate", 1) * split.get("shard", 1) * split.get("tensor", 1)


def jobs(world: int) -> dict[str, dict]:
    """Everything that `world` processes are to do."""
    four = ("ddp", "fsdp", "hsdp", "tp")
    found = {f"{s}-published": {"split": SPLITS[s], "model": "published"} for s in four}
    for name, split in SPLITS.items():
        steps = 20 if name == "fsdp+tp" else 4
        found[f"{name}-aligned"] = {"split": split, "model": "aligned", "steps": steps}
    found |= {n: {"model": "aligned", **more, "split": SPLITS[s]} for n, (s, more) in MORE.items()}
    found["seeds"] = {"split": SPLITS["fsdp"], "model": "published", "other_seeds": True}
    found["held"] = {"split": SPLITS["fsdp"], "model": "published"}
    return {name: job for name, job in found.items() if world_of(job["split"]) == world}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Folder with the results of all jobs of so many processes."""
    done = {}

    def run(world: int):
        if world not in done:
            done[world] = tmp_path_factory.mktemp(f"world{world}")
            worker.launch(done[world], world, jobs(world))
        return done[world]

    return run


@pytest.fixture(scope="module")
def accelerator():
    from accelerate import Accelerator

    torch.set_num_threads(1)
    return Accelerator(cpu=True)


@pytest.fixture(scope="module")
def alone(accelerator):
    """Losses, norms and final weights of one process."""
    done = {}

    def run(job: dict):
        job = {k: v for k, v in job.items() if k not in ("split", "other_seeds", "device")}
        if repr(job) not in done:
            done[repr(job)] = worker.train(accelerator, {**job, "split": {}})
        return done[repr(job)]

    return run


@pytest.mark.parametrize("name", [n for w in (2, 4) for n in jobs(w) if n != "held"])
def test_every_split_trains_as_one_process_does(together, alone, name):
    """Losses and gradient norms of every step, and the weights at the end."""
    job = next(jobs(w)[name] for w in (2, 4) if name in jobs(w))
    losses, weights = alone(job)
    got = load_file(together(world_of(job["split"])) / f"{name}.safetensors")
    muon = "muon" in name  # whose iteration rounds to bfloat16
    torch.testing.assert_close(got.pop("losses"), losses, rtol=1e-3 if muon else 1e-4, atol=0)
    assert got.keys() == weights.keys()
    first = worker.objective(job["model"]).state_dict()
    for key, value in weights.items():
        moved = (value - first[key]).norm()
        assert (got[key] - value).norm() <= (0.2 if muon else 1e-2) * moved + 1e-6, key
        torch.testing.assert_close(got[key], value, rtol=0, atol=1e-3 if muon else 1e-4, msg=key)


def test_shards_hold_half_of_the_weights_each(together):
    held = list(map(int, (together(2) / "held-1").read_text().split()))
    whole = sum(p.nbytes for p in worker.objective("published").parameters())
    assert sum(held) == whole and held[0] == pytest.approx(whole / 2, rel=0.02)


DEEPSPEED = SimpleNamespace(value="DEEPSPEED")  # as accelerate names it, where it is installed


def machine(**facts) -> Any:
    """What a launcher tells of itself."""
    usual = {"mixed_precision": "no", "distributed_type": None, "parallelism_config": None}
    return SimpleNamespace(**{**usual, **facts})


@pytest.mark.parametrize(
    ("config", "world", "said"),
    [
        ({"shard": 4}, 6, "does not divide the 6 processes"),
        ({"replicate": 2, "shard": 2}, 8, "= 4, but 8 processes were started; start 4 or set"),
        ({"tensor": 2}, 1, "does not divide the 1 processes"),
    ],
)
def test_a_split_must_fit_the_processes(config, world, said):
    with pytest.raises(InputError, match=said):
        ParallelConfig(**config).replicas(world)


def test_what_is_left_becomes_replicas():
    assert ParallelConfig(shard=2, tensor=2).replicas(12) == 3
    with pytest.raises(InputError, match=r"parallel.shard is 0, should be at least 1"):
        ParallelConfig(shard=0)


def changed(**attributes):
    model = worker.objective("published")
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


class Adapter(torch.nn.Linear):
    """As peft puts in the place of a linear layer."""


def adapted():
    model = worker.objective("published")
    model.transformer.transformer_blocks[0].attn.to_q = Adapter(32, 64)
    return model


@pytest.mark.parametrize(
    ("split", "facts", "model", "said"),
    [
        ({"tensor": 3}, {}, changed, "does not divide the model's 4 heads; it may be 2, 4"),
        ({"shard": 2}, {}, lambda: torch.nn.Linear(1, 1), "Linear has none"),
        ({"tensor": 2}, {}, lambda: torch.nn.Linear(1, 1), "use parallel.replicate alone"),
        ({"shard": 2}, {}, lambda: changed(phases=lambda: {"a": [], "b": []}), "more than one"),
        ({"shard": 2}, {"mixed_precision": "fp16"}, changed, "use bf16 or no"),
        ({"shard": 2}, {}, lambda: changed(loss=LossConfig(model_guidance=0.5)), "turn guidance"),
        ({"tensor": 2}, {}, adapted, "attn.to_q has been replaced"),
        ({}, {"distributed_type": DEEPSPEED}, changed, "configured for DEEPSPEED itself"),
        ({}, {"parallelism_config": object()}, changed, "configured for parallelism itself"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason(split, facts, model, said):
    with pytest.raises(InputError, match=said):
        check(machine(**facts), ParallelConfig(**split), model())


def test_refused_before_the_model_is_touched(accelerator):
    with pytest.raises(InputError, match="1 processes were started"):
        Parallel(accelerator, ParallelConfig(replicate=2), worker.objective("published", 0, "meta"))


def test_optimizers_must_be_new_and_of_this_model(accelerator):
    model = worker.objective("published")
    parallel = Parallel(accelerator, ParallelConfig(), model)
    with pytest.raises(InputError, match="does not have"):
        parallel.wrap(model, worker.optimizers(worker.objective("published"), "adamw"))
    (optimizer,) = worker.optimizers(model, "adamw")
    torch.stack([p.sum() for p in model.parameters()]).sum().backward()
    optimizer.step()
    with pytest.raises(InputError, match="before its optimizers have state"):
        parallel.wrap(model, [optimizer])


def test_alone_nothing_is_exchanged(accelerator):
    model = worker.objective("published")
    parallel = Parallel(accelerator, ParallelConfig(), model)
    assert parallel.wrap(model) is model and parallel.mesh is None
    assert (parallel.gather("x"), parallel.broadcast("y")) == (["x"], "y")
    assert (parallel.data_rank, parallel.data_world, parallel.tp_rank) == (0, 1, 0)
    for p in model.parameters():
        p.grad = torch.full_like(p, 2)
    numbers = sum(p.numel() for p in model.parameters())
    norm = parallel.grad_norm(model.parameters())
    assert norm.item() == pytest.approx(2 * numbers**0.5)
    parallel.clip_(model.parameters(), norm, 1.0)
    assert parallel.grad_norm(model.parameters()).item() == pytest.approx(1, rel=1e-4)
    parallel.clip_(model.parameters(), parallel.grad_norm(model.parameters()), 5.0)
    assert parallel.grad_norm(model.parameters()).item() == pytest.approx(1, rel=1e-4)


def wrap_and_drop(rank: int, folder: str) -> None:
    """Each group is destroyed before the replicas that used it, just after they did."""
    torch.set_num_threads(1)
    for i in range(100):
        where = f"file://{folder}/{i}"
        torch.distributed.init_process_group("gloo", where, rank=rank, world_size=2)
        model = replicas(torch.nn.Linear(64, 64), torch.device("cpu"))
        model(torch.ones(2, 64)).sum().backward()
        torch.distributed.destroy_process_group()


def test_replicas_outlive_their_group(tmp_path):
    """Without what `replicas` holds this stood still for ever, in less than 100 rounds."""
    spawned = torch.multiprocessing.spawn(wrap_and_drop, (str(tmp_path),), 2, join=False)
    try:
        deadline = time.monotonic() + 240
        while not (ended := spawned.join(5)) and time.monotonic() < deadline:
            pass
        assert ended, "two processes did not end"
    finally:
        for process in spawned.processes:
            process.kill()
