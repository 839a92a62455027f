"""Own: checkpoints of this project's runs, of models of mels and of latents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nanospeech.config import AudioConfig, ModelConfig, from_dict
from nanospeech.errors import CheckpointError
from nanospeech.latent_architectures import EchoConfig, EchoOptions, TextEncoderConfig
from nanospeech.release.tensors import check_tensors
from nanospeech.text.tokenizer import Tokenizer

from . import model
from .echo import network_shapes
from .lazy import renamed, shapes_of
from .model import Model, find_pieces, find_tokenizer
from .options import ConvertOptions
from .source import Source

READER = "reader.network."  # tensors of a text encoder that was trained too


def fits(source: Source, settings: Mapping[str, Any], name: str) -> bool:
    """Whether a file may be a speech model of this project's or of upstream nanospeech's."""
    return "echo" in source.config or model.fits(source, settings, name)


def read(
    path: Path, source: Source, settings: Mapping[str, Any], name: str, o: ConvertOptions
) -> Model:
    """A speech model's checkpoint, with the vocabulary of the options or its own.

    Raises:
        InputError: there is no vocabulary.
        CheckpointError: not such a checkpoint, or a vocabulary of another size.
    """
    if "echo" not in source.config:
        return model.read(path, source, settings, name, o)
    config = source.config
    echo = from_dict(EchoConfig, config["echo"], f"{path}: echo")
    own = {n: n for n in source.tensors if not n.startswith(READER)}
    tensors = renamed(source.tensors, own)
    check_tensors(shapes_of(tensors), network_shapes(echo), path)
    kind = config.get("tokenizer", "bytes")
    tokenizer: Tokenizer
    if kind == "pieces":
        tokenizer = find_pieces(o.vocab, path, echo)
    elif echo.text_depth and kind != "echo":
        tokenizer = find_tokenizer(kind, source.vocab, o.vocab, echo.text_vocab, str(path))
    else:
        tokenizer = Tokenizer(kind, source.vocab)
    encoder = config.get("text_encoder")
    if encoder is not None:
        encoder = from_dict(TextEncoderConfig, encoder, f"{path}: text_encoder")
    sampling = EchoOptions()
    made = ModelConfig(
        tokenizer=kind,
        language=config.get("language", ""),
        audio=from_dict(AudioConfig, config.get("audio") or {}, f"{path}: audio"),
        echo=echo,
        echo_sampling=sampling,
        steps=sampling.steps,
        text_encoder=encoder,
    )
    parts: dict[str, Mapping[str, torch.Tensor]] = {"model": tensors}
    trained = renamed(
        source.tensors, {n.removeprefix(READER): n for n in source.tensors if n not in own}
    )
    described = config.get("text_encoder_config")
    if trained and described is None:
        raise CheckpointError(
            f"{path} has a text encoder that was trained too, and not its config.json; resume the"
            " run for a step, which saves it"
        )
    if trained:
        parts["text_encoder"] = trained
    return Model(made, tokenizer, parts, source.step, encoder=described if trained else None)
