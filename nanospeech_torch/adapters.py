"""Adapters: low-rank changes to the weights of a model (LoRA), and merging them. No training.

LoRA (arXiv 2106.09685) freezes the weights W and learns W + B A * alpha / r. The adapters are the
peft package's; merging needs nothing but tensors, so a converter need not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from nanospeech.config import option
from nanospeech.errors import CheckpointError, InputError, require
from nanospeech.release.voice_weights import is_thin

T = TypeVar("T", bound=nn.Module)
ADAPTER = "default"  # peft's name of the one set of adapters


@dataclass(frozen=True)
class LoraConfig:
    """Which weights get adapters, and how large these are."""

    rank: int = option(16, "rank r of the adapters")
    alpha: float = option(32.0, "adapters are scaled by alpha / rank")
    dropout: float = option(0.0, "chance that an adapter's input is dropped")
    targets: str = option(
        "to_q,to_k,to_v,to_out.0,ff.ff.0.0,ff.ff.2",
        "linear layers, by the ends of their names; attn_norm.linear would add adaLN's",
    )
    whole: str = option("aligner", "parts that are trained without adapters, by the start of names")
    thin: bool = option(False, "biases, norms and other thin tensors are trained too")

    def __post_init__(self):
        if self.rank < 1:
            raise InputError(f"LoRA's rank is {self.rank}; choose at least 1")
        if not 0 <= self.dropout < 1:
            raise InputError(f"LoRA's dropout is {self.dropout}; choose 0 up to 1")

    @property
    def scale(self) -> float:
        """Factor of B A: alpha / rank."""
        return self.alpha / self.rank


def add_lora(objective: T, config: LoraConfig | None = None, new_tokens: int = 0) -> T:
    """Freezes the model and adds adapters, which are zero at first.

    Args:
        objective: a module whose `transformer` is a DiT; changed in place.
        config: of the adapters.
        new_tokens: the last so many rows of the token embedding are trained too.

    Returns:
        The objective.

    Raises:
        InputError: a target that no linear layer's name ends in, or an unknown part.
        BackendError: peft is not installed.
    """
    peft = require("peft", "finetune")
    config = config or LoraConfig()
    names = [n for n, m in objective.named_modules() if isinstance(m, nn.Linear)]
    targets = split(config.targets)
    for target in targets:
        if not any(n == target or n.endswith("." + target) for n in names):
            raise InputError(f"LoRA's target {target!r} is the end of no linear layer's name")
    transformer: Any = objective.transformer
    options = {"r": config.rank, "lora_alpha": config.alpha, "lora_dropout": config.dropout}
    peft.inject_adapter_in_model(
        peft.LoraConfig(target_modules=targets, **options), objective, ADAPTER
    )
    for name, parameter in objective.named_parameters():
        thin = config.thin and is_thin(parameter)
        parameter.requires_grad_("lora_" in name or thin)
    for part in split(config.whole):
        if not hasattr(transformer, part):
            known = ", ".join(n for n, _ in transformer.named_children())
            raise InputError(f"the model has no part {part!r}; choose from {known}")
        if module := getattr(transformer, part):  # None: an option that it was not given
            module.requires_grad_()
    if new_tokens:
        train_last_rows(transformer.text_embed.text_embed.weight, new_tokens)
    return objective


def split(names: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in names.split(",") if name.strip()]


def train_last_rows(table: Tensor, count: int) -> None:
    """Lets only the last rows of a table have gradients (and so move, without weight decay)."""
    table.requires_grad_()
    keep = torch.zeros(len(table), 1)
    keep[-count:] = 1
    here: dict[torch.device, Tensor] = {}

    def only_last(grad: Tensor) -> Tensor:
        if grad.device not in here:  # once: a copy in every step would wait for the device
            here[grad.device] = keep.to(grad.device)
        return grad * here[grad.device].to(grad.dtype)

    table.register_hook(only_last)


def trainable(objective: nn.Module) -> list[nn.Parameter]:
    """The parameters to give to an optimizer."""
    return [p for p in objective.parameters() if p.requires_grad]


def merge_lora(state: Mapping[str, Tensor], config: LoraConfig) -> dict[str, Tensor]:
    """Adapters added to the weights that they sit on: W + B A * alpha / r.

    Args:
        state: state_dict() of an objective with adapters.
        config: of the adapters.

    Returns:
        float32 tensors by their published names.

    Raises:
        CheckpointError: an adapter lacks its other half or its weight, or is of another rank.
    """
    plain = {n: t for n, t in state.items() if ".lora_" not in n}
    merged = {n.replace(".base_layer.", "."): t for n, t in plain.items()}
    down = f".lora_A.{ADAPTER}.weight"
    for name, a in state.items():
        if ".lora_A." not in name:
            continue
        target = name.removesuffix(down) + ".weight"
        b, weight = state.get(name.replace(".lora_A.", ".lora_B.")), merged.get(target)
        if not name.endswith(down) or b is None or weight is None or weight.ndim != 2:
            raise CheckpointError(f"the adapter {name} does not belong to a plain LoRA")
        rows, columns = weight.shape
        if (b.shape, a.shape) != ((rows, config.rank), (config.rank, columns)):
            raise CheckpointError(
                f"{name} and its lora_B are {tuple(a.shape)} and {tuple(b.shape)}; of rank"
                f" {config.rank}, which the run had, and {target} they should be"
                f" {(config.rank, columns)} and {(rows, config.rank)}"
            )
        merged[target] = weight.float() + b.float() @ a.float() * config.scale
    return merged


def blend(
    base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], strength: float
) -> dict[str, Tensor]:
    """Weights between a model and its finetuned version: clearer speech against closer similarity.

    Robust finetuning by averaging weights: arXiv 2109.01903.

    Args:
        base: tensors before, by their published names.
        tuned: tensors after; rows for new tokens, which the base lacks, stay as they are.
        strength: 0 gives the base, 1 the finetuned weights.
    """
    blended = {}
    for name, after in tuned.items():
        before, after = base[name].float(), after.float()
        mixed = torch.lerp(before, after[: len(before)], strength)
        blended[name] = torch.cat([mixed, after[len(before) :]])
    return blended
