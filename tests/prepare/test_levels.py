"""Levels: those of the log mels of all clips together, and of the median clip's loudness."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.commands.prepare import main
from nanospeech.corpus.layouts import find
from nanospeech.errors import DataError
from nanospeech.prepare.levels import levels

RATE = audio.SAMPLE_RATE


@pytest.fixture
def clips(tmp_path):
    """Clips of three lengths and levels, within silence, and one that cannot be read."""
    rng = np.random.default_rng(0)
    for i, (seconds, level) in enumerate(((0.3, 0.02), (0.5, 0.05), (0.9, 0.2))):
        wave = np.pad(rng.normal(0, level, int(seconds * RATE)), RATE // 4)
        sf.write(tmp_path / f"{i}.wav", wave, RATE, subtype="FLOAT")
        (tmp_path / f"{i}.txt").write_text("some words", "utf-8")
    (tmp_path / "3.wav").write_bytes(b"no audio")
    (tmp_path / "3.txt").write_text("some words", "utf-8")
    return tmp_path


def test_they_are_those_of_all_frames_and_of_the_median_clip(clips, capsys):
    waves = [audio.read(clips / f"{i}.wav") for i in range(3)]
    mels = np.concatenate([log_mel(wave) for wave in waves])
    found = levels(find([clips])[0])
    assert found["mel_mean"] == pytest.approx(mels.mean(), rel=0.01)
    assert found["mel_std"] == pytest.approx(mels.std(), rel=0.01)
    assert found["prompt_rms"] == pytest.approx(audio.rms(audio.trim(waves[1])), rel=0.01)
    assert main(["levels", str(clips), "--out", str(clips / "line")]) == 0
    line = " ".join(f"audio.{name}={value}" for name, value in found.items())
    assert capsys.readouterr().out == (clips / "line").read_text("utf-8") == line + "\n"


def test_some_clips_are_drawn_alike_and_none_is_an_error(clips):
    samples = find([clips])[0]
    assert levels(samples, 2, seed=1) == levels(samples, 2, seed=1)
    assert len({levels(samples[:3], 1, seed)["prompt_rms"] for seed in range(9)}) == 3
    with pytest.raises(DataError, match="none of 1 clips can be read"):
        levels(samples[3:])
