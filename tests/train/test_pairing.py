"""Pairs: as many as are asked for, whatever fits; few clips wait, and their place costs little."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from nanospeech.config import AudioConfig
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.order import StreamState
from nanospeech_torch.train.data.pairing import OBJECTS, RefTable, Waiting
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from nanospeech_torch.train.loop.config import TrainConfig
from nanospeech_torch.train.objectives.duration import DurationPredictor
from tests.train.shared import npy
from tests.train.test_data import DIGITS, clips, same, until
from tests.train.test_stream import write_tar
from tests.training import duration_model, samples, trainer

LONGEST = 937  # frames: those of nanospeech/configs/82M.yaml, as is the plan
PLAN = BatchPlan(112, 104_944, LONGEST)
COUNT, SPEAKERS = 1200, 30


@cache
def lengths(count: int = COUNT) -> list[int]:
    """Frames of clips as in LibriTTS: 5.9 s in the mean, most of 1 to 4 s, up to 20 and more."""
    seconds = np.random.default_rng(0).gamma(1.6, 5.85 / 1.6, 4 * count)
    frames = (seconds * 93.75).astype(int)
    return frames[(frames >= 60) & (frames <= LONGEST)][:count].tolist()


def shards(folder: Path, frames: list[int], speakers: int, each: int = 1000) -> tuple[str, ...]:
    """Tars of features of one band; clip 12 says "c12", and anyone may have said it."""
    rng, paths = np.random.default_rng(1), []
    for first in range(0, len(frames), each):
        files = []
        for n, length in enumerate(frames[first : first + each], first):
            meta = {"text": f"c{n}", "speaker": int(rng.integers(speakers))}
            files += [(f"{n}.npy", npy(np.zeros((length, 1), np.float16)))]
            files += [(f"{n}.json", json.dumps(meta).encode())]
        paths.append(str(write_tar(folder / f"{first:06d}.tar", files)))
    return tuple(paths)


@pytest.fixture(scope="module")
def libritts(tmp_path_factory) -> tuple[str, ...]:
    """Shards of clips as long as LibriTTS's."""
    return shards(tmp_path_factory.mktemp("libritts"), lengths(), SPEAKERS)


def stream(paths, pair: float, plan: BatchPlan = PLAN, **options) -> SpeechBatches:
    options = {"shuffle_buffer": 250, "seed": 1, **options}
    return SpeechBatches(
        paths, DIGITS, plan, AudioConfig(n_mels=1), LossConfig(pair=pair), **options
    )


@cache
def pairs(paths, pair: float, plan: BatchPlan = PLAN) -> list[tuple[int, int]]:
    """The clips of the pairs of an epoch, the prompt first; every clip is used once."""
    batches = stream(paths, 0, plan)
    batches.loss = LossConfig(pair=pair)
    items = [tuple(map(int, re.findall(r"\d+", t))) for x in until(batches, 1) for t in x.texts]
    assert sorted(n for item in items for n in item) == list(range(COUNT))
    return [item for item in items if len(item) == 2]  # type: ignore[misc]


def most_pairs(paths) -> int:
    """How many pairs could be made if all clips were there at once: the short with the long."""
    held, count = defaultdict(list), 0
    for _, sample in (x for n in range(len(paths)) for x in stream(paths, 1).source.open(n)):
        held[json.loads(sample["json"])["speaker"]].append(lengths()[int(sample["__key__"])])
    for frames in held.values():
        frames.sort()
        while len(frames) > 1:
            last = frames.pop()
            if frames[0] + last <= LONGEST:
                frames.pop(0)
                count += 1
    return count


@pytest.mark.parametrize("pair", [pytest.param(0.5, marks=pytest.mark.slow), 0.8])
def test_as_many_clips_are_paired_as_are_asked_for(libritts, pair):
    found = 2 * len(pairs(libritts, pair)) / COUNT
    sigma = (pair * (1 - pair) / COUNT) ** 0.5
    assert 0.9 * pair < found < pair + 4 * sigma


