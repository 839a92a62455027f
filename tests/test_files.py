"""Files and folders are whole or not there."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from nanospeech.errors import InputError
from nanospeech.files import merged_folder, whole, whole_folder, write_json


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole(path) as part:
        part.write_text("half of the n")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with whole(path, sync=True) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_device_or_a_pipe_is_written_to_and_stays(tmp_path):
    """For root, renaming would put a file in the place of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole(pipe) as part:
            part.write_text("through it")
        assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]
        assert os.read(reader, 100) == b"through it"
    finally:
        os.close(reader)


def test_a_folder_is_replaced_as_one(tmp_path):
    path = tmp_path / "made" / "here"
    for names in (["a", "b"], ["c"]):
        with whole_folder(path) as part:
            for name in names:
                (part / name).touch()
        assert sorted(p.name for p in path.iterdir()) == names
    with pytest.raises(ZeroDivisionError), whole_folder(path) as part:
        (part / "d").touch()
        raise ZeroDivisionError
    assert [p.name for p in path.iterdir()] == ["c"] and list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_a_link_is_replaced_where_it_lies(tmp_path):
    """As data on another disk; it failed in the end, and the new files went with it."""
    (tmp_path / "disk/set").mkdir(parents=True)
    (tmp_path / "disk/set/old").touch()
    (tmp_path / "set").symlink_to("disk/set")
    with whole_folder(tmp_path / "set") as part:
        (part / "new").touch()
    assert (tmp_path / "set").is_symlink()
    assert [p.relative_to(tmp_path).as_posix() for p in (tmp_path / "disk").rglob("*")] == [
        "disk/set",
        "disk/set/new",
    ]


def test_a_folder_that_cannot_be_replaced_stays_as_it_is(tmp_path, monkeypatch):
    """What was in it was deleted first."""
    path = tmp_path / "set"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(OSError, match="busy"), monkeypatch.context() as m, whole_folder(path):
        m.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("busy")))
    rename = Path.rename

    for error in (OSError("busy"), KeyboardInterrupt("busy")):  # another reads it; a Ctrl-C

        def fails(of: Path, to: Path, error: BaseException = error) -> Path:
            if of.name.endswith(".part"):
                raise error
            return rename(of, to)

        with pytest.raises(type(error)), monkeypatch.context() as m, whole_folder(path):
            m.setattr(Path, "rename", fails)
    with monkeypatch.context() as m, pytest.raises(InputError, match="a disk is mounted"):
        m.setattr(os.path, "ismount", lambda _: True)
        with whole_folder(path):
            raise AssertionError("not before any work is done")
    assert [p.name for p in path.iterdir()] == ["old"] and list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_all_new_files_or_none(tmp_path):
    path = tmp_path / "made"
    for names in (["a", "b"], ["b", "c/d"]):
        with pytest.raises(ZeroDivisionError), merged_folder(path) as part:
            (part / "b").write_text("lost")
            raise ZeroDivisionError
        assert path.exists() == (names != ["a", "b"])
        with merged_folder(path) as part:
            for name in names:
                (part / name).parent.mkdir(exist_ok=True)
                (part / name).write_text(str(names))
    found = {str(p.relative_to(path)): p.read_text() for p in path.rglob("*") if p.is_file()}
    assert found == {"a": "['a', 'b']", "b": "['b', 'c/d']", "c/d": "['b', 'c/d']"}


def test_json_is_a_line_or_laid_out_and_keeps_its_letters(tmp_path):
    write_json(tmp_path / "a.json", {"ß": [1, 2.5]}, indent=None)
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{"ß": [1, 2.5]}\n'
    write_json(tmp_path / "a.json", {"b": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": 1}


def write_slowly(path: Path, letter: str, barrier) -> None:
    with whole(path, several=True) as part:
        part.write_text(letter)
        barrier.wait(30)  # both have written before either renames
        with part.open("a") as f:
            f.write(letter * 100_000)


def test_processes_that_write_one_file_at_once_do_not_meet(tmp_path):
    context, path = multiprocessing.get_context("fork"), tmp_path / "joined.onnx"
    barrier = context.Barrier(2)
    both = [context.Process(target=write_slowly, args=(path, x, barrier)) for x in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [p.exitcode for p in both] == [0, 0]
    assert path.read_text() in ("a" * 100_001, "b" * 100_001)
    assert list(tmp_path.iterdir()) == [path]
