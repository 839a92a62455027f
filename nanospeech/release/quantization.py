"""Quantization: layers' weights in few bits, packed and unpacked. NumPy alone; runs no network.

The format is MLX's affine one. A row of a weight is cut into groups; a group has a scale and a
bias, and each of its weights is a code of `bits` bits: weight = scale * code + bias. Codes of a row
are packed one after the other, least bit first, in 32-bit words. Not quantized are convolutions,
norms, biases, embeddings, and layers whose rows are not a whole number of groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.config import QuantizationConfig
from nanospeech.errors import CheckpointError, InputError

# Rounding gives the least squared error where the range is cut a little: few weights are extreme.
SHRINK = (1.0, 0.9, 0.8)
BLOCK = re.compile(r"(blocks|convnext)\.\d+\.")
# Small layers that stay floats: rounding them shifts every token, or the time embedding.
KEPT = (
    "text_embed.text_embed",
    "time_mlp.0",
    "to_mean",
    "to_duration.0",
    "to_duration.2",
    "to_pred.0",
    # of EchoDiT; the norms are matrices there, a row for each head
    "text_embedding",
    "text_tag",
    "text_proj",
    "text_duration.0",
    "text_duration.2",
    "cond_module.0",
    "duration_module.0",
    ".q_norm",
    ".k_norm",
)
# Layers that get other bits where most get 4, as nanospeech evaluate bits measured on the
# default voice: text and outputs are sensitive, the scales and shifts of the time are not.
OTHERS_OF_4 = {
    "text_blocks.*.pwconv1": 8,
    "text_blocks.*.pwconv2": 8,
    "proj_out": 8,
    "attn_norm.linear": 3,
    "head.out": 6,
    "head.delay": 6,
    "transformer.in_proj": 8,  # EchoDiT's ends; its bits are not measured
    "transformer.out_proj": 8,
}
PACKED_PARTS = ("model", "student", "duration", "vocoder")  # that few bits are for
CHOICES = (4, 8)  # that --quantize takes
OTHER_PARTS = 6  # bits of duration model and vocoder then


@dataclass(frozen=True)
class PackedWeight:
    """A layer's weight in few bits.

    Attributes:
        codes: uint32 (out, in * bits / 32).
        scales, biases: floats (out, in / group_size).
        bits: of a code.
    """

    codes: np.ndarray
    scales: np.ndarray
    biases: np.ndarray
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        """Of the weight: (out, in)."""
        return len(self.codes), self.codes.shape[-1] * 32 // self.bits

    @property
    def group_size(self) -> int:
        """Weights that share a scale."""
        return self.shape[1] // self.scales.shape[-1]

    def unpack(self) -> np.ndarray:
        """The weight: float32 (out, in)."""
        rows, columns = self.shape
        codes = np.ascontiguousarray(self.codes, "<u4").view(np.uint8)
        if self.bits != 8:
            bits = np.unpackbits(codes, axis=1, bitorder="little")
            bits = bits.reshape(rows, columns, self.bits)
            codes = np.packbits(bits, axis=2, bitorder="little")
        codes = codes.reshape(*self.scales.shape, -1)
        scales, biases = (a[..., None].astype(np.float32) for a in (self.scales, self.biases))
        return (scales * codes + biases).reshape(rows, columns)


Tensors = Mapping[str, "np.ndarray | PackedWeight"]


def layer_of(name: str) -> str:
    """A weight's layer as QuantizationConfig names it: the same for all blocks."""
    return BLOCK.sub(r"\1.*.", name.removesuffix(".weight"))


def plan(shapes: Mapping[str, Mapping[str, tuple[int, ...]]], bits: int) -> QuantizationConfig:
    """Which layers to pack, and into how many bits.

    Args:
        shapes: of each part ("model", "student", "duration", "vocoder"), shapes of its tensors by
            name.
        bits: 4 or 8: of most layers, see OTHERS_OF_4.

    Raises:
        InputError: other bits, or nothing can be packed.
    """
    if bits not in CHOICES:
        raise InputError(f"quantize is {bits}; choose from {', '.join(map(str, CHOICES))}")
    size, found = QuantizationConfig().group_size, {}
    for part, tensors in shapes.items():
        layers = [x for x in packable(tensors, size) if not x.endswith(KEPT)]
        found[part] = {x: bits_of(x, bits) for x in layers}
    if not any(found.values()):
        raise InputError(f"no layer of the model has rows of a multiple of {size} weights to pack")
    return QuantizationConfig(size, **found)


