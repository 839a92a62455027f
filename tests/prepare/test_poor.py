"""Poor recordings: how much noise there is, where a band ends, and that all is of the draws."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.audio.editing import rms
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.prepare import poor

WHITE = 0.1 * np.random.default_rng(0).standard_normal(2 * SAMPLE_RATE).astype(np.float32)
HERTZ = np.fft.rfftfreq(len(WHITE), 1 / SAMPLE_RATE)


def level(wave: np.ndarray, low: float, high: float) -> float:
    """dB of the power between two frequencies, a bin."""
    power = np.abs(np.fft.rfft(wave)[(low <= HERTZ) & (high > HERTZ)]) ** 2
    return float(10 * np.log10(power.mean() + 1e-20))


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_so_far_below_speech_and_falls_with_frequency(seed):
    made = poor.noisy(WHITE, np.random.default_rng(seed)) - WHITE
    below = 20 * np.log10(rms(WHITE) / rms(made))
    assert poor.NOISE[0] <= below <= poor.NOISE[1]
    slope = (level(made, 900, 1100) - level(made, 9000, 11_000)) / 20  # of the amplitude, a decade
    assert poor.SLOPE[0] - 0.05 <= slope <= poor.SLOPE[1] + 0.05


@pytest.mark.parametrize("seed", range(8))
def test_a_narrow_band_ends_at_both_sides_and_is_as_loud(seed):
    made = poor.narrow(WHITE, np.random.default_rng(seed))
    assert made.dtype == np.float32 and rms(made) == pytest.approx(rms(WHITE), rel=1e-4)
    inside = level(made, poor.LOW[1], poor.HIGH[0])
    assert inside - level(made, 11_000, 12_000) > 0.5 * poor.STEEP[0] * np.log2(11 / 7.5)
    assert inside - level(made, 1, 12) > 0.5 * poor.STEEP[0] * np.log2(50 / 12)
    flat = [level(made, low, low + 200) for low in range(400, 2800, 200)]
    assert max(flat) - min(flat) < 2.5


def test_kinds_come_as_often_as_they_should_and_are_of_the_draws_alone():
    wave, kinds = WHITE[:2400], {"noise": 0, "narrow": 0, "both": 0}
    hertz = np.fft.rfftfreq(len(wave), 1 / SAMPLE_RATE)
    top = hertz > 11_800
    for seed in range(300):
        made = poor.poor(wave, np.random.default_rng(seed))
        again = poor.poor(wave, np.random.default_rng(seed))
        assert np.array_equal(made, again) and made.shape == wave.shape
        gone = np.abs(np.fft.rfft(made)[top]).mean() < 0.05 * np.abs(np.fft.rfft(wave)[top]).mean()
        band = (hertz > 500) & (hertz < 2600)
        share = np.fft.rfft(made)[band] / np.fft.rfft(wave)[band]
        clean = np.std(np.abs(share)) < 1e-3 * np.mean(np.abs(share))
        kinds["narrow" if clean else "both" if gone else "noise"] += 1
    for kind, share in poor.KINDS.items():
        assert kinds[kind] / 300 == pytest.approx(share, abs=0.09), kinds


def test_a_mel_is_fitted_at_its_end_alone():
    mel = np.arange(40.0).reshape(20, 2)
    assert poor.fitted(mel, 20) is not None and np.array_equal(poor.fitted(mel, 20), mel)
    assert np.array_equal(poor.fitted(mel, 20 - poor.END), mel[: 20 - poor.END])
    longer = poor.fitted(mel, 20 + poor.END)
    assert np.array_equal(longer[:20], mel) and (longer[20:] == mel[-1]).all()
    assert poor.fitted(mel, 21 + poor.END) is None and poor.fitted(mel, 19 - poor.END) is None
