"""Tensor split: attention heads and feed-forward of each block over several processes.

As in Megatron-LM (arXiv 1909.08053), by torch's DTensor: queries, keys, values, the first
feed-forward layer and the time's adaLN are split by outputs, the layers that follow by inputs.
Knows no data parallelism.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.errors import InputError
from nanospeech_torch import layers
from nanospeech_torch.echo.network import EchoDiT


def blocks(objective: nn.Module) -> list[nn.Module]:
    """The transformer blocks of a speech or duration model or an EchoDiT, first to last."""
    network = getattr(objective, "transformer", None)
    name = "blocks" if isinstance(network, EchoDiT) else "transformer_blocks"
    return list(getattr(network, name, []))


def check_widths(objective: nn.Module, tensor: int) -> None:
    """Raises InputError where a layer does not split evenly, or is not a plain one."""
    block: Any = blocks(objective)[0]
    for name in plan(block):
        if type(block.get_submodule(name)) is not nn.Linear:
            raise InputError(
                f"parallel.tensor={tensor} splits plain linear layers, and {name} has been "
                "replaced (by an adapter?); use parallel.shard or parallel.replicate"
            )
    if joint(block):
        sizes = {"heads": block.attention.heads, "feed-forward width": block.mlp.w2.in_features}
    else:
        sizes = {"heads": block.attn.heads, "feed-forward width": block.ff.ff[2].in_features}
    if "attn_norm.linear" in plan(block):
        sizes["adaLN width"] = block.attn_norm.linear.out_features
    for what, size in sizes.items():
        if size % tensor:
            fits = [str(n) for n in range(2, size + 1) if size % n == 0]
            raise InputError(
                f"parallel.tensor={tensor} does not divide the model's {size} {what}; "
                f"it may be {', '.join(fits[:8]) or '1 only'}"
            )


def plan(block: nn.Module) -> dict[str, Any]:
    """Which layers of a block are split by columns (outputs) and which by rows (inputs)."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    found: dict[str, Any]
    if joint(block):
        attention = ("wq", "wk", "wv", "gate", "wk_text", "wv_text", "wk_speaker", "wv_speaker")
        inputs = [*(f"attention.{name}" for name in attention), "mlp.w1", "mlp.w3"]
        found = {name: ColwiseParallel() for name in inputs}
        return found | {name: RowwiseParallel() for name in ("attention.wo", "mlp.w2")}
    columns = ("attn.to_q", "attn.to_k", "attn.to_v", "ff.ff.0.0")
    found = {name: ColwiseParallel() for name in columns}
    found |= {name: RowwiseParallel() for name in ("attn.to_out.0", "ff.ff.2")}
    if hasattr(block.attn_norm, "linear"):
        found["attn_norm.linear"] = ColwiseParallel(output_layouts=Replicate())
    return found


def split_layers(objective: nn.Module, mesh: Any, rank: int) -> None:
    """Splits heads and feed-forward of every block over a one-dimensional mesh."""
    from torch.distributed.tensor.parallel import parallelize_module

    for block in blocks(objective):
        parallelize_module(block, mesh, plan(block))
        if joint(block):
            split_joint(block.attention, mesh, rank)
            continue
        feed: Any = block.ff
        feed.ff[1] = SharedDropout(feed.ff[1].p, mesh.size(), rank)
        attn: Any = block.attn
        attn.heads //= mesh.size()
        # the first heads of the model rotate: they are those of the first ranks
        attn.rope_heads = min(max(attn.rope_heads - rank * attn.heads, 0), attn.heads)
        if attn.q_norm is not None:
            attn.q_norm, attn.k_norm = SharedNorm(attn.q_norm, mesh), SharedNorm(attn.k_norm, mesh)


def joint(block: nn.Module) -> bool:
    """Whether a block is an EchoDiT's."""
    return hasattr(block, "attention_adaln")


def split_joint(attention: Any, mesh: Any, rank: int) -> None:
    """Gives each process its heads of a joint attention, with their norms."""
    from torch.distributed.tensor import Shard, distribute_tensor

    heads = attention.heads = attention.heads // mesh.size()
    attention.rotated = min(max(attention.rotated - rank * heads, 0), heads)
    for norm in (attention.q_norm, attention.k_norm):
        # every process has the same whole weight: nothing has to be sent
        part = distribute_tensor(norm.weight.detach(), mesh, [Shard(0)], src_data_rank=None)
        norm.weight = nn.Parameter(part)


class SharedDropout(layers.Dropout):
    """Dropout of this process's part of the features, by one mask for those of all.

    Processes of a group draw alike, as most of what is dropped is the same in all: masks of the
    parts alone would be equal.
    """

    def __init__(self, p: float, parts: int, rank: int):
        super().__init__(p)
        self.parts, self.rank = parts, rank

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not 0 < self.p < 1:
            return super().forward(x)
        with torch.no_grad():
            whole = super().forward(x.new_ones(*x.shape[:-1], x.shape[-1] * self.parts))
            mine = whole.chunk(self.parts, -1)[self.rank] != 0
        return x * mine / (1 - self.p)


class SharedNorm(nn.Module):
    """A norm whose one weight serves the heads of every rank: its gradient is summed over them."""

    def __init__(self, norm: nn.Module, mesh: Any):
        super().__init__()
        self.weight, self.mesh, self.rule = norm.weight, mesh, type(norm).forward

    def forward(self, x: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, Partial, Replicate

        mine: Any = self.weight
        weight = DTensor.from_local(mine, self.mesh, [Replicate()], run_check=False)
        return self.rule(SimpleNamespace(weight=weight.to_local(grad_placements=[Partial()])), x)
