"""Guards: skip steps with a bad gradient, without synchronising with the device.

The verdict on a step is a tensor that the optimisers use as such; only report(), at log steps,
reads counts on the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import option
from nanospeech.errors import DataError, InputError

from .optimizers import local

# devices whose fused kernels skip and scale; Apple's ignore both (pytorch pull request 186360)
IN_KERNEL = ("cpu", "cuda")


@dataclass(frozen=True)
class GuardConfig:
    """Which steps are skipped, and how many before a run stops."""

    skip_factor: float = option(
        10.0,
        "steps whose gradient norm is this many times its running mean are skipped; 0 is off",
    )
    skip_warmup: int = option(100, "good steps before norms are compared with their mean")
    skip_horizon: int = option(100, "steps that the running mean of the norm reaches back")
    max_bad_steps: int = option(20, "skipped steps in a row after which the run stops")

    def __post_init__(self):
        if self.skip_factor != 0 and self.skip_factor <= 1:
            raise InputError(f"skip_factor is {self.skip_factor}; choose more than 1, or 0 for off")
        if self.skip_warmup < 1 or self.skip_horizon < 1 or self.max_bad_steps < 1:
            raise InputError("skip_warmup, skip_horizon and max_bad_steps should be at least 1")


class Guard:
    """Checks gradient norms. One for each phase of a step, as each has its own usual norm.

    Args:
        config: the limits.
        device: where the norms are.
    """

    def __init__(self, config: GuardConfig | None = None, device: torch.device | str = "cpu"):
        self.config = config or GuardConfig()
        self.mean = torch.zeros((), device=device)  # running mean of the norm
        self.good = torch.zeros((), dtype=torch.long, device=device)
        self.bad = torch.zeros((), dtype=torch.long, device=device)
        self.spikes = torch.zeros((), dtype=torch.long, device=device)  # of the bad, finite ones
        self.streak = torch.zeros((), dtype=torch.long, device=device)

    @torch.no_grad()
    def check(self, norm: Tensor) -> Tensor:
        """Whether a step with this gradient norm is good: bool (), on the device.

        Args:
            norm: of the whole gradient, the same in every process; a DTensor is made whole.
        """
        c = self.config
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()  # type: ignore[operator]
        norm = norm.detach().float().reshape(())
        finite = torch.isfinite(norm)
        ok = finite
        if c.skip_factor:
            limit = c.skip_factor * self.mean
            ok = finite & ((norm <= limit) | (self.good < c.skip_warmup))
            # a spike counts as the limit: where gradients have come to stay large, the mean
            # follows within a few steps instead of refusing all of them
            norm = torch.where(ok, norm, torch.minimum(norm, limit))
        part = 1 / (self.good + 1).clamp(max=c.skip_horizon)
        moved = self.mean + part * (norm - self.mean)
        self.mean.copy_(torch.where(finite, moved, self.mean))
        self.good += ok
        self.bad += ~ok
        self.spikes += finite & ~ok
        self.streak.copy_(torch.where(ok, 0, self.streak + 1))
        return ok

    def state_dict(self) -> dict[str, Tensor]:
        """The counters themselves, not copies."""
        return {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in self.state_dict().items():
            value.copy_(state[name])

    def report(self) -> dict[str, int]:
        """Counts so far; waits for the device, so call it at log steps only.

        Returns:
            "skipped" steps, "spikes" among them (finite, but far too large), the present "streak".

        Raises:
            DataError: too many steps in a row were skipped.
        """
        tensors = torch.stack([self.bad, self.spikes, self.streak]).tolist()
        skipped, spikes, streak = (int(n) for n in tensors)
        if streak >= self.config.max_bad_steps:
            raise DataError(
                f"{streak} steps in a row had a gradient that is not finite or is more than "
                f"{self.config.skip_factor:g} times its usual norm; their updates were skipped, so "
                "the weights are still good. Lower optimizer.lr, look for bad clips in the data, "
                "or go on from an earlier checkpoint"
            )
        return {"skipped": skipped, "spikes": spikes, "streak": streak}


def clip_factor(norm: Tensor, max_norm: float) -> Tensor:
    """The factor on gradients of a norm that brings it to at most max_norm."""
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def guarded_step(optimizers: Iterable[Any], ok: Tensor, factor: Tensor | None = None) -> None:
    """Steps the optimisers, or leaves weights, moments and step counts as they are.

    Fused optimisers skip inside their kernel. For others (Muon, and all on Apple's GPUs) the old
    values are copied before the step and restored, which doubles their memory meanwhile.

    Args:
        optimizers: torch's, or Accelerate's around them.
        ok: bool (), on the parameters' device.
        factor: float (), by which gradients are scaled first, as to clip them; 1 if None.
    """
    for outer in optimizers:
        optimizer = getattr(outer, "optimizer", outer)
        if skips_in_kernel(optimizer):
            optimizer.found_inf = (~ok).float()
            if factor is not None:  # inside the kernel: a pass over all gradients less
                optimizer.grad_scale = 1 / factor
            outer.step()
            optimizer.found_inf = optimizer.grad_scale = None
        else:
            if factor is not None:
                params = [p for g in optimizer.param_groups for p in g["params"]]
                grads = [local(p.grad) for p in params if p.grad is not None]
                torch._foreach_mul_(grads, factor)  # type: ignore[attr-defined]
            restoring_step(outer, optimizer, ok)


def skips_in_kernel(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimiser takes found_inf and grad_scale."""
    groups = optimizer.param_groups
    return all(group.get("fused") for group in groups) and all(
        p.device.type in IN_KERNEL for group in groups for p in group["params"]
    )


def restoring_step(outer: Any, optimizer: torch.optim.Optimizer, ok: Tensor) -> None:
    """A step of any optimiser, undone where not ok."""
    params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    before = [local(p).clone() for p in params]
    states = [
        {k: local(v).clone() for k, v in optimizer.state.get(p, {}).items() if torch.is_tensor(v)}
        for p in params
    ]
    outer.step()
    for p, old, state in zip(params, before, states):
        choose_(p, old, ok)
        for name, value in optimizer.state[p].items():
            if torch.is_tensor(value):
                # made by this very step: torch's optimisers all start from zeros
                choose_(value, state.get(name, torch.zeros_like(local(value))), ok)


def choose_(tensor: Tensor, old: Tensor, ok: Tensor) -> None:
    """Keeps a tensor's values where ok, else puts the old ones back."""
    here = local(tensor)
    if here.device != ok.device:
        return  # a step count on the CPU with parameters on a GPU: reading `ok` would synchronise
    here.copy_(torch.where(ok, here, old))