def test_where_there_is_room_none_waits_in_vain(libritts):
    found = 2 * len(pairs(libritts, 0.5, replace(PLAN, max_duration=2 * LONGEST))) / COUNT
    assert found > 0.5 - SPEAKERS / COUNT - 4 * (0.25 / COUNT) ** 0.5


def test_a_duration_model_gets_the_pairs_that_can_be(libritts):
    model = duration_model()
    assert isinstance(model, DurationPredictor) and model.loss.pair == 1
    assert len(pairs(libritts, model.loss.pair)) > 0.94 * most_pairs(libritts)


@pytest.mark.parametrize("pair", [0.5, 1.0])
def test_prompts_are_as_long_as_what_is_said_after_them(libritts, pair):
    found = np.array([[lengths()[n] for n in two] for two in pairs(libritts, pair)])
    assert found.sum(1).max() <= LONGEST
    longer = (found[:, 0] > found[:, 1]).mean()
    assert abs(longer - 0.5) < 4 * 0.5 / len(found) ** 0.5
    first, second = found.mean(0)
    assert abs(first - second) < 4 * found.std() * (2 / len(found)) ** 0.5


def test_clips_are_drawn_for_pairs_independently():
    batches = stream([], 0)
    batches.loss = LossConfig(pair=0.3)
    drawn = np.array(
        [
            [batches.paired({"key": f"{n:05d}", "epoch": e, "refs": [(e, 0, n)]}) for e in (0, 1)]
            for n in range(4000)
        ]
    )
    sigma = (0.3 * 0.7 / 4000) ** 0.5
    assert np.abs(drawn.mean(0) - 0.3).max() < 4 * sigma
    assert abs(drawn.all(1).mean() - 0.09) < 4 * (0.09 * 0.91 / 4000) ** 0.5  # epochs
    assert abs((drawn[1:] & drawn[:-1]).mean() - 0.09) < 4 * (0.09 * 0.91 / 8000) ** 0.5


def clip(number: int, frames: int, speaker: int = 0) -> dict:
    """A described clip as Waiting needs it."""
    return {"refs": [(0, 0, number)], "frames": frames, "speaker": speaker, "text": ""}


def test_of_those_that_wait_the_longest_that_fits_is_taken():
    rng, waiting, held = np.random.default_rng(0), Waiting(100, 10), []
    for n in range(2000):
        new = clip(n, int(rng.integers(10, 101)), int(rng.integers(3)))
        fitting = [c for c in held if c["speaker"] == new["speaker"]]
        fitting = [c for c in fitting if c["frames"] + new["frames"] <= 100]
        pair, alone = waiting.meet(new, True, lambda c: c)
        if fitting:
            best = max(fitting, key=lambda c: (c["frames"], -c["refs"][0][2]))
            assert pair == [best, new] and not alone
            held.remove(best)
        elif new["frames"] > 90:  # no clip is shorter than 10
            assert alone == [new] and not pair
        else:
            assert not pair and not alone
            held.append(new)
        assert waiting.refs.copy().tolist() == [list(c["refs"][0]) for c in held]
    by = sorted((c["speaker"], c["frames"]) for c in held)
    assert all(a[0] != b[0] or a[1] + b[1] > 100 for a, b in pairwise(by))
    assert [waiting.first() for _ in held] == held and not waiting.bytes


def test_a_short_clip_takes_the_place_of_a_long_one():
    waiting = Waiting(100)
    waiting.meet(clip(0, 70), True, lambda c: c)
    short = clip(1, 30)
    assert waiting.meet(short, False, lambda c: c) == ([], [short])  # just one waits
    waiting.meet(clip(2, 80), True, lambda c: c)
    long = clip(3, 60)
    assert waiting.meet(long, False, lambda c: c) == ([], [long])
    pair, alone = waiting.meet(short, False, lambda c: c)
    assert [c["frames"] for c in pair] == [70, 30] and [c["frames"] for c in alone] == [80]
    assert not waiting


