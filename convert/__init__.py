"""Convert: trainer checkpoints and other projects' files to a release folder. Trains nothing."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from nanospeech.config import (
    AudioConfig,
    DiTConfig,
    DurationConfig,
    ModelConfig,
    PostfilterConfig,
    VocoderConfig,
    current_names,
    from_dict,
)
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import check_tensors
from nanospeech.release.shapes import (
    dit_config_from_shapes,
    duration_config_from_shapes,
    vocoder_config_from_shapes,
)
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

from .card import card_rows, model_card, renewed_card
from .lazy import shapes_of
from .source import Source, find_checkpoint, read_source
from .writer import check_release, is_release, quantized, read_release, write_release

__all__ = ["Model", "Source", "convert", "find_checkpoint", "read_source", "read_vocoder"]

C = TypeVar("C", DiTConfig, DurationConfig)
DTYPES = ("float32", "float16")


def network_shapes(config: DiTConfig | DurationConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes that a config calls for, without allocating anything."""
    from nanospeech_torch.dit import DiT
    from nanospeech_torch.duration import DurationHead, DurationTransformer

    with torch.device("meta"):
        if isinstance(config, DiTConfig):
            return {f"transformer.{k}": tuple(v.shape) for k, v in DiT(config).state_dict().items()}
        return shapes_of(DurationHead(DurationTransformer(config)).state_dict())


def read_network(
    path: str | Path, weights: str, section: str, kind: type[C], from_shapes: Callable
) -> tuple[Source, C]:
    """A network's weights, and its config from the checkpoint or else from the tensors' shapes.

    Args:
        section: of the checkpoint's config, "dit" or "duration".
        kind: that section's dataclass.
        from_shapes: reads one off shapes.

    Raises:
        CheckpointError: unreadable, or the tensors are not those of the config.
    """
    source = read_source(path, weights)
    shapes = shapes_of(source.tensors)
    if section in source.config:
        config = from_dict(kind, source.config[section], f"{path}: {section}")
    else:
        config = from_shapes(shapes, path)
    check_tensors(shapes, network_shapes(config), path)
    return source, config


@dataclass
class Model:
    """The parts that a release folder is written from."""

    config: ModelConfig
    tokenizer: Tokenizer
    parts: dict[str, Mapping[str, Tensor]]  # of "model", and perhaps "duration" and "vocoder"
    step: int | None = None
    folder: Path | None = None  # of the release that it is read from

    def file(self, name: str) -> Path | None:
        """A file or folder of that release, if it has it."""
        path = self.folder / name if self.folder else None
        return path if path is not None and path.exists() else None


def from_checkpoint(model: str | Path, vocab: str | Path | None, weights: str, name: str) -> Model:
    """A speech model's checkpoint, with the vocabulary of `vocab` or its own."""
    source, dit = read_network(model, weights, "dit", DiTConfig, dit_config_from_shapes)
    kind = source.config.get("tokenizer", "chars")
    tokenizer = find_tokenizer(kind, source.vocab, vocab, dit.text_num_embeds, str(model))
    audio = from_dict(AudioConfig, source.config.get("audio") or {}, f"{model}: audio")
    config = ModelConfig(name, kind, audio, dit)
    if source.guided:
        config = dataclasses.replace(config, cfg_strength=0.0)
    if "imitates" in source.config:
        config = dataclasses.replace(config, imitates=source.config["imitates"])
    return Model(config, tokenizer, {"model": source.tensors}, source.step)


def from_release(folder: str | Path, vocab: str | Path | None) -> Model:
    """A whole release folder; packed weights are unpacked."""
    release, parts = read_release(folder)
    config, tokenizer = release.config, release.tokenizer
    if vocab is not None:
        tokenizer = find_tokenizer(
            config.tokenizer, [], vocab, config.dit.text_num_embeds, str(folder)
        )
    config = dataclasses.replace(
        config, quantization=None, vocoder=config.vocoder if "vocoder" in parts else None
    )
    return Model(config, tokenizer, parts, folder=release.folder)


