"""Draws: over thousands of samples they have the shares, ranges and shapes that LossConfig names.

Seeds are fixed, so these never fail by chance. Bounds are those that one right set of draws in some
400 would miss: three standard deviations of a count, and the like for whole distributions.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
import torch

from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.durations import DurationBatches
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from tests.train.test_data import DIGITS, NARROW, features, npy, until
from tests.train.test_stream import write_tar

SHARDS, EACH = 10, 200
COUNT = SHARDS * EACH
FRAMES = 150


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    """Clips of 150 frames, whose keys restart in each shard."""
    folder, mel = tmp_path_factory.mktemp("draws"), npy(np.zeros((FRAMES, 4), np.float16))
    meta, out = json.dumps({"text": "c1"}).encode(), []
    for s in range(SHARDS):
        files = [(f"{i}.{k}", d) for i in range(EACH) for k, d in (("npy", mel), ("json", meta))]
        out.append(str(write_tar(folder / f"{s}.tar", files)))
    return out


def drawn(paths: list[str], epochs: int = 1, seed: int = 1, **loss) -> dict[str, np.ndarray]:
    """Every draw of the epochs, clip by clip in the order of the shards (a buffer of one)."""
    plan = BatchPlan(50, 50 * FRAMES, FRAMES, buckets=1)
    options = {"shuffle_buffer": 1, "seed": seed, "loss": LossConfig(**loss)}
    batches = [x.batch for x in until(features(paths, plan, **options), epochs)]
    names = ("time", "span", "drop_audio", "drop_text", "prompt")
    found = {n: torch.cat([getattr(b, n) for b in batches]).numpy() for n in names}
    found["noise"] = torch.cat([b.noise[:, :100] for b in batches]).numpy()
    assert len(found["time"]) == epochs * len(paths) * EACH
    return found


@pytest.fixture(scope="module")
def usual(paths) -> dict[str, np.ndarray]:
    """The draws of the defaults."""
    return drawn(paths)


@pytest.fixture(scope="module")
def unusual(paths) -> dict[str, np.ndarray]:
    """The draws of shorter spans and other shares."""
    return drawn(paths, min_span=0.2, max_span=0.5, drop_audio=0.1, drop_both=0.5)


def assert_uniform(values: np.ndarray, low: float, high: float, step: float = 0.0) -> None:
    """The test of Kolmogorov and Smirnov; `step` is the distance of values that are rounded."""
    assert low - step <= values.min() < low + 0.01 * (high - low) + step
    assert high + step >= values.max() > high - 0.01 * (high - low) - step
    x = np.sort((values - low) / (high - low))
    n = len(x)
    far = max(np.abs(x - np.arange(n) / n).max(), np.abs(x - np.arange(1, n + 1) / n).max())
    assert far < 1.7 / np.sqrt(n) + step / (high - low)


def assert_share(flags: np.ndarray, share: float) -> None:
    """That a share of the draws is so, within three standard deviations."""
    assert abs(flags.mean() - share) < 3 * np.sqrt(share * (1 - share) / len(flags))


def assert_apart(one: np.ndarray, two: np.ndarray) -> None:
    """That two kinds of draws know nothing of each other."""
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(len(one))


def lengths_and_starts(span: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each clip's span, which must be in one piece."""
    lengths, starts = span.sum(1), span.argmax(1)
    place = np.arange(span.shape[1])
    whole = (place >= starts[:, None]) & (place < (starts + lengths)[:, None])
    assert np.array_equal(whole, span)
    return lengths, starts


def test_times_are_uniform(usual):
    assert_uniform(usual["time"], 0, 1)


@pytest.mark.parametrize(("low", "high"), [(0.7, 1.0), (0.2, 0.5)])
def test_span_lengths_are_uniform_between_their_bounds(usual, unusual, low, high):
    found = usual if (low, high) == (0.7, 1.0) else unusual
    lengths, starts = lengths_and_starts(found["span"])
    assert_uniform(lengths / FRAMES, low, high, 0.5 / FRAMES)
    room = FRAMES - lengths
    assert_uniform((starts / np.maximum(room, 1))[room > 20], 0, 1, 1 / 20)
    assert_apart(lengths, found["time"])


