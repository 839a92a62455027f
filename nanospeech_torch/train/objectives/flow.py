"""Flow: the training losses of the speech model. No optimiser, no data.

All random numbers of a step are part of the batch (see data/speech.py), so a loss depends on its
arguments and the weights alone, and a resumed run repeats an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import AudioConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import READING
from nanospeech_torch import layers
from nanospeech_torch.dit import DiT
from nanospeech_torch.engine import weightless
from nanospeech_torch.train.data.batch import Batch, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.speech import SpeechBatches
from nanospeech_torch.train.scale.profile import train_flops

from .alignment import monotonic_search
from .base import Objective, Sums, sections
from .placing import average_path, duration_loss, earlier, later, patch_means


class Nanospeech(Objective):
    """The speech model with its flow-matching loss (arXiv 2210.02747; F5-TTS, arXiv 2410.06885).

    Args:
        transformer: the network.
        tokenizer: nanospeech.text.tokenizer.Tokenizer, or a function of a list of texts that
        returns ids (B, T) padded with -1; the trainer's data loader calls it.
        audio: the mel and its normalisation.
        loss: drop chances and loss weights.
    """

    speaks = True

    def __init__(
        self,
        transformer: DiT,
        tokenizer: Callable | object | None = None,
        audio: AudioConfig | None = None,
        loss: LossConfig | None = None,
    ):
        super().__init__()
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.audio = audio or AudioConfig()
        self.loss = loss or LossConfig()
        self.guide: tuple[DiT, ...] = ()  # in a tuple: not a part of this model

    @property
    def guided(self) -> bool:
        """Whether targets contain guidance (loss.model_guidance)."""
        return bool(self.loss.model_guidance)

    def guide_with(self, ema: dict[str, Tensor]) -> None:
        """Sets the averaged model whose guidance is added to the targets (loss.model_guidance).

        Args:
            ema: averaged parameters by their names here, whole on this device. They are not copied,
                so that later updates in place take effect.

        Raises:
            InputError: they are sharded.
            CheckpointError: they are of another model.
        """
        if any(hasattr(p, "to_local") for p in ema.values()):
            raise InputError(
                "loss.model_guidance needs whole weights in each process, these are sharded; train "
                "with data parallelism alone (DDP) or set loss.model_guidance=0"
            )
        with weightless():
            # a new one: the live model may be compiled or have adapters
            guide = DiT(self.transformer.config)
        part = {k.removeprefix("transformer."): v for k, v in ema.items()}
        try:
            guide.load_state_dict(part, strict=True, assign=True)
        except RuntimeError as e:
            raise CheckpointError(f"the average is not one of this model: {e}") from e
        self.guide = (guide.requires_grad_(False).eval(),)

    def weights(self) -> dict[str, float]:
        """Weight of each loss that forward returns."""
        return {"flow": 1.0, "prior": self.loss.prior, "duration": self.loss.duration}

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> SpeechBatches:
        """Speech with its text.

        Raises:
            InputError: the model has no tokenizer.
        """
        if self.tokenizer is None:
            raise InputError("the model has no tokenizer; build it with tokenizer=...")
        edge = self.transformer.config.edge
        return SpeechBatches(samples, self.tokenizer, plan, self.audio, self.loss, stream, edge)

    def multiple(self) -> int:
        """8 positions of the network, in frames."""
        return 8 * self.transformer.config.patch_size

    def flops(self, batch: Batch) -> int:
        rows, frames = batch.mel.shape[:2]
        return train_flops(self.transformer.config, rows, frames, batch.text.shape[1])

    def model_config(self) -> dict[str, Any]:
        return sections("dit", self.transformer.config, self)

    def forward(self, batch: Batch) -> Sums:
        """Sums and counts of the losses of a batch."""
        dit = self.transformer
        valid = layers.length_mask(batch.lens, batch.mel.shape[1])
        mel, heard = self.spoken_and_heard(batch, valid)
        time = batch.time[:, None, None]
        state = (1 - time) * batch.noise + time * mel
        cond = layers.masked(heard, ~(batch.span | batch.drop_audio[:, None]))
        hidden, index, sums = self.place_tokens(batch, mel, heard)
        text = self.text_states(dit, batch, hidden, index)
        velocity = dit(state, cond, text, batch.time, batch.lens).float()
        target = mel - batch.noise
        if self.training and self.loss.model_guidance:
            target = target + self.guidance(batch, state, cond, index)
        error = (velocity - target).square().mean(-1)
        learned = batch.span & valid
        return {"flow": (error.masked_fill(~learned, 0).sum(), learned.sum()), **sums}

    def spoken_and_heard(self, batch: Batch, valid_BN: Tensor) -> tuple[Tensor, Tensor]:
        """The mel, and what is heard of it as a condition, in the ODE's units."""
        audio, prompts = self.audio, batch.heard.shape[1]
        mel = layers.masked((batch.mel - audio.mel_mean) / audio.mel_std, valid_BN)
        if not prompts:
            return mel, mel
        heard = (batch.heard - audio.mel_mean) / audio.mel_std
        return mel, torch.cat([layers.masked(heard, valid_BN[:, :prompts]), mel[:, prompts:]], 1)

    def counts(self, batch: Batch, phase: str = "") -> dict[str, Tensor]:
        """Elements of each loss of a batch, those of forward, without running the network.

        Where a text has more tokens than patches, and so no alignment, all of its elements count.
        """
        config = self.transformer.config
        found = {"flow": (batch.span & layers.length_mask(batch.lens, batch.mel.shape[1])).sum()}
        if config.text_upsampling == "aligned":
            p = config.patch_size
            worded = (batch.lens + p - 1) // p - batch.wordless // p
            found["prior"] = (worded * (batch.text >= 0).any(1)).sum()
            found["duration"] = (batch.text >= 0).sum()
        return found

    @torch.no_grad()
    def guidance(self, batch: Batch, state: Tensor, cond: Tensor, index: Tensor | None) -> Tensor:
        """The guidance in the target: w(t) (v(c) - v(none)) of the average (arXiv 2502.12154).

        Zero for items whose conditions are dropped: they train v(none).
        """
        if not self.guide:
            raise InputError("loss.model_guidance needs the averaged model; call guide_with(ema)")
        guide, c = self.guide[0], self.loss
        hidden = None if index is None else guide.embed_tokens(batch.text)
        text = self.text_states(guide, batch, hidden, index)
        null = replace(batch, drop_text=torch.ones_like(batch.drop_text))
        filler = self.text_states(guide, null, hidden, index)
        with_and_without = guide(
            torch.cat([state, state]),
            torch.cat([cond, torch.zeros_like(cond)]),
            torch.cat([text, filler]),
            torch.cat([batch.time, batch.time]),
            torch.cat([batch.lens, batch.lens]),
        )
        conditional, unconditional = with_and_without.float().chunk(2)
        moved = (batch.time < c.guidance_until) & ~(batch.drop_text & batch.drop_audio)
        moved = moved[:, None, None]
        return (c.model_guidance * (conditional - unconditional)).masked_fill(~moved, 0)

    def place_tokens(
        self, batch: Batch, mel: Tensor, heard: Tensor | None = None, dit: DiT | None = None
    ) -> tuple[Tensor | None, Tensor | None, Sums]:
        """Token states and the token of each patch, for text_upsampling average and aligned.

        With the aligner's losses, if there is one; of another network with these parts if given.
        mel and heard are those of spoken_and_heard; without heard, it is the mel.
        """
        heard = mel if heard is None else heard
        dit = dit or self.transformer
        p = dit.config.patch_size
        if dit.config.text_upsampling == "none":
            return None, None, {}
        hidden = dit.embed_tokens(batch.text)
        if dit.config.text_upsampling == "aligned":
            return hidden, *self.align(dit, batch, hidden, mel, heard)
        tokens = (batch.text >= 0).sum(1)
        patches, lens = -(-mel.shape[1] // p), (batch.lens + p - 1) // p
        before = batch.wordless // p
        return hidden, later(average_path(tokens, lens - before, patches), before, 0), {}

    def text_states(
        self, dit: DiT, batch: Batch, hidden_BTD: Tensor | None, index_BN: Tensor | None
    ) -> Tensor:
        """Text states of each patch, the filler's where the text is dropped or there is none."""
        before = batch.wordless // dit.config.patch_size
        if hidden_BTD is None or index_BN is None:
            p = dit.config.patch_size
            patches, lens = -(-batch.mel.shape[1] // p), (batch.lens + p - 1) // p
            given = layers.pad_length(batch.text[:, :patches], patches, -1)
            given = later(given, before, -1)
            text = given.masked_fill(batch.drop_text[:, None], -1)
            return dit.embed_text(text, patches, layers.length_mask(lens, patches), given)
        states = layers.gather_tokens(hidden_BTD, index_BN)
        filler = dit.embed_filler(batch.text).to(states.dtype)
        wordless = batch.drop_text | ~(batch.text >= 0).any(1)
        silent = wordless[:, None] | layers.length_mask(before, states.shape[1])
        return torch.where(silent[..., None], filler, states)

    def align(
        self,
        dit: DiT,
        batch: Batch,
        hidden_BTD: Tensor,
        mel_BNM: Tensor,
        heard_BNM: Tensor,
    ) -> tuple[Tensor, Sums]:
        """The searched token of each patch, the mean loss and the duration loss."""
        aligner = dit.aligner
        assert aligner is not None
        p = dit.config.patch_size
        target = patch_means(mel_BNM, batch.lens, p)
        lens = (batch.lens + p - 1) // p
        mask = layers.length_mask(lens, target.shape[1])
        # as at inference, the speaker embedding is of the prompt, not of the whole clip
        known = (batch.prompt + p - 1) // p
        prompt = target if heard_BNM is mel_BNM else patch_means(heard_BNM, batch.lens, p)
        part = layers.masked(prompt, layers.length_mask(known, target.shape[1]))
        speaker = part.sum(1) / known[:, None]
        means = dit.token_means(batch.text, speaker).float()
        with torch.no_grad(), torch.autocast(mel_BNM.device.type, enabled=False):
            # a text without the reference's words begins where that ends
            before = batch.wordless // p
            tokens = batch.text >= 0
            spoken, index = search(
                earlier(target, before), means, lens - before, tokens.sum(1).clamp(min=1)
            )
            index = later(index, before, 0)
            mask = mask & ~layers.length_mask(before, target.shape[1]) & tokens.any(1)[:, None]
        error = 0.5 * (target - layers.gather_tokens(means, index)).square().mean(-1)
        guess = aligner.log_durations(hidden_BTD.detach(), speaker)
        return index, {
            "prior": (error.masked_fill(~mask, 0).sum(), mask.sum()),
            "duration": duration_loss(guess, spoken, (spoken > 0) & tokens),
        }


def keep_reading_(transformer: DiT) -> None:
    """Leaves what reads texts as it is: parameters that a model and its students share."""
    for name, parameter in transformer.named_parameters():
        if f"transformer.{name}".startswith(READING):
            parameter.requires_grad_(False)


def search(
    target_BNM: Tensor, means_BTM: Tensor, lens_B: Tensor, tokens_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Patches per token (B, T) and token per patch (B, N): the search over -0.5 |y - mu|^2."""
    score = target_BNM @ means_BTM.transpose(1, 2)
    score = score - 0.5 * means_BTM.square().sum(-1)[:, None]  # |y|^2 is the same on every path
    return monotonic_search(score, lens_B, tokens_B)
