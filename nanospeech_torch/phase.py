"""Phase: a wave from magnitudes, the phase's derivatives and the wanted mel. No weights.

Twin of nanospeech_mlx/phase.py. A mel does not determine the phase: a sine has the same mel
whenever it began. It does determine the phase's derivatives, the instantaneous frequency (over
time) and the group delay (over frequency). A vocoder with griffin_lim_iters predicts a correction
of the derivatives that a Gaussian window would have, which follow from the magnitudes (Prusa,
Balazs and Sondergaard, "A noniterative method for reconstruction of phase from STFT magnitude",
2017). They are integrated here from frame to frame, louder bins weighing more, and Griffin-Lim
iterations then make phases and magnitudes consistent.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from nanospeech.audio import mel
from nanospeech.config import AudioConfig

from .mel import table
from .stft import analyse, synthesise

MEL_ITERS = 4  # iterations of mel_pseudo_inverse
REACH = 6  # bins to each side that a bin's phase is averaged over
HANN = 0.25645  # time-frequency ratio of the Gaussian like a Hann window, in its length squared
MOMENTUM = 0.99  # of Griffin-Lim (Perraudin, Balazs and Sondergaard, 2013)
CORRECTIONS = 2  # of the iterations, the last ones
QUIET = 1e-6  # magnitudes below it have no slope
TINY = 1e-9
MAX_GAIN = 10.0


def bands(device: torch.device, n_fft: int, n_mels: int) -> torch.Tensor:
    """The mel's filters, float32 (F, M)."""
    return table(device, mel.filterbank, AudioConfig().sample_rate, n_fft, n_mels)


def mel_gain(magnitude_BNF: torch.Tensor, wanted_BNM: torch.Tensor) -> torch.Tensor:
    """Gain of each bin that brings the mel of magnitudes nearer to the (linear) mel wanted_BNM.

    A bin's gain is the mean of what its bands lack: a multiplicative update (Lee and Seung, 2001).
    """
    bank = bands(magnitude_BNF.device, 2 * (magnitude_BNF.shape[-1] - 1), wanted_BNM.shape[-1])
    share = (bank / bank.sum(1, keepdim=True).clamp(min=1e-3)).T
    return (wanted_BNM / (magnitude_BNF @ bank).clamp(min=mel.CLAMP)) @ share


def mel_pseudo_inverse(wanted_BNM: torch.Tensor, n_fft: int) -> torch.Tensor:
    """Smooth magnitudes (B, N, F) of nearly the (linear) mel wanted."""
    bank = bands(wanted_BNM.device, n_fft, wanted_BNM.shape[-1])
    magnitude = wanted_BNM @ (bank / bank.sum(1, keepdim=True).clamp(min=1e-3)).T
    for _ in range(MEL_ITERS):
        magnitude = magnitude * mel_gain(magnitude, wanted_BNM)
    return magnitude


