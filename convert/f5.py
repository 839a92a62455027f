"""F5: checkpoints of F5-TTS v1 and v0, their finetunes, and those in f5-tts-mlx's layout.

Facts of the layout are those of SWivid/F5-TTS and lucasnewman/f5-tts-mlx (Chen et al., arXiv
2410.06885).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nanospeech.config import AudioConfig, DiTConfig, ModelConfig, from_dict
from nanospeech.errors import CheckpointError
from nanospeech.release.shapes import sizes, transformer_sizes
from nanospeech.release.tensors import check_tensors

from .lazy import LazyTensors, shapes_of
from .model import Model, find_tokenizer, network_shapes
from .options import ConvertOptions
from .source import Source

log = logging.getLogger("nanospeech")

MARK = "transformer.transformer_blocks.0.attn.to_out.0.bias"  # nanospeech's have none
ANGLES = "transformer.rotary_embed.inv_freq"
TEXT_POSITIONS = 8192
CFG_STRENGTH = 2.0
VOCAB = "vocab.txt"
TOKENIZERS = ("pinyin", "char", "custom")  # F5-TTS reads all their texts by pinyin
# What arch sections name and the networks here do not have, and the values that mean "without".
WITHOUT: dict[str, tuple[Any, ...]] = {
    "qk_norm": (None,),
    "long_skip_connection": (None, False),
    "average_upsampling": (None, False),
    "text_embedding_average_upsampling": (None, False),
}
# Arch sections' names of what shapes tell too.
SIZES = ("dim", "depth", "heads", "ff_mult", "text_dim", "conv_layers")
MEL = {
    "target_sample_rate": "sample_rate",
    "n_fft": "n_fft",
    "win_length": "n_fft",
    "hop_length": "hop_length",
    "n_mel_channels": "n_mels",
}


def fits(source: Source, settings: Mapping[str, Any], name: str) -> bool:
    """Whether a file may be of one of F5's kinds; v0 and v1 differ in their settings alone."""
    if "dit" in source.config or MARK not in {plain(n) for n in source.tensors}:
        return False
    masks = arch_of(settings).get("text_mask_padding")
    if name == "f5-mlx":
        return in_mlx_layout(source.tensors) and masks is None
    if masks is None:
        return name == "f5-v0" or not in_mlx_layout(source.tensors)
    return bool(masks) == (name == "f5-v1")


def read(
    path: Path, source: Source, settings: Mapping[str, Any], name: str, o: ConvertOptions
) -> Model:
    """A speech model of F5-TTS's layout.

    Raises:
        InputError: there is no vocabulary.
        CheckpointError: not such a checkpoint, or one with options that the network lacks.
    """
    tensors = published(source.tensors, path)
    dit = network_config(tensors, arch_of(settings), name, path)
    tensors = tensors.renamed({n: n for n in tensors if n != ANGLES})
    check_tensors(tensors.shapes, network_shapes(dit), path)
    check_recipe(settings, path)
    vocab = o.vocab or (own if (own := path.with_name(VOCAB)).is_file() else None)
    tokenizer = find_tokenizer("pinyin", [], vocab, dit.text_num_embeds, str(path))
    audio = AudioConfig(n_mels=dit.n_mels)
    config = ModelConfig(
        name="f5",
        tokenizer="pinyin",
        audio=audio,
        dit=dit,
        cfg_strength=CFG_STRENGTH,
        imitates=True,
        rules="f5",
    )
    return Model(config, tokenizer, {"model": tensors}, source.step)


