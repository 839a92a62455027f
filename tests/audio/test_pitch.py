"""Two people who speak in turn are told by their pitch; one who speaks with expression is not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.audio.pitch import leap, pitches, stretches
from nanospeech.release.voices import shipped_voices
from nanospeech.speech.reference import LEAP, remarks

RATE = audio.SAMPLE_RATE
PAUSE = np.zeros(RATE // 2, np.float32)


def voice(hertz: float | np.ndarray, seconds: float = 1.0) -> np.ndarray:
    """A sound of many harmonics, the lowest of which is missing as in telephones."""
    phase = 2 * np.pi * np.cumsum(np.broadcast_to(hertz, int(seconds * RATE))) / RATE
    return (0.1 * sum(np.sin(k * phase) / k for k in range(2, 9))).astype(np.float32)


def in_turn(*waves: np.ndarray) -> np.ndarray:
    return np.concatenate([part for wave in waves for part in (wave, PAUSE)])


@pytest.mark.parametrize("hertz", [75, 110, 200, 380])
def test_the_pitch_is_that_of_the_harmonics(hertz):
    found, _ = pitches(in_turn(voice(hertz)))
    heard = found[np.isfinite(found)]
    assert 45 <= len(heard) <= 52  # of a second, and nothing in the pause
    assert np.median(heard) == pytest.approx(12 * np.log2(hertz / 100), abs=0.5)


def test_a_leap_is_between_stretches_that_last():
    low, high = voice(100), voice(178)  # 10 semitones
    assert leap(in_turn(low, high, low)) == pytest.approx(10, abs=0.6)
    assert len(stretches(in_turn(low, high, low))[0]) == 3
    assert leap(in_turn(low, voice(178, 0.35), low)) == 0  # a cry
    assert leap(in_turn(low, voice(133), high)) == pytest.approx(5, abs=0.6)
    assert leap(in_turn(low, voice(np.linspace(100, 178, RATE)))) < LEAP
    noise = np.random.default_rng(0).standard_normal(2 * RATE)
    for wave in (low, noise, 0 * low, np.zeros(0), np.zeros(RATE // 50), 0.2 * noise[:RATE]):
        assert leap(wave.astype(np.float32)) == 0


def test_two_people_are_told_and_each_alone_is_not():
    names = "michael", "heart", "kathleen"
    one, other, third = (
        audio.set_level(audio.read(shipped_voices()[name]), 0.1)[0][: 3 * RATE] for name in names
    )
    (note,) = [n for n in remarks(0.0, in_turn(one, other), "") if "voices" in n]
    assert re.match(r"two voices\? its pitch leaps by \d+ semitones .* one person alone", note)
    assert max(map(leap, (one, other, third, in_turn(one, one)))) < LEAP