def test_the_defaults_are_those_of_the_papers():
    """F5-TTS: audio dropped 0.3, both 0.2, spans of 0.7 to 1; half of the clips have a prompt."""
    found = {f.name: f.default for f in fields(LossConfig)}
    want = {"drop_audio": 0.3, "drop_both": 0.2, "min_span": 0.7, "max_span": 1.0, "pair": 0.5}
    assert {name: found[name] for name in want} == want


@pytest.mark.parametrize(("audio", "both"), [(0.3, 0.2), (0.1, 0.5)])
def test_conditions_are_dropped_as_often_as_asked(usual, unusual, audio, both):
    found = usual if both == 0.2 else unusual
    text, heard = found["drop_text"], ~found["drop_audio"]
    assert_share(text, both)
    assert not (text & heard).any()  # text is never dropped alone
    assert_share(~text & ~heard, (1 - both) * audio)
    assert_share(heard, (1 - both) * (1 - audio))
    lengths = found["span"].sum(1)
    for flags in (text, heard):
        assert_apart(flags, found["time"])
        assert_apart(flags, lengths)


@pytest.mark.parametrize(("audio", "both"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)])
def test_what_is_never_or_always_dropped_is(paths, audio, both):
    found = drawn(paths[:1], drop_audio=audio, drop_both=both)
    assert (found["drop_text"] == bool(both)).all()
    assert (found["drop_audio"] == bool(audio or both)).all()


