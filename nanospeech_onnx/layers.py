"""Layers: the building blocks in which ONNX graphs differ from MLX and PyTorch. Knows no model.

They take and return Arrays of graph.py, all without padding: items of one length are one run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .eight_bits import int8_codes, int8_scales
from .graph import Array as Node
from .graph import Dim, Parameter, Size, floats
from .proto import CONTRIBUTED

Array = Any  # as the networks call what is a Node here
Angles = tuple[Node, Node]
# layers that may multiply in eight bits: of each place, in blocks
IN_EIGHT_BITS = re.compile(r"^transformer\.transformer_blocks\.\d+\.(attn\.to_|ff\.)")


class Module:
    """A part of a network: attributes that are Parameters or Modules, and a call."""

    def __init__(self):
        pass

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError

    def children(self) -> Iterator[tuple[str, Any]]:
        """Names and values of its attributes."""
        yield from vars(self).items()

    def parameters(self, prefix: str = "") -> Iterator[Parameter]:
        """All parameters; gives them their names."""
        for name, value in self.children():
            if isinstance(value, Parameter):
                value.name = prefix + name
                yield value
            elif isinstance(value, Module):
                yield from value.parameters(f"{prefix}{name}.")


class ModuleList(Module):
    """Modules by number."""

    def __init__(self, modules: Iterable[Module]):
        super().__init__()
        self.modules = list(modules)

    def children(self) -> Iterator[tuple[str, Any]]:
        yield from ((str(i), m) for i, m in enumerate(self.modules))

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, i: int) -> Any:
        return self.modules[i]


class Sequential(ModuleList):
    """Modules one after the other."""

    def __init__(self, *modules: Module):
        super().__init__(modules)

    def __call__(self, x: Node) -> Node:
        for module in self.modules:
            x = module(x)
        return x


class Linear(Module):
    """x @ weight.T + bias."""

    def __init__(self, dim_in: int, dim_out: int, bias: bool = True):
        super().__init__()
        self.weight = Parameter((dim_out, dim_in))
        self.bias = Parameter((dim_out,)) if bias else None

    def __call__(self, x: Node) -> Node:
        g, turned = x.graph, self.weight.shape[::-1]
        shape = (*x.shape[:-1], turned[1])
        if g.eight_bits and IN_EIGHT_BITS.search(self.weight.name):
            codes = g.weight(self.weight, int8_codes, "int8", turned)
            scales = g.weight(self.weight, int8_scales, shape=turned[1:])
            bias = g.weight(self.bias) if self.bias else None
            given = [x, codes, scales, None, bias]
            return g.op("DynamicQuantizeMatMul", given, shape, domain=CONTRIBUTED)
        if not g.as_stored:
            out = g.op("MatMul", [x, g.weight(self.weight, transposed, shape=turned)], shape)
        elif self.bias is not None and x.ndim == 2:
            given = [x, g.weight(self.weight), g.weight(self.bias)]
            return g.op("Gemm", given, shape, transB=1)
        else:
            given = [x, g.weight(self.weight)]
            out = g.op("FusedMatMul", given, shape, domain=CONTRIBUTED, transB=1)
        return out if self.bias is None else out + self.bias


def transposed(tensor: np.ndarray) -> np.ndarray:
    """A stored matrix the other way round, in float32."""
    return np.ascontiguousarray(tensor.T, np.float32)


class Embedding(Module):
    """Rows of a table."""

    def __init__(self, count: int, dim: int):
        super().__init__()
        self.weight = Parameter((count, dim))

    def __call__(self, ids: Node) -> Node:
        table = ids.graph.weight(self.weight)
        shape = (*ids.shape, self.weight.shape[1])
        return ids.graph.op("Gather", [table, ids], shape, dtype="float32")


class Dropout(Module):
    """Nothing: graphs are for speaking."""

    def __init__(self, rate: float):
        super().__init__()

    def __call__(self, x: Node) -> Node:
        return x


class SiLU(Module):
    def __call__(self, x: Node) -> Node:
        return x * x.unary("Sigmoid")


class Mish(Module):
    """x tanh(log(1 + e^x)) as x n / (n + 2) with n = e^x (e^x + 2), without a logarithm."""

    def __call__(self, x: Node) -> Node:
        e = x.binary("Min", 20.0).unary("Exp")  # beyond, it is x
        n = e * (e + 2)
        return x * (n / (n + 2))


class Softplus(Module):
    def __call__(self, x: Node) -> Node:
        return x.unary("Softplus")


class GELU(Module):
    """GELU by erf, or with "tanh" its approximation."""

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.kind = "FastGelu" if approximate == "tanh" else "Gelu"

    def __call__(self, x: Node) -> Node:
        return x.unary(self.kind, domain=CONTRIBUTED)


class Conv1d(Module):
    """Same-length convolution over (B, N, C), with zeros past the ends."""

    def __init__(self, dim: int, kernel_size: int, groups: int = 1, dim_out: int | None = None):
        super().__init__()
        self.weight = Parameter((dim_out or dim, dim // groups, kernel_size))
        self.bias = Parameter((dim_out or dim,))
        self.groups = groups

    def __call__(self, x_BND: Node) -> Node:
        g, (out, _, kernel) = x_BND.graph, self.weight.shape
        # as of a picture one pixel high: that has faster kernels
        x, flat = x_BND.swapped()[:, :, None], g.constant([2], "int64")
        weight = g.weight(self.weight, picture, shape=(*self.weight.shape[:2], 1, kernel))
        inputs, pads = [x, weight, g.weight(self.bias)], [0, kernel // 2, 0, kernel // 2]
        shape = (x.shape[0], out, 1, x.shape[3])
        made = g.op("Conv", inputs, shape, group=self.groups, pads=pads)
        return g.op("Squeeze", [made, flat], (shape[0], out, shape[3])).swapped()


def picture(tensor: np.ndarray) -> np.ndarray:
    """A stored kernel (out, in, K) as that of a picture, (out, in, 1, K)."""
    return floats(tensor)[:, :, None]


class LayerNorm(Module):
    """Layer norm with eps 1e-6; without scale and shift unless asked."""

    def __init__(self, dim: int, affine: bool = False):
        super().__init__()
        self.dim = dim
        self.weight = Parameter((dim,)) if affine else None
        self.bias = Parameter((dim,)) if affine else None

    def __call__(self, x: Node) -> Node:
        g = x.graph
        if self.weight is None or self.bias is None:
            return self.scaled(x, g.constant(np.ones(self.dim), "float32"), None)
        return self.scaled(x, g.weight(self.weight), g.weight(self.bias))

    def scaled(self, x: Node, scale: Node, shift: Node | None) -> Node:
        """The norm of x, times a scale, plus a shift."""
        given = [x, scale, shift] if shift else [x, scale]
        return x.graph.op("LayerNormalization", given, x.shape, axis=-1, epsilon=1e-6)


class RMSNorm(Module):
    """Root-mean-square norm; eps is that of float32, as the published weights were trained."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = Parameter((dim,))

    def __call__(self, x: Any) -> Any:
        if isinstance(x, Heads):
            b, n, both = x.flat.shape
            width = self.weight.shape[0]
            return Heads(self(x.flat.reshape(b, n, -1, width)).reshape(b, n, both), x.heads)
        scale = x.graph.weight(self.weight)
        kind = "SimplifiedLayerNormalization"
        return x.graph.op(kind, [x, scale], x.shape, axis=-1, epsilon=1.1920929e-07)


