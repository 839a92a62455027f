"""Text aligner: where each token of a clip is and how long, as another model of mels hears it.

That model is a speech model with an aligner (text_upsampling: aligned), which is left as it is. A
search of an EchoDiT's own from nothing was tried: most of its tokens were as short as may be.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanospeech.config import AudioConfig
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch
from nanospeech_torch.train.data.latents import EchoBatch

from .flow import search
from .placing import earlier, later, patch_means, tokens_at


class TextAligner:
    """Finds durations and places by the token means of a speech model.

    Args:
        dit: its network, with an aligner.
        audio: its mels.
    """

    def __init__(self, dit: DiT, audio: AudioConfig):
        assert dit.aligner is not None
        self.dit, self.audio = dit.requires_grad_(False).eval(), audio

    def durations(self, batch: EchoBatch) -> Tensor:
        """How long each token lasts, in patches of that model: int64 (B, T), 0 past the text.

        As engine.align finds it in clear recordings; nothing is fitted to noise or narrow bands.
        """
        return self.search(batch, torch.zeros_like(batch.lens))[0]

    def tokens(self, batch: Batch) -> Tensor:
        """Id of the token that each patch speaks, -1 where there is none: int64 (B, N / p)."""
        p = self.dit.config.patch_size
        before, lens = batch.wordless // p, (batch.lens + p - 1) // p
        index = later(self.search(batch, before)[1], before, 0)
        return tokens_at(batch.text, index, lens, before)

    @torch.no_grad()
    def search(self, batch: Batch | EchoBatch, before_B: Tensor) -> tuple[Tensor, Tensor]:
        """Patches per token (B, T) and token per patch (B, N / p), after the first before_B."""
        device = batch.mel.device
        self.dit.to(device)
        with torch.autocast(device.type, enabled=False):
            p = self.dit.config.patch_size
            valid = layers.length_mask(batch.lens, batch.mel.shape[1])
            mel = layers.masked((batch.mel - self.audio.mel_mean) / self.audio.mel_std, valid)
            target, lens = patch_means(mel, batch.lens, p), (batch.lens + p - 1) // p
            speaker = target.sum(1) / lens[:, None]
            means = self.dit.token_means(batch.text, speaker).float()
            tokens = (batch.text >= 0).sum(1).clamp(min=1)
            return search(earlier(target, before_B), means, lens - before_B, tokens)
