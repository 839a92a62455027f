"""Sharded: weights too big for one file, as Hugging Face lays them out. Knows no model.

NAME.safetensors, or NAME-00001-of-00003.safetensors and so on beside NAME.safetensors.index.json,
which maps tensors to files. Files are written one after the other, so that at most one is in
memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import save_file

from nanospeech.errors import CheckpointError
from nanospeech.files import whole, write_json

SHARD_BYTES = 4_000_000_000  # of weights in one file
MAX_INDEX_BYTES = 64_000_000
END = ".safetensors"
PART = re.compile(r"-\d{5}-of-\d{5}\.safetensors")


def index_of(path: Path) -> Path:
    """The index of NAME.safetensors, whether or not there is one."""
    return path.with_name(path.name + ".index.json")


def there(path: Path) -> bool:
    """Whether weights are there, in one file or in several."""
    return path.is_file() or index_of(path).is_file()


def files_of(path: Path) -> dict[Path, set[str] | None]:
    """The files that hold the weights of NAME.safetensors, each with its tensors' names.

    Returns:
        The file itself, with None, where it is there or nothing is.

    Raises:
        CheckpointError: the index is damaged, or names files that are missing or elsewhere.
    """
    index = index_of(path)
    if path.is_file() or not index.is_file():
        return {path: None}
    try:
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise ValueError(f"more than {MAX_INDEX_BYTES:,} bytes")
        where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        found: dict[Path, set[str] | None] = {}
        for name, file in where.items():
            if file != Path(file).name or not file.endswith(END):
                raise ValueError(f"{file!r} is no name of a file beside it")
            found.setdefault(path.with_name(file), set()).add(name)  # type: ignore[union-attr]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise CheckpointError(
            f"{index} cannot be read: {type(e).__name__}: {e}; fetch or convert it again"
        ) from e
    if missing := sorted(p.name for p in found if not p.is_file()):
        raise CheckpointError(
            f"{path.parent} lacks {', '.join(missing[:3])} of {len(found)} files of weights that "
            f"{index.name} names; fetch them too"
        )
    if not found:
        raise CheckpointError(f"{index} names no tensors; fetch or convert it again")
    return found


def remove(path: Path) -> None:
    """Deletes the weights of NAME.safetensors, in one file or in several."""
    for old in (path, index_of(path), *parts_of(path)):
        old.unlink(missing_ok=True)


def parts_of(path: Path) -> list[Path]:
    """All files that look like shards of NAME.safetensors."""
    stem = path.name.removesuffix(END)
    found = path.parent.glob(f"{glob_safe(stem)}-*{END}")
    return sorted(p for p in found if PART.fullmatch(p.name.removeprefix(stem)))


def glob_safe(text: str) -> str:
    """A text in which a glob pattern finds nothing special."""
    return re.sub(r"([*?[])", r"[\1]", text)


def write_whole(arrays: Mapping, path: Path, **extra: str) -> None:
    """Writes safetensors, whole or not at all; `extra` goes into the header.

    Raises:
        OSError: it cannot be written, as where the disk is full.
    """
    with whole(path) as part:
        try:
            save_file(dict(arrays), part, metadata={"format": "pt", **extra})
        except SafetensorError as e:
            raise OSError(f"cannot write {path}: {e}") from e
        part.chmod(0o644)  # safetensors makes it readable by its owner alone


class ShardWriter:
    """Writes tensors as they come, a file whenever one is full.

    Args:
        path: NAME.safetensors; what was there goes when `close` puts the new files in place.
        save: writes a dictionary of tensors to a path, as safetensors, whole or not at all.
        most: bytes of tensors in one file; a bigger tensor has a file of its own.
    """

    def __init__(self, path: Path, save: Callable[[dict, Path], None], most: int = SHARD_BYTES):
        self.path, self.save, self.most = path, save, most
        self.held: dict[str, Any] = {}
        self.bytes = self.total = 0
        self.written: list[tuple[Path, list[str]]] = []

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.close()
        else:
            for part, _ in self.written:
                part.unlink(missing_ok=True)

    def add(self, name: str, tensor: Any) -> None:
        """Takes a tensor (of either library, or an array) to write."""
        if self.held and self.bytes + tensor.nbytes > self.most:
            self.flush()
        self.held[name] = tensor
        self.bytes += tensor.nbytes
        self.total += tensor.nbytes

    def flush(self) -> None:
        """Writes what is held."""
        stem = self.path.name.removesuffix(END)
        part = self.path.with_name(f"{stem}-{len(self.written) + 1:05d}.shard")
        self.written.append((part, list(self.held)))
        self.save(self.held, part)
        self.held, self.bytes = {}, 0

    def close(self) -> None:
        """Writes the rest, and puts all files and their index in place of what was there."""
        if not self.written:
            self.save(self.held, self.path)
            for old in (index_of(self.path), *parts_of(self.path)):
                old.unlink(missing_ok=True)
            return
        self.flush()
        remove(self.path)
        stem, count, where = self.path.name.removesuffix(END), len(self.written), {}
        for number, (part, names) in enumerate(self.written, 1):
            file = f"{stem}-{number:05d}-of-{count:05d}{END}"
            part.replace(self.path.with_name(file))
            where |= dict.fromkeys(names, file)
        index = {"metadata": {"total_size": self.total}, "weight_map": dict(sorted(where.items()))}
        write_json(index_of(self.path), index, indent=2)
