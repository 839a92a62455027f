"""Mel: the definition against the reference's arrays, its laws, and torch's copy of it."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.audio import mel
from nanospeech.config import AudioConfig


def above_clamp(reference):
    """Where the reference is well above silence, and rounding does not rule."""
    return reference > np.log(mel.CLAMP) + 1e-3


def test_reference_arrays(golden, arrays):
    with np.load(golden / "vocos.npz") as z:
        pairs = [(z["wave"][0], z["mel_of_wave"][0].T), (arrays["wave"][0], arrays["mel"][0])]
    for wave, reference in pairs:
        got = mel.log_mel(wave)
        assert got.shape == reference.shape and got.dtype == np.float32
        there = above_clamp(reference)
        assert there.mean() > 0.5
        assert np.abs(got - reference)[there].max() <= 1e-4


@pytest.mark.parametrize("samples", [513, 600, 767, 768, 769, 24_000, 24_001])
def test_frames(samples):
    wave = np.sin(np.arange(samples)).astype(np.float32)
    assert mel.log_mel(wave).shape == (samples // 256 + 1, 100)


def test_silence_is_the_clamp():
    assert np.allclose(mel.log_mel(np.zeros(4800, np.float32)), np.log(1e-5))


def test_a_louder_wave_is_a_higher_mel():
    wave = np.random.default_rng(0).standard_normal(4800).astype(np.float32) * 0.01
    assert np.allclose(mel.log_mel(4 * wave), mel.log_mel(wave) + np.log(4), atol=1e-4)


def test_a_pure_tone_peaks_in_its_band():
    bank = mel.filterbank(24_000, 1024, 100)
    wave = np.sin(2 * np.pi * 1500 * np.arange(12_000) / 24_000).astype(np.float32)
    assert abs(int(mel.log_mel(wave)[20].argmax()) - int(bank[1500 * 1024 // 24_000].argmax())) <= 1


def test_filters_are_triangles_over_the_whole_range():
    bank = mel.filterbank(24_000, 1024, 100)
    assert bank.shape == (513, 100) and bank.dtype == np.float32
    assert bank.min() == 0 and bank.max() <= 1
    assert (bank.sum(0) > 0).all()


def test_torch_has_the_same_mel(arrays):
    torch = pytest.importorskip("torch")
    from nanospeech_torch.mel import MelSpec

    wave = arrays["wave"]
    got = MelSpec(AudioConfig())(torch.from_numpy(wave)).numpy()
    ours = mel.log_mel(wave[0])[None]
    assert got.shape == ours.shape
    assert np.abs(got - ours)[above_clamp(ours)].max() <= 1e-4
