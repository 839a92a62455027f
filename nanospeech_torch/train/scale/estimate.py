"""Estimate: weights, memory and operations of a run before anything is allocated.

Weights are counted on the "meta" device. Memory is an estimate: what training keeps between forward
and backward, tensor by tensor, plus the optimizer's state. It leaves out the CUDA context (about
0.5 GB), fragmentation, communication buffers beyond two blocks, and what compilation saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from nanospeech.config import AudioConfig, DiTConfig, DurationConfig, from_dict
from nanospeech.errors import InputError
from nanospeech_torch.dit import DiT
from nanospeech_torch.duration import DurationHead, DurationTransformer
from nanospeech_torch.engine import weightless

from .profile import step_flops, train_flops

GB = 1e9
CARDS = (24, 40, 80, 141)  # GB of memory of common GPUs
ROOM = 0.92  # share of a card's memory that can be used, without CUDA context and fragmentation


@dataclass(frozen=True)
class Workload:
    """The work of one process in a micro-batch, and how the model is split.

    Args:
        config: the network.
        batch, frames, tokens: padded shape of a micro-batch of one process.
        precision: no, bf16 or fp16, as Accelerate names them.
        replicate, shard, tensor: see parallel.ParallelConfig.
        checkpoint_interval: every Nth block is recomputed in the backward pass; 0: none.
        checkpoint_ops: recompute cheap operations alone, keep products and attention.
        moments: float32 numbers that the optimizer keeps a weight: AdamW 2, Muon 1.
        average: whether there is an EMA.
        device: "cpu" counts the written-out attention that training uses there.
    """

    config: DiTConfig | DurationConfig
    batch: int
    frames: int
    tokens: int
    precision: str = "bf16"
    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    checkpoint_interval: int = 0
    checkpoint_ops: bool = False
    moments: float = 2
    average: bool = True
    device: str = "cuda"

    @property
    def places(self) -> int:
        """Length of the sequence that the transformer sees."""
        if isinstance(self.config, DurationConfig):
            along = self.config.prompt == "frames"
            return max(self.frames, self.tokens) if along else self.tokens
        return -(-self.frames // self.config.patch_size)

    @property
    def half(self) -> int:
        """Bytes of a number in matrix products."""
        return 4 if self.precision == "no" else 2


@dataclass(frozen=True)
class Memory:
    """Bytes of one process."""

    weights: int
    gradients: int
    moments: int
    average: int
    copies: int  # autocast's copies of weights, or the blocks that FSDP has gathered
    activations: int  # kept from forward to backward
    transient: int  # gradients of activations, recomputed blocks

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))


@cache  # a page of estimates asks for the same many times, each by building a model
def count_weights(config: DiTConfig | DurationConfig) -> Mapping[str, int]:
    """Weights by part; "blocks" is of all blocks, of which "split" can be split by tensor."""
    with weightless():
        speech = isinstance(config, DiTConfig)
        model = DiT(config) if speech else DurationHead(DurationTransformer(config))
    parts: dict[str, int] = {}
    split = 0
    for name, p in model.named_parameters():
        name = name.removeprefix("transformer.")
        part = name.split(".")[0]
        part = {"transformer_blocks": "blocks", "norm_out": "output", "proj_out": "output"}.get(
            part, part
        )
        parts[part] = parts.get(part, 0) + p.numel()
        rows = ("to_out.0.weight", "ff.ff.2.weight")
        columns = ("to_q.", "to_k.", "to_v.", "ff.ff.0.0.", "attn_norm.linear.")
        if part == "blocks" and any(key in name for key in rows + columns):
            split += p.numel()
    return MappingProxyType({**parts, "total": sum(parts.values()), "split": split})


def muon_share(config: DiTConfig | DurationConfig) -> float:
    """The share of the weights that are Muon's: the blocks' matrices without adaLN."""
    counts = count_weights(config)
    parts = 6 if isinstance(config, DiTConfig) else 0
    adaln = config.depth * parts * config.dim * (config.dim + 1)
    return (counts["split"] - adaln) / counts["total"]


def block_bytes(work: Workload) -> int:
    """What one block keeps for its backward pass."""
    c, h, t = work.config, work.half, work.tensor
    rows = work.batch * work.places
    inner, hidden = c.heads * c.dim_head // t, c.ff_mult * c.dim // t
    # autocast on a GPU: norms are in float32, and each product makes a half copy of its input
    norm, copies = (h, 1) if work.device == "cpu" or h == 4 else (4, 3)
    wide = 4 * norm + copies * h + 3 * h  # norms' ends; inputs of q, k, v; of ff; of gates
    if isinstance(c, DurationConfig):
        wide -= 2 * norm + 2 * h  # no shift, scale and gate
    total = rows * (c.dim * wide + 4 * inner * h + 2 * hidden * h)
    if c.qk_norm:
        total += rows * 2 * inner * h
    if c.dropout:
        total += rows * (c.dim + hidden) * (h if work.device == "cpu" else 1)
    if work.device == "cpu":  # attention is written out: scores, their mask, a copy of v
        scores = work.batch * c.heads // t * work.places**2
        total += scores * h + rows * inner * h
    return total


def stem_bytes(work: Workload) -> int:
    """Bytes kept by everything but the blocks: text, input and output."""
    c, h = work.config, work.half
    rows = work.batch * work.places
    patch = getattr(c, "patch_size", 1)
    along = getattr(c, "text_upsampling", "none") == "none"
    text_rows = rows if along else work.batch * work.tokens
    text = text_rows * c.text_dim * c.conv_layers * (3 * 4 + 2 * h + 4 * 2 * h + 2 * 4)
    mels = (1 if isinstance(c, DurationConfig) else 2) * c.n_mels * patch
    entry = rows * ((mels + c.text_dim) * h + 4 * c.dim * h)
    out = rows * c.dim * (2 * (h if work.device == "cpu" else 4) + h)
    data = work.batch * work.frames * c.n_mels * 4 * (3 if isinstance(c, DiTConfig) else 2)
    return text + entry + out + data


def activation_bytes(work: Workload) -> tuple[int, int]:
    """Bytes kept from forward to backward, and the peak on top during backward."""
    c, rows = work.config, work.batch * work.places
    block = block_bytes(work)
    every = work.checkpoint_interval
    lean = c.depth // every if every else 0
    kept = rows * c.dim * 4  # a recomputed block keeps its input
    if work.checkpoint_ops:
        inner, hidden = c.heads * c.dim_head // work.tensor, c.ff_mult * c.dim // work.tensor
        kept += rows * work.half * (4 * inner + hidden + 2 * c.dim)
        lean = lean or c.depth
    total = stem_bytes(work) + (c.depth - lean) * block + lean * kept
    return total, (2 if lean else 1) * block


def estimate(work: Workload) -> Memory:
    """The memory of one process in training; an estimate, see the module."""
    counts = count_weights(work.config)
    inside = counts["split"] // work.tensor
    block = (counts["blocks"] - counts["split"] + inside) // work.config.depth
    rest = counts["total"] - counts["blocks"]
    own = (rest + block * work.config.depth) // work.shard
    if work.shard > 1 or work.tensor > 1:
        # FSDP: two blocks gathered and one being reduced, and the rest throughout
        copies = 2 * block * work.half + 4 * block + 4 * rest
    else:
        copies = 0 if work.half == 4 else 2 * counts["total"]
    activations, transient = activation_bytes(work)
    return Memory(
        weights=4 * own,
        gradients=4 * own,
        moments=round(4 * own * work.moments),
        average=4 * own * work.average,
        copies=copies,
        activations=activations,
        transient=transient,
    )


def get(run: Any, path: str, default: Any = None) -> Any:
    """The value at "a.b" in nested mappings or dataclasses."""
    for name in path.split("."):
        run = run.get(name) if isinstance(run, Mapping) else getattr(run, name, None)
        if run is None:
            return default
    return run


def section(run: Any, name: str, cls: type) -> Any:
    """A config section, made from a mapping where it is not one yet."""
    found = get(run, name, {})
    return from_dict(cls, dict(found), name) if isinstance(found, Mapping) else found


def workload(run: Any, text_num_embeds: int | None = None) -> Workload:
    """The fullest micro-batch of a run.

    Args:
        run: a RunConfig or the mapping of its YAML file.
        text_num_embeds: tokens of the vocabulary, where it is known.

    Raises:
        InputError: neither a speech nor a duration model.
    """
    kind = get(run, "model", "speech")
    if kind not in ("speech", "duration"):
        raise InputError(f"a dry run knows speech and duration models, not {kind!r}")
    speech = kind == "speech"
    config = section(run, "dit" if speech else "duration", DiTConfig if speech else DurationConfig)
    if text_num_embeds:
        config = dataclasses.replace(config, text_num_embeds=text_num_embeds)
    frames = get(run, "data.max_duration", 937)
    batch = max(
        1,
        min(get(run, "data.batch_size", 64), get(run, "data.max_batch_frames", 30_000) // frames),
    )
    return Workload(
        config=config,
        batch=batch,
        frames=frames,
        tokens=-(-frames // 6 // 32) * 32,  # English: 15 characters a second
        precision=get(run, "mixed_precision", "no") or "no",  # which YAML takes for a boolean
        replicate=get(run, "parallel.replicate", 0),
        shard=get(run, "parallel.shard", 1),
        tensor=get(run, "parallel.tensor", 1),
        checkpoint_interval=int(get(run, "speed.checkpoint_interval", 0)),
        checkpoint_ops=bool(get(run, "speed.checkpoint_ops", False)),
        moments=2 - muon_share(config) * (get(run, "optimizer.name", "adamw") == "muon"),
    )


def layouts(work: Workload) -> list[tuple[str, Workload]]:
    """The configured split and the usual ones, with names."""
    asked = f"configured: replicate {work.replicate or 'all'}"
    asked += f", shard {work.shard}, tensor {work.tensor}"
    rows = [(asked, work)]
    for name, replicate, shard, tensor in (
        ("DDP", 1, 1, 1),
        ("FSDP2 x8", 1, 8, 1),
        ("HSDP 2x8", 2, 8, 1),
        ("tensor x2", 1, 1, 2),
        ("tensor x4", 1, 1, 4),
        ("tensor x8", 1, 1, 8),
        ("FSDP2 x8, tensor x2", 1, 8, 2),
    ):
        c = work.config
        if c.heads % tensor == 0 and (c.ff_mult * c.dim) % tensor == 0:
            changes = {"replicate": replicate, "shard": shard, "tensor": tensor}
            rows.append((name, dataclasses.replace(work, **changes)))
    return rows


def dry_run(run: Any, text_num_embeds: int | None = None) -> str:
    """A page on a run: weights by part, operations, memory per process for ways to split it.

    Args:
        run: a RunConfig, or the mapping of its YAML file.
        text_num_embeds: tokens of the vocabulary, where it is known.
    """
    work = workload(run, text_num_embeds)
    audio: AudioConfig = section(run, "audio", AudioConfig)
    counts = count_weights(work.config)
    flops = step_flops(work.config, work.batch, work.frames, work.tokens)
    total = train_flops(work.config, work.batch, work.frames, work.tokens)
    accumulate = get(run, "train.accumulate", 1)
    frames = work.batch * work.frames
    known = "in use" if text_num_embeds else "assumed: the vocabulary is not there yet"
    lines = [f"weights, for {work.config.text_num_embeds:,} tokens ({known})"]
    lines += [f"  {k:<22}{v:>16,}" for k, v in counts.items() if k not in ("total", "split")]
    lines += [f"  {'all':<22}{counts['total']:>16,}", "", "a full micro-batch of one process"]
    lines += [
        f"  {work.batch} x {work.frames} frames = {frames:,} frames"
        f" ({frames / audio.frame_rate:,.0f} s), {work.batch} x {work.tokens} tokens",
        f"  {total / 1e12:,.2f} TFLOP forward and backward, {total / frames / 1e6:,.0f} MFLOP a"
        " frame: "
        + ", ".join(f"{k.replace('_', '-')} {v / total:.0%}" for k, v in flops.items() if v),
        "",
        f"memory, GB, and TFLOP of one process in an optimiser step of {accumulate} micro-batch"
        f"{'es' if accumulate > 1 else ''}",
        f"estimated for {work.precision}, checkpoint_interval {work.checkpoint_interval}, "
        f"checkpoint_ops {work.checkpoint_ops}; fits: cards of so many GB",
        f"  {'':<45}{'weights':>8}{'grads':>7}{'optim':>7}{'EMA':>7}{'copies':>8}{'activ.':>8}"
        f"{'all':>8}{'TFLOP':>9}  fits",
    ]
    for name, way in layouts(work):
        lines.append(layout_line(name, way, accumulate * total / way.tensor))
    return "\n".join(lines)


def layout_line(name: str, way: Workload, flops: float) -> str:
    """A row of dry_run's table."""
    m = estimate(way)
    fits = ", ".join(str(card) for card in CARDS if m.total <= ROOM * card * GB) or "none"
    figures = (m.weights, m.gradients, m.moments, m.average, m.copies)
    cells = "".join(f"{v / GB:>{w}.1f}" for v, w in zip(figures, (8, 7, 7, 7, 8)))
    activations = (m.activations + m.transient) / GB
    return (
        f"  {name:<45}{cells}{activations:>8.1f}{m.total / GB:>8.1f}{flops / 1e12:>9,.1f}  {fits}"
    )
