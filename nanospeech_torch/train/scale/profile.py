"""Profile: floating-point operations of a training step, and the peak of a device.

Counts follow from a config alone: nothing is built or run. Matrix products, convolutions and
attention count 2 operations a multiply-add; cheap operations (norms, activations, rotary
angles) are not counted, nor is recomputation (checkpointing, fused attention).
"""

from __future__ import annotations

import functools
import re
import time
from dataclasses import dataclass

import torch

from nanospeech.architectures import ListenerConfig
from nanospeech.config import DiTConfig, DurationConfig, VocoderConfig
from nanospeech.errors import InputError
from nanospeech_torch.listener import TAPS

KERNEL, GROUPS = 31, 16  # of the position convolutions
TEXT_KERNEL = 7

# Dense peaks in TFLOP/s: (bf16 with float32 accumulation, float32 without tensor cores), from the
# makers' data sheets; the first pattern that is found in the device's name counts.
GPUS: tuple[tuple[str, float, float], ...] = (
    (r"GH200", 990, 67),
    (r"B200", 2250, 75),
    (r"H200", 989, 67),
    (r"H100 NVL", 835, 60),
    (r"H100 PCIe", 756, 51),
    (r"H100", 989, 67),
    (r"A100", 312, 19.5),
    (r"A40\b", 149.7, 37.4),
    (r"A10\b", 125, 31.2),
    (r"L40S", 362, 91.6),
    (r"L40\b", 181, 90.5),
    (r"L4\b", 121, 30.3),
    (r"RTX 6000 Ada", 364, 91.1),
    (r"RTX A6000", 154.8, 38.7),
    (r"RTX 5090", 209.5, 104.8),
    (r"RTX 4090", 165.2, 82.6),
    (r"RTX 3090", 71, 35.6),
    (r"V100", 125, 15.7),
    (r"T4\b", 65, 8.1),
)
FLOAT16_ONLY = (r"V100", r"T4\b")  # neither bf16 nor TF32

DTYPES = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Peak:
    """A device's peak: FLOP/s, and the source of the figure."""

    flops: float
    source: str


def linear(rows: int, inputs: int, outputs: int, first: bool = False) -> int:
    """Forward and backward of a linear layer; `first`: its input takes no gradient."""
    return (4 if first else 6) * rows * inputs * outputs


def text_flops(rows: int, width: int, conv_layers: int) -> int:
    """The ConvNeXt-V2 blocks over `rows` places of text."""
    return conv_layers * (linear(rows, width, 4 * width) + linear(rows, width, TEXT_KERNEL))


def block_flops(c: DiTConfig | DurationConfig, batch: int, places: int) -> dict[str, int]:
    """Attention and feed-forward of all blocks."""
    rows, inner = batch * places, c.heads * c.dim_head
    return {
        "projections": c.depth * linear(rows, c.dim, 4 * inner),
        "attention": c.depth * 12 * rows * inner * places,
        "feed_forward": c.depth * linear(rows, c.dim, 2 * c.ff_mult * c.dim),
    }


