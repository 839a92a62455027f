"""Heard: mels augmented by pace, pitch, colour, room, band and noise; where sound begins.

And what a listener hears beside a mel that is yet to be made.
"""

from __future__ import annotations

import numpy as np

from nanospeech.audio.mel import CLAMP, band_edges, to_mels
from nanospeech.config import AudioConfig

from .batch import EarConfig

POINTS = 6  # of the curve of a disturbance
DECIBELS = np.log(10) / 20  # in nats of the amplitude


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
    hertz = band_edges(sample_rate, bands)[1:-1]
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


def disturbance(frames: int, bands: int, ear: EarConfig, rng: np.random.Generator) -> np.ndarray:
    """What a frozen listener hears beside an item, a prompt and what follows it alike: (N, M).

    Args:
        frames, bands: N and M.
        ear: how much of each kind, in the network's units.
        rng: everything is drawn from it.
    """
    spread = ear.noise * rng.random()
    noise = rng.standard_normal((frames, bands), dtype=np.float32)
    curve = ear.level * rng.uniform(-1, 1) * np.ones(bands)
    points = ear.colour * rng.standard_normal(POINTS)
    if rng.random() < 0.5:
        curve += np.interp(np.linspace(0, POINTS - 1, bands), np.arange(POINTS), points)
    return spread * noise + curve.astype(np.float32)


def bins_of(audio: AudioConfig) -> np.ndarray:
    """Bins of the transform that each band is the sum of, at least 1: (M,)."""
    edges = band_edges(audio.sample_rate, audio.n_mels)
    return np.maximum((edges[2:] - edges[:-2]) / (2 * audio.sample_rate / audio.n_fft), 1)


def level_of(mel_NM: np.ndarray, audio: AudioConfig) -> float:
    """Nats of the root of the mean power of a log mel's bins.

    A band of k bins of magnitude a is ka, and its power ka^2.
    """
    return float(0.5 * np.log(np.mean(np.sum(np.exp(2 * mel_NM) / bins_of(audio), 1))))


def noisy(
    mel_NM: np.ndarray, audio: AudioConfig, level: float, slope: float, rng: np.random.Generator
) -> np.ndarray:
    """The log mel with steady noise of a level (level_of); `slope` 0 is white, 0.5 pink."""
    bins = bins_of(audio)
    curve = np.log(bins) - slope * np.log(band_edges(audio.sample_rate, audio.n_mels)[1:-1])
    curve += level - 0.5 * np.log(np.sum(np.exp(2 * curve) / bins))
    return 0.5 * np.logaddexp(2 * mel_NM, 2 * (curve + texture(mel_NM.shape, bins, rng)))


def texture(shape: tuple[int, ...], bins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Nats by which magnitudes of noise differ from their mean: Rayleigh's, averaged over bins."""
    return np.clip(0.52 / np.sqrt(bins) * rng.standard_normal(shape), -1.5, 1.0)


def in_room(mel_NM: np.ndarray, audio: AudioConfig, rng: np.random.Generator) -> np.ndarray:
    """The log mel as of a recording in some room: its reverberation, and a faint steady noise.

    A prompt and what follows it are in the same room, so that a model of few rooms follows its
    prompt into others. Power decays exponentially (Polack, 1988), by 60 dB in 0.1 to 0.6 s
    at 250 Hz and in 0.4 to 0.9 of that at 8 kHz; what arrives late is 6 to 25 dB below what arrives
    at once. The noise is 25 to 60 dB below the speech and falls by 0 to 6 dB an octave.

    Args:
        mel_NM: log of the magnitudes' mel.
        audio: its bands and frames.
        rng: everything is drawn from it.
    """
    mel = mel_NM.astype(np.float64)
    level = level_of(mel, audio)
    hertz = band_edges(audio.sample_rate, audio.n_mels)[1:-1]
    octaves = np.clip(np.log2(hertz / 250) / 5, 0, 1)  # 0 at 250 Hz, 1 at 8 kHz
    seconds = np.exp(rng.uniform(np.log(0.1), np.log(0.6))) * rng.uniform(0.4, 0.9) ** octaves
    kept = 10 ** (-6 * audio.hop_length / audio.sample_rate / seconds)  # power, a frame later
    late = 10 ** (-rng.uniform(6, 25) / 10) * (1 - kept) / kept  # all later frames: this share
    power = np.exp(2 * mel)
    tail, tails = np.zeros(audio.n_mels), np.empty_like(power)
    for n, now in enumerate(power):
        tail = tail * kept  # of all earlier frames
        tails[n] = tail
        tail = tail + now
    power += late * tails * np.exp(2 * texture(mel.shape, bins_of(audio), rng))
    mel = noisy(
        0.5 * np.log(power), audio, level - rng.uniform(25, 60) * DECIBELS, rng.uniform(0, 1), rng
    )
    mel += level - level_of(mel, audio)
    return np.maximum(mel, np.log(CLAMP)).astype(mel_NM.dtype)


def spoiled(mel_NM: np.ndarray, audio: AudioConfig, rng: np.random.Generator) -> np.ndarray:
    """The log mel as of a poor recording: with noise, through a narrow band, or both.

    For a prompt alone: what follows it stays clean, so that a model learns the voice and not the
    recording. Noise is steady, 5 to 30 dB below the speech and falls with frequency by 0 to 9 dB an
    octave; the band begins at 50 to 400 Hz and ends at 2,500 to 8,000 Hz, with 40 to 200 dB an
    octave beyond, where it sinks to a floor 50 to 110 dB below the speech.

    Args:
        mel_NM: log of the magnitudes' mel.
        audio: its bands.
        rng: everything is drawn from it.
    """
    hertz = band_edges(audio.sample_rate, audio.n_mels)[1:-1]
    kind = rng.random()
    mel = mel_NM.astype(np.float64)
    level = level_of(mel, audio)
    if kind < 0.7:
        mel = noisy(mel, audio, level - rng.uniform(5, 30) * DECIBELS, rng.uniform(0, 1.5), rng)
    if kind > 0.4:
        low, high = rng.uniform(50, 400), np.exp(rng.uniform(np.log(2500), np.log(8000)))
        octaves = np.maximum(np.log2(low / hertz), np.log2(hertz / high))
        mel -= rng.uniform(40, 200) * DECIBELS * np.maximum(octaves, 0)
        mel = noisy(mel, audio, level - rng.uniform(50, 110) * DECIBELS, 0.0, rng)
    mel += level - level_of(mel, audio)  # as a prompt, it is brought to the level of others
    return np.maximum(mel, np.log(CLAMP)).astype(mel_NM.dtype)


def narrowed(mel_NM: np.ndarray, audio: AudioConfig, rng: np.random.Generator) -> np.ndarray:
    """The log mel as of a recording at another sample rate, or packed: its top is missing.

    For a prompt alone: where recordings of training all end at the same frequency, a model takes
    one that ends elsewhere for another voice. The band ends at 9 to 11.4 kHz, with 200 to 1,500 dB
    an octave beyond, and a floor 60 to 110 dB below the speech.
    """
    hertz = band_edges(audio.sample_rate, audio.n_mels)[1:-1]
    mel = mel_NM.astype(np.float64)
    level = level_of(mel, audio)
    octaves = np.maximum(np.log2(hertz / rng.uniform(9000, 11_400)), 0)
    mel -= rng.uniform(200, 1500) * DECIBELS * octaves
    mel = noisy(mel, audio, level - rng.uniform(60, 110) * DECIBELS, 0.0, rng)
    return np.maximum(mel, np.log(CLAMP)).astype(mel_NM.dtype)
