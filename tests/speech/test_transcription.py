"""Recordings are written down by a recogniser: in their language, or told why they are not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.errors import BackendError
from nanospeech.measure import transcription
from nanospeech.measure.transcription import hear_reference, whisper_listener
from tests.speech.test_reference import speech

RATE = audio.SAMPLE_RATE


class Ear:
    """In the place of faster-whisper's model: hears "Hello there." in a language."""

    supported_languages = "en", "de"

    def __init__(
        self, spoken: str = "en", chance: float = 0.99, said: Sequence[str] = (" Hello", " there.")
    ):
        self.spoken, self.chance, self.said = spoken, chance, said
        self.asked: list[tuple] = []

    def detect_language(self, wave: np.ndarray) -> tuple:
        assert len(wave) % 16_000 == 0
        return self.spoken, self.chance, None

    def transcribe(self, wave: np.ndarray, *, language, word_timestamps, **_) -> tuple:
        self.asked.append((len(wave) / 16_000, language, word_timestamps))
        said = [
            SimpleNamespace(word=word, start=0.0, end=1.0, probability=1.0) for word in self.said
        ]
        return iter([SimpleNamespace(words=None), SimpleNamespace(words=said)]), None


@pytest.fixture
def hears(monkeypatch):
    """Whisper, or none of it."""
    pytest.importorskip("ctranslate2")

    def put(ear: Ear | None) -> None:
        def load(*_, extra: str, **__):
            if ear is None:
                raise BackendError(f"pip install 'nanospeech-tts[{extra}]'")
            return ear

        monkeypatch.setattr(transcription, "load_whisper", load)

    return put


@pytest.mark.parametrize(
    "language, spoken, chance, words",
    [
        ("en", "en", 0.99, ["Hello", "there."]),
        ("en", "de", 0.81, []),
        ("en", "de", 0.79, ["Hello", "there."]),  # nobody is sure of that
        (None, "de", 0.99, ["Hello", "there."]),  # whatever it is
    ],
)
def test_a_recogniser_hears_words_of_the_language_at_its_own_rate(
    hears, language, spoken, chance, words
):
    hears(ear := Ear(spoken, chance))
    told: list[str] = []
    heard = whisper_listener("base", language, told.append)(speech(3.0))
    assert [w.text for w in heard] == words and len(told) == (not words)
    assert ear.asked == [(3, language, True)] * bool(words)
    heard = whisper_listener("base", language)(speech(3.0))  # nobody asks
    assert [w.text for w in heard] == ["Hello", "there."]


def test_a_voices_words_are_heard_where_nobody_gives_them(hears, tmp_path):
    audio.write(path := tmp_path / "me.wav", 0.02 * speech(4.0))
    told: list[str] = []
    hears(Ear())
    assert hear_reference(path, None, "base", told.append).text == "Hello there."
    assert told.pop() == "heard: Hello there." and any("level was raised" in t for t in told)
    told.clear()
    assert hear_reference(path, "Good day to all.", "base", told.append).text == "Good day to all."
    assert not any(t.startswith("heard") for t in told)
    hears(Ear("de"))  # of another language they stay unknown, unless the model needs some
    assert hear_reference(path, None, "base", told.append).text == ""
    assert any("sounds like 'de', not 'en'" in t for t in told)
    assert hear_reference(path, None, "base", told.append, needed=True).text == "Hello there."


@pytest.mark.parametrize(
    "text, heard, told",
    [
        ("Hello there.", " Hello, there!", False),
        ("It rained all day.", " Hello there.", True),
        ("She paid 20 pounds, and went home.", " She paid twenty pounds and went home.", False),
        ("She paid her debts", " She paid her debts and then went home.", True),  # half of it
        ("你好世界。", "你好，世界", False),
        ("今天天气很好。", "你好世界", True),
    ],
)
def test_a_text_of_other_words_is_told_when_a_voice_is_kept(hears, tmp_path, text, heard, told):
    hears(Ear(said=re.findall(r" ?\S+", heard)))
    audio.write(path := tmp_path / "me.wav", speech(2.0))
    for spoken in (False, True):
        lines: list[str] = []
        hear_reference(path, text, "base", lines.append, spoken=spoken)
        other = [line for line in lines if "what is said in it; heard was" in line]
        assert len(other) == (told and not spoken)
        assert all(heard.strip() in line and "--text '...'" in line for line in other)


def test_words_that_do_not_fit_are_told_once_where_a_speaker_warns_too(hears, tmp_path):
    hears(None)
    audio.write(path := tmp_path / "me.wav", speech(4.0))
    for spoken in (False, True):
        told: list[str] = []
        hear_reference(path, "Hm.", "base", told.append, spoken=spoken)
        assert sum("does not go with its" in line for line in told) == (not spoken)


def test_without_a_recogniser_words_stay_unknown_or_are_asked_for(hears, tmp_path):
    audio.write(path := tmp_path / "me.wav", speech(4.0))
    audio.write(long := tmp_path / "long.wav", speech(20.0))
    hears(None)
    told: list[str] = []
    assert hear_reference(path, None, "base", told.append, flag="--ref-text").text == ""
    assert "nobody heard its words" in told[0] and "[transcribe]" in told[0]
    assert "--ref-text '...' gives them" in told[0]
    told.clear()
    hear_reference(long, "Good day to all.", "base", told.append)
    assert "nobody heard where its words are" in told[0]
    with pytest.raises(BackendError, match=r"\[transcribe\].*what is said in it: --ref-text"):
        hear_reference(path, None, "base", told.append, flag="--ref-text", needed=True)
