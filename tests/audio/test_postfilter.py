"""The postfilter's laws: what it leaves, what it takes away, what it makes stronger."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech.audio.postfilter import postfilter
from nanospeech.config import PostfilterConfig, SampleOptions
from nanospeech.errors import InputError
from nanospeech.release.prompt import Prompt
from nanospeech.speech.chunks import Chunk, sample


@pytest.fixture
def mel():
    frames, bands = np.arange(40)[:, None], np.arange(100)[None]
    formants = np.exp(-0.5 * ((bands - 30 - 0.2 * frames) / 4) ** 2) * 3
    return (formants - 6).astype(np.float32)


def test_none_and_zero_leave_the_mel_as_it_is(mel):
    assert postfilter(mel, None) is mel
    np.testing.assert_array_equal(postfilter(mel, PostfilterConfig()), mel)
    assert postfilter(mel[:0], PostfilterConfig(0.25, 1)).shape == (0, 100)


def test_what_is_constant_stays(mel):
    flat = np.full_like(mel, -4)
    np.testing.assert_allclose(postfilter(flat, PostfilterConfig(0.25, 0.6)), flat, atol=1e-5)
    still = np.repeat(mel[:1], 40, 0)
    np.testing.assert_allclose(postfilter(still, PostfilterConfig(0.25, 0)), still, atol=1e-5)


def test_a_quarter_from_each_neighbour_ends_flicker_within_patches(mel):
    flicker = np.where(np.arange(len(mel)) % 2, 0.5, -0.5)[:, None].astype(np.float32)
    calm = postfilter(mel, PostfilterConfig(smooth=0.25))
    cured = postfilter(mel + flicker, PostfilterConfig(smooth=0.25))
    np.testing.assert_allclose(cured[1:-1], calm[1:-1], atol=1e-5)


def test_sharpening_lifts_formants_and_keeps_the_mean(mel):
    sharp = postfilter(mel, PostfilterConfig(sharpen=0.6))
    assert (sharp.max(1) > mel.max(1) + 0.1).all()
    np.testing.assert_array_equal(sharp.argmax(1), mel.argmax(1))
    np.testing.assert_allclose(sharp.mean(1), mel.mean(1), atol=1e-4)
    rolled = np.roll(mel, -30, 1)  # formants at both ends of the bands
    kept = postfilter(rolled, PostfilterConfig(sharpen=0.6)).mean(1)
    np.testing.assert_allclose(kept, rolled.mean(1), atol=1e-4)
    assert sharp.dtype == np.float32


def test_the_blur_is_a_gaussian_of_two_bands_and_the_ends_are_followed_by_themselves():
    mel = np.random.default_rng(0).standard_normal((5, 30)).astype(np.float32)
    frames = [max(min(n, 4), 0) for n in range(-1, 6)]
    smooth = mel + 0.2 * np.array(
        [mel[a] - 2 * mel[b] + mel[c] for a, b, c in zip(frames, frames[1:], frames[2:])]
    )
    near = range(-6, 7)
    weights = np.exp([-0.5 * (k / 2) ** 2 for k in near])
    bands = [*range(6)][::-1] + [*range(30)] + [*range(24, 30)][::-1]  # mirrored
    blurred = sum(
        w * smooth[:, bands[6 + k : 36 + k]] for w, k in zip(weights / weights.sum(), near)
    )
    wanted = smooth + 0.7 * (smooth - blurred)
    found = postfilter(mel, PostfilterConfig(smooth=0.2, sharpen=0.7))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_impossible_strengths_are_refused():
    with pytest.raises(InputError, match=r"smooth is 0\.6"):
        PostfilterConfig(smooth=0.6)
    with pytest.raises(InputError, match=r"sharpen is -1"):
        PostfilterConfig(sharpen=-1)


def test_a_model_speaks_through_its_own(tiny_aligned, backend, tmp_path):
    from convert import convert
    from nanospeech import SampleOptions, Speaker, load_engine
    from nanospeech.speech import chunks as speech

    folder = tmp_path / "clear"
    config = convert(tiny_aligned, folder, dtype="float32", smooth=0.25, sharpen=0.5)
    assert config.postfilter == PostfilterConfig(0.25, 0.5)
    mels = []
    for model in (tiny_aligned, folder):
        engine = load_engine(model, backend, "cpu", "float32")
        voice = Speaker(engine, options=SampleOptions(steps=2), seed=1)
        chunk = voice.chunk("Hello there.", 1)
        mels += speech.sample(engine, voice.prompt, [chunk], voice.options)
    np.testing.assert_allclose(mels[1], postfilter(mels[0], config.postfilter), atol=2e-3)
    assert np.abs(mels[1] - mels[0]).max() > 0.1


def test_new_speech_is_filtered_by_itself_in_a_batch():
    """Neither the prompt's last frame nor the padding is smoothed into it."""
    rng, config = np.random.default_rng(0), PostfilterConfig(0.25, 0.6)
    mels = rng.standard_normal((2, 12, 100)).astype(np.float32)
    engine = SimpleNamespace(
        config=SimpleNamespace(echo=None, audio=SimpleNamespace(n_mels=100), postfilter=config),
        sample=lambda *args, **more: mels,
    )
    token = np.array([1])
    prompt = Prompt(np.zeros((4, 100), np.float32), token, 15.0, 1.0)
    chunks = [Chunk("a", token, 8, 1), Chunk("b", token, 6, 2)]
    long, short = sample(engine, prompt, chunks, SampleOptions())
    np.testing.assert_array_equal(long, postfilter(mels[0, 4:], config))
    np.testing.assert_array_equal(short, postfilter(mels[1, 4:10], config))
