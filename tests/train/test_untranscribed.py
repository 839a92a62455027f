"""Untranscribed: clips without a text, from which a voice is learned and no words."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech.errors import DataError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.durations import DurationBatches
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from tests.train.shared import npy
from tests.train.test_data import DIGITS, NARROW, features, until
from tests.train.test_flow import VARIANTS
from tests.train.test_stream import write_tar
from tests.training import samples, speech_model

LOSS = LossConfig(pair=1.0, untranscribed=True)


def shard(folder: Path, texts: list[dict], frames: int = 40) -> list[str]:
    """Clips of one speaker; the n-th mel is n everywhere."""
    files = []
    for n, text in enumerate(texts, start=1):
        mel = np.full((frames, 4), n, np.float16)
        files += [(f"{n}.npy", npy(mel))]
        files += [(f"{n}.json", json.dumps({"speaker": "x", **text}).encode())]
    return [str(write_tar(folder / "u.tar", files))]


@pytest.mark.parametrize("text", [{}, {"text": ""}, {"text": None}])
def test_a_clip_without_a_text_is_used_where_it_is_asked_for(tmp_path, text):
    paths = shard(tmp_path, [text] * 8)
    with pytest.raises(DataError, match="8 without text"):
        until(features(paths, loss=replace(LOSS, untranscribed=False)), 1)
    for b in (x.batch for x in until(features(paths, loss=LOSS), 1)):
        assert (b.text < 0).all() and b.lens.eq(80).all() and b.prompt.eq(40).all()
        assert not b.span[:, :40].any() and b.span[:, 40:80].any(1).all()
    alone = until(features(paths, loss=replace(LOSS, pair=0.0)), 1)
    assert sum(len(x.texts) for x in alone) == 8
    assert all(x.batch.lens.eq(40).all() and (x.batch.text < 0).all() for x in alone)


@pytest.mark.parametrize("text", [{"text": " "}, {"text": []}, {"text": False}])
def test_a_text_that_is_none_is_a_mistake_of_the_data(tmp_path, text):
    with pytest.raises(DataError, match="4 without text"):
        until(features(shard(tmp_path, [text] * 4), loss=LOSS), 1)


def test_a_clip_without_a_text_is_the_prompt_of_one_with_a_text(tmp_path):
    """Never what follows: the words of the first would be read over both."""
    texts = [{"text": f"c{n}"} if n % 2 else {} for n in range(1, 41)]
    mixed = 0
    for b in (x.batch for x in until(features(shard(tmp_path, texts), loss=LOSS), 2)):
        for mel, text, wordless, n in zip(b.mel, b.text, b.wordless, b.lens):
            clips = [int(mel[0, 0]), int(mel[40, 0])] if n == 80 else [int(mel[0, 0])]
            transcribed = [c % 2 == 1 for c in clips]
            if transcribed == [False, True]:
                mixed += 1
                assert wordless == 40 and len(text[text >= 0]) == 1 + len(str(clips[1]))
            assert transcribed != [True, False]
            assert bool((text >= 0).any()) == any(transcribed)
    assert mixed > 10


def test_a_duration_model_leaves_them_out(tmp_path):
    paths = shard(tmp_path, [{}] * 4)
    with pytest.raises(DataError, match="4 without text"):
        until(DurationBatches(paths, DIGITS, BatchPlan(3, 400, 130, buckets=4), NARROW, LOSS), 1)


@pytest.mark.parametrize(("upsampling", "patch"), VARIANTS)
def test_they_are_learned_without_words_and_their_neighbours_as_before(upsampling, patch):
    model = speech_model(text_upsampling=upsampling, patch_size=patch, adaln_zero=False).eval()
    loss = LossConfig(untranscribed=True, drop_audio=0, drop_both=0)
    plan = BatchPlan(4, 720, 180, buckets=1)
    batches = SpeechBatches([], model.tokenizer, plan, model.audio, loss)
    items = [item for s in samples() if (item := batches.describe(s, Counter()))]
    mute = [{**item, "text": ""} for item in items]

    def batch_of(chosen: list):
        found = batches.collate(chosen, 0, Counter())[0]
        assert found is not None
        return found

    words, both, silent = batch_of(items), batch_of([items[0], *mute[1:]]), batch_of(mute)
    with torch.no_grad():
        first = replace(words, span=words.span & (torch.arange(len(items)) == 0)[:, None])
        again = replace(both, span=first.span)
        assert float(model(again)["flow"][0]) == pytest.approx(float(model(first)["flow"][0]))
        dropped = replace(words, drop_text=torch.ones_like(words.drop_text))
        if upsampling != "none":  # whose text blocks see how long a dropped text was
            want = float(model(dropped)["flow"][0])
            assert float(model(silent)["flow"][0]) == pytest.approx(want, rel=1e-5)
        sums = model(silent)
        others = [pair for name, pair in sums.items() if name != "flow"]
        assert all(float(total) == int(count) == 0 for total, count in others)
        for batch in (words, both, silent):
            found, counted = model(batch), model.counts(batch)
            assert {k: int(n) for k, (_, n) in found.items()} == {
                k: int(n) for k, n in counted.items()
            }
    model.train()
    total = sum(value for value, _ in model(silent).values())
    total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
