"""Batches: nothing dropped to fit, few shapes, draws of the sample alone, exact places."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech.audio.mel import log_mel
from nanospeech.config import AudioConfig
from nanospeech.errors import DataError, InputError
from nanospeech.nanospeech_torch import list_str_to_vocab_tensor
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.speech import BatchPlan, Loaded, SpeechBatches, warped
from tests.train.shared import npy, wav_bytes
from tests.train.test_stream import write_tar
from tests.training import samples

TOKENIZER = Tokenizer("phonemes", phoneme_vocab())
DIGITS = partial(list_str_to_vocab_tensor, vocab={c: i for i, c in enumerate("0123456789 c")})
NARROW = AudioConfig(n_mels=4)


def many(count: int) -> list[dict]:
    """Copies of the samples under keys of their own."""
    base = samples()
    return [{**base[i % len(base)], "__key__": f"{i:04d}"} for i in range(count)]


def feature_shards(folder: Path, shards: int, each: int, bad: bool = False) -> list[str]:
    """Tars of random features of 20 to 60 frames; the text of clip 12 is "c0012"."""
    rng, paths = np.random.default_rng(0), []
    for s in range(shards):
        files = []
        for i in range(each + s):
            number = s * 100 + i
            meta = {"text": f"c{number:04d}", "speaker": f"{number % 3}"}
            if bad and i % 3 == 1:
                meta.pop("text")
            mel = rng.standard_normal((int(rng.integers(20, 61)), 4)).astype(np.float16)
            files += [(f"{number:04d}.npy", npy(mel))]
            files += [(f"{number:04d}.json", json.dumps(meta).encode())]
        paths.append(str(write_tar(folder / f"f{s:03d}.tar", files)))
    return paths


def features(paths, plan: BatchPlan | None = None, **options) -> SpeechBatches:
    plan = plan or BatchPlan(3, 400, 130, buckets=4)
    options = {"shuffle_buffer": 5, "seed": 1, **options}
    return SpeechBatches(paths, DIGITS, plan, NARROW, **options)


def clips(loaded: Loaded) -> list[str]:
    return [c for text in loaded.texts for c in re.findall(r"c\d+", text)]


def until(batches: SpeechBatches, epochs: int) -> list[Loaded]:
    """Everything of the first epochs."""
    out = []
    for loaded in batches:
        out.append(loaded)
        if loaded.epoch_ended is not None and loaded.epoch_ended >= epochs - 1:
            return out
    raise AssertionError


def same(one: Loaded, two: Loaded) -> bool:
    if (one.batch is None) != (two.batch is None) or one.texts != two.texts:
        return False
    alike = (one.skipped, one.epoch_ended, one.place) == (two.skipped, two.epoch_ended, two.place)
    pairs = [] if one.batch is None else zip(vars(one.batch).values(), vars(two.batch).values())
    return alike and all(torch.equal(a, b) for a, b in pairs)


def epoch(count: int, plan: BatchPlan) -> list[Loaded]:
    return until(SpeechBatches(many(count), TOKENIZER, plan, cache_bytes=10**8), 1)


def test_an_epoch_holds_every_sample_once():
    loaded = epoch(23, BatchPlan(4, 700, 200))
    assert sum(len(x.texts) for x in loaded) >= 12
    assert len(loaded[-1].place.pending()) == 0
    single = SpeechBatches(
        many(23), TOKENIZER, BatchPlan(4, 700, 200), loss=LossConfig(pair=0.0), cache_bytes=10**8
    )
    assert sum(len(x.texts) for x in until(single, 1)) == 23


def test_batches_keep_to_the_frame_cap_and_to_few_shapes():
    plan = BatchPlan(8, 700, 200, buckets=4)
    loaded = epoch(23, plan)
    assert all(b.batch.mel.shape[0] * b.batch.mel.shape[1] <= 700 for b in loaded)
    shapes = {(b.batch.mel.shape[1], b.batch.text.shape[1]) for b in loaded}
    assert shapes <= set(plan.shapes()) and len(plan.shapes()) <= 3 * 4
    assert {n for n, _ in plan.shapes()} == {50, 100, 150, 200}


def test_padded_lengths_are_whole_tiles_of_a_gpu():
    plan = BatchPlan(8, 700, 200, buckets=4, multiple=16)
    loaded = epoch(23, plan)
    shapes = {(b.batch.mel.shape[1], b.batch.text.shape[1]) for b in loaded}
    assert shapes <= set(plan.shapes()) and {n for n, _ in plan.shapes()} == {64, 112, 160, 208}
    assert [len(b.texts) for b in loaded] == [
        len(b.texts) for b in epoch(23, BatchPlan(8, 700, 200, 4))
    ]


@pytest.mark.parametrize("longest", [40, 200, 937, 3000])
def test_every_text_that_is_allowed_fits_a_width(longest):
    plan = BatchPlan(8, 10 * longest, longest)
    for frames in range(plan.min_duration, longest + 1):
        assert frames // 2 <= plan.text_widths(plan.bucket(frames))[-1]
        assert plan.bucket(frames) >= frames


def test_carried_batches_are_all_full_and_none_is_left_out(tmp_path):
    plan = BatchPlan(3, 400, 130, buckets=4, carry=True)
    loaded = until(features(feature_shards(tmp_path, 2, 9), plan), 6)
    for x in loaded:
        assert len(x.texts) == plan.capacity(x.batch.mel.shape[1])
    used = Counter(c for x in loaded for c in clips(x))
    waiting = len(loaded[-1].place.waiting)
    assert len(used) == 19 and sum(used.values()) + waiting == 6 * 19 and max(used.values()) == 6


def test_carrying_ends_where_there_is_too_little_for_a_batch(tmp_path):
    plan = BatchPlan(64, 10_000, 130, buckets=1, carry=True)
    loaded = list(islice(features(feature_shards(tmp_path, 1, 5), plan), 4))
    assert [x.epoch_ended for x in loaded] == [0, 1, 2, 3]
    assert all(len(clips(x)) == 5 for x in loaded)


def test_draws_do_not_depend_on_the_rest_of_the_batch():
    alone = SpeechBatches([], TOKENIZER, BatchPlan(1, 200, 200))
    items = [item for s in samples() if (item := alone.describe(s, Counter()))]
    together, _ = alone.collate(items, 3, Counter())
    assert together is not None and len(items) == len(samples())
    for i, item in enumerate(items):
        single, _ = alone.collate([item], 3, Counter())
        assert single is not None
        n = int(single.lens[0])
        assert n == together.lens[i]
        assert torch.equal(single.noise[0, :n], together.noise[i, :n])
        assert torch.equal(single.span[0, :n], together.span[i, :n])
        assert torch.equal(single.time[0], together.time[i])


def test_another_epoch_draws_anew():
    batches = SpeechBatches([], TOKENIZER, BatchPlan(1, 200, 200))
    item = batches.describe(samples()[0], Counter())
    assert item is not None
    first, second = (batches.collate([item], e, Counter())[0] for e in (0, 1))
    assert first is not None and second is not None
    assert not torch.equal(first.noise, second.noise)


def test_keys_that_restart_in_each_shard_share_no_draws(tmp_path):
    meta = json.dumps({"text": "c1", "speaker": "x"}).encode()
    mel, paths = npy(np.zeros((40, 4), np.float16)), []
    for s in range(50):
        files = [(f"{i}.{k}", d) for i in range(20) for k, d in (("npy", mel), ("json", meta))]
        paths.append(write_tar(tmp_path / f"{s:02d}.tar", files))
    loaded = until(features(paths, loss=LossConfig(pair=0.0)), 1)
    for name in ("time", "noise"):
        values = torch.cat([getattr(x.batch, name) for x in loaded])
        assert len(values) == len(values.unique(dim=0)) == 1000
    stream = features(paths, loss=LossConfig(pair=0.5))
    twins = [
        [stream.describe_sample((0, s, i), sample) for i, sample in stream.source.open(s)]
        for s in range(8)
    ]
    assert all(len({item["key"] for item in column}) == 1 for column in zip(*twins))
    chosen = np.array([[stream.paired(item) for item in row if item] for row in twins])
    assert 40 < chosen.sum() < 120 and chosen.any(0).mean() > 0.9 > 0.1 > chosen.all(0).mean()


def test_padding_is_zero_and_spans_stay_inside():
    for loaded in epoch(9, BatchPlan(4, 800, 200)):
        b = loaded.batch
        past = torch.arange(b.mel.shape[1]) >= b.lens[:, None]
        assert not b.mel[past].any() and not b.span[past].any() and not b.noise[past].any()
        assert (b.text >= -1).all() and (b.prompt <= b.lens).all()
        assert loaded.frames == b.lens.sum()


def test_some_known_words_are_spelled():
    batches = SpeechBatches([], TOKENIZER, BatchPlan(1, 200, 200))
    ids = [batches.encode("He said hello to them.", np.random.default_rng(i)) for i in range(40)]
    assert len({tuple(i) for i in ids}) > 3


def test_pairs_lose_no_sample_and_are_prompt_and_speech(tmp_path):
    stream = features(feature_shards(tmp_path, 1, 11), loss=LossConfig(pair=1.0))
    loaded = until(stream, 1)
    assert sorted(c for x in loaded for c in clips(x)) == [f"c{i:04d}" for i in range(11)]
    lengths = {s["__key__"]: len(np.load(io.BytesIO(s["npy"]))) for _, s in stream.source.open(0)}
    for x in loaded:
        for i, text in enumerate(x.texts):
            parts = [lengths[key] for key in re.findall(r"\d+", text)]
            assert x.batch.lens[i] == sum(parts)
            assert len(parts) == 1 or x.batch.prompt[i] == parts[0]
    assert sum(" " in text for x in loaded for text in x.texts) == 5  # of 4, 4 and 3 clips


def test_warped_mels_are_those_of_higher_and_lower_voices():
    time = np.arange(24_000) / 24_000
    for tone, stretch in ((500, 1.2), (2000, 0.85), (6000, 1.1)):
        mel, wanted = (log_mel(np.sin(2 * np.pi * f * time)) for f in (tone, tone * stretch))
        found = warped(mel, stretch, 24_000)
        assert found.shape == mel.shape and found.dtype == mel.dtype
        assert abs(int(found[40].argmax()) - int(wanted[40].argmax())) <= 1
        assert abs(int(found[40].argmax()) - int(mel[40].argmax())) > 1
    assert np.array_equal(warped(mel, 1.0, 24_000), mel)


def test_half_of_the_clips_are_warped_always_alike():
    def mels(**loss) -> list[torch.Tensor]:
        stream = SpeechBatches(
            many(40), TOKENIZER, BatchPlan(4, 1600, 400), loss=LossConfig(pair=0.0, **loss)
        )
        return [mel for x in until(stream, 1) for mel in x.batch.mel]

    plain, warped_, again = mels(), mels(warp=0.2), mels(warp=0.2)
    changed = sum(not torch.equal(a, b) for a, b in zip(plain, warped_))
    assert len(plain) == len(warped_) == 40 and 10 < changed < 30
    assert all(torch.equal(a, b) for a, b in zip(warped_, again))
    with pytest.raises(InputError, match=r"loss\.warp"):
        LossConfig(warp=2.0)


def test_clips_of_unknown_speakers_are_not_paired():
    nameless = [{**s, "json": {**s["json"], "speaker": None}} for s in many(9)]
    stream = SpeechBatches(nameless, TOKENIZER, BatchPlan(4, 1600, 400), loss=LossConfig(pair=1.0))
    assert sum(len(x.texts) for x in until(stream, 1)) == 9


def wav(wave: np.ndarray, rate: int = 24_000, kind: str = "PCM_16") -> dict:
    return {"bytes": wav_bytes(wave, rate, kind)}


def test_what_cannot_be_used_is_counted_by_reason(tmp_path):
    tone = np.sin(np.arange(36_000) / 30).astype(np.float32)
    hole = tone.copy()
    hole[5] = np.nan
    mp3 = samples()[0]["mp3"]["bytes"]
    head = npy(np.zeros((50, 100), np.float16))
    bad = {
        "without text": [{"json": {"duration": 1.5}, "wav": wav(tone)}, {"json": {"text": [1]}}],
        "unreadable JSON": [{"json": b"{", "wav": wav(tone)}, {"json": b"[1]"}],
        "without audio": [{"json": {"text": "a"}}],
        "invalid duration": [{"json": {"text": "a", "duration": "NaN"}, "wav": wav(tone)}],
        "unreadable audio": [
            {"json": {"text": "a"}, "mp3": b"no mp3"},
            {"json": {"text": "a", "duration": 1.5}, "mp3": {"bytes": b"no mp3"}},
        ],
        "wrong rate": [
            {"json": {"text": "a", "sample_rate": 16_000}, "wav": wav(tone)},
            {"json": {"text": "a"}, "wav": wav(tone[:6000], 4000)},
        ],
        "not finite": [
            {"json": {"text": "a"}, "wav": wav(hole, kind="FLOAT")},
            {"json": {"text": "a"}, "npy": npy(np.full((50, 100), np.inf))},
        ],
        "too short": [{"json": {"text": "a"}, "wav": wav(tone[:2400])}],
        "too long": [{"json": {"text": "a", "duration": 60}, "wav": wav(tone)}],
        "wrong duration": [
            {"json": {"text": "a", "duration": 1.0}, "wav": wav(tone)},
            {"json": {"text": "a", "duration": 1.7617}, "mp3": mp3[: len(mp3) // 2]},
            {"json": {"text": "a", "target_duration": 1.0}, "npy": head},
        ],
        "more text than sound": [{"json": {"text": "a " * 90}, "wav": wav(tone)}],
        "unreadable features": [
            {"json": {"text": "a"}, "npy": head[:-1]},
            {"json": {"text": "a"}, "npy": npy(np.array([{}], object))},
            {"json": {"text": "a"}, "npy": head.replace(b"(50, 100)", b"(50,9999)")},
            {"json": {"text": "a"}, "npy": head.replace(b"(50, 100)", b"(50, 100 ")},
        ],
        "features of another shape": [{"json": {"text": "a"}, "npy": npy(np.zeros((50, 80)))}],
    }
    want = {why: len(several) for why, several in bad.items()}
    data = [{**s, "__key__": why} for why, several in bad.items() for s in several]
    good = [{"json": {"text": "a", "sample_rate": 16_000}, "wav": wav(tone[:20_000], 16_000)}]
    plan = BatchPlan(4, 800, 200)
    loaded = until(SpeechBatches([*data, *good, *samples()], TOKENIZER, plan), 1)
    assert sum((x.skipped for x in loaded), Counter()) == want
    assert sum(len(x.batch.lens) for x in loaded) in (3, 4, 5)  # 5 clips, some of them pairs
    with pytest.raises(DataError, match="3 wrong duration") as e:
        next(iter(SpeechBatches(data, TOKENIZER, plan)))
    assert all(f"{n} {why}" in str(e.value) for why, n in want.items())
