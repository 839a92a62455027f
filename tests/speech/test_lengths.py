"""Lengths that are asked for: they are met, or it is told what the text takes."""

import dataclasses
import itertools
import re

import numpy as np
import pytest

from nanospeech.errors import InputError
from nanospeech.output import OutputOptions
from nanospeech.release.voices import VoiceSettings
from nanospeech.speech.making import make_chunks
from nanospeech.text.markup import read_markup
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
    told = [m for m in caplog.messages if "text takes" in m]  # a tone's loudness may be told too
    frame = voice.engine.config.audio.hop_length / 24_000
    near = (patch_size + 2) * len(spoken.chunks) * frame
    assert len(told) == (abs(spoken.seconds - seconds) > near)
    for message in told:
        (takes,) = re.findall(r"at least (\S+) s", message)
        assert float(takes) == pytest.approx(spoken.seconds, abs=near + 0.05)
        assert f"not the {seconds:g} s" in message
    if seconds == 0.01:
        assert told


@pytest.mark.parametrize("rate", [1.0, 1.5])
@pytest.mark.parametrize("seconds", [1.5, 2.7, 4, 9])
def test_a_model_speaks_at_its_own_pace_whatever_length_its_mel_is_stretched_to(seconds, rate):
    made = []

    class Heard(EchoEngine):
        def sample(self, noise_BNM, *args, lens_B=None, prompt_frames_B=None, **kwargs):
            made.append(int(lens_B[0] - prompt_frames_B[0]))
            more = {"lens_B": lens_B, "prompt_frames_B": prompt_frames_B}
            return super().sample(noise_BNM, *args, **more, **kwargs)

    def voice(speed: float = 1.0):
        found = speaker(Heard(), speed=speed)
        found.prompt = dataclasses.replace(found.prompt, settings=VoiceSettings(speed=rate))
        return found

    slow, fast = (voice(speed).chunk(ONE, 1).frames for speed in (0.8, 1.0))
    spoken = voice().speak(ONE, seconds=seconds)
    assert spoken.seconds == pytest.approx(seconds, abs=0.03)
    assert made == [sorted([fast, round(seconds * 93.75), slow])[1]]


def test_each_text_is_warned_of_once_however_it_is_spoken(caplog):
    voice = speaker(chunk_seconds=4)
    for speak in (voice.speak, lambda *said: list(voice.stream(*said))):
        caplog.clear()
        speak(SHORT, 1)
        assert len(caplog.records) == 1
    caplog.clear()
    voice.speak(SHORT)
    assert not caplog.records


def test_pauses_of_markup_are_kept_within_a_length(caplog):
    """They were left out: eight seconds of speech without a pause, however long these were."""
    plain = OutputOptions(loudness=None)
    voice = speaker(output=plain)
    spoken = voice.speak(read_markup("[pause 1s]one two three.[pause 2s] four five six."), 8)
    assert spoken.seconds == pytest.approx(8, abs=0.05)
    quiet = np.abs(spoken.wave) < 1e-6
    runs = [len(list(group)) / 24_000 for silent, group in itertools.groupby(quiet) if silent]
    long = [run for run in runs if run > 0.5]
    assert long == [pytest.approx(1, abs=0.1), pytest.approx(2, abs=0.1)]
    assert not caplog.messages
    voice.speak(read_markup("one. two. " * 99 + "[pause 3s] three."), 4)
    (takes,) = re.findall(r"takes at least (\S+) s, not the 4 s", caplog.text)
    assert float(takes) > 3
    with pytest.raises(InputError, match=r"pauses of the text last 3 s of the 3 s that are asked"):
        voice.speak(read_markup("one [pause 3s] two"), 3)


def test_slow_parts_have_more_of_a_length_than_fast_ones():
    voice = speaker()
    parts = voice.parts(read_markup("[fast]one two three.[/fast] [slow]one two three.[/slow]"))
    chunks = make_chunks([voice] * 2, parts, 5, 8)
    assert [chunk.seed for chunk in chunks] == [5, 6]
    fast, slow = (chunk.asked for chunk in chunks if chunk.asked)
    assert slow / fast == pytest.approx(1.25 / 0.8, rel=0.01)
    assert (fast + slow) / 93.75 == pytest.approx(8 + 0.03 + 2 / 93.75, abs=0.011)


@pytest.mark.parametrize("patch_size", [1, 2, 4])
def test_a_length_is_met_however_many_chunks_there_are(patch_size):
    """Each was some milliseconds off, and these added up: a second in ten minutes."""
    voice = speaker(EchoEngine(patch_size), chunk_seconds=2)
    spoken = voice.speak("One two three four five six. " * 30, seconds=80)
    assert len(spoken.chunks) > 20
    assert spoken.seconds == pytest.approx(80, abs=(patch_size + 1) / 93.75)
