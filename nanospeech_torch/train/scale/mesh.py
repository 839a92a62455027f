"""Mesh: how many ways the processes of a run split its work, and torch's mesh of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nanospeech.config import option
from nanospeech.errors import InputError

REPLICATE, SHARD, TENSOR = "dp_replicate", "dp_shard", "tp"  # accelerate's names


@dataclass(frozen=True)
class ParallelConfig:
    """How many ways the work is split; the product is the number of processes."""

    replicate: int = option(0, "copies of the model, each with its own data; 0: what is left")
    shard: int = option(1, "processes over which weights and optimizer state are split (FSDP2)")
    tensor: int = option(1, "processes over which each layer is split: heads and feed-forward")

    def __post_init__(self):
        for name, least in (("replicate", 0), ("shard", 1), ("tensor", 1)):
            if (value := getattr(self, name)) < least:
                raise InputError(f"parallel.{name} is {value}, should be at least {least}")

    def replicas(self, world: int) -> int:
        """Copies of the model among `world` processes.

        Raises:
            InputError: the processes cannot be split like this.
        """
        inner = self.shard * self.tensor
        asked = f"parallel.shard={self.shard} x parallel.tensor={self.tensor}"
        if self.replicate == 0:
            if world % inner:
                raise InputError(
                    f"{asked} = {inner} does not divide the {world} processes started; start a "
                    f"multiple of {inner} or change them"
                )
            return world // inner
        if self.replicate * inner != world:
            raise InputError(
                f"parallel.replicate={self.replicate} x {asked} = {self.replicate * inner}, but "
                f"{world} processes were started; start {self.replicate * inner} or set "
                f"parallel.replicate=0 to use what is left"
            )
        return self.replicate


def build_mesh(device: str, replicate: int, shard: int, tensor: int) -> Any:
    """The device mesh; tensor ranks are neighbours, so that they share a machine."""
    from torch.distributed.device_mesh import init_device_mesh

    if tensor == 1 or shard > 1:
        from accelerate import ParallelismConfig

        split = ParallelismConfig(
            dp_replicate_size=replicate, dp_shard_size=shard, tp_size=tensor, cp_size=1, sp_size=1
        )
        return split.build_device_mesh(device)
    # accelerate leaves out dimensions of 1, and knows no replicas of a tensor split
    return init_device_mesh(
        device, (replicate, shard, tensor), mesh_dim_names=(REPLICATE, SHARD, TENSOR)
    )


def flat_group(mesh: Any, dims: tuple[str, ...]) -> Any:
    """The process group over several dimensions of a mesh."""
    found = [d for d in dims if d in mesh.mesh_dim_names]
    part = mesh[found[0]] if len(found) == 1 else mesh[tuple(found)]._flatten("data")
    return part.get_group()
