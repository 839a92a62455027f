"""Parts: where the time of an utterance goes, and how fast the machine multiplies matrices.

    python -m scripts.benchmarks.parts   reads a Cell as JSON from standard input; see serve.py

After each part there is a synchronisation, which a GPU or MLX's graph would not have otherwise:
shares are right, but their sum is more than the time of an utterance.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from .serve import serve
from .speech import Cell, Job, Sampling

SIDE = 1024  # of the matrices whose product's rate is measured with MLX and ONNX Runtime
# parts of an utterance, and the class of both backends whose calls they are
PARTS = {
    "text": ("dit", "TextEmbedding"),
    "input": ("dit", "InputEmbedding"),
    "adaLN": ("dit", "AdaLayerNorm"),
    "attention": ("dit", "Attention"),
    "feed-forward": ("dit", "FeedForward"),
    "vocoder": ("vocoder", "Vocos"),
}
REST = "rest"
# kinds of operations of PyTorch, by the first pattern that is found in an event's name
KINDS = {
    "matrix products": r"addmm|bmm|::mm$|linear|matmul|gemm|cutlass",
    "attention": r"scaled_dot_product|flash|fmha",
    "convolutions": r"conv",
    "norms": r"norm",
    "Fourier transforms": r"fft|stft",
    "activations": r"gelu|silu|mish|softmax|sigmoid|tanh|exp|sin|cos",
    "sums and products": r"mul|add|sub|div|sum|mean|pow|sqrt|where|clamp|min|max",
    "copies": r"copy|cat|clone|::to$|contiguous|stack|gather|index|pad|fill|zero|empty|arange",
}


class Parts(Sampling):
    """Seconds of each part of an utterance, for PyTorch and MLX: in ONNX all are one call."""

    def __init__(self, cell: Cell):
        super().__init__(cell)
        self.parts = dict.fromkeys(PARTS, 0.0)
        for part, (module, name) in PARTS.items():
            package = importlib.import_module(f"nanospeech_{self.engine.backend}.{module}")
            self.clock(getattr(package, name), part)

    def clock(self, kind: Any, part: str) -> None:
        """Adds up the seconds of the calls of a class's objects, in this process for ever."""
        call, parts, settle = kind.__call__, self.parts, self.settle

        def timed(module: Any, *args: Any) -> Any:
            settle(args)
            begin = time.perf_counter()
            out = call(module, *args)
            settle(out)
            parts[part] += time.perf_counter() - begin
            return out

        kind.__call__ = timed

    def settle(self, values: Any) -> None:
        """Waits until arrays are computed."""
        if isinstance(values, (tuple, list)):
            for value in values:
                self.settle(value)
        elif hasattr(values, "shape"):
            self.engine.ready(values)

    def measure(self) -> dict[str, float]:
        self.parts.update(dict.fromkeys(PARTS, 0.0))
        figures = super().measure()
        rest = figures["seconds"] - sum(self.parts.values())
        return {**figures, **self.parts, REST: max(0.0, rest)}


class Kinds(Sampling):
    """Seconds of each kind of operation, by torch.profiler."""

    def measure(self) -> dict[str, float]:
        from torch.profiler import ProfilerActivity, profile

        gpu = self.engine.device.startswith("cuda")
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * gpu
        with profile(activities=activities) as profiled:
            self.sample()
        found = dict.fromkeys((*KINDS, REST), 0.0)
        for event in profiled.key_averages():
            own = event.self_device_time_total if gpu else event.self_cpu_time_total
            found[kind_of(event.key)] += own / 1e6
        return found


def kind_of(name: str) -> str:
    """The kind of an operation or kernel."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), REST)


class Matmul(Job):
    """FLOP/s of a large matrix product in the weights' type, as a reference."""

    def measure(self) -> dict[str, float]:
        if self.engine.backend == "mlx":
            return {"rate": mlx_rate(self.engine, self.engine.dtype)}
        if self.engine.backend == "onnx":
            return {"rate": onnx_rate(self.engine)}
        import torch

        from nanospeech_torch.train.scale import profile

        profile.measured_peak.cache_clear()
        peak = profile.peak_flops(self.engine.device, getattr(torch, self.engine.dtype))
        return {"rate": peak.flops}


def mlx_rate(engine: Any, dtype: str) -> float:
    """FLOP/s of a square matrix product."""
    import mlx.core as mx

    with engine.context():
        a = mx.ones((SIDE, SIDE), dtype=getattr(mx, dtype))
        mx.eval(a)
        return best_rate(lambda: mx.eval(a @ a))


def onnx_rate(engine: Any) -> float:
    """FLOP/s of a square matrix product, with one side a weight."""
    import numpy as np

    from nanospeech_onnx.graph import Graph
    from nanospeech_onnx.layers import Linear

    g, side = Graph("matmul"), np.ones((SIDE, SIDE), np.float32)
    layer = Linear(SIDE, SIDE, bias=False)
    layer.weight.name = "weight"
    g.output("product", layer(g.input("x", (SIDE, SIDE))))
    session = engine.place.session(g, {"weight": side})
    return best_rate(lambda: session(x=side))


def best_rate(multiply: Callable[[], Any]) -> float:
    """FLOP/s of the best product of SIDE in about a second; the first one is not counted."""
    multiply()
    best, end = float("inf"), time.perf_counter() + 1.0
    while time.perf_counter() < end:
        begin = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - begin)
    return 2 * SIDE**3 / best


def make(values: dict[str, Any]) -> Any:
    """The work of a cell."""
    cell = Cell(**values)
    return {"parts": Parts, "kinds": Kinds, "matmul": Matmul}[cell.kind](cell)


if __name__ == "__main__":
    sys.exit(serve(make))
