"""Models to measure: release folders of any size with random weights. They speak noise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.config import DiTConfig, ModelConfig, VocoderConfig, from_dict
from nanospeech.errors import InputError, require
from nanospeech.load import pick_backend
from nanospeech.release.folder import CONFIG, MODEL, VOCODER

CONFIGS = Path(__file__).parents[2] / "nanospeech" / "configs"
PUBLISHED = "82M"  # the size of the published weights


def sizes(name: str) -> ModelConfig:
    """The model of a recipe: its speech model and, unless it has another, the published Vocos.

    Args:
        name: of a file in nanospeech/configs, or a path of another.

    Raises:
        InputError: no such recipe, or one of another kind of model.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else CONFIGS / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.yaml")))
        raise InputError(
            f"no recipe {name!r}; choose from {known}, or give the path of a YAML file"
        )
    values: dict[str, Any] = require("yaml", "train").safe_load(path.read_text(encoding="utf-8"))
    if values.get("model") != "speech":
        raise InputError(f"{path} is a recipe for {values.get('model')!r}, not a speech model")
    dit = from_dict(DiTConfig, {**values.get("dit", {}), "text_num_embeds": 256}, f"{path}: dit")
    vocoder = from_dict(VocoderConfig, values.get("vocoder", {}), f"{path}: vocoder")
    return ModelConfig(name=path.stem, tokenizer="bytes", dit=dit, vocoder=vocoder)


def random_release(name: str, folder: Path) -> Path:
    """Writes a release folder of a named size (see sizes) with random float32 weights.

    Its tokens are bytes; its voice is the one that ships.
    """
    from safetensors.numpy import save_file

    config = sizes(name)
    folder.mkdir(parents=True)
    config.save(folder / CONFIG)
    rng = np.random.default_rng(0)
    for file, prefix in ((MODEL, "transformer."), (VOCODER, "")):
        shapes = published_shapes(config, file)
        save_file({prefix + n: draw(n, s, rng) for n, s in shapes.items()}, folder / file)
    return folder


def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Weights that preserve the variance of their input; scales of norms are one."""
    if len(shape) == 1 and name.endswith("weight"):
        return np.ones(shape, np.float32)
    spread = 1 / math.sqrt(math.prod(shape[1:])) if name.endswith("weight") else 0.1
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(spread)


def published_shapes(config: ModelConfig, file: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a network's tensors as release folders have them; builds no weights."""
    if pick_backend() == "torch":
        import torch

        from nanospeech_torch.dit import DiT
        from nanospeech_torch.vocoder import Vocos

        with torch.device("meta"):
            module = DiT(config.dit) if file == MODEL else Vocos(config.vocoder or VocoderConfig())
        return {n: tuple(t.shape) for n, t in module.state_dict().items()}
    from mlx.utils import tree_flatten

    from nanospeech_mlx.dit import DiT
    from nanospeech_mlx.engine import published
    from nanospeech_mlx.vocoder import Vocos

    module = DiT(config.dit) if file == MODEL else Vocos(config.vocoder or VocoderConfig())
    flat: Any = tree_flatten(module.parameters())
    return {n: published(n, tuple(p.shape)) for n, p in flat}
