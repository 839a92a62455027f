"""Heard: mels augmented by pace, pitch and colour, and where their sound begins. Draws nothing."""

from __future__ import annotations

import numpy as np

from nanospeech.audio.mel import to_hertz, to_mels


def quiet_start(mel_NM: np.ndarray) -> int:
    """Frames before the first sound: those more than 35 dB below the loudest one."""
    level = mel_NM.astype(np.float32).mean(1)
    return int(np.argmax(level > level.max() - 4))  # nats of the amplitude


def stretched(mel_NM: np.ndarray, pace: float) -> np.ndarray:
    """The mel stretched to `pace` times its length, at the same pitch."""
    frames = max(1, round(len(mel_NM) * pace))
    if frames == len(mel_NM):
        return mel_NM
    at = np.linspace(0, len(mel_NM) - 1, frames)
    low = at.astype(int)
    share = (at - low)[:, None].astype(mel_NM.dtype)
    high = np.minimum(low + 1, len(mel_NM) - 1)
    return mel_NM[low] * (1 - share) + mel_NM[high] * share


def warped(mel_NM: np.ndarray, stretch: float, sample_rate: int) -> np.ndarray:
    """The log mel as of a voice whose pitch and formants are `stretch` times as high.

    Vocal tract length perturbation (Jaitly and Hinton, 2013), with the pitch. A prompt and what
    follows it change alike, so that a model of few speakers has to listen to its prompt. Where a
    lower voice has nothing to say at the top, the last band is repeated.
    """
    bands = mel_NM.shape[1]
    top = to_mels(sample_rate / 2)
    hertz = to_hertz(np.linspace(0, top, bands + 2)[1:-1])
    # the band, as a fraction, whose frequency is mapped to each band
    at = np.clip(to_mels(hertz / stretch) / top * (bands + 1) - 1, 0, bands - 1)
    low = np.minimum(at.astype(int), bands - 2)
    share = (at - low).astype(mel_NM.dtype)
    return mel_NM[:, low] * (1 - share) + mel_NM[:, low + 1] * share


def coloured(mel_NM: np.ndarray, strength: float, rng: np.random.Generator) -> np.ndarray:
    """The log mel as through another room, microphone or mouth: a smooth curve over the bands.

    A prompt and what follows it are coloured alike. The curve is six cosines over the bands with
    normal weights, `strength` nats the first and 1/k of it the k-th; it leaves the mean as it is.
    """
    bands = mel_NM.shape[1]
    place = (np.arange(bands) + 0.5) / bands
    orders = np.arange(1, 7)
    weights = rng.standard_normal(6) * strength / orders
    curve = weights @ np.cos(np.pi * orders[:, None] * place)
    return mel_NM + curve.astype(mel_NM.dtype)
