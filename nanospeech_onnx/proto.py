"""Proto: bytes of an ONNX model, without the onnx package. Knows the file format and no network.

ONNX files are messages of Protocol Buffers (protobuf.dev, "Encoding"); the numbers of the fields
are those of onnx.proto (github.com/onnx/onnx). Only what graphs of this package need is here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

TYPES = {  # onnx.TensorProto.DataType
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "bfloat16": 16,
}
OPSET = 17
CONTRIBUTED = "com.microsoft"  # operators that ONNX Runtime adds
IR_VERSION = 8

Attribute = float | int | str | Sequence[int]


@dataclass(frozen=True)
class Stored:
    """Where the bytes of a tensor are: in a file beside the model's.

    Attributes:
        file: its name.
        offset, length: bytes.
    """

    file: str
    offset: int
    length: int


def varint(n: int) -> bytes:
    """A whole number of 64 bits, seven at a time."""
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, value: bytes | str | int | float) -> bytes:
    """A field of a message: its number, its kind and its value."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(number: int, values: Iterable[bytes | str | int | float]) -> bytes:
    """A repeated field."""
    return b"".join(field(number, v) for v in values)


def attribute(name: str, value: Attribute) -> bytes:
    """AttributeProto."""
    if isinstance(value, float):
        return field(1, name) + field(2, value) + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    return field(1, name) + fields(8, value) + field(20, 7)


def node(
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    domain: str = "",
    attributes: dict[str, Attribute] | None = None,
) -> bytes:
    """NodeProto. An input that is left out is ""."""
    given = [attribute(k, v) for k, v in (attributes or {}).items()]
    head = fields(1, inputs) + fields(2, outputs) + field(3, f"{kind}_{outputs[0]}")
    return head + field(4, kind) + fields(5, given) + (field(7, domain) if domain else b"")


def tensor(name: str, array: np.ndarray) -> bytes:
    """TensorProto that holds its numbers."""
    raw = np.ascontiguousarray(array).tobytes()
    return (
        fields(1, array.shape) + field(2, TYPES[array.dtype.name]) + field(8, name) + field(9, raw)
    )


def outside(name: str, shape: Sequence[int], dtype: str, where: Stored) -> bytes:
    """TensorProto whose numbers are in another file."""
    entries = {"location": where.file, "offset": where.offset, "length": where.length}
    pairs = [field(1, k) + field(2, str(v)) for k, v in entries.items()]
    head = fields(1, shape) + field(2, TYPES[dtype]) + field(8, name)
    return head + fields(13, pairs) + field(14, 1)


def value(name: str, dtype: str, shape: Sequence[int | str]) -> bytes:
    """ValueInfoProto: an input or output; a name in its shape is a size that varies."""
    dims = [field(2 if isinstance(d, str) else 1, d) for d in shape]
    kind = field(1, TYPES[dtype]) + field(2, fields(1, dims))
    return field(1, name) + field(2, field(1, kind))


def model(
    name: str,
    nodes: Sequence[bytes],
    tensors: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
) -> bytes:
    """ModelProto."""
    graph = fields(1, nodes) + field(2, name) + fields(5, tensors)
    graph += fields(11, inputs) + fields(12, outputs)
    opsets = [field(1, ""), field(1, CONTRIBUTED)]
    versions = [OPSET, 1]
    imports = [o + field(2, v) for o, v in zip(opsets, versions)]
    return field(1, IR_VERSION) + field(2, "nanospeech") + field(7, graph) + fields(8, imports)
