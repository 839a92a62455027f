"""Speakers made of speakers: factors stay a speaker's, pitch and formants move by them."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.corpus.layouts import find
from nanospeech.errors import BackendError
from scripts.recipes import revoice as virtual
from scripts.recipes.revoice import Factors, draw_factors, main, plan, stretch

SHARD = Path(__file__).parents[1] / "fixtures/speech-000000.tar"


def vowel(pitch: float, seconds: float = 1.0) -> np.ndarray:
    """Pulses through a resonance at 1,000 Hz."""
    from scipy.signal import lfilter

    x = np.zeros(int(seconds * SAMPLE_RATE))
    x[:: round(SAMPLE_RATE / pitch)] = 1.0
    angle, radius = 2 * np.pi * 1000 / SAMPLE_RATE, 0.98
    y = lfilter([1.0], [1.0, -2 * radius * np.cos(angle), radius**2], x)
    return (0.3 * y / np.abs(y).max()).astype(np.float32)


def test_a_spectrum_is_read_at_other_places():
    rows = np.array([[0.0, 1.0, 2.0, 3.0]])
    assert stretch(rows, np.array([0.0, 0.5, 2.5, 9.0])).tolist() == [[0.0, 0.5, 2.5, 3.0]]


def test_factors_are_a_function_of_seed_and_number_and_far_from_one():
    drawn = [draw_factors(3, n) for n in range(300)]
    assert drawn[7] == draw_factors(3, 7) != draw_factors(4, 7)
    formants = np.log([f.formants for f in drawn])
    assert (np.abs(formants) >= 0.05).all() and (np.abs(formants) <= virtual.FORMANTS).all()
    assert 0.4 < np.mean(formants > 0) < 0.6
    pitches = np.log([f.pitch for f in drawn])
    assert np.corrcoef(formants, pitches)[0, 1] > 0.8  # shorter tracts have higher voices
    assert np.std(pitches - 2.2 * formants) == pytest.approx(0.12, abs=0.02)


def test_clips_of_one_person_are_shared_out_among_virtual_speakers():
    samples = find([SHARD])[0]
    items = list(plan(samples, 2, seed=1))
    assert sorted(s.key for s, _, _ in items) == sorted(s.key for s in samples)
    speakers = {}
    for sample, number, name in items:
        assert name.startswith(f"{sample.speaker}-v1-")
        assert speakers.setdefault(number, name) == name
    assert len(set(speakers.values())) == len(speakers)
    assert items == list(plan(samples, 2, seed=1)) != list(plan(samples, 2, seed=2))


def test_without_the_vocoder_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyworld", None)
    with pytest.raises(BackendError, match="pip install pyworld-prebuilt"):
        virtual.revoice(vowel(120.0), draw_factors(0, 0))


def test_pitch_and_formants_move_and_length_and_level_stay():
    world = pytest.importorskip("pyworld")
    wave = vowel(120.0)
    made = virtual.revoice(wave, Factors(formants=1.15, pitch=1.25, noise=1.0))
    assert made.dtype == np.float32 and len(made) == len(wave)
    assert np.sqrt(np.mean(made**2) / np.mean(wave**2)) == pytest.approx(1, abs=0.02)

    def measured(x):
        f0, times = world.dio(x.astype(float), SAMPLE_RATE)
        f0 = world.stonemask(x.astype(float), f0, times, SAMPLE_RATE)
        envelope = world.cheaptrick(x.astype(float), f0, times, SAMPLE_RATE)[50:-50].mean(0)
        return np.median(f0[f0 > 0]), envelope.argmax() * SAMPLE_RATE / 1024

    pitch, formant = measured(wave)
    assert measured(made)[0] / pitch == pytest.approx(1.25, abs=0.02)
    # at the same pitch: an envelope is estimated from the harmonics that there are
    moved = measured(virtual.revoice(wave, Factors(1.15, 1.0, 1.0)))
    assert moved[0] == pytest.approx(pitch, rel=0.02)
    assert moved[1] / formant == pytest.approx(1.15, abs=0.05)
    # a pitch that nobody speaks at is not made: 120 Hz times 4
    high = virtual.revoice(wave, Factors(1.0, 4.0, 1.0))
    assert measured(high)[0] == pytest.approx(virtual.PITCHES[1], rel=0.02)


def test_shards_are_made_once_and_read_as_any_others(tmp_path, capsys):
    pytest.importorskip("pyworld")
    flags = [str(SHARD), "--out", str(tmp_path), "--per-speaker", "2", "--jobs", "1"]
    assert main([*flags, "--per-shard", "4"]) == 0
    originals = {s.key: s for s in find([SHARD])[0]}
    made = find(sorted(tmp_path.glob("*.tar")))[0]
    assert len(made) == len(originals) and f"{len(made)} clips made now" in capsys.readouterr().out
    for sample in made:
        original = originals[sample.key.removesuffix("-v0")]
        assert sample.text == original.text and sample.speaker.startswith(original.speaker + "-v0-")
        assert sample.extra.get("license") == original.extra.get("license")
    first = sorted(tmp_path.glob("*.tar"))[0]
    with tarfile.open(first) as tar:
        meta = [json.load(tar.extractfile(m)) for m in tar if m.name.endswith(".json")]
    assert all(m["duration"] > 0.8 for m in meta)
    before = first.stat().st_mtime_ns
    assert main([*flags, "--per-shard", "4"]) == 0
    assert first.stat().st_mtime_ns == before
    # of other recordings a name would be another voice's, or one of those to be left out
    assert main([*flags, "--per-shard", "4", "--per-speaker", "3"]) == 2
    assert "were made of other recordings, per_speaker: remove" in capsys.readouterr().err
    assert main([*flags, "--without", "nobody"]) == 2
    assert "no recordings of nobody" in capsys.readouterr().err
    assert main([*flags, "--without", *{s.speaker for s in originals.values()}]) != 0
    assert "no recordings are left" in capsys.readouterr().err
