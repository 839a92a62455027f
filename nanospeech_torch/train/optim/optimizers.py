"""Optimizers: optimisers and their groups, the learning rate's schedule, the average.

Bad gradients are handled in guards.py, rates over widths in mup.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.config import option
from nanospeech.errors import InputError
from nanospeech_torch.dit import AdaLayerNorm
from nanospeech_torch.echo.encoders import Norm
from nanospeech_torch.echo.network import AdaLN

from .mup import Shapes, base_shapes, width_multipliers

SCHEDULES = ("linear", "cosine", "constant", "wsd")
OPTIMIZERS = ("adamw", "muon")


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimisers of a model. Biases, norms, gains and embeddings are not decayed."""

    name: str = option("adamw", "adamw, or muon for the blocks' matrices and adamw for the rest")
    lr: float = option(1e-4, "peak learning rate")
    betas: list[float] = option((0.9, 0.999), "AdamW's decay rates of the moments")
    eps: float = option(1e-8, "AdamW's least divisor")
    weight_decay: float = option(0.01, "of matrices, for each unit of learning rate")
    muon_lr: float | None = option(
        None, "peak rate of muon's matrices; its steps have AdamW's size, so lr if left out"
    )
    muon_momentum: float = option(0.95, "muon's momentum")
    mup_base_dim: int | None = option(
        None, "width at which lr was tuned: matrices of wider models take smaller steps (muP)"
    )

    def __post_init__(self):
        if self.name not in OPTIMIZERS:
            raise InputError(
                f"optimizer.name is {self.name!r}; choose from {', '.join(OPTIMIZERS)}"
            )
        betas = tuple(self.betas) if isinstance(self.betas, (list, tuple)) else ()
        if len(betas) != 2 or not all(0 <= b < 1 for b in betas):
            raise InputError(f"optimizer.betas is {self.betas!r}; give two numbers below 1")
        object.__setattr__(self, "betas", tuple(float(b) for b in betas))
        if self.lr <= 0 or (self.muon_lr is not None and self.muon_lr <= 0):
            raise InputError("optimizer.lr and optimizer.muon_lr should be above 0")
        for name in ("weight_decay", "eps"):
            if getattr(self, name) < 0:
                raise InputError(f"optimizer.{name} is {getattr(self, name)}, should be 0 or more")
        if self.name == "adamw" and self.muon_lr is not None:
            raise InputError(
                f"optimizer.muon_lr is {self.muon_lr}, which is for optimizer.name=muon; leave it"
                " out, or set that"
            )
        if not 0 <= self.muon_momentum < 1:
            raise InputError(
                f"optimizer.muon_momentum is {self.muon_momentum}; choose 0 to below 1"
            )


def build_optimizers(
    owner: nn.Module,
    config: OptimizerConfig,
    parameters: Iterable[nn.Parameter] | None = None,
    base: Shapes | None = None,
) -> list[torch.optim.Optimizer]:
    """AdamW, or Muon and AdamW, over a model's trainable parameters.

    Each group's "lr" is its peak: multiply all by lr_factor.

    Args:
        owner: the model; its parameters may be DTensors.
        config: names and rates.
        parameters: those to take, one phase's for example; all that require grad if None.
        base: mup.base_shapes; found from config.mup_base_dim if None.

    Raises:
        InputError: this torch has no Muon, or mup_base_dim does not fit the model.
    """
    if base is None and config.mup_base_dim:
        base = base_shapes(owner, config.mup_base_dim)
    factors = width_multipliers(owner, base) if base else {}
    wanted = None if parameters is None else {id(p) for p in parameters}
    named = {
        name: p
        for name, p in owner.named_parameters()
        if p.requires_grad and (wanted is None or id(p) in wanted)
    }
    muon = hidden_matrices(owner) & named.keys() if config.name == "muon" else set()
    optimizers: list[torch.optim.Optimizer] = []
    if muon:
        if not hasattr(torch.optim, "Muon"):
            raise InputError(
                f"optimizer.name muon needs torch 2.9 or newer, this is {torch.__version__}; "
                "upgrade torch or set optimizer.name=adamw"
            )
        # An orthogonal step's spectral norm, brought to AdamW's size, grows with the root of the
        # width where Adam's grows with the width: its factor is the root of Adam's
        roots = {n: factors.get(n, 1.0) ** 0.5 for n in muon}
        groups = grouped(owner, {n: p for n, p in named.items() if n in muon}, config, roots, True)
        optimizers.append(
            torch.optim.Muon(groups, momentum=config.muon_momentum, adjust_lr_fn="match_rms_adamw")
        )
    rest = {n: p for n, p in named.items() if n not in muon}
    if rest:
        groups = grouped(owner, rest, config, factors, False)
        betas: Any = config.betas
        optimizers.append(torch.optim.AdamW(groups, betas=betas, eps=config.eps, fused=True))
    return optimizers


