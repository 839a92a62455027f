"""Held-out losses: whether a run generalises or overfits. No training.

They are those of the averaged weights, without dropout, on the same batches with the same draws
each time, so that lines of log.csv can be compared.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.sources import find_shards, make_source
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.optimizers import EMA, local
from nanospeech_torch.train.scale.parallel import Parallel

PIECE = 2**22  # elements that are copied at a time when weights are swapped
MOST_FRAMES = 60_000  # padding included: ten minutes of speech are enough


class HeldOut:
    """Batches of speech that a run is measured on and never trained on.

    Args:
        files: its shards, log.held_out.
        plan: how training batches are formed.
        objective: a speech or a duration model with its losses.
        ema: its average.
        parallel: the processes.

    Raises:
        InputError: a shard is not there, or the model is trained in several phases.
        DataError: nothing in the shards can be used.
    """

    def __init__(
        self,
        files: Sequence[str],
        plan: BatchPlan,
        objective: Objective,
        ema: EMA,
        parallel: Parallel,
    ):
        self.objective, self.ema, self.parallel = objective, ema, parallel
        if len(objective.phases()) > 1:
            raise InputError("log.held_out is for speech and duration models; leave it empty here")
        try:
            self.batches = list(self.read(files, replace(plan, carry=False)))
        except DataError as e:
            raise DataError(f"log.held_out={','.join(map(str, files))}: {e}") from e

    def read(self, files: Sequence[str], plan: BatchPlan) -> Iterator[Any]:
        """The batches of one pass over the shards, or of its beginning; the same everywhere."""
        source = make_source(find_shards(files))
        frames = 0
        for loaded in self.objective.batches(source, plan, StreamOptions()):
            if loaded.batch is not None:
                frames += loaded.batch.mel.shape[0] * loaded.batch.mel.shape[1]
                yield loaded.batch
            if loaded.epoch_ended is not None or frames >= MOST_FRAMES:
                return

    @torch.no_grad()
    def losses(self) -> dict[str, float]:
        """Mean losses by name, `held_out_` before each; every process must call."""
        p, count = self.parallel, len(self.batches)
        world, rank = p.data_world, p.data_rank
        sums: dict[str, torch.Tensor] = {}
        # eager: no graphs for shapes that occur only here
        with averaged(p.model, self.objective, self.ema), torch.compiler.set_stance("force_eager"):
            # as many iterations on every process, as processes may share a model; repeated batches
            # count for nothing
            for index in range(rank, rank + -(-count // world) * world, world):
                batch = self.batches[index % count].to(p.accelerator.device)
                with p.accelerator.autocast():
                    found = self.objective(batch)
                for name, (total, number) in found.items():
                    both = torch.stack([total.float(), number.float()]) * (index < count)
                    sums[name] = sums.get(name, 0) + both
        totals = p.reduce(torch.stack(list(sums.values())))
        return {
            f"held_out_{name}": float(total / number.clamp(min=1))
            for name, (total, number) in zip(sums, totals)
        }


def shared_shards(files: Sequence[str], data: Any) -> list[str]:
    """Shards of log.held_out that are trained on too.

    Args:
        files: log.held_out.
        data: the trainer's dataset; of one that is no path or list of paths nothing is known.
    """
    data = [data] if isinstance(data, (str, Path)) else data
    # a list of samples is not read: what reads it may count, or fail
    paths = isinstance(data, (list, tuple)) and data and isinstance(data[0], (str, Path))
    if not files or not paths:
        return []
    trained, held = (
        {name if "://" in name else os.path.realpath(name) for name in find_shards(names)}
        for names in (data, files)
    )
    return sorted(trained & held)


def tell_shared(files: Sequence[str], data: Any, say: Callable[[str], None]) -> None:
    """Warns of shards of log.held_out that are trained on too."""
    if both := shared_shards(files, data):
        more = f" ({len(both)} are)" if len(both) > 1 else ""
        say(
            f"warning: {both[0]} is in log.held_out and is trained on as well{more}, so that"
            " held-out losses cannot show overfitting; take it out of the shards to train on"
        )


@contextlib.contextmanager
def averaged(model: Any, objective: Objective, ema: EMA) -> Iterator[None]:
    """Swaps a model's weights with their average within the context, without dropout.

    Swapping in place needs no second copy of either.

    Args:
        model: the objective, or what it is wrapped in.
        objective: the objective, whose guide is set again if it has one.
        ema: its average.
    """
    pairs = [(local(p.detach()), local(mean)) for p, mean in zip(ema.live, ema.mean)]
    let_go(model)
    model.eval()
    undo = []
    try:
        for live, mean in pairs:
            undo.append(exchange(live, mean))
        if objective.guided:  # by the average, which has moved
            here = (p if p.dtype == mean.dtype else mean for p, mean in pairs)
            objective.guide_with(dict(zip(ema.names, here)))
        yield
    finally:
        let_go(model)
        for back in undo:
            back()
        if objective.guided:
            objective.guide_with(ema.state_dict())
        model.train()


def let_go(model: Any) -> None:
    """Drops the weights that FSDP2's root unit keeps whole from a forward on, until a backward.

    Where the shards have changed since, the next forward would not see it.
    """
    if hasattr(model, "reshard"):
        model.reshard()


def exchange(live: torch.Tensor, mean: torch.Tensor) -> Callable[[], Any]:
    """Gives weights the values of their average; returns a function that undoes it.

    Values of equal types are swapped; otherwise the weights are copied, as swapping would round the
    average.
    """
    if live.dtype == mean.dtype:
        swap_(live, mean)
        return partial(swap_, live, mean)
    kept = live.clone()
    live.copy_(mean)
    return partial(live.copy_, kept)


def swap_(a: torch.Tensor, b: torch.Tensor) -> None:
    """Swaps two tensors' values in place, rows of about PIECE elements at a time."""
    rows = max(1, PIECE * len(a) // max(1, a.numel())) if a.dim() else 1
    for x, y in zip(a.split(rows), b.split(rows)) if a.dim() else [(a, b)]:
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
