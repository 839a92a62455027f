"""A narrow recording gets the bands that it lacks from those that it has; a full one is kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import nanospeech
from nanospeech import InputError
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import band_edges, log_mel
from nanospeech.audio.narrow import REACH, SpeechMels, lacking, widened
from nanospeech.config import AudioConfig, ModelConfig
from nanospeech.release.prompt import make_prompt
from nanospeech.speech.latents import any_prompt
from nanospeech.text.tokenizer import Tokenizer

VOICES = Path(nanospeech.__file__).parent / "default/voices"
PUCK = Path(__file__).parents[1] / "fixtures/puck.flac"
CENTRES = band_edges(24_000, 100)[1:-1]
RMS = 0.068


def recording(name: str, below: float = 12_000, above: float = 0) -> np.ndarray:
    """A voice that ships or the fixture puck, with frequencies between the two in Hz alone."""
    wave = audio.read(PUCK if name == "puck" else VOICES / f"{name}.flac")
    spectrum, hertz = np.fft.rfft(wave), np.fft.rfftfreq(len(wave), 1 / 24_000)
    wave = np.fft.irfft(spectrum * ((hertz < below) & (hertz >= above)), len(wave))
    return audio.set_level(wave.astype(np.float32), RMS)[0]


@pytest.mark.parametrize("name", ["kathleen", "darshan", "michael", "bella", "paula"])
def test_a_full_recording_is_kept_as_it_is(name):
    mel = log_mel(recording(name))
    assert widened(mel, RMS) is mel


@pytest.mark.parametrize(("below", "above"), [(8000, 0), (7000, 0), (4000, 0), (3400, 300)])
@pytest.mark.parametrize("name", ["puck", "paula"])
def test_a_narrow_recording_comes_near_to_the_full_one(name, below, above):
    full, narrow = recording(name), recording(name, below, above)
    gone = [c < 0.8 * above or below < c < 11_000 for c in CENTRES]
    there = [1.2 * above < c < 0.85 * below for c in CENTRES]
    mel, wide = log_mel(narrow), widened(log_mel(narrow), RMS)
    assert np.array_equal(wide[:, there], mel[:, there])
    loud = log_mel(full)[:, there].mean(1) > -1  # frames of speech
    away = np.abs(wide - log_mel(full))[loud][:, gone].mean()
    assert away < 1.6 < 4 < np.abs(mel - log_mel(full))[loud][:, gone].mean()


def test_what_is_lacking_does_not_hang_on_the_level():
    narrow = recording("puck", 7000)
    loud, soft = (log_mel(g * narrow) for g in (1.0, 0.5))
    above = widened(loud, RMS) > -5  # what is softer is cut at log_mel's floor
    assert np.abs(widened(soft, 0.5 * RMS) - widened(loud, RMS) - np.log(0.5))[above].max() < 0.2


def test_bands_have_their_conditional_mean():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(30, 30)) / 6
    covariance, mean = mixing @ mixing.T + 0.2 * np.eye(30), rng.normal(size=30)
    speech = SpeechMels(mean, covariance, mean + 2, 0.1)
    mel = rng.multivariate_normal(mean, covariance, 400)
    mel[:, 25:] = -11
    gone, kept = np.arange(25, 30), np.arange(25)
    inverse = np.linalg.inv(covariance[:25, :25] + 0.05 * np.eye(25))
    weights = covariance[25:, :25] @ inverse
    expected = [mean[gone] + weights @ (row[kept] - mean[kept]) for row in mel]
    found = widened(mel.astype(np.float32), 0.1, speech)
    assert np.allclose(found[:, gone], expected, atol=1e-4)


ENDS = int(np.searchsorted(band_edges(24_000, 100), REACH))  # the first band that lies above it


@pytest.mark.parametrize(
    ("soft", "gone"),
    [
        ({0: 4.5, 1: 2.6}, range(2)),  # the slope beside an empty band goes with it
        ({0: 4.5, 1: 2.4}, range(1)),
        ({0: 3.5, 1: 3.5}, ()),  # a voice without lows
        ({1: 9.0}, ()),  # a hole
        ({95: 6.5, 94: 2.6} | dict.fromkeys(range(96, 98), 3.0), ()),  # above what is asked for
        (dict.fromkeys(range(60, 98), 5.5), ()),  # a voice without highs
        (dict.fromkeys(range(61, 98), 6.5) | {60: 2.6}, range(60, 100)),
        (dict.fromkeys(range(61, 98), 6.5) | {60: 2.4}, range(61, 100)),
        (dict.fromkeys(range(ENDS, 98), 9.0), ()),
        (dict.fromkeys(range(ENDS - 1, 98), 9.0), range(ENDS - 1, 100)),
    ],
)
def test_bands_are_lacking_from_where_a_recording_ends(soft, gone):
    """By its loud moments alone; the last two bands are empty in any recording of speech."""
    loud = np.r_[np.full(98, -2.0), -3.0, -6.0]
    speech = SpeechMels(np.zeros(100), np.eye(100), loud, RMS)
    mel = np.full((100, 100), -11.0)
    mel[90:] = loud  # a tenth of the frames
    for band, below in soft.items():
        mel[90:, band] -= below
    assert np.flatnonzero(lacking(mel, speech)).tolist() == list(gone)


def test_what_is_given_stays_and_nothing_is_below_the_floor():
    loud = log_mel(recording("puck", 7000))
    quiet = np.maximum(loud - 4, np.log(1e-5)).astype(np.float32)
    before = quiet.copy()
    wide = widened(quiet, RMS * np.exp(-4))
    assert np.array_equal(quiet, before) and not np.array_equal(wide, before)
    assert wide.dtype == np.float32 and wide.min() >= np.float32(np.log(1e-5))


def test_a_recording_that_reaches_9_khz_is_kept_as_it_is():
    mel = log_mel(recording("puck", 8800))
    assert widened(mel, RMS) is mel


def test_too_little_is_not_guessed_from():
    mel = log_mel(recording("puck", 500))
    assert widened(mel, RMS) is mel


def test_a_hole_inside_is_no_end():
    mel = log_mel(recording("puck"))
    mel[:, 40:50] = -11
    assert widened(mel, RMS) is mel


def test_prompts_are_widened_where_the_model_asks_for_it():
    letters = Tokenizer("chars", [*" .abcdefghijklmnopqrstuvwxyz"])
    plain = ModelConfig(audio=AudioConfig(prompt_rms=RMS))
    text, narrow = "some words that are said in so many seconds", recording("puck", 7000)
    as_it_is, wide = (
        make_prompt(narrow, text, config, letters).mel
        for config in (plain, dataclasses.replace(plain, prompt_widen=True))
    )
    assert as_it_is[:, 90].max() < -6 and np.percentile(wide[:, 90], 95) > -2
    assert np.array_equal(as_it_is[:, :80], wide[:, :80])


def test_recordings_of_training_stay_as_they_are():
    letters = Tokenizer("chars", [*" .abcdefghijklmnopqrstuvwxyz"])
    config = ModelConfig(audio=AudioConfig(prompt_rms=RMS), prompt_widen=True)
    engine = SimpleNamespace(config=config, tokenizer=letters)
    text, narrow = "some words that are said in so many seconds", recording("puck", 7000)
    own, other = (any_prompt(engine, narrow, text, trained).mel for trained in (True, False))
    assert own[:, 90].max() < -6 < other[:, 90].max()


def test_what_ships_widens():
    assert ModelConfig.load(VOICES.parent / "imitator/config.json").prompt_widen
    assert not ModelConfig().prompt_widen


def test_other_mels_cannot_be_widened():
    with pytest.raises(InputError, match="prompt_widen is for 100 bands"):
        ModelConfig(prompt_widen=True, audio=AudioConfig(n_mels=80))
