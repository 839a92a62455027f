"""Phase: a wave from magnitudes, the phase's derivatives and the wanted mel. No weights.

Twin of nanospeech_torch/phase.py. A mel does not determine the phase: a sine has the same mel
whenever it began. It does determine the phase's derivatives, the instantaneous frequency (over
time) and the group delay (over frequency). A vocoder with griffin_lim_iters predicts a correction
of the derivatives that a Gaussian window would have, which follow from the magnitudes (Prusa,
Balazs and Sondergaard, "A noniterative method for reconstruction of phase from STFT magnitude",
2017). They are integrated here from frame to frame, louder bins weighing more, and Griffin-Lim
iterations then make phases and magnitudes consistent.
"""

from __future__ import annotations

import math

import mlx.core as mx

from nanospeech.audio import mel
from nanospeech.config import AudioConfig

from .stft import analyse, synthesise

MEL_ITERS = 4  # iterations of mel_pseudo_inverse
REACH = 6  # bins to each side that a bin's phase is averaged over
HANN = 0.25645  # time-frequency ratio of the Gaussian like a Hann window, in its length squared
MOMENTUM = 0.99  # of Griffin-Lim (Perraudin, Balazs and Sondergaard, 2013)
CORRECTIONS = 2  # of the iterations, the last ones
QUIET = 1e-6  # magnitudes below it have no slope
TINY = 1e-9
MAX_GAIN = 10.0
BIN_BELOW, BIN_ABOVE = [(0, 0), (0, 0), (1, 0)], [(0, 0), (0, 0), (0, 1)]
FRAME_BEFORE = [(0, 0), (1, 0), (0, 0)]
BINS_AROUND, FRAMES_AROUND = [(0, 0), (0, 0), (1, 1)], [(0, 0), (1, 1), (0, 0)]


def bands(n_fft: int, n_mels: int) -> mx.array:
    """The mel's filters, float32 (F, M)."""
    return mx.array(mel.filterbank(AudioConfig().sample_rate, n_fft, n_mels))


def mel_gain(magnitude_BNF: mx.array, wanted_BNM: mx.array) -> mx.array:
    """Gain of each bin that brings the mel of magnitudes nearer to the (linear) mel wanted_BNM.

    A bin's gain is the mean of what its bands lack: a multiplicative update (Lee and Seung, 2001).
    """
    bank = bands(2 * (magnitude_BNF.shape[-1] - 1), wanted_BNM.shape[-1])
    share = (bank / mx.maximum(bank.sum(1, keepdims=True), 1e-3)).T
    return (wanted_BNM / mx.maximum(magnitude_BNF @ bank, mel.CLAMP)) @ share


def mel_pseudo_inverse(wanted_BNM: mx.array, n_fft: int) -> mx.array:
    """Smooth magnitudes (B, N, F) of nearly the (linear) mel wanted."""
    bank = bands(n_fft, wanted_BNM.shape[-1])
    magnitude = wanted_BNM @ (bank / mx.maximum(bank.sum(1, keepdims=True), 1e-3)).T
    for _ in range(MEL_ITERS):
        magnitude = magnitude * mel_gain(magnitude, wanted_BNM)
    return magnitude


def slopes(
    magnitude_BNF: mx.array, hop: int, mask_BN1: mx.array | None = None
) -> tuple[mx.array, mx.array]:
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
    loud = mx.log(mx.maximum(magnitude_BNF, QUIET))
    # central differences, none at the ends
    over_bins = mx.pad((loud[:, :, 2:] - loud[:, :, :-2]) / 2, BINS_AROUND)
    over_time = mx.pad((loud[:, 2:] - loud[:, :-2]) / 2, FRAMES_AROUND)
    if mask_BN1 is not None:  # the last valid frame has no next one
        after = mx.pad(mask_BN1[:, 1:], [(0, 0), (0, 1), (0, 0)])
        over_time = over_time * after
    turn = mx.arange(n_fft // 2 + 1) * (2 * math.pi * hop / n_fft % math.tau)
    frequency = ratio * (over_bins + mx.pad(over_bins[:, :-1], FRAME_BEFORE)) / 2 + turn
    # frames begin half a window before their middle: the phase falls by pi a bin
    group_delay = -(over_time + mx.pad(over_time[:, :, :-1], BIN_BELOW)) / (2 * ratio) - math.pi
    return frequency, group_delay


def integrate(
    magnitude_BNF: mx.array, frequency_BNF: mx.array, group_delay_BNF: mx.array
) -> mx.array:
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
    loud = mx.sqrt(magnitude_BNF + TINY)
    loud = loud / loud.max(axis=2, keepdims=True)
    weight = mx.pad(loud[:, :-1], FRAME_BEFORE) * loud + TINY
    turn_BNF = weight * mx.exp(1j * frequency_BNF)
    neighbour = mx.exp(1j * group_delay_BNF)[:, :, 1:]
    up_BNF = mx.pad(neighbour, BIN_BELOW)
    down_BNF = mx.pad(mx.conj(neighbour), BIN_ABOVE)
    sign = 1 - 2 * (mx.arange(bins) % 2)
    u_BF = mx.broadcast_to(sign.astype(mx.complex64), (len(loud), bins))
    found = [u_BF]
    for n in range(1, magnitude_BNF.shape[1]):
        u_BF = u_BF * turn_BNF[:, n]
        for _ in range(REACH):
            around = mx.pad(u_BF, [(0, 0), (1, 1)])
            u_BF = u_BF + around[:, :-2] * up_BNF[:, n] + around[:, 2:] * down_BNF[:, n]
        u_BF = u_BF / mx.maximum(mx.abs(u_BF), TINY * TINY)
        found.append(u_BF)
    return mx.stack(found, axis=1)


def reconstruct(
    magnitude_BNF: mx.array,
    frequency_BNF: mx.array,
    group_delay_BNF: mx.array,
    wanted_BNM: mx.array,
    iters: int,
    n_fft: int,
    hop: int,
    mask_BN1: mx.array | None = None,
) -> mx.array:
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
            size = mx.abs(rebuilt)
            spectrum = rebuilt * mx.minimum(mel_gain(size, wanted_BNM), MAX_GAIN)
            continue
        ahead = rebuilt if before is None else rebuilt + MOMENTUM * (rebuilt - before)
        spectrum = magnitude_BNF * ahead / mx.maximum(mx.abs(ahead), TINY)
        before = rebuilt
    return synthesise(spectrum, n_fft, hop, mask_BN1)