def test_noise_is_standard_normal(usual):
    noise = usual["noise"].astype(np.float64)
    n = noise.size
    assert abs(noise.mean()) < 4 / np.sqrt(n) and abs(noise.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs((noise**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert_apart(noise[:-1].ravel(), noise[1:].ravel())  # of one clip and the next
    assert_apart(noise[:, 0, 0], usual["time"])


def test_a_duration_model_may_hear_a_tenth_to_nine_tenths(usual):
    assert_uniform(usual["prompt"] / FRAMES, 0.1, 0.9, 0.5 / FRAMES)


def test_no_two_samples_share_a_draw_in_any_epoch_or_with_another_seed(paths, usual):
    """Keys, numbers, shards, epochs and seeds all count; and none determines another."""
    some, count = paths[:4], 4 * EACH
    twice, again, other = drawn(some, epochs=2), drawn(some), drawn(some, seed=2)
    assert all(np.array_equal(twice[k][:count], again[k]) for k in again)  # and they repeat
    times = np.concatenate([twice["time"], other["time"]])
    noises = np.concatenate([twice["noise"][:, 0, 0], other["noise"][:, 0, 0]])
    assert len(np.unique(np.stack([times, noises]), axis=1).T) == len(times) == 3 * count
    assert len(np.unique(times)) > 0.999 * len(times)
    assert_apart(times[:count], times[count : 2 * count])
    assert_apart(times[:count], times[2 * count :])
    by_shard = usual["time"].reshape(SHARDS, EACH)  # columns are of one key
    assert_apart(by_shard[:-1].ravel(), by_shard[1:].ravel())
    assert_apart(by_shard[:, :-1].ravel(), by_shard[:, 1:].ravel())


def test_a_prompted_clip_is_mostly_learned_whole_behind_its_prompt():
    batches = SpeechBatches([], None, BatchPlan(1, FRAMES, FRAMES))
    rng, seam, whole = np.random.default_rng(0), 100, []
    for _ in range(COUNT):
        start, stop = batches.draw(FRAMES, rng, seam)["span"]
        whole.append((start, stop) == (seam, FRAMES))
    assert_share(np.array(whole), 0.7)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_short_clips_have_a_frame_of_prompt_and_one_to_learn(frames):
    loss = LossConfig(min_span=0.0, max_span=1.0)
    batches = SpeechBatches([], DIGITS, BatchPlan(1, FRAMES, FRAMES), NARROW, loss)
    rng = np.random.default_rng(0)
    draws = [batches.draw(frames, rng) for _ in range(200)]
    assert {d["prompt"] for d in draws} == set(range(1, frames + 1))
    spans = {d["span"] for d in draws}
    assert spans == {(a, b) for a in range(frames) for b in range(a + 1, frames + 1)}


@pytest.mark.parametrize("frames", [2, 3, 4])
def test_short_clips_of_a_duration_model_have_a_frame_of_new_speech(frames):
    batches = DurationBatches([], DIGITS, BatchPlan(1, FRAMES, FRAMES), NARROW)
    parts = set()
    for n in range(400):
        item = {"key": f"{n}", "epoch": 0, "text": "c", "mel": np.zeros((frames, 4), np.float16)}
        found = batches.finished(item, Counter())
        assert found is not None
        parts.add((len(found["heard"]), found["total"] - len(found["heard"])))
    if frames == 2:  # too few to be heard faster or slower
        assert parts == {(1, 1), (2, 1)}
    assert {a for a, _ in parts} >= set(range(1, frames + 1)) and min(b for _, b in parts) == 1


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_known_words_are_spelled_as_often_as_asked(share):
    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    batches = SpeechBatches(
        [], tokenizer, BatchPlan(1, FRAMES, FRAMES), loss=LossConfig(spell=share)
    )
    rng = np.random.default_rng(0)
    plain = tokenizer.encode("hello")
    spelled = [not np.array_equal(batches.encode("hello", rng), plain) for _ in range(COUNT // 2)]
    assert_share(np.array(spelled), share)


def test_half_of_the_clips_are_stretched_by_up_to_the_share_that_is_asked(paths, monkeypatch):
    from nanospeech_torch.train.data import speech as data

    stretches: list[float] = []
    real = data.warped

    def watched(mel: np.ndarray, stretch: float, rate: int) -> np.ndarray:
        stretches.append(stretch)
        return real(mel, stretch, rate)

    monkeypatch.setattr(data, "warped", watched)
    drawn(paths[: SHARDS // 2], warp=0.2)
    assert_share(np.arange(COUNT // 2) < len(stretches), 0.5)
    assert_uniform(np.log(stretches), -np.log(1.2), np.log(1.2))


def generator(item: dict, *which: int) -> np.random.Generator:
    """The generator of an item's draws, of seed 7."""
    refs = [ref[1:] for ref in item["refs"]]
    name = json.dumps([7, item["epoch"], item["key"], refs, which])
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def test_draws_are_those_that_runs_were_begun_with():
    """Each is named by a number; with other numbers a run would go on with other pairs."""
    plan = BatchPlan(1, FRAMES, FRAMES)
    batches = SpeechBatches([], DIGITS, plan, NARROW, LossConfig(pair=0.5), seed=7)
    batches.start(0, 0, 1)
    first = 0
    for n in range(100):
        old, new = (
            {
                **{"key": f"{i}", "epoch": 2, "refs": [(2, 1, i)], "text": f"c{i}", "speaker": n},
                **{"mel": np.full((20, 4), i, np.float16), "frames": 20, "piece": 0},
            }
            for i in (2 * n, 2 * n + 1)
        )
        assert batches.paired(old) == (generator(old, 1).random() < 0.5)
        batches.paired = lambda item: True
        assert batches.on_sample(old) == []
        (pair,) = batches.on_sample(new)
        del batches.paired
        turned = generator(new, 4).random() < 0.5
        assert pair["texts"] == (
            (new["text"], old["text"]) if turned else (old["text"], new["text"])
        )
        assert pair["rng"].random() == generator(pair).random() and pair["piece"] == 0
        first += turned
    assert 30 < first < 70


def test_what_is_not_said_is_the_plainest():
    """One process that reads in order, from the beginning, with a seed of 0 and no cache."""
    batches = SpeechBatches([], DIGITS, BatchPlan(1, FRAMES, FRAMES))
    names = ("seed", "rank", "world", "places", "consumed", "shuffle_buffer", "cache_left", "edge")
    assert [getattr(batches, name) for name in names] == [0, 0, 1, {}, 0, 1, 0, ""]
