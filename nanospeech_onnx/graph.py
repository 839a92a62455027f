"""Graph: records what a network computes as an ONNX graph. Knows operators and no network.

A network is called with Arrays in the place of arrays. Each operation on them adds a node; nothing
is computed. Sizes are whole numbers, or Dims: products of sizes that vary from run to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import proto


@dataclass(frozen=True)
class Dim:
    """A size that varies: a whole number times sizes with names."""

    times: int
    names: tuple[str, ...]

    def __mul__(self, n: int) -> Dim:
        return Dim(self.times * n, self.names)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self * -1

    def __floordiv__(self, n: int) -> Dim:
        assert self.times % n == 0, f"{self} is not a multiple of {n}"
        return Dim(self.times // n, self.names)

    def __str__(self) -> str:
        return "*".join([*([str(self.times)] if self.times != 1 else []), *self.names])


BATCH, PATCHES, TOKENS = (Dim(1, (name,)) for name in ("batch", "patches", "tokens"))
TIMES = Dim(1, ("one_or_batch",))  # one for all items, or one for each
Size = int | Dim
Shape = tuple[Size, ...]


def product(shape: Sequence[Size]) -> tuple[int, Counter[str]]:
    """Of sizes: the whole number, and how often each name occurs."""
    whole, names = 1, Counter()
    for size in shape:
        whole *= size.times if isinstance(size, Dim) else size
        names.update(size.names if isinstance(size, Dim) else ())
    return whole, names


def completed(shape: Sequence[Size], like: Sequence[Size]) -> Shape:
    """A shape whose -1 is replaced by what makes it as large as another."""
    (a, ours), (b, theirs) = product([s for s in shape if s != -1]), product(like)
    rest = tuple((theirs - ours).elements())
    missing = Dim(b // a, rest) if rest else b // a
    return tuple(missing if s == -1 else s for s in shape)


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape of an operation on arrays of two shapes."""
    short, long = sorted((a, b), key=len)
    short = (1,) * (len(long) - len(short)) + short
    assert all(x == y or {1, TIMES} & {x, y} for x, y in zip(short, long)), f"{a} with {b}"
    return tuple(y if x in (1, TIMES) else x for x, y in zip(short, long))


@dataclass
class Parameter:
    """A tensor of a release folder's file.

    Attributes:
        shape: as it is stored.
        name: as it is stored; a network gives it after it has been made.
    """

    shape: tuple[int, ...]
    name: str = ""

    def __mul__(self, other: Array) -> Array:
        return other * self


@dataclass(frozen=True)
class Derived:
    """A tensor of a graph that is computed from a file's when it is loaded.

    Attributes:
        source: the file's tensor.
        make: the computation.
        dtype, shape: of the result.
    """

    source: Parameter
    make: Callable[[np.ndarray], np.ndarray]
    dtype: str
    shape: tuple[int, ...]


def floats(tensor: np.ndarray) -> np.ndarray:
    """A stored tensor as it is, in float32."""
    return np.ascontiguousarray(tensor, np.float32)