def test_a_clip_is_decoded_only_where_one_of_its_speaker_fits():
    waiting, seen = Waiting(100), []

    def decoded(item: dict) -> dict:
        seen.append(item["refs"][0][2])
        return item

    for n, (frames, speaker) in enumerate([(60, 0), (9, 1), (61, 0), (90, 0), (62, 0)]):
        assert waiting.meet(clip(n, frames, speaker), True, decoded) == ([], [])
    alone = clip(5, 50)
    assert waiting.meet(alone, False, decoded) == ([], [alone]) and not seen
    assert waiting.meet(clip(6, 40), True, decoded)[0] and seen == [6, 0]


def test_a_clip_that_cannot_be_read_costs_no_other_its_partner():
    waiting = Waiting(100)
    for n, frames in enumerate((60, 55, 70)):
        waiting.meet(clip(n, frames), True, lambda c: c)
    bad = {1, 0}
    new = clip(3, 30)
    pair, alone = waiting.meet(new, True, lambda c: None if c["refs"][0][2] == 2 else c)
    assert [c["frames"] for c in pair] == [60, 30] and not alone and len(waiting) == 1
    again = clip(4, 40)
    pair, alone = waiting.meet(again, True, lambda c: None if c["refs"][0][2] in bad else c)
    assert not pair and not alone and waiting.first() is again and not waiting
    waiting.add(new)
    assert waiting.meet(clip(5, 40), True, lambda c: None) == ([], []) and len(waiting) == 1


def test_pair_mb_bounds_the_waiting_clips():
    """A clip is its data and what Python needs for it; the first to come are the first to go."""
    assert Waiting(100).most == 256 * 10**6
    waiting = Waiting(100, most=3 * (OBJECTS + 50 + 8))  # and 8 for the list of its references
    several = [{**clip(n, 60, n), "data": b"x" * 50} for n in range(5)]
    gone = [waiting.add(c) for c in several]
    assert gone == [[], [], [], several[:1], several[1:2]] and len(waiting) == 3
    assert Waiting(100).add(clip(0, 99)) == [] and Waiting(100).add(clip(0, 100)) != []


def test_few_clips_wait_however_many_speakers_there_are(tmp_path):
    paths = shards(tmp_path, [20 + n % 30 for n in range(750)], 10**9, 250)
    batches = stream(paths, 0, BatchPlan(50, 10_000, 120, pair_mb=1))
    batches.loss = LossConfig(pair=1)
    waiting, used = [], Counter()
    for x in until(batches, 1):
        waiting.append(len(x.place.unpaired))
        used.update(clips(x))
    assert len(used) == 750 and set(used.values()) == {1}
    assert 10**6 / (OBJECTS + 200) - 2 < max(waiting) <= 10**6 / OBJECTS < 500


def crowded(folder: Path, **options) -> SpeechBatches:
    """More clips than may wait, of 180 speakers: 400 of 100 bands, 8 kB each."""
    paths = [str(p) for p in sorted(folder.glob("*.tar"))]
    if not paths:
        rng = np.random.default_rng(3)
        for s in range(2):
            files = []
            for n in range(s * 200, s * 200 + 200):
                mel = rng.standard_normal((int(rng.integers(30, 70)), 100)).astype(np.float16)
                meta = {"text": f"c{n}", "speaker": n * 7 % 180}
                files += [(f"{n}.npy", npy(mel)), (f"{n}.json", json.dumps(meta).encode())]
            paths.append(str(write_tar(folder / f"{s}.tar", files)))
    options = {
        "shuffle_buffer": 20,
        "seed": 1,
        "plan": BatchPlan(8, 2000, 120, pair_mb=1),
        **options,
    }
    return SpeechBatches(paths, DIGITS, loss=LossConfig(pair=0.9), **options)


