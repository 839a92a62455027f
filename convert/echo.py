"""Echo: checkpoints of Echo-TTS and of Irodori-TTS, whose networks are EchoDiTs.

Facts of the layouts are those of jordandarefsky/echo-tts and Aratako/Irodori-TTS.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nanospeech.config import AudioConfig, ModelConfig, from_dict
from nanospeech.errors import CheckpointError
from nanospeech.latent_architectures import EchoConfig, EchoOptions
from nanospeech.release.shapes import Shapes, sizes
from nanospeech.release.tensors import check_tensors
from nanospeech.text.pieces import PieceTokenizer
from nanospeech.text.tokenizer import Tokenizer

from .lazy import renamed, shapes_of
from .model import Model, find_pieces
from .options import ConvertOptions
from .source import Source

log = logging.getLogger("nanospeech")

MARK = "blocks.0.attention.wk_speaker.weight"
EMBEDDING = "text_encoder.text_embedding.weight"
BYTES = 256
BOS = "<s>"  # of the tokenizers that Irodori-TTS names
# Sample rate and hop of the latents: Fish S1-DAC's and DAC-VAE's.
RATES = {"echo": (44_100, 2048), "irodori": (48_000, 1920)}


def fits(source: Source, settings: Mapping[str, Any], name: str) -> bool:
    """Whether a file may be of a kind: Echo reads bytes, Irodori a language model's pieces."""
    shapes = shapes_of(source.tensors)
    reads_bytes = shapes.get(EMBEDDING, ())[:1] == (BYTES,)
    return MARK in shapes and reads_bytes == (name == "echo")


def read(
    path: Path, source: Source, settings: Mapping[str, Any], name: str, o: ConvertOptions
) -> Model:
    """A speech model of Echo's layout.

    Raises:
        CheckpointError: not such a checkpoint.
    """
    shapes = shapes_of(source.tensors)
    if not fits(source, settings, name):
        others = [kind for kind in RATES if fits(source, settings, kind)]
        raise CheckpointError(
            f"{path} is no checkpoint of {name}: "
            + (f"its text is that of {others[0]}" if others else f"it has no {MARK}")
        )
    stated = stated_config(source, path)
    if (patch := stated.get("latent_patch_size", 1)) != 1:
        raise CheckpointError(
            f"{path} was trained with latent_patch_size {patch}; only 1 is read here"
        )
    echo = network_config(shapes, name, path)
    rate, hop = RATES[name]
    audio = AudioConfig(sample_rate=rate, hop_length=hop, n_mels=echo.latent_dim)
    tokenizer: Tokenizer
    if name == "echo":
        kind, tokenizer = "echo", Tokenizer("echo", [])
        sampling = EchoOptions(cfg_speaker=8.0)
    else:
        pieces = find_pieces(o.vocab, path, echo)
        read_as_irodori(pieces, bool(stated.get("text_add_bos", True)))
        kind, tokenizer = "pieces", pieces
        sampling = EchoOptions()
    config = ModelConfig(
        name=name,
        tokenizer=kind,
        language="ja" if name == "irodori" else "en",
        audio=audio,
        echo=echo,
        echo_sampling=sampling,
        steps=sampling.steps,
        imitates=True,
    )
    names = {f"transformer.{n}": n for n in source.tensors}
    check_tensors({new: shapes[old] for new, old in names.items()}, network_shapes(echo), path)
    return Model(config, tokenizer, {"model": renamed(source.tensors, names)}, source.step)


def stated_config(source: Source, path: Path) -> dict[str, Any]:
    """What Irodori-TTS writes into a file's header about the network; empty where nothing is.

    Raises:
        CheckpointError: it is no JSON object.
    """
    try:
        stated = json.loads(source.metadata.get("config_json") or "{}")
    except (ValueError, RecursionError) as e:
        raise CheckpointError(f"{path} has a config_json that is no JSON: {e}") from e
    if not isinstance(stated, dict):
        raise CheckpointError(f"{path} has a config_json that is no object: {stated!r}")
    return stated


# What Irodori-TTS makes of a text before its tokenizer: patterns and what takes their place.
SAID = (
    (r"[\t\u3000;▼♀♂《》≪≫①-⑥]|\\?\[n\]", ""),
    (r"[\u02d7\u2010-\u2015\u2043\u2212\u23af\u23e4\u2500\u2501\u2e3a\u2e3b]", ""),
    ("[～〜]", "ー"),
    ("[●◯〇]", "○"),
    ("♥", "♡"),
)
DOTS = ((r"\.{2,3}", "…"), ("…{3,}", "……"))  # and after NFKC, which takes … apart


def read_as_irodori(tokenizer: PieceTokenizer, bos: bool) -> None:
    """Puts into a tokenizer.json what Irodori-TTS does around it: its punctuation, and BOS.

    BOS comes before each text, and nothing behind it, whatever the file itself says.
    """
    pieces = tokenizer.model
    if pieces is None:
        return
    from tokenizers import Regex, normalizers, processors

    before, after = ([normalizers.Replace(Regex(p), to) for p, to in part] for part in (SAID, DOTS))
    own = [] if pieces.normalizer is None else [pieces.normalizer]
    pieces.normalizer = normalizers.Sequence([*before, normalizers.NFKC(), *after, *own])
    number = pieces.token_to_id(BOS) if bos else None
    if bos and number is None:
        log.warning("%s has no %s, which is put before each text", tokenizer.path, BOS)
    single, known = ("$A", []) if number is None else (f"{BOS} $A", [(BOS, number)])
    pieces.post_processor = processors.TemplateProcessing(single=single, special_tokens=known)


def network_config(shapes: Shapes, name: str, path: Path) -> EchoConfig:
    """The network's sizes, read off its tensors, and the options of its project.

    Raises:
        CheckpointError: a tensor that a size is read off is missing or of another shape.
    """

    def size(tensor: str, axis: int) -> int:
        return sizes(shapes, tensor, 2, path)[axis]

    found: dict[str, Any] = {
        "latent_dim": size("in_proj.weight", 1),
        "time_dim": size("cond_module.0.weight", 1),
        "adaln_rank": size("blocks.0.mlp_adaln.gate_down.weight", 0),
        "text_vocab": size(EMBEDDING, 0),
        "continues": "latent_norm.weight" in shapes,
    }
    for part, at in (("", ""), ("text_", "text_encoder."), ("speaker_", "speaker_encoder.")):
        block = f"{at}blocks.0"
        found[f"{part}ff_dim"] = size(f"{block}.mlp.w1.weight", 0)
        found[f"{part}dim"] = size(f"{block}.mlp.w1.weight", 1)
        found[f"{part}heads"] = size(f"{block}.attention.q_norm.weight", 0)
        found[f"{part}depth"] = depth(shapes, f"{at}blocks.")
    found["speaker_patch"] = size("speaker_encoder.in_proj.weight", 1) // found["latent_dim"]
    if name == "irodori":
        found |= {"speaker_causal": False, "speaker_mean": True, "zero_masked": True}
    return from_dict(EchoConfig, found, str(path))


def network_shapes(config: EchoConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an EchoDiT's tensors, without allocating anything."""
    from nanospeech_torch.echo.network import EchoDiT
    from nanospeech_torch.engine import weightless

    with weightless():
        state = EchoDiT(config).state_dict()
    return {f"transformer.{name}": tuple(t.shape) for name, t in state.items()}


def depth(shapes: Shapes, prefix: str) -> int:
    """How many blocks there are under a prefix."""
    found = {n.removeprefix(prefix).split(".")[0] for n in shapes if n.startswith(prefix)}
    return len(found)
