"""Segments of recordings that a vocoder learns from: cut, drawn, cached and held out."""

import io
import json
from collections import Counter

import numpy as np
import pytest
import soundfile

from nanospeech.audio import mel
from nanospeech.audio import wave as sound
from nanospeech.config import AudioConfig
from nanospeech.corpus.held_out import is_held_out
from nanospeech.errors import DataError
from nanospeech_torch.train.data.segments import (
    SegmentBatches,
    SegmentConfig,
    cut,
)
from tests.train.test_vocoder_gan import LOSS, PLAN, loader, same, samples


def test_a_segment_knows_what_lies_around_it():
    """Its mel is the recording's there, not that of a wave which begins and ends with it."""
    whole = (sound.read(samples()[0]["mp3"]) * 32767).astype(np.int16)
    wave = whole.astype(np.float32) / 32767
    c, audio, length = SegmentConfig(frames=16, min_gain=0, max_gain=0), AudioConfig(), 15 * 256
    rng = np.random.default_rng(0)
    for _ in range(5):
        part, part_mel = cut(whole, c, audio, rng)
        windows = np.lib.stride_tricks.sliding_window_view(wave[: -length + 64], 64)
        [start] = np.flatnonzero(np.isclose(windows, part[:64], atol=1e-6).all(1))
        assert start > 512
        full = mel.log_mel(wave[start % 256 :])[start // 256 :]
        assert np.abs(part_mel - full[:16]).max() < 1e-4
    _, all_of_it = cut(whole[:length], c, audio, rng)  # a clip as long as a segment
    assert np.abs(all_of_it - mel.log_mel(wave[:length])).max() < 1e-4


def test_the_stream_is_the_same_from_a_place_and_from_the_cache():
    stream = iter(loader())
    taken = [next(stream) for _ in range(9)]
    assert taken[-1].place.epoch > 0 and taken[0].batch.frames == 4 * 24
    for start in (3, 6):
        places = {0: taken[start - 1].place}
        again = iter(loader(places=places, consumed=start, cache_bytes=10**7))
        for old in taken[start:]:
            new = next(again)
            assert same(old.batch, new.batch) and old.place == new.place
    assert not same(taken[0].batch, next(iter(loader(seed=1))).batch)


def epoch_of(dataset, **changes) -> tuple[Counter, Counter]:
    """Segments by key and reasons of clips left out, in one epoch."""
    config = SegmentConfig(**{"frames": 24, "segment_stride": 1.0, "held_out": 0.0, **changes})
    batches = SegmentBatches(dataset, None, PLAN, None, config)
    batches.start(0, 0, 1)
    keys = Counter()
    while (taken := batches.stream.take()) is not None:
        item = batches.describe_sample(*taken)
        keys.update(i["key"] for i in (batches.on_sample(item) if item else []))
    return keys, batches.skipped


def test_segments_of_a_clip_are_proportional_to_its_length():
    dataset = [{"__key__": f"clip{n}", "wav": wav(24_000 * n)} for n in (1, 2, 4, 8)]
    keys, _ = epoch_of(dataset, segment_stride=0.5)
    share = {n: keys[f"clip{n}"] / n for n in (1, 2, 4, 8)}
    assert all(7 <= s <= 8.5 for s in share.values())  # 93.75 frames a second / (24 * 0.5)


def test_what_is_left_of_a_length_is_a_chance_of_one_more_segment():
    dataset = [{"__key__": f"clip{n}", "wav": wav(24_000)} for n in range(80)]
    keys, _ = epoch_of(dataset, segment_stride=24_000 / (24 * 256) / 1.25)
    assert set(keys.values()) == {1, 2}
    assert sum(keys.values()) == pytest.approx(100, abs=12)
    few, _ = epoch_of(dataset[:20], segment_stride=8.0)  # half a segment, or one
    assert set(few.values()) == {1} and len(few) == 20


def test_segments_are_6_db_softer_to_2_db_louder_and_their_mels_with_them():
    whole, audio = np.full(9000, 8000, np.int16), AudioConfig()
    config = SegmentConfig(frames=16, synthetic_share=1.0)
    given = np.random.default_rng(0).standard_normal((36, 100)).astype(np.float16)
    decibels = []
    for seed in range(200):
        part, part_mel = cut(whole, config, audio, np.random.default_rng(seed), given)
        gain = part * 32767 / 8000
        assert np.allclose(gain, gain[0])
        decibels.append(20 * np.log10(gain[0]))
        quiet = part_mel - np.log(gain[0])
        assert np.abs(given - quiet[0]).max(1).min() < 1e-3  # a row of what was given
    assert min(decibels) == pytest.approx(-6, abs=0.2)
    assert max(decibels) == pytest.approx(2, abs=0.2)
    assert np.mean(decibels) == pytest.approx(-2, abs=0.5)


def test_what_cannot_be_used_is_counted():
    good = samples()
    broken = {"__key__": "broken", "mp3": b"not audio"}
    silent = {"__key__": "silent", "json": json.dumps({"text": "no sound"})}
    short = {**good[1], "__key__": "short", "json": {"duration": 0.1}}
    shorter = {"__key__": "shorter", "wav": wav(3000)}
    long = {"__key__": "long", "wav": wav(24_000 * 25)}
    lying = {"__key__": "lying", "wav": wav(30_000), "json": {"duration": 3.0}}
    plain = {"__key__": "no text", "wav": wav(30_000)}  # it needs none
    keys, skipped = epoch_of([*good, broken, silent, short, shorter, long, lying, plain])
    assert keys.keys() == {"no text"} | {s["__key__"] for s in good}
    assert skipped == {
        "unreadable audio": 1,
        "without audio": 1,
        "shorter than a segment": 2,
        "too long": 1,
        "wrong duration": 1,
    }
    with pytest.raises(DataError, match="unreadable"):
        next(iter(SegmentBatches([broken], None, PLAN, None, LOSS)))


def wav(count: int) -> bytes:
    """A short tone as a WAV file's bytes."""
    file = io.BytesIO()
    soundfile.write(file, 0.1 * np.sin(np.arange(count) / 20), 24_000, format="WAV")
    return file.getvalue()


def test_held_out_clips_are_never_drawn():
    keys = [f"clip{i}" for i in range(2000)]
    out = {k for k in keys if is_held_out(k, share=0.1)}
    assert 130 < len(out) < 270
    assert {k for k in keys if is_held_out(k, share=0.05)} < out
    assert not any(is_held_out(k, share=0.0) for k in keys)
    dataset = [{"__key__": k, "wav": wav(30_000)} for k in keys[:40]]
    used, skipped = epoch_of(dataset, held_out=0.1)
    assert used.keys() == set(keys[:40]) - out
    assert skipped == {"held out": len(out & set(keys[:40]))} and skipped["held out"]
