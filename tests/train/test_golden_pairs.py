"""Golden batches of pairs: prompt and new speech as a duration model meets them; bent mels."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from nanospeech.audio.mel import to_hertz, to_mels
from nanospeech.config import AudioConfig
from nanospeech.errors import DataError, InputError
from nanospeech.nanospeech_torch import list_str_to_vocab_tensor
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.durations import DurationBatches
from nanospeech_torch.train.data.heard import coloured, quiet_start, stretched
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches, warped
from tests.train.shared import npy
from tests.train.test_golden_data import epoch

BANDS, QUIET = 4, -9.0
VOCAB = {c: i for i, c in enumerate("0123456789c .")}
TOKENIZER = partial(list_str_to_vocab_tensor, vocab=VOCAB)
NARROW = AudioConfig(n_mels=BANDS)
PLAN = BatchPlan(8, 10_000, 90, buckets=1, text_multiple=1)


def clips(count: int, speaker: str | None = "one") -> tuple[list[dict], dict]:
    """Clips c000, c001, … of 24 to 34 frames, of which the first 2 to 6 are quiet."""
    rng, out, mels = np.random.default_rng(0), [], {}
    for i in range(count):
        text, mel = f"c{i:03d}", rng.uniform(-2, 0, (24 + i % 11, BANDS))
        mel[: 2 + i % 5] += QUIET
        mels[text] = mel.astype(np.float16)
        meta = {"text": text, "speaker": speaker}
        out.append({"__key__": text, "npy": npy(mels[text]), "json": meta})
    return out, mels


def items(batches) -> list[tuple]:
    """Text and each item's row of the batch, of the first epoch."""
    found = []
    for loaded in epoch(batches):
        assert all(len(v) == len(loaded.texts) for v in vars(loaded.batch).values())
        rows = zip(*(v.numpy() for v in vars(loaded.batch).values()))
        names = list(vars(loaded.batch))
        found += [(t, dict(zip(names, row))) for t, row in zip(loaded.texts, rows)]
    return found


def test_a_duration_model_hears_a_prompt_up_to_the_new_sound():
    """Its pace is that of the recording in half of the pairs, else up to e^0.15 off."""
    data, mels = clips(400)
    paces = []
    for text, row in items(
        DurationBatches(data, TOKENIZER, PLAN, NARROW, LossConfig(pair=1.0), edge=" ")
    ):
        one, two = text.split()
        read = [VOCAB[c] for c in f" {one}. {two} "]  # a prompt ends as a sentence
        assert row["text"][: len(read)].tolist() == read and (row["text"][len(read) :] < 0).all()
        assert row["known"] == len(f" {one}. ")
        both = np.concatenate([mels[one], mels[two]]).astype(np.float32)
        prompt = len(mels[one]) + 2 + int(two[1:]) % 5  # with the silence before the second
        heard = int(row["prompt"])
        assert not row["mel"][heard:].any()
        ends = row["mel"][[0, heard - 1]]
        assert np.allclose(ends, both[[0, prompt - 1]], atol=2e-2)
        pace = heard / prompt
        assert row["lens"] == pytest.approx(len(both) * pace, abs=1.5)
        if pace == 1:
            assert np.array_equal(row["mel"][:heard], both[:prompt]) and row["lens"] == len(both)
        paces.append(pace)
    paces = np.array(paces)
    assert len(paces) == 200 and np.exp(-0.15) - 0.02 < paces.min() and paces.max() < 1.18
    assert (paces < 0.9).any() and (paces > 1.1).any()
    assert (paces == 1).mean() == pytest.approx(0.5, abs=0.15)


def test_pairs_are_not_slowed_beyond_the_longest_sample():
    data, mels = clips(300)
    plan = BatchPlan(8, 10_000, 60, buckets=1, text_multiple=1)
    for text, row in items(DurationBatches(data, TOKENIZER, plan, NARROW, LossConfig(pair=1.0))):
        frames = sum(len(mels[t]) for t in text.split())
        assert np.exp(-0.16) * frames - 1 < row["lens"] <= min(60, np.exp(0.16) * frames + 1)


