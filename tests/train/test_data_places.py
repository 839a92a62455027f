"""Places in the data: going on from any of them, with other processes, workers and caches."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from nanospeech.errors import DataError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.order import StreamState, resume
from nanospeech_torch.train.data.speech import BatchPlan, Loaded, Prefetch, SpeechBatches
from tests.train.test_data import (
    DIGITS,
    TOKENIZER,
    clips,
    feature_shards,
    features,
    many,
    same,
    until,
)
from tests.training import samples


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("buffer", [1, 6])
def test_going_on_after_any_batch_is_as_if_never_stopped(tmp_path, carry, buffer):
    paths = feature_shards(tmp_path, 2, 8, bad=True)
    plan = BatchPlan(3, 400, 130, buckets=4, carry=carry)
    whole = list(islice(features(paths, plan, shuffle_buffer=buffer), 24))
    assert whole[-1].place.epoch > 1 and any(len(x.place.waiting) for x in whole)
    assert any(len(x.place.unpaired) for x in whole)
    for start in range(1, 20):
        place = StreamState.from_json(whole[start - 1].place.to_json())
        again = features(paths, plan, shuffle_buffer=buffer, places={0: place}, consumed=start)
        rest = list(islice(again, 4))
        # samples that were read ahead of the batch are counted with the next one
        assert all(same(a, b) for a, b in zip(rest, whole[start:])), start


def test_counts_do_not_depend_on_where_a_run_stopped(tmp_path):
    paths = feature_shards(tmp_path, 2, 8, bad=True)
    whole = until(features(paths), 2)
    want = sum((x.skipped for x in whole), Counter())
    assert want == {"without text": 2 * 6}
    for cut in range(1, len(whole)):
        first = whole[:cut]
        rest = until(features(paths, places={0: first[-1].place}), 2)
        assert sum((x.skipped for x in [*first, *rest]), Counter()) == want


@pytest.mark.parametrize(
    ("shards", "before", "after"), [(4, 1, 2), (4, 2, 1), (4, 2, 3), (1, 2, 3), (2, 3, 2)]
)
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_another_number_of_processes_repeats_and_skips_nothing(
    tmp_path, shards, before, after, steps
):
    paths = feature_shards(tmp_path, shards, 9)
    used: Counter = Counter()
    saved: list[dict[int, StreamState]] = []
    for rank in range(before):
        taken = list(islice(features(paths, rank=rank, world=before), steps + rank))
        used.update(c for x in taken for c in clips(x))
        saved.append({0: taken[-1].place})
    last = max(places[0].fresh for places in saved)
    places, same_ones = resume(saved, shards, 1, after, 1)
    assert not same_ones
    for rank in range(after):
        again = features(paths, rank=rank, world=after, places=places[rank])
        used.update(c for x in until(again, last + 1) for c in clips(x))
    assert len(used) == sum(9 + s for s in range(shards))
    assert set(used.values()) == {last + 1}


def test_workers_of_a_loader_go_on_at_the_one_whose_turn_it_is(tmp_path):
    paths = feature_shards(tmp_path, 3, 7)

    def load(count: int, **options) -> list[Loaded]:
        stream = features(paths, **options)
        return list(islice(DataLoader(stream, batch_size=None, num_workers=2), count))

    whole, places = load(14), {}
    for x in whole[:5]:
        places[x.worker] = x.place
    rest = load(9, places=places, consumed=5)
    assert [x.worker for x in whole] == [0, 1] * 7
    assert all(same(a, b) and a.worker == b.worker for a, b in zip(rest, whole[5:]))


def test_prefetching_changes_nothing_and_carries_errors_over(tmp_path):
    paths = feature_shards(tmp_path, 2, 8)
    plain = list(islice(features(paths), 9))
    ahead = list(islice(Prefetch(features(paths), 3), 9))
    assert all(same(a, b) for a, b in zip(plain, ahead))
    with pytest.raises(DataError, match="nothing in the dataset"):
        list(Prefetch(SpeechBatches([], DIGITS, BatchPlan(1, 9, 9))))
    assert list(Prefetch([1, 2, 3], 1)) == [1, 2, 3]


def test_one_empty_share_does_not_end_a_run_and_nothing_but_empty_ones_does(tmp_path):
    paths = feature_shards(tmp_path, 2, 6)
    Path(paths[1]).write_bytes(b"no tar")
    for rank in range(2):  # in an epoch, one of the two has the bad shard alone
        loaded = list(islice(features(paths, rank=rank, world=2), 12))
        assert sum(len(x.texts) for x in loaded) > 6
        assert any(x.batch is None and x.epoch_ended is not None for x in loaded)
    Path(paths[0]).write_bytes(b"no tar")
    with pytest.raises(DataError, match="3 broken shard"):
        list(features(paths, rank=0, world=2))


def test_the_cache_in_memory_gives_the_same_numbers():
    plan = BatchPlan(4, 1600, 400)
    plain = SpeechBatches(many(9), TOKENIZER, plan)
    cached = SpeechBatches(many(9), TOKENIZER, plan, cache_bytes=10**8)
    assert all(same(a, b) for a, b in zip(until(plain, 3), until(cached, 3)))
    assert len(cached.cache) == 9


def test_clips_of_one_key_are_not_mixed_up_in_the_cache():
    twins = [{**s, "__key__": "same"} for s in samples()]
    stream = SpeechBatches(twins, TOKENIZER, BatchPlan(1, 200, 200), cache_bytes=10**8)
    stream.loss = LossConfig(pair=0.0)
    assert len({int(x.batch.lens[0]) for x in until(stream, 2)}) == len(samples())


def test_a_shard_that_breaks_off_costs_no_more_than_its_rest(tmp_path):
    paths = feature_shards(tmp_path, 3, 8)
    data = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(data[: len(data) // 2])
    loaded = until(features(paths, loss=LossConfig(pair=0.0)), 1)
    used = {c for x in loaded for c in clips(x)}
    assert sum((x.skipped for x in loaded), Counter())["broken shard"] == 1
    assert {f"c{n:04d}" for n in [*range(8), *range(200, 210)]} < used
    assert 2 <= len(used & {f"c{n:04d}" for n in range(100, 109)}) <= 6
