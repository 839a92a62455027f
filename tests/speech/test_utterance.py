"""Utterance: what is held of finished speech, and how chunks become waves."""

import dataclasses
import io

import numpy as np
import pytest
import soundfile as sf

from nanospeech import InputError
from nanospeech.audio import wave as audio
from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine.sampling import noise
from nanospeech.latent_architectures import EchoConfig
from nanospeech.release.prompt import Prompt
from nanospeech.release.voices import VoiceSettings
from nanospeech.speech import chunks as speech
from nanospeech.speech.chunks import Chunk, Mark, Utterance, Word
from tests.speech.test_speaker import EchoEngine

RATE = 24_000


def made(kind):
    wave = np.ones(3, np.float32)
    if kind is Utterance:
        return Utterance(wave, 24_000, 0.1, 1, ("Hello.",))
    if kind is Chunk:
        return Chunk("Hello.", np.arange(3), 9, 1)
    return Prompt(wave[None], np.arange(3), 15.0, 1.0)


@pytest.mark.parametrize("kind", [Utterance, Chunk, Prompt])
def test_what_holds_arrays_is_found_in_lists_and_sets(kind):
    one, other = made(kind), made(kind)
    assert one == one and one != other
    assert other in [one, other] and len({one, other, one}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.__setattr__(dataclasses.fields(kind)[0].name, None)


def test_words_and_marks_are_compared_by_what_they_hold():
    for one, other in (
        [Word("a", 0.0, 0.5, 0, 0) for _ in range(2)],
        [Mark(1, 2, "clause") for _ in range(2)],
    ):
        assert one == other and len({one, other}) == 1


def test_an_utterance_is_saved_and_knows_its_times(tmp_path):
    spoken = made(Utterance)
    assert spoken.seconds == 3 / RATE and spoken.rtf == pytest.approx(800)
    spoken.save(tmp_path / "a.wav")
    assert np.allclose(audio.read(tmp_path / "a.wav"), 1, atol=1e-4)
    assert 0 < dataclasses.replace(spoken, wave=spoken.wave[:0]).rtf < np.inf


@pytest.mark.parametrize("path", [io.BytesIO(), b"hello.wav", None])
def test_speech_is_saved_by_a_path_and_says_what_writes_an_open_file(path):
    spoken = made(Utterance)
    with pytest.raises(InputError, match="path should be the path of a file"):
        spoken.save(path)
    file = io.BytesIO()
    sf.write(file, spoken.wave, spoken.sample_rate, format="WAV")  # as the message says
    assert np.allclose(audio.read(file.getvalue()), spoken.wave, atol=1e-4)


def prompt_of(frames: int, gain: float = 1.0) -> Prompt:
    mel = np.random.default_rng(0).standard_normal((frames, 100)).astype("f4")
    return Prompt(mel, np.arange(3), 15.0, gain)


class Asked(EchoEngine):
    """Keeps the options and mels that it is given."""

    def sample(self, *arrays_and_options, **others):
        self.options = arrays_and_options[3]
        return super().sample(*arrays_and_options, **others)

    def vocode(self, mel_BNM, lens_B=None):
        self.mels = mel_BNM
        return super().vocode(mel_BNM, lens_B)


def test_a_chunk_is_its_own_noise_alone_and_in_a_batch():
    engine = Asked()
    prompt = dataclasses.replace(prompt_of(20), settings=VoiceSettings(cfg_strength=2.5))
    chunks = [Chunk("ab", np.array([1, 2]), n, seed) for n, seed in ((7, 3), (4, 9))]
    assert chunks[0].before == 0 and len(chunks[0].characters) == 0
    both = speech.sample(engine, prompt, chunks, SampleOptions(cfg_strength=1.5))
    assert engine.options.cfg_strength == 1.5
    for chunk, mel in zip(chunks, both):
        assert np.array_equal(mel, noise(20 + chunk.frames, 100, chunk.seed)[20:])
        assert np.array_equal(mel, speech.sample(engine, prompt, [chunk], SampleOptions())[0])
        assert engine.options.cfg_strength == 2.5


@pytest.mark.parametrize("known", [3, 16, 40])
def test_a_vocoder_starts_on_the_last_frames_of_the_prompt(known):
    engine, prompt = Asked(), prompt_of(known, gain=2.0)
    mels = [np.full((n, 100), 10, np.float32) for n in (9, 5)]
    for given in (mels, mels[:1], mels[1:]):
        waves = speech.vocode(engine, prompt, given)
        context = min(known, speech.CONTEXT)
        for mel, made, wave in zip(given, engine.mels, waves, strict=True):
            assert np.array_equal(made[:context], prompt.mel[known - context :])
            assert np.array_equal(made[context : context + len(mel)], mel)
            assert np.array_equal(wave, speech.finish(np.ones((len(mel) - 1) * 256), prompt, RATE))


def test_latents_are_decoded_without_a_prompt():
    engine, mel = EchoEngine(), np.ones((9, 100), np.float32)
    engine.config = ModelConfig(echo=EchoConfig(text_depth=1))
    assert speech.in_context(engine, prompt_of(40), mel) == (mel, 0)


def test_a_chunk_fades_over_5_ms_at_the_recordings_level_and_two_over_30():
    prompt, rate = prompt_of(4, gain=2.0), 40_000
    ramp = (np.arange(200) + 0.5) / 200
    wanted = np.concatenate([ramp, np.ones(600), ramp[::-1]]) / 2
    assert np.allclose(speech.finish(np.ones(1000), prompt, rate), wanted)
    whole = speech.join([np.ones(1500), np.ones(2000)], rate)
    assert len(whole) == 3500 - 1200 and np.allclose(whole, 1)
