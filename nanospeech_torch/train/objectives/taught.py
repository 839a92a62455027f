"""Taught: what a model that learns of a teacher's velocities is given, and how guidance is added.

No losses; see distill.py and understood.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import ModelConfig
from nanospeech.engine.sampling import guide, rescaled_velocity
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import Batch, LossConfig
from nanospeech_torch.train.scale.profile import taught_flops

from .flow import Nanospeech, keep_reading_

Velocity = Callable[[Tensor, Tensor], Tensor]  # (times (B,), states (B, N, M)) -> (B, N, M)
Velocities = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Given:
    """What teacher and learner are given of items.

    Attributes:
        batch: the items, whose texts are not dropped.
        learned_BN: the frames that are learnt.
        mel_BNM, cond_BNM, noise_BNM: in the ODE's units.
        text_BND: text states of each patch.
        placed: token states and the token of each patch, of place_tokens.
    """

    batch: Batch
    learned_BN: Tensor
    mel_BNM: Tensor
    cond_BNM: Tensor
    noise_BNM: Tensor
    text_BND: Tensor
    placed: tuple[Tensor | None, Tensor | None]


class Taught(Nanospeech):
    """A speech model that learns of another, and reads texts with what that one reads them with.

    Args:
        transformer: the network that learns.
        teacher: the release's config, whose temperature and guidance are learnt.
        tokenizer, loss: as of Nanospeech; conditions are never dropped.
    """

    def __init__(
        self, transformer: DiT, teacher: ModelConfig, tokenizer: Any, loss: LossConfig | None = None
    ):
        super().__init__(transformer, tokenizer, teacher.audio, loss)
        self.about = teacher
        keep_reading_(transformer)

    def train(self, mode: bool = True) -> Taught:
        """Trains without dropout, as the other model runs: a difference is then one to learn."""
        super().train(mode)
        self.transformer.eval()
        return self

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        return {"flow": (batch.span & valid).sum()}

    def flops_of(self, batch: Batch, learned: int, given: int, chained: int = 0) -> int:
        """Operations of a batch of which so many evaluations are made; see taught_flops."""
        rows, frames = batch.mel.shape[:2]
        sizes = self.transformer.config, rows, frames, batch.text.shape[1]
        return taught_flops(*sizes, learned, given, chained)

    @torch.no_grad()
    def given_by(self, reader: DiT, batch: Batch) -> Given:
        """What teacher and learner are given of items whose texts this network reads."""
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        mel, heard = self.spoken_and_heard(batch, valid)
        cond = layers.masked(heard, ~batch.span)
        noise = self.about.temperature * batch.noise
        batch = replace(batch, drop_text=torch.zeros_like(batch.drop_text))
        hidden, index, _ = self.place_tokens(batch, mel, heard, reader)
        text = self.text_states(reader, batch, hidden, index)
        return Given(batch, batch.span & valid, mel, cond, noise, text, (hidden, index))

    def guided_by(self, network: DiT, given: Given, strength_B: Tensor) -> Velocity:
        """A network's velocity with guidance, which is rescaled by the frames that are learnt."""
        both = self.velocities_by(network, given, strength_B)
        return lambda time_B, state: both(time_B, state)[0]

    def velocities_by(self, network: DiT, given: Given, strength_B: Tensor) -> Velocities:
        """A network's velocities: as of guided_by, and without prompt and text."""
        batch, cond = given.batch, given.cond_BNM
        without = replace(batch, drop_text=torch.ones_like(batch.drop_text))
        texts = [self.text_states(network, b, *given.placed) for b in (batch, without)]
        text, both = torch.cat(texts), torch.cat([cond, torch.zeros_like(cond)])
        lens, strength = torch.cat([batch.lens, batch.lens]), strength_B[:, None, None]
        share, fresh = self.about.cfg_rescale, given.learned_BN[..., None].float()

        def velocities(time_B: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            twice, times = torch.cat([state, state]), torch.cat([time_B, time_B])
            with_text, free = network(twice, both, text, times, lens).float().chunk(2)
            found, time = guide(with_text, free, strength), time_B[:, None, None]
            return rescaled_velocity(found, with_text, state, time, fresh, share), free

        return velocities
