"""Vocoder GAN: a Vocos and its discriminators as one objective. No optimiser, no data.

A step has two phases. "vocoder" synthesises waves and trains the vocoder: spectral losses first,
adversarial ones too from `gan_from` on. "judges" trains the discriminators on the same waves. (The
name is that of their tensors in checkpoints.) A vocoder with griffin_lim_iters is trained on
magnitudes and phase derivatives instead, without waves and discriminators. The random choices of a
step depend on (seed, step) alone, so every process and a resumed run make the same ones, and the
weights are all the state. The losses are in vocoder_loss.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospeech.config import AudioConfig, option
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.segments import SegmentBatch, SegmentBatches, SegmentConfig
from nanospeech_torch.train.scale.profile import vocoder_flops
from nanospeech_torch.vocoder import Vocos

from . import vocoder_loss as losses
from .base import Objective, Sums

PHASES = ("vocoder", "judges")


@dataclass(frozen=True)
class VocoderLossConfig(SegmentConfig):
    """What segments are trained on, the weights of the losses, and when the discriminators join."""

    mel: float = option(20.0, "weight of the L1 distance of log mels")
    input_mel_share: float = option(
        0.0, "share of that distance that is to the input mel, not to the recording's"
    )
    magnitude: float = option(5.0, "weight of the L1 distance of log magnitudes")
    convergence: float = option(5.0, "weight of the relative error of magnitudes")
    frequency: float = option(
        10.0, "weight of the instantaneous frequency's error, with vocoder.griffin_lim_iters"
    )
    group_delay: float = option(
        10.0, "weight of the group delay's error, with vocoder.griffin_lim_iters"
    )
    adversarial: float = option(1.0, "weight of the vocoder's adversarial (hinge) loss")
    matching: float = option(2.0, "weight of the feature matching loss")
    gan_from: float = option(
        0.25, "share of the steps after which the discriminators join; 1: never"
    )
    gan_rate: float = option(0.4, "the vocoder's learning rate once they have joined, of the peak")
    discriminator_rate: float = option(
        0.4, "the discriminators' learning rate, of the peak; more if they lose"
    )
    discriminator_segments: int = option(
        8, "segments of a batch that go through the discriminators, on each process"
    )
    discriminator_channels: int = option(16, "width of the discriminators")

    RENAMED: ClassVar[dict[str, str]] = {
        **SegmentConfig.RENAMED,
        "given": "input_mel_share",
        "advance": "frequency",
        "delay": "group_delay",
        "judge_rate": "discriminator_rate",
        "judged": "discriminator_segments",
        "judge_channels": "discriminator_channels",
    }

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.input_mel_share <= 1:
            raise InputError(f"input_mel_share is {self.input_mel_share}, should be 0 to 1")
        if self.discriminator_segments < 1:
            raise InputError(
                f"discriminator_segments is {self.discriminator_segments}, should be at least 1; "
                "for a training without discriminators set gan_from to 1"
            )


@dataclass
class Kept:
    """What the vocoder phase keeps for the discriminators' phase, detached from the graph."""

    real: Tensor
    fake: Tensor
    real_spectra: dict[int, Tensor]
    fake_spectra: dict[int, Tensor]


