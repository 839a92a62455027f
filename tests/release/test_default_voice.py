"""The voice that ships: it says the text that it was given, alike in both backends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nanospeech import OutputOptions, SampleOptions, Speaker, load_engine
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.config import ModelConfig
from nanospeech.prepare.choose_prompts import addresses
from nanospeech.release.folder import DEFAULT, load_config
from nanospeech.release.voices import find_voice, list_voices
from nanospeech.text.sentences import encode
from nanospeech_torch.layers import gather_tokens
from nanospeech_torch.train.objectives.placing import patch_means

TEXTS = [
    "The kettle is on, and breakfast will be ready soon.",
    "Please put the clean plates back in the cupboard.",
    "A loud noise outside woke the baby.",
    "We planted three apple trees behind the barn last spring.",
]
VOICES = list_voices(DEFAULT)
# one with weights of its own, the one whose the model itself is, one of the imitator's; all with -m
# slow
FEW = ("kathleen", "kumo", "michael")
TWO = [("kathleen", None), ("michael", 2)]  # a voice's student, and the imitator itself


def each(*quick: str) -> list:
    """All voices, of which these are quick."""
    return [pytest.param(v, marks=[] if v in quick else pytest.mark.slow) for v in VOICES]


EACH = each(*FEW)


@pytest.fixture(scope="module")
def engine():
    return load_engine(backend="torch", dtype="float32")


@pytest.fixture(scope="module", params=EACH)
def speaker(request, engine):
    """Each built-in voice."""
    return Speaker(engine, request.param, seed=3, output=OutputOptions(loudness=None))


@pytest.fixture(scope="module")
def spoken(speaker):
    """Log mels of the texts, from their waves."""
    return [log_mel(speaker.speak(text).wave) for text in TEXTS]


def test_recordings_are_spoken_by_the_imitator_that_ships(engine, caplog):
    assert engine.config.imitates is False and engine.config.takes_recordings
    voice = find_voice("kumo", engine.folder)
    speaker = Speaker(engine, ref_audio=voice.audio, ref_text=voice.text, seed=3)
    assert speaker.network == "imitator" and not caplog.records
    mel = log_mel(speaker.speak(TEXTS[0]).wave)
    assert misfit(speaker.engine, mel, TEXTS[0]) < min(
        misfit(speaker.engine, mel, text) for text in TEXTS[1:]
    )


def misfit(engine, mel: np.ndarray, text: str) -> float:
    """Mean squared distance of a mel from the token means of a text, on the best alignment."""
    ids = encode(f" {text} ", engine.tokenizer)
    a, p = engine.config.audio, engine.config.dit.patch_size
    frames = engine.align(mel, ids)
    normal = torch.from_numpy((mel - a.mel_mean) / a.mel_std)[None]
    with torch.no_grad():
        patches = patch_means(normal, torch.tensor([len(mel)]), p)
        means = engine.dit.token_means(torch.from_numpy(ids)[None], patches.mean(1))
    index = np.repeat(np.arange(len(ids)), frames)[::p][: patches.shape[1]]
    at = gather_tokens(means, torch.from_numpy(index)[None])
    return float((patches[:, : at.shape[1]] - at).square().mean())


def test_each_text_fits_its_speech_best(speaker, spoken):
    for mel, said in zip(spoken, TEXTS):
        fits = {text: misfit(speaker.engine, mel, text) for text in TEXTS}
        assert min(fits, key=fits.__getitem__) == said


def test_lengths_are_those_of_speech(spoken):
    for mel, text in zip(spoken, TEXTS):
        assert 7 < len(text) / (len(mel) / 93.75) < 25  # characters a second


def test_word_times_come_from_the_alignment(speaker, spoken):
    ids = encode(f" {TEXTS[0]} ", speaker.engine.tokenizer)
    frames = speaker.engine.align(spoken[0], ids)
    assert frames.sum() == len(spoken[0]) and (frames > 0).all()


def test_speed_changes_the_length_of_the_new_speech(engine):
    slow, fast = (Speaker(engine, seed=1, speed=s).speak(TEXTS[2]).seconds for s in (0.8, 1.6))
    assert slow / fast == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize(
    ("voice", "steps"),
    [
        pytest.param(v, s, marks=[] if (v, s) in TWO else pytest.mark.slow)
        for v in VOICES
        for s in (None, 2)
    ],
)
def test_backends_say_the_same(voice, steps, engine_of):
    """By the student, and by the model itself."""
    pytest.importorskip("mlx.core")
    options = SampleOptions(steps=steps)
    own_level = OutputOptions(loudness=None)
    waves = [
        Speaker(engine_of(DEFAULT, b), voice, options=options, seed=1, output=own_level)
        .speak("Stop it!")
        .wave
        for b in ("torch", "mlx", "onnx")
    ]
    assert len(waves[0]) == len(waves[1]) == len(waves[2])
    assert np.abs(waves[0] - waves[1]).max() < 5e-3
    assert np.abs(waves[0] - waves[2]).max() < 1e-4


def test_it_ships_within_bounds_and_says_where_it_is_from():
    assert sum(f.stat().st_size for f in DEFAULT.rglob("*") if f.is_file()) < 60e6
    config = ModelConfig.load(DEFAULT / "config.json")
    assert config.default_voice == "kathleen"
    card = (DEFAULT / "README.md").read_text(encoding="utf-8")
    for word in ("Apache-2.0", "CC BY", "consent", "Whisper", "step"):
        assert word in card
    assert config.default_voice in VOICES and len(VOICES) == 11
    for voice in VOICES:
        assert (DEFAULT / "voices" / f"{voice}.license.txt").is_file() and voice in card
        wave = audio.read(DEFAULT / "voices" / f"{voice}.flac")
        assert 1.9 < len(wave) / audio.SAMPLE_RATE < 6.2
        own = DEFAULT / "voices" / f"{voice}.safetensors"
        # the model itself is kumo's; the imitator speaks after the recordings of the others
        assert own.is_file() == (voice == "kathleen")
        imitated = find_voice(voice, DEFAULT).settings.imitated
        assert imitated == (voice not in ("kumo", "kathleen"))
    own = load_config(DEFAULT / "imitator").student  # who speaks for all of them
    assert set(own.voices) | set(config.student.voices) == set(VOICES)


def test_licences_are_named_with_the_address_that_they_ask_for():
    notes = [*(DEFAULT / "voices").glob("*.license.txt"), *DEFAULT.rglob("README.md")]
    assert len(notes) == len(VOICES) + 2
    for note in notes:
        text = note.read_text(encoding="utf-8")
        assert all(line in text for line in addresses(text)), note
    text = (DEFAULT / "voices/robin.license.txt").read_text(encoding="utf-8")
    assert addresses(text) == ["CC BY 4.0: https://creativecommons.org/licenses/by/4.0/"]
