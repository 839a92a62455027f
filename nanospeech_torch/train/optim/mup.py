"""muP: learning rates that carry over from a narrow model to a wide one. No optimiser here.

Tensor Programs V (arXiv 2203.03466), table 3 for Adam: a matrix whose fan-in grows with the width
gets a rate that shrinks with it, everything else keeps its rate. These matrices are found by
comparing with the shapes of the same model at a base width. Heads keep their size (dim_head), so
attention's scale needs no change. The input projection reads mels, whose number is fixed, beside
text states, whose
number is not: it is treated as growing, because the text states limit its rate.
"""

from __future__ import annotations

from dataclasses import replace
from math import log, prod
from typing import Any

import torch
from torch import nn

from nanospeech.config import DiTConfig, DurationConfig
from nanospeech.errors import InputError
from nanospeech_torch.engine import weightless

Shapes = dict[str, torch.Size]


def narrowed(config: Any, dim: int) -> Any:
    """A DiTConfig or DurationConfig at another width: heads and text_dim in proportion.

    Raises:
        InputError: heads or text_dim would not come out whole.
    """
    sizes = {
        "heads": config.heads * dim / config.dim,
        "text_dim": config.text_dim * dim / config.dim,
    }
    for name, value in sizes.items():
        if value < 1 or value % 1:
            raise InputError(
                f"optimizer.mup_base_dim {dim} makes {name} {value:g} from {getattr(config, name)} "
                f"at dim {config.dim}; choose a base width at which it is whole"
            )
    heads, text_dim = (int(v) for v in sizes.values())
    rope = min(config.rope_heads, heads)
    return replace(config, dim=dim, heads=heads, text_dim=text_dim, rope_heads=rope)


def base_shapes(owner: nn.Module, dim: int) -> Shapes:
    """Shapes of a model's parameters if its width were `dim`; nothing is allocated.

    Args:
        owner: Nanospeech, DurationPredictor or DurationHead: what holds a `transformer`.
        dim: the base width, at which learning rates were or will be tuned.

    Raises:
        InputError: the model has no width to change, or this one does not divide its sizes.
    """
    transformer = getattr(owner, "transformer", None)
    config = getattr(transformer, "config", None)
    if not isinstance(config, (DiTConfig, DurationConfig)):
        raise InputError(
            "optimizer.mup_base_dim is for speech and duration models, "
            f"not {type(owner).__name__}; leave it out"
        )
    family = next(c for c in type(transformer).__mro__ if c.__module__.startswith("nanospeech"))
    with weightless():
        base = family(narrowed(config, dim))
    inner = {name: p.shape for name, p in base.named_parameters()}
    shapes = {name: p.shape for name, p in owner.named_parameters()}
    for name in shapes:
        part = name.removeprefix("transformer.")
        if part in inner:
            shapes[name] = inner[part]
        elif name == "to_pred.0.weight":  # DurationHead's own
            shapes[name] = torch.Size([1, dim])
    return shapes


def matrices(owner: nn.Module) -> dict[str, torch.Tensor]:
    """Weights with a fan-in by name: those of linear layers and convolutions."""
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d)
    return {
        f"{path}.weight" if path else "weight": module.weight
        for path, module in owner.named_modules()
        if isinstance(module, kinds)
    }


def width_multipliers(owner: nn.Module, base: Shapes) -> dict[str, float]:
    """Factor of Adam's learning rate for each parameter.

    Args:
        owner: the model.
        base: base_shapes of it.

    Returns:
        base width over width for matrices whose fan-in grows, 1 for other matrices, embeddings,
        norms, gains and biases.
    """
    growth = {
        name: prod(base[name][1:]) / prod(weight.shape[1:])
        for name, weight in matrices(owner).items()
        if name in base
    }
    # a fan-in that is fixed in part grows less; those that grow whole tell the widths' ratio
    ratio = max(growth.values(), key=lambda g: abs(log(g)))
    return {
        name: ratio if growth.get(name, 1.0) != 1 else 1.0 for name, _ in owner.named_parameters()
    }


@torch.no_grad()
def scale_outputs_(owner: nn.Module, base: Shapes) -> None:
    """Starts fresh output layers smaller, as their fan-in grows and their fan-out does not.

    torch's initialisation scales with the root of the fan-in, which is right for the other
    matrices; outputs need the fan-in itself. For new models only, not after loading weights.
    """
    for name, weight in matrices(owner).items():
        if name in base and base[name][0] == weight.shape[0]:
            weight.mul_((prod(base[name][1:]) / prod(weight.shape[1:])) ** 0.5)
