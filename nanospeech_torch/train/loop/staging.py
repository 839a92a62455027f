"""Staging: assigns tensors that several processes hold to one that writes them. No files.

Replicas hold equal weights, averages and moments. Each value is copied to host memory once, not
once for each process of a machine.
"""

from __future__ import annotations

from torch import Tensor


def share(tensors: dict[str, Tensor], rank: int, world: int) -> dict[str, Tensor]:
    """The tensors, or shards of them, that one process is to write.

    Whole tensors are distributed so that all processes write about as many bytes. Of a sharded one,
    one set of replicas writes its shards; sets are chosen in turn.

    Args:
        tensors: by name; the same names and whole shapes in every process.
        rank, world: this process, of how many.
    """
    if world == 1:
        return tensors
    mine, load, turn = {}, [0] * world, 0
    for name in sorted(tensors, key=lambda n: (-tensors[n].numel(), n)):
        value = tensors[name]
        if hasattr(value, "placements"):
            mine |= {name: value} if writes(value, turn, world) else {}
            turn += 1
            continue
        owner = load.index(min(load))
        load[owner] += value.numel() * value.element_size()
        mine |= {name: value} if owner == rank else {}
    return mine


def writes(value: Tensor, turn: int, world: int) -> bool:
    """Whether this process belongs to the replica of a DTensor that is written.

    A DTensor may be on a subset of the processes, as tensors that a tensor split leaves whole:
    each such subset then has replicas of its own.
    """
    mesh, places = value.device_mesh, value.placements  # type: ignore[attr-defined]
    at = mesh.get_coordinate()
    copy, copies = part_of(sorted(mesh.mesh.flatten().tolist()), world)
    if at is None or not copies:
        return True  # the library resolves duplicates elsewhere
    for dim, place in enumerate(places):
        if place.is_replicate():
            copy, copies = copy * mesh.size(dim) + at[dim], copies * mesh.size(dim)
    return copy == turn % copies


def part_of(ranks: list[int], world: int) -> tuple[int, int]:
    """The index of some ranks among equal groups of processes, and their number; (0, 0) if none."""
    left, firsts = set(range(world)), []
    while left:
        firsts.append(min(left))
        part = {firsts[-1] + rank - ranks[0] for rank in ranks}
        if not part <= left:
            return 0, 0
        left -= part
    return (firsts.index(ranks[0]), len(firsts)) if ranks[0] in firsts else (0, 0)