def input_flops(rows: int, inputs: int, dim: int) -> int:
    """The input projection and the two position convolutions."""
    return linear(rows, inputs, dim) + 2 * linear(rows, dim, KERNEL * dim // GROUPS)


def step_flops(
    config: DiTConfig | DurationConfig, batch: int, frames: int, tokens: int
) -> dict[str, int]:
    """Operations of one training step (forward and backward) by part of the model.

    Args:
        config: the network.
        batch: samples.
        frames: padded mel frames of each.
        tokens: padded text tokens of each.
    """
    c = config
    if isinstance(c, DurationConfig):
        along = c.prompt == "frames"
        places, heard = (max(frames, tokens), c.n_mels) if along else (tokens, 3 * c.n_mels)
        return {
            "text": text_flops(batch * places, c.text_dim, c.conv_layers),
            "input": input_flops(batch * places, heard + c.text_dim, c.dim),
            **block_flops(c, batch, places),
            "output": linear(batch * (tokens if c.pooling == "tokens" else 1), c.dim, 1),
        }
    places = -(-frames // c.patch_size)
    rows = batch * places
    text_rows = rows if c.text_upsampling == "none" else batch * tokens
    time = linear(batch, 256, c.dim, first=True) + linear(batch, c.dim, c.dim)
    time += linear(batch, 2 * c.prompt_dim, c.dim)
    patch = c.n_mels * c.patch_size
    return {
        "time": time + linear(batch, c.dim, (6 * c.depth + 2) * c.dim),
        "text": text_flops(text_rows, c.text_dim, c.conv_layers),
        "aligner": aligner_flops(c, batch, places, tokens),
        "input": input_flops(rows, 2 * patch + c.text_dim, c.dim)
        + linear(rows, patch, c.prompt_dim, first=True),
        **block_flops(c, batch, places),
        "output": linear(rows, c.dim, patch),
    }


def aligner_flops(c: DiTConfig, batch: int, places: int, tokens: int) -> int:
    """The aligner's heads, and the scores of its search, which are not differentiated."""
    if c.text_upsampling != "aligned":
        return 0
    heads = linear(batch * tokens, c.text_dim, c.n_mels + c.text_dim + 1)
    speaker = linear(batch, c.n_mels, c.n_mels + c.text_dim, first=True)
    if c.aligner_dim:
        heads += linear(batch * tokens, c.aligner_dim, c.text_dim + c.n_mels)
        speaker += linear(batch, c.n_mels, c.aligner_dim, first=True)
    return heads + speaker + 2 * batch * places * tokens * c.n_mels


def train_flops(
    config: DiTConfig | DurationConfig, batch: int, frames: int, tokens: int = 0
) -> int:
    """Operations of one training step; see step_flops."""
    return sum(step_flops(config, batch, frames, tokens).values())


def taught_flops(
    config: DiTConfig, batch: int, frames: int, tokens: int, learned: int, given: int, chained: int
) -> int:
    """Operations of a step in which a network learns of what another says, or itself before.

    Texts are read once, and what reads them does not learn.

    Args:
        config, batch, frames, tokens: as of step_flops.
        learned: evaluations of the network that learns, with gradients of its weights.
        given: evaluations without gradients.
        chained: how many of the learned begin where another ended, which has a gradient too.
    """
    c, parts = config, step_flops(config, batch, frames, tokens)
    reading = parts.pop("text") + parts.pop("aligner")  # forward is a third of it
    rows, patch = batch * -(-frames // c.patch_size), c.patch_size * c.n_mels
    once, first = sum(parts.values()), 4 * (batch * 256 * c.dim + rows * patch * c.prompt_dim)
    forward = once // 3 + first // 6  # of a layer whose input takes no gradient it is half
    if c.max_strength:  # of guidance, and the step's length
        once += 2 * (linear(batch, 256, c.dim, first=True) + linear(batch, c.dim, c.dim))
    free = (learned - chained) * 2 * rows * (2 * patch + c.text_dim) * c.dim
    return learned * once - free + given * forward + reading // 3


def listener_flops(config: ListenerConfig, batch: int, frames: int, frozen: bool = False) -> int:
    """Operations of forward and backward of a listener; `frozen`: the gradient is its mel's."""
    c, patch = config, config.patch_size * config.n_mels
    rows = batch * -(-frames // c.patch_size)
    both = len(c.dilations) * linear(rows, c.dim, (TAPS + 1) * c.dim)
    both += linear(rows, patch, c.dim) + linear(rows, c.dim, c.tokens)
    return 2 * both // 3 if frozen else both - 2 * rows * patch * c.dim


def flops_per_frame(config: DiTConfig, frames: int) -> float:
    """The rule of thumb 6 N + 12 L (H E) n, per mel frame of a clip of `frames`.

    N are the weights used at every frame: not embeddings, time and adaLN, which are used once a
    sample, nor the text's where it is shorter than the mel. n is the clip's length in patches.
    """
    c, p = config, config.patch_size
    weights = train_flops(c, 1, p, 0) - 12 * c.depth * c.heads * c.dim_head
    once = step_flops(c, 1, p, 0)
    weights -= once["time"] + once["aligner"]
    attention = 12 * c.depth * c.heads * c.dim_head * -(-frames // p)
    return (weights + attention) / p


def vocoder_flops(config: VocoderConfig, batch: int, frames: int) -> int:
    """Forward and backward of the vocoder without its discriminators."""
    c, rows = config, batch * frames
    block = linear(rows, c.dim, 2 * c.intermediate_dim) + linear(rows, c.dim, 7)
    embed = linear(rows, 7 * c.n_mels, c.dim, first=True)
    out = c.n_fft + 2 + (c.n_fft // 2 + 1 if c.griffin_lim_iters else 0)
    return embed + c.num_layers * block + linear(rows, c.dim, out)


def peak_flops(device: torch.device | str, dtype: torch.dtype | str = "bf16") -> Peak:
    """The peak of a device in a type.

    GPUs that are known by name have their maker's figure; the others, and CPUs, the rate of a large
    matrix product, measured once a process.

    Args:
        device: "cpu", "cuda", …
        dtype: a torch type, or a precision as Accelerate names it: no, bf16, fp16.
    """
    device, kind = torch.device(device), as_dtype(dtype)
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        if (found := listed_peak(name, kind)) is not None:
            return found
    return measured_peak(device.type, device.index, kind, torch.get_num_threads())


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """The type in which matrix products run at a precision."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise InputError(f"precision {dtype!r} not known; choose from {', '.join(DTYPES)}")
    return DTYPES[dtype]


def listed_peak(name: str, dtype: torch.dtype) -> Peak | None:
    """The data sheet's figure for a GPU's name, or None."""
    for pattern, half, single in GPUS:
        if not re.search(pattern, name):
            continue
        old = pattern in FLOAT16_ONLY
        if dtype == torch.float16 or (dtype == torch.bfloat16 and not old):
            return Peak(half * 1e12, f"data sheet, {name}")
        if torch.get_float32_matmul_precision() != "highest" and not old:
            return Peak(half / 2 * 1e12, f"data sheet, {name}, TF32")
        return Peak(single * 1e12, f"data sheet, {name}")
    return None


@functools.lru_cache
def measured_peak(kind: str, index: int | None, dtype: torch.dtype, threads: int) -> Peak:
    """The best rate of a square matrix product in about a quarter of a second."""
    size = 1024 if kind == "cpu" else 8192
    device = torch.device(kind, index) if index is not None else torch.device(kind)
    a, b = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))

    def once() -> float:
        begin = time.perf_counter()
        out = a @ b
        out[0, 0].item()  # waits for the device
        return time.perf_counter() - begin

    once()
    best, end = once(), time.perf_counter() + 0.25
    while time.perf_counter() < end:
        best = min(best, once())
    what = f"measured matmul rate, {kind}, {str(dtype).removeprefix('torch.')}"
    return Peak(2 * size**3 / best, f"{what}, {threads} threads" if kind == "cpu" else what)


def mfu(
    flops: float,
    seconds: float,
    device: torch.device | str,
    dtype: torch.dtype | str = "bf16",
    processes: int = 1,
) -> float:
    """Model FLOPs utilisation in percent.

    Args:
        flops: of the global batch, see train_flops.
        seconds: that it took.
        device, dtype: see peak_flops.
        processes: devices that took part.
    """
    return 100 * flops / seconds / (processes * peak_flops(device, dtype).flops)
