"""train.scale.parallel: every split trains like one process, and what cannot be is refused."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanospeech.errors import InputError
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.loop.staging import part_of
from nanospeech_torch.train.scale.parallel import Parallel, ParallelConfig, check, replicas
from tests import parallel_worker as worker
from tests.forked import Forked, finish

SPLITS = {
    "ddp": {"replicate": 2},
    "fsdp": {"shard": 2},
    "hsdp": {"replicate": 2, "shard": 2},
    "tp": {"tensor": 2},
    "fsdp+tp": {"shard": 2, "tensor": 2},
    "ddp+tp": {"replicate": 2, "tensor": 2},
}
# name -> (split, what else a job may say); each is compared with one process of the same settings
MORE = {
    "duration": ("tp", {"model": "duration"}),
    "accumulate-ddp": ("ddp", {"accumulate": 2}),
    "accumulate-fsdp": ("fsdp", {"accumulate": 2}),
    "accumulate-seeds": ("fsdp", {"model": "published", "accumulate": 2, "other_seeds": True}),
    "accumulate-hsdp": ("hsdp", {"model": "published", "accumulate": 2, "clips": 8}),
    "dropped-tp": ("tp", {"model": "dropped"}),
    "checkpoint-fsdp": ("fsdp", {"speed": {"checkpoint_interval": 1}}),
    "ops-tp": ("tp", {"speed": {"checkpoint_ops": True}}),
    # what is measured in between changes no step
    "measured-fsdp": ("fsdp", {"measured": 2}),
    "measured-checkpoint-fsdp": ("fsdp", {"measured": 2, "speed": {"checkpoint_interval": 1}}),
    "measured-tp": ("tp", {"measured": 2}),
    "compile-ddp": ("ddp", {"model": "shallow", "speed": {"compile": "default"}, "steps": 2}),
    "compile-fsdp": (
        "fsdp",
        {"speed": {"compile": "default", "checkpoint_interval": 2}, "steps": 2},
    ),
    "compile-shallow": (
        "fsdp",
        {
            "model": "shallow",
            "speed": {"compile": "default", "checkpoint_interval": 1},
            "steps": 2,
        },
    ),
    "compile-tp": ("tp", {"model": "shallow", "speed": {"compile": "default"}, "steps": 2}),
    "empty-tp": ("tp", {"device": "meta"}),
    "empty-dropped-tp": ("tp", {"device": "meta", "model": "dropped"}),
    "empty-duration": ("fsdp", {"device": "meta", "model": "duration"}),
    "empty-fsdp+tp": ("fsdp+tp", {"device": "meta"}),
    # an EchoDiT: its first 20 losses
    **{f"echo-{split}": (split, {"model": "echo", "steps": 20}) for split in SPLITS},
    "echo-few": ("fsdp", {"model": "echo"}),
    "echo-window": ("tp", {"model": "window"}),
    "echo-empty": ("tp", {"model": "echo", "device": "meta"}),
    "echo-empty-fsdp+tp": ("fsdp+tp", {"model": "echo", "device": "meta"}),
    "echo-checkpoint": ("fsdp", {"model": "echo", "speed": {"checkpoint_interval": 2}}),
    "echo-compile": ("ddp", {"model": "echo", "speed": {"compile": "default"}, "steps": 2}),
    "echo-bf16": ("tp", {"model": "echo", "precision": "bf16"}),
    # one step is spoiled by a clip of one process: all skip it, and only it
    "bf16-ddp": ("ddp", {"precision": "bf16", "spoiled": 1}),
    "bf16-fsdp": ("fsdp", {"precision": "bf16", "spoiled": 1}),
    "bf16-tp": ("tp", {"precision": "bf16", "spoiled": 1}),
    "bf16-hsdp": ("hsdp", {"precision": "bf16", "spoiled": 1}),
    "spoiled-tp": ("tp", {"spoiled": 1, "optimizer": "muon"}),
    "muon-fsdp": ("fsdp", {"optimizer": "muon"}),
}

# fuller forms of others: run with -m slow
SLOW = {"accumulate-ddp", "ops-tp", "compile-ddp", "compile-tp", "empty-duration", "empty-fsdp+tp"}
SLOW |= {"echo-ddp", "echo-hsdp", "echo-ddp+tp", "echo-compile", "echo-bf16", "echo-checkpoint"}
SLOW |= {"bf16-ddp", "bf16-hsdp", "spoiled-tp", "ddp+tp-aligned"}
SLOW |= {"compile-fsdp", "compile-shallow", "bf16-tp", "fsdp-published", "tp-published"}
SLOW |= {"echo-fsdp", "echo-tp", "echo-fsdp+tp", "echo-empty-fsdp+tp", "echo-window"}
SLOW |= {"ddp-published", "measured-tp", "accumulate-hsdp", "echo-empty"}
# two by two they are others; a split of an aligned model is the whole of others, or half of one
SLOW |= {"measured-fsdp", "checkpoint-fsdp", "empty-tp", "dropped-tp", "accumulate-fsdp", "seeds"}
SLOW |= {"fsdp-aligned", "tp-aligned"}
STAGED = (*(f"{split}-aligned" for split in SPLITS), "measured-checkpoint-fsdp", "empty-dropped-tp")


def world_of(split: dict) -> int:
    return split.get("replicate", 1) * split.get("shard", 1) * split.get("tensor", 1)


def jobs(world: int, slow: bool) -> dict[str, dict]:
    """What `world` processes are to do: what is slow, or all else."""
    two = ("ddp", "fsdp", "tp")
    found = {f"{s}-published": {"split": SPLITS[s], "model": "published"} for s in two}
    for name, split in SPLITS.items():
        found[f"{name}-aligned"] = {"split": split, "model": "aligned"}
    found |= {n: {"model": "aligned", **more, "split": SPLITS[s]} for n, (s, more) in MORE.items()}
    found["seeds"] = {"split": SPLITS["fsdp"], "model": "published", "other_seeds": True}
    found["held"] = {"split": SPLITS["fsdp"], "model": "published"}
    return {
        name: job
        for name, job in found.items()
        if world_of(job["split"]) == world and (name in SLOW) == slow
    }


BY_NAME = {n: job for w in (2, 4) for slow in (False, True) for n, job in jobs(w, slow).items()}


def marked(names: Iterable[str]) -> list:
    return [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in names]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Folder with the results of all jobs of so many processes."""
    done = {}

    def run(name: str):
        key = world_of(BY_NAME[name]["split"]), name in SLOW
        if key not in done:
            done[key] = tmp_path_factory.mktemp(f"world{key[0]}")
            worker.launch(done[key], key[0], jobs(*key))
        return done[key]

    return run


