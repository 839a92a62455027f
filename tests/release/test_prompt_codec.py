"""Prompts sound as the recordings of training do: a WAV becomes like the MP3 of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nanospeech import InputError, Speaker
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.mp3 import coded, encode
from nanospeech.config import AudioConfig, ModelConfig
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode
from nanospeech.release.prompt import make_prompt
from nanospeech.release.user_voices import save_voice
from nanospeech.text.tokenizer import Tokenizer
from tests.conftest import TONE_TEXT

LETTERS = Tokenizer("chars", [*" .abcdefghijklmnopqrstuvwxyz"])
CONFIG = ModelConfig(audio=AudioConfig(prompt_rms=0.05))
MP3 = replace(CONFIG, prompt_codec="mp3")
TEXT = "some words that are said in two seconds"


def hiss(seconds: float = 2.0) -> np.ndarray:
    """Syllables of white noise, of the whole band."""
    t = np.arange(int(seconds * 24_000)) / 24_000
    rng = np.random.default_rng(0)
    wave = np.maximum(0.02, np.sin(2 * np.pi * 4 * t)) * rng.standard_normal(len(t))
    return (0.05 / audio.rms(wave) * wave).astype(np.float32)


def mel(wave: np.ndarray, config: ModelConfig) -> np.ndarray:
    return make_prompt(wave, TEXT, config, LETTERS).mel.mean(0)


def test_a_coded_wave_is_the_decoded_mp3_as_long_as_before():
    wave = hiss()[:40_001]
    assert np.allclose(coded(wave), decode(encode(wave))[0], atol=1e-6)
    assert coded(wave).dtype == np.float32 and len(coded(wave)) == 40_001
    away = np.abs(log_mel(coded(wave)) - log_mel(wave)).mean(0)
    assert away[:60].max() < 0.5 and away[-1] > 3  # nats


def test_a_loud_sound_in_a_prompt_is_coded_whole_not_clipped():
    """As a knock on the microphone in quiet speech, which the model's level raises."""
    wave = hiss(8.0)
    wave[24_000:24_480] *= 40
    assert np.abs(audio.set_level(wave, 0.05)[0]).max() > 3
    heard, plain = (make_prompt(wave, TEXT, config, LETTERS).mel for config in (MP3, CONFIG))
    frames = slice(24_000 // 256, 24_480 // 256 + 1)
    assert (heard - plain)[frames, :60].mean() > -0.1
    assert audio.rms(coded(9 * wave) - 9 * coded(wave)) < 0.1 * audio.rms(9 * wave)
    assert not coded(np.zeros(24_000, np.float32)).any()


def test_a_wav_is_heard_as_the_mp3_of_training_is():
    raw, mp3 = hiss(), decode(encode(hiss()))[0]
    trained = mel(mp3, CONFIG)
    assert np.abs(mel(raw, CONFIG) - trained).max() > 3
    assert np.abs(mel(raw, MP3) - trained).max() < 0.1
    assert np.abs(mel(mp3, MP3) - trained).max() < 0.5  # coded twice: hardly another recording


def test_recordings_are_coded_and_the_folders_own_voices_are_not(
    tiny_release, tmp_path, user_data, engine_of, backend
):
    folder = Path(shutil.copytree(tiny_release, tmp_path / "there"))
    replace(ModelConfig.load(folder / "config.json"), prompt_codec="mp3").save(
        folder / "config.json"
    )
    shutil.copy(folder / "voices/tone.txt", folder / "voices/hiss.txt")
    audio.write(folder / "voices/hiss.wav", hiss())
    save_voice("anna", hiss(), TONE_TEXT, {})
    engines = [engine_of(f, backend) for f in (folder, Path(tiny_release))]
    given = {"ref_audio": hiss(), "ref_text": TONE_TEXT}
    coded_mel, plain_mel = (Speaker(engine, **given).prompt.mel for engine in engines)
    assert np.abs(coded_mel - plain_mel).mean(0)[-1] > 3
    theirs, own = (Speaker(engines[0], voice).prompt.mel for voice in ("anna", "hiss"))
    assert np.abs(own - plain_mel).mean() < 0.02  # of 16 bits
    assert np.abs(theirs - coded_mel).mean() < 0.1 and np.abs(own - coded_mel).max() > 3


def test_what_ships_knows_what_it_was_trained_on():
    default = Path(audio.__file__).parents[1] / "default"
    assert ModelConfig.load(default / "imitator/config.json").prompt_codec == "mp3"


def test_a_codec_that_is_none_is_an_input_error():
    assert ModelConfig().prompt_codec is None
    with pytest.raises(InputError, match="prompt_codec is 'ogg'"):
        ModelConfig(prompt_codec="ogg")
    with pytest.raises(InputError, match="for 24 kHz"):
        ModelConfig(prompt_codec="mp3", audio=AudioConfig(sample_rate=16_000))


def test_recordings_to_finetune_on_are_coded_too(tmp_path):
    recordings = pytest.importorskip("nanospeech_torch.finetune.recordings")
    (tmp_path / "in").mkdir()
    audio.write(tmp_path / "in/a.wav", hiss())
    (tmp_path / "in/a.txt").write_text(TEXT, encoding="utf-8")
    tops = []
    for config in (CONFIG, MP3):
        out = tmp_path / str(config.prompt_codec)
        samples, _ = recordings.find_samples([tmp_path / "in"])
        assert not recordings.write_voice(samples, out, config, None, "anna")
        [sample] = find(sorted(out.glob("voice-*.tar")))[0]
        tops.append(log_mel(decode(sample.audio.read())[0]).mean(0)[-1])
    assert tops[0] - tops[1] > 3
