"""Processes that share layers train on the same clips or on none, and wait long for each other."""

from __future__ import annotations

import dataclasses
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.loop.digest import digest
from nanospeech_torch.train.scale.parallel import ParallelConfig
from tests.forked import Forked, finish, ranks
from tests.training import CPU, samples, speech_model, trainer

BROKEN = 3  # the clip that one process cannot read


def patience() -> timedelta:
    """How long this process waits for others."""
    group: Any = torch.distributed.group.WORLD
    return group._get_backend(torch.device("cpu")).options._timeout


def part_of_a_group(folder: str) -> None:
    """One of two processes of a tensor group; the second cannot read a clip at first."""
    torch.set_num_threads(1)
    split, limits = ParallelConfig(tensor=2), {"batch_size": 1, "max_duration": 200}
    run = trainer(Path(folder), parallel=split)
    assert patience() == timedelta(hours=1)
    data = samples()
    if os.environ["RANK"] == "1":
        data[BROKEN]["mp3"] = {"bytes": b"no audio"}
    with pytest.raises(DataError, match=r"processes 0 to 1 .* different batches"):
        run.train(data, 20, **limits)
    assert 0 < run.step < len(data)
    assert run.checkpoints.newest() == Path(folder) / f"step_{run.step:08d}"

    again = trainer(Path(folder), parallel=split)
    again.train(samples(), run.step + 2, **limits)  # from one place, with the clip
    assert again.step == run.step + 2

    for another in (
        lambda: again.train(samples(), again.step + 1, **limits),
        lambda: trainer(Path(folder), parallel=split),
    ):
        with pytest.raises(InputError, match="of these 2 processes has ended"):
            another()


def test_a_group_whose_batches_differ_saves_and_ends_and_goes_on_together(tmp_path):
    finish([Forked(part_of_a_group, str(tmp_path), env=env) for env in ranks(2)])


def test_who_waits_longer_or_shorter_is_asked(tmp_path):
    from accelerate import InitProcessGroupKwargs

    for asked in ([], [InitProcessGroupKwargs(timeout=timedelta(minutes=3))]):
        run = trainer(tmp_path)
        kind = type(run)
        optimizer = torch.optim.SGD(run.core.parameters(), lr=0.1)
        options = CPU | {"kwargs_handlers": asked}
        own = kind(run.core, optimizer, 0, options, tmp_path).accelerator.init_handler
        assert own.timeout == (timedelta(minutes=3) if asked else timedelta(hours=1))


def test_batches_have_one_digest_where_they_are_the_same():
    def first(epoch_seed: int) -> Any:
        plan = BatchPlan(3, 600, 200, buckets=1)
        stream = speech_model().batches(samples(), plan, StreamOptions(seed=epoch_seed))
        return next(iter(stream)).batch

    one, same, other = first(0), first(0), first(1)
    found = digest([one, other])
    assert found == digest([same, other]) and 0 <= found < 2**32
    changed = [
        dataclasses.replace(one, **{name: value[..., :-1]})
        for name, value in vars(one).items()
        if torch.is_tensor(value)
    ]
    changed += [
        dataclasses.replace(one, **{name: value.flip(0)})
        for name, value in vars(one).items()
        if name in ("text", "lens", "time")
    ]
    assert len({found, digest([other, one]), digest([one])}) == 3
    assert digest([one]) not in {digest([batch]) for batch in changed} and len(changed) > 6
