"""Speed: torch.compile and activation checkpointing of transformer blocks. No data, no optimizer.

Both wrap `block.forward`, so that parameter names do not change. A copy of a module made afterwards
would use the original's weights: copy first.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nanospeech.config import option
from nanospeech.errors import InputError
from nanospeech_torch import packed

from .tensor_split import blocks as blocks_of

MODES = ("off", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
GRAPHS = ("reduce-overhead", "max-autotune")  # those with CUDA graphs


@dataclass(frozen=True)
class SpeedConfig:
    """Speed and memory options; they do not change what a model computes."""

    compile: str = option(
        "off",
        "torch.compile of each block: off, default, max-autotune-no-cudagraphs; or of all blocks "
        "as one, with CUDA graphs: reduce-overhead, max-autotune",
    )
    checkpoint_interval: int = option(
        0, "recompute every Nth block in backward instead of keeping its activations; 0: none"
    )
    checkpoint_ops: bool = option(
        False, "in those blocks (all if interval is 0) keep outputs of matmuls and attention"
    )

    def __post_init__(self):
        if self.compile not in MODES:
            raise InputError(f"speed.compile {self.compile!r}; choose from {', '.join(MODES)}")
        if self.checkpoint_interval < 0:
            raise InputError(
                f"speed.checkpoint_interval is {self.checkpoint_interval}, should be 0 or more"
            )

    @property
    def interval(self) -> int:
        """Distance between checkpointed blocks; 0 for none."""
        return self.checkpoint_interval or int(self.checkpoint_ops)


def check_graphs(config: SpeedConfig, accumulate: int, split: bool) -> None:
    """Raises InputError for CUDA graphs where they would be recorded over and over.

    Args:
        config: of the run.
        accumulate: micro-batches of a step.
        split: whether weights are split over processes.
    """
    if config.compile not in GRAPHS or (accumulate == 1 and not split):
        return
    if split:
        why = "parallel.shard or parallel.tensor > 1, whose weights are somewhere else at each use"
    else:
        why = f"train.accumulate={accumulate}, whose gradients outlast the graph of a micro-batch"
    raise InputError(
        f"speed.compile={config.compile} records CUDA graphs, which do not go with {why}; take "
        "speed.compile=default or max-autotune-no-cudagraphs"
    )


def apply_speed(
    objective: nn.Module,
    config: SpeedConfig,
    shapes: int = 8,
    backend: str | Callable = "inductor",
    sharded: bool = False,
) -> None:
    """Compiles and checkpoints the transformer blocks of an objective, in place.

    Belongs after the tensor split and before the sharding (Parallel.wrap's `speed`). Each kind of
    block is compiled once for each shape and shared by all blocks of that kind. Where CUDA graphs
    are recorded, all blocks are compiled as one function: a graph holds the addresses of weights,
    so that a shared block would be recorded, and launched, once for each block.

    Args:
        objective: Nanospeech, DurationPredictor, Echo or any module with
            transformer.transformer_blocks; its teachers' blocks are compiled with its own.
        shapes: batch shapes to expect (BatchPlan.buckets); sets how often blocks may be compiled.
        backend: torch.compile's.
        sharded: blocks fetch their weights one by one (FSDP2): they cannot be one function.

    Raises:
        InputError: the objective has no transformer blocks, but something was asked of them.
    """
    if config.compile == "off" and not config.interval:
        return
    network = getattr(objective, "transformer", None)
    blocks = blocks_of(objective)
    if not blocks:
        raise InputError(
            f"speed.* works on transformer blocks, and {type(objective).__name__} has none; "
            "leave compile off and checkpoint_interval at 0"
        )
    forward = type(blocks[0]).forward
    drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in blocks[0].modules())
    kinds: dict[bool, Callable] = {False: forward}
    if config.interval:
        kinds[True] = checkpointed(forward, config.checkpoint_ops, drops)
    if config.compile != "off":
        allow_shapes(shapes)
    one = config.compile in GRAPHS and not sharded
    if config.compile != "off" and not one:
        split = any(hasattr(p, "to_local") for p in blocks[0].parameters())
        kinds = {k: compiled(f, config.compile, backend, split) for k, f in kinds.items()}
    for index, block in enumerate(blocks):
        again = bool(config.interval) and (index + 1) % config.interval == 0
        if kinds[again] is not forward:
            block.forward = types.MethodType(kinds[again], block)
    if config.compile != "off" and not one:
        for teacher in getattr(objective, "teachers", tuple)():
            for block in teacher.transformer_blocks:
                block.forward = types.MethodType(kinds[False], block)
    if one:
        run: Any = compiled(type(network).run_blocks, config.compile, backend)  # type: ignore
        network.run_blocks = types.MethodType(run, network)  # type: ignore[union-attr]


def compiled(
    function: Callable, mode: str, backend: str | Callable, split: bool = False
) -> Callable:
    """A function compiled for each shape that it is called with; on the CPU once for all shapes.

    What a shape known in advance gains on a GPU it does not there, where most of the gain is in
    joined element-wise operations.

    Args:
        split: its weights are split over processes: torch 2.13 ends in an endless recursion where
            it traces such a product for all shapes at once.
    """
    on_cpu = not torch.cuda.is_available()
    options: dict[str, Any] = {"backend": backend, "dynamic": on_cpu and not split}
    if backend == "inductor":
        options["mode"] = None if mode == "default" else mode
        if on_cpu:  # two small graphs: a pool of processes takes longer to start than to compile
            from torch._inductor import config

            config.compile_threads = 1
    return torch.compile(function, **options)


def checkpointed(forward: Callable, keep_ops: bool, drops: bool) -> Callable:
    """A forward that keeps its inputs (and dear results, for keep_ops); the rest is done again.

    Args:
        drops: whether it draws random numbers, which must be the same the second time.
    """
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": drops}
    if keep_ops:
        keep: Any = kept_ops()
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, keep)

    def run(block: nn.Module, *args: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(block, *args)
        return checkpoint(forward, block, *args, **options)

    return run


def kept_ops() -> list[Any]:
    """Operations whose results are dear to compute and small to keep.

    Batched products are not among them: on the CPU those are attention's (N, N) scores.
    """
    aten = torch.ops.aten
    segmented = [torch.ops.torch_attn._varlen_attn.default] if packed.known() else []
    return [
        *segmented,
        aten.mm.default,
        aten.addmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    ]


def allow_shapes(shapes: int) -> None:
    """Lets each compiled function see this many shapes, in training and without gradients."""
    config: Any = torch._dynamo.config  # type: ignore[attr-defined]
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, name, max(getattr(config, name), 2 * shapes + 8))


def recompiles() -> int:
    """Graphs compiled so far in this process: one for each kind of block and shape."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def begin_step() -> None:
    """Tells CUDA graphs that what the last step returned may be overwritten; free of cost else."""
    if torch.cuda.is_available():
        torch.compiler.cudagraph_mark_step_begin()