@pytest.fixture(scope="module")
def accelerator():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    torch.set_num_threads(1)
    AcceleratorState._reset_state()
    return Accelerator(cpu=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run folder of one process with the same settings."""
    done = {}

    def run(job: dict):
        job = {k: v for k, v in job.items() if k not in ("split", "other_seeds", "device")}
        if repr(job) not in done:
            torch.set_num_threads(1)
            done[repr(job)] = tmp_path_factory.mktemp("alone")
            worker.train(done[repr(job)], {**job, "split": {}})
        return done[repr(job)]

    yield run
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()


def rows(run: Path) -> dict[str, list[float]]:
    """The columns of log.csv that tell what was learned."""
    with (run / "log.csv").open(newline="") as f:
        lines = list(csv.DictReader(f))
    names = ("flow", "prior", "duration", "grad_norm", "skipped_steps", "held_out_flow")
    return {n: [float(line[n]) for line in lines if line[n]] for n in names if n in lines[0]}


def checkpoint(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(run / (run / "latest").read_text().strip())


@pytest.mark.parametrize("name", marked(n for n in BY_NAME if n != "held"))
def test_every_split_trains_as_one_process_does(together, alone, name):
    """The trainer's losses and norms of every step; weights, average and moments at the end."""
    job = BY_NAME[name]
    one, many = alone(job), together(name) / name
    want, got = rows(one), rows(many)
    assert want.keys() == got.keys()
    # Muon's iteration rounds to bfloat16; so does bf16's arithmetic, in another order
    rough = "muon" in repr(job) or "precision" in job
    for column, values in want.items():
        close = pytest.approx(values, rel=3e-2 if rough else 1e-4, abs=1e-4, nan_ok=True)
        assert got[column] == close, column
    norms = want["grad_norm"]
    if job["model"] != "echo":  # whose gradients are small at first, as its last layer is zero
        assert all(norm > worker.CLIPPED for norm in norms if norm == norm)  # all are clipped
    spoiled = [step for step, norm in enumerate(norms) if norm != norm]
    assert spoiled == ([job["spoiled"]] if "spoiled" in job else [])
    assert want["skipped_steps"][-1] == len(spoiled)
    compare(checkpoint(many), checkpoint(one), worker.objective(job["model"]).state_dict(), rough)


def compare(got: dict, want: dict, first: dict, rough: bool) -> None:
    """Two checkpoints, with how far the weights have come as the measure."""
    assert got.keys() == want.keys()
    for key, value in want.items():
        kind, _, name = key.partition(".")
        if kind in ("model", "ema"):
            moved = (value - first[name]).norm()
            assert (got[key] - value).norm() <= (0.2 if rough else 1e-2) * moved + 1e-6, key
            atol = 1e-3 if rough else 1e-4
            torch.testing.assert_close(got[key], value, rtol=0, atol=atol, msg=key)
        elif key.endswith("step") or kind == "guard":
            torch.testing.assert_close(got[key], value, rtol=3e-2, atol=1e-4, msg=key)
        else:
            away = (got[key] - value).norm()
            assert away <= (0.2 if rough else 1e-2) * value.norm() + 1e-6, key


@pytest.mark.parametrize("name", marked(STAGED))
def test_what_several_processes_hold_is_staged_by_one(together, name):
    """Of weights, average and moments all processes together copy one set to host memory."""
    world = world_of(BY_NAME[name]["split"])
    folder = together(name)
    staged = [int((folder / f"staged-{name}-{rank}").read_text()) for rank in range(world)]
    whole = sum(value.nbytes for value in checkpoint(folder / name).values())
    assert sum(staged) == whole
    assert max(staged) < 1.1 * whole / world


def test_shards_hold_half_of_the_weights_each(together):
    held = list(map(int, (together("held") / "held-1").read_text().split()))
    whole = sum(p.nbytes for p in worker.objective("published").parameters())
    assert sum(held) == whole and held[0] == pytest.approx(whole / 2, rel=0.02)


def test_shards_hold_half_of_the_gradients_each_between_micro_batches(together):
    held = (together("held") / "held-1").read_text().split()
    assert held == [(together("held") / f"graded-{rank}").read_text() for rank in range(2)]


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
    finish([Forked(wrap_and_drop, rank, str(tmp_path), env={}) for rank in range(2)])


@pytest.mark.parametrize(
    ("ranks", "world", "found"),
    [([0, 1], 4, (0, 2)), ([1, 3], 4, (1, 2)), ([2], 4, (2, 4)), ([0, 1, 2], 4, (0, 0))],
)
def test_parts_of_the_processes_are_counted(ranks, world, found):
    assert part_of(ranks, world) == found
