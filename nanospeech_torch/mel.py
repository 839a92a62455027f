"""Mel: nanospeech.audio.mel's definition in torch, for batches on any device. Always float32."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nanospeech.audio.mel import CLAMP, filterbank, window
from nanospeech.config import AudioConfig


@functools.lru_cache(maxsize=64)
def table(device: torch.device, make: Callable, *sizes: int) -> Tensor:
    """The array make(*sizes) on a device, cached, as a copy a step would synchronise."""
    with torch.inference_mode(False):
        return torch.from_numpy(make(*sizes)).to(device)


class MelSpec(nn.Module):
    """Log mel of waves.

    Args:
        audio: the transform's sizes.
    """

    window: torch.Tensor
    filterbank: torch.Tensor

    def __init__(self, audio: AudioConfig | None = None):
        super().__init__()
        self.audio = a = audio or AudioConfig()
        bank = filterbank(a.sample_rate, a.n_fft, a.n_mels)
        self.register_buffer("window", torch.from_numpy(window(a.n_fft).copy()), persistent=False)
        self.register_buffer("filterbank", torch.from_numpy(bank.copy()), persistent=False)

    def forward(self, wave_Bn: Tensor) -> Tensor:
        """float waves (B, n) in [-1, 1] to float32 (B, n // hop_length + 1, M)."""
        a = self.audio
        with torch.autocast(wave_Bn.device.type, enabled=False):  # bf16 would lift the quiet bands
            spectrum = torch.stft(
                wave_Bn.float(),
                a.n_fft,
                a.hop_length,
                window=self.window,
                center=True,
                pad_mode="reflect",
                return_complex=True,
            )
            return (spectrum.abs().transpose(1, 2) @ self.filterbank).clamp(min=CLAMP).log()
