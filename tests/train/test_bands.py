"""Bands: prompts whose top is missing, as of other sample rates, before speech that has it."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.audio.mel import log_mel, to_hertz, to_mels
from nanospeech.config import AudioConfig
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.heard import narrowed
from nanospeech_torch.train.data.speech import SpeechBatches
from tests.train.test_golden_pairs import TOKENIZER, items
from tests.train.test_spoiled import (
    PLAN,
    below,
    decibels,
    settled,
    slope,
    taken_apart,
    tones,
    voices,
)

AUDIO = AudioConfig()
HERTZ = to_hertz(np.linspace(0, to_mels(12_000), 102)[1:-1])


def white(seconds: float = 1.0) -> np.ndarray:
    wave = 0.05 * np.random.default_rng(1).standard_normal(int(seconds * 24_000))
    return wave.astype(np.float32)


def test_a_band_ends_at_9_to_11_kilohertz_and_is_whole_below():
    mel, ends = log_mel(white()), []
    for seed in range(80):
        cut = narrowed(mel, AUDIO, np.random.default_rng(seed))
        assert cut.shape == mel.shape and cut.dtype == mel.dtype
        assert np.abs(cut - mel)[:, HERTZ < 8800].max() < 0.02
        assert cut.min() >= np.log(1e-5) - 1e-3 and np.isfinite(cut).all()
        gone = (mel - cut).mean(0) > 1  # nat
        ends.append(HERTZ[gone].min(initial=12_000))
    assert 9000 < min(ends) < 9400 and 11_300 < max(ends) <= 12_000
    again = narrowed(mel, AUDIO, np.random.default_rng(3))
    assert np.array_equal(again, narrowed(mel, AUDIO, np.random.default_rng(3)))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_band_falls_off_as_steeply_as_is_said_down_to_a_floor(share):
    """By 200 to 1,500 dB an octave beyond 9 to 11.4 kHz; the floor is 60 to 110 dB below."""
    mel, quiet = np.full((40, 100), 12.0), slice(30, 40)
    mel[quiet] = -200
    speech, noise = taken_apart(narrowed(mel, AUDIO, settled(share)), quiet)
    lost = decibels(np.exp(24) / np.maximum(speech[0], 1e-30))
    beyond = np.log2(HERTZ / (9000 + 2400 * share))
    wanted = (200 + 1300 * share) * np.maximum(beyond, 0)
    clear = wanted < 60
    assert np.allclose(lost[clear], wanted[clear], atol=1e-3) and lost[~clear].min(initial=60) > 59
    assert slope(noise) == pytest.approx(0, abs=1e-6)
    dry = np.where(mel > 0, np.exp(2 * mel), 0)
    assert below(dry, noise) == pytest.approx(60 + 50 * share, abs=1e-3)


def test_a_recording_that_was_cut_lies_among_them():
    wave = tones() + 0.02 * white(2.0)
    mel = log_mel(wave)
    for hertz in (9500, 10_500):
        spectrum = np.fft.rfft(wave)
        spectrum[int(hertz * len(wave) / 24_000) :] = 0
        real = log_mel(np.fft.irfft(spectrum, len(wave)).astype(np.float32))
        found = [narrowed(mel, AUDIO, np.random.default_rng(i)) for i in range(200)]
        away = min(np.abs(m - real).mean() for m in found)
        assert away < 0.35 * np.abs(mel - real).mean()


@pytest.mark.parametrize(("band", "spoil"), [(0.3, 0.0), (1.0, 0.0), (1.0, 0.4)])
def test_prompts_lose_their_top_and_what_follows_does_not(band, spoil):
    clean = SpeechBatches(voices(), TOKENIZER, PLAN, AUDIO, LossConfig(pair=1.0))
    loss = LossConfig(pair=1.0, band=band, spoil=spoil)
    some = SpeechBatches(voices(), TOKENIZER, PLAN, AUDIO, loss)
    pairs = cut = poor = 0
    for (text, was), (_, row) in zip(items(clean), items(some)):
        assert np.array_equal(row["mel"], was["mel"])
        heard = np.concatenate([row["heard"], row["mel"][len(row["heard"]) :]])
        away = np.abs(heard - row["mel"])
        pairs += " " in text
        if away.max() > 0:
            assert " " in text and away[row["prompt"] :].max(initial=0) == 0
            low = away[: row["prompt"], HERTZ < 8800].max() > 0.2
            cut, poor = cut + (not low), poor + low
    assert pairs > 100
    assert cut / pairs == pytest.approx(band * (1 - spoil), abs=0.12)
    assert poor / pairs == pytest.approx(spoil, abs=0.12)


def test_a_prompt_is_cut_as_it_was_made_to_sound():
    """In another voice, by another mouth and in another room, as what follows it."""
    loss = LossConfig(pair=1.0, band=1.0, warp=0.3, colour=1.0, room=0.5)
    rows = [row for _, row in items(SpeechBatches(voices(80), TOKENIZER, PLAN, AUDIO, loss))]
    for row in rows:
        prompt = row["heard"][: row["prompt"]]
        assert np.abs(prompt - row["mel"][: len(prompt)])[:, HERTZ < 8800].mean() < 0.05
    assert len(rows) == 40


def test_band_is_a_chance():
    assert LossConfig().band == 0
    for bad in (-0.1, 1.1):
        with pytest.raises(InputError, match="band"):
            LossConfig(band=bad)
