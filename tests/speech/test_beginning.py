"""A stream's beginning is made with less, and what follows is made as without."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.audio.loudness import Leveller
from nanospeech.errors import InputError
from nanospeech.release.prompt import Prompt
from nanospeech.speech.beginning import SECONDS, First, choose_first, last_words
from nanospeech.speech.pauses import sounds
from tests.speech.test_speaker import EchoEngine
from tests.speech.test_speaker import speaker as echo_speaker

TEXT = "The boat left at dawn, and nobody saw it go. It came back late, with fish."


@pytest.fixture
def speaker(tiny_aligned, engine_of) -> Speaker:
    return Speaker(engine_of(tiny_aligned, "torch"), seed=1)


def spoken(speaker: Speaker) -> list[np.ndarray]:
    return list(speaker.stream(TEXT))


def test_what_follows_the_first_chunk_is_the_same(speaker):
    speaker.level = Leveller(speaker.sample_rate, None)  # whose gain follows what was heard
    usual = np.concatenate(spoken(speaker))
    counts = []
    list(speaker.stream(TEXT, on_step=lambda done, of: counts.append(done)))
    speaker.first = First(speaker.prompt, 2)
    fewer = []
    list(speaker.stream(TEXT, on_step=lambda done, of: fewer.append(done)))
    assert len(fewer) == len(counts) - 7 + 2
    sooner = np.concatenate(spoken(speaker))
    half = min(len(usual), len(sooner)) // 2
    assert np.array_equal(usual[-half:], sooner[-half:])
    assert not np.array_equal(usual[:2000], sooner[:2000])


def test_steps_that_a_caller_chose_are_kept(speaker):
    speaker.options = SampleOptions(steps=4)
    usual = np.concatenate(spoken(speaker))
    speaker.first = First(speaker.prompt, 2)
    assert np.array_equal(np.concatenate(spoken(speaker)), usual)
    speaker.options, speaker.first = SampleOptions(), First(speaker.prompt, 7)  # its own number
    more = np.concatenate(spoken(speaker))
    speaker.first = None
    assert np.array_equal(np.concatenate(spoken(speaker)), more)
    assert choose_first(speaker.engine, speaker.prompt, 0) is None
    assert choose_first(speaker.engine, speaker.prompt, 5) == First(speaker.prompt, 5)


def test_the_first_chunk_alone_has_fewer_steps_on_a_uniform_grid():
    class Asked(EchoEngine):
        def sample(self, *args, **more):
            asked.append(args[3])
            return super().sample(*args, **more)

    asked: list[SampleOptions] = []
    voice = echo_speaker(Asked(), options=SampleOptions(schedule="epss", cfg_strength=1.5))
    voice.first = First(voice.prompt, 2)
    list(voice.stream("Hello there, it is said. And this is said later."))
    first, *later = asked
    assert first == SampleOptions(steps=2, schedule="uniform", cfg_strength=1.5)
    assert later and set(later) == {voice.options}
    # a distilled network keeps its own
    voice.engine.config = replace(
        voice.engine.config, dit=replace(voice.engine.config.dit, max_strength=3.0)
    )
    asked.clear()
    list(voice.stream("Hello there, it is said. And this is said later."))
    assert len(asked) > 1 and set(asked) == {voice.options}


@pytest.mark.parametrize(
    "seconds, start, token",
    [
        (0.8, 22, 6),  # "ef", of the whole patch in which it begins
        (0.9, 22, 6),
        (1.0, 10, 3),  # would leave 9 frames
        (2.1, 10, 3),
        (2.2, 0, 0),
        (9.0, 0, 0),
    ],
)
def test_a_shorter_prompt_begins_with_the_last_word_that_leaves_enough(seconds, start, token):
    """Ten frames a second, in patches of two: "ab" has the first 7, "cd" is at 11, "ef" at 23."""
    letters = [*" abcdef"]
    tokens = np.array([letters.index(c) for c in "ab cd ef"])
    prompt = Prompt(np.arange(31.0, dtype=np.float32)[:, None], tokens, 15.0, 1.0)
    engine = SimpleNamespace(
        align=lambda mel, tokens: np.array([3, 4, 4, 4, 4, 4, 4, 4]),
        tokenizer=SimpleNamespace(kind="chars", vocab=letters),
        config=SimpleNamespace(
            dit=SimpleNamespace(patch_size=2), audio=SimpleNamespace(frame_rate=10.0)
        ),
    )
    cut = last_words(engine, prompt, seconds)
    np.testing.assert_array_equal(cut.mel, prompt.mel[start:])
    np.testing.assert_array_equal(cut.tokens, tokens[token:])


def test_a_prompt_whose_words_cannot_be_found_stays_whole():
    def align(mel, tokens):
        raise InputError("31 frames are too few")

    prompt = Prompt(np.zeros((31, 1), np.float32), np.array([1]), 15.0, 1.0)
    assert last_words(SimpleNamespace(align=align), prompt) is prompt


@pytest.mark.parametrize("voice", ["kathleen", "darshan", "robin"])
def test_a_shorter_prompt_is_the_end_of_the_voices_own(voice):
    pytest.importorskip("onnxruntime", reason="no onnxruntime here")
    speaker = Speaker(load_engine(None, "onnx", "cpu"), voice, seed=1)
    whole, engine = speaker.prompt, speaker.engine
    for seconds in (SECONDS, 1.5, 0.8):
        cut = last_words(engine, whole, seconds)
        count, frames = len(cut.tokens), len(cut.mel)
        assert np.array_equal(cut.tokens, whole.tokens[-count:])
        assert np.array_equal(cut.mel, whole.mel[-frames:])
        assert frames >= seconds * engine.config.audio.frame_rate or frames == len(whole.mel)
        assert (len(whole.mel) - frames) % engine.config.dit.patch_size == 0
        assert sounds(cut.tokens[0], engine.tokenizer) or count == len(whole.tokens)
        if count < len(whole.tokens):  # it begins with a word
            assert not sounds(whole.tokens[-count - 1], engine.tokenizer)
    assert len(last_words(engine, whole, 60).mel) == len(whole.mel)
    first = choose_first(engine, whole, 5)
    assert first is not None and len(first.prompt.mel) <= len(whole.mel)
