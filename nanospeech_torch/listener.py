"""Listener: tells from a mel which token is spoken in each of its patches. No losses, no search.

A frozen one lets a few-step student learn to be understood, as a recogniser does in DMDSpeech (Li
et al., arXiv 2410.11097). Its blocks are dilated convolutions with residuals (WaveNet, arXiv
1609.03499), which hear about a second around each patch.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nanospeech.architectures import ListenerConfig

from . import layers

TAPS = 3  # of each block's convolution


class ListenerBlock(nn.Module):
    """A residual block: norm, dilated convolution, GELU, convolution of one tap.

    Args:
        dim: width.
        dilation: patches between taps.
    """

    def __init__(self, dim: int, dilation: int):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.conv = nn.Conv1d(dim, dim, TAPS, padding=dilation * (TAPS // 2), dilation=dilation)
        self.out = nn.Conv1d(dim, dim, 1)

    def forward(self, x_BND: Tensor, mask_BN: Tensor | None = None) -> Tensor:
        normed = layers.masked(self.norm(x_BND), mask_BN)  # padding is as what is past the ends
        update = self.out(F.gelu(self.conv(normed.transpose(1, 2))))
        return x_BND + update.transpose(1, 2)


class Listener(nn.Module):
    """Mel to logits of the token of each patch.

    Args:
        config: sizes.
    """

    def __init__(self, config: ListenerConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.patch_size * config.n_mels, config.dim)
        self.blocks = nn.ModuleList(ListenerBlock(config.dim, d) for d in config.dilations)
        self.norm = nn.LayerNorm(config.dim)
        self.out = nn.Linear(config.dim, config.tokens)

    def forward(self, mel_BNM: Tensor, lens_B: Tensor | None = None) -> Tensor:
        """Logits (B, ceil(N / patch_size), tokens).

        Args:
            mel_BNM: in the ODE's units, (log mel - mel_mean) / mel_std; zero past lens_B.
            lens_B: frames of each item; None: all. What is beyond changes no logits before.
        """
        p = self.config.patch_size
        patches = -(-mel_BNM.shape[1] // p)
        x = self.embed(
            layers.pad_length(mel_BNM, patches * p).unflatten(1, (patches, p)).flatten(2)
        )
        mask = None if lens_B is None else layers.length_mask((lens_B + p - 1) // p, patches)
        for block in self.blocks:
            x = block(x, mask)
        return self.out(self.norm(x))
