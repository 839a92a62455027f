"""Text encoder: reads the folder of a T5, T5Gemma or T5Gemma 2 encoder. Runs none.

Such a folder has the model's config.json, model.safetensors (or its shards) and tokenizer.json, as
the Hugging Face Hub has them; of a whole encoder-decoder the encoder alone is read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.errors import CheckpointError
from nanospeech.latent_architectures import TEXT_ENCODERS

from .folder import CONFIG, MODEL, check_size
from .shapes import count_blocks
from .tensors import read_tensors

# Where an encoder's tensors are in checkpoints, the longest prefix first.
PREFIXES = ("model.encoder.text_model.", "encoder.text_model.", "model.encoder.", "encoder.")
OTHERS = ("decoder.", "model.decoder.", "lm_head.", "model.encoder.vision_tower.")
PICTURES = ("model.encoder.multi_modal_projector.", "encoder.vision_tower.")
SHARED = "shared.weight"
# How the config and the tensors call the layers: of Gemma's kinds, and of T5.
LAYERS = ("num_hidden_layers", "layers"), ("num_layers", "block")


@dataclass(frozen=True)
class TextEncoderFiles:
    """What a folder holds.

    Attributes:
        kind: of TEXT_ENCODERS.
        config: of the encoder, as its config.json has it.
        whole: the whole config.json.
        tensors: by the encoder's own names, such as layers.0.mlp.up_proj.weight.
    """

    kind: str
    config: dict[str, Any]
    whole: dict[str, Any]
    tensors: dict[str, np.ndarray]

    @property
    def fingerprint(self) -> str:
        """Tells apart encoders whose states differ."""
        found = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for name in sorted(self.tensors):
            tensor = np.ascontiguousarray(self.tensors[name])
            # a few rows of each tensor: gigabytes are not read again
            found.update(f"{name} {tensor.shape}".encode() + tensor.reshape(-1)[:4096].tobytes())
        return found.hexdigest()

    @property
    def count(self) -> int:
        """Ids that it knows."""
        return len(self.tensors["embed_tokens.weight"])

    @property
    def width(self) -> int:
        """Of its states."""
        return self.config.get("d_model") or self.config["hidden_size"]


def read_text_encoder(folder: str | Path) -> TextEncoderFiles:
    """Reads an encoder's config and weights.

    Raises:
        CheckpointError: a file is missing, damaged, or of another kind of model.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"there is no text encoder in {folder}, which the model reads its text by: copy there"
            f" the {CONFIG}, {MODEL} and tokenizer.json of the one that it was trained with"
        )
    check_size(folder / CONFIG)
    try:
        whole = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        name = str(whole["model_type"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise CheckpointError(f"cannot read {folder / CONFIG}: {e!r}") from e
    kind = name.removesuffix("_text").removesuffix("_module").replace("_", "")
    if kind not in TEXT_ENCODERS:
        raise CheckpointError(
            f"{folder} holds a model of type {name!r}; encoders of {', '.join(TEXT_ENCODERS)} are"
            " read"
        )
    config = whole
    for part in ("encoder", "text_config"):
        config = config.get(part) or config
        if not isinstance(config, dict):
            raise CheckpointError(f"{folder / CONFIG} says {part} {config!r}, should be a mapping")
    tensors = encoders_own(read_tensors(folder / MODEL))
    stated, blocks = LAYERS[kind == "t5"]
    found = count_blocks(tensors, blocks)
    if config.get(stated, found) != found:  # what is usual for the kind may be left out
        raise CheckpointError(
            f"{folder} has weights of {found} layers, but {CONFIG} says {stated}"
            f" {config[stated]!r}; take both from one model"
        )
    return TextEncoderFiles(kind, config, whole, tensors)


def encoders_own(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An encoder's tensors by its own names, without those of a decoder or of pictures."""
    found = {}
    for name, tensor in tensors.items():
        if name.startswith(OTHERS + PICTURES) or name == SHARED:
            continue
        prefix = next((p for p in PREFIXES if name.startswith(p)), "")
        found[name.removeprefix(prefix)] = tensor
    if "embed_tokens.weight" not in found and SHARED in tensors:  # T5 ties them
        found["embed_tokens.weight"] = tensors[SHARED]
    return found
