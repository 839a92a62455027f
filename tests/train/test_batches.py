"""Batches: lengths and widths that samples are padded to, and the settings of a loss."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.data import batches as module
from nanospeech_torch.train.data.batch import Batch, DurationBatch, EarConfig, LossConfig
from nanospeech_torch.train.data.batches import (
    Batches,
    BatchPlan,
    Loaded,
    StreamOptions,
    StreamState,
)
from tests.train.shared import check_range

GOLDEN = [849525, 37142, 245107]  # of the version of draws that KEYED names
PLANS = [
    BatchPlan(64, 3000, 1600),
    BatchPlan(4, 100, 200, buckets=3, text_multiple=4, multiple=16),
    BatchPlan(2, 7, 7, buckets=9, text_multiple=1),
]


@pytest.mark.parametrize("plan", PLANS)
def test_a_bucket_is_the_shortest_that_a_sample_fits_in(plan):
    lengths = sorted({plan.bucket(n) for n in range(1, plan.max_duration + 1)})
    assert len(lengths) <= plan.buckets and lengths[-1] == plan.max_duration
    assert max(b - a for a, b in itertools.pairwise([0, *lengths])) == lengths[0]
    for frames in range(1, plan.max_duration + 1):
        assert plan.bucket(frames) == min(n for n in lengths if n >= frames)
        padded = plan.padded(plan.bucket(frames))
        assert padded % plan.multiple == 0 and 0 <= padded - plan.bucket(frames) < plan.multiple


@pytest.mark.parametrize("plan", PLANS)
def test_a_full_batch_is_as_large_as_its_bounds_let_it_be(plan):
    for bucket in {plan.bucket(n) for n in range(1, plan.max_duration + 1)}:
        count = plan.capacity(bucket)
        fits = [n for n in range(1, plan.batch_size + 1) if n * bucket <= plan.max_frames]
        assert count == max(fits, default=1)  # one that is too long is a batch of its own


@pytest.mark.parametrize("plan", PLANS)
def test_shapes_are_those_of_all_buckets_and_texts(plan):
    lengths = {plan.padded(plan.bucket(n)) for n in range(1, plan.max_duration + 1)}
    assert {n for n, _ in plan.shapes()} == lengths
    for length in lengths:
        widths = [w for n, w in plan.shapes() if n == length]
        assert widths == plan.text_widths(length) == sorted(widths)
        multiples = range(plan.text_multiple, length + plan.text_multiple, plan.text_multiple)
        assert set(widths) == {
            min(w for w in multiples if w * part >= length) for part in (2, 3, 6)
        }


def test_texts_of_a_bucket_have_a_sixth_a_third_or_half_of_its_frames():
    assert BatchPlan(1, 200, 200).text_widths(200) == [48, 80, 112]
    assert BatchPlan(1, 200, 200).text_widths(40) == [16, 32]


def test_the_bounds_of_batches_are_named():
    assert PLANS[1].limits() == {"batch_size": 4, "max_frames": 100, "longest": 200}


@pytest.mark.parametrize(
    "name", ["drop_audio", "drop_both", "spell", "pair", "room", "spoil", "band"]
)
def test_chances_are_between_0_and_1(name):
    check_range(LossConfig, name, (0, 0.5, 1), (-0.01, 1.01), "loss.")


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("warp", (0, 0.5), (-0.01, 0.51)),
        ("colour", (0, 2), (-0.01, 2.01)),
        ("min_span", (0, 1), (-0.01, 1.01)),
        ("max_span", (0.7, 1), (-0.01, 1.01)),
        ("guidance_until", (0, 1), (-0.01, 1.01)),
        ("model_guidance", (0, 0.99), (-0.01, 1)),
    ],
)
def test_settings_of_a_loss_have_bounds(name, allowed, refused):
    check_range(LossConfig, name, allowed, refused, "loss.")


def test_the_smallest_share_of_a_clip_is_not_above_the_largest():
    with pytest.raises(InputError, match=r"loss\.min_span is 0\.7, above loss\.max_span"):
        LossConfig(max_span=0.69)


@pytest.mark.parametrize("name", ["noise", "level", "colour"])
def test_what_a_listener_hears_beside_speech_has_bounds(name):
    check_range(EarConfig, name, (0, 10), (-0.01, 10.01), "ear.")


def test_nothing_is_augmented_unless_it_is_asked_for():
    plain = LossConfig()
    assert not any((plain.warp, plain.colour, plain.room, plain.spoil, plain.band))
    assert not plain.untranscribed and not plain.model_guidance


def batch() -> Batch:
    lens, mel = torch.tensor([3, 2]), torch.ones(2, 3, 4)
    places = torch.ones(2, 3, dtype=torch.bool)
    flags = torch.zeros(2, dtype=torch.bool)
    return Batch(mel, lens, lens[:, None], mel, torch.ones(2), places, flags, flags, lens)


def test_a_batch_has_no_references_voices_or_disturbance_unless_it_is_given_them():
    found = batch()
    assert found.wordless.tolist() == [0, 0] and found.voice.tolist() == [0, 0]
    assert found.heard.shape == found.disturbance.shape == (2, 0, 4)
    given = Batch(**{**vars(found), "voice": found.lens, "disturbance": found.mel})
    assert given.voice is found.lens and given.disturbance is found.mel
    assert given.heard is found.heard


def test_all_of_a_batch_moves():
    lens = torch.tensor([3, 2])
    for here in (batch(), DurationBatch(torch.ones(2, 3, 4), lens, lens[:, None], lens, lens)):
        there = here.to("meta")
        assert vars(there).keys() == vars(here).keys()
        assert {v.device.type for v in vars(there).values()} == {"meta"}


def test_what_the_loader_yields_is_pinned_with_its_batch(monkeypatch):
    """Page-locked memory is there with a GPU alone, so what is asked to be pinned is noted."""
    asked = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: asked.append(self) or self.clone())
    place = StreamState(0, 1)
    assert Loaded(None, 0, place).pin_memory().batch is None and not asked
    first = Loaded(batch(), 3, place, frames=5)
    pinned = first.pin_memory()
    assert len(asked) == len(vars(first.batch)) and pinned.batch is not first.batch
    assert torch.equal(pinned.batch.mel, first.batch.mel)
    assert (pinned.worker, pinned.place, pinned.frames) == (3, place, 5)


class Numbers(Batches):
    """Samples of so many frames, those of none left out; a batch is the list of their keys."""

    usable = True

    def describe(self, sample: dict, skipped: Counter) -> dict | None:
        if not (sample["frames"] and self.usable):
            skipped["empty"] += 1
            return None
        return {"key": sample["__key__"], "frames": sample["frames"]}

    def rebuild(self, parts: list[dict], piece: int) -> dict | None:
        (item,) = parts
        return {**item, "piece": piece}

    def collate(self, group: list[dict], epoch: int, skipped: Counter) -> tuple[Any, list[str]]:
        keys = [item["key"] for item in group]
        return keys, keys


def numbers(frames: list[int], plan: BatchPlan | None = None, **options: Any) -> Numbers:
    samples = [{"__key__": str(n), "frames": count} for n, count in enumerate(frames)]
    return Numbers(samples, plan or BatchPlan(2, 1000, 40, buckets=2), StreamOptions(**options))


def test_a_batch_is_made_when_it_is_full_and_no_later():
    batches = numbers([])
    batches.start(0, 0, 1)
    for count in range(1, 6):
        batches.waiting = {40: [{"key": str(n), "frames": 30, "refs": []} for n in range(count)]}
        made = [loaded.batch for loaded in batches.full()]
        assert made == [[str(n), str(n + 1)] for n in range(0, count - 1, 2)]
        assert [len(left) for left in batches.waiting.values()] == [1] * (count % 2)


def test_samples_that_fill_no_batch_end_the_epoch_or_wait_for_the_next_one():
    frames = [10, 30, 10, 10, 30]
    first, second, third = itertools.islice(numbers(frames), 3)
    ended = {len(loaded.batch) for loaded in (first, second, third)}
    assert ended == {1, 2} and third.epoch_ended == 0 and first.epoch_ended is None
    assert sum(loaded.frames for loaded in (first, second, third)) == sum(frames)
    carried = itertools.islice(numbers(frames, BatchPlan(2, 1000, 40, buckets=2, carry=True)), 12)
    assert {len(loaded.batch) for loaded in carried} == {2}
    alone = next(iter(numbers([10], BatchPlan(2, 1000, 40, buckets=2, carry=True))))
    assert alone.batch == ["0"] and alone.epoch_ended == 0  # its epoch has no other


def test_turns_are_taken_from_where_the_loader_goes_on(monkeypatch):
    """The loader asks worker 0 first, whose turn it was not if others had given batches."""
    workers, world = 3, 2
    for consumed, rank in itertools.product(range(5), range(world)):
        started = []
        for index in range(workers):
            info = SimpleNamespace(num_workers=workers, id=index)
            monkeypatch.setattr(module, "get_worker_info", lambda info=info: info)
            batches = numbers([10] * 12, rank=rank, world=world, consumed=consumed)
            place = next(iter(batches)).place
            assert place.streams == workers * world
            started.append(place.stream)
        turns = [rank * workers + (consumed + n) % workers for n in range(workers)]
        assert started == turns


def test_a_worker_has_so_many_megabytes_for_clips_that_wait():
    room = numbers([], BatchPlan(2, 1000, 40, min_duration=5, pair_mb=3)).waiting_room()
    assert (room.longest, room.shortest, room.most) == (40, 5, 3_000_000)


@pytest.mark.parametrize("cause", ["", "a.tar: OSError: gone"])
def test_data_of_which_nothing_can_be_used_are_an_error_that_says_why(cause):
    batches = numbers([0, 0])
    batches.source.cause = cause
    with pytest.raises(DataError) as e:
        next(iter(batches))
    told = f" (the last: {cause})" if cause else ""
    assert str(e.value) == f"nothing in the dataset can be used: 2 empty{told}"
    with pytest.raises(DataError, match="can be used: no samples"):
        next(iter(numbers([])))


def test_one_of_several_streams_may_have_two_epochs_of_bad_shares():
    batches = iter(numbers([0, 0], world=2))
    for epoch in (0, 1):
        loaded = next(batches)
        assert loaded.batch is None and loaded.epoch_ended == epoch and loaded.skipped["empty"] == 1
    with pytest.raises(DataError, match=r"can be used: 3 empty$"):
        next(batches)


def test_draws_are_of_a_sample_and_an_epoch_and_stay_what_they_were():
    """A run that was stopped goes on with the same draws, by later versions too."""
    batches = numbers([10], seed=7)
    item = {"key": "a", "refs": [(0, 3, 5)]}
    assert batches.rng(item, 2, 1).integers(10**6, size=3).tolist() == GOLDEN
    again = {"key": "a", "refs": [(9, 3, 5)]}  # read again in another epoch
    assert batches.rng(again, 2, 1).integers(10**6, size=3).tolist() == GOLDEN
    others = [
        batches.rng({"key": "b", "refs": [(0, 3, 5)]}, 2, 1),
        *(batches.rng({"key": "a", "refs": [ref]}, 2, 1) for ref in ((0, 4, 5), (0, 3, 6))),
        *(batches.rng(item, 3, 1), batches.rng(item, 2, 0), batches.rng(item, 2)),
        *(batches.rng({"key": "a"}, 2, 1), numbers([10], seed=8).rng(item, 2, 1)),
    ]
    found = {tuple(rng.integers(10**6, size=3).tolist()) for rng in others}
    assert len(found) == len(others) and tuple(GOLDEN) not in found


def test_one_process_alone_has_the_only_stream():
    place = next(iter(numbers([10]))).place
    assert (place.stream, place.streams) == (0, 1)


def test_a_good_epoch_forgives_the_bad_ones_before_it():
    batches = numbers([10, 10], world=2)
    stream = iter(batches)
    for batches.usable in (False, False, True, False, False):
        assert (next(stream).batch is not None) == batches.usable
    with pytest.raises(DataError, match=r"can be used: 3 empty$"):
        next(stream)


def test_an_item_knows_where_it_is_from():
    batches = numbers([10])
    batches.start(0, 0, 1)
    item = batches.describe_sample((2, 0, 1), {"__key__": "a", "frames": 9})
    assert item == {"key": "a", "frames": 9, "refs": [(2, 0, 1)], "epoch": 2, "piece": 0}
    batches.wait_unpaired(item)
    assert batches.waiting == {20: [item]}


def test_every_sample_of_an_epoch_is_in_a_batch_or_counted():
    keys, skipped = [], Counter()
    for loaded in numbers([10, 0, 10, 0, 30, 10, 0]):
        keys += loaded.batch
        skipped += loaded.skipped
        if loaded.epoch_ended is not None:
            break
    assert sorted(keys) == ["0", "2", "4", "5"] and skipped == {"empty": 3}


def test_batches_of_which_no_clip_can_be_read_are_an_error_that_says_why():
    class Broken(Numbers):
        def collate(self, group: list[dict], epoch: int, skipped: Counter) -> tuple[Any, list[str]]:
            skipped["broken"] += len(group)
            return None, []

    samples = [{"__key__": str(n), "frames": 10} for n in range(3)]
    batches = Broken(samples, BatchPlan(2, 1000, 40, buckets=2), StreamOptions())
    with pytest.raises(DataError, match=r"can be used: 3 broken$"):
        list(batches)
