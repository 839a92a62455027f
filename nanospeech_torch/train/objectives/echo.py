"""Echo: the training loss of an EchoDiT. No optimiser, no data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import AudioConfig
from nanospeech.engine.text_states import without_tags
from nanospeech.errors import InputError
from nanospeech_torch import layers
from nanospeech_torch.echo.network import EchoDiT, States
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.latents import (
    EchoBatch,
    EchoBatches,
    EchoLossConfig,
    multiple_of,
)
from nanospeech_torch.train.scale.echo import step_flops

from .base import Objective, Sums
from .placing import duration_loss
from .text_aligner import TextAligner
from .text_reader import TextReader


class Echo(Objective):
    """An EchoDiT with its rectified-flow loss (arXiv 2209.03003), as Echo-TTS states it.

    x = (1 - t) latents + t noise, and the target is noise - latents: time 1 is noise. The loss is
    over the silence behind a clip too.

    Args:
        transformer: the network.
        tokenizer: as for Nanospeech.
        audio: the latents' rate, width and normalisation.
        loss: conditions and times.
        reader: another network that reads the text, where the transformer does not.
        aligner: finds how long each token lasts, for a transformer with a window.

    Raises:
        InputError: a network with parts that this loss does not train, or without its text.
    """

    def __init__(
        self,
        transformer: EchoDiT,
        tokenizer: Callable | object | None = None,
        audio: AudioConfig | None = None,
        loss: EchoLossConfig | None = None,
        reader: TextReader | None = None,
        aligner: TextAligner | None = None,
    ):
        super().__init__()
        c = transformer.config
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.audio = audio or AudioConfig(sample_rate=48_000, hop_length=1920, n_mels=c.latent_dim)
        self.loss = loss or EchoLossConfig()
        if c.continues:
            raise InputError(
                "echo.continues is of checkpoints that are converted; the encoder of earlier"
                " latents is not trained here: set echo.continues=false"
            )
        if (reader is None) != (c.text_depth > 0):
            raise InputError(
                f"echo.text_depth is {c.text_depth} and echo_loss.text_encoder"
                f" {self.loss.text_encoder!r}; the text is read by one of the two"
            )
        self.reader = reader
        self.aligner = () if aligner is None else (aligner,)  # in a tuple: not a part of this model
        if c.text_window and aligner is None:
            raise InputError("echo.text_window needs another model that aligns the clips' tokens")

    def weights(self) -> dict[str, float]:
        return {"flow": 1.0, "duration": self.loss.duration}

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> EchoBatches:
        """Latents with texts and speakers.

        Raises:
            InputError: the model has no tokenizer, or clips may be longer than its latents.
        """
        if self.tokenizer is None:
            raise InputError("the model has no tokenizer; build it with tokenizer=...")
        network = self.transformer.config
        if plan.max_duration > network.max_latents:
            raise InputError(
                f"clips may have {plan.max_duration} latents, echo.max_latents is"
                f" {network.max_latents}; set data.max_duration to this or less"
            )
        return EchoBatches(samples, self.tokenizer, plan, self.audio, self.loss, network, stream)

    def multiple(self) -> int:
        """8 positions of the network, in latents."""
        return multiple_of(self.transformer.config)

    def flops(self, batch: EchoBatch) -> int:
        rows, latents = batch.mel.shape[:2]
        lengths = latents, batch.text.shape[1], batch.speaker.shape[1]
        return sum(step_flops(self.transformer.config, rows, *lengths).values())

    def model_config(self) -> dict[str, Any]:
        found = {
            "echo": asdict(self.transformer.config),
            "audio": asdict(self.audio),
            "latents": self.loss.latents,
            "tokenizer": getattr(self.tokenizer, "kind", "bytes"),
            "language": getattr(self.tokenizer, "language", ""),
        }
        return found if self.reader is None else {**found, **self.reader.described()}

    def rates(self) -> dict[str, float]:
        if self.reader is None:
            return {}
        names = (name for name, _ in self.named_parameters() if name.startswith("reader."))
        return {name: self.loss.text_encoder_lr for name in names}

    def counts(self, batch: EchoBatch, phase: str = "") -> dict[str, Tensor]:
        """Latents of a batch, those after its clips included; and tokens that have durations."""
        found = {"flow": torch.ones_like(batch.mel[..., 0]).sum()}
        if self.transformer.config.text_window:
            found["duration"] = (batch.text >= 0).sum()
        return found

    def forward(self, batch: EchoBatch) -> Sums:
        """Sum and count of the squared error of the velocity, over all latents of the batch.

        And of the durations' loss, where the text is read through a window.
        """
        latents = self.normalised(batch.mel, batch.lens)
        time = batch.time[:, None, None]
        state = (1 - time) * latents + time * batch.noise
        durations = self.aligner[0].durations(batch) if self.aligner else None
        velocity, log_BT = self.predict(batch, state, durations)
        error = (velocity.float() - (batch.noise - latents)).square().mean(-1)
        sums = {"flow": (error.sum(), torch.ones_like(error).sum())}
        if durations is not None and log_BT is not None:
            sums["duration"] = duration_loss(log_BT, durations, batch.text >= 0)
        return sums

    def normalised(self, latents_BNC: Tensor, lens_B: Tensor) -> Tensor:
        """Latents in the ODE's units, zero past each item's end."""
        valid = layers.length_mask(lens_B, latents_BNC.shape[1])
        return layers.masked((latents_BNC - self.audio.mel_mean) / self.audio.mel_std, valid)

    def velocity(self, batch: EchoBatch, state_BNC: Tensor) -> Tensor:
        """The network's velocity under the batch's conditions, some of which are dropped."""
        return self.predict(batch, state_BNC, None)[0]

    def predict(
        self, batch: EchoBatch, state_BNC: Tensor, durations_BT: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The velocity, for tokens of these durations or of predicted ones; logs of the latter."""
        dit = self.transformer
        read = batch.text >= 0
        text = dit.text_states(self.text_input(batch.text, read), read, batch.text)
        heard = layers.length_mask(batch.heard, batch.speaker.shape[1])
        speaker = self.normalised(batch.speaker, batch.heard)
        speaker, counted = dit.speaker_states(speaker, heard)
        # the text's states are not to become better at durations alone
        log_BT = dit.log_durations(text.detach()) if dit.config.text_window else None
        places = dit.text_places(text, read, batch.lens, durations_BT)
        states = States(text, speaker, dit.text_angles(places))
        own = torch.ones_like(state_BNC[:, :: dit.config.latent_patch, 0], dtype=torch.bool)
        seen = [own, read & ~batch.drop_text[:, None], counted & ~batch.drop_speaker[:, None]]
        seconds = batch.lens / self.audio.frame_rate
        contexts = [states] * dit.config.depth
        mask = torch.cat(seen, 1)
        return dit(state_BNC, batch.time, contexts, mask, 0, seconds, places), log_BT

    def text_input(self, text_BT: Tensor, read_BT: Tensor) -> Tensor:
        """What the network reads of a text: ids, or another network's states."""
        if self.reader is None:
            return text_BT
        if not self.transformer.config.text_tags:
            return self.reader(text_BT, read_BT)
        ids_BT, places, there_BT = without_tags(text_BT)
        return self.reader(ids_BT, ids_BT >= 0)[places] * there_BT[..., None]
