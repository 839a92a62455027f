"""Lazy: tensors that are read when they are used, so that big models need little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path

from torch import Tensor

from nanospeech.errors import CheckpointError
from nanospeech.release import sharded
from nanospeech.release.tensors import IGNORED, PACKED, held, opened


class LazyTensors(Mapping[str, Tensor]):
    """Tensors by name, each read anew on every access.

    Args:
        shapes: of all of them.
        read: one, by its name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Tensor]):
        self.shapes, self.read = dict(shapes), read

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def renamed(self, names: Mapping[str, str]) -> LazyTensors:
        """The same under other names; `names` maps new names to present ones."""
        shapes = {new: self.shapes[old] for new, old in names.items()}
        return LazyTensors(shapes, lambda new: self.read(names[new]))


def renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> Mapping[str, Tensor]:
    """Some of these tensors under new names, none of them read; `names` maps these to the old."""
    if isinstance(tensors, LazyTensors):
        return tensors.renamed(names)
    return {new: tensors[old] for new, old in names.items()}


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor by name; reads none."""
    if isinstance(tensors, LazyTensors):
        return tensors.shapes
    return {name: tuple(t.shape) for name, t in tensors.items()}


def numbers(tensors: Mapping[str, Tensor]) -> int:
    """How many numbers tensors have together."""
    return sum(map(prod, shapes_of(tensors).values()))


def read_lazily(path: Path) -> LazyTensors:
    """The tensors of a safetensors file, or of its shards; none of them packed.

    Raises:
        CheckpointError: missing, damaged, or packed.
    """
    where, shapes = {}, {}
    for file, expected in sharded.files_of(path).items():
        with opened(file) as f:
            for name in held(f, file, expected):
                piece = f.get_slice(name)
                if piece.get_dtype() == "U32":
                    raise CheckpointError(f"{file} {PACKED}")
                where[name], shapes[name] = file, tuple(piece.get_shape())

    def read(name: str) -> Tensor:
        with opened(where[name], "pt") as f:
            return f.get_tensor(name)

    return LazyTensors({n: s for n, s in shapes.items() if not n.startswith(IGNORED)}, read)


def read_metadata(path: Path) -> dict[str, str]:
    """The strings in the header of a safetensors file; none of one in shards."""
    if not path.is_file():
        return {}
    with opened(path) as f:
        return f.metadata() or {}


def read_checkpoint(path: Path, prefix: str) -> LazyTensors:
    """The tensors of a sharded checkpoint folder whose names begin with a prefix, without it.

    Raises:
        CheckpointError: it is not a whole checkpoint.
    """
    from nanospeech_torch.checkpoint_reader import OneByOne

    reader = OneByOne(path)
    shapes = {
        name.removeprefix(prefix): shape
        for name, shape in reader.shapes().items()
        if name.startswith(prefix)
    }
    return LazyTensors(shapes, lambda name: reader.read(prefix + name))
