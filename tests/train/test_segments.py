"""Segments of recordings that a vocoder learns from: cut, drawn, cached and held out."""

import json
from collections import Counter

import numpy as np
import pytest

from nanospeech.audio import mel
from nanospeech.audio import wave as sound
from nanospeech.config import AudioConfig
from nanospeech.corpus.held_out import is_held_out
from nanospeech.errors import DataError
from nanospeech_torch.train.data import clips
from nanospeech_torch.train.data.segments import (
    SegmentBatches,
    SegmentConfig,
    cut,
)
from tests.train.shared import check_range, wav_bytes
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
    return wav_bytes(0.1 * np.sin(np.arange(count) / 20))


def test_a_mel_that_a_model_made_may_end_before_its_recording():
    config = SegmentConfig(frames=16, synthetic_share=1.0, min_gain=0, max_gain=0)
    whole = (sound.read(samples()[0]["mp3"])[: 22 * 256] * 32767).astype(np.int16)
    numbered = np.repeat(np.arange(20.0)[:, None], 100, 1).astype(np.float16)
    firsts = set()
    for seed in range(60):
        part, part_mel = cut(whole, config, AudioConfig(), np.random.default_rng(seed), numbered)
        first = int(part_mel[0, 0])
        assert (part_mel[:, 0] == np.arange(first, first + 16)).all()
        assert np.allclose(part * 32767, whole[first * 256 :][: len(part)], atol=0.01)
        firsts.add(first)
    assert firsts == set(range(5))  # the last are its last 16 frames
    rng = np.random.default_rng(0)
    _, exactly = cut(whole, config, AudioConfig(), rng, numbered[:16])
    assert (exactly == numbered[:16]).all()
    _, own = cut(whole, config, AudioConfig(), rng, numbered[:15])  # too short to be used
    assert not np.isin(own, numbered).any()


def test_a_clip_as_long_as_a_segment_has_one_place():
    config, whole = SegmentConfig(frames=16, min_gain=0, max_gain=0), np.arange(15 * 256)
    for seed in range(20):
        wave, log_mel = cut(
            whole.astype(np.int16), config, AudioConfig(), np.random.default_rng(seed)
        )
        assert np.allclose(wave * 32767, whole) and log_mel.shape == (16, 100)


def stored(batches: SegmentBatches, key: str, data: bytes) -> np.ndarray:
    found = batches.recording({"key": key, "data": data, "claimed": None, "rate": None})
    assert found is not None
    return found


def test_recordings_are_kept_as_16_bits_and_what_is_too_loud_is_cut_off():
    loud = np.linspace(-1.5, 1.5, 30_000).astype(np.float32)
    data = wav_bytes(loud, subtype="FLOAT")
    whole = stored(SegmentBatches([], None, PLAN, None, LOSS), "loud", data)
    assert whole.dtype == np.int16
    assert (whole == np.round(np.clip(loud, -1, 1) * 32767)).all()


def test_recordings_stay_in_memory_as_long_as_there_is_room(monkeypatch):
    decoded = []

    def read(data, audio, item, longest):
        decoded.append((item["key"], longest))
        return read_wave(data, audio, item, longest)

    read_wave = clips.read_wave
    monkeypatch.setattr(clips, "read_wave", read)
    one, other, third = wav(30_000), wav(30_001), wav(30_002)
    room = 2 * (30_000 + 30_001)  # for just two, of 16 bits
    batches = SegmentBatches([], None, PLAN, None, LOSS, cache_bytes=room)
    for _ in range(2):
        found = [len(stored(batches, "one name", data)) for data in (one, other, third)]
        assert found == [30_000, 30_001, 30_002]  # none is taken for another of its name
    assert len(decoded) == 4 and batches.cache_left == 0
    assert {longest for _, longest in decoded} == {PLAN.max_duration / AudioConfig().frame_rate}
    batches = SegmentBatches([], None, PLAN, None, LOSS)
    stored(batches, "one name", one)
    assert not batches.cache


def test_a_clip_is_at_least_a_segment_and_at_most_the_longest_clip():
    hops = {"enough": 23, "longest": 2000}  # a segment of 24 frames is 23 hops long
    dataset = [{"__key__": name, "wav": wav(n * 256)} for name, n in hops.items()]
    dataset += [{"__key__": "short", "wav": wav(23 * 256 - 1)}]
    dataset += [{"__key__": "long", "wav": wav(2000 * 256 + 1)}]
    keys, skipped = epoch_of(dataset)
    assert keys.keys() == hops.keys()
    assert skipped == {"shorter than a segment": 1, "too long": 1}


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("frames", (16,), (15,)),
        ("segment_stride", (0.1,), (0.0, -0.5)),
        ("synthetic_share", (0.0, 1.0), (-0.5, 1.5)),
        ("held_out", (0.0, 0.99), (-0.5, 1.0, 1.5)),
        ("min_gain", (2.0,), (2.5,)),
    ],
)
def test_numbers_outside_of_their_range_are_refused(name, allowed, refused):
    check_range(SegmentConfig, name, allowed, refused, section="")


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