class VocoderGAN(Objective):
    """A vocoder with its losses and discriminators.

    Args:
        vocoder: the network.
        audio: the mel; the vocoder's window and hop are to be the same.
        loss: weights, and when the discriminators join.
        seed: of the random choices of a step.

    Raises:
        InputError: the mel and the vocoder disagree, or the losses have no such window.
    """

    tokenizer = None  # a vocoder reads no text

    def __init__(
        self,
        vocoder: Vocos,
        audio: AudioConfig | None = None,
        loss: VocoderLossConfig | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.audio = a = audio or AudioConfig()
        self.loss = loss or VocoderLossConfig()
        self.seed = seed
        c = vocoder.config
        if (c.n_mels, c.n_fft, c.hop_length) != (a.n_mels, a.n_fft, a.hop_length):
            raise InputError(
                f"the vocoder's n_mels, n_fft and hop_length are {c.n_mels}, {c.n_fft} and "
                f"{c.hop_length}, the audio's {a.n_mels}, {a.n_fft} and {a.hop_length}; set them "
                "alike in both sections"
            )
        if a.n_fft not in losses.WINDOWS or a.hop_length * 4 != a.n_fft:
            raise InputError(
                f"n_fft {a.n_fft} with hop_length {a.hop_length} cannot be trained; n_fft should "
                f"be one of {losses.WINDOWS} and hop_length a quarter of it"
            )
        usual = AudioConfig().sample_rate
        if (c.griffin_lim_iters or c.mel_prior) and a.sample_rate != usual:
            raise InputError(
                f"a vocoder with griffin_lim_iters or mel_prior inverts the mel of {usual} Hz, got "
                f"audio.sample_rate {a.sample_rate}; set these to 0 and false, or the rate to it"
            )
        if c.griffin_lim_iters and self.loss.gan_from < 1:
            raise InputError(
                "a vocoder with griffin_lim_iters trains without discriminators, got gan_from "
                f"{self.loss.gan_from}; set vocoder_loss.gan_from to 1, or "
                "vocoder.griffin_lim_iters to 0"
            )
        self.vocoder = vocoder
        width = self.loss.discriminator_channels
        self.judges = losses.Discriminators(width, width)  # its name in checkpoints
        self.kept: Kept | None = None
        self.begin_step(0, 1)

    def phases(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that each phase trains."""
        return {name: list(getattr(self, name).parameters()) for name in PHASES}

    def active_phases(self) -> tuple[str, ...]:
        """The phases of this step, in order; the discriminators' once they have joined."""
        return PHASES if self.adversarial else PHASES[:1]

    def rate(self, phase: str) -> float:
        """Learning rate of a phase in this step, relative to the schedule's."""
        if phase == "judges":
            return self.loss.discriminator_rate
        return self.loss.gan_rate if self.adversarial else 1.0

    def weights(self) -> dict[str, float]:
        """Weight of each loss that forward returns."""
        c = self.loss
        if self.vocoder.config.griffin_lim_iters:
            return {
                "magnitude": c.magnitude,
                "frequency": c.frequency,
                "group_delay": c.group_delay,
            }
        return {
            "mel": c.mel,
            "magnitude": c.magnitude,
            "convergence": c.convergence,
            "adversarial": c.adversarial,
            "matching": c.matching,
            "discriminator": 1.0,
        }

    def averaged(self) -> Vocos:
        """What the moving average follows: the vocoder alone, which is what is released."""
        return self.vocoder

    def model_config(self) -> dict[str, Any]:
        """What a converter needs to know: config.json's sections."""
        return {"vocoder": asdict(self.vocoder.config), "audio": asdict(self.audio)}

    def batches(self, samples: Any, plan: BatchPlan, stream: StreamOptions) -> SegmentBatches:
        """Random segments of the samples' recordings."""
        return SegmentBatches(samples, None, plan, self.audio, self.loss, stream=stream)

    def flops(self, batch: SegmentBatch) -> int:
        """Those of the vocoder; the discriminators' are left out."""
        rows, frames = batch.mel.shape[:2]
        return vocoder_flops(self.vocoder.config, rows, frames)

    def begin_step(self, step: int, total: float) -> None:
        """Makes the choices of optimiser step `step` of `total`, alike in every process."""
        self.adversarial = step >= self.loss.gan_from * total
        random = np.random.default_rng((self.seed, step))
        # the mel's own window always, and one other at a time: the same mean for less work
        others = [w for w in losses.WINDOWS if w != self.audio.n_fft]
        self.windows = (self.audio.n_fft, int(random.choice(others)))
        self.period = int(random.choice(losses.PERIODS))
        self.discriminator_window = int(random.choice(self.windows))

    def forward(self, batch: SegmentBatch, phase: str = "vocoder") -> Sums:
        """Sums and counts of a phase's losses; "judges" follows "vocoder" of the same batch."""
        if phase == "judges":
            kept, self.kept = self.kept, None
            assert kept is not None, "the discriminators' phase comes after the vocoder's"
            return self.discriminator_losses(kept)
        return self.vocoder_losses(batch)

    def counts(self, batch: SegmentBatch, phase: str = "vocoder") -> dict[str, Tensor]:
        """What each loss of a phase is a mean over: segments, a few for the adversarial losses.

        Phase derivatives are weighted by loudness, so their counts are sums of weights.
        """
        if self.vocoder.config.griffin_lim_iters:
            return losses.slope_counts(self.spectrogram(batch.wave))
        rows = len(batch.mel)
        few = min(rows, self.loss.discriminator_segments)
        gan = ("adversarial", "matching", "discriminator")
        return {k: torch.tensor(few if k in gan else rows) for k in self.weights()}

    def spectrogram(self, wave_BS: Tensor) -> Tensor:
        """The complex spectrogram of the mel's own window, (B, F, N)."""
        return losses.spectrograms(wave_BS, (self.audio.n_fft,))[self.audio.n_fft]

    def vocoder_losses(self, batch: SegmentBatch) -> Sums:
        """Spectral losses, and adversarial ones once the discriminators have joined."""
        if self.vocoder.config.griffin_lim_iters:
            real = self.spectrogram(batch.wave)
            sums = losses.slope_sums(self.vocoder.predict(batch.mel), real)
            counts = losses.slope_counts(real)
            return {name: (total, counts[name]) for name, total in sums.items()}
        fake = self.vocoder(batch.mel)
        fake_spectra = losses.spectrograms(fake, self.windows)
        with torch.no_grad():
            real_spectra = losses.spectrograms(batch.wave, self.windows)
        found = losses.spectral_losses(fake_spectra, real_spectra, self.audio)
        if share := self.loss.input_mel_share:
            # detail may be added to a synthetic mel, but its consonants must stay
            spectrum = fake_spectra[self.audio.n_fft].abs()
            away = F.l1_loss(losses.mel_of_magnitude(spectrum, self.audio), batch.mel)
            found["mel"] = share * away + (1 - share) * found["mel"]
        sums = per_item(found, len(fake))
        if self.adversarial:
            few, w = slice(self.loss.discriminator_segments), self.discriminator_window
            real_part, fake_part = {w: real_spectra[w][few]}, {w: fake_spectra[w][few]}
            part = Kept(batch.wave[few], fake[few], real_part, fake_part)
            sums |= per_item(self.adversarial_losses(part), len(part.fake))
            hidden = {w: fake_part[w].detach()}
            self.kept = Kept(part.real, part.fake.detach(), real_part, hidden)
        return sums

    def adversarial_losses(self, part: Kept) -> dict[str, Tensor]:
        """The vocoder's losses by the discriminators, whose weights get no gradient."""
        of_fake = self.frozen_discriminators(part.fake, part.fake_spectra)
        with torch.no_grad():
            of_real = self.frozen_discriminators(part.real, part.real_spectra)
        adversarial, matching = losses.generator_losses(of_fake, of_real)
        return {"adversarial": adversarial, "matching": matching}

    def frozen_discriminators(
        self, wave_BS: Tensor, spectra: dict[int, Tensor]
    ) -> list[losses.Scores]:
        """The discriminators' scores and features, with their weights detached."""
        fixed = {name: p.detach() for name, p in self.judges.named_parameters()}
        asked = (wave_BS, spectra, (self.period,))
        return torch.func.functional_call(self.judges, fixed, asked)

    def discriminator_losses(self, kept: Kept) -> Sums:
        """The discriminators' hinge loss on recordings and the vocoder's waves."""
        of_real = self.judges(kept.real, kept.real_spectra, (self.period,))
        of_fake = self.judges(kept.fake, kept.fake_spectra, (self.period,))
        return per_item(
            {"discriminator": losses.discriminator_loss(of_real, of_fake)}, len(kept.real)
        )


def per_item(means: dict[str, Tensor], items: int) -> Sums:
    """Means over a batch of equally long items as the trainer adds them up over processes."""
    return {
        name: (mean * items, torch.full((), float(items), device=mean.device))
        for name, mean in means.items()
    }
