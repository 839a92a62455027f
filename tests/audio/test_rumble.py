"""What lies below all voices is taken out of a recording; one without it stays as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nanospeech
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.recording import RUMBLES, above_rumble, fast, rumble, without_rumble
from nanospeech.evaluate.prompts import degraded
from nanospeech.speech import reference
from nanospeech.speech.reference import EDGE, finished, sounding

VOICES = Path(nanospeech.__file__).parent / "default/voices"
TIME = np.arange(48_000) / 24_000


def tone(hertz: float, loud: float = 0.1) -> np.ndarray:
    return (loud * np.sin(2 * np.pi * hertz * TIME)).astype(np.float32)


@pytest.mark.parametrize("below", [6, 20, 40])
def test_rumble_is_told_in_db_of_all(below):
    wave = np.hanning(len(TIME)) * (tone(200) + tone(30, 0.1 * 10 ** (-below / 20)))
    assert rumble(wave) == pytest.approx(-10 * np.log10(1 + 10 ** (below / 10)), abs=0.1)


def test_at_any_rate_it_is_the_same():
    time = np.arange(16_000) / 8000
    wave = np.sin(2 * np.pi * 200 * time) + 0.1 * np.sin(2 * np.pi * 40 * time)
    assert rumble(wave, 8000) == pytest.approx(-20, abs=0.1)
    assert audio.rms(without_rumble(wave, 8000)[800:-800]) == pytest.approx(0.7071, abs=0.003)


@pytest.mark.parametrize("wave", [np.zeros(2400), np.zeros(0)])
def test_silence_has_none(wave):
    assert rumble(wave.astype(np.float32)) == -np.inf


def test_no_voice_is_softer_without_it():
    """Men speak at 70 Hz and above."""
    wave = tone(90)
    kept = without_rumble(wave)
    assert kept.shape == wave.shape and kept.dtype == np.float32
    assert np.abs(kept - wave)[4800:-4800].max() < 0.01 * 0.1  # its phase is as it was, too
    for hertz, loud in ((70, 0.99), (55, 0.707), (42, 0.115), (20, 0.0)):
        found = audio.rms(without_rumble(tone(hertz))[9600:-9600]) / audio.rms(tone(hertz))
        assert found == pytest.approx(loud, abs=0.02), hertz


def test_the_end_of_a_recording_does_not_reach_its_beginning():
    wave = np.zeros(24_000, np.float32)
    wave[-1] = 0.5
    assert np.abs(without_rumble(wave)[:2400]).max() < 1e-5


@pytest.mark.parametrize("lead", [0.0, 0.7])
def test_a_hum_neither_begins_nor_ends_with_a_thud(lead):
    """Where it was in full swing at both ends, silence is left, which is cut off."""
    hum = (0.05 * np.sin(2 * np.pi * 30 * TIME + lead)).astype(np.float32)
    assert np.abs(without_rumble(hum)).max() < 0.1 * 0.05
    found, seconds = sounding(hum + np.pad(tone(200, 0.5)[:24_000], 12_000))
    assert len(found) == pytest.approx(24_000 * (1 + 2 * EDGE), abs=1200)
    assert seconds == pytest.approx(1, abs=0.05)


def test_a_transform_is_of_a_fast_length():
    """One of a long recording whose length is a prime took half a minute."""
    for size in (*range(300), 14_399_999, 14_400_007):
        found = fast(size)
        assert size <= found <= size * 9 / 8
        while found and found % 2 == 0:
            found //= 2
        assert found <= 15


def test_a_recording_of_a_few_samples_stays_of_that_length():
    for count in (0, 1, 2, 240):
        assert without_rumble(tone(30)[:count]).shape == (count,)


@pytest.mark.parametrize("below, kept", [(24, False), (26, True)])
def test_it_is_left_where_it_is_little(below, kept):
    wave = tone(200) + tone(30, 0.1 * 10 ** (-below / 20))
    assert (above_rumble(wave) is wave) is kept
    assert above_rumble(wave, -30) is not wave and above_rumble(wave, 0) is wave


def levelled(name: str) -> np.ndarray:
    return audio.set_level(audio.read(VOICES / f"{name}.flac"), 0.068)[0]


@pytest.mark.parametrize("name", ["michael", "heart", "paula"])
def test_a_recording_is_prepared_as_if_it_had_none(name):
    """It is inaudible, but the lowest bands of the mel are 2 nats louder by it."""
    clean = levelled(name)
    notes: list[str] = []
    found = finished(degraded(clean, "rumble"), notes)
    assert notes[0] == "its rumble was 14 dB below the rest, and was taken out"
    wanted = finished(clean, [])
    low = [log_mel(wave)[:, :2].mean() for wave in (wanted, found, degraded(clean, "rumble"))]
    assert low[2] > low[0] + 1.5 and low[1] - low[0] < 0.4 * (low[2] - low[0])
    near = min(len(found), len(wanted))
    inner = np.abs(log_mel(found)[:near] - log_mel(wanted)[:near])[:, 3:]
    assert np.median(inner) < 0.05


def test_a_recording_with_rumble_is_not_noisy(tmp_path):
    path = tmp_path / "anna.wav"
    audio.write(path, degraded(levelled("heart"), "rumble"))
    notes = reference.read_reference(path, "Hello there.", None).notes
    assert any("rumble" in note for note in notes) and not any("noisy" in n for n in notes)


def test_one_with_as_little_as_usual_is_kept_to_the_sample(monkeypatch):
    clean = levelled("heart")
    notes: list[str] = []
    found = finished(clean, notes)
    assert rumble(clean) < RUMBLES and not any("rumble" in note for note in notes)
    monkeypatch.setattr(reference, "above_rumble", lambda wave: wave)
    assert np.array_equal(found, finished(clean, []))


def test_a_steady_noise_is_denoised_with_its_rumble(monkeypatch):
    """A fifth of pink noise is as low, and without it the rest was less well known."""
    poor = degraded(levelled("michael"), "noise")
    assert rumble(poor) > RUMBLES
    found = finished(poor, [])
    monkeypatch.setattr(reference, "above_rumble", lambda wave: wave)
    assert np.array_equal(found, finished(poor, []))