class Heads:
    """Attention heads (B, H, N, E), kept as they come: (B, N, H * E)."""

    def __init__(self, flat: Node, heads: int):
        self.flat, self.heads = flat, heads


def parameter(value: float, *shape: int) -> Parameter:
    """A learned array."""
    return Parameter(shape)


def zero_(linear: Linear) -> None:
    """Nothing: graphs are not trained."""


def cast(x: Node, like: Any) -> Node:
    """x in the type of another array; parameters are float32."""
    return x.to("float32" if isinstance(like, Parameter) else like.dtype)


def masked(x_BND: Node, mask_BN: Node | None) -> Node:
    """Zeros where the mask is false."""
    return x_BND if mask_BN is None else x_BND * mask_BN[..., None].to(x_BND.dtype)


def global_norm(x_BND: Node) -> Node:
    """L2 norm over the sequence, relative to its mean over channels (ConvNeXt V2's GRN)."""
    norm_B1D = x_BND.reduced("ReduceL2", 1, keepdims=True)
    return norm_B1D / (norm_B1D.reduced("ReduceMean", -1, keepdims=True) + 1e-6)


def sinusoid(time_B: Node, dim: int, scale: float = 1000.0) -> Node:
    """Sine half, then cosine half, of a time in [0, 1]: float32 (B, dim)."""
    half = dim // 2
    steps = np.arange(half, dtype=np.float32)
    rates = np.exp(steps * np.float32(-math.log(10_000) / (half - 1)))
    angles = (time_B * scale)[:, None] * time_B.graph.constant(rates, "float32")
    return concat(angles.unary("Sin"), angles.unary("Cos"))


