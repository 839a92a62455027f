"""Staging: which process copies and writes which tensor, where several hold the same. No files.

Replicas hold equal weights, averages and moments. Were all of them copied, eight processes of one
machine would need eight times the host memory of one; here each value is copied once.
"""

from __future__ import annotations

from torch import Tensor


def share(tensors: dict[str, Tensor], rank: int, world: int) -> dict[str, Tensor]:
    """The tensors, or shards of them, that one process is to write.

    Whole tensors are dealt out so that all processes have about as many bytes. Of a sharded one,
    each copy of the shards is written by one set of processes; the copies take turns.

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
    """Whether this process is of the copy of a DTensor that is to be written.

    It may be on a part of the processes, as what a tensor split leaves whole is: then each such
    part has copies of its own.
    """
    mesh, places = value.device_mesh, value.placements  # type: ignore[attr-defined]
    at = mesh.get_coordinate()
    copy, copies = part_of(sorted(mesh.mesh.flatten().tolist()), world)
    if at is None or not copies:
        return True  # others may hold it elsewhere: the library finds out
    for dim, place in enumerate(places):
        if place.is_replicate():
            copy, copies = copy * mesh.size(dim) + at[dim], copies * mesh.size(dim)
    return copy == turn % copies


def part_of(ranks: list[int], world: int) -> tuple[int, int]:
    """Which part of the processes some ranks are, of how many like it; (0, 0) if unlike."""
    left, firsts = set(range(world)), []
    while left:
        firsts.append(min(left))
        part = {firsts[-1] + rank - ranks[0] for rank in ranks}
        if not part <= left:
            return 0, 0
        left -= part
    return (firsts.index(ranks[0]), len(firsts)) if ranks[0] in firsts else (0, 0)
