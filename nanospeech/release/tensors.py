"""Tensors: reads safetensors files, compares their names and shapes with a model's, digests them.

Nothing is unpickled. A file may be in several, see sharded.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError

from . import sharded

# Tables of mels and windows that published files carry and that are computed here.
IGNORED = ("mel_spec.", "feature_extractor.", "head.istft.")
# Types of stored floats by their names in safetensors; F64 is read too, and never written.
FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
PACKED = (
    "holds packed weights: name the release folder that they were made from, or give this one the"
    " config.json that it came with"
)
ENDS = 1 << 20  # bytes at each end of a file that identify weights
NOT_FINITE = "holds infinities or no numbers (NaN), and would speak noise"


def tensor_shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Shapes by name, from the headers of safetensors files alone; ignored buffers left out.

    Args:
        path: of the file, or that which it would have were it not in shards.

    Raises:
        CheckpointError: missing, truncated or not safetensors.
    """
    shapes = {}
    for file, names in sharded.files_of(Path(path)).items():
        with opened(file) as f:
            shapes |= {n: tuple(f.get_slice(n).get_shape()) for n in held(f, file, names)}
    return shapes


def read_tensors(path: str | Path, packed: bool = False) -> dict[str, np.ndarray]:
    """Arrays by name from safetensors, without the ignored buffers.

    Args:
        path: of the file, or that which it would have were it not in shards.
        packed: allow the uint32 codes of packed weights; Release.weights unpacks them.

    Returns:
        float32 and float16 as they are stored; bfloat16, which NumPy lacks, as float32.

    Raises:
        CheckpointError: missing, truncated or not safetensors, of another type, or not numbers, as
            of training that went astray.
    """
    tensors = {}
    for file, names in sharded.files_of(Path(path)).items():
        tensors |= (read := read_file(file, packed, names))
        if odd := sorted(n for n, t in read.items() if not is_finite(t)):
            raise CheckpointError(f"{file} {NOT_FINITE}: {some(odd)}")
    return tensors


def is_finite(array: np.ndarray) -> bool:
    """Whether all of an array are numbers; codes of packed weights always are."""
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def read_file(path: Path, packed: bool, expected: set[str] | None) -> dict[str, np.ndarray]:
    """read_tensors of a single file, which should hold what its index expects."""
    with opened(path) as f:
        names = held(f, path, expected)
        kinds = {f.get_slice(n).get_dtype() for n in names}
        if extra := sorted(kinds - {*FLOATS, "F64"} - ({"U32"} if packed else set())):
            if extra == ["U32"]:
                raise CheckpointError(f"{path} {PACKED}")
            raise CheckpointError(f"{path} holds tensors of type {', '.join(extra)}, not floats")
        if "BF16" not in kinds:
            return {n: f.get_tensor(n) for n in names}
    return read_bfloat16(Path(path))


def held(file: Any, path: Path, expected: set[str] | None = None) -> list[str]:
    """Names of an opened file's tensors, without the ignored buffers.

    Raises:
        CheckpointError: they are not those that the index of its shards expects.
    """
    names = list(file.keys())
    if expected is not None and (odd := sorted(expected ^ set(names))):
        raise CheckpointError(
            f"{path} and its index do not agree on {some(odd)}; take both from one release"
        )
    return [n for n in names if not n.startswith(IGNORED)]


def read_bfloat16(path: Path) -> dict[str, np.ndarray]:
    """read_tensors for a file with bfloat16 in it: the upper halves of float32 numbers."""
    import safetensors

    types = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "U32": np.uint32}
    tensors = {}
    for name, t in safetensors.deserialize(path.read_bytes()):
        if name.startswith(IGNORED):
            continue
        if t["dtype"] == "BF16":
            upper = np.frombuffer(t["data"], "<u2").astype(np.uint32) << 16
            tensors[name] = upper.view(np.float32).reshape(t["shape"])
        else:
            tensors[name] = np.frombuffer(t["data"], types[t["dtype"]]).reshape(t["shape"])
    return tensors


def opened(path: str | Path, framework: str = "np"):
    """Opens a safetensors file, with a damaged one as a CheckpointError."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(str(path), framework=framework)
    except (OSError, SafetensorError) as e:
        raise CheckpointError(
            f"cannot read {path}: {e}; it is missing, truncated or no safetensors file:"
            " fetch or convert it again"
        ) from e


def check_tensors(
    got: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]], path: str | Path
) -> None:
    """Compares a file's tensors with those that the config calls for.

    Args:
        got: shapes by name in the file, in the published (torch) layout.
        wanted: the same of the model.
        path: the file, for the message.

    Raises:
        CheckpointError: names the first few tensors missing, unknown or of another shape.
    """
    wrong = []
    if missing := sorted(wanted.keys() - got.keys()):
        wrong.append(f"missing {some(missing)}")
    if extra := sorted(got.keys() - wanted.keys()):
        wrong.append(f"unknown {some(extra)}")
    both = sorted(wanted.keys() & got.keys())
    if differ := [n for n in both if tuple(got[n]) != tuple(wanted[n])]:
        shapes = [f"{n} {tuple(got[n])} instead of {tuple(wanted[n])}" for n in differ]
        wrong.append(f"wrong shapes: {some(shapes)}")
    if wrong:
        raise CheckpointError(
            f"{path} has other tensors than its network: {'; '.join(wrong)}; take the whole file,"
            " and the config that it came with"
        )


def some(names: Iterable[str], count: int = 3) -> str:
    """The first few of many names."""
    names = list(names)
    rest = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + rest


def digest(folder: Path) -> str:
    """A digest of a model folder: its config, and both ends of each file of weights."""
    found = sha256()
    for path in [*sorted(folder.glob("*")), *sorted(folder.glob("*/*"))]:
        if path.suffix not in (".safetensors", ".json", ".txt"):
            continue
        size = path.stat().st_size
        found.update(f"{path.name} {size}".encode())
        with path.open("rb") as f:
            found.update(f.read(ENDS))
            f.seek(max(0, size - ENDS))
            found.update(f.read())
    return found.hexdigest()[:12]
