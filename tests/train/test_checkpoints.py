"""Checkpoints: whole or not at all, read without running code, kept to a number."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import time
import warnings
from collections import namedtuple
from concurrent.futures import Future
from enum import Enum
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata, TensorProperties

from nanospeech.errors import CheckpointError, InputError
from nanospeech.locks import alone
from nanospeech_torch.checkpoint_reader import SafeReader, complete, read_tensors
from nanospeech_torch.train.loop.checkpoints import Checkpoints
from nanospeech_torch.train.loop.disk import sync
from nanospeech_torch.train.loop.export import exported_bytes
from nanospeech_torch.train.loop.state import Ranks
from tests.forked import Forked, finish, ranks
from tests.training import samples, trainer


def tensors() -> dict[str, torch.Tensor]:
    return {
        "model.a": torch.arange(6.0).reshape(2, 3),
        "optimizer.0.a.step": torch.tensor(3.0),
        "model.h": torch.ones(4, dtype=torch.bfloat16),
    }


def save(checkpoints: Checkpoints, step: int, state: dict | None = None) -> bool:
    checkpoints.save(step, state or tensors(), {"step": step}, {"data_rank": 0})
    return checkpoints.wait()


def test_what_was_saved_is_what_tensors_held_when_saving_began(tmp_path):
    state = tensors()
    checkpoints = Checkpoints(tmp_path, 3)
    checkpoints.save(1, state, {"step": 1}, {"data_rank": 0})
    state["model.a"].zero_()  # as training does while the checkpoint is being written
    assert checkpoints.wait()
    into = {name: torch.empty_like(value) for name, value in state.items()}
    newest = checkpoints.newest()
    assert newest is not None
    checkpoints.load(newest, into)
    assert checkpoints.meta(newest) == {"step": 1}
    assert json.loads((newest / "rank_00000.json").read_text()) == {"data_rank": 0}
    assert all(torch.equal(into[n], v) for n, v in tensors().items())
    assert set(read_tensors(newest, "model.")) == {"a", "h"}


def test_an_old_checkpoint_that_was_moved_away_and_linked_to_costs_no_new_one(tmp_path, capsys):
    run, elsewhere = tmp_path / "run", tmp_path / "another_disk"
    trainer(run, keep=1).train(samples(), 1, 2, max_duration=200)
    shutil.move(run / "step_00000001", elsewhere)
    (run / "step_00000001").symlink_to(elsewhere, target_is_directory=True)
    for steps in (2, 3):
        trainer(run, keep=1).train(samples(), steps, 2, max_duration=200)
    assert "could not" not in capsys.readouterr().out
    assert [p.name for p in run.glob("step_*[0-9]")] == ["step_00000003"]
    assert complete(elsewhere) and not list(run.glob("*.part"))


def test_latest_moves_only_to_whole_checkpoints_and_old_ones_go(tmp_path):
    checkpoints = Checkpoints(tmp_path, 2)
    assert checkpoints.newest() is None
    assert all(save(checkpoints, step) for step in (1, 2, 3))
    assert sorted(p.name for p in tmp_path.glob("step_*")) == ["step_00000002", "step_00000003"]
    assert checkpoints.newest() == tmp_path / "step_00000003"
    (tmp_path / "step_00000003" / ".metadata").unlink()  # damaged since
    assert checkpoints.newest() == tmp_path / "step_00000002"
    (tmp_path / "step_00000009.part").mkdir()  # of a killed process
    checkpoints.clear_parts()
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_leaves_the_last_good_checkpoint_and_says_so(tmp_path):
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, 2, say=said.append)
    assert save(checkpoints, 1)
    big = {"model.a": torch.zeros(1_000_000)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # the system refuses to write
    try:
        checkpoints.save(2, big, {"step": 2}, {"data_rank": 0})
        assert checkpoints.pending is not None and checkpoints.pending.exception(timeout=60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(said) == 1  # there and then, not at the next save, and once
    assert not checkpoints.wait() and len(said) == 1
    assert "could not write checkpoint step_00000002" in said[0]
    assert "The last good one is step_00000001" in said[0] and "GiB are free" in said[0]
    assert not list(tmp_path.glob("*.part")) and checkpoints.newest() == tmp_path / "step_00000001"
    assert save(checkpoints, 3, big)  # room again


def test_metadata_that_would_run_code_is_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    checkpoints = Checkpoints(tmp_path / "run", 2)
    save(checkpoints, 1)
    path = checkpoints.newest()
    assert path is not None
    (path / ".metadata").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match="not loaded"):
        SafeReader(path).read_metadata()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "owner", ["pathlib\nPath", "torch.distributed.checkpoint.metadata\nMetadata"]
)
def test_metadata_that_would_change_a_class_of_the_process_is_refused(tmp_path, owner):
    """A pickle can set attributes of what it names: the name of Path, say, is that of all paths."""
    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1)
    path = checkpoints.newest()
    assert path is not None
    state = pickle.dumps((None, {"changed": "by a checkpoint"}), protocol=0)[:-1]
    (path / ".metadata").write_bytes(f"c{owner}\n".encode() + state + pickle.BUILD + pickle.STOP)
    with pytest.raises(CheckpointError, match="would change a class"):
        SafeReader(path).read_metadata()
    assert not hasattr(path, "changed") and not hasattr(Metadata, "changed")


class OlderPickler(pickle.Pickler):
    """Writes members of enumerations as Python 3.11.2 does."""

    def reducer_override(self, x):
        return (getattr, (type(x), x.name)) if isinstance(x, Enum) else NotImplemented


@pytest.mark.parametrize("protocol", [2, 4])
def test_metadata_of_older_pythons_is_read_and_their_getattr_gives_nothing_else(tmp_path, protocol):
    class Trap:
        def __reduce__(self):
            return getattr, (TensorProperties, "__init__")

    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1)
    path = checkpoints.newest()
    assert path is not None
    old = (path / ".metadata").read_bytes()

    def write(x):
        with (path / ".metadata").open("wb") as stream:
            OlderPickler(stream, protocol).dump(x)
        assert b"getattr" in (path / ".metadata").read_bytes()

    write(pickle.loads(old))
    found, wanted = SafeReader(path).read_metadata(), pickle.loads(old)
    assert found.state_dict_metadata == wanted.state_dict_metadata
    assert found.storage_data == wanted.storage_data
    write(Trap())
    with pytest.raises(CheckpointError, match=r"asks for __init__ of .*; not loaded"):
        SafeReader(path).read_metadata()


@pytest.mark.parametrize("where", ["pathlib._local\nPosixPath", "pathlib\nWindowsPath"])
def test_metadata_of_python_3_13_and_of_windows_are_read(tmp_path, where):
    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1)
    path = checkpoints.newest()
    assert path is not None
    whole = pickle.loads((path / ".metadata").read_bytes())
    old, new = rb"cpathlib[._a-z]*\n\w+Path\n", f"c{where}\n".encode()
    changed, count = re.subn(old, new, pickle.dumps(whole, protocol=2))
    assert count
    (path / ".metadata").write_bytes(changed)
    assert SafeReader(path).read_metadata().state_dict_metadata == whole.state_dict_metadata
    assert read_tensors(path).keys() == tensors().keys()


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1)
    path = checkpoints.newest()
    assert path is not None
    other = {**tensors(), "model.b": torch.zeros(2), "model.a": torch.zeros(2, 2)}
    with pytest.raises(CheckpointError) as e:
        checkpoints.load(path, other)
    assert "1 tensors missing (model.b)" in str(e.value) and "model.a: (2, 3) there" in str(e.value)
    shutil.rmtree(path)
    path.mkdir()
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        read_tensors(path)
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        checkpoints.load(path, tensors())
    assert not complete(path)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_data_that_fail_cost_no_step(tmp_path, accumulate):
    class Failing(list):
        left = 7 + 2 * accumulate  # samples until then: four steps, and half of one of two batches

        def __iter__(self):
            for sample in super().__iter__():
                if self.left == 0:
                    raise OSError("the disk is gone")
                self.left -= 1
                yield sample

    plan = {"batch_size": 3 - accumulate, "max_duration": 200, "save_step": 100}
    data = Failing(samples())
    run = trainer(tmp_path / "run", accumulate=accumulate)
    with pytest.raises(OSError, match="the disk is gone"):
        run.train(data, 9, **plan)
    taken = run.step
    assert taken == 4 and run.checkpoints.newest() == tmp_path / "run" / f"step_{taken:08d}"
    run = trainer(tmp_path / "run", accumulate=accumulate)
    run.train(samples(), 9, **plan)
    whole = trainer(tmp_path / "whole", accumulate=accumulate)
    whole.train(samples(), 9, **plan)
    pairs = zip(run.core.parameters(), whole.core.parameters())
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", ["__0_0.distcp", "meta.json"])
def test_a_damaged_checkpoint_is_named_and_an_earlier_one_goes_on(tmp_path, name):
    trainer(tmp_path).train(samples(), 2, 2, max_duration=200, save_step=1)
    newest = tmp_path / "step_00000002"
    whole = (newest / name).read_bytes()
    told = "a file" if name == "__0_0.distcp" else name
    for content in (whole[: len(whole) // 2], None):
        (newest / name).write_bytes(content) if content else (newest / name).unlink()
        if complete(newest):
            with pytest.raises(CheckpointError, match=f"step_00000002, of which {told} is missing"):
                trainer(tmp_path).train(samples(), 3, 2, max_duration=200)
    earlier = str(tmp_path / "step_00000001")
    run = trainer(tmp_path)
    run.train(samples(), 3, 2, max_duration=200, resume=earlier)
    assert run.step == 3 and (tmp_path / "before_1" / newest.name).is_dir()


@pytest.mark.parametrize("name", [".metadata", "meta.json", "rank_00000.json"])
def test_the_damaged_file_of_a_checkpoint_is_named(tmp_path, name):
    save(Checkpoints(tmp_path, 2), 1)
    path = tmp_path / "step_00000001"
    whole, told = (path / name).read_bytes(), rf"of which {re.escape(name)} is.* by --resume RUN/"
    for content in (b"", whole[: len(whole) // 2], bytes(len(whole))):  # a copy broke off
        (path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=told):
            Checkpoints(tmp_path, 2).open(path)
            Checkpoints(tmp_path, 2).meta(path)
            Ranks(path, 1, 1).read(0)


def test_a_folder_that_cannot_be_written_to_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    run = trainer(tmp_path / "file" / "run")
    with pytest.raises(InputError, match="cannot write to run_dir"):
        run.train(samples(), 4, 2, max_duration=200)
    assert run.step == 0


def test_a_run_outlives_a_full_disk(tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = trainer(tmp_path)
    plain = run.checkpoints.save

    def save_with_little_room(step, *args):
        if step == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        try:
            plain(step, *args)
            run.checkpoints.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    run.checkpoints.save = save_with_little_room
    run.train(samples(), 4, 2, max_duration=200, save_step=1)
    assert "could not write checkpoint step_00000002" in capsys.readouterr().out
    names = [p.name for p in sorted(tmp_path.glob("step_????????"))]
    assert names == ["step_00000001", "step_00000003", "step_00000004"]


def test_metadata_of_anything_but_tensors_is_refused(tmp_path):
    """The library would unpickle what is no tensor."""
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1)
    path = checkpoints.newest()
    assert path is not None
    metadata = pickle.loads((path / ".metadata").read_bytes())
    metadata.state_dict_metadata["model.trap"] = BytesStorageMetadata()
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match="not loaded"):
        read_tensors(path)


def test_an_export_that_fails_leaves_the_checkpoint(tmp_path):
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, 2, say=said.append)
    (tmp_path / "step_00000001.pt").mkdir()  # in the way of the export
    export = {"step": 1, "ema_state_dict": {}}
    checkpoints.save(1, tensors(), {"step": 1}, {"data_rank": 0}, export)
    assert checkpoints.wait() and checkpoints.newest() == tmp_path / "step_00000001"
    assert "could not write" in said[0] and "step_00000001/ is complete" in said[0]
    assert not list(tmp_path.glob("*.part"))


def test_an_export_in_parts_that_fails_leaves_the_checkpoint(tmp_path):
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, 2, say=said.append)
    (tmp_path / "step_00000001.weights").write_text("in the way of the export")
    checkpoints.save(1, tensors(), {"step": 1}, {"data_rank": 0}, {"step": 1})
    assert checkpoints.wait() and checkpoints.newest() == tmp_path / "step_00000001"
    assert "could not write" in said[0] and "step_00000001/ is complete" in said[0]
    assert not list(tmp_path.glob("*.part"))


def test_latest_decides_unless_it_names_none_of_the_folder(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run", 3)
    assert all(save(checkpoints, step) for step in (1, 2))
    other = Checkpoints(tmp_path / "other", 3)
    assert save(other, 9)
    pointer = tmp_path / "run" / "latest"
    assert pointer.read_text() == "step_00000002\n"
    pointer.write_text("step_00000001\n")  # somebody went back
    assert checkpoints.newest() == tmp_path / "run" / "step_00000001"
    abroad = b"../other/step_00000009", os.fsencode(tmp_path / "other" / "step_00000009")
    for elsewhere in (*abroad, b"gone", b"", b"\xff"):
        pointer.write_bytes(elsewhere)
        assert checkpoints.newest() == tmp_path / "run" / "step_00000002"
    pointer.unlink()
    assert checkpoints.newest() == tmp_path / "run" / "step_00000002"


@pytest.mark.parametrize("ending", [".pt", ".weights"])
def test_as_many_exports_as_checkpoints_are_kept(tmp_path, ending):
    checkpoints = Checkpoints(tmp_path, 2)
    for step in (1, 2, 3, 4):
        export = {"step": step, **({"ema_state_dict": {}} if ending == ".pt" else {})}
        checkpoints.save(step, tensors(), {"step": step}, {}, export)
        assert checkpoints.wait()
    names = ["step_00000003", "step_00000004"]
    assert sorted(p.name for p in tmp_path.glob("step_*")) == sorted(
        [*names, *(name + ending for name in names)]
    )


@pytest.mark.parametrize(
    ("export", "need"),
    [
        (None, 36),  # six and one of 4 bytes, four of 2
        ({"ema_state_dict": {"a": torch.zeros(3), "step": 1}, "step": 1}, 36 + 12),
        ({"step": 1}, 36 + exported_bytes(tensors())),
    ],
    ids=["none", "weights", "made of the checkpoint"],
)
def test_a_checkpoint_that_the_disk_cannot_hold_is_not_begun(tmp_path, monkeypatch, export, need):
    usage = namedtuple("usage", "total used free")
    checkpoints = Checkpoints(tmp_path, 2)
    for free in (need, need - 1):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage(0, 0, free))
        if free == need:
            checkpoints.check_room(tensors(), export)
            continue
        with pytest.raises(OSError, match="no space left") as e:
            checkpoints.check_room(tensors(), export)
        assert e.value.errno == errno.ENOSPC


def test_the_room_that_a_checkpoint_needs_and_has_is_told_in_gibibytes(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 3 * 2**29))
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, 2, say=said.append)
    big = {"model.a": torch.empty(5 * 2**27, device="meta")}  # 2.5 GiB
    assert not save(checkpoints, 1, big)
    assert "no space left: 2.50 GiB are needed; 1.5 GiB are free there" in said[0]
    assert not list(tmp_path.iterdir())


def run_of(folder: Path, steps: tuple[int, ...]) -> tuple[Checkpoints, list[str]]:
    """Checkpoints of these steps with their exports and a log; what is said from there on."""
    said: list[str] = []
    checkpoints = Checkpoints(folder, 9, say=said.append)
    for step in steps:
        checkpoints.save(step, tensors(), {"step": step}, {}, {"ema_state_dict": {}})
        assert checkpoints.wait()
    (folder / "log.csv").write_text("step,loss\n")
    return checkpoints, said


def test_what_lies_beyond_the_step_that_a_run_goes_on_from_is_set_aside(tmp_path):
    checkpoints, said = run_of(tmp_path, (1, 2, 3))
    checkpoints.set_aside(3)
    assert not said and not (tmp_path / "before_1").exists()
    checkpoints.set_aside(1)
    assert said == [f"4 checkpoints and exports beyond step 1 are now in {tmp_path / 'before_1'}"]
    moved = [f"step_0000000{n}{end}" for n in (2, 3) for end in ("", ".pt")]
    assert sorted(p.name for p in (tmp_path / "before_1").iterdir()) == sorted([*moved, "log.csv"])
    assert sorted(p.name for p in tmp_path.glob("step_*")) == ["step_00000001", "step_00000001.pt"]
    assert (tmp_path / "log.csv").exists()  # the run goes on writing it
    assert (tmp_path / "latest").read_text() == "step_00000001\n"
    assert save(checkpoints, 2)
    checkpoints.set_aside(1)
    assert [p.name for p in (tmp_path / "before_2").glob("step_*")] == ["step_00000002"]


def test_a_run_that_begins_anew_sets_all_aside(tmp_path):
    checkpoints, said = run_of(tmp_path, (1,))
    (tmp_path / "log.csv").unlink()
    assert save(checkpoints, 0)
    checkpoints.set_aside(0)
    assert "beyond step 0" in said[0]
    assert (tmp_path / "latest").read_text() == "step_00000000\n"
    checkpoints.set_aside(-1)
    assert said[1] == f"1 checkpoints and exports are now in {tmp_path / 'before_2'}"
    assert not (tmp_path / "latest").exists() and checkpoints.newest() is None
    assert [p.name for p in (tmp_path / "before_2").iterdir()] == ["step_00000000"]
    assert save(checkpoints, 3)
    (tmp_path / "latest").unlink()
    checkpoints.set_aside(-1)
    assert (tmp_path / "before_3" / "step_00000003").is_dir()
    Checkpoints(tmp_path / "none", 2).set_aside(-1)  # nothing there


def test_latest_names_nothing_where_a_run_goes_on_from_elsewhere(tmp_path):
    checkpoints, _ = run_of(tmp_path, (1, 3))
    checkpoints.set_aside(2)  # of another folder's run
    assert not (tmp_path / "latest").exists()
    assert checkpoints.newest() == tmp_path / "step_00000001"


def test_the_newest_is_set_aside_first(tmp_path, monkeypatch):
    """So that where it ends half-way, no later checkpoint is left to go on from."""
    checkpoints, _ = run_of(tmp_path, (1, 2, 3))
    moved, rename = [], os.rename

    def noted(old, new):
        moved.append(Path(old).name)
        rename(old, new)

    monkeypatch.setattr(os, "rename", noted)
    checkpoints.set_aside(1)
    assert moved == sorted(moved, reverse=True) and len(moved) == 4


def test_only_the_first_process_changes_the_folder(tmp_path):
    first, said = run_of(tmp_path / "run", (1, 2))
    other = Checkpoints(tmp_path / "run", 1, say=said.append)
    other.rank = 1
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "run" / "step_00000003.part").mkdir()
    other.set_aside(1)
    other.clear_parts()
    assert (tmp_path / "run" / "step_00000003.part").is_dir()
    (tmp_path / "run" / "step_00000003.part").rmdir()
    with first.alone(), other.alone():
        pass
    other.fail(OSError("of a process"))
    assert sorted(tmp_path.rglob("*")) == before and not said


def test_a_process_on_another_machine_writes_its_part_there(tmp_path):
    folder = tmp_path / "its" / "own" / "disk"
    other = Checkpoints(folder, 1)
    other.rank = 1
    assert save(other, 1)
    assert [p.name for p in folder.iterdir()] == ["step_00000001.part"]
    assert json.loads((folder / "step_00000001.part/rank_00001.json").read_text()) == {
        "data_rank": 0
    }


def test_everything_is_on_the_disk_before_a_checkpoint_has_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "not" / "there"
    done: list[str] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def noted(handle):
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), folder)
        done.append(path.removesuffix(".tmp"))  # the library renames .metadata.tmp
        fsync(handle)

    def renamed(old, new, by=rename):
        done.append(f"{Path(old).name} -> {Path(new).name}")
        by(old, new)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "replace", lambda old, new: renamed(old, new, replace))
    checkpoints = Checkpoints(folder, 2)
    checkpoints.save(1, tensors(), {"step": 1}, {}, {"ema_state_dict": {}})
    assert checkpoints.wait()
    part, named = "step_00000001.part", done.index("step_00000001.part -> step_00000001")
    files = {f"{part}/{p.name}" for p in (folder / "step_00000001").iterdir()}
    assert {*files, part} <= set(done[:named]) and f"{part}/.metadata" in files
    assert done[named + 1 :] == [
        *(".", "latest.part", "latest.part -> latest", "."),
        *("step_00000001.pt.part", "step_00000001.pt.part -> step_00000001.pt"),
    ]


def test_a_folder_that_went_away_is_told(tmp_path):
    said: list[str] = []
    (tmp_path / "gone").write_text("a file in its place")
    checkpoints = Checkpoints(tmp_path / "gone" / "run", 2, say=said.append)
    assert not save(checkpoints, 1)
    assert "the folder cannot be read. The last good one is none" in said[0]
    nested = Checkpoints(tmp_path / "a" / "b", 2)
    nested.clear_parts()
    assert (tmp_path / "a" / "b").is_dir()


def test_a_second_run_in_the_folder_is_refused(tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from nanospeech.errors import InputError; from nanospeech.locks import alone\n"
        "try:\n"
        "    with alone(Path(sys.argv[1]), 'run_dir', print): print('came in')\n"
        "except InputError as e: print('refused:', e)\n"
    )

    def second() -> str:
        run = [sys.executable, "-c", script, str(tmp_path)]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    with Checkpoints(tmp_path, 2).alone():
        assert "refused" in second() and "run_dir" in second()
    assert second() == "came in\n"


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    checkpoints = Checkpoints(tmp_path, 2)
    assert save(checkpoints, 1) and save(checkpoints, 1, {"model.a": torch.full((2,), 7.0)})
    into = {"model.a": torch.zeros(2)}
    checkpoints.load(tmp_path / "step_00000001", into)
    assert into["model.a"].tolist() == [7, 7]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step_00000001"]


def test_a_save_waits_for_the_one_before(tmp_path, monkeypatch):
    place = Checkpoints.place

    def slowly(self, part, export):
        time.sleep(0.2)
        place(self, part, export)

    monkeypatch.setattr(Checkpoints, "place", slowly)
    checkpoints = Checkpoints(tmp_path, 2)
    for step in (1, 2):
        checkpoints.save(step, tensors(), {"step": step}, {})
    assert checkpoints.wait()
    for step in (1, 2):
        assert checkpoints.meta(tmp_path / f"step_0000000{step}") == {"step": step}


def test_what_an_earlier_attempt_left_is_not_in_a_checkpoint(tmp_path):
    for name in ("step_00000001.part", "step_00000001.old.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank_00007.json").write_text("{}")
    checkpoints = Checkpoints(tmp_path, 2)
    for _ in range(2):  # the second replaces the first
        assert save(checkpoints, 1)
        assert not (tmp_path / "step_00000001" / "rank_00007.json").exists()
    assert not (tmp_path / "step_00000001.old.part").exists()


def test_syncing_leaves_no_file_open(tmp_path):
    (tmp_path / "file").write_text("")
    before = os.listdir("/proc/self/fd")
    for path in (tmp_path, tmp_path / "file"):
        sync(path)
    assert os.listdir("/proc/self/fd") == before


def test_the_library_warns_of_no_missing_processes(tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert save(Checkpoints(tmp_path, 2), 1)
    assert not [w for w in told if "torch.distributed" in str(w.message)]


def test_who_waits_for_a_checkpoint_can_be_interrupted(tmp_path):
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.pending = Future()
    checkpoints.pending.set_exception(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        checkpoints.wait()


def of_two(folder: Path, held: Path) -> None:
    """What each of two processes does in the test below."""
    dist.init_process_group("gloo")
    rank, said = dist.get_rank(), []
    checkpoints = Checkpoints(folder, 2, distributed=True, say=said.append)

    # one of them must not go where another run is
    other = Checkpoints(held, 2, distributed=True)
    with pytest.raises(InputError, match="run_dir"), other.alone():
        raise AssertionError("came in")

    # what fails in one fails in all, and is told once
    def act() -> None:
        if rank == 1:
            raise OSError("its disk is full")

    assert not checkpoints.attempt(act)
    assert isinstance(checkpoints.failed, OSError)
    assert [("process 1" in s, "its disk is full" in s) for s in said] == [(True, True)] * (
        not rank
    )
    checkpoints.pending = Future()
    if rank == 1:
        checkpoints.pending.set_exception(OSError("its cable is out"))
    else:
        checkpoints.pending.set_result(None)
    assert not checkpoints.wait() and len(said) == 2 * (not rank)
    assert rank or ("process 1" in said[1] and "its cable is out" in said[1])
    for step in (1, 2):
        assert checkpoints.attempt(lambda: None) and save(checkpoints, step)

    # what the first moves and deletes is gone in all
    rename = os.rename

    def slowly(old: Path, new: Path) -> None:
        time.sleep(0.2)
        rename(old, new)

    os.rename = slowly
    checkpoints.set_aside(1)
    assert not (folder / "step_00000002").exists()
    if rank == 0:
        (folder / "step_00000009.part").mkdir()
    checkpoints.barrier()
    rmtree = shutil.rmtree
    shutil.rmtree = lambda path: (time.sleep(0.2), rmtree(path))
    checkpoints.clear_parts()
    assert not (folder / "step_00000009.part").exists()
    dist.destroy_process_group()


def test_two_processes_agree_on_what_failed_and_what_is_done(tmp_path):
    (tmp_path / "held").mkdir()
    with alone(tmp_path / "held", "run_dir", print):
        finish([Forked(of_two, tmp_path / "run", tmp_path / "held", env=env) for env in ranks(2)])
