"""Convert: trainer checkpoints and other projects' files to a release folder. Trains nothing.

Nothing is ever unpickled beyond tensors and plain containers (torch.load with weights_only).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nanospeech.checkpoint import IGNORED, check_tensors
from nanospeech.checkpoint_shapes import (
    dit_config_from_shapes,
    duration_config_from_shapes,
    vocoder_config_from_shapes,
)
from nanospeech.config import (
    AudioConfig,
    DiTConfig,
    DurationConfig,
    ModelConfig,
    VocoderConfig,
    from_dict,
)
from nanospeech.errors import CheckpointError, InputError
from nanospeech.tokenizer import Tokenizer, phoneme_vocab

from .card import model_card

C = TypeVar("C", DiTConfig, DurationConfig)
DTYPES = {"float32": torch.float32, "float16": torch.float16}
# Names under which trainers keep the averaged and the raw weights, best first.
AVERAGED = ("ema_state_dict", "ema_model_state_dict")
RAW = ("model_state_dict", "state_dict")


@dataclass
class Source:
    """Weights of one network with what their file tells of them."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    vocab: list[str]
    step: int | None = None
    guided: bool = False  # its targets held the guidance already (loss.model_guidance)


def read_source(path: str | Path, weights: str = "ema") -> Source:
    """Reads a checkpoint of this trainer, an upstream .pt, a raw state dict or safetensors.

    Args:
        path: .pt, .bin, .pth or .safetensors; a step_N/ folder, or a run's folder for its newest.
        weights: "ema" (the averaged weights, or the raw ones where there are none) or "raw".

    Raises:
        CheckpointError: missing, damaged, or holding something else than tensors.
    """
    if weights not in ("ema", "raw"):
        raise InputError(f"weights is {weights!r}; choose ema or raw")
    path = find_checkpoint(path)
    try:
        if path.suffix == ".safetensors":
            return Source(clean(load_file(path)), {}, [])
        if path.is_dir():
            state: Any = read_folder(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} not found") from e
    except Exception as e:  # zip, pickle, safetensors and OS errors share no base class
        reason = str(e).strip().split("\n")[0]
        raise CheckpointError(f"cannot read {path} as plain tensors: {reason}") from e
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, not a state dict")
    order = (AVERAGED if weights == "ema" else ()) + RAW
    inner = next((state[k] for k in order if isinstance(state.get(k), Mapping)), state)
    step, config = state.get("step"), dict(state.get("config") or {})
    tensors = clean(inner)
    if any(".lora_A." in name for name in tensors):
        tensors = merge_adapters(tensors, state, config, path)
    return Source(
        tensors,
        config,
        list(state.get("vocab") or []),
        int(step) if isinstance(step, (int, Tensor)) else None,
        bool(((state.get("run") or {}).get("loss") or {}).get("model_guidance")),
    )


def find_checkpoint(path: str | Path) -> Path:
    """What to read: of a run's folder the newest step_N.pt or step_N/, else the path itself."""
    path = Path(path)
    if not path.is_dir() or path.name.startswith("step_"):
        return path
    found = [*path.glob("step_*.pt"), *(p for p in path.glob("step_*[0-9]") if p.is_dir())]
    if not found:
        raise CheckpointError(f"{path} holds no step_*; name a checkpoint")
    return max(found, key=lambda p: (p.name.removesuffix(".pt"), p.suffix))


def read_folder(path: Path) -> dict[str, Any]:
    """A sharded checkpoint folder of this trainer, in the form of its step_N.pt."""
    from nanospeech_torch.checkpoint_reader import read_tensors

    state: dict[str, Any] = {
        name: read_tensors(path, prefix)
        for name, prefix in (("model_state_dict", "model."), ("ema_state_dict", "ema."))
    }
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    return state | {k: meta[k] for k in ("step", "config", "vocab")} | {"run": meta.get("run")}


def merge_adapters(
    tensors: dict[str, Tensor], state: Mapping[str, Any], config: dict[str, Any], path: Path
) -> dict[str, Tensor]:
    """The tensors of a model with LoRA adapters, merged, by their published names."""
    from nanospeech_torch.finetune import LoraConfig, merge_lora

    if "lora" not in config:
        raise CheckpointError(
            f"{path} holds adapters, but not their rank and scale; save with FinetuneTrainer"
        )
    # weights that are frozen may have no average of their own
    raw = next((clean(state[k]) for k in RAW if isinstance(state.get(k), Mapping)), {})
    return merge_lora({**raw, **tensors}, from_dict(LoraConfig, config["lora"], f"{path}: lora"))


