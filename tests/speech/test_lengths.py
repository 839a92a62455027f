"""Lengths that are asked for: they are met, or it is told what the text takes."""

import dataclasses
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.output import OutputOptions
from nanospeech.release.prompt import Prompt
from nanospeech.release.voices import VoiceSettings
from nanospeech.speech.durations import estimate_seconds, frames, new_frames
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


@pytest.mark.parametrize(
    "by_model, by_tokens, pace, wanted",
    [
        (3.0, 5.0, 1.0, 15**0.5),  # errors are factors, and so is what is between
        (3.0, 5.0, 1.2, 1.2 * 15**0.5),
        (0.99, 4.0, 1.0, 4.0),  # a quarter of the rule's four seconds is no estimate
        (1.01, 1.01, 1.0, 0.45 + 2),  # but less than its half is not spoken in any case
        (17.9, 17.9, 1.0, 17.9),
        (18.1, 4.0, 1.0, 4.0),
    ],
)
def test_estimates_are_averaged_unless_they_are_far_off_the_rule(by_model, by_tokens, pace, wanted):
    def duration(mel_BNM, tokens_BT, *, own, lens_B, prompt_tokens_B):
        assert (lens_B, prompt_tokens_B, tokens_BT.shape) == ([94], [3], (1, 5))
        return np.array([mel_BNM.shape[1] / 93.75 + (by_tokens if own else by_model)])

    engine = SimpleNamespace(duration=duration, config=ModelConfig())
    mel, tokens = np.zeros((94, 100), np.float32), np.zeros(3, np.int64)
    prompt = Prompt(mel, tokens, 10.0, 1.0, VoiceSettings(pace=pace))
    found = estimate_seconds(engine, prompt, "x" * 40, np.zeros(2, np.int64), (False, True))
    assert found == pytest.approx(wanted)


def test_new_speech_has_a_least_length_and_a_patch_for_each_token():
    voice = speaker(EchoEngine(4))
    fast = dataclasses.replace(voice.prompt, settings=VoiceSettings(speed=2.0))
    tokens = np.zeros(2, np.int64)
    assert new_frames(voice.engine, fast, "x", tokens, 2.0, "rule") == 36  # 0.35 s in fours
    config = voice.engine.config
    assert [frames(config, tokens, n / 93.75) for n in (7, 8, 9, 12)] == [8, 8, 12, 12]
    assert frames(config, np.zeros(9, np.int64), 0.1) == 36
