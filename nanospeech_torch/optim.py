"""Optim: what moves weights beside the optimizer: the rate's schedule and the average."""

from __future__ import annotations

import math

import torch

SCHEDULES = ("linear", "cosine", "constant", "wsd")


def lr_factor(step: int, warmup: int, total: int, schedule: str, decay_fraction: float) -> float:
    """Learning rate at an optimiser step, relative to its peak.

    Steps are optimiser steps whatever the number of processes: no scaling is needed.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    begin = total * (1 - decay_fraction) if schedule == "wsd" else warmup
    part = min(1.0, max(0.0, (step - begin) / max(1, total - begin)))
    if schedule == "constant":
        return 1.0
    return 0.5 + 0.5 * math.cos(math.pi * part) if schedule == "cosine" else 1 - part


class EMA:
    """Exponential moving average of a model's parameters, in float32."""

    def __init__(self, model: torch.nn.Module, decay: float):
        self.decay = decay
        self.live = list(model.parameters())
        self.names = [name for name, _ in model.named_parameters()]
        self.mean = [p.detach().float().clone() for p in self.live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Moves the mean towards the weights; faster in the first steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        live = [p.detach().float() for p in self.live]
        torch._foreach_lerp_(self.mean, live, 1 - decay)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, self.mean))

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, mean in zip(self.names, self.mean):
            mean.copy_(state[name])
