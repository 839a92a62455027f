"""Lengths that are asked for: they are met, or it is told what the text takes."""

import re

import pytest

from tests.speech.test_speaker import EchoEngine, speaker

SHORT = "One. Two. " * 30
ONE = "sixteen words make one sentence that is said at once and has no second one."


@pytest.mark.parametrize("patch_size", [1, 4])
@pytest.mark.parametrize("text", [SHORT, ONE])
@pytest.mark.parametrize("seconds", [0.01, 1, 5.3, 40])
def test_a_length_is_met_or_there_is_one_warning_of_what_the_text_takes(
    caplog, patch_size, text, seconds
):
    voice = speaker(EchoEngine(patch_size), chunk_seconds=4)
    spoken = voice.speak(text, seconds=seconds)
    told = [record.getMessage() for record in caplog.records]
    frame = voice.engine.config.audio.hop_length / 24_000
    near = (patch_size + 2) * len(spoken.chunks) * frame
    assert len(told) == (abs(spoken.seconds - seconds) > near)
    for message in told:
        (takes,) = re.findall(r"at least (\S+) s", message)
        assert float(takes) == pytest.approx(spoken.seconds, abs=near + 0.05)
        assert f"not the {seconds:g} s" in message
    if seconds == 0.01:
        assert told


def test_each_text_is_warned_of_once_however_it_is_spoken(caplog):
    voice = speaker(chunk_seconds=4)
    for speak in (voice.speak, lambda *said: list(voice.stream(*said))):
        caplog.clear()
        speak(SHORT, 1)
        assert len(caplog.records) == 1
    caplog.clear()
    voice.speak(SHORT)
    assert not caplog.records
