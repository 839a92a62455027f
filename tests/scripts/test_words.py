"""The benchmark of word times: what it takes for the truth is where the sound begins."""

from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech.speech.chunks import Word
from scripts.benchmarks.words import Errors, sibilant_onsets, silence_ends

RATE = 24_000


def test_an_s_is_found_where_it_sets_in_and_a_silence_where_it_ends():
    t = np.arange(2 * RATE) / RATE
    wave = 0.3 * np.sin(2 * np.pi * 150 * t) + 0.1 * np.sin(2 * np.pi * 900 * t)
    hiss = np.diff(np.random.default_rng(0).standard_normal(len(t) + 1)) * 0.1
    at = (t > 0.731) & (t < 0.85)
    wave[at] = hiss[at]
    wave[(t > 1.2) & (t < 1.403)] *= 1e-4
    wave = wave.astype(np.float32)
    words = [
        Word("no", 0.3, 0.7, 0, 0),
        Word("so", 0.76, 1.0, 0, 3),  # 29 ms late
        Word("she", 1.4, 1.6, 0, 6),  # behind a pause: not one that is seen by its hiss
    ]
    found = sibilant_onsets(wave, RATE, words)
    assert list(found) == [3] and found[3] == pytest.approx(0.731, abs=0.006)
    assert silence_ends(wave, RATE) == [pytest.approx(1.403, abs=0.006)]

    spoken = SimpleNamespace(wave=wave, sample_rate=RATE, words=words)
    errors = Errors()
    errors.take(spoken, [Word(w.text, w.start - 0.1, w.end, 0, 0) for w in words], 0.07)
    assert errors["at_an_s"] == [pytest.approx(0.029, abs=0.006)]
    assert errors["whisper_at_an_s"] == [pytest.approx(-0.071, abs=0.006)]
    assert errors["after_silence"] == [pytest.approx(-0.003, abs=0.006)]
    assert errors["starts"] == [pytest.approx(0.1)] * 3
    assert errors["starts_but_the_first_whisper_moved"] == [pytest.approx(0.03)] * 2
