"""Echo: weights, operations, memory and traffic of training an EchoDiT, from its config alone.

The three sizes are those of scaled-echo-tts (LAION-AI/scaled-echo-tts), whose page has the widths
of the decoder and of the speaker encoder. The rest is chosen so that the weights come to what it
states: feed-forwards of 2.75 times the width, adaLN of rank 256, patches of 4 speaker latents, text
projected to the speaker encoder's width.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from nanospeech.errors import InputError
from nanospeech.latent_architectures import EchoConfig
from nanospeech_torch.echo.network import EchoDiT
from nanospeech_torch.engine import weightless
from nanospeech_torch.train.optim.optimizers import hidden_matrices

from .estimate import Memory
from .profile import linear

SPEAKER: dict[str, Any] = {
    "speaker_dim": 1024,
    "speaker_heads": 8,
    "speaker_ff_dim": 2816,
    "text_dim": 1024,
}
SCALES = {
    "800M": EchoConfig(text_input=640),
    "3B": EchoConfig(
        dim=2560, depth=32, heads=20, ff_dim=7040, text_heads=8, text_input=1152, **SPEAKER
    ),
    "8B": EchoConfig(
        dim=4096, depth=32, heads=32, ff_dim=11264, text_heads=8, text_input=2560, **SPEAKER
    ),
}


@dataclass(frozen=True)
class EchoWorkload:
    """A micro-batch of one data-parallel process, and how the model is split.

    Args:
        config: the network; its max_latents, max_text and max_speaker are the shape.
        batch: items.
        gpus: processes in all.
        shard: over how many weights, gradients, moments and average are split (FSDP2).
        tensor: over how many the heads and feed-forwards are split.
        checkpoint_interval: every Nth block is recomputed in the backward pass; 0: none.
        checkpoint_ops: of these blocks the results of products and attention are kept.
        average: whether there is an EMA.
        half: bytes of a number in the network: 4 without mixed precision.
        muon: whether its matrices have Muon's one moment instead of AdamW's two.
    """

    config: EchoConfig
    batch: int
    gpus: int
    shard: int = 1
    tensor: int = 1
    checkpoint_interval: int = 0
    checkpoint_ops: bool = False
    average: bool = True
    half: int = 2
    muon: bool = False

    def __post_init__(self):
        if self.gpus % (self.shard * self.tensor):
            raise InputError(
                f"{self.gpus} GPUs do not split into shard {self.shard} x tensor {self.tensor};"
                " choose factors of them"
            )
        if self.config.heads % self.tensor or self.config.ff_dim % self.tensor:
            raise InputError(
                f"tensor {self.tensor} does not divide {self.config.heads} heads and a feed-forward"
                f" of {self.config.ff_dim}"
            )

    @property
    def rows(self) -> int:
        """Places of the latents of all items."""
        return self.batch * -(-self.config.max_latents // self.config.latent_patch)

    @property
    def patches(self) -> int:
        """Places of the speaker's states."""
        return -(-self.config.max_speaker // self.config.speaker_patch)


@functools.lru_cache
def count_weights(config: EchoConfig) -> dict[str, int]:
    """Weights by part; "split" are those that tensor parallelism splits, "muon" Muon's matrices."""
    with weightless():
        model = EchoDiT(config)
    parts: dict[str, int] = {}
    split = 0
    for name, p in model.named_parameters():
        part = name.split(".")[0]
        parts[part] = parts.get(part, 0) + p.numel()
        inside = (".attention.w", ".attention.gate", ".mlp.w")
        split += p.numel() if part == "blocks" and any(key in name for key in inside) else 0
    matrices = hidden_matrices(model)
    muon = sum(p.numel() for name, p in model.named_parameters() if name in matrices)
    return {**parts, "total": sum(parts.values()), "split": split, "muon": muon}


def step_flops(
    config: EchoConfig, batch: int, latents: int, text: int, speaker: int
) -> dict[str, int]:
    """Operations of one training step (forward and backward), without a frozen text encoder's.

    Args:
        config: the network.
        batch: items.
        latents, text, speaker: padded lengths of each item; the speaker's in latents.
    """
    c, places = config, -(-latents // config.latent_patch)
    rows, patch = batch * places, c.latent_dim * c.latent_patch
    patches = -(-speaker // c.speaker_patch)
    keys = places + text + patches + c.speaker_mean
    context = linear(batch * text, c.text_dim, 2 * c.dim)
    context += linear(batch * (patches + c.speaker_mean), c.speaker_dim, 2 * c.dim)
    adaln = 6 * (linear(batch, c.dim, c.adaln_rank) + linear(batch, c.adaln_rank, c.dim))
    time = linear(batch, c.time_dim, c.dim, first=True) + linear(batch, c.dim, 3 * c.dim)
    duration = time if c.target_duration else 0
    if c.text_depth:
        words = encoder_flops(c.text_dim, c.text_ff_dim, c.text_depth, batch, text)
    else:
        words = linear(batch * text, c.text_input, c.text_dim, first=True)
    voice = encoder_flops(c.speaker_dim, c.speaker_ff_dim, c.speaker_depth, batch, patches)
    return {
        "condition": time + linear(batch, c.dim, c.dim) + duration + c.depth * adaln,
        "text": words,
        "speaker": voice
        + linear(batch * patches, c.speaker_patch * c.latent_dim, c.speaker_dim, first=True),
        "context": c.depth * context,
        "projections": c.depth * linear(rows, c.dim, 5 * c.dim),
        "attention": c.depth * 12 * rows * c.dim * keys,
        "feed_forward": c.depth * linear(rows, c.dim, 3 * c.ff_dim),
        "ends": linear(rows, patch, c.dim, first=True) + linear(rows, c.dim, patch),
    }


def encoder_flops(dim: int, hidden: int, depth: int, batch: int, places: int) -> int:
    """Operations of an encoder's blocks, attention to all places counted (causal or not)."""
    rows = batch * places
    block = linear(rows, dim, 5 * dim) + linear(rows, dim, 3 * hidden) + 12 * rows * dim * places
    return depth * block


def work_flops(work: EchoWorkload) -> int:
    """Operations of one micro-batch of a data-parallel process."""
    c = work.config
    return sum(step_flops(c, work.batch, c.max_latents, c.max_text, c.max_speaker).values())


def block_bytes(work: EchoWorkload) -> int:
    """What one decoder block keeps for its backward pass, attention fused and nothing compiled."""
    c, t = work.config, work.tensor
    rows, context = work.rows, work.batch * (c.max_text + work.patches + c.speaker_mean)
    # norm: input and output; the layers' input; what the gate scales: in both halves
    whole = 8 * rows * c.dim
    # q, k before and after norms, rotated; v; the output, and merged; sigmoid, product
    split = (11 * rows + 4 * context) * c.dim + 4 * rows * c.ff_dim
    return work.half * (whole + split // t)


def lean_bytes(work: EchoWorkload) -> int:
    """What a block keeps that is computed again: its input, and results of products if asked."""
    c, rows = work.config, work.rows
    if not work.checkpoint_ops:
        return work.half * rows * c.dim
    context = work.batch * (c.max_text + work.patches + c.speaker_mean)
    # q, k, v, gate and what attention gives; the context's k and v; both of the feed-forward
    split = (5 * rows + 2 * context) * c.dim + 2 * rows * c.ff_dim
    return work.half * (3 * rows * c.dim + split // work.tensor)


def encoder_bytes(work: EchoWorkload) -> int:
    """What the encoders of the speaker, and of the text if it is the network's own, keep."""
    c = work.config
    speaker = c.speaker_depth * work.patches * (18 * c.speaker_dim + 4 * c.speaker_ff_dim)
    text = c.text_depth * c.max_text * (18 * c.text_dim + 4 * c.text_ff_dim)
    return work.half * work.batch * (speaker + text)


def estimate(work: EchoWorkload) -> Memory:
    """The memory of one GPU in training with float32 weights; an estimate.

    A text encoder comes on top, unless its states are kept on disk: 2 bytes a weight if it is
    frozen.
    """
    c, counts = work.config, count_weights(work.config)
    inside = counts["split"] // work.tensor
    held = counts["total"] - counts["split"] + inside
    own = held // work.shard
    block = (counts["blocks"] - counts["split"] + inside) // c.depth
    rest = held - block * c.depth
    low = work.half * (work.half < 4)  # of autocast's copy of a weight
    copies = low * held
    if work.shard > 1:
        copies = 2 * block * work.half + 4 * block + (4 + low) * rest
    lean = c.depth // work.checkpoint_interval if work.checkpoint_interval else 0
    one = block_bytes(work)
    return Memory(
        weights=4 * own,
        gradients=4 * own,
        moments=round(4 * own * (2 - work.muon * counts["muon"] / counts["total"])),
        average=4 * own * work.average,
        copies=copies,
        activations=(c.depth - lean) * one + lean * lean_bytes(work) + encoder_bytes(work),
        transient=(2 if lean else 1) * one,
    )


@dataclass(frozen=True)
class Traffic:
    """Bytes that one GPU sends in a step."""

    near: int  # weights and gradients, within its machine
    far: int  # the same, to other machines
    tensor: int  # activations between the parts of a split layer

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))


def scattered(size: float, ranks: int, local: int) -> tuple[float, float]:
    """What a rank sends, near and far, to gather `size` bytes over ranks, or to reduce and scatter.

    Machines share the way to the others: each of its `local` ranks sends its part.
    """
    machines = ranks // local
    return (local - 1) / local * size, (machines - 1) / machines * size / local


def traffic(work: EchoWorkload, machine: int = 4) -> Traffic:
    """What one GPU sends in a step, tensor groups within machines, then shards, then copies.

    Args:
        work: how the model is split.
        machine: GPUs in one.
    """
    c, counts = work.config, count_weights(work.config)
    held = counts["total"] - counts["split"] + counts["split"] // work.tensor
    near = far = 0.0
    copies = work.gpus // (work.shard * work.tensor)
    each = {  # bytes, ranks, ranks in a machine
        # weights in bfloat16, forward and backward, and gradients in float32
        "shard": (8 * held, work.shard, machine // work.tensor),
        # an all-reduce is a reduce-scatter and a gather
        "copies": (8 * held / work.shard, copies, machine // (work.tensor * work.shard)),
    }
    for size, ranks, room in each.values():
        one = scattered(size, ranks, max(1, min(ranks, room)))
        near, far = near + one[0], far + one[1]
    rows = work.rows
    # an all-reduce behind attention and one behind the feed-forward, both forward and backward
    ring = 2 * (work.tensor - 1) / work.tensor
    return Traffic(round(near), round(far), round(4 * c.depth * ring * rows * c.dim * 2))


@dataclass(frozen=True)
class Card:
    """A GPU and its links, as their makers state them.

    Args:
        name: of the GPU.
        flops: dense bfloat16, a second.
        memory: bytes a second.
        near: bytes a second and direction to the GPUs of its machine.
        far: the same to other machines.
        machine: GPUs in a machine.
        efficiency: share of `flops` that large products reach; an assumption.
    """

    name: str
    flops: float
    memory: float
    near: float
    far: float
    machine: int
    efficiency: float


GH200 = Card("GH200", 990e12, 4.0e12, 450e9, 25e9, 4, 0.65)


@dataclass(frozen=True)
class Expected:
    """Seconds of a step by what they are spent on, and the utilisation that follows."""

    products: float  # matrix products and attention, recomputed ones too
    passes: float  # cheap operations, by the bytes that they read and write
    update: float  # the optimizer and the average, by the bytes of their state
    sending: float  # what is not hidden behind products and passes
    mfu: float  # percent


def expected(work: EchoWorkload, card: Card = GH200, fused: float = 1.0) -> Expected:
    """How fast a step should be on paper.

    Args:
        work: what one data-parallel process computes.
        card: on which.
        fused: share of the cheap operations' traffic that is left: 1 as they are written, about a
            third where the compiler joins them.
    """
    c, flops = work.config, work_flops(work)
    lean = c.depth // work.checkpoint_interval if work.checkpoint_interval else 0
    again = 1 + lean / c.depth / 3  # forward is a third
    mine = flops / work.tensor
    products = mine * again / (card.flops * card.efficiency)
    # what is kept was written once and read once, and its gradient likewise
    passes = 4 * c.depth * block_bytes(work) * again * fused / card.memory
    held = estimate(work)
    # gradients are read; weights, moments and average are read and written, weights copied
    state = held.gradients + 2 * (held.weights + held.moments + held.average) + held.weights // 2
    update = state / card.memory
    sent = traffic(work, card.machine)
    # gradients are sent while the backward pass goes on, weights in the forward pass too
    hidden = (products + passes) * (2 / 3 if work.shard == 1 else 1)
    seconds_sent = sent.near / card.near + sent.far / card.far
    sending = max(0.0, seconds_sent - hidden) + sent.tensor / card.near
    seconds = products + passes + update + sending
    return Expected(products, passes, update, sending, 100 * mine / seconds / card.flops)
