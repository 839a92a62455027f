"""Echo page: sizes, work and memory of a run of an EchoDiT, as text. Allocates nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from nanospeech.latent_architectures import EchoConfig
from nanospeech_torch.train.data.batches import BatchPlan
from nanospeech_torch.train.data.latents import EchoLossConfig, padded_latents

from .echo import EchoWorkload, count_weights, estimate, work_flops
from .estimate import CARDS, GB, ROOM

LAYOUTS = (  # name, GPUs, shard, tensor
    ("DDP", 1, 1, 1),
    ("FSDP2 x8", 8, 8, 1),
    ("HSDP 2x8", 16, 8, 1),
    ("tensor x2", 2, 1, 2),
    ("tensor x4", 4, 1, 4),
    ("FSDP2 x8, tensor x4", 32, 8, 4),
    ("FSDP2 x64", 64, 64, 1),
)


def echo_page(network: EchoConfig, run: Any, plan: BatchPlan) -> str:
    """A page on a run: weights by part, operations, memory per process for ways to split it.

    Args:
        network: with the vocabulary in use.
        run: a RunConfig.
        plan: its batches.
    """
    asked = run.parallel
    inner = asked.shard * asked.tensor
    latents = padded_latents(plan, network, run.echo_loss, plan.max_duration)
    work = EchoWorkload(
        config=dataclasses.replace(network, max_latents=latents),
        batch=plan.capacity(latents),
        gpus=inner * max(1, asked.replicate),
        shard=asked.shard,
        tensor=asked.tensor,
        checkpoint_interval=run.speed.interval,
        checkpoint_ops=run.speed.checkpoint_ops,
        half=2 if run.mixed_precision in ("bf16", "fp16") else 4,
        muon=run.optimizer.name == "muon",
    )
    counts, c = count_weights(network), work.config
    lines = ["weights"]
    sums = ("total", "split", "muon")
    lines += [f"  {k:<22}{v:>16,}" for k, v in counts.items() if k not in sums]
    lines += [f"  {'all':<22}{counts['total']:>16,}", "", "a full micro-batch of one process"]
    flops = work_flops(work)
    seconds = work.batch * c.max_latents / run.audio.frame_rate
    lines += [
        f"  {work.batch} x {c.max_latents} latents ({seconds:,.0f} s), {c.max_text} tokens and"
        f" {c.max_speaker} latents of the speaker each",
        f"  {flops / 1e12:,.2f} TFLOP forward and backward"
        + ("" if c.text_depth else ", without the text encoder"),
        "",
        f"memory, GB; estimated for {run.mixed_precision or 'no'}, checkpoint_interval"
        f" {run.speed.checkpoint_interval}, checkpoint_ops {run.speed.checkpoint_ops};"
        f"{on_top(network, run.echo_loss)} fits: cards of so many GB",
        f"  {'':<45}{'weights':>8}{'grads':>7}{'optim':>7}{'EMA':>7}{'copies':>8}{'activ.':>8}"
        f"{'all':>8}  fits",
    ]
    name = f"configured: replicate {asked.replicate or 'all'}, shard {work.shard}, tensor"
    lines.append(line(f"{name} {work.tensor}", work))
    for other, gpus, shard, tensor in LAYOUTS:
        if c.heads % tensor == 0 and c.ff_dim % tensor == 0:
            changes = {"gpus": gpus, "shard": shard, "tensor": tensor}
            lines.append(line(other, dataclasses.replace(work, **changes)))
    return "\n".join(lines)


def on_top(network: EchoConfig, loss: EchoLossConfig) -> str:
    """What a text encoder outside of the network needs beside it."""
    if network.text_depth:
        return ""
    if not loss.text_encoder_lr:
        return " the frozen text encoder comes on top: 2 bytes a weight on a GPU;"
    return " the text encoder comes on top, which learns: 20 bytes a weight and what it keeps;"


def line(name: str, work: EchoWorkload) -> str:
    """A row of the table."""
    m = estimate(work)
    fits = ", ".join(str(card) for card in CARDS if m.total <= ROOM * card * GB) or "none"
    figures = (m.weights, m.gradients, m.moments, m.average, m.copies)
    cells = "".join(f"{v / GB:>{w}.1f}" for v, w in zip(figures, (8, 7, 7, 7, 8)))
    activations = (m.activations + m.transient) / GB
    return f"  {name:<45}{cells}{activations:>8.1f}{m.total / GB:>8.1f}  {fits}"