def test_a_single_clip_is_its_own_prompt():
    data, mels = clips(200, speaker=None)
    shares = []
    for text, row in items(DurationBatches(data, TOKENIZER, PLAN, NARROW, LossConfig(pair=1.0))):
        assert row["known"] == 0 and row["text"][:4].tolist() == [VOCAB[c] for c in text]
        shares.append(row["prompt"] / row["lens"])
        assert 0 < row["prompt"] < row["lens"]
        assert np.exp(-0.15) - 0.05 < row["lens"] / len(mels[text]) < np.exp(0.15) + 0.05
    assert 0.07 < min(shares) < 0.2 and 0.8 < max(shares) < 0.94


@pytest.mark.parametrize("carry", [False, True])
def test_shapes_of_prompts_are_few_where_they_are_to_be(carry):
    data, _ = clips(64)
    plan = BatchPlan(4, 10_000, 90, buckets=3, text_multiple=4, carry=carry)
    shapes = set()
    for loaded in epoch(DurationBatches(data, TOKENIZER, plan, NARROW, LossConfig(pair=1.0))):
        b = loaded.batch
        assert b.mel.shape[1] >= b.prompt.max() and len(b.mel) == len(b.text) == len(b.lens)
        said = [len(text) + (" " in text) for text in loaded.texts]
        assert (b.text >= 0).sum(1).tolist() == said  # a stop ends the prompt
        assert b.text.min() >= -1  # padding is -1, which is no token of any vocabulary
        shapes.add((b.mel.shape[1], b.text.shape[1]))
    assert (shapes <= set(plan.shapes())) == carry


def test_texts_of_up_to_half_the_frames_are_read():
    def used(frames: int, tokens: int, kind=SpeechBatches) -> bool:
        sample = {"npy": npy(np.ones((frames, BANDS), np.float16)), "text": "0" * tokens}
        try:
            return epoch(kind([sample], TOKENIZER, PLAN, NARROW))[0].batch is not None
        except DataError as e:
            assert "1 more text than sound" in str(e)
            return False

    tight = BatchPlan(1, 20, 20, buckets=1, text_multiple=1, carry=True)
    sample = {"npy": npy(np.ones((20, BANDS), np.float16)), "text": "0" * 10}
    for kind in (SpeechBatches, DurationBatches):
        assert next(iter(kind([sample], TOKENIZER, tight, NARROW))).batch.text.shape == (1, 10)
        assert used(20, 10, kind) and not used(20, 11, kind) and not used(21, 11, kind)
        assert used(21, 10, kind) and used(20, 1, kind)


def test_a_text_without_tokens_is_counted():
    sample = {"npy": npy(np.ones((30, BANDS), np.float16)), "text": "?"}
    for kind in (SpeechBatches, DurationBatches):
        with pytest.raises(DataError, match="1 more text than sound"):
            next(iter(kind([sample], lambda texts: np.full((1, 3), -1), PLAN, NARROW)))


def test_a_text_that_cannot_be_read_is_counted():
    def tokenizer(texts):
        raise InputError("no such characters")

    sample = {"npy": npy(np.ones((30, BANDS), np.float16)), "text": "?"}
    for kind in (SpeechBatches, DurationBatches):
        with pytest.raises(DataError, match=": 1 unusable text"):
            next(iter(kind([sample], tokenizer, PLAN, NARROW)))


