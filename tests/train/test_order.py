"""The order of a run: old places still hold, memory is bounded, and nothing is read in vain."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest

from nanospeech.errors import DataError
from nanospeech_torch.train.data.order import SampleStream, StreamState, deal, redeal, resume
from nanospeech_torch.train.data.sources import Source, TarSource
from tests.train.test_stream import epoch_of, numbered

MIB = 2**20
DEALT = [
    [[1, 2], [3, 0], [4]],
    [[4, 0], [3], [2, 1]],
    [[1], [4, 0], [2, 3]],
]  # shards of each stream in each epoch
PARTS = [(1, 0, 0, 3, 0)]


def test_the_order_is_the_one_that_runs_were_begun_with():
    """A checkpoint tells its place by numbers; a new order would lose or repeat samples."""
    dealt = [[[u[1] for u in deal(5, 1, s, 3, e)] for s in range(3)] for e in range(3)]
    assert dealt == DEALT
    assert deal(2, 0, 4, 5, 1) == PARTS


def test_epochs_are_dealt_by_turns_one_behind_the_other():
    for shards, streams in ((5, 3), (7, 4), (3, 3), (2, 5)):
        dealt = []
        for epoch in range(4):
            shares = [deal(shards, 9, s, streams, epoch) for s in range(streams)]
            order = np.random.default_rng([9, epoch, shards])
            parts = -(-streams // shards)
            order = order.permutation(shards * parts).tolist()
            for turn, unit in enumerate(order):
                stream = (epoch * len(order) + turn) % streams
                dealt.append((epoch, unit // parts, unit % parts, parts, 0))
                assert shares[stream].pop(0) == dealt[-1]
            assert not any(shares)
        assert len(set(dealt)) == 4 * shards * parts


@pytest.mark.parametrize("size", [1, 2, 40])
def test_a_shuffle_buffer_draws_any_of_what_it_holds(tmp_path, size):
    """The n-th drawn is one of the first n + size; each of those held is as likely as the next."""
    source = numbered(tmp_path, 1, 2000)
    stream, order = SampleStream(source, 3, shuffle_buffer=size), []
    while (got := stream.take()) is not None:
        order.append(got[0][2])
    assert sorted(order) == list(range(2000))
    if size == 1:
        assert order == sorted(order)
        return
    place = np.arange(2000)
    late = place - np.array(order)  # -size + 1 and up
    assert late.min() == -size + 1
    steady = late[np.argsort(order)][: 2000 - 5 * size]
    # it is read size - 1 draws ahead of its turn, and each draw leaves it with 1 - 1 / size
    assert abs(steady.mean()) < 5 * size / np.sqrt(len(steady))
    assert (steady > 0).mean() == pytest.approx((1 - 1 / size) ** size, abs=0.06)


def test_draws_depend_on_seed_stream_and_number(tmp_path):
    """The last one takes the place of the one that is drawn; a checkpoint counts on it."""
    source = numbered(tmp_path, 1, 40)
    stream, found = SampleStream(source, 3, shuffle_buffer=6), []
    while (got := stream.take()) is not None:
        found.append(got[0][2])
    ahead, held, want = list(range(40)), [], []
    for n in range(40):
        held, ahead = held + ahead[: 6 - len(held)], ahead[6 - len(held) :]
        at = np.random.default_rng([3, 0, n]).integers(len(held))
        want.append(held[at])
        held[at] = held[-1]
        held.pop()
    assert found == want


def test_without_shuffling_those_that_are_held_come_first_and_in_order(tmp_path):
    """A run may go on with a smaller buffer than it was begun with."""
    source = numbered(tmp_path, 1, 20)
    stream = SampleStream(source, 3, shuffle_buffer=6)
    for _ in range(5):
        stream.take()
    place = stream.place()
    again = SampleStream(source, 3, place=place)
    assert epoch_of(again) == [
        *map(tuple, place.buffer.tolist()),
        *((0, 0, n) for n in range(10, 20)),
    ]


class Wide(Source):
    """Twenty samples that say they hold so many MiB, and take no memory."""

    ordered = False

    def __init__(self, mib: int):
        self.mib = mib

    def __len__(self) -> int:
        return 1

    def open(self, shard, start=0, epoch=0, skipped=None):
        for n in range(start, 20):
            yield n, {"npy": np.broadcast_to(np.uint8(n), (self.mib * MIB,))}


@pytest.mark.parametrize(("mib", "held"), [(512, 1), (511, 2), (256, 2), (255, 3), (100, 6)])
def test_a_shuffle_buffer_holds_half_a_gigabyte_and_the_sample_beyond(mib, held):
    stream = SampleStream(Wide(mib), 0, shuffle_buffer=50)
    for _ in range(3):  # what is drawn makes room again
        assert stream.take() is not None
        assert len(stream.place().buffer) == held - 1
    assert len({int(stream.take()[1]["npy"][0]) for _ in range(17)}) == 17  # type: ignore[index]
    assert stream.take() is None and len(stream.place().buffer) == stream.held == 0


def test_what_is_held_of_later_epochs_does_not_end_the_one_before(monkeypatch):
    """Several streams hold more than one may, and a run that went on as one waited for ever."""
    monkeypatch.setattr("nanospeech_torch.train.data.order.HELD", 3 * MIB)
    source = Wide(1)
    every = [SampleStream(source, 0, s, 4, shuffle_buffer=8) for s in range(4)]
    used: Counter = Counter(every[0].take()[0] for _ in range(2))  # type: ignore[index]
    for stream in every[1:]:  # a quarter of the shard, and a sample of the next epoch
        used.update(epoch_of(stream))
        used[stream.take()[0]] += 1  # type: ignore[index]
    (place,) = redeal([{0: stream.place()} for stream in every], 1, 0, 1)
    one = SampleStream(source, 0, shuffle_buffer=8, place=place)
    assert one.held > 3 * MIB and one.epoch == 0
    used.update(epoch_of(one) + epoch_of(one))
    assert set(used.values()) == {1} and Counter(e for e, _, _ in used) == {0: 20, 1: 20}


@pytest.mark.parametrize(
    "sample",
    [
        {"wav": b"x" * 100},
        {"wav": {"bytes": b"x" * 100, "path": None}},
        {"text": "x" * 60, "more": b"y" * 40},
        {"array": [0.0] * 12, "text": "four"},
        {"array": np.zeros(25, np.float32), "n": 7},
    ],
)
def test_samples_of_all_sorts_are_weighed(sample):
    from nanospeech_torch.train.data.order import weight

    assert weight(sample) == 100


class Counting(TarSource):
    """Counts the samples that are read."""

    count = 0

    def open(self, *args, **options):
        for found in super().open(*args, **options):
            self.count += 1
            yield found

    def pick(self, *args, **options):
        for found in super().pick(*args, **options):
            self.count += 1
            yield found


def test_going_on_reads_only_what_is_pending(tmp_path):
    source = Counting(numbered(tmp_path, 1, 60).shards)
    stream = SampleStream(source, 0, shuffle_buffer=4)
    for _ in range(20):
        stream.take()
    place, source.count = stream.place(), 0
    again = SampleStream(source, 0, shuffle_buffer=4, place=place)
    assert source.count == len(set(place.pending())) > 0
    assert epoch_of(again) == epoch_of(stream)


def test_what_lies_behind_the_pending_samples_is_not_read_again():
    """Of a source that cannot pick, a shard is read from the first of them to the last."""
    read: list[int] = []

    class Watched(Wide):
        def open(self, *args, **options):
            for n, sample in super().open(*args, **options):
                read.append(n)
                yield n, sample

    stream = SampleStream(Watched(1), 0, shuffle_buffer=4)
    for _ in range(3):
        stream.take()
    place = stream.place()
    pending = {n for _, _, n in place.pending()}
    read.clear()
    again = SampleStream(Watched(1), 0, shuffle_buffer=4, place=place)
    assert read == list(range(min(pending), max(pending) + 1)) and max(pending) < 10
    assert again.place() == place


def test_samples_that_are_gone_are_counted_and_the_rest_goes_on(tmp_path):
    stream = SampleStream(numbered(tmp_path, 1, 30), 0, shuffle_buffer=6)
    for _ in range(20):
        stream.take()
    place = stream.place()
    left = {i for _, _, i in place.pending()}
    fewer, skipped = numbered(tmp_path, 1, 23), Counter()
    again = SampleStream(fewer, 0, shuffle_buffer=6, place=place, skipped=skipped)
    gone = sum(i >= 23 for i in left)
    assert gone and skipped == {"gone when resuming": gone}
    assert sorted(i for _, _, i in epoch_of(again)) == sorted(i for i in left if i < 23)
    skipped.clear()
    SampleStream(numbered(tmp_path, 1, 30), 0, shuffle_buffer=6, place=place, skipped=skipped)
    assert "gone when resuming" not in skipped


def test_stream_states_are_equal_if_all_fields_are():
    here = StreamState(1, 3, epoch=2, units=np.array([[2, 1, 0, 1, 5]]))
    assert here == StreamState.from_json(here.to_json()) and here != here.to_json()
    for field in fields(StreamState):
        other = StreamState.from_json(here.to_json())
        value = getattr(other, field.name)
        wider = (
            np.concatenate([value, value[:1] * 0 if len(value) else [[0] * value.shape[1]]])
            if isinstance(value, np.ndarray)
            else value + 1
        )
        setattr(other, field.name, wider)
        assert other != here, field.name


def test_a_stream_state_survives_json():
    table = np.arange(1, 16, dtype=np.int32)
    here = StreamState(1, 4, 9, 2, 3, 0, 17, 5, 1)
    for name, width in (("units", 5), ("buffer", 3), ("waiting", 5), ("unpaired", 3)):
        assert getattr(here, name).shape == (0, width)
        setattr(here, name, table.reshape(-1, width))
    again = StreamState.from_json(here.to_json())
    for field in fields(StreamState):
        one, two = getattr(here, field.name), getattr(again, field.name)
        assert np.array_equal(one, two) and np.shape(one) == np.shape(two), field.name
    assert len(here.pending()) == 5 + 3 + 5
    assert StreamState() == StreamState(
        0, 1, shards=0, epoch=0, fresh=0, whole=1, drawn=0, batches=0, empty_epochs=0
    )


def test_the_state_of_an_older_version_is_read():
    now = StreamState(1, 4, 9, empty_epochs=2, unpaired=np.array([[3, 2, 1]])).to_json()
    old = {{"empty_epochs": "barren", "unpaired": "alone"}.get(k, k): v for k, v in now.items()}
    assert old.keys() != now.keys() and StreamState.from_json(old).to_json() == now


def test_what_is_left_to_others_is_no_whole_epoch(tmp_path):
    source = numbered(tmp_path, 4, 6)
    stream = SampleStream(source, 0)
    assert stream.place().whole == 1
    for _ in range(7):
        stream.take()
    for place in redeal([{0: stream.place()}], 4, 0, 2):
        assert place.units.size and (place.epoch, place.fresh, place.whole) == (0, 1, 0)
    while stream.take() is not None:
        pass
    assert len(stream.place().units) == 0
    for place in redeal([{0: stream.place()}], 4, 0, 2):
        assert (place.epoch, place.fresh, place.whole) == (1, 1, 1)
    again = SampleStream(source, 0, 1, 2, place=place)
    assert {e for e, _, _ in epoch_of(again)} == {1} and again.place().whole == 1


def test_states_are_the_saved_ones_only_for_the_same_processes(tmp_path):
    source = numbered(tmp_path, 4, 6)
    one, two = (SampleStream(source, 0, s, 2).place() for s in range(2))
    assert resume([{0: one}, {0: two}], 4, 0, 2, 1) == ([{0: one}, {0: two}], True)
    assert resume([{0: two}, {0: one}], 4, 0, 2, 1) == ([{0: one}, {0: two}], False)
    assert resume([{0: one, 1: two}], 4, 0, 1, 2) == ([{0: one, 1: two}], True)
    assert resume([{0: one}], 4, 0, 2, 1) == ([{0: one}, {}], False)


def test_streams_that_were_saved_at_different_epochs_meet_at_the_last(tmp_path):
    """The slow one's epochs up to there are dealt out too: each sample once an epoch."""
    source = numbered(tmp_path, 3, 4)
    slow, quick = (SampleStream(source, 5, s, 2) for s in range(2))
    used: Counter = Counter(epoch_of(quick) + epoch_of(quick) + [slow.take()[0]])  # type: ignore
    saved = [{0: slow.place()}, {0: quick.place()}]
    places = redeal(saved, 3, 5, 3)
    assert {p.fresh for p in places} == {3}
    for place in places:
        stream = SampleStream(source, 5, place.stream, 3, place=place)
        while stream.epoch < 3:
            assert stream.place().whole == 0  # it may be less than a share
            used.update(epoch_of(stream))
        assert stream.place().whole == 1
    assert set(used.values()) == {1}
    assert Counter(e for e, _, _ in used) == dict.fromkeys(range(3), 4 + 5 + 6)


def test_a_stream_of_other_shards_is_refused_before_it_reads(tmp_path):
    source = Counting(numbered(tmp_path, 2, 3).shards)
    with pytest.raises(DataError, match="saved with 3 shards and there are 2 now"):
        SampleStream(source, 0, place=StreamState(shards=3))
    assert source.count == 0


def test_an_order_that_is_not_asked_for_is_that_of_the_shards(tmp_path):
    """The only stream, of seed 0, without shuffling."""
    stream = SampleStream(numbered(tmp_path, 9, 3))
    assert (stream.seed, stream.stream, stream.streams, stream.size) == (0, 0, 1, 1)
    shards = [unit[1] for unit in deal(9, 0, 0, 1, 0)]
    assert epoch_of(stream) == [(0, s, i) for s in shards for i in range(3 + s)]
