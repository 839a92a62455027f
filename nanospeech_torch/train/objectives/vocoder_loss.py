"""Vocoder losses: spectral distances and small discriminators. Training only; torch only.

The spectral losses are those of Parallel WaveGAN (arXiv 1910.11480), the adversarial ones those of
HiFi-GAN (arXiv 2010.05646) and UnivNet (arXiv 2106.07889), small enough to train on two CPU cores:
discriminators of periods of the wave, and of its spectrograms.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from nanospeech.audio import mel
from nanospeech.config import AudioConfig
from nanospeech_torch.mel import table

WINDOWS = (256, 512, 1024, 2048)  # short for pulses, long for harmonics
PERIODS = (2, 3, 5, 7, 11)
EDGE = 2  # frames at each end whose windows reach beyond a segment
LOUDNESS = 0.5  # power of a product of two magnitudes that approximates loudness
FLOOR = 1e-3  # of an unnormalised magnitude: about the rounding noise of 16-bit audio


def spectrograms(
    wave_BS: torch.Tensor, windows: Iterable[int] = WINDOWS
) -> dict[int, torch.Tensor]:
    """Complex spectrograms (B, F, N) of a batch of waves by window; the hop is a quarter of it."""
    return {n_fft: stft(wave_BS, n_fft, n_fft // 4) for n_fft in windows}


def stft(wave_BS: torch.Tensor, n_fft: int, hop: int) -> torch.Tensor:
    """Centred spectrogram with the Hann window of nanospeech.audio.mel: complex (B, F, N)."""
    window = table(wave_BS.device, mel.window, n_fft)
    return torch.stft(wave_BS.float(), n_fft, hop, window=window, return_complex=True)


def log_mel(wave_BS: torch.Tensor, audio: AudioConfig = AudioConfig()) -> torch.Tensor:
    """The mel of nanospeech.audio.mel for a batch of waves: float32 (B, S // hop_length + 1, M)."""
    spectrum = stft(wave_BS, audio.n_fft, audio.hop_length)
    return mel_of_magnitude(spectrum.abs(), audio)


def mel_of_magnitude(magnitude_BFN: torch.Tensor, audio: AudioConfig) -> torch.Tensor:
    """Log mel (B, N, M) of a magnitude spectrogram with audio.n_fft bins."""
    sizes = audio.sample_rate, audio.n_fft, audio.n_mels
    bank = table(magnitude_BFN.device, mel.filterbank, *sizes)
    with torch.autocast(magnitude_BFN.device.type, enabled=False):  # quiet bands need float32
        return (magnitude_BFN.mT @ bank).clamp(min=mel.CLAMP).log()


def spectral_losses(
    fake: dict[int, torch.Tensor],
    real: dict[int, torch.Tensor],
    audio: AudioConfig = AudioConfig(),
) -> dict[str, torch.Tensor]:
    """Distances between two waves' spectrograms, averaged over the windows.

    Args:
        fake: spectrograms(wave) of the vocoder's output.
        real: the same of the recording.
        audio: the mel's definition; its n_fft is among the windows, and its hop a quarter of it.

    Returns:
        scalars "mel" (L1 of log mels), "magnitude" (L1 of log magnitudes) and "convergence"
        (relative error of the magnitudes' norm).
    """
    losses = {}
    magnitude, convergence = [], []
    for n_fft in fake:
        f, r = fake[n_fft].abs(), real[n_fft].abs()
        if n_fft == audio.n_fft:
            losses["mel"] = F.l1_loss(mel_of_magnitude(f, audio), mel_of_magnitude(r, audio))
        magnitude.append(log_distances(f, r).mean())
        convergence.append(relative_errors(f, r).mean())
    losses["magnitude"] = torch.stack(magnitude).mean()
    losses["convergence"] = torch.stack(convergence).mean()
    return losses


def log_distances(fake_BFN: torch.Tensor, real_BFN: torch.Tensor) -> torch.Tensor:
    """Absolute differences of the logs of magnitudes, (B, F, N)."""
    return (fake_BFN.clamp(min=FLOOR).log() - real_BFN.clamp(min=FLOOR).log()).abs()


def relative_errors(fake_BFN: torch.Tensor, real_BFN: torch.Tensor) -> torch.Tensor:
    """The norm of each item's error of magnitudes, relative to that of the real ones, (B,)."""
    error = torch.linalg.vector_norm(fake_BFN - real_BFN, dim=(1, 2))
    return error / (torch.linalg.vector_norm(real_BFN, dim=(1, 2)) + 1e-3)


def slope_sums(
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor], real_BFN: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Errors of predicted magnitudes and phase derivatives against a recording's spectrogram.

    Args:
        found: what SlopeHead gives: magnitudes, and the phase differences from frame to frame and
            from bin to bin, (B, N, F) each.
        real_BFN: complex spectrogram of the recording; its outer frames, whose windows are
            cut, are left out.

    Returns:
        sums over the batch, each a loss where it is divided by that of slope_counts: "magnitude"
        (L1 of logs), "frequency" and "group_delay" (1 - cos of the error, weighted by loudness).
    """
    inner = slice(EDGE, real_BFN.shape[2] - EDGE)
    magnitude, frequency, group_delay = (x[:, inner] for x in found)
    real = real_BFN.mT[:, inner]
    log_found, log_real = (x.clamp(min=FLOOR).log() for x in (magnitude, real.abs()))
    turns = turns_of(real_BFN)
    return {
        "magnitude": (log_found - log_real).abs().sum(),
        "frequency": turn_error(frequency[:, 1:], turns["frequency"]),
        "group_delay": turn_error(group_delay[:, :, 1:], turns["group_delay"]),
    }


def slope_counts(real_BFN: torch.Tensor) -> dict[str, torch.Tensor]:
    """The divisors of slope_sums, from the recording alone: elements, or the sum of weights."""
    inner = real_BFN[..., EDGE : real_BFN.shape[2] - EDGE]
    elements = real_BFN.new_full((), inner.numel(), dtype=torch.float32)
    turns = turns_of(real_BFN)
    return {"magnitude": elements, **{k: turn_weight(v).sum() for k, v in turns.items()}}


def turns_of(real_BFN: torch.Tensor) -> dict[str, torch.Tensor]:
    """Complex numbers whose angles are a recording's phase differences."""
    real = real_BFN.mT[:, EDGE : real_BFN.shape[2] - EDGE]
    return {
        "frequency": real[:, 1:] * real[:, :-1].conj(),
        "group_delay": real[:, :, 1:] * real[:, :, :-1].conj(),
    }


def turn_weight(turn: torch.Tensor) -> torch.Tensor:
    """The weight of a phase difference: its loudness."""
    return turn.abs() ** LOUDNESS


def turn_error(angle: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """1 - cos of the angle between a prediction (radians) and complex numbers, weighted, summed."""
    cosine = (turn.real * angle.cos() + turn.imag * angle.sin()) / turn.abs().clamp(min=1e-12)
    return (turn_weight(turn) * (1 - cosine)).sum()


Scores = tuple[torch.Tensor, list[torch.Tensor]]  # scores, and the features of each layer


class PeriodDiscriminator(nn.Module):
    """Convolves over every `period`-th sample (HiFi-GAN, section 2.3)."""

    def __init__(self, period: int, channels: int):
        super().__init__()
        self.period = period
        widths = (1, channels, 2 * channels, 4 * channels, 4 * channels)
        self.convs = nn.ModuleList(
            [nn.Conv1d(i, o, 5, stride=3, padding=2) for i, o in pairwise(widths)]
        )
        self.out = nn.Conv1d(widths[-1], 1, 3, padding=1)

    def forward(self, wave_BS: torch.Tensor) -> Scores:
        B, S = wave_BS.shape
        whole = S // self.period * self.period
        x = wave_BS[:, :whole].reshape(B, -1, self.period).mT.reshape(B * self.period, 1, -1)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.out(x), features


class SpectrogramDiscriminator(nn.Module):
    """Convolves over a spectrogram: real and imaginary parts, power-law compressed magnitude."""

    def __init__(self, channels: int):
        super().__init__()
        widths = (2, channels, channels, channels, channels)
        # (frequency, time); the first layer is the widest, so it takes the largest stride
        shapes = [(9, 4), (5, 2), (5, 2), (5, 2)]
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(i, o, (kernel, 3), stride=(stride, 1), padding=(kernel // 2, 1))
                for i, o, (kernel, stride) in zip(widths, widths[1:], shapes)
            ]
        )
        self.out = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, spectrum_BFN: torch.Tensor) -> Scores:
        # |S|^0.3 exp(i phase): the ear's loudness is nearer to a power than to the amplitude
        scale = (spectrum_BFN.real.square() + spectrum_BFN.imag.square() + 1e-6) ** -0.35
        parts = torch.stack([spectrum_BFN.real * scale, spectrum_BFN.imag * scale], dim=-1)
        x = parts.permute(0, 3, 1, 2)  # channels_last in memory: convolutions are faster so
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.out(x), features


class Discriminators(nn.Module):
    """Discriminators of a wave's periods and of its spectrograms; a call may use a few of them.

    Args:
        period_channels: width of the period discriminators' first layer.
        spectrogram_channels: width of the spectrogram discriminators.
    """

    def __init__(self, period_channels: int, spectrogram_channels: int):
        super().__init__()
        self.periods = nn.ModuleDict(
            {str(p): PeriodDiscriminator(p, period_channels) for p in PERIODS}
        )
        self.spectrograms = nn.ModuleDict(
            {str(w): SpectrogramDiscriminator(spectrogram_channels) for w in WINDOWS}
        )

    def forward(
        self,
        wave_BS: torch.Tensor,
        spectra: dict[int, torch.Tensor],
        periods: Iterable[int] = PERIODS,
    ) -> list[Scores]:
        """Scores and features of waves (B, S), for these periods and these spectrograms of them."""
        of_wave = [self.periods[str(p)](wave_BS) for p in periods]
        return of_wave + [self.spectrograms[str(w)](s) for w, s in spectra.items()]


def discriminator_loss(real: list[Scores], fake: list[Scores]) -> torch.Tensor:
    """Hinge loss, the mean over the discriminators."""
    terms = [F.relu(1 - r).mean() + F.relu(1 + f).mean() for (r, _), (f, _) in zip(real, fake)]
    return torch.stack([t.float() for t in terms]).mean()


def generator_losses(fake: list[Scores], real: list[Scores]) -> tuple[torch.Tensor, torch.Tensor]:
    """The vocoder's hinge loss and feature matching loss, each the mean over discriminators."""
    hinge = [F.relu(1 - score).mean().float() for score, _ in fake]
    matching = [
        F.l1_loss(f.float(), r.detach().float())
        for (_, fs), (_, rs) in zip(fake, real)
        for f, r in zip(fs, rs)
    ]
    return torch.stack(hinge).mean(), torch.stack(matching).mean()
