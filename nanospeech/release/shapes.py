"""Shapes: sizes read off tensors, for folders without config.json. No arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nanospeech.config import DiTConfig, DurationConfig, VocoderConfig, from_dict
from nanospeech.errors import CheckpointError

DIM_HEAD = 64  # of every published transformer; shapes only give heads x width
GRIFFIN_LIM_ITERS = 8  # of vocoders that predict the phase's derivatives, where no config says
Shapes = Mapping[str, tuple[int, ...]]


def count_blocks(names, prefix: str) -> int:
    """Number of blocks in a list: one more than the largest I in `prefix.I.`."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.")
    return max((int(m[1]) + 1 for name in names if (m := pattern.match(name))), default=0)


def vocoder_config_from_shapes(shapes: Mapping[str, tuple[int, ...]]) -> VocoderConfig:
    """Sizes of a Vocos checkpoint in the published (torch) layout.

    The hop cannot be read off shapes; it is a quarter of the window in every published mel Vocos.

    Args:
        shapes: shape of each tensor, under its published name.

    Raises:
        CheckpointError: a tensor that a size is read off is missing or of another shape.
    """
    needed = {"backbone.embed.weight": 3, "head.out.weight": 2}
    layers = count_blocks(shapes, "backbone.convnext")
    if layers:
        needed["backbone.convnext.0.pwconv1.weight"] = 2
    found = {name: shapes.get(name, ()) for name in needed}
    bad = [n for n, rank in needed.items() if len(found[n]) != rank or 0 in found[n]]
    if bad or not layers:
        missing = ", ".join(bad) or "backbone.convnext.0"
        raise CheckpointError(f"not a Vocos checkpoint: {missing} is missing or of another shape")
    dim, n_mels, _ = shapes["backbone.embed.weight"]
    n_fft = shapes["head.out.weight"][0] - 2
    if n_fft < 4 or n_fft % 4:
        raise CheckpointError(f"head.out.weight has {n_fft + 2} rows, should be n_fft + 2")
    return VocoderConfig(
        dim=dim,
        intermediate_dim=shapes["backbone.convnext.0.pwconv1.weight"][0],
        num_layers=layers,
        n_mels=n_mels,
        n_fft=n_fft,
        hop_length=n_fft // 4,
        griffin_lim_iters=GRIFFIN_LIM_ITERS if "head.delay.weight" in shapes else 0,
    )


def dit_config_from_shapes(shapes: Shapes, path: str | Path) -> DiTConfig:
    """Sizes of a speech model in the published layout (no patches, no upsampling of text).

    Heads are 64 wide and the first alone rotates, as in every published file.

    Args:
        shapes: shape of each tensor, under its published name.
        path: the file, for messages.

    Raises:
        CheckpointError: not such a model, or one of ours, whose options are not in shapes.
    """
    biases = "transformer.proj_out.bias" in shapes  # F5-TTS's, of v0 or v1, which no shape tells
    if "transformer.aligner.to_mean.weight" in shapes or biases:
        raise CheckpointError(f"{path} needs the config.json that it was released with")
    common = transformer_sizes(shapes, path)
    n_mels = sizes(shapes, "transformer.proj_out.weight", 2, path)[0]
    if sizes(shapes, "transformer.input_embed.proj.weight", 2, path)[1] != (
        2 * n_mels + common["text_dim"]
    ):
        raise CheckpointError(f"{path} needs the config.json that it was released with")
    return from_dict(DiTConfig, {"n_mels": n_mels, **common}, str(path))


def duration_config_from_shapes(shapes: Shapes, path: str | Path) -> DurationConfig:
    """Sizes of a duration model in the published layout, of any depth and text convolutions.

    Raises:
        CheckpointError: not such a model, or one whose options are not in shapes.
    """
    if "to_pred.0.bias" in shapes:
        raise CheckpointError(f"{path} needs the config.json that it was released with")
    common = transformer_sizes(shapes, path)
    joined = sizes(shapes, "transformer.input_embed.proj.weight", 2, path)[1]
    n_mels = joined - common["text_dim"]
    return from_dict(DurationConfig, {"n_mels": n_mels, **common}, str(path))


def transformer_sizes(shapes: Shapes, path: str | Path) -> dict[str, Any]:
    """The fields that DiTConfig and DurationConfig share."""
    block = "transformer.transformer_blocks.0"
    inner, dim = sizes(shapes, f"{block}.attn.to_q.weight", 2, path)
    embeds, text_dim = sizes(shapes, "transformer.text_embed.text_embed.weight", 2, path)
    return {
        "dim": dim,
        "depth": count_blocks(shapes, "transformer.transformer_blocks"),
        "heads": max(1, inner // DIM_HEAD),
        "dim_head": DIM_HEAD,
        "ff_mult": max(1, sizes(shapes, f"{block}.ff.ff.0.0.weight", 2, path)[0] // dim),
        "text_dim": text_dim,
        "conv_layers": count_blocks(shapes, "transformer.text_embed.text_blocks"),
        "text_num_embeds": embeds - 1,  # row 0 is the filler
        "qk_norm": f"{block}.attn.q_norm.weight" in shapes,
    }


def sizes(shapes: Shapes, name: str, rank: int, path: str | Path) -> tuple[int, ...]:
    """Shape of a tensor that must be there with this rank and no empty axis."""
    shape = tuple(shapes.get(name, ()))
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(
            f"{path} is damaged or of another network: {name} should have {rank} axes, none of them"
            f" empty, got {shape or 'none'}"
        )
    return shape