@dataclass
class Graph:
    """Nodes and tensors, in the order in which they were added.

    Attributes:
        name: of the graph.
        eight_bits: whether linear layers that allow it multiply in eight bits.
        as_stored: whether the others take their matrices as they are stored, not the other way
            round: no copies are made, but of the providers only the CPU has such a product.
        weights: tensors of files, by their names here.
        constants: small arrays, by name.
    """

    name: str
    eight_bits: bool = False
    as_stored: bool = False
    nodes: list[bytes] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    weights: dict[str, Derived] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    known: dict[Any, Array] = field(default_factory=dict)
    count: int = 0

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> Array:
        """Adds an input of the graph."""
        dims = [str(s) if isinstance(s, Dim) else s for s in shape]
        self.inputs.append(proto.value(name, dtype, dims))
        return Array(self, name, shape, dtype)

    def output(self, name: str, x: Array) -> None:
        """Makes an array an output of the graph."""
        self.nodes.append(proto.node("Identity", [x.name], [name]))
        dims = [str(s) if isinstance(s, Dim) else s for s in x.shape]
        self.outputs.append(proto.value(name, x.dtype, dims))

    def op(
        self,
        kind: str,
        inputs: Sequence[Array | None],
        shape: Shape,
        *,
        dtype: str | None = None,
        domain: str = "",
        **attributes: proto.Attribute,
    ) -> Array:
        """Adds a node with one output.

        Args:
            inputs: None is one that is left out.
            shape: of the output.
            dtype: of the output; that of the first input if it is left out.
        """
        self.count += 1
        name = f"t{self.count}"
        given = ["" if x is None else x.name for x in inputs]
        self.nodes.append(proto.node(kind, given, [name], domain, attributes))
        first = next((x.dtype for x in inputs if x is not None), "float32")
        return Array(self, name, shape, dtype or first)

    def constant(self, values: Any, dtype: str) -> Array:
        """A small array, stored in the graph once."""
        array = np.asarray(values, dtype)
        key = dtype, array.shape, array.tobytes()
        if key not in self.known:
            name = f"c{len(self.constants)}"
            self.constants[name] = array
            self.known[key] = Array(self, name, array.shape, dtype)
        return self.known[key]

    def weight(
        self,
        source: Parameter,
        make: Callable[[np.ndarray], np.ndarray] = floats,
        dtype: str = "float32",
        shape: tuple[int, ...] | None = None,
    ) -> Array:
        """A tensor of a file, or what is made of it."""
        name = source.name if make is floats else f"{source.name}:{make.__name__}"
        shape = source.shape if shape is None else shape
        self.weights[name] = Derived(source, make, dtype, shape)
        return Array(self, name, shape, dtype)

    def tensors(self, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The weights' values, from a file's tensors."""
        return {n: w.make(stored[w.source.name]) for n, w in self.weights.items()}

    def model(self, where: Callable[[str, Derived], bytes]) -> bytes:
        """The ONNX model.

        Args:
            where: the TensorProto of a weight.
        """
        tensors = [proto.tensor(n, a) for n, a in self.constants.items()]
        tensors += [where(n, w) for n, w in self.weights.items()]
        return proto.model(self.name, self.nodes, tensors, self.inputs, self.outputs)


class Array:
    """The result of a node, or an input, a constant or a weight of a graph.

    Attributes:
        graph, name: where it is.
        shape: its sizes.
        dtype: as NumPy names it.
    """

    def __init__(self, graph: Graph, name: str, shape: Shape, dtype: str):
        self.graph, self.name, self.shape, self.dtype = graph, name, shape, dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def other(self, x: Any) -> Array:
        """What this is combined with, as an array of the same graph."""
        if isinstance(x, Parameter):
            return self.graph.weight(x)
        return x if isinstance(x, Array) else self.graph.constant(x, self.dtype)

    def binary(self, kind: str, x: Any, dtype: str | None = None) -> Array:
        """An operation on this and another array or number."""
        other = self.other(x)
        shape = broadcast(self.shape, other.shape)
        return self.graph.op(kind, (self, other), shape, dtype=dtype)

    def unary(self, kind: str, domain: str = "") -> Array:
        """An operation on each number."""
        return self.graph.op(kind, [self], self.shape, domain=domain)

    def __add__(self, x: Any) -> Array:
        return self.binary("Add", x)

    __radd__ = __add__

    def __sub__(self, x: Any) -> Array:
        return self.binary("Sub", x)

    def __mul__(self, x: Any) -> Array:
        return self.binary("Mul", x)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> Array:
        return self.binary("Div", x)

    def __pow__(self, power: float) -> Array:
        if power == 2:
            return self * self
        assert power == 0.5, power
        return self.unary("Sqrt")

    def __ge__(self, x: Any) -> Array:
        return self.binary("GreaterOrEqual", x, "bool")

    def __ne__(self, x: Any) -> Array:  # type: ignore[override]
        return self.binary("Equal", x, "bool").unary("Not")

    def to(self, dtype: str) -> Array:
        """Cast to another type."""
        if dtype == self.dtype:
            return self
        return self.graph.op("Cast", [self], self.shape, dtype=dtype, to=proto.TYPES[dtype])

    def sum(self, axis: int, keepdims: bool = False) -> Array:
        """Sum over an axis."""
        return self.reduced("ReduceSum", axis, keepdims)

    def any(self, axis: int) -> Array:
        """Whether any is true along an axis."""
        return self.to("float32").sum(axis) != 0

    def reduced(self, kind: str, axis: int, keepdims: bool) -> Array:
        """A reduction over one axis; since which version axes are an input differs by kind."""
        axis %= self.ndim
        shape = self.shape[:axis] + ((1,) if keepdims else ()) + self.shape[axis + 1 :]
        if kind == "ReduceSum":
            axes = self.graph.constant([axis], "int64")
            return self.graph.op(kind, [self, axes], shape, keepdims=int(keepdims))
        return self.graph.op(kind, [self], shape, keepdims=int(keepdims), axes=[axis])

    def reshape(self, *sizes: Size) -> Array:
        """The same numbers in another shape; one size may be -1."""
        shape = completed(sizes, self.shape)
        if shape == self.shape:
            return self
        kept = [i < self.ndim and s == self.shape[i] for i, s in enumerate(shape)]
        wanted: list[Any] = [
            s if isinstance(s, int) else 0 if k else -1 for s, k in zip(shape, kept)
        ]
        if wanted.count(-1) <= 1:
            target = self.graph.constant(wanted, "int64")
        else:
            raise NotImplementedError(f"{self.shape} to {shape}")
        return self.graph.op("Reshape", [self, target], shape)

    def __getitem__(self, key: Any) -> Array:
        """Slices, new axes, and one number of the last axis."""
        x, axis = self, 0
        keys = key if isinstance(key, tuple) else (key,)
        if keys[0] is Ellipsis:
            named = sum(k is not None for k in keys[1:])
            keys = (slice(None),) * (self.ndim - named) + keys[1:]
        for k in keys:
            if k is None:
                shape = (*x.shape[:axis], 1, *x.shape[axis:])
                axes = self.graph.constant([axis], "int64")
                x = self.graph.op("Unsqueeze", [x, axes], shape)
                axis += 1
            elif isinstance(k, slice):
                x = x.part(axis, k.start or 0, k.stop)
                axis += 1
            else:
                x = x.part(axis, k, k + 1)
                axes = self.graph.constant([axis], "int64")
                x = self.graph.op("Squeeze", [x, axes], x.shape[:axis] + x.shape[axis + 1 :])
        return x

    def part(self, axis: int, start: int, stop: Size | None) -> Array:
        """Numbers from start to stop along an axis."""
        size = self.shape[axis]
        if start == 0 and (stop is None or stop == size):
            return self
        assert isinstance(size, int) and (stop is None or isinstance(stop, int)), (size, stop)
        first, last, _ = slice(start, stop).indices(size)
        if (first, last) == (0, size):
            return self
        bounds = [self.graph.constant([n], "int64") for n in (first, last, axis)]
        shape = (*self.shape[:axis], last - first, *self.shape[axis + 1 :])
        return self.graph.op("Slice", [self, *bounds], shape)

    def swapped(self) -> Array:
        """(B, N, D) to (B, D, N)."""
        a, b, c = self.shape
        return self.graph.op("Transpose", [self], (a, c, b), perm=[0, 2, 1])