def slopes(
    magnitude_BNF: torch.Tensor, hop: int, mask_BN1: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Derivatives of the phase that a Gaussian window would have.

    Args:
        magnitude_BNF: magnitudes.
        hop: samples between frames.
        mask_BN1: ones in the valid frames, or None.

    Returns:
        Phase differences in radians, (B, N, F) each: from the frame before to this one
        (instantaneous frequency) and from the bin below to this one (group delay, negated).
    """
    n_fft = 2 * (magnitude_BNF.shape[-1] - 1)
    ratio = hop / (HANN * n_fft)
    loud = magnitude_BNF.clamp(min=QUIET).log()
    # central differences, none at the ends
    over_bins = F.pad((loud[:, :, 2:] - loud[:, :, :-2]) / 2, (1, 1))
    over_time = F.pad((loud[:, 2:] - loud[:, :-2]) / 2, (0, 0, 1, 1))
    if mask_BN1 is not None:  # the last valid frame has no next one
        after = F.pad(mask_BN1[:, 1:], (0, 0, 0, 1))
        over_time = over_time * after
    turn = torch.arange(n_fft // 2 + 1, device=loud.device) * (2 * math.pi * hop / n_fft % math.tau)
    frequency = ratio * (over_bins + F.pad(over_bins[:, :-1], (0, 0, 1, 0))) / 2 + turn
    # frames begin half a window before their middle: the phase falls by pi a bin
    group_delay = -(over_time + F.pad(over_time[:, :, :-1], (1, 0))) / (2 * ratio) - math.pi
    return frequency, group_delay


def integrate(
    magnitude_BNF: torch.Tensor, frequency_BNF: torch.Tensor, group_delay_BNF: torch.Tensor
) -> torch.Tensor:
    """Integrates the derivatives of phases, from the first frame to the last.

    A bin's phase is that of the frame before, advanced by its frequency, in a mean with the phases
    that follow from its neighbours' by the group delay. Bins weigh as much as they are loud.

    Args:
        magnitude_BNF: weights of the bins.
        frequency_BNF: radians from the frame before.
        group_delay_BNF: radians from the bin below.

    Returns:
        complex numbers (B, N, F) of size 1, or 0 where neighbours cancel out.
    """
    bins = magnitude_BNF.shape[2]
    loud = (magnitude_BNF + TINY).sqrt()
    loud = loud / loud.amax(dim=2, keepdim=True)
    weight = F.pad(loud[:, :-1], (0, 0, 1, 0)) * loud + TINY
    turn_BNF = torch.polar(weight, frequency_BNF)
    neighbour = torch.polar(torch.ones_like(loud), group_delay_BNF)[:, :, 1:]
    up_BNF, down_BNF = F.pad(neighbour, (1, 0)), F.pad(neighbour.conj().resolve_conj(), (0, 1))
    sign = 1 - 2 * (torch.arange(bins, device=loud.device) % 2)
    u_BF = (sign.float() + 0j).expand(len(loud), bins)
    found = [u_BF]
    for turn_BF, up_BF, down_BF in zip(*(x[:, 1:].unbind(1) for x in (turn_BNF, up_BNF, down_BNF))):
        u_BF = u_BF * turn_BF
        for _ in range(REACH):
            around = F.pad(u_BF, (1, 1))
            u_BF = u_BF + around[:, :-2] * up_BF + around[:, 2:] * down_BF
        u_BF = u_BF / u_BF.abs().clamp(min=TINY * TINY)
        found.append(u_BF)
    return torch.stack(found, dim=1)


def reconstruct(
    magnitude_BNF: torch.Tensor,
    frequency_BNF: torch.Tensor,
    group_delay_BNF: torch.Tensor,
    wanted_BNM: torch.Tensor,
    iters: int,
    n_fft: int,
    hop: int,
    mask_BN1: torch.Tensor | None = None,
) -> torch.Tensor:
    """A wave of these magnitudes and phase derivatives, and nearly of the (linear) mel wanted_BNM.

    Args:
        magnitude_BNF: predicted magnitudes.
        frequency_BNF: radians from the frame before.
        group_delay_BNF: radians from the bin below.
        wanted_BNM: the mel.
        iters: Griffin-Lim iterations, at least 1; the last two correct bands, not bins.
        n_fft: window length.
        hop: samples between frames.
        mask_BN1: ones in the valid frames, or None.

    Returns:
        (B, (N - 1) * hop + n_fft), as stft.synthesise.
    """
    spectrum = magnitude_BNF * integrate(magnitude_BNF, frequency_BNF, group_delay_BNF)
    before = None
    for left in reversed(range(iters)):
        rebuilt = analyse(synthesise(spectrum, n_fft, hop, mask_BN1), n_fft, hop)
        if left < CORRECTIONS:
            size = rebuilt.abs()
            spectrum = rebuilt * mel_gain(size, wanted_BNM).clamp(max=MAX_GAIN)
            continue
        ahead = rebuilt if before is None else rebuilt + MOMENTUM * (rebuilt - before)
        spectrum = magnitude_BNF * ahead / ahead.abs().clamp(min=TINY)
        before = rebuilt
    return synthesise(spectrum, n_fft, hop, mask_BN1)
