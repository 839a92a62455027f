"""Golden batches of data: what a shard holds is what a batch holds, with the draws that were asked.

The fixtures are real shards of features, read by the real loader; what should come out is worked
out here.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nanospeech.config import AudioConfig
from nanospeech.errors import DataError
from nanospeech.nanospeech_torch import list_str_to_vocab_tensor
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.durations import DurationBatches
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from tests.train.shared import npy
from tests.train.test_stream import write_tar

BANDS = 4
NARROW = AudioConfig(n_mels=BANDS)
VOCAB = {c: i for i, c in enumerate("0123456789c ")}
TOKENIZER = partial(list_str_to_vocab_tensor, vocab=VOCAB)


def shard(folder: Path, lengths: list[int], speakers: int = 0) -> tuple[list[str], dict]:
    """A tar of clips c0000, c0001, … of these lengths in frames, and their mels by text."""
    rng, files, mels = np.random.default_rng(0), [], {}
    for i, n in enumerate(lengths):
        text = f"c{i:04d}"
        mels[text] = rng.standard_normal((n, BANDS)).astype(np.float16)
        meta = {"text": text} | ({"speaker": i % speakers} if speakers else {})
        files += [(f"{i:04d}.npy", npy(mels[text])), (f"{i:04d}.json", json.dumps(meta).encode())]
    return [str(write_tar(folder / "clips.tar", files))], mels


def epoch(batches: SpeechBatches) -> list:
    """The batches of the first epoch."""
    out = []
    for loaded in batches:
        out.append(loaded)
        if loaded.epoch_ended == 0:
            return out
    raise AssertionError


def test_a_batch_holds_its_clips_and_nothing_else(tmp_path):
    paths, mels = shard(tmp_path, [40, 33, 47, 21, 38])
    plan = BatchPlan(3, 150, 50, buckets=2, text_multiple=4)
    used = []
    for loaded in epoch(SpeechBatches(paths, TOKENIZER, plan, NARROW)):
        b = loaded.batch
        used += loaded.texts
        assert b.mel.shape[1] == (25 if max(b.lens) <= 25 else 50)
        for i, text in enumerate(loaded.texts):
            n, mel = len(mels[text]), mels[text].astype(np.float32)
            assert b.lens[i] == n and np.array_equal(b.mel[i, :n], mel)
            assert not b.mel[i, n:].any() and not b.noise[i, n:].any() and not b.span[i, n:].any()
            assert b.text[i].tolist()[:5] == [VOCAB[c] for c in text]
            assert (b.text[i, 5:] == -1).all() and 1 <= b.prompt[i] < n
            at = np.flatnonzero(b.span[i])
            assert len(at) >= round(0.7 * n) and len(at) == at[-1] - at[0] + 1
    assert sorted(used) == sorted(mels)


@pytest.fixture(scope="module")
def drawn():
    """The draws of 4,000 clips."""
    mels = {n: np.zeros((n, BANDS), np.float16) for n in range(16, 20)}
    clips = [
        {"__key__": f"{i}", "npy": npy(mels[16 + i % 4]), "json": {"text": "c"}}
        for i in range(4000)
    ]
    plan = BatchPlan(400, 10_000, 20, buckets=1, text_multiple=1)
    batches = [x.batch for x in epoch(SpeechBatches(clips, TOKENIZER, plan, NARROW))]
    names = ("time", "drop_audio", "drop_text", "noise", "span", "lens")
    return {k: np.concatenate([getattr(b, k).numpy() for b in batches]) for k in names}


def test_conditions_are_dropped_as_often_as_is_asked(drawn):
    """Both with 0.2; of the rest, audio alone with 0.3 (F5-TTS, section 3.1): 0.24 of all."""
    audio, text = drawn["drop_audio"], drawn["drop_text"]
    assert not (text & ~audio).any()
    # four standard deviations of a share of 4,000
    assert (audio & text).mean() == pytest.approx(0.2, abs=0.026)
    assert (audio & ~text).mean() == pytest.approx(0.24, abs=0.027)


def test_times_are_uniform_and_noise_is_normal(drawn):
    times = np.sort(drawn["time"])
    assert len(times) == 4000 and times[0] >= 0 and times[-1] < 1
    assert len(np.unique(times)) >= 3995  # two of 4000 float32 may well be the same
    steps = np.arange(1, 4001) / 4000
    assert np.abs(times - steps).max() < 1.95 / np.sqrt(4000)  # Kolmogorov and Smirnov, 0.1 %
    inside = np.arange(drawn["noise"].shape[1]) < drawn["lens"][:, None]
    noise = drawn["noise"][inside]
    assert noise.mean() == pytest.approx(0, abs=0.01) and noise.std() == pytest.approx(1, abs=0.01)
    assert np.abs(np.corrcoef(drawn["time"], drawn["drop_audio"])[0, 1]) < 0.07


def test_seconds_are_of_93_75_frames(tmp_path):
    assert AudioConfig().frame_rate == 93.75
    assert AudioConfig(sample_rate=16_000, hop_length=200).frame_rate == 80
    file = io.BytesIO()
    wave = 0.1 * np.sin(np.arange(8 * 24_000) / 20)
    soundfile.write(file, wave, 24_000, format="WAV")
    meta = {"text": "eight", "duration": 8.0}
    sample = {"__key__": "eight", "wav": file.getvalue(), "json": json.dumps(meta)}
    tokenizer = partial(list_str_to_vocab_tensor, vocab={c: i for i, c in enumerate("eight")})
    for kind in (SpeechBatches, DurationBatches):
        batch = next(iter(kind([sample], tokenizer, BatchPlan(1, 751, 751)))).batch
        assert batch.lens.tolist() == [751] or kind is DurationBatches
        with pytest.raises(DataError, match="1 too long"):  # 8 x 93.75 + 1 = 751
            next(iter(kind([sample], tokenizer, BatchPlan(1, 750, 750))))


def test_a_pair_is_prompt_and_new_speech(tmp_path):
    """The first clip is heard; the second alone is to be spoken in 7 of 10."""
    paths, mels = shard(tmp_path, [20 + i % 7 for i in range(1000)], speakers=1)
    plan = BatchPlan(50, 10_000, 60, buckets=1, text_multiple=1)
    only_new = pairs = 0
    for loaded in epoch(SpeechBatches(paths, TOKENIZER, plan, NARROW, LossConfig(pair=1.0))):
        b = loaded.batch
        for i, text in enumerate(loaded.texts):
            one, two = text.split()
            seam = len(mels[one])
            both = np.concatenate([mels[one], mels[two]]).astype(np.float32)
            assert np.array_equal(b.mel[i, : len(both)], both) and b.lens[i] == len(both)
            assert b.prompt[i] == seam
            new = np.arange(b.span.shape[1])
            only_new += np.array_equal(b.span[i], (new >= seam) & (new < len(both)))
            pairs += 1
    assert pairs == 500 and only_new / pairs == pytest.approx(0.7, abs=0.09)


@pytest.mark.parametrize("room", [0, 100 * BANDS * 2, 10**6])
def test_a_cache_keeps_to_its_room(tmp_path, room):
    """float16 mels of recordings, as many as fit; batches do not change."""
    wave, data = 0.1 * np.sin(np.arange(14_000) / 20), []
    for i in range(6):
        file = io.BytesIO()
        soundfile.write(file, wave[: 12_000 + 300 * i], 24_000, format="WAV")
        data.append({"__key__": f"{i}", "wav": file.getvalue(), "text": f"c{i}"})
    plan = BatchPlan(2, 200, 60, buckets=1, text_multiple=1)
    plain = epoch(SpeechBatches(data, TOKENIZER, plan, NARROW))
    cached = SpeechBatches(data, TOKENIZER, plan, NARROW, cache_bytes=room)
    for _ in range(2):
        for one, two in zip(epoch(cached), plain, strict=True):
            assert all(
                np.array_equal(a, b)
                for a, b in zip(vars(one.batch).values(), vars(two.batch).values())
            )
    held = sum(mel.nbytes for mel in cached.cache.values())
    if len(cached.cache) == len(data):  # they fit without a byte to spare
        exact = SpeechBatches(data, TOKENIZER, plan, NARROW, cache_bytes=held)
        epoch(exact)
        assert len(exact.cache) == len(data) and exact.cache_left == 0
    assert held <= room and len(cached.cache) == {0: 0, 10**6: 6}.get(
        room, room // (50 * BANDS * 2)
    )


def test_a_bad_clip_does_not_affect_others(tmp_path):
    """Neither among clips that go alone at once, nor in a group that is decoded out of turn."""
    paths, mels = shard(tmp_path, [40, 33])
    batches = SpeechBatches(paths, TOKENIZER, BatchPlan(2, 100, 50), NARROW)
    batches.start(0, 0, 1)
    samples = [(ref, sample) for ref, sample in iter(batches.stream.take, None)]
    bad, good = (batches.describe_sample(ref, sample) for ref, sample in samples)
    assert bad is not None and good is not None
    bad["data"] = bad["data"][:9]
    assert [item["text"] for item in batches.ready([bad, good])] == [good["text"]]
    assert batches.skipped == {"too short": 1}
    skipped: Counter = Counter()
    batch, texts = batches.collate([bad, good], 0, skipped)
    assert batch is not None and texts == [good["text"]]
    assert len(batch.lens) == 1 and batch.lens[0] == len(mels[texts[0]])
    assert skipped == {"too short": 1} and batches.collate([bad], 0, skipped) == (
        None,
        [],
    )
    assert skipped == {"too short": 2}