def check_fewer(held: QuantizationConfig | None, bits: int, folder: Path) -> None:
    """Refuses to round weights to more bits than they have.

    Args:
        held: how a folder has them.

    Raises:
        InputError: the message says what to do.
    """
    parts = held.parts if held else ()
    if any(least < bits for p in parts for least in p.values()):
        raise InputError(
            f"{folder} is quantised already, to fewer bits than {bits}; load it as it is, or name"
            " the folder that it was made from"
        )


def float_shapes(
    shapes: Mapping[str, tuple[int, ...]], layers: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """The shapes of a part's tensors unpacked.

    Args:
        shapes: as they are stored.
        layers: bits by layer.
    """
    found = {}
    for name, shape in shapes.items():
        bits = layers.get(layer_of(name)) if name.endswith(".weight") else None
        if bits and len(shape) == 2:  # else joined refuses it
            found[name] = (shape[0], shape[1] * 32 // bits)
        elif not name.endswith((".scales", ".biases")):
            found[name] = shape
    return found


def packable(tensors: Mapping[str, tuple[int, ...]], size: int) -> list[str]:
    """The layers of a part whose rows are whole numbers of groups, each kind once.

    Args:
        tensors: shapes by name.
        size: weights that share a scale.
    """
    fits = [n for n, s in tensors.items() if len(s) == 2 and s[1] % size == 0]
    return list(dict.fromkeys(layer_of(n) for n in fits if n.endswith(".weight")))


def bits_of(layer: str, bits: int) -> int:
    """The bits of a layer in a model of which most layers have `bits`."""
    others = OTHERS_OF_4 if bits == 4 else {}
    return next((b for end, b in others.items() if layer.endswith(end)), bits)


def pack_layers(tensors: Mapping[str, np.ndarray], layers: Mapping[str, int], size: int) -> dict:
    """A part's tensors with the weights of some layers packed.

    Args:
        tensors: floats by name.
        layers: bits by layer.
        size: weights that share a scale.
    """
    bits = {n: layers.get(layer_of(n)) if n.endswith(".weight") else None for n in tensors}
    return {n: pack(t, b, size) if (b := bits[n]) else t for n, t in tensors.items()}


def unpacked(tensors: Tensors) -> dict[str, np.ndarray]:
    """A part's tensors, all of them floats."""
    return {n: t.unpack() if isinstance(t, PackedWeight) else t for n, t in tensors.items()}


def stored(tensors: Tensors) -> dict[str, np.ndarray]:
    """Tensors as a release folder has them: X.weight, X.scales and X.biases of a packed weight."""
    flat = {}
    for name, t in tensors.items():
        if isinstance(t, PackedWeight):
            layer = name.removesuffix(".weight")
            flat |= {name: t.codes, f"{layer}.scales": t.scales, f"{layer}.biases": t.biases}
        else:
            flat[name] = t
    return flat


def joined(
    tensors: Mapping[str, np.ndarray], layers: Mapping[str, int], size: int, path: Path
) -> dict[str, Any]:
    """The inverse of stored: a file's tensors with packed weights whole.

    Args:
        tensors: by name, as they are stored.
        layers: bits by layer, as config.json has them.
        size: weights that share a scale, as in config.json.
        path: of the file, for messages.

    Raises:
        CheckpointError: the file packs other layers, or in another way.
    """
    names = [n.removesuffix(".scales") for n in tensors if n.endswith(".scales")]
    weights = [n for n in tensors if n.endswith(".weight")]
    odd = set(names) ^ {n.removesuffix(".weight") for n in weights if layer_of(n) in layers}
    odd |= layers.keys() - {layer_of(n) for n in names}
    if odd:
        raise CheckpointError(
            f"{path} and its config.json do not agree on which layers are packed: {min(odd)};"
            " take both from one release, or quantise again with: nanospeech convert"
        )
    whole: dict[str, Any] = dict(tensors)
    for name in names:
        codes, scales = whole.pop(f"{name}.weight"), whole.pop(f"{name}.scales")
        biases, bits = whole.pop(f"{name}.biases", scales[:0]), layers[layer_of(name)]
        wanted = codes.ndim == 2 and (len(codes), codes.shape[1] * 32 // (bits * size))
        kinds = codes.dtype, scales.dtype.kind, biases.dtype.kind
        if not (kinds == (np.uint32, "f", "f") and codes.size) or not (
            scales.shape == biases.shape == wanted
        ):
            raise CheckpointError(
                f"{name} of {path} is not packed into {bits} bits with groups of {size}, as its"
                " config.json tells; take both from one release"
            )
        whole[f"{name}.weight"] = PackedWeight(codes, scales, biases, bits)
    floats = (n for n, t in whole.items() if not isinstance(t, PackedWeight))
    if odd := sorted(n for n in floats if whole[n].dtype.kind != "f"):
        raise CheckpointError(
            f"{path} holds {odd[0]} as {whole[odd[0]].dtype}, not floats; fetch it again"
        )
    return whole


def pack(weight: np.ndarray, bits: int, group_size: int) -> PackedWeight:
    """Rounds a weight to few bits; scales and biases are float16.

    Each group takes, of some ranges that its weights are cut to, the one with the least squared
    error, its scale and bias fitted to the codes by least squares.

    Args:
        weight: (out, in), `in` a multiple of group_size.
        bits: 2, 3, 4, 5, 6 or 8.
        group_size: weights that share a scale.
    """
    rows, columns = weight.shape
    groups = weight.astype(np.float32).reshape(-1, group_size)
    best = rounded(groups, bits, SHRINK[0])
    for shrink in SHRINK[1:]:
        other = rounded(groups, bits, shrink)
        better = other[0] < best[0]
        best = tuple(np.where(better, b, a) for a, b in zip(best, other))
    _, codes, scales, biases = best
    single = (codes.astype(np.uint8).reshape(rows, columns, 1) >> np.arange(bits)) & 1
    words = np.packbits(single.astype(np.uint8).reshape(rows, -1), axis=1, bitorder="little")
    shape = rows, columns // group_size
    scales, biases = (a.astype(np.float16).reshape(shape) for a in (scales, biases))
    return PackedWeight(words.view("<u4"), scales, biases, bits)


def rounded(groups: np.ndarray, bits: int, shrink: float) -> tuple[np.ndarray, ...]:
    """Squared error (G, 1), codes (G, group_size), scales and biases (G, 1) of groups of weights.

    Args:
        shrink: part of their range that codes cover at first.
    """
    least = np.finfo(np.float16).smallest_subnormal
    low = groups.min(1, keepdims=True) * shrink
    scale = np.maximum((groups.max(1, keepdims=True) * shrink - low) / (2**bits - 1), least)
    codes = nearest(groups, scale, low, bits)
    middle = codes.mean(1, keepdims=True)
    off = codes - middle
    fitted = (off * groups).sum(1, keepdims=True) / np.maximum((off**2).sum(1, keepdims=True), 1)
    scale = half(np.where(fitted > least, fitted, scale))
    low = half(groups.mean(1, keepdims=True) - scale * middle)
    codes = nearest(groups, scale, low, bits)
    error = ((scale * codes + low - groups) ** 2).sum(1, keepdims=True)
    return error, codes, scale, low


def nearest(groups: np.ndarray, scale: np.ndarray, low: np.ndarray, bits: int) -> np.ndarray:
    """The codes whose weights are nearest."""
    return np.clip(np.rint((groups - low) / scale), 0, 2**bits - 1)


def half(x: np.ndarray) -> np.ndarray:
    """Float32 numbers that float16 has."""
    return x.astype(np.float16).astype(np.float32)