def clean(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors under their published names: wrappers' prefixes and mel buffers removed."""
    tensors = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            continue
        for prefix in ("ema_model.", "module.", "_orig_mod."):
            name = name.removeprefix(prefix)
        if not name.startswith(IGNORED) and name not in ("initted", "step"):
            tensors[name] = value.detach()
    if not tensors:
        raise CheckpointError("the checkpoint holds no tensors")
    return tensors


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor by name."""
    return {name: tuple(t.shape) for name, t in tensors.items()}


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
    temperature: float = 1.0,
) -> ModelConfig:
    """Writes a release folder.

    Args:
        model: the speech model's checkpoint.
        output: folder to write; files of the same names in it are replaced.
        duration: the duration model's checkpoint.
        vocoder: a Vocos checkpoint: .bin with its config.yaml beside it, a folder of the two, or
            safetensors.
        vocab: vocab.txt, where the checkpoint does not carry its vocabulary.
        voices: folder of built-in voices to copy.
        weights: "ema" or "raw".
        dtype: "float16" or "float32".
        name, default_voice, temperature: for config.json.
        card: Markdown to put into the model card below its table.

    Raises:
        InputError, CheckpointError: what cannot be read or does not fit together.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; choose from {', '.join(DTYPES)}")
    source, dit = read_network(model, weights, "dit", DiTConfig, dit_config_from_shapes)
    kind = source.config.get("tokenizer", "chars")
    tokenizer = find_tokenizer(kind, source.vocab, vocab, dit.text_num_embeds, str(model))
    audio = from_dict(AudioConfig, source.config.get("audio") or {}, f"{model}: audio")
    config = ModelConfig(
        name or Path(output).name,
        kind,
        audio,
        dit,
        default_voice=default_voice,
        temperature=temperature,
    )
    if source.guided:
        config = dataclasses.replace(config, cfg_strength=0.0)
    parts = {"model": source.tensors}
    if duration is not None:
        config, parts["duration"] = add_duration(config, duration, weights)
    if vocoder is not None:
        vocoder_config, parts["vocoder"] = read_vocoder(vocoder)
        config = dataclasses.replace(config, vocoder=vocoder_config)
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, tensors in parts.items():
            write_tensors(tensors, folder / f"{part}.safetensors", dtype)
        tokenizer.save(folder / "vocab.txt")
        config.save(folder / "config.json")
        if voices is not None:
            shutil.copytree(voices, folder / "voices", dirs_exist_ok=True)
        extra = Path(card).read_text(encoding="utf-8") if card else ""
        text = model_card(config, parts, dtype, source.step, extra)
        (folder / "README.md").write_text(text, encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot write {folder}: {e}") from e
    return config


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
) -> tuple[ModelConfig, dict[str, Tensor]]:
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


def read_vocoder(path: str | Path) -> tuple[VocoderConfig, dict[str, Tensor]]:
    """Reads a Vocos checkpoint in the form in which it is published, or as safetensors.

    Raises:
        CheckpointError: unreadable, not Vocos, or its config.yaml says something else.
    """
    path = Path(path)
    if path.is_dir():
        found = [path / n for n in ("vocoder.safetensors", "pytorch_model.bin")]
        path = next((f for f in found if f.is_file()), found[1])
    tensors = read_source(path).tensors
    config = vocoder_config_from_shapes(shapes_of(tensors))
    if config.rounds and (told := path.with_name("vocoder.json")).is_file():
        values = json.loads(told.read_text(encoding="utf-8"))
        config = dataclasses.replace(config, rounds=values.get("rounds", config.rounds))
    elif config.rounds and (told := path.with_name("config.json")).is_file():
        config = ModelConfig.load(told).vocoder or config
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
        told = VocoderConfig(
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
    if told != config:
        raise CheckpointError(f"{path} says {told}, the tensors beside it {config}")
    if (rate, padding) != (24_000, "center"):
        raise CheckpointError(
            f"{path} is for {rate} Hz with {padding!r} padding; 24000 Hz with 'center' is needed"
        )


def write_tensors(tensors: Mapping[str, Tensor], path: Path, dtype: str) -> None:
    """Writes safetensors, whole or not at all."""
    part = path.with_suffix(".part")
    plain = {k: v.to(DTYPES[dtype]).contiguous().clone() for k, v in sorted(tensors.items())}
    try:
        save_file(plain, part, metadata={"format": "pt"})
        part.chmod(0o644)  # safetensors makes it readable by its owner alone
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
