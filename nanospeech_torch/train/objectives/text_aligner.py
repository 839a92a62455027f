"""Text aligner: how long each token of a clip lasts, as another model of mels hears it.

That model is a speech model with an aligner (text_upsampling: aligned), which is left as it is. A
search of an EchoDiT's own from nothing was tried: most of its tokens were as short as may be.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanospeech.config import AudioConfig
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.latents import EchoBatch

from .flow import search
from .placing import patch_means


class TextAligner:
    """Finds durations by the token means of a speech model.

    Args:
        dit: its network, with an aligner.
        audio: its mels.
    """

    def __init__(self, dit: DiT, audio: AudioConfig):
        assert dit.aligner is not None
        self.dit, self.audio = dit.requires_grad_(False).eval(), audio

    @torch.no_grad()
    def durations(self, batch: EchoBatch) -> Tensor:
        """How long each token lasts, in patches of that model: int64 (B, T), 0 past the text.

        As engine.align finds it in clear recordings; nothing is fitted to noise or narrow bands.
        """
        device = batch.mel.device
        self.dit.to(device)
        with torch.autocast(device.type, enabled=False):
            p = self.dit.config.patch_size
            valid = layers.length_mask(batch.lens, batch.mel.shape[1])
            mel = layers.masked((batch.mel - self.audio.mel_mean) / self.audio.mel_std, valid)
            target, lens = patch_means(mel, batch.lens, p), (batch.lens + p - 1) // p
            speaker = target.sum(1) / lens[:, None]
            means = self.dit.token_means(batch.text, speaker).float()
            return search(target, means, lens, (batch.text >= 0).sum(1))[0]
