"""Speaking on the CPU: the same arithmetic by faster operations. Torch only; knows no model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def speaks(x: Tensor) -> bool:
    """Whether this is inference on a CPU, one operation after the other."""
    there = x.device.type == "cpu" and not torch.is_grad_enabled()
    return there and not torch.compiler.is_compiling()


class GELU(nn.GELU):
    """GELU; in bfloat16 by erf: tanh takes five times as long and differs by less than rounding."""

    def forward(self, x: Tensor) -> Tensor:
        if speaks(x) and x.dtype == torch.bfloat16:
            return F.gelu(x)
        return super().forward(x)


def rotate(x_BHNE: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotates interleaved pairs, each a complex number: one multiplication, in float32."""
    pairs = torch.view_as_complex(x_BHNE.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.complex(*angles)).flatten(-2).to(x_BHNE.dtype)
