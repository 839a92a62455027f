"""Checks: what a Speaker takes, and that all else is refused where it is given."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nanospeech import InputError, SampleOptions, Speaker
from nanospeech.text.markup import read_markup
from tests.speech.test_speaker import RATE, TEXT, EchoEngine, sound, speaker


@pytest.mark.parametrize(
    "given, message",
    [
        ({"engine": None}, r"engine should be what load_engine\(\) gives, got None"),
        ({"engine": "folder"}, "engine should be .* got 'folder'"),
        ({"aligner": 3}, "aligner should be what load_engine"),
        ({"voice": 3}, "voice should be the name of a voice .* got 3"),
        ({"voice": Path("me.wav")}, r"voice should be .* \(a recording goes into ref_audio\)"),
        ({"ref_audio": [0.1, 0.2]}, "ref_audio should be a recording: .* array of floats, got"),
        ({"ref_audio": 3.5}, "ref_audio should be a recording"),
        ({"ref_audio": io.StringIO("x")}, r"ref_audio.read\(\) gives should be bytes; open"),
        ({"ref_audio": b"no audio"}, "cannot read the recording"),
        ({"ref_text": 5}, "ref_text should be the words"),
        ({"options": None}, r"options should be SampleOptions\(...\) or left out, got None"),
        ({"options": {"steps": 4}}, "options should be .* got {'steps': 4}"),
        ({"output": None}, r"output should be OutputOptions\(...\) or left out, got None"),
        ({"speed": "1.5"}, "speed should be a number, got '1.5'"),
        ({"speed": None}, "speed should be a number"),
        ({"chunk_seconds": "3"}, "chunk_seconds should be a number"),
        ({"duration": 3}, "duration 3 not known"),
    ],
)
def test_an_argument_of_another_type_is_an_input_error(given, message):
    usual = {"engine": EchoEngine(), "ref_audio": sound(2.5), "ref_text": TEXT, "seed": 3}
    if "voice" in given:
        usual |= {"ref_audio": None, "ref_text": None}
    with pytest.raises(InputError, match=message):
        Speaker(**usual | given)


def test_a_name_that_is_no_argument_is_told_by_python():
    with pytest.raises(TypeError, match=r"Speaker.*'chunk_second'"):
        Speaker(EchoEngine(), chunk_second=3)


def test_a_recording_is_a_path_its_bytes_an_open_file_or_samples(tmp_path):
    path = tmp_path / "me.wav"
    soundfile.write(path, sound(2.5), RATE, "FLOAT")
    data = path.read_bytes()
    wanted = speaker(wave=sound(2.5)).prompt.mel
    with path.open("rb") as file:
        kinds = [path, str(path), data, bytearray(data), io.BytesIO(data), file]
        for given in kinds:
            assert np.array_equal(speaker(wave=given).prompt.mel, wanted)


def test_bytes_of_a_recording_are_bounded_as_its_file_is():
    file = io.BytesIO()
    soundfile.write(file, sound(61), RATE, format="WAV")
    with pytest.raises(InputError, match="60 s"):
        speaker(wave=file.getvalue())


def test_numbers_of_numpy_speak_as_those_of_python():
    voice = speaker(speed=np.float32(1.5), chunk_seconds=np.int8(3))
    plain = speaker(speed=1.5, chunk_seconds=3)
    assert type(voice.speed) is type(voice.chunk_seconds) is float
    options = SampleOptions(steps=np.int64(3))
    voice.use(options), plain.use(SampleOptions(steps=3))
    one, other = (each.speak("hello there.", np.float32(2)) for each in (voice, plain))
    assert np.array_equal(one.wave, other.wave)
    for seconds in ("3", [3]):
        with pytest.raises(InputError, match="seconds should be a number"):
            voice.speak("hello there.", seconds=seconds)


def test_many_texts_come_from_any_iterable():
    texts = ["Hello there.", "Hello you."]
    wanted = [u.wave for u in speaker().speak_many(texts)]
    for given in (
        iter(texts),
        (t for t in texts),
        tuple(texts),
        dict.fromkeys(texts),
        np.array(texts),
    ):
        found = speaker().speak_many(given, seeds=iter([3, 3]))
        assert all(np.array_equal(a, b.wave) for a, b in zip(wanted, found, strict=True))
    for given in ("Hello.", b"Hello.", read_markup("Hello.")):
        with pytest.raises(InputError, match="single text; give a list"):
            speaker().speak_many(given)
    for wrong, message in (
        ({"texts": None}, "texts should be a list of texts, got None"),
        ({"seeds": 5}, "seeds should be a whole number for each text, got 5"),
        ({"limits": 16}, r"limits should be BatchLimits\(...\) or left out, got 16"),
    ):
        with pytest.raises(InputError, match=message):
            speaker().speak_many(**{"texts": texts, **wrong})


@pytest.mark.parametrize("text", [None, b"Hello.", bytearray(b"Hello."), 5])
def test_what_is_no_text_is_refused_when_a_stream_is_asked_for(text):
    with pytest.raises(InputError, match="a text should be a string, of read_markup, or"):
        speaker().stream(text)


def test_a_part_that_is_no_text_is_refused_when_it_comes():
    stream = speaker().stream(["Hello there. "] * 9 + [5])
    assert len(next(stream))
    with pytest.raises(InputError, match="a part of a text should be a string, got 5"):
        list(stream)
