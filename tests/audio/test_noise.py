"""A loud, steady noise is taken out of a recording; recordings without one stay as they are."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import nanospeech
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import band_edges, log_bands, log_mel
from nanospeech.audio.narrow import SpeechMels, speech_mels
from nanospeech.audio.noise import (
    HEARD,
    HOP,
    OVER,
    OWN,
    SIZE,
    most_likely,
    noise_in,
    pauses,
    solved,
    without_noise,
)
from nanospeech.audio.recording import denoised, depth, spectra, without_rumble
from nanospeech.audio.restorer import FLOOR, restored
from nanospeech.speech.reference import finished

VOICES = Path(nanospeech.__file__).parent / "default/voices"
NAMES = sorted(p.stem for p in VOICES.glob("*.flac"))
CENTRES = band_edges(24_000, 100)[1:-1]


def recording(name: str) -> np.ndarray:
    """A voice that ships, with a moment of its room at both ends, at the level of training."""
    wave = np.pad(audio.read(VOICES / f"{name}.flac"), 4800)
    return audio.set_level(wave, 0.068)[0]


def noisy(wave: np.ndarray, below: float, power: float) -> np.ndarray:
    """The wave with noise so many dB below it, whose spectrum falls by frequency ** -power."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(len(wave)))
    hertz = np.fft.rfftfreq(len(wave), 1 / 24_000)
    noise = np.fft.irfft(spectrum * np.maximum(hertz, 50) ** -power, len(wave))
    gain = audio.rms(wave) / audio.rms(noise) * 10 ** (-below / 20)
    return (wave + gain * noise).astype(np.float32)


def found_in(wave: np.ndarray) -> np.ndarray:
    """The wave without its noise, of which there is some."""
    found = without_noise(wave, depth(wave))
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_without_noise_is_not_noisy(name):
    wave = recording(name)
    assert without_noise(wave, depth(wave)) is None


@pytest.mark.parametrize("power", [0, 0.5, 1])
@pytest.mark.parametrize("name", ["kathleen", "theo"])
def test_a_steady_noise_is_found_and_taken_out(name, power):
    wave = recording(name)
    poor = noisy(wave, 15, power)
    wanted = found_in(poor)
    clean, *mels = map(log_mel, (wave, denoised(poor, 24_000), wanted))
    loud = clean.max(1) > clean.max() - 6  # frames of speech
    before, after = (np.abs(m - clean)[loud].mean() for m in mels)
    assert after < 0.85 * before
    before, after = (np.abs(m.mean(0) - clean.mean(0)).mean() for m in mels)
    assert after < before


def test_a_network_corrects_what_is_most_likely_by_what_is_heard_around():
    """By a fifth of its error, in noises of three colours."""
    wave, speech, errors = recording("kathleen"), speech_mels(), []
    for power in (0, 0.5, 1):
        poor = noisy(wave, 15, power)
        shift = np.log(audio.rms(poor) / speech.rms)
        heard, clean = (log_bands(np.abs(spectra(x, SIZE, HOP))) - shift for x in (poor, wave))
        noise = noise_in(heard)
        likely = most_likely(heard, noise + np.log(OVER), speech)
        found = restored(heard, likely, noise, speech.mean)
        assert (found <= heard).all()
        floored = [np.maximum(mel, FLOOR) for mel in (clean, likely, found)]
        errors.append([np.abs(mel - floored[0]).mean() for mel in floored[1:]])
    before, after = np.mean(errors, 0)
    assert after < 0.8 * before


@pytest.mark.parametrize("power", [0, 1])
def test_a_hiss_far_below_speech_is_left(power):
    wave = noisy(recording("kathleen"), 35, power)
    assert without_noise(wave, depth(wave)) is None


def test_other_people_are_no_noise():
    """They are as loud as a noise, but what is heard of them in one's pauses changes."""
    waves = [recording(name)[4800:-4800] for name in NAMES[3:6]]
    wave = np.sum([w[: min(map(len, waves))] for w in waves], axis=0)
    assert 8 < depth(wave) < 28 and without_noise(wave, depth(wave)) is None