def arch_of(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arch section of a training config: at its top or under "model"."""
    section = settings.get("arch") or model_of(settings).get("arch")
    return section if isinstance(section, Mapping) else {}


def check_types(arch: Mapping[str, Any], path: Path) -> None:
    """Refuses an arch section whose options, which no tensor tells, are of other types.

    Raises:
        CheckpointError: a text "false" would pass for true.
    """
    masks, rotating = arch.get("text_mask_padding"), arch.get("pe_attn_head")
    if masks is not None and type(masks) is not bool:
        raise CheckpointError(
            f"the config of {path} says text_mask_padding {masks!r}; it should be true or false"
        )
    if rotating is not None and type(rotating) is not int:
        raise CheckpointError(
            f"the config of {path} says pe_attn_head {rotating!r}; it should be a number of heads,"
            " or null for all"
        )


def model_of(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section "model" of a training config, or the whole where there is none."""
    section = settings.get("model")
    return section if isinstance(section, Mapping) else settings


def plain(name: str) -> str:
    """A tensor's name without the ".layers." that MLX puts into those of nn.Sequential."""
    return name.replace(".layers.", ".")


def in_mlx_layout(tensors: Mapping[str, Any]) -> bool:
    """Whether convolutions are (out, kernel, in), as in MLX, not (out, in, kernel)."""
    shapes = shapes_of(tensors)
    depthwise = [s for n, s in shapes.items() if n.endswith(".dwconv.weight") and len(s) == 3]
    if depthwise:
        return all(s[2] == 1 < s[1] for s in depthwise)
    return any(".layers." in n for n in shapes)


def published(tensors: Mapping[str, Tensor], path: Path) -> LazyTensors:
    """The same under the names and in the layout that F5-TTS publishes.

    Raises:
        CheckpointError: the weights are packed.
    """
    if any(n.endswith(".scales") for n in tensors):
        raise CheckpointError(
            f"{path} holds packed weights of MLX; name the file that it was made from, and convert"
            " that with --quantize"
        )
    shapes, swaps = shapes_of(tensors), in_mlx_layout(tensors)
    turned = {n for n, s in shapes.items() if swaps and len(s) == 3 and n.endswith(".weight")}
    names = {plain(n): n for n in shapes}

    def shape(name: str) -> tuple[int, ...]:
        size = shapes[name]
        return (size[0], size[2], size[1]) if name in turned else size

    def tensor(name: str) -> Tensor:
        found = tensors[names[name]]
        return found.transpose(1, 2).contiguous() if names[name] in turned else found

    return LazyTensors({new: shape(old) for new, old in names.items()}, tensor)


def network_config(
    tensors: LazyTensors, arch: Mapping[str, Any], name: str, path: Path
) -> DiTConfig:
    """The network's sizes, read off its tensors, and the options that these do not tell.

    Raises:
        CheckpointError: the arch section says something else, or asks for what is not there.
    """
    shapes = tensors.shapes
    found = transformer_sizes(shapes, path)
    if ANGLES in shapes:  # an angle for each pair of a head's channels
        inner = found["heads"] * found["dim_head"]
        found["dim_head"] = 2 * sizes(shapes, ANGLES, 1, path)[0]
        found["heads"] = max(1, inner // found["dim_head"])
    stated = {k: arch[k] for k in SIZES if arch.get(k) is not None}
    if wrong := {k: v for k, v in stated.items() if v != found[k]}:
        real = {k: found[k] for k in wrong}
        raise CheckpointError(f"the config of {path} says {wrong}, its tensors {real}")
    odd = {k: arch[k] for k, v in WITHOUT.items() if k in arch and arch[k] not in v}
    if odd or found["qk_norm"]:
        raise CheckpointError(
            f"{path} is of a variant of F5-TTS that is not read here: {odd or 'qk_norm'}"
        )
    check_types(arch, path)
    masks = arch.get("text_mask_padding")
    if masks is not None and name != "f5-mlx" and bool(masks) != (name == "f5-v1"):
        right = "f5-v1" if masks else "f5-v0"
        raise CheckpointError(
            f"the config of {path} says text_mask_padding {masks}: convert --from {right}"
        )
    v1 = name != "f5-v0" if masks is None else bool(masks)
    if name == "f5-mlx" and masks is None and "v1" not in path.name:
        log.warning(
            "%s is read as F5-TTS v1, which nothing in it says; if it is of v0, whose tensors are"
            " alike, convert it --from f5-v0",
            path,
        )
    rotating = arch.get("pe_attn_head", None if v1 else 1)
    found |= {
        "n_mels": sizes(shapes, "transformer.proj_out.weight", 2, path)[0],
        "rope_heads": found["heads"] if rotating is None else rotating,
        "text_masking": v1,
        "grn_all_frames": v1,
        "null_text_places": v1,
        "output_biases": True,
        "text_positions": TEXT_POSITIONS,
    }
    return from_dict(DiTConfig, found, str(path))


def check_recipe(settings: Mapping[str, Any], path: Path) -> None:
    """Refuses mels and tokens that are not those of the networks here.

    Raises:
        CheckpointError: a training config asks for others.
    """
    model, audio = model_of(settings), AudioConfig()
    mel = model.get("mel_spec") or {}
    if not isinstance(mel, Mapping):
        raise CheckpointError(f"the config of {path} says mel_spec {mel!r}; it should be a mapping")
    wrong = {k: mel[k] for k, f in MEL.items() if k in mel and mel[k] != getattr(audio, f)}
    if (kind := mel.get("mel_spec_type", "vocos")) != "vocos":
        wrong["mel_spec_type"] = kind
    if (tokens := model.get("tokenizer") or "pinyin") not in TOKENIZERS:
        wrong["tokenizer"] = tokens
    if (backbone := model.get("backbone", "DiT")) != "DiT":
        wrong["backbone"] = backbone
    if wrong:
        raise CheckpointError(
            f"the config of {path} says {wrong}; only DiTs with pinyin or custom tokens on the"
            " 24 kHz mels of Vocos are read"
        )
