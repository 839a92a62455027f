"""Rooms: clips and pairs as of recordings in other rooms, the prompt alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nanospeech.audio.mel import log_mel
from nanospeech.audio.wave import read
from nanospeech.config import AudioConfig
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.heard import in_room
from nanospeech_torch.train.data.speech import SpeechBatches
from tests.train.test_golden_pairs import TOKENIZER, items
from tests.train.test_spoiled import (
    BINS,
    HERTZ,
    PLAN,
    below,
    decibels,
    level,
    settled,
    slope,
    taken_apart,
    voices,
)

ROOT = Path(__file__).parents[2]
AUDIO = AudioConfig()
FRAMES_A_SECOND = 24_000 / 256


def test_rooms_keep_length_and_level_and_are_drawn():
    mel = log_mel(read(ROOT / "nanospeech/default/voices/kathleen.flac")).astype(np.float16)
    found = [in_room(mel, AUDIO, np.random.default_rng(i)) for i in range(50)]
    for other in found:
        assert other.shape == mel.shape and other.dtype == mel.dtype
        assert level(other) == pytest.approx(level(mel), abs=0.1)
        assert other.min() >= np.log(1e-5) - 1e-2 and np.isfinite(other).all()
    assert np.array_equal(in_room(mel, AUDIO, np.random.default_rng(7)), found[7])
    assert not np.array_equal(found[7], found[8])


def test_a_click_dies_away_exponentially():
    """By 60 dB in 0.04 to 0.6 s, 6 to 25 dB below the click in all, until noise hides it."""
    click = np.full((120, 100), np.log(1e-5))
    click[20] = 3.0
    noise, shares = [], []
    for seed in range(60):
        power = np.exp(2 * in_room(click, AUDIO, np.random.default_rng(seed))).mean(1)
        floor = power[:20].mean()
        noise.append(10 * np.log10(power[20] / floor / 120))
        tail = np.maximum(power[21:] - floor, 0)
        shares.append(10 * np.log10(tail[:56].sum() / power[20]))
        heard = np.flatnonzero(tail < 10 * floor)[0]  # frames that stand 10 dB out of the noise
        if heard >= 6:
            slope = np.polyfit(np.arange(heard), 10 * np.log10(tail[:heard]), 1)[0]
            assert 0.04 < -60 / (slope * FRAMES_A_SECOND) < 0.7
    assert -28 < min(shares) < -20 and -9 < max(shares) < -4
    assert 20 < min(noise) < 32 and 50 < max(noise) < 63


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_sound_dies_away_as_is_said_and_sooner_the_higher_it_is(share):
    """By 60 dB in 0.1 to 0.6 s at 250 Hz, in 0.4 to 0.9 of that at 8 kHz; 6 to 25 dB below what
    comes at once, in all. Noise is 25 to 60 dB below, with 0 to 6 dB an octave."""
    click = np.full((300, 100), -200.0)
    click[20] = 12
    power, noise = taken_apart(in_room(click, AUDIO, settled(share)), slice(0, 20))
    assert np.allclose(decibels(power[20] / power[21:].sum(0)), 6 + 19 * share, atol=1e-3)
    seconds = -60 / (FRAMES_A_SECOND * (decibels(power[26] / power[21]) / 5))
    octaves = np.interp(np.log2(HERTZ), np.log2([250, 8000]), [0, 1])
    assert np.allclose(seconds, 0.1 * 6**share * (0.4 + 0.5 * share) ** octaves, rtol=1e-3)
    direct = np.where(np.arange(300)[:, None] == 20, power, 0)
    assert below(direct, noise) == pytest.approx(25 + 35 * share, abs=1e-3)
    assert slope(noise) == pytest.approx(6.02 * share, abs=0.01)


def test_late_sound_is_as_rough_as_noise():
    """Each band about its line by what magnitudes of so many bins differ (Rayleigh's: 0.52)."""
    click, drawn = np.full((300, 100), -200.0), settled(1.0)
    click[20] = 12
    drawn.standard_normal = np.random.default_rng(0).standard_normal
    late = in_room(click, AUDIO, drawn)[21:41]  # far above the room's noise
    lines = np.polyval(np.polyfit(np.arange(20), late, 1), np.arange(20)[:, None])
    rough = np.sqrt(np.square(late - lines).sum(0) / 18) / (0.52 / np.sqrt(BINS))
    assert np.median(rough) == pytest.approx(1, abs=0.1) and 0.5 < rough.min() < rough.max() < 1.6


@pytest.mark.parametrize(("seconds", "under"), [(0.2, 8), (0.5, 12)])
def test_real_reverberation_lies_among_them(seconds, under):
    """A recording convolved with decaying noise, as the late sound of a room is (Polack, 1988)."""
    wave = read(ROOT / "nanospeech/default/voices/heart.flac")[:72_000].astype(float)
    t, rng, powers = np.arange(int(seconds * 24_000)) / 24_000, np.random.default_rng(0), []
    for _ in range(8):  # its fine structure is chance; a mel has the mean power
        late = rng.standard_normal(len(t)) * 10 ** (-3 * t / seconds)
        late *= 10 ** (-under / 20) / np.sqrt(np.sum(late**2))
        late[0] += 1
        n = len(wave) + len(late)  # by the spectrum: np.convolve takes seconds
        wet = np.fft.irfft(np.fft.rfft(wave, n) * np.fft.rfft(late, n), n)[: len(wave)]
        wet *= np.sqrt(np.mean(wave**2) / np.mean(wet**2))
        powers.append(np.exp(2 * log_mel(wet.astype(np.float32))))
    mel, real = log_mel(wave.astype(np.float32)), 0.5 * np.log(np.mean(powers, 0))
    away = [np.abs(in_room(mel, AUDIO, np.random.default_rng(i)) - real).mean() for i in range(200)]
    assert min(away) < 0.5 * np.abs(mel - real).mean()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_so_many_clips_and_pairs_are_in_a_room_prompt_and_all(share):
    dry = SpeechBatches(voices(), TOKENIZER, PLAN, AUDIO, LossConfig(pair=0.7))
    some = SpeechBatches(voices(), TOKENIZER, PLAN, AUDIO, LossConfig(pair=0.7, room=share))
    touched = []
    for (text, was), (other, row) in zip(items(dry), items(some)):
        assert text == other and row["lens"] == was["lens"]
        changed = np.abs(row["mel"] - was["mel"]).max(1)[: int(row["lens"])] > 0
        assert changed.all() or not changed.any()
        touched.append(changed.all())
    assert np.mean(touched) == pytest.approx(share, abs=0.12 if share < 1 else 0)


def test_room_is_a_chance():
    assert LossConfig().room == 0
    for bad in (-0.1, 1.1):
        with pytest.raises(InputError, match="room"):
            LossConfig(room=bad)
