"""Engines of a Speaker: whichever of a model's engines is given, the same voice speaks."""

from nanospeech import Speaker
from nanospeech.load import load_engine
from nanospeech.release.folder import DEFAULT
from tests.conftest import tone
from tests.two_voices import copy_with_two_voices


def test_the_engine_of_another_speakers_voice_stands_for_the_whole_model():
    engine = load_engine(DEFAULT, device="cpu")
    usual, imitated = Speaker(engine, seed=1), Speaker(engine, "theo", seed=1)
    assert imitated.engine.config.default_voice is None and usual.voice is not None
    again = Speaker(imitated.engine, seed=1)
    assert again.voice == usual.voice and again.engine is usual.engine
    assert Speaker(usual.engine, "theo", seed=1).engine is imitated.engine


def test_a_recording_is_spoken_without_the_weights_of_another_voice(tiny_aligned, tmp_path):
    engine = load_engine(copy_with_two_voices(tiny_aligned, tmp_path / "two"), device="cpu")
    tuned = Speaker(engine, "other", seed=1).engine
    assert tuned is not engine
    assert Speaker(tuned, ref_audio=tone(), seed=1).engine is engine
