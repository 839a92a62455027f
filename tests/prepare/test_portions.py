"""Portions: clips prepared by many machines are those that one machine prepares."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import find
from nanospeech.errors import BackendError, DataError
from nanospeech.prepare import ray_data
from nanospeech.prepare.curate import curate, spread_curate
from nanospeech.prepare.curate_clips import CurateOptions
from nanospeech.prepare.portions import Portions, members_of
from nanospeech.prepare.shards import ShardOptions, make_shards, pack_portion, spread_shards

from .test_shards import LIBRITTS, LJSPEECH, SHARD, broken_dataset

OPTIONS = CurateOptions(held_out=2, vary=(0.1,), level=0.07, speaker="x", size=2, max_wer=1.0)


def held(folder: Path) -> dict[str, dict[str, bytes]]:
    """The bytes of each sample in a folder of shards, by key and extension."""
    shards = sorted(folder.glob("*.tar"))
    assert [p.name.rpartition("-")[2] for p in shards] == [
        f"{n:06d}.tar" for n in range(len(shards))
    ]
    return {key: members for path in shards for key, members in members_of(path)}


def few_or_many(wave: np.ndarray, language: str) -> str:
    """Hears one word or hundreds, so that some clips are dropped, whatever their texts."""
    return "the " * (300 if len(wave) % 3 == 0 else 1)


def ear():
    return few_or_many


def deaf():
    raise AssertionError("listened again")


class Counted:
    """A runner in this process that counts, and stops after some portions."""

    def __init__(self, stop_after: int = 10**6):
        self.done, self.stop_after = 0, stop_after

    def __call__(self, work, numbers):
        for number in reversed(numbers):
            if self.done == self.stop_after:
                raise KeyboardInterrupt
            self.done += 1
            yield work(number)


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_a_name_that_is_no_utf8_is_one_of_a_portion(tmp_path):
    (tmp_path / "in").mkdir()
    shutil.copy(LJSPEECH / "wavs/LJ001-0008.wav", tmp_path / "in/caf\udce9.wav")
    (tmp_path / "in/caf\udce9.txt").write_text("has never been surpassed")
    samples = find([tmp_path / "in"])[0]
    assert spread_shards(samples, tmp_path / "out", ShardOptions(), Counted())[0]["samples"] == 1


def test_shards_in_portions_hold_what_one_machine_writes(tmp_path):
    (tmp_path / "in").mkdir()
    broken_dataset(tmp_path / "in")
    samples, _ = find([tmp_path / "in", LIBRITTS, LJSPEECH, SHARD])
    options = ShardOptions(size=4, min_seconds=0.2, speaker="anna", seed=3)
    counts, skips = make_shards(samples, tmp_path / "a", options)
    runner = Counted()
    spread, spread_skips = spread_shards(samples, tmp_path / "b", options, runner)
    assert runner.done == -(-len(samples) // 4)
    assert list(held(tmp_path / "a")) == list(held(tmp_path / "b"))  # in the same order, too
    assert held(tmp_path / "a") == held(tmp_path / "b")
    assert {**spread, "shards": 0} == {**counts, "shards": 0} and spread_skips == skips
    assert not (tmp_path / "b/.portions").exists()


@pytest.mark.parametrize("hours", [None, 1 / 3600])
def test_curating_in_portions_gives_the_same_clips_and_report(tmp_path, hours):
    pytest.importorskip("whisper_normalizer")
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD])
    options = CurateOptions(**{**vars(OPTIONS), "max_hours": hours, "language": "it"})
    one = curate(samples, tmp_path / "a", options, (), ear, "ear")
    many = spread_curate(samples, tmp_path / "b", options, Counted(), (), ear, "ear")
    assert many == one
    assert any(s.reason == "misheard" for s in one[1])
    assert any(s.reason == "enough of this speaker" for s in one[1]) == bool(hours)
    for side in ("train", "heldout"):
        assert held(tmp_path / "a" / side) == held(tmp_path / "b" / side)
        assert held(tmp_path / "a" / side)
    heard = [(tmp_path / run / "heard.csv").read_text(encoding="utf-8") for run in ("a", "b")]
    assert set(heard[0].splitlines()) <= set(heard[1].splitlines())
    assert all(text.count(",ear it,") == len(text.splitlines()) - 1 for text in heard)


def test_past_its_hours_a_speaker_is_still_held_out_and_has_no_more_copies(tmp_path):
    samples, _ = find([SHARD])
    options = CurateOptions(held_out=2, max_hours=1 / 3600, vary=(0.1,), size=2)
    one = curate(samples, tmp_path / "a", options)
    assert spread_curate(samples, tmp_path / "b", options, Counted()) == one
    for side in ("train", "heldout"):
        assert held(tmp_path / "a" / side) == held(tmp_path / "b" / side)
    whole = {s.key for s in samples if is_held_out(s.key, 2)}
    assert set(held(tmp_path / "a" / "heldout")) == whole and len(whole) == 2
    clip, copy = held(tmp_path / "a" / "train")
    assert copy.startswith(f"{clip}-")


def test_a_run_that_was_stopped_goes_on_and_hears_nothing_twice(tmp_path):
    pytest.importorskip("whisper_normalizer")
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD])
    give = partial(spread_curate, samples, tmp_path / "b", load=ear, recogniser="ear")
    with pytest.raises(KeyboardInterrupt):
        give(OPTIONS, Counted(stop_after=3))
    assert not (tmp_path / "b/train").exists()
    second = Counted()
    give(OPTIONS, second)
    assert second.done == len(samples) / 2 - 3
    with (tmp_path / "b/heard.csv").open(newline="", encoding="utf-8") as f:
        keys = [row["key"] for row in csv.DictReader(f)]
    assert sorted(keys) == sorted(s.key for s in samples)
    third = Counted()
    with pytest.raises(KeyboardInterrupt):
        give(OPTIONS, Counted(stop_after=1), overwrite=True)
    give(CurateOptions(**{**vars(OPTIONS), "level": 0.1}), third, overwrite=True)
    assert third.done == len(samples) / 2  # with other settings nothing of before is used
    looser = replace(OPTIONS, max_wer=2.0)  # but what was heard
    spread_curate(samples, tmp_path / "b", looser, Counted(), (), deaf, "ear", overwrite=True)


def test_a_file_system_without_hard_links_gets_copies(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD])
    assert len(samples) % 3
    spread_shards(samples, tmp_path / "b", ShardOptions(size=3), Counted())
    make_shards(samples, tmp_path / "a", ShardOptions(size=3))
    assert held(tmp_path / "a") == held(tmp_path / "b")
    assert len({p.name for p in (tmp_path / "b").iterdir()}) == -(-len(samples) // 3)


def test_a_portion_that_fails_is_named_and_the_others_are_kept(tmp_path):
    samples, _ = find([SHARD])
    portions = Portions(tmp_path / "w", samples, 1, {})
    work = partial(pack_portion, options=ShardOptions())

    def run(work, numbers):
        yield work(numbers[0])
        yield numbers[1], "the disk is full"

    with pytest.raises(DataError, match="portion 1 failed: the disk is full"):
        list(portions.run(work, run))
    assert portions.report(0) is not None and portions.report(1) is None
    for error, told in ((OSError(28, "No space left"), "No space left"), (OSError(), "OSError")):
        with pytest.raises(DataError, match=rf"portion 1 failed: .*{told}$"):
            list(portions.run(partial(refuse, error), map))
    list(portions.run(work, map))
    list(portions.run(work, lambda *_: pytest.fail("nothing is left to do")))


def refuse(error: Exception, *_):
    raise error


def dies_once(mark: Path, work, number: int):
    """Does the work, in a process that the first call of all kills."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return work(number)


def test_ray_runs_portions_and_repeats_one_whose_process_died(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    samples, _ = find([LIBRITTS, SHARD])
    mark = tmp_path / "died"

    def runner(work, numbers):
        return ray_data.on_ray(2)(partial(dies_once, mark, work), numbers)

    one = curate(samples, tmp_path / "a", OPTIONS)
    assert spread_curate(samples, tmp_path / "b", OPTIONS, runner) == one and mark.exists()
    for side in ("train", "heldout"):
        assert held(tmp_path / "b" / side) == held(tmp_path / "a" / side)


def test_no_cluster_where_one_is_named_is_a_mistake(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(BackendError, match="no Ray cluster at RAY_ADDRESS"):
        ray_data.start(ray, 1)
