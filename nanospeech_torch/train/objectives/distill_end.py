"""Distillation to the end: where a student arrives, and whether it is understood there.

A student goes its own steps from the noise and learns where its teacher's way ends, through all of
its steps at once. A frozen listener hears which token its mel says in each patch; what it should
hear is known, as tokens are placed before. Such a loss of a recogniser, through all steps of a
student of few, is DMDSpeech's (Li et al., arXiv 2410.11097), by CTC there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nanospeech.audio.postfilter import REACH, WIDTH
from nanospeech.config import PostfilterConfig
from nanospeech.engine.sampling import time_grid
from nanospeech_torch import layers
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch

from .base import Sums
from .distill import Distilled, Given, Voice
from .placing import tokens_at

MOST = 6.0  # nats: cross entropy of a patch from which it teaches nothing, as its place is wrong


class DistilledEnd(Distilled):
    """A student with its losses at the end of its way.

    Args:
        listener: hears what the student says, or None; it does not learn.
        others, named: those of Distilled.
    """

    def __init__(self, *others: Any, listener: Listener | None = None, **named: Any):
        super().__init__(*others, **named)
        self.listeners: tuple[Listener, ...] = ()  # a tuple: not a part of this model
        if listener is not None:
            self.listeners = (listener.requires_grad_(False).eval(),)

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "words": self.distill.words}

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        found = super().counts(batch, phase)
        if self.listeners:
            valid = layers.length_mask(batch.lens, batch.mel.shape[1])
            said = whole_patches(batch.span & valid, self.listeners[0].config.patch_size)
            found["words"] = (said & (batch.text >= 0).any(1)[:, None]).sum()
        return found

    def taught_by(self, voice: Voice, batch: Batch) -> Sums:
        """Sums and counts of the squared error of the end and of what is heard, of one voice."""
        voice, share = voice.to(batch.mel.device), batch.time  # of the greatest strength
        given = self.given(voice, batch)
        with torch.no_grad():
            source = self.guided_by(voice.network, given, share * self.distill.max_strength)
            _, noise, way = self.along(source, given.noise_BNM, 1)
        end = self.end(voice, given, share)
        error = (end - (noise + way)).square().mean(-1)
        learned = given.learned_BN
        sums = {"flow": (error.masked_fill(~learned, 0).sum(), learned.sum())}
        return sums | ({"words": self.words(given, end)} if self.listeners else {})

    def end(self, voice: Voice, given: Given, share_B: Tensor) -> Tensor:
        """The mel (B, N, M) at which the student arrives, in the ODE's units."""
        state, step = given.noise_BNM, torch.full_like(share_B, 1 / self.distill.steps)
        for low, high in pairwise(time_grid(self.distill.steps, "uniform")):
            inputs = torch.stack([torch.full_like(share_B, low), share_B, step], 1)
            velocity = self.student(
                voice, state, given.cond_BNM, given.text_BND, inputs, given.batch.lens
            )
            state = state + (high - low) * velocity.float()
        return state

    def words(self, given: Given, end_BNM: Tensor) -> tuple[Tensor, Tensor]:
        """Cross entropy, in nats, of the tokens in patches that are learnt as a whole."""
        listener = self.listeners[0].to(end_BNM.device)
        batch, learned = given.batch, given.learned_BN
        p, index = listener.config.patch_size, given.placed[1]
        assert index is not None
        clear = postfiltered(end_BNM, learned, self.about.postfilter)
        heard = torch.where(learned[..., None], clear, given.cond_BNM)
        logits = listener(heard, batch.lens).float()
        tokens = tokens_at(batch.text, index, (batch.lens + p - 1) // p, batch.wordless // p)
        tokens = tokens.masked_fill(~whole_patches(learned, p), -1)
        error = F.cross_entropy(logits.transpose(1, 2), tokens, ignore_index=-1, reduction="none")
        return error.clamp(max=MOST).sum(), (tokens >= 0).sum()


def whole_patches(learned_BN: Tensor, p: int) -> Tensor:
    """The patches of p frames all of which are learnt: bool (B, ceil(N / p))."""
    patches = -(-learned_BN.shape[1] // p)
    filled = layers.pad_length(learned_BN[..., None], patches * p)[..., 0]
    return filled.unflatten(1, (patches, p)).all(-1)


def postfiltered(mel_BNM: Tensor, new_BN: Tensor, config: PostfilterConfig | None) -> Tensor:
    """nanospeech.audio.postfilter of the new frames of each item, which are in one piece.

    It is the same in any units, as its weights add up to one. Frames that are not new are of no
    meaning in the result.
    """
    if config is None:
        return mel_BNM
    before, after = torch.roll(mel_BNM, 1, 1), torch.roll(mel_BNM, -1, 1)
    edge = torch.zeros_like(new_BN[:, :1])
    first = torch.cat([edge, new_BN[:, :-1]], 1)[..., None]  # whether the frame before is new
    last = torch.cat([new_BN[:, 1:], edge], 1)[..., None]
    ends = torch.where(first, before, mel_BNM) + torch.where(last, after, mel_BNM)
    mel = mel_BNM + config.smooth * (ends - 2 * mel_BNM)
    return mel + config.sharpen * (mel - blurred(mel))


def blurred(mel_BNM: Tensor) -> Tensor:
    """Each band's Gaussian mean with its neighbours; mirrored at the ends."""
    weights = np.exp(-0.5 * (np.arange(-REACH, REACH + 1) / WIDTH) ** 2)
    weights /= weights.sum()
    count = mel_BNM.shape[-1]
    places = np.pad(np.arange(count), REACH, mode="symmetric")
    bands = mel_BNM[..., torch.from_numpy(places).to(mel_BNM.device)]
    parts = (w * bands[..., k : k + count] for k, w in enumerate(weights.tolist()))
    return sum(parts, torch.zeros_like(mel_BNM))
