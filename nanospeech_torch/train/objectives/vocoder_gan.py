"""Vocoder GAN: a Vocos and its judges as one objective for the trainer. No optimiser, no data.

Two phases share a step. "vocoder" makes the wave and improves the vocoder: spectral distances
first, later the judges' opinion too. "judges" teaches the judges on the very wave of that phase.
A vocoder with rounds learns magnitudes and slopes of phases instead: no wave is made, none judged.
A step's random choices depend on (seed, step) alone, so every process and a resumed run make the
same ones, and there is nothing to save but the weights. The distances are in vocoder_loss.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospeech.config import AudioConfig, option
from nanospeech.errors import InputError
from nanospeech_torch.train.data.segments import SegmentBatch, SegmentBatches, SegmentConfig
from nanospeech_torch.vocoder import Vocos

from . import vocoder_loss as losses
from .flow import Sums

PHASES = ("vocoder", "judges")


@dataclass(frozen=True)
class VocoderLossConfig(SegmentConfig):
    """What segments are trained on, the weights of the losses, and when the judges join."""

    mel: float = option(20.0, "weight of the L1 distance of log mels")
    given: float = option(
        0.0, "share of that distance that is to the mel it was given, not to the recording's"
    )
    magnitude: float = option(5.0, "weight of the L1 distance of log magnitudes")
    convergence: float = option(5.0, "weight of the relative error of magnitudes")
    advance: float = option(10.0, "vocoder.rounds: weight of the phase's turn from frame to frame")
    delay: float = option(10.0, "vocoder.rounds: weight of the phase's turn from bin to bin")
    adversarial: float = option(1.0, "weight of what the judges think")
    matching: float = option(2.0, "weight of the distance of the judges' features")
    gan_from: float = option(0.25, "share of the steps after which the judges join; 1: never")
    gan_rate: float = option(0.4, "the vocoder's learning rate once they have joined, of the peak")
    judge_rate: float = option(0.4, "the judges' learning rate, of the peak; more if they lose")
    judged: int = option(8, "segments of a batch that they judge, on each process")
    judge_channels: int = option(16, "width of the judges")

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.given <= 1:
            raise InputError(f"given is {self.given}, should be 0 to 1")
        if self.judged < 1:
            raise InputError(f"judged is {self.judged}, should be at least 1; gan_from=1 has none")


@dataclass
class Kept:
    """What the vocoder phase leaves for the judges: no gradient leads back from it."""

    real: Tensor
    fake: Tensor
    real_spectra: dict[int, Tensor]
    fake_spectra: dict[int, Tensor]


class VocoderGAN(nn.Module):
    """A vocoder with its losses and the judges that some of them need.

    Args:
        vocoder: the network.
        audio: the mel; the vocoder's window and hop are to be the same.
        loss: weights, and when the judges join.
        seed: of the choices that a step makes.

    Raises:
        InputError: the mel and the vocoder disagree, or the losses know no such window.
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
        if c.rounds and (self.loss.gan_from < 1 or a.sample_rate != AudioConfig().sample_rate):
            raise InputError(
                f"a vocoder with rounds learns slopes, which no judge hears, at "
                f"{AudioConfig().sample_rate} Hz; got gan_from {self.loss.gan_from} and "
                f"{a.sample_rate} Hz; set vocoder_loss.gan_from to 1, or vocoder.rounds to 0"
            )
        self.vocoder = vocoder
        self.judges = losses.Discriminators(self.loss.judge_channels, self.loss.judge_channels)
        self.kept: Kept | None = None
        self.begin_step(0, 1)

    def phases(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that each phase trains."""
        return {name: list(getattr(self, name).parameters()) for name in PHASES}

    def active_phases(self) -> tuple[str, ...]:
        """The phases of this step, in order: the judges are there once they have joined."""
        return PHASES if self.adversarial else PHASES[:1]

    def rate(self, phase: str) -> float:
        """Learning rate of a phase in this step, relative to the schedule's."""
        if phase == "judges":
            return self.loss.judge_rate
        return self.loss.gan_rate if self.adversarial else 1.0

    def weights(self) -> dict[str, float]:
        """Weight of each loss that forward returns."""
        c = self.loss
        if self.vocoder.config.rounds:
            return {"magnitude": c.magnitude, "advance": c.advance, "delay": c.delay}
        return {
            "mel": c.mel,
            "magnitude": c.magnitude,
            "convergence": c.convergence,
            "adversarial": c.adversarial,
            "matching": c.matching,
            "judge": 1.0,
        }

    def averaged(self) -> Vocos:
        """What the moving average follows: the judges are of no use afterwards."""
        return self.vocoder

    def model_config(self) -> dict[str, Any]:
        """What a converter needs to know: config.json's sections."""
        return {"vocoder": asdict(self.vocoder.config), "audio": asdict(self.audio)}

    def batches(self, samples: Any, plan: Any, **options: Any) -> SegmentBatches:
        """Random segments of the samples' recordings; options as for SpeechBatches."""
        return SegmentBatches(samples, None, plan, self.audio, self.loss, **options)

    def begin_step(self, step: int, total: float) -> None:
        """Makes the choices of optimiser step `step` of `total`, alike in every process."""
        self.adversarial = step >= self.loss.gan_from * total
        random = np.random.default_rng((self.seed, step))
        # the mel's own window always, and one other at a time: the same mean for less work
        others = [w for w in losses.WINDOWS if w != self.audio.n_fft]
        self.windows = (self.audio.n_fft, int(random.choice(others)))
        self.period = int(random.choice(losses.PERIODS))
        self.judged_window = int(random.choice(self.windows))

    def forward(self, batch: SegmentBatch, phase: str = "vocoder") -> Sums:
        """Sums and counts of a phase's losses; "judges" comes after "vocoder" of the same batch."""
        if phase == "judges":
            kept, self.kept = self.kept, None
            assert kept is not None, "the judges' phase comes after the vocoder's"
            return self.judge_losses(kept)
        return self.vocoder_losses(batch)

    def counts(self, batch: SegmentBatch, phase: str = "vocoder") -> dict[str, Tensor]:
        """What each loss of a phase is a mean over: segments, of which the judges hear a few.

        Slopes of phases are weighted by their loudness, so their weights are what counts.
        """
        if self.vocoder.config.rounds:
            return losses.slope_counts(self.spectrogram(batch.wave))
        rows = len(batch.mel)
        few = min(rows, self.loss.judged)
        judged = ("adversarial", "matching", "judge")
        return {k: torch.tensor(few if k in judged else rows) for k in self.weights()}

    def spectrogram(self, wave_BS: Tensor) -> Tensor:
        """The complex spectrogram of the mel's own window, (B, F, N)."""
        return losses.spectrograms(wave_BS, (self.audio.n_fft,))[self.audio.n_fft]

    def vocoder_losses(self, batch: SegmentBatch) -> Sums:
        """How far the vocoder's waves are from the recordings, and what the judges say of them."""
        if self.vocoder.config.rounds:
            real = self.spectrogram(batch.wave)
            sums = losses.slope_sums(self.vocoder.predict(batch.mel), real)
            counts = losses.slope_counts(real)
            return {name: (total, counts[name]) for name, total in sums.items()}
        fake = self.vocoder(batch.mel)
        fake_spectra = losses.spectrograms(fake, self.windows)
        with torch.no_grad():
            real_spectra = losses.spectrograms(batch.wave, self.windows)
        found = losses.spectral_losses(fake_spectra, real_spectra, self.audio)
        if share := self.loss.given:
            # what a made mel lacks it may add, what the mel says it is to keep: each consonant
            spectrum = fake_spectra[self.audio.n_fft].abs()
            away = F.l1_loss(losses.mel_of_magnitude(spectrum, self.audio), batch.mel)
            found["mel"] = share * away + (1 - share) * found["mel"]
        sums = per_item(found, len(fake))
        if self.adversarial:
            few, w = slice(self.loss.judged), self.judged_window
            real_part, fake_part = {w: real_spectra[w][few]}, {w: fake_spectra[w][few]}
            part = Kept(batch.wave[few], fake[few], real_part, fake_part)
            sums |= per_item(self.opinions(part), len(part.fake))
            hidden = {w: fake_part[w].detach()}
            self.kept = Kept(part.real, part.fake.detach(), real_part, hidden)
        return sums

    def opinions(self, part: Kept) -> dict[str, Tensor]:
        """The adversarial losses of the vocoder; the judges' weights stay out of the graph."""
        of_fake = self.unmoved(part.fake, part.fake_spectra)
        with torch.no_grad():
            of_real = self.unmoved(part.real, part.real_spectra)
        adversarial, matching = losses.generator_losses(of_fake, of_real)
        return {"adversarial": adversarial, "matching": matching}

    def unmoved(self, wave_BS: Tensor, spectra: dict[int, Tensor]) -> list[losses.Judgement]:
        """The judges' view as a function of the wave alone."""
        fixed = {name: p.detach() for name, p in self.judges.named_parameters()}
        asked = (wave_BS, spectra, (self.period,))
        return torch.func.functional_call(self.judges, fixed, asked)

    def judge_losses(self, kept: Kept) -> Sums:
        """How well the judges tell recordings from the vocoder's waves."""
        of_real = self.judges(kept.real, kept.real_spectra, (self.period,))
        of_fake = self.judges(kept.fake, kept.fake_spectra, (self.period,))
        return per_item({"judge": losses.discriminator_loss(of_real, of_fake)}, len(kept.real))


def per_item(means: dict[str, Tensor], items: int) -> Sums:
    """Means over a batch of equally long items as the trainer adds them up over processes."""
    return {
        name: (mean * items, torch.full((), float(items), device=mean.device))
        for name, mean in means.items()
    }