def grouped(
    owner: nn.Module,
    named: dict[str, nn.Parameter],
    config: OptimizerConfig,
    factors: dict[str, float],
    muon: bool,
) -> list[dict[str, Any]]:
    """Parameter groups of equal rate and decay.

    Rate x decay does not depend on the width's factor, but on a rate that the objective asks for:
    a text encoder that learns a tenth as fast forgets a tenth as fast what it was published with.
    """
    peak = config.muon_lr if muon and config.muon_lr else config.lr
    rates = owner.rates() if hasattr(owner, "rates") else {}  # type: ignore[operator]
    spared = set() if muon else undecayed(owner)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for name, p in named.items():
        key = factors.get(name, 1.0), rates.get(name, 1.0), name not in spared
        groups.setdefault(key, []).append(p)
    return [
        {
            "params": params,
            "lr": peak * factor * rate,
            "weight_decay": config.weight_decay / factor if decays else 0.0,
        }
        for (factor, rate, decays), params in groups.items()
    ]


def undecayed(owner: nn.Module) -> set[str]:
    """Names of parameters without weight decay: embeddings, norms, and all that are not matrices.

    An EchoDiT's norms of queries and keys have a row of gains for each head.
    """
    names = {name for name, p in owner.named_parameters() if sum(s > 1 for s in p.shape) < 2}
    for path, module in owner.named_modules():
        if isinstance(module, (nn.Embedding, Norm)):
            names.add(f"{path}.weight")
    return names


def hidden_matrices(owner: nn.Module) -> set[str]:
    """Names of Muon's matrices: linear layers of repeated blocks.

    Not the embeddings and the input and output projections. Not the time's adaLN heads: their input
    is one vector a sample, so their gradients have low rank, and orthogonalising them would
    amplify noise.
    """
    names = set()
    for path, blocks in owner.named_modules():
        if not isinstance(blocks, nn.ModuleList):
            continue
        adaln = (AdaLayerNorm, AdaLN)
        heads = tuple(n + "." for n, m in blocks.named_modules() if isinstance(m, adaln))
        for name, module in blocks.named_modules():
            if isinstance(module, nn.Linear) and not name.startswith(heads or ("\0",)):
                names.add(f"{path}.{name}.weight")
    return names


def fuse(optimizer: torch.optim.Optimizer) -> None:
    """Makes a new Adam or AdamW fused, unless set otherwise: faster, and able to skip steps."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and not optimizer.state:
        for group in optimizer.param_groups:
            if group.get("fused") is None and not (group["foreach"] or group["amsgrad"]):
                group["fused"] = True


def lr_factor(step: int, warmup: int, total: float, schedule: str, decay_fraction: float) -> float:
    """Learning rate at an optimiser step, relative to its peak.

    Steps are optimiser steps whatever the number of processes: no scaling is needed.
    """
    warm = (step + 1) / (warmup + 1) if step < warmup else 1.0
    if warm < 1 and schedule != "wsd":
        return warm
    begin = total * (1 - decay_fraction) if schedule == "wsd" else warmup
    part = min(1.0, max(0.0, (step - begin) / max(1, total - begin)))
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return 0.5 + 0.5 * math.cos(math.pi * part)
    return min(warm, 1 - part)  # a run that is shorter than its warm-up falls to 0 too


def steps_in_all(step: int, share: float, most: int) -> float:
    """Optimiser steps that a run will reach in its time, by its speed so far.

    As lr_factor's total it makes the decay a matter of time, on any machine: wsd is at
    (1 - share) / decay_fraction.

    Args:
        step: steps taken.
        share: fraction of the run's time that has passed; 0 for a run without a limit.
        most: total_steps.
    """
    return min(float(most), step / min(share, 1.0)) if step and share > 0 else float(most)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a DTensor, or the tensor itself; writing to it writes to both."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # type: ignore[operator]


class EMA:
    """Exponential moving average of a model's parameters, in float32.

    Where parameters are DTensors so are the means, shard by shard; nothing is communicated.

    Args:
        model: the module to average; its parameters must not be replaced afterwards.
        horizon: time constant in optimiser steps: the decay is 1 - 1 / horizon.
        decay: instead of a horizon.
    """

    def __init__(
        self, model: nn.Module, horizon: float | None = None, *, decay: float | None = None
    ):
        if (horizon is None) == (decay is None):
            raise InputError("an average takes a horizon in steps, or a decay")
        if horizon is not None and horizon < 1:
            raise InputError(f"the average's horizon is {horizon} steps, should be 1 or more")
        self.decay = decay if decay is not None else 1 - 1 / horizon  # type: ignore[operator]
        self.live = [p for _, p in model.named_parameters()]
        self.names = [name for name, _ in model.named_parameters()]
        self.mean = [p.detach().float().clone() for p in self.live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Moves the mean towards the weights; faster in the first steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        live = [local(p.detach()).float() for p in self.live]
        mean = [local(m) for m in self.mean]
        torch._foreach_lerp_(mean, live, 1 - decay)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Tensor]:
        """The means themselves, not copies, by parameter name."""
        return dict(zip(self.names, self.mean))

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copies means in; they are sharded as the parameters are."""
        for name, mean in zip(self.names, self.mean):
            mean.copy_(state[name])
