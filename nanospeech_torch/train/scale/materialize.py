"""Materialize: initial weights of a model that is split over processes. Knows no mesh.

A model too big for one process is built on the "meta" device, split, and filled here a block at a
time, so that no process ever holds more than one whole block, the small rest, and its own part.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from nanospeech_torch.echo.network import EchoDiT
from nanospeech_torch.train.optim.optimizers import local

from .tensor_split import blocks as blocks_of


def broadcast_weights(objective: nn.Module) -> None:
    """Gives every process the weights and buffers of rank 0."""
    with torch.no_grad():
        for tensor in (*objective.parameters(), *objective.buffers()):
            dist.broadcast(tensor, 0)


def fill_empty(objective: nn.Module, device: torch.device, seed: int = 0) -> None:
    """Allocates a model built on "meta", split or not, and draws its weights.

    The weights are those of a model built at once on the CPU after torch.manual_seed(seed). Parts
    that are not on "meta", such as a published text encoder, stay as they are. The random state of
    the caller is left as it was.

    Args:
        objective: has a `transformer` with `config` and `transformer_blocks`.
        device: where its parts are to be.
    """
    there = {n: local(t).detach().clone() for n, t in tensors(objective) if not t.is_meta}
    objective.to_empty(device=device)
    for name, tensor in tensors(objective):
        if name in there:
            local(tensor.detach()).copy_(there[name])
    named = dict(objective.named_parameters())
    done = there.keys() & named.keys()

    def put(prefix: str, part: nn.Module) -> None:
        for name, value in part.named_parameters():
            place(named[prefix + name], value.detach())
            done.add(prefix + name)

    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        draw(objective, put)
    assert named.keys() == done, f"not filled: {sorted(named.keys() - done)}"


def tensors(objective: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name."""
    return itertools.chain(objective.named_parameters(), objective.named_buffers())


def draw(objective: Any, put: Callable[[str, nn.Module], None]) -> None:
    """Builds all parts of an objective in the usual order, and hands over each with its prefix."""
    network = objective.transformer
    config, blocks = network.config, blocks_of(objective)
    own = "blocks" if isinstance(network, EchoDiT) else "transformer_blocks"

    def when_blocks_are_due(module: nn.Module, name: str, child: nn.Module | None) -> None:
        # an EchoDiT's encoders have blocks too, which are drawn with the rest
        if name == own and type(module) is plain_class(network):
            for index, block in enumerate(blocks):
                put(f"transformer.{own}.{index}.", plain_class(block)(config))

    # a network without blocks draws what comes before and after them; blocks draw in between
    handle = register_module_module_registration_hook(when_blocks_are_due)
    try:
        rest = plain_class(network)(dataclasses.replace(config, depth=0))
    finally:
        handle.remove()
    put("transformer.", rest)
    for name, module in objective.named_children():  # the duration model's head
        if name not in ("transformer", "reader"):
            linear = module[0]
            new = nn.Linear(linear.in_features, linear.out_features, linear.bias is not None)
            put(f"{name}.0.", new)


def plain_class(module: nn.Module) -> type:
    """The class of a module before sharding gave it another."""
    return next(c for c in type(module).__mro__ if not c.__name__.startswith("FSDP"))


def place(target: Tensor, value: Tensor) -> None:
    """Writes a whole value into a tensor or into this process's part of a DTensor."""
    with torch.no_grad():
        if not hasattr(target, "placements"):
            target.copy_(value)
            return
        from torch.distributed.tensor import distribute_tensor

        mesh, places = target.device_mesh, target.placements  # type: ignore[attr-defined]
        # every process drew the same value: nothing has to be sent
        whole = distribute_tensor(value.to(target.device), mesh, places, src_data_rank=None)
        target.to_local().copy_(whole.to_local())  # type: ignore[attr-defined]
