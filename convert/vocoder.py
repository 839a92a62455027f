"""Vocoder: reads a Vocos checkpoint, as it is published or as safetensors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from nanospeech.config import ModelConfig, VocoderConfig, current_names
from nanospeech.errors import CheckpointError
from nanospeech.release.shapes import vocoder_config_from_shapes

from .lazy import shapes_of
from .source import read_source


def read_vocoder(path: str | Path) -> tuple[VocoderConfig, Mapping[str, Tensor]]:
    """Reads a Vocos checkpoint in its published format, or as safetensors.

    Raises:
        CheckpointError: unreadable, not Vocos, or its config.yaml says something else.
    """
    path = Path(path)
    if path.is_dir():
        found = [path / n for n in ("vocoder.safetensors", "pytorch_model.bin")]
        path = next((f for f in found if f.is_file()), found[1])
    tensors = read_source(path).tensors
    config = vocoder_config_from_shapes(shapes_of(tensors))
    if config.griffin_lim_iters and (side := path.with_name("vocoder.json")).is_file():
        values = current_names(VocoderConfig, json.loads(side.read_text("utf-8")), str(side))
        iters = values.get("griffin_lim_iters", config.griffin_lim_iters)
        config = dataclasses.replace(config, griffin_lim_iters=iters)
    elif config.griffin_lim_iters and (side := path.with_name("config.json")).is_file():
        config = ModelConfig.load(side).vocoder or config
    yamls = [p for p in path.parent.glob("*config.yaml") if path.suffix == ".bin"]
    if yamls:
        check_yaml(yamls[0], config)
    return config, tensors


def check_yaml(path: Path, config: VocoderConfig) -> None:
    """Compares config.yaml of a published Vocos with the sizes read off its tensors."""
    from nanospeech.errors import require

    values = require("yaml", "vocos").safe_load(path.read_text(encoding="utf-8"))
    try:
        parts = {k: values[k]["init_args"] for k in ("feature_extractor", "backbone", "head")}
        features, backbone, head = parts.values()
        stated = VocoderConfig(
            dim=backbone["dim"],
            intermediate_dim=backbone["intermediate_dim"],
            num_layers=backbone["num_layers"],
            n_mels=backbone["input_channels"],
            n_fft=head["n_fft"],
            hop_length=head["hop_length"],
        )
        rate, padding = features.get("sample_rate", 24_000), head.get("padding", "center")
    except (KeyError, TypeError) as e:
        raise CheckpointError(f"{path} is not the config of a mel Vocos: {e}") from e
    if stated != config:
        raise CheckpointError(f"{path} says {stated}, the tensors beside it {config}")
    if (rate, padding) != (24_000, "center"):
        raise CheckpointError(
            f"{path} is for {rate} Hz with {padding!r} padding; 24000 Hz with 'center' is needed"
        )
