"""Batches: nothing dropped to fit, few shapes, draws that depend on the sample alone."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import torch

from nanospeech.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.data import BatchPlan, SpeechBatches
from nanospeech_torch.flow import LossConfig

from .training import samples

TOKENIZER = Tokenizer("phonemes", phoneme_vocab())


def many(count: int) -> list[dict]:
    """Copies of the samples under keys of their own."""
    base = samples()
    return [{**base[i % len(base)], "__key__": f"{i:04d}"} for i in range(count)]


def epoch(count: int, plan: BatchPlan) -> list:
    stream = SpeechBatches(many(count), TOKENIZER, plan, cache_bytes=10**8)
    return list(islice((x for x in stream), len(list(stream.groups(Counter())))))


def test_an_epoch_holds_every_sample_once():
    loaded = epoch(23, BatchPlan(4, 700, 200))
    assert sum(len(x.texts) for x in loaded) == 23


def test_batches_keep_to_the_frame_cap_and_to_few_shapes():
    plan = BatchPlan(8, 700, 200, buckets=4)
    shapes = {tuple(x.batch.mel.shape[:2]) for x in epoch(23, plan)}
    assert all(b * n <= 700 for b, n in shapes)
    assert {n for _, n in shapes} <= {50, 100, 150, 200}


def test_draws_do_not_depend_on_the_company():
    alone, _ = SpeechBatches([], TOKENIZER, BatchPlan(1, 200, 200)), None
    items = [alone.describe(s, Counter()) for s in samples()]
    together, _ = alone.collate(items, 3, Counter())
    for i, item in enumerate(items):
        single, _ = alone.collate([item], 3, Counter())
        n = int(single.lens[0])
        assert n == together.lens[i]
        assert torch.equal(single.noise[0, :n], together.noise[i, :n])
        assert torch.equal(single.span[0, :n], together.span[i, :n])
        assert torch.equal(single.time[0], together.time[i])


def test_another_epoch_draws_anew():
    batches = SpeechBatches([], TOKENIZER, BatchPlan(1, 200, 200))
    item = batches.describe(samples()[0], Counter())
    first, second = (batches.collate([item], e, Counter())[0] for e in (0, 1))
    assert not torch.equal(first.noise, second.noise)


def test_padding_is_zero_and_spans_stay_inside():
    for loaded in epoch(9, BatchPlan(4, 800, 200)):
        b = loaded.batch
        past = torch.arange(b.mel.shape[1]) >= b.lens[:, None]
        assert not b.mel[past].any() and not b.span[past].any() and not b.noise[past].any()
        assert (b.text >= -1).all() and (b.prompt <= b.lens).all()


def test_some_known_words_are_spelled():
    batches = SpeechBatches([], TOKENIZER, BatchPlan(1, 200, 200))
    ids = [batches.encode("He said hello to them.", np.random.default_rng(i)) for i in range(40)]
    assert len({tuple(i) for i in ids}) > 3


def test_pairs_lose_no_sample_and_are_prompt_and_speech():
    plan, loss = BatchPlan(4, 1600, 400, buckets=4), LossConfig(pair=1.0)
    stream = SpeechBatches(many(9), TOKENIZER, plan, loss=loss, cache_bytes=10**8)
    items = [i for group in stream.groups(Counter()) for i in group]
    parts = [p["key"] for i in items for p in i.get("parts", [i])]
    assert sorted(parts) == sorted(s["__key__"] for s in many(9)) and len(items) == 5
    pair = next(i for i in items if "parts" in i)
    batch, texts = stream.collate([pair], 0, Counter())
    first, second = pair["parts"]
    assert texts == [f"{first['text']} {second['text']}"]
    assert batch.prompt[0] == len(stream.mel(first))
    assert batch.lens[0] == len(stream.mel(first)) + len(stream.mel(second))


def test_clips_of_unknown_speakers_are_not_paired():
    nameless = [{**s, "json": {**s["json"], "speaker": None}} for s in many(9)]
    stream = SpeechBatches(nameless, TOKENIZER, BatchPlan(4, 1600, 400), loss=LossConfig(pair=1.0))
    assert not any("parts" in i for group in stream.groups(Counter()) for i in group)