def places(like: Node) -> Node:
    """0, 1, 2 and so on, to the length of axis 1: float32 (N, 1)."""
    g, length = like.graph, like.shape[1]
    if ("places", length) not in g.known:
        size = g.op("Shape", [like], (1,), dtype="int64", start=1, end=2)
        ends = g.constant(0, "int64"), size.reshape(), g.constant(1, "int64")
        steps = g.op("Range", ends, (length,), dtype="int64")
        g.known["places", length] = steps.to("float32")[:, None]
    return g.known["places", length]


def text_positions(length: Size, dim: Size, like: Node, count: int = 4096) -> Node:
    """Absolute positions of the text: cosine half, then sine half; float32 (length, dim).

    Places from `count` on have that of the last.
    """
    width = whole_size(dim)
    rates = np.float32(10_000) ** -(np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    steps = places(like).binary("Min", float(count - 1))
    angles = steps * like.graph.constant(rates, "float32")
    return concat(angles.unary("Cos"), angles.unary("Sin"))


def modulated(norm: LayerNorm, x_BND: Node, scale_B1D: Node, shift_B1D: Node) -> Node:
    """Layer norm, then scale and shift (adaLN); one item of those serves a whole batch."""
    return norm.scaled(x_BND, scale_B1D + 1, shift_B1D)


def gated(x_BND: Node, gate_B1D: Node, change_BND: Node) -> Node:
    """x plus a scaled change (adaLN)."""
    return x_BND + gate_B1D * change_BND


def rotary_angles(length: Size, dim_head: int, like: Node) -> Angles:
    """Cosine and sine of the rotary angles, each float32 (length, dim_head / 2)."""
    rates = np.float32(10_000) ** -(np.arange(0, dim_head, 2, dtype=np.float32) / dim_head)
    angles = places(like) * like.graph.constant(rates, "float32")
    return angles.unary("Cos"), angles.unary("Sin")


def rotate(x_BHNE: Heads, angles: Angles, heads: int) -> Heads:
    """Rotates interleaved pairs of the first `heads` heads (RoFormer, arXiv 2104.09864)."""
    x, width = x_BHNE.flat, 2 * whole_size(angles[0].shape[1])
    turned = x[..., : heads * width]
    start = x.graph.constant([0], "int64")
    out = x.graph.op(
        "RotaryEmbedding",
        [turned, start, *angles],
        turned.shape,
        domain=CONTRIBUTED,
        interleaved=1,
        num_heads=heads,
    )
    if heads < x_BHNE.heads:
        out = concat(out, x[..., heads * width :])
    return Heads(out, x_BHNE.heads)


def whole_size(size: Size) -> int:
    """A size that does not vary."""
    assert not isinstance(size, Dim), size
    return size


def seen(mask_BN: Any, like: Node, dim_head: int) -> None:
    """The argument of `attention` for a mask of keys: none, as there is no padding."""
    assert mask_BN is None, "items of one length have no padding"


def attention(q_BHNE: Heads, k_BHNE: Heads, v_BHNE: Heads, mask_BN: Any) -> Heads:
    """Softmax attention."""
    assert mask_BN is None, "items of one length have no padding"
    q = q_BHNE.flat
    given = [q, k_BHNE.flat, v_BHNE.flat]
    kind, heads = "MultiHeadAttention", q_BHNE.heads
    return Heads(q.graph.op(kind, given, q.shape, domain=CONTRIBUTED, num_heads=heads), heads)


def split_heads(x_BND: Node, heads: int) -> Heads:
    """(B, N, H*E) to (B, H, N, E)."""
    return Heads(x_BND, heads)


def merge_heads(x_BHNE: Heads) -> Node:
    """(B, H, N, E) to (B, N, H*E)."""
    return x_BHNE.flat


def concat(*parts: Node) -> Node:
    """Joins along the last axis."""
    first = parts[0]
    width = sum(whole_size(p.shape[-1]) for p in parts)
    return first.graph.op("Concat", parts, (*first.shape[:-1], width), axis=-1)


def chunks(x: Node, count: int) -> tuple[Node, ...]:
    """Splits the last axis into equal parts."""
    width = whole_size(x.shape[-1]) // count
    return tuple(x[..., i * width : (i + 1) * width] for i in range(count))


def pad_length(x_BND: Node, length: Size, value: float = 0) -> Node:
    """x itself: what comes here is as long as it should be."""
    assert x_BND.shape[1] == length, f"{x_BND.shape}, not {length} long"
    return x_BND


def length_mask(lens_B: Any, length: Any) -> Any:
    """Not for graphs."""
    raise AssertionError("items of one length have no mask")


longer = check_tokens = length_mask


def gather_tokens(x_BTD: np.ndarray, index_BN: np.ndarray) -> np.ndarray:
    """Row index_BN[b, n] of x_BTD[b] for each frame: (B, N, D), of arrays, not of graphs."""
    return np.take_along_axis(x_BTD, index_BN[..., None], axis=1)
