"""Prompts: what is done to a recording before it is imitated, as to measure what it costs."""

from __future__ import annotations

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.errors import InputError

WORDLESS = "wordless"
KINDS = "clean", "noise", "rumble", "telephone", "room", WORDLESS  # and seconds
LOW = 8, 42  # Hz of rumble, which is hardly heard
DECAY = 0.5  # seconds in which sound in a room falls by 60 dB
FIRST_ECHO = 0.005  # seconds after the sound itself


def degraded(wave: np.ndarray, how: str) -> np.ndarray:
    """A recording with pink noise 15 dB below it or rumble 14, through a telephone, or in a room.

    What a room adds is noise that falls by 60 dB in DECAY seconds (Polack's model), in all as
    strong as what comes straight to the microphone.

    Args:
        wave: float32 (n,) at SAMPLE_RATE.
        how: "noise", "rumble", "telephone" or "room"; others leave it as it is.
    """
    if how == "noise":
        return noisy(wave, 1 / np.sqrt(np.maximum(np.arange(len(wave) // 2 + 1), 1)), 15)
    if how == "rumble":
        hertz = np.fft.rfftfreq(len(wave), 1 / SAMPLE_RATE)
        return noisy(wave, (hertz >= LOW[0]) & (hertz <= LOW[1]), 14)
    if how == "telephone":
        low = audio.resample(wave, SAMPLE_RATE, 8000)
        spectrum = np.fft.rfft(low)
        hertz = np.fft.rfftfreq(len(low), 1 / 8000)
        spectrum[(hertz < 300) | (hertz > 3400)] = 0
        wave = np.fft.irfft(spectrum, len(low)).astype(np.float32)
        return audio.resample(wave, 8000, SAMPLE_RATE)
    if how == "room":
        count = int(DECAY * SAMPLE_RATE)
        echo = np.random.default_rng(0).standard_normal(count)
        echo *= 10 ** (-3 * np.arange(count) / count)
        echo[: int(FIRST_ECHO * SAMPLE_RATE)] = 0
        echo /= np.sqrt(np.sum(np.square(echo)))
        echo[0] = 1
        size = len(wave) + count
        found = np.fft.irfft(np.fft.rfft(wave, size) * np.fft.rfft(echo, size), size)
        return found[: len(wave)].astype(np.float32)
    return wave


def noisy(wave: np.ndarray, colour: np.ndarray, below: float) -> np.ndarray:
    """A recording with noise so many dB below it, whose bins have these magnitudes: float32."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(len(wave))) * colour
    noise = np.fft.irfft(spectrum, len(wave))
    loud = np.sqrt(np.mean(np.square(wave)))
    return (wave + noise * (loud / noise.std()) * 10 ** (-below / 20)).astype(np.float32)


def seconds_of(prompt: str) -> float | None:
    """The length that a prompt is to have; None for what has no number."""
    try:
        seconds = float(prompt)
    except ValueError:
        if prompt not in KINDS:
            raise InputError(
                f"--prompts {prompt!r} not known; choose {', '.join(KINDS)} or seconds"
            ) from None
        return None
    if not 1 <= seconds <= 30:
        raise InputError(f"--prompts has {prompt} seconds; choose 1 to 30")
    return seconds