def test_warped_voices_stay_within_the_share_that_is_asked():
    audio, band = AudioConfig(), 60
    mel = np.full((30, 100), -9, np.float16)
    mel[:, band] = 0
    data = [{"__key__": f"{i}", "npy": npy(mel), "text": "c", "speaker": None} for i in range(300)]
    plan = BatchPlan(50, 10_000, 40, buckets=1)
    hertz = to_hertz(np.linspace(0, to_mels(12_000), 102)[1:-1])
    found = []
    for _, row in items(SpeechBatches(data, TOKENIZER, plan, audio, LossConfig(warp=0.2))):
        found.append(hertz[row["mel"][0].argmax()] / hertz[band])
    found = np.array(found)
    step = hertz[band + 1] / hertz[band] - 1
    assert 1 / (1.2 + step) < found.min() < 0.9 and 1.1 < found.max() < 1.2 + step
    assert 0.4 < (found != 1).mean() < 0.6


def test_warped_bands_are_those_of_the_other_voice():
    """What is heard at f now was at f / stretch; bands are even on the HTK scale up to 12 kHz."""
    places = np.arange(100, dtype=np.float32)[None]
    top = 2595 * np.log10(1 + 12_000 / 700)
    hertz = 700 * (10 ** ((places[0] + 1) / 101 * top / 2595) - 1)
    for stretch in (0.8, 1.0, 1.25):
        was = 2595 * np.log10(1 + hertz / stretch / 700) / top * 101 - 1
        assert np.allclose(warped(places, stretch, 24_000)[0], np.clip(was, 0, 99), atol=1e-3)


def test_the_shortest_span_is_a_frame():
    data, _ = clips(20)
    loss = LossConfig(min_span=0.0, max_span=0.0, pair=0.0)
    rows = items(SpeechBatches(data, TOKENIZER, PLAN, NARROW, loss))
    assert [row["span"].sum() for _, row in rows] == [1] * 20
    whole = LossConfig(min_span=1.0, max_span=1.0, pair=0.0)
    for _, row in items(SpeechBatches(data, TOKENIZER, PLAN, NARROW, whole)):
        assert row["span"].sum() == row["lens"]


def test_coloured_mels_have_one_smooth_curve_added():
    rng = np.random.default_rng(0)
    mel = rng.standard_normal((7, 100))
    curves = []
    for _ in range(2000):
        added = coloured(mel, 0.4, rng) - mel
        assert np.allclose(added, added[0], atol=1e-12) and abs(added[0].mean()) < 1e-12
        curves.append(added[0])
    place = (np.arange(100) + 0.5) / 100
    for k in range(1, 9):  # 0.4 / k nats of the k-th cosine, none beyond the sixth
        weights = np.array(curves) @ np.cos(np.pi * k * place) / 50
        wanted = 0.4 / k if k <= 6 else 0
        assert weights.std() == pytest.approx(wanted, rel=0.08, abs=1e-9)


def test_half_of_the_pairs_are_coloured_prompt_and_all():
    mel = np.ones((30, 100), np.float16)
    data = [
        {"__key__": f"{i}", "npy": npy(mel), "text": "c", "speaker": f"{i % 40}"}
        for i in range(240)
    ]
    plan = BatchPlan(50, 10_000, 80, buckets=1)
    loss, found = LossConfig(colour=0.4, pair=1.0), []
    for _, row in items(SpeechBatches(data, TOKENIZER, plan, AudioConfig(), loss)):
        added = row["mel"][: int(row["lens"])] - 1
        assert np.allclose(added, added[0], atol=2e-3)
        found.append((len(added), bool(np.abs(added).max() > 0.01)))
    assert any(length == 60 for length, _ in found)
    assert 0.4 < np.mean([touched for _, touched in found]) < 0.6


def test_warped_mels_repeat_their_outer_bands():
    mel = np.arange(100, dtype=np.float32)[None]
    for stretch in (0.7, 0.85, 1.2, 1.5):
        found = warped(mel, stretch, 24_000)
        assert found.min() >= 0 and found.max() <= 99 and (np.diff(found) >= 0).all()
    assert warped(mel, 0.7, 24_000)[0, -1] == 99 and warped(mel, 1.5, 24_000)[0, 0] == 0


