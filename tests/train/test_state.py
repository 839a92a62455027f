"""State: logs without steps that are taken again, processes' files, which checkpoint is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nanospeech.errors import CheckpointError
from nanospeech_torch.train.data.order import StreamState
from nanospeech_torch.train.loop.state import (
    Ranks,
    alike,
    cut_log,
    named,
    random_state,
    set_random_state,
)


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (3, "step,loss\n1,0.5\n2,0.4\n3,0.3\n"),
        (2, "step,loss\n1,0.5\n2,0.4\n"),
        (1, "step,loss\n1,0.5\n"),
        (0, ""),  # the next line that is logged brings its own head
    ],
)
def test_lines_of_steps_that_are_taken_again_leave_the_log(tmp_path, step, kept):
    log = tmp_path / "log.csv"
    log.write_bytes(b"step,loss\n1,0.5\n2,0.4\n\n3,0.3\nbroken,off\n\0\0\xff")  # by a power cut
    cut_log(log, step)
    assert log.read_text().replace("\r", "") == kept
    assert [p.name for p in tmp_path.iterdir()] == ["log.csv"]


def test_a_run_without_a_log_has_none_afterwards(tmp_path):
    cut_log(tmp_path / "log.csv", 3)
    assert not list(tmp_path.iterdir())


def checkpoint(folder: Path, processes: int, per_part: int = 1, workers: int = 2) -> Path:
    """The files of processes, of which so many read the same part of the data."""
    folder.mkdir()
    parts = processes // per_part
    for rank in range(processes):
        part = rank // per_part
        places = {
            str(w): StreamState(part * workers + w, parts * workers, epoch=1).to_json()
            for w in range(workers)
        }
        said = {"data_rank": part, "places": places, "consumed": 10 * part, "wrote": rank}
        (folder / f"rank_{rank:05d}.json").write_text(json.dumps(said))
    return folder


def test_of_processes_that_share_a_part_of_the_data_the_first_is_read(tmp_path):
    ranks = Ranks(checkpoint(tmp_path / "c", 6, per_part=2), 6, 3)
    assert [ranks.of(part)["wrote"] for part in range(3)] == [0, 2, 4]
    assert ranks.of(3) is None and ranks.places(3) == {}
    places = ranks.places(1)
    assert {w: (p.stream, p.streams) for w, p in places.items()} == {0: (2, 6), 1: (3, 6)}


def test_each_file_is_read_once_and_only_if_it_is_asked_for(tmp_path):
    folder = checkpoint(tmp_path / "c", 3)
    (folder / "rank_00002.json").write_text("{")
    ranks = Ranks(folder, 3, 3)
    assert ranks.read(1)["wrote"] == 1
    (folder / "rank_00001.json").unlink()
    assert ranks.read(1)["wrote"] == 1
    for rank in (1, 2):
        with pytest.raises(CheckpointError, match=f"rank_0000{rank}"):
            Ranks(folder, 3, 3).read(rank)


def test_the_same_processes_go_on_from_their_own_files_alone(tmp_path):
    folder = checkpoint(tmp_path / "c", 2)
    (folder / "rank_00001.json").unlink()
    own, same, streams = Ranks(folder, 2, 2).resume(shards=4, seed=0, rank=0, world=2, workers=2)
    assert same and streams == 4 and {w: p.stream for w, p in own.items()} == {0: 0, 1: 1}
    for world, workers in ((1, 2), (2, 1)):  # others need all
        with pytest.raises(CheckpointError, match="rank_00001"):
            Ranks(folder, 2, 2).resume(shards=4, seed=0, rank=0, world=world, workers=workers)


def test_other_processes_are_dealt_what_is_left(tmp_path):
    folder = checkpoint(tmp_path / "c", 2)
    places, same, before = Ranks(folder, 2, 2).resume(4, seed=0, rank=0, world=1, workers=1)
    assert not same and before == 4
    assert [(p.stream, p.streams) for p in places.values()] == [(0, 1)]


@pytest.mark.parametrize(
    ("stream", "streams", "same"), [(3, 4, True), (2, 4, False), (3, 6, False)]
)
def test_streams_are_a_workers_own_by_their_number_and_that_of_all(stream, streams, same):
    assert alike({1: StreamState(stream, streams)}, rank=1, world=2, workers=2) == same


def test_a_checkpoint_is_named_by_its_folder_or_its_runs(tmp_path):
    step = tmp_path / "run" / "step_00000004"
    step.mkdir(parents=True)
    assert named(str(step)) == step
    assert named(str(tmp_path / "run")) == tmp_path / "run"  # of which it is told what is missing
    for file in (".metadata", "meta.json"):
        (step / file).touch()
    for latest in ("step_00000004\n", "step_00000009\n", ""):  # one that is gone, none
        (tmp_path / "run" / "latest").write_text(latest)
        assert named(str(tmp_path / "run")) == step
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        named(str(tmp_path / "none"))


def test_torchs_generator_goes_on_where_it_stood():
    torch.manual_seed(3)
    state = json.loads(json.dumps(random_state()))
    want = torch.rand(4)
    torch.manual_seed(4)
    set_random_state(state)
    assert torch.equal(torch.rand(4), want)
