"""CPU: faster operations for MLX on x86 processors; GPUs and ARM processors need none of it.

MLX's exp, tanh and erf are not vectorised there and cost more than all of a network's matrix
products, so attention and activations use NumPy's. And MLX's CPU backend has one thread, so the
rows of a batch are computed in several. Results equal MLX's but for rounding. Float32 only.
"""

from __future__ import annotations

import contextlib
import platform
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

X86 = platform.machine().lower() in ("x86_64", "amd64")
PIECE = 1 << 16  # numbers at a time: 256 KB, which stay in a core's cache
own = threading.local()
free: deque[Any] = deque()  # streams of threads that have ended
# erf(x) / x as a quotient of polynomials in x * x, of least greatest error (2e-8, found by Lawson's
# iteration) for x in [-3.92, 3.92]; beyond it erf is 1 in float32
ERF_END = 3.92
ERF_OVER = (1.12837902, 0.192766268, 0.0530607315, 0.00386841231, 0.000287479522, 2.03469325e-06)
ERF_UNDER = (1.0, 0.504166323, 0.115085495, 0.0151724654, 0.00118813256, 3.80702193e-05)


def slow(x: mx.array) -> bool:
    """Whether these operations should be used for an array; never while MLX compiles."""
    plain = X86 and x.dtype == mx.float32 and mx.default_device() == mx.cpu
    return plain and not getattr(own, "compiling", False)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Switches these operations off within the context: MLX compiles only its own."""
    own.compiling = True
    try:
        yield
    finally:
        own.compiling = False


def elementwise(function: Callable[[np.ndarray], np.ndarray], x: mx.array) -> mx.array:
    """A function of each number, by NumPy; it must not change its argument, which is MLX's."""
    flat = np.array(x, copy=False).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, PIECE):
        part = slice(start, start + PIECE)
        out[part] = function(flat[part])
    return mx.array(out).reshape(x.shape)


def polynomial(x: np.ndarray, factors: Sequence[float]) -> np.ndarray:
    """The sum of factors[i] * x**i, by Horner's rule."""
    total = x * np.float32(factors[-1])
    for factor in factors[-2:0:-1]:
        total += np.float32(factor)
        total *= x
    return total + np.float32(factors[0])


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, float32."""
    x = np.clip(x, np.float32(-ERF_END), np.float32(ERF_END))
    square = x * x
    return x * polynomial(square, ERF_OVER) / polynomial(square, ERF_UNDER)


def attention(
    q_BHNE: mx.array, k_BHNE: mx.array, v_BHNE: mx.array, mask_BN: mx.array | None
) -> mx.array:
    """As layers.attention, a head at a time."""
    batch, heads, _, width = q_BHNE.shape
    q_BHNE = q_BHNE * width**-0.5
    out = []
    for b in range(batch):
        unseen = None if mask_BN is None else ~np.array(mask_BN[b])
        for h in range(heads):
            scores = np.array(q_BHNE[b, h] @ k_BHNE[b, h].T)
            if unseen is not None:
                scores[:, unseen] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            total = scores.sum(axis=-1, keepdims=True)
            out.append((mx.array(scores) @ v_BHNE[b, h]) / mx.array(total))
    return mx.stack(out).reshape(batch, heads, *out[0].shape)


def side_by_side(
    network: Callable[..., mx.array], inputs: Sequence[mx.array | None], parts: int
) -> mx.array:
    """A network's output for a batch, whose rows are computed by several threads.

    Args:
        inputs: each (B, ...), or one row for all, or None.
        parts: threads.
    """
    batch = len(inputs[0])  # type: ignore[arg-type]
    mx.eval([a for a in inputs if a is not None])

    def rows(part: int) -> mx.array:
        mine = slice(part * batch // parts, (part + 1) * batch // parts)
        with mx.stream(stream()):
            out = network(*(a if a is None or len(a) != batch else a[mine] for a in inputs))
            mx.eval(out)
        return out

    return mx.concatenate(list(pool(parts).map(rows, range(parts))))


class Lent:
    """A stream that is free again when this is: with the thread whose attribute it is."""

    def __init__(self) -> None:
        try:
            self.stream = free.pop()
        except IndexError:
            self.stream = mx.new_thread_unsafe_stream(mx.cpu)

    def __del__(self, give_back: Callable[[Any], None] = free.append) -> None:
        give_back(self.stream)


def use_streams_again() -> None:
    """Gives this thread the stream of one that has ended; the main thread keeps its own.

    MLX makes one for each thread and keeps it, in the end with a thread of the system: a server
    with a thread for each request would have ever more of them. Older versions have one for all.
    """
    if hasattr(own, "lent") or threading.current_thread() is threading.main_thread():
        return
    if hasattr(mx, "new_thread_unsafe_stream"):
        own.lent = Lent()
        mx.set_default_stream(own.lent.stream)


def stream() -> Any:
    """This thread's own stream."""
    if not hasattr(own, "stream"):
        own.stream = mx.new_stream(mx.cpu)
    return own.stream


@cache
def pool(count: int) -> ThreadPoolExecutor:
    """Threads to compute in."""
    return ThreadPoolExecutor(count, thread_name_prefix="mlx-cpu")
