"""Writer: reads a release folder to convert it again, and writes the parts of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nanospeech.config import ModelConfig, QuantizationConfig, from_dict, to_dict
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release import sharded
from nanospeech.release.folder import (
    CODEC,
    CONFIG,
    DURATION,
    IMITATOR,
    MODEL,
    STUDENT,
    TEXT_ENCODER,
    VOCODER,
    Release,
    load_config,
    open_release,
)
from nanospeech.release.quantization import (
    PACKED_PARTS,
    PackedWeight,
    check_fewer,
    pack_layers,
    plan,
    stored,
)
from nanospeech.release.tensors import NOT_FINITE, is_finite

from .lazy import read_lazily, shapes_of

PARTS = {
    "model": MODEL,
    "student": STUDENT,
    "duration": DURATION,
    "vocoder": VOCODER,
    "codec": CODEC,
}
FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64
ENCODER = {"text_encoder": f"{TEXT_ENCODER}/{MODEL}"}  # where it was trained too


def is_release(path: str | Path) -> bool:
    """Whether a path is a release folder, not a run's or a checkpoint's."""
    return sharded.there(Path(path) / MODEL)


def read_release(folder: str | Path) -> tuple[Release, dict[str, Mapping[str, Tensor]]]:
    """A release folder and the tensors of each of its own parts, packed weights unpacked.

    Raises:
        CheckpointError: incomplete, damaged, or contradicting itself.
    """
    release = open_release(folder)
    files = {part: n for part, n in PARTS.items() if sharded.there(release.folder / n)}
    return release, {part: weights_of(release, name) for part, name in files.items()}


def weights_of(release: Release, name: str) -> Mapping[str, Tensor]:
    """A part's tensors: read when they are asked for, or packed ones all at once."""
    if release.config.quantization is None:
        return read_lazily(release.path(name))
    return {n: torch.from_numpy(t) for n, t in release.weights(name).items()}


def write_release(
    folder: Path, config: ModelConfig, parts: Mapping[str, Mapping[str, Tensor]], dtype: str
) -> None:
    """Writes config.json and weights; what config.quantization names is packed.

    A tensor is read, packed and written before the next: memory holds one file's worth. A text
    encoder is written in float32: its numbers may be too large for float16.

    Raises:
        InputError: numbers that are too large for the type.
        CheckpointError: tensors that are no floats, or a config that could not be read again.
    """
    from_dict(ModelConfig, to_dict(config))  # a checkpoint's own settings may be of any type
    folder.mkdir(parents=True, exist_ok=True)
    q = config.quantization
    for part, tensors in parts.items():
        path = folder / file_of(part)
        path.parent.mkdir(exist_ok=True)
        kind = "float32" if part in ENCODER else dtype
        with sharded.ShardWriter(path, sharded.write_whole, sharded.SHARD_BYTES) as out:
            for name in sorted(tensors):
                one = {name: floats_of(name, tensors[name])}
                for stored_name, array in as_stored(one, q, part, kind).items():
                    check_finite(stored_name, array, one[name], path)
                    out.add(stored_name, array)
    config.save(folder / CONFIG)


def floats_of(name: str, tensor: Tensor) -> np.ndarray:
    """A tensor as float32.

    Raises:
        CheckpointError: it holds integers, which may be codes of another project's quantisation,
            or floats of 8 bits, which are rounded and may have scales elsewhere.
    """
    if tensor.dtype not in FLOATS or tensor.layout != torch.strided or tensor.is_meta:
        kind = str(tensor.dtype if tensor.layout == torch.strided else tensor.layout)
        raise CheckpointError(
            f"{name} of the checkpoint is {kind.removeprefix('torch.')}, not plain floats; take the"
            " weights as they were trained, not quantised ones"
        )
    return tensor.float().numpy()


def as_stored(
    tensors: Mapping[str, np.ndarray], q: QuantizationConfig | None, part: str, kind: str
) -> dict[str, np.ndarray]:
    """Tensors of a part, float32, as they are written: packed, or of a type."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_finite tells
        packed = pack_layers(tensors, getattr(q, part, {}), q.group_size) if q else tensors
        return stored(
            {n: t if isinstance(t, PackedWeight) else t.astype(kind) for n, t in packed.items()}
        )


def check_finite(name: str, array: np.ndarray, source: np.ndarray, path: Path) -> None:
    """Refuses a tensor that is no numbers, or whose numbers its type has not.

    Args:
        name: of what is written.
        array: that.
        source: float32, what it was made of.
        path: of the file.

    Raises:
        CheckpointError: the checkpoint's own are none.
        InputError: they are too large for the type.
    """
    if is_finite(array):
        return
    if not is_finite(source):
        raise CheckpointError(
            f"{name} of the checkpoint {NOT_FINITE}; take an earlier checkpoint of its training"
        )
    raise InputError(
        f"{name} has numbers up to {np.abs(source).max():.3g}, too large for {path.name} in"
        f" {array.dtype}; add --dtype float32, and no --quantize"
    )


def file_of(part: str) -> str:
    """Where a part's weights are in a release folder."""
    return (PARTS | ENCODER)[part]


def quantized(
    config: ModelConfig, parts: Mapping[str, Mapping[str, Tensor]], bits: int
) -> ModelConfig:
    """The config of the same model with most layers in few bits."""
    shapes = {n: shapes_of(tensors) for n, tensors in parts.items() if n in PACKED_PARTS}
    return dataclasses.replace(config, quantization=plan(shapes, bits))


def check_release(folder: str | Path, output: str | Path, weights: str, bits: int | None) -> None:
    """Refuses what cannot be made of a release folder.

    Raises:
        InputError: it would be written over itself, holds no raw weights, or has fewer bits.
        CheckpointError: its config cannot be read.
    """
    source, target = Path(folder).resolve(), Path(output).resolve()
    if target == source:
        raise InputError(f"--output {output} is the folder that is read; name another")
    if source == target / IMITATOR or target == source / IMITATOR:
        raise InputError(
            f"--output {output} would write over a release and its imitator, of which {folder} is"
            " one; name another"
        )
    if inner := [n for n in ("voices", TEXT_ENCODER) if target.is_relative_to(source / n)]:
        raise InputError(
            f"--output {output} lies in {folder}/{inner[0]}, all of which is copied there; name a"
            " folder elsewhere"
        )
    if weights == "raw":
        raise InputError(
            f"{folder} is a release folder and holds no raw weights; name a checkpoint"
        )
    if bits is not None:
        check_fewer(load_config(folder).quantization, bits, Path(folder))