def test_going_on_is_as_if_never_stopped_where_clips_had_to_go_alone(tmp_path):
    whole = until(crowded(tmp_path), 2)
    most = max(len(x.place.unpaired) for x in whole)
    assert 60 < most < 130 and sum(" " in text for x in whole for text in x.texts) > 20
    for start in range(3, len(whole) - 3, 13):
        place = StreamState.from_json(json.loads(json.dumps(whole[start - 1].place.to_json())))
        rest = islice(crowded(tmp_path, places={0: place}, consumed=start), 3)
        assert all(same(a, b) for a, b in zip(rest, whole[start:])), start


def test_where_less_may_wait_than_before_nothing_is_lost(tmp_path):
    roomy = BatchPlan(8, 2000, 120)
    whole = until(crowded(tmp_path, plan=roomy), 1)
    start = max(range(len(whole)), key=lambda n: len(whole[n].place.unpaired))
    assert len(whole[start].place.unpaired) > 120
    tight = replace(roomy, pair_mb=1)
    rest = until(crowded(tmp_path, plan=tight, places={0: whole[start].place}), 1)
    assert len(rest[0].place.unpaired) < 110
    used = Counter(c for x in [*whole[: start + 1], *rest] for c in clips(x))
    assert len(used) == 400 and set(used.values()) == {1}


def operations(call) -> int:
    """Lines of Python run and functions called, in C or in Python."""
    count = 0

    def see(frame, event, argument):
        nonlocal count
        count += 1
        return see

    before = sys.gettrace(), sys.getprofile()  # such as those that measure coverage
    sys.settrace(see)
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    return count


def test_the_cost_of_a_stream_state_does_not_grow_with_waiting_clips(tmp_path):
    batches = crowded(tmp_path)
    next(iter(batches))
    before, seen = len(batches.unpaired), []
    for count in (100, 2000):
        batches.unpaired.most = 10**9
        for n in range(len(batches.unpaired) - before, count):
            batches.unpaired.add(clip(n, 60, n + 1000))
        seen.append(operations(batches.place))
        assert len(batches.place().unpaired) == before + count
    assert seen[0] == seen[1]


def test_a_table_keeps_its_order_and_its_size():
    rng, table, held = np.random.default_rng(0), RefTable(), {}
    for n in range(5000):
        table.add(n, (0, n // 7, n))
        held[n] = [0, n // 7, n]
        while len(held) > 100 or (held and rng.random() < 0.4):
            out = list(held)[int(rng.integers(len(held)))]
            table.remove(out)
            del held[out]
        if n % 50 == 0:
            assert table.copy().tolist() == list(held.values())
    kept = table.copy()
    table.add(5000, (9, 9, 9))
    assert (
        len(kept) == len(held) and len(table.rows) <= 256
    )  # a copy, and no more room than it takes


def test_a_table_makes_room_when_it_is_full():
    """64 rows at first, then at least twice what it holds; gaps are closed only then."""
    table, number = RefTable(), 0
    assert len(table.rows) == len(table.alive) == 64
    for taken_out, room in ((40, 64), (0, 128), (0, 256), (250, 64)):
        rows = table.rows
        for _ in range(len(rows) - table.end):
            table.add(number, (0, 0, number))
            number += 1
        assert table.rows is rows and table.end == len(rows)
        for old in list(table.at)[:taken_out]:
            table.remove(old)
        kept = [*table.copy()[:, 2].tolist(), number]
        table.add(number, (0, 0, number))
        number += 1
        assert table.copy()[:, 2].tolist() == kept and len(table.rows) == len(table.alive) == room


def test_a_run_says_how_much_may_wait(tmp_path):
    run, plans = trainer(tmp_path, pair_mb=3), []
    loader = run.loader
    run.loader = lambda data, plan, *rest: plans.append(plan) or loader(data, plan, *rest)
    run.train(samples(), 1, batch_size=2, max_duration=400, save_step=100)
    assert [plan.pair_mb for plan in plans] == [3]
    with pytest.raises(InputError, match="pair_mb is 0"):
        TrainConfig(pair_mb=0)