@pytest.mark.parametrize("how", ["silence", "noise", "tone", "short"])
def test_what_has_no_speech_in_it_is_not_noisy(how):
    time = np.arange(48_000) / 24_000
    waves = {
        "silence": np.zeros(48_000),
        "noise": 0.1 * np.random.default_rng(0).standard_normal(48_000),
        "tone": 0.1 * np.sin(2 * np.pi * 200 * time),
        "short": noisy(recording("michael"), 15, 0.5)[24_000:32_000],
    }
    wave = waves[how].astype(np.float32)
    assert without_noise(wave, depth(wave)) is None


def test_users_recordings_are_cleaned_by_it():
    poor = without_rumble(noisy(recording("michael"), 15, 0.5))
    notes: list[str] = []
    wave = finished(poor, notes)
    wanted = found_in(poor)
    gain = audio.rms(wave) / audio.rms(audio.trim(wanted, keep_seconds=0.1))
    assert np.allclose(wave, gain * audio.trim(wanted, keep_seconds=0.1), atol=1e-5)
    (note,) = notes
    before, after = depth(poor), depth(wanted)
    assert (
        note
        == f"its hiss was {before:.0f} dB below speech, and was lowered by {after - before:.0f} dB"
    )


def test_a_noisy_recording_is_measured_once():
    poor, calls = without_rumble(noisy(recording("michael"), 15, 0.5)), Counter()

    def count(frame, event, _):
        if event == "call" and frame.f_code in (depth.__code__, spectra.__code__):
            calls[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        finished(poor, [])
    finally:
        sys.setprofile(None)
    assert calls == {"spectra": 1, "depth": 2}  # its depth, and that of what came of it


def test_the_level_of_a_recording_does_not_matter():
    poor = noisy(recording("theo"), 15, 0.5)
    wanted = found_in(poor)
    for gain in (0.1, 4.0):
        found = found_in((gain * poor).astype(np.float32)) / gain
        assert audio.rms(found - wanted) < 1e-4 * audio.rms(wanted)


@pytest.mark.parametrize("hertz", [1000, 3000, 6000])
def test_a_noise_of_few_frequencies_is_taken_out_where_it_is(hertz):
    """To a third of a mel band: before the voice begins there is nothing else."""
    wave, rng = np.pad(recording("kathleen"), 9600), np.random.default_rng(0)
    spectrum, all_hertz = np.fft.rfft(rng.standard_normal(len(wave))), np.fft.rfftfreq(len(wave))
    spectrum *= np.abs(24_000 * all_hertz - hertz) < hertz / 20
    noise = np.fft.irfft(spectrum, len(wave))
    noise *= audio.rms(wave) / audio.rms(noise) / 3
    poor = (wave + noise + 1e-3 * rng.standard_normal(len(wave))).astype(np.float32)
    window = np.hanning(4000)
    powers = [np.abs(np.fft.rfft(x[:4000] * window)) ** 2 for x in (poor, found_in(poor))]
    before, after = (np.convolve(power, np.ones(21), "same") for power in powers)
    found = np.fft.rfftfreq(4000, 1 / 24_000)
    loss = np.where(np.abs(found - hertz) < 600 + hertz / 5, np.log(before / after), 0)
    taken = np.maximum(loss - (np.median(loss[loss > 0]) + loss.max()) / 2, 0)  # half its height
    band = np.diff(CENTRES)[np.searchsorted(CENTRES, hertz)]
    assert abs((found * taken).sum() / taken.sum() - hertz) < band / 3


def test_pauses_are_the_frames_of_least_power_behind_the_padding():
    """A loud band is not outweighed by bands that are empty, and silence around it is no pause."""
    rng = np.random.default_rng(0)
    mel = rng.uniform(-1, 0, (108, 4))
    mel[:4] = mel[-8:] = -11  # windows of 1024 samples, 256 apart, begin and end in padding
    quiet = np.arange(20, 32)  # 12 of 96
    mel[quiet] -= 2
    mel[50:70, 1:] = -11
    assert np.array_equal(pauses(mel), mel[quiet])


def linear(rng: np.random.Generator, bands: int) -> SpeechMels:
    root = rng.normal(size=(bands, bands))
    mean = rng.normal(size=bands)
    return SpeechMels(mean, root @ root.T, mean + 1, 0.068)


def test_without_noise_what_is_heard_is_smoothed_by_the_prior_alone():
    """y = x + error: the mean of a Gaussian given an observation (Bishop 2006, equation 2.116)."""
    rng = np.random.default_rng(0)
    speech = linear(rng, 5)
    heard = speech.mean + rng.normal(size=(3, 5))
    prior = speech.covariance + OWN * np.eye(5)
    gain = prior @ np.linalg.inv(prior + HEARD * np.eye(5))
    wanted = speech.mean + (heard - speech.mean) @ gain.T
    found = most_likely(heard, np.full(5, -30.0), speech)
    assert np.allclose(found, np.minimum(wanted, heard), atol=2e-3)


def test_of_what_is_heard_in_noise_the_most_probable_speech_is_found():
    """Where the log posterior of x is level; x is normal, and so is y given x."""
    off = []
    for rng in map(np.random.default_rng, range(8)):
        speech = linear(rng, 4)
        prior = speech.covariance + OWN * np.eye(4)
        noise = speech.mean + rng.normal(size=4)
        spoken = speech.mean + rng.normal(size=(5, 4)) @ np.linalg.cholesky(prior).T
        heard = np.logaddexp(2 * spoken, 2 * noise) / 2 + HEARD**0.5 * rng.normal(size=(5, 4))
        x, inverse = np.repeat(speech.mean[None], 5, 0), np.linalg.inv(prior)
        for _ in range(2000):  # small steps of Gauss and Newton
            share = 1 / (1 + np.exp(2 * (noise - x)))
            error = heard - np.logaddexp(2 * x, 2 * noise) / 2
            slope = share * error / HEARD - (x - speech.mean) @ inverse
            curve = inverse + share[:, :, None] * share[:, None] * np.eye(4) / HEARD
            x += 0.03 * np.linalg.solve(curve, slope[..., None])[..., 0]
        found = most_likely(heard, noise, speech)
        off += np.abs(found - np.minimum(x, heard)).max(1).tolist()
    assert np.median(off) < 0.008


def test_equations_of_all_frames_are_solved_as_each_is_alone():
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((40, 100))
    prior = factor.T @ factor + 0.05 * np.eye(100)
    slope, right, start = rng.random((7, 100)), rng.standard_normal((7, 100)), np.ones((7, 100))
    slope[5], right[6] = 0, 0  # nothing but noise; nothing to do
    found = solved(prior, slope, right, start)
    for s, r, w in zip(slope, right, found):
        wanted = np.linalg.solve(s[:, None] * prior * s + HEARD * np.eye(100), r)
        assert np.allclose(w, wanted, atol=3e-4 * max(1, np.abs(wanted).max()))
    assert np.allclose(solved(prior, slope[:1], right[:1], start[:1]), found[:1], atol=1e-3)
    assert solved(prior, slope, right, found) is found  # where it is right already


def test_what_lies_under_the_noise_is_told_by_what_lies_above_it():
    """Of two bands that go together, the second is drowned: it gets its mean given the first."""
    speech = SpeechMels(np.zeros(2), np.array([[4.0, 3.6], [3.6, 4.0]]), np.ones(2), 0.068)
    noise = np.array([-9.0, 4.0])
    for first in (-2.0, 0.0, 2.0):
        heard = np.array([[first, np.logaddexp(2 * 0.9 * first, 2 * 4.0) / 2]])
        (x, y) = most_likely(heard, noise, speech)[0]
        assert x == pytest.approx(first, abs=0.1)
        assert y == pytest.approx(0.9 * first, abs=0.25)