def test_pairs_that_turn_out_too_long_stay_single():
    """What metadata says and what is decoded differ: a codec pads."""
    data, mels = clips(40)
    for sample in data:
        sample["json"] = {**sample["json"], "duration": 20 / 93.75}
    longest = 55
    plan = BatchPlan(4, 10_000, longest, buckets=1, text_multiple=1)
    batches = SpeechBatches(data, TOKENIZER, plan, NARROW, LossConfig(pair=1.0))
    found = items(batches)
    assert sorted(" ".join(t for t, _ in found).split()) == sorted(mels)
    for text, row in found:
        assert row["lens"] == sum(len(mels[t]) for t in text.split()) <= longest
    assert {len(t.split()) for t, _ in found} == {1, 2}


@pytest.mark.parametrize("frames", [1, 2, 3, 17])
@pytest.mark.parametrize("pace", [0.01, 0.5, 0.86, 1.0, 1.16, 2.0, 3.7])
def test_another_pace_is_a_line_through_the_frames(frames, pace):
    mel = np.random.default_rng(0).standard_normal((frames, BANDS)).astype(np.float32)
    found, count = stretched(mel, pace), max(1, round(frames * pace))
    at = np.linspace(0, frames - 1, count)
    want = np.stack([np.interp(at, np.arange(frames), band) for band in mel.T], 1)
    assert found.dtype == mel.dtype and found.shape == want.shape
    assert np.allclose(found, want, atol=1e-5)
    assert pace != 1 or found is mel


def test_sound_begins_within_35_decibels_of_the_loudest():
    """Those are 4 nats of the amplitude, of the mean over the bands."""
    mel = np.zeros((6, BANDS), np.float16)
    mel[0], mel[1], mel[2, ::2], mel[3] = -4.6, -4.0, -7.0, -5.0  # 2: -3.5 in the mean
    assert quiet_start(mel) == 2 and quiet_start(mel[3:]) == 1 and quiet_start(mel[4:]) == 0
    assert quiet_start(mel[1:2]) == quiet_start(np.stack([mel[3], mel[4] - 1.5])) == 0


@pytest.mark.parametrize(("first", "read"), [("c 1", "c 1."), ("c1.", "c1."), ("1 .", "1 .")])
def test_a_prompt_ends_with_a_stop_but_not_with_two(first, read):
    mel = npy(np.zeros((30, BANDS), np.float16))
    meta = [{"text": text, "speaker": "x"} for text in (first, first)]
    data = [{"__key__": f"{n}", "npy": mel, "json": m} for n, m in enumerate(meta)]
    [(_, row)] = items(DurationBatches(data, TOKENIZER, PLAN, NARROW, LossConfig(pair=1.0)))
    both = [VOCAB[c] for c in f"{read} {first}"]
    assert row["text"].tolist() == both and row["known"] == len(read) + 1


@pytest.mark.parametrize("kind", [SpeechBatches, DurationBatches])
def test_lengths_are_kept_from_the_least_to_the_most(kind):
    used, plan = {}, BatchPlan(1, 30, 30, min_duration=20, buckets=1, text_multiple=1)
    for frames in (19, 20, 30, 31):
        sample = {"npy": npy(np.ones((frames, BANDS), np.float16)), "text": "c"}
        try:
            used[frames] = len(next(iter(kind([sample], TOKENIZER, plan, NARROW))).texts)
        except DataError as e:
            used[frames] = str(e).rpartition(": ")[2]
    assert used == {19: "1 too short", 20: 1, 30: 1, 31: "1 too long"}


@pytest.mark.parametrize(("longest", "count"), [(60, 1), (59, 2)])
def test_a_pair_may_be_as_long_as_the_longest_sample(longest, count):
    mel = npy(np.zeros((30, BANDS), np.float16))
    data = [{"__key__": f"{n}", "npy": mel, "json": {"text": "c", "speaker": 1}} for n in range(2)]
    plan = BatchPlan(8, 10_000, longest, buckets=1, text_multiple=1)
    assert len(items(SpeechBatches(data, TOKENIZER, plan, NARROW, LossConfig(pair=1.0)))) == count
