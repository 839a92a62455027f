"""Ear: whether a mel is understood, the cross entropy of what a frozen listener hears in it.

In training it hears noise, another level and another colour as well (EarConfig), and is one of
several that take turns, so that what pleases one of them by a trick is of no use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nanospeech.audio.postfilter import REACH, blur_weights
from nanospeech.config import PostfilterConfig
from nanospeech_torch import layers
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch, EarConfig
from nanospeech_torch.train.scale.profile import listener_flops

from .placing import tokens_at
from .taught import Given

MOST = 6.0  # nats: cross entropy of a patch from which it teaches nothing, as its place is wrong


class Ear:
    """Listeners that do not learn, and are no part of the model that they hear.

    Args:
        listeners: the networks, of the same patches; one of them hears a step, the first where
            nothing is trained.
        postfilter: what mels go through before they are heard.
        config: what they hear beside them in training; the batches' to draw.
        seed: of who hears.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        postfilter: PostfilterConfig | None,
        config: EarConfig | None = None,
        seed: int = 0,
    ):
        self.listeners = [listener.requires_grad_(False).eval() for listener in listeners]
        self.postfilter, self.config = postfilter, config or EarConfig()
        self.seed, self.turn = seed, 0

    def begin_step(self, step: int) -> None:
        """Draws who hears this step, the same in every process."""
        draw = np.random.default_rng((self.seed, step, len(self.listeners)))
        self.turn = int(draw.integers(len(self.listeners)))

    def count(self, batch: Batch) -> Tensor:
        """How many patches are heard, those of `words`."""
        learned = batch.span & layers.length_mask(batch.lens, batch.mel.shape[1])
        said = whole_patches(learned, self.listeners[0].config.patch_size)
        return (said & (batch.text >= 0).any(1)[:, None]).sum()

    def flops(self, batch: Batch) -> int:
        """Operations of hearing a batch, and of its gradient, by the listener of this step."""
        rows, frames = batch.mel.shape[:2]
        return listener_flops(self.listeners[self.turn].config, rows, frames, frozen=True)

    def words(self, given: Given, mel_BNM: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Cross entropy, in nats, of the tokens in patches that are learnt as a whole.

        Args:
            given: of the items, with the token of each patch.
            mel_BNM: what is said, in the ODE's units; heard where frames are learnt.
            training: heard with the batch's disturbance, by the listener whose turn it is.
        """
        listener = self.listeners[self.turn if training else 0].to(mel_BNM.device)
        batch, learned = given.batch, given.learned_BN
        p, index = listener.config.patch_size, given.placed[1]
        assert index is not None
        clear = postfiltered(mel_BNM, learned, self.postfilter)
        heard = torch.where(learned[..., None], clear, given.cond_BNM)
        if training and batch.disturbance.shape[1]:
            heard = heard + batch.disturbance
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
    count = mel_BNM.shape[-1]
    places = np.pad(np.arange(count), REACH, mode="symmetric")
    bands = mel_BNM[..., torch.from_numpy(places).to(mel_BNM.device)]
    parts = (w * bands[..., k : k + count] for k, w in enumerate(blur_weights().tolist()))
    return sum(parts, torch.zeros_like(mel_BNM))