def convert(
    model: str | Path,
    output: str | Path,
    duration: str | Path | None = None,
    vocoder: str | Path | None = None,
    vocab: str | Path | None = None,
    voices: str | Path | None = None,
    weights: str = "ema",
    dtype: str = "float16",
    name: str | None = None,
    default_voice: str | None = None,
    card: str | Path | None = None,
    temperature: float | None = None,
    leading_pause: float | None = None,
    smooth: float | None = None,
    sharpen: float | None = None,
    quantize: int | None = None,
    imitates: bool | None = None,
) -> ModelConfig:
    """Writes a release folder.

    Args:
        model: the speech model's checkpoint, or a release folder, of which everything is kept
            that other arguments do not change.
        output: folder to write; files of the same names in it are replaced.
        duration: the duration model's checkpoint.
        vocoder: a Vocos checkpoint: .bin with its config.yaml beside it, a folder of the two, or
            safetensors.
        vocab: vocab.txt, where the checkpoint does not carry its vocabulary.
        voices: folder of built-in voices to copy, without their weights and paces; by default all
            that the source has.
        weights: "ema" or "raw".
        dtype: "float16" or "float32"; of what is not packed.
        name, default_voice, temperature, leading_pause, imitates: for config.json.
        card: Markdown to put into the model card below its table.
        smooth, sharpen: of the postfilter, see nanospeech/audio/postfilter.py.
        quantize: 4 or 8: pack most layers into so many bits (see
        nanospeech/release/quantization.py).

    Raises:
        InputError, CheckpointError: what cannot be read or does not fit together.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; choose from {', '.join(DTYPES)}")
    if is_release(model):
        check_release(model, output, weights, quantize)
        read = from_release(model, vocab)
    else:
        read = from_checkpoint(model, vocab, weights, Path(output).name)
    changes = {
        "name": name,
        "default_voice": default_voice,
        "temperature": temperature,
        "leading_pause": leading_pause,
        "imitates": imitates,
    }
    changes = {k: v for k, v in changes.items() if v is not None}
    config, parts = dataclasses.replace(read.config, **changes), read.parts
    filters = {k: v for k, v in (("smooth", smooth), ("sharpen", sharpen)) if v is not None}
    if filters:
        own = config.postfilter or PostfilterConfig()
        config = dataclasses.replace(config, postfilter=dataclasses.replace(own, **filters))
    if duration is not None:
        config, parts["duration"] = add_duration(config, duration, weights)
    if vocoder is not None:
        vocoder_config, parts["vocoder"] = read_vocoder(vocoder)
        config = dataclasses.replace(config, vocoder=vocoder_config)
    if quantize is not None:
        config = quantized(config, parts, quantize)
    folder = Path(output)
    # a voice's weights and pace belong to one model
    left_out = shutil.ignore_patterns("*.safetensors", "*.json") if voices else None
    voices = voices or read.file("voices")
    try:
        write_release(folder, config, parts, dtype)
        read.tokenizer.save(folder / "vocab.txt")
        if voices is not None:
            shutil.copytree(voices, folder / "voices", ignore=left_out, dirs_exist_ok=True)
        (folder / "README.md").write_text(card_of(read, config, dtype, card), encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot write {folder}: {e}") from e
    return config


def card_of(read: Model, config: ModelConfig, dtype: str, extra: str | Path | None) -> str:
    """The model card: a release's own with its table renewed, or a new one."""
    if extra is None and (own := read.file("README.md")):
        return renewed_card(own.read_text(encoding="utf-8"), card_rows(config, read.parts, dtype))
    more = Path(extra).read_text(encoding="utf-8") if extra else ""
    return model_card(config, read.parts, dtype, read.step, more)


def find_tokenizer(
    kind: str, carried: list[str], path: str | Path | None, count: int, model: str
) -> Tokenizer:
    """The vocabulary from a file, the checkpoint, or the kind itself; checked against the model."""
    if path is not None:
        tokenizer = Tokenizer.load(kind, path)
    elif carried or kind == "bytes":
        tokenizer = Tokenizer(kind, carried)
    elif kind == "phonemes":
        tokenizer = Tokenizer(kind, phoneme_vocab())
    else:
        raise InputError(f"{model} does not carry its vocabulary; name its vocab.txt (--vocab)")
    if count - len(tokenizer) not in (0, 1):  # 1: a last empty line that was counted in training
        raise CheckpointError(
            f"the vocabulary has {len(tokenizer)} tokens, but {model} was trained with {count}"
        )
    return tokenizer


def add_duration(
    config: ModelConfig, path: str | Path, weights: str
) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    """Reads the duration model and adds it to the config."""
    source, duration = read_network(
        path, weights, "duration", DurationConfig, duration_config_from_shapes
    )
    if duration.text_num_embeds != config.dit.text_num_embeds:
        raise CheckpointError(
            f"{path} was trained with {duration.text_num_embeds} tokens, the speech model with"
            f" {config.dit.text_num_embeds}: train both with one vocabulary"
        )
    return dataclasses.replace(config, duration=duration), source.tensors


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
