"""Bounds: what sizes of networks and settings of sampling can be, for the configs that have them.

A damaged or mistyped config is refused before a network is made of it.
"""

from __future__ import annotations

from typing import Any

from .errors import InputError

LARGEST = 1 << 20  # width, or count of tokens; a damaged config asks for more than memory holds
DEEPEST = 1024  # blocks; training over processes draws a network of none, then its blocks
GROUPS = 16  # of the position convolutions
# settings of sampling, which a model, its student and a caller choose
RANGES = {"cfg_strength": (0, 100), "cfg_rescale": (0, 1), "temperature": (0, 2)}


def check_sizes(config: Any, *names: str, least: int = 1, most: int = LARGEST) -> None:
    """Raises InputError where a size cannot be."""
    for name in names:
        if not least <= (size := getattr(config, name)) <= most:
            raise InputError(f"{name} is {size}, should be {least} to {most}")


def check_transformer(config: Any) -> None:
    """Raises InputError where a size cannot be that DiTConfig and DurationConfig have."""
    check_sizes(config, "dim", "dim_head", "ff_mult", "text_dim", "text_num_embeds", "n_mels")
    check_sizes(config, "heads", most=DEEPEST)
    check_sizes(config, "depth", "conv_layers", least=0, most=DEEPEST)
    if not 1 <= config.rope_heads <= config.heads:
        raise InputError(f"rope_heads is {config.rope_heads}, should be 1 to {config.heads}")
    if not 0 <= config.dropout < 1:
        raise InputError(f"dropout is {config.dropout}, should be 0 to below 1")


def check_groups(config: Any) -> None:
    """Raises InputError where a transformer's width is not one of its position convolutions."""
    if config.dim % GROUPS:
        raise InputError(f"dim is {config.dim}, should be a multiple of {GROUPS}")


def check_steps(steps: int, counts: tuple) -> None:
    """Raises InputError where the usual steps, or those that a model knows, cannot be; (): any."""
    both = (*counts, steps)
    if any(type(n) is not int or not 1 <= n <= 1000 for n in both):
        raise InputError(f"steps {both} should be whole numbers of 1 to 1000")
    if counts and steps not in counts:
        raise InputError(f"steps is {steps}, should be one of {counts}")


def check_ranges(config: Any, *names: str) -> None:
    """Raises InputError where one of RANGES cannot be; None leaves the choice to others."""
    for name in names:
        low, high = RANGES[name]
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise InputError(f"{name} is {value}; choose {low} to {high}")
