"""Vocoder: reads that of a run, a published Vocos, or safetensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from nanospeech.config import ModelConfig, VocoderConfig, current_names, from_dict
from nanospeech.errors import CheckpointError
from nanospeech.release import quantization
from nanospeech.release.folder import VOCODER, shipped
from nanospeech.release.shapes import vocoder_config_from_shapes
from nanospeech.release.tensors import check_tensors, read_tensors

from .lazy import shapes_of
from .settings import read_settings
from .source import Source, check_trained, read_source


def read_vocoder(path: str | Path) -> tuple[VocoderConfig, Mapping[str, Tensor]]:
    """Reads a vocoder: of a run, a published Vocos, or safetensors.

    Args:
        path: a run's folder for its newest checkpoint, a step_N/ or step_N.pt; a release folder; a
            folder of config.yaml and pytorch_model.bin, or that .bin; or safetensors.

    Raises:
        CheckpointError: unreadable, not Vocos, or its config says something else.
    """
    config, source = read_vocoder_source(path)
    return config, source.tensors


def read_vocoder_source(path: str | Path) -> tuple[VocoderConfig, Source]:
    """The same, with the step and the metadata of its file."""
    path = shipped(path)
    if path.is_dir() and not path.name.startswith("step_") and not any(path.glob("step_*")):
        found = [path / n for n in (VOCODER, "pytorch_model.bin", "checkpoint.pt")]
        there = [f for f in found if f.is_file()]
        if not there:
            raise CheckpointError(f"{path} has no {' or '.join(f.name for f in found)}")
        path = there[0]
    source = unpacked(path) or read_source(path)
    check_trained(source, path, "vocoder")
    whole = source.tensors  # of a run, the discriminators' too where there is no average
    own = [name for name in whole if name.startswith("vocoder.")] or list(whole)
    tensors = {name.removeprefix("vocoder."): whole[name] for name in own}
    # a run's config has a section; that of the first versions was the section
    section = source.config.get("vocoder", source.config if "dim" in source.config else None)
    if section is not None:
        section = current_names(VocoderConfig, section, str(path))
        config = from_dict(VocoderConfig, section, f"{path}: vocoder")
    else:
        config = beside(path, vocoder_config_from_shapes(shapes_of(tensors)))
    check_tensors(shapes_of(tensors), vocoder_shapes(config), path)
    return config, dataclasses.replace(source, tensors=tensors)


def unpacked(path: Path) -> Source | None:
    """A release's vocoder that is packed into few bits; None: it is not, as config.json tells."""
    stated = path.with_name("config.json")
    if path.name != VOCODER or not stated.is_file():
        return None
    q = ModelConfig.load(stated).quantization
    if q is None or not q.vocoder:
        return None
    packed = quantization.joined(read_tensors(path, True), q.vocoder, q.group_size, path)
    arrays = quantization.unpacked(packed)
    return Source({n: torch.tensor(t) for n, t in arrays.items()}, {}, [])


def vocoder_shapes(config: VocoderConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes that a config calls for."""
    from nanospeech_torch.engine import weightless
    from nanospeech_torch.vocoder import Vocos

    with weightless():
        return shapes_of(Vocos(config).state_dict())


def beside(path: Path, config: VocoderConfig) -> VocoderConfig:
    """A config read off shapes, completed from a config file in the folder of the tensors."""
    sides = path.with_name("config.json"), path.with_name("vocoder.json")  # of earlier versions
    if config.griffin_lim_iters and sides[1].is_file():
        values = current_names(VocoderConfig, read_settings(sides[1]), str(sides[1]))
        iters = values.get("griffin_lim_iters", config.griffin_lim_iters)
        return dataclasses.replace(config, griffin_lim_iters=iters)
    ours = config.griffin_lim_iters or path.name == VOCODER
    if ours and sides[0].is_file() and (stated := ModelConfig.load(sides[0]).vocoder):
        if config.griffin_lim_iters:
            return stated
        return dataclasses.replace(config, mel_prior=stated.mel_prior)  # no shape tells it
    for file in path.parent.glob("*config.yaml") if path.suffix == ".bin" else ():
        check_yaml(file, config)
    return config


def check_yaml(path: Path, config: VocoderConfig) -> None:
    """Compares config.yaml of a published Vocos with the sizes read off its tensors."""
    values = read_settings(path)
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
