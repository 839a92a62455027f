"""Prompts: a recording and its words as a model is given them."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.config import DiTConfig, ModelConfig
from nanospeech.errors import InputError
from nanospeech.release.prompt import Prompt, make_prompt
from nanospeech.text.tokenizer import Tokenizer
from tests.conftest import tone

RATE = 24_000
LETTERS = Tokenizer("chars", list(" abcdefghijklmnopqrstuvwxyzé0123456789.,?!'"))


def prompt(text: str, seconds: float = 3.0, silence: float = 0.0, patch: int = 4) -> Prompt:
    wave = np.pad(tone(seconds), int(silence * RATE))
    return make_prompt(wave, text, ModelConfig(dit=DiTConfig(patch_size=patch)), LETTERS)


@pytest.mark.parametrize(
    "text, end",
    [("one two", ". "), ("call 911", ". "), ("one two.", " "), ("really?", " "), ("café", ". ")],
)
def test_its_words_end_so_that_the_new_text_is_set_off(text, end):
    """Openly ending ones would run on into it."""
    found = prompt(text)
    assert "".join(LETTERS.vocab[i] for i in found.tokens) == text + end


def test_it_is_whole_patches_of_sound_with_one_short_tail():
    wanted = [len(prompt("one two", seconds, patch=1).mel) for seconds in (2.0, 2.01, 2.02, 2.03)]
    for seconds, frames in zip((2.0, 2.01, 2.02, 2.03), wanted):
        assert len(prompt("one two", seconds).mel) == frames // 4 * 4
    silent = prompt("one two", 2.0, silence=0.7)
    assert len(silent.mel) == pytest.approx(len(prompt("one two", 2.0).mel), abs=8)


def test_its_pace_is_bytes_a_second_within_what_people_speak(caplog):
    assert prompt("éééé eeee éééé", 2.0).rate == pytest.approx(23 / 2, rel=0.02)
    assert not caplog.records
    assert prompt("a", 8.0).rate > 1 and "does not go with" in caplog.text


def test_what_cannot_be_a_prompt_is_told():
    with pytest.raises(InputError, match=r"holds 0\.\d\d s of sound"):
        prompt("one", 0.2)
    with pytest.raises(InputError, match="is longer than"):
        make_prompt(np.ones(60 * RATE + 2, np.float32), "one two", ModelConfig(), LETTERS)
    with pytest.raises(InputError, match=r"text of 1\d\d characters cannot be said in its 2\.\d s"):
        prompt("one two " * 15, 2.0, patch=4)
    assert len(prompt("one two " * 15, 2.0, patch=1).tokens) > 100
