"""Wordless: a prompt whose words are not in the text is heard; the new words begin behind it."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.config import DiTConfig, ModelConfig, SampleOptions
from nanospeech.engine.sampling import noise
from nanospeech.errors import InputError
from nanospeech.release.prompt import USUAL_PACE
from nanospeech.speech.speaker import Speaker
from tests.echo import tiny
from tests.engine.items import Items, alone
from tests.speech.test_speaker import RATE, EchoEngine, sound, speaker

OPTIONS = SampleOptions(steps=2)
# the second prompt has its words in the text, the others not, and the last is not there
ITEMS = Items(["general.", "hello there.", "hello", "there."], [70, 66, 40, 30], [31, 24, 8, 0],
              [0, 6, 0, 0])  # fmt: skip


def test_an_item_is_what_it_is_alone(tiny_aligned, engine_of, arrays, backend):
    engine = engine_of(tiny_aligned, backend)
    batch = ITEMS.batch(engine, arrays["mel"][0])
    mels = engine.sample(**batch, options=OPTIONS)
    for i, n in enumerate(ITEMS.lens):
        one = engine.sample(**alone(batch, i), options=OPTIONS)
        assert np.allclose(mels[i, :n], one[0], atol=2e-3)


def test_backends_agree(tiny_aligned, engine_of, arrays):
    engines = [engine_of(tiny_aligned, name) for name in ("torch", "mlx", "onnx")]
    a, *others = (e.sample(**ITEMS.batch(e, arrays["mel"][0]), options=OPTIONS) for e in engines)
    for i, n in enumerate(ITEMS.lens):
        assert all(np.allclose(a[i, :n], b[i, :n], atol=2e-3) for b in others)


@pytest.mark.parametrize("start", [0, 7, 24, 31])
def test_new_words_lie_behind_the_prompt_as_they_would_without_one(
    tiny_aligned, engine_of, arrays, backend, start
):
    """With the durations of that speaker, who is heard in the prompt."""
    engine = engine_of(tiny_aligned, backend)
    ids, p = engine.tokenizer.encode("hello there.")[None], engine.config.dit.patch_size
    cond = np.zeros((1, 70, 100), np.float32)
    cond[:, :start] = arrays["mel"][:, :start]
    prompt = np.array([start])
    with engine.context():
        made = engine.text_states(ids, cond, np.array([70]), prompt, np.array([0]))
        states, filler = (engine.numpy(engine.to_float(s))[0] for s in made)
        hidden = engine.numpy(engine.to_float(engine.token_states(ids)))[0]
        normal = engine.normalised(cond)
        guesses = engine.numpy(
            engine.dit.aligner.log_durations(
                engine.token_states(ids), engine.speaker(normal, prompt)
            )
        )
    before = -(-start // p)
    assert np.allclose(states[:before], filler[:before])
    behind = [int(np.abs(hidden - s).sum(1).argmin()) for s in states[before:]]
    assert np.allclose(hidden[behind], states[before:], atol=1e-5)
    assert behind == sorted(behind) and set(behind) == set(range(ids.shape[1]))
    lasts = np.bincount(behind)
    share = np.maximum(np.exp(guesses[0].astype(np.float64)), 1)
    assert np.abs(lasts - share / share.sum() * len(behind)).max() <= 1.5


def test_without_prompt_tokens_all_words_are_spread_over_all_frames(
    tiny_aligned, engine_of, arrays, backend
):
    engine = engine_of(tiny_aligned, backend)
    ids = engine.tokenizer.encode("hello there.")[None]
    cond = np.zeros((1, 70, 100), np.float32)
    cond[:, :40] = arrays["mel"][:, :40]
    start = noise(70, 100, 0)[None]
    unknown = engine.sample(start, cond, ids, OPTIONS)
    wordless = engine.sample(start, cond, ids, OPTIONS, prompt_tokens_B=np.array([0]))
    assert np.abs(unknown - wordless)[:, 40:].max() > 0.01
    with engine.context():
        prompt = np.array([40])
        made = engine.text_states(ids, cond, np.array([70]), prompt, None)
        states = engine.numpy(engine.to_float(made[0]))[0]
        hidden = engine.numpy(engine.to_float(engine.token_states(ids)))[0]
    assert np.allclose(states[0], hidden[0], atol=1e-5)
    assert np.allclose(states[-1], hidden[-1], atol=1e-5)


def test_its_length_is_the_prompts_and_that_of_all_tokens(tiny_aligned, engine_of, arrays, backend):
    engine = engine_of(tiny_aligned, backend)
    mel, text = arrays["mel"][:, :41], engine.tokenizer.encode("hello there, general.")[None]
    spoken = 41 / engine.config.audio.frame_rate
    unknown = float(engine.duration(mel, text, own=True)[0])
    wordless = float(engine.duration(mel, text, own=True, prompt_tokens_B=np.array([0]))[0])
    assert unknown > spoken  # no less than the prompt, and here more
    assert wordless == pytest.approx(spoken + unknown, rel=1e-5)


def test_a_head_of_means_guesses_the_new_speech_alone(tiny_release, engine_of, arrays, backend):
    engine = engine_of(tiny_release, backend)
    assert engine.config.duration.pooling == "mean"
    mel, text = arrays["mel"][:, :41], engine.tokenizer.encode("hello there.")[None]
    spoken = 41 / engine.config.audio.frame_rate
    unknown, known = (
        float(engine.duration(mel, text, prompt_tokens_B=k)[0]) for k in (None, np.array([3]))
    )
    wordless = float(engine.duration(mel, text, prompt_tokens_B=np.array([0]))[0])
    assert known == pytest.approx(unknown) and wordless == pytest.approx(unknown + spoken)


def test_a_speaker_reads_the_new_words_alone():
    engine = EchoEngine(upsampling="aligned")
    who = speaker(engine, ref_text=None)
    assert len(who.prompt.tokens) == 0 and who.prompt.rate == USUAL_PACE
    who.speak("hello there.")
    (call,) = engine.calls
    assert call["prompt"] == "" and call["text"].strip() == "hello there."
    assert call["start"] == len(speaker(engine).prompt.mel)


def test_words_in_a_writing_that_the_model_lacks_are_not_known_to_it(caplog):
    engine = EchoEngine(upsampling="aligned")
    assert len(speaker(engine, ref_text="Café, señor ж").prompt.tokens)
    assert "cannot read the reference's text" not in caplog.text
    for text in ("Доброе утро, друзья", "活字印刷の発明 2024"):
        who = speaker(engine, ref_text=text)
        assert len(who.prompt.tokens) == 0 and who.prompt.rate == USUAL_PACE
        assert "cannot read the reference's text" in caplog.text
        caplog.clear()


def test_a_model_that_lays_words_over_all_frames_needs_them(caplog):
    with pytest.raises(InputError, match="no text, only audio, and this model needs both"):
        speaker(EchoEngine(), ref_text=None)
    who = speaker(EchoEngine(), ref_text="Доброе утро, друзья")  # their length is told at least
    assert who.prompt.text_bytes > 30 and "are left unknown" not in caplog.text


def test_aligned_models_can_do_without_words():
    aligned = DiTConfig(text_upsampling="aligned")
    assert ModelConfig(dit=aligned).hears_alone and not ModelConfig().hears_alone
    assert ModelConfig(echo=tiny.SCALED).hears_alone  # which reads the new words alone


def test_speech_after_a_recording_without_words(tiny_aligned, engine_of, backend):
    """The whole way: a recording, its prompt, lengths, chunks, sound."""
    engine = engine_of(tiny_aligned, backend)
    who = Speaker(engine, ref_audio=sound(2.5), seed=1, options=OPTIONS)
    said = who.speak("hello there. general, how are you?")
    assert np.isfinite(said.wave).all() and 0.5 < len(said.wave) / RATE < 20
