"""F5 reference: recordings, texts and lengths as F5-TTS makes them for its models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.config import DiTConfig, ModelConfig
from nanospeech.release.f5_reference import (
    cut_at_silence,
    f5_frames,
    f5_reference,
    f5_text,
    first_part,
    without_edges,
)
from nanospeech.release.prompt import make_prompt
from nanospeech.text.tokenizer import Tokenizer
from tests.conftest import tone

RATE = 24_000
CONFIG = ModelConfig(rules="f5", dit=DiTConfig())
LETTERS = Tokenizer("chars", list(" abcdefghijklmnopqrstuvwxyz.,?"))


def steady(seconds: float, level: float = 0.3) -> np.ndarray:
    t = np.arange(round(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * 200 * t)).astype(np.float32)


def quiet(seconds: float, db: float = -70) -> np.ndarray:
    return steady(seconds, 2**0.5 * 10 ** (db / 20))


def test_edges_go_by_their_level_in_full_scale():
    wave = np.concatenate([quiet(0.5, -43), steady(2.0, 0.05), quiet(0.7, -43)])
    assert abs(len(without_edges(wave, RATE)) / RATE - 2.0) <= 0.02
    kept = np.concatenate([quiet(0.5, -41), steady(2.0, 0.05), quiet(0.7, -41)])
    assert len(without_edges(kept, RATE)) == len(kept)
    assert len(without_edges(quiet(1.0, -50), RATE)) > 0  # a soft recording is not lost whole


@pytest.mark.parametrize(
    ("pauses", "end"),
    [
        ({7.0: (1.2, -60), 10.0: (0.3, -60)}, 7.0),  # the long one, though a short one is later
        ({7.0: (1.2, -60), 10.0: (1.1, -60)}, 10.0),  # the last long one
        ({4.0: (1.5, -60), 8.0: (0.2, -45)}, 8.0),  # none after 6 s is long; a short one at -40 dB
        ({4.0: (1.5, -60)}, 12.0),
        ({9.0: (0.05, -60)}, 12.0),
    ],
)
def test_long_recordings_are_cut_at_a_silence(pauses, end):
    wave = steady(15.0)
    for start, (seconds, db) in pauses.items():
        wave[round(start * RATE) : round((start + seconds) * RATE)] = quiet(seconds, db)
    assert abs(cut_at_silence(wave, RATE) / RATE - end) <= 0.011
    assert cut_at_silence(wave[: 12 * RATE], RATE) == 12 * RATE


def test_the_text_of_what_is_cut_off_goes_with_it(caplog):
    wave = steady(14.0)
    wave[7 * RATE : round(8.2 * RATE)] = quiet(1.2)
    text = "one two three four five six. seven eight nine ten"
    kept, words = f5_reference(wave, text, RATE)
    assert words == "one two three four five six." and words in caplog.text
    assert abs(len(kept) / RATE - 7.05) <= 0.02
    assert not kept[-round(0.05 * RATE) :].any()


def test_a_quiet_recording_keeps_as_much_of_its_text_as_of_its_sound():
    wave = 0.01 * steady(14.0)
    kept, words = f5_reference(wave, "one two three four five six seven eight nine ten", RATE)
    assert abs(len(kept) / RATE - 12.05) <= 0.02
    assert words == "one two three four five six seven eight"


def test_a_part_of_a_text_is_cut_at_a_mark_near_it_or_after_a_word():
    assert first_part("aa bb, cc dd ee ff", 0.4) == "aa bb,"
    assert first_part("aa bb, cc dd ee ff", 0.9) == "aa bb, cc dd ee"
    assert first_part("你好，我叫张三。你好", 0.75) == "你好，我叫张三。"
    assert first_part("word", 0.1) == "word"


def test_texts_end_so_that_the_new_one_is_set_off():
    ends = {"hello": "hello.  ", "hello.": "hello.  ", "hello. ": "hello.  ", "你好。": "你好。"}
    assert {text: f5_text(text) for text in ends} == ends
    assert f5_text("really?") == "really?.  "


def test_lengths_go_by_bytes_and_short_texts_are_slow():
    # 24,000 samples hold 93 hops and have 94 frames
    assert f5_frames(94, 20, 40, 20) == 93 + 93 - 94
    assert f5_frames(94, 20, 40, 20, speed=2.0) == 93 + 46 - 94
    assert f5_frames(94, 20, 25, 9) == 93 + int(93 / 20 * 9 / 0.3) - 94
    assert f5_frames(94, 20, 25, 10) == 93 + int(93 / 20 * 10) - 94
    assert f5_frames(23, 10, 19, 0) == 1  # at least a frame after the prompt
    assert f5_frames(23, 40, 60, 20) == 61 - 23  # and more frames than tokens


def test_a_prompt_is_levelled_and_has_the_facts_of_its_length():
    wave = np.concatenate([np.zeros(RATE // 2, np.float32), tone(2.0) * 0.05])
    prompt = make_prompt(wave, "one two", CONFIG, LETTERS)
    whole = without_edges(wave, RATE)
    samples = len(whole) + round(0.05 * RATE)
    assert len(prompt.mel) == samples // 256 + 1
    padded = np.pad(whole, (0, round(0.05 * RATE)))
    assert prompt.gain == pytest.approx(0.1 / audio.rms(padded), rel=1e-3)
    assert prompt.text_bytes == len("one two.  ")
    assert "".join(LETTERS.vocab[i] for i in prompt.tokens) == "one two.  "
    loud = make_prompt(2 * tone(2.0), "one two", CONFIG, LETTERS)
    assert loud.gain == 1.0
    other = make_prompt(
        2 * tone(2.0), "one two", dataclasses.replace(CONFIG, rules="nanospeech"), LETTERS
    )
    assert len(other.mel) != len(loud.mel)  # which keeps other edges
