"""Stages of recipes: run once, again where something changed, on where they were stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.recipes.run_stage import Record, clock
from scripts.recipes.run_stage import main as stage


def run(record: Path, name: str, *argv: str, code: int = 0) -> None:
    assert stage([str(record), name, *argv]) == code


def count(path: Path) -> list[str]:
    """A command that adds a line to a file."""
    return ["--", sys.executable, "-c", f"open({str(path)!r}, 'a').write('x'); print('said')"]


def test_a_stage_is_run_once_and_again_when_something_changed(tmp_path, capsys):
    record, made = tmp_path / "record.json", tmp_path / "made"

    def times() -> int:
        return len(made.read_text()) if made.exists() else 0

    first = ["--makes", str(made), *count(made)]
    run(record, "a", *first)
    run(record, "a", *first)
    run(record, "a", *first, "--jobs", "3")  # on a machine of more cores
    assert times() == 1 and capsys.readouterr().out.count("done before") == 2
    made.unlink()  # its result is gone
    run(record, "a", *first)
    assert times() == 1
    run(record, "a", "--makes", str(made), *count(made), "unused")  # another command
    assert times() == 2
    other = tmp_path / "other"
    second = ["--needs", "a", "--clean", str(other), *count(other)]
    run(record, "b", *second)
    run(record, "b", *second)
    assert other.read_text() == "x"
    run(record, "a", "--makes", str(made), *count(made))
    other.write_text("old")
    run(record, "b", *second)  # a was run again: afresh
    assert other.read_text() == "x"
    run(record, "b", "--extends", *count(other), "more")
    assert other.read_text() == "xx"


def test_hours_of_training_are_put_aside_where_their_data_have_changed(tmp_path, capsys):
    record, trained = tmp_path / "record.json", tmp_path / "speech"
    again = [sys.executable, "-c", f"open({str(trained)!r}, 'a').write('x')"]
    argv = ["--needs", "data", "--extends", "--aside", str(trained), "--", *again]
    run(record, "data", "--", sys.executable, "-c", "")
    for _ in range(2):
        run(record, "speech", *argv)
    run(record, "speech", *argv, "more minutes")
    assert trained.read_text() == "xx" and not list(tmp_path.glob("speech.*"))
    for number in (1, 2):
        run(record, "data", "--", sys.executable, "-c", str(number))
        run(record, "speech", *argv)
        assert (
            trained.read_text() == "x" and f"is now {trained}.{number}" in capsys.readouterr().out
        )
    assert (tmp_path / "speech.1").read_text() == "xx"


def test_a_stage_that_fails_goes_on_and_keeps_its_time(tmp_path, capsys):
    record, flag, part = (tmp_path / n for n in ("record.json", "flag", "part"))
    code = f"import os, sys; open({str(part)!r}, 'a').write('x'); "
    code += f"sys.exit(0 if os.path.exists({str(flag)!r}) else 3)"
    argv = ["--clean", str(part), "--", sys.executable, "-c", code]
    run(record, "a", *argv, code=3)
    before = Record(record).stages["a"]
    assert not before["done"]
    flag.touch()
    run(record, "a", *argv)
    assert part.read_text() == "xx"  # not cleaned: it went on
    assert Record(record).stages["a"]["seconds"] >= before["seconds"]
    log = record.with_suffix(".log").read_text()
    assert re.search(r"^\[\d+:\d\d\] == a, going on", log, re.M)
    assert stage([str(record), "--table"]) == 0 and "all" in capsys.readouterr().out
    run(record, "c", "--makes", str(tmp_path / "none"), "--", sys.executable, "-c", "", code=2)
    assert "made no" in capsys.readouterr().err
    run(record, "d", "--", str(tmp_path / "no such program"), code=2)
    assert Record(record).hardware["cores"] >= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stage_that_saved_and_ended_at_a_signal_is_not_done(tmp_path, number):
    record, made = tmp_path / "record.json", tmp_path / "latest"
    code = (
        "import pathlib, signal, sys, time\n"
        f"made = pathlib.Path({str(made)!r})\n"
        "def save(*_): made.write_text('half'); sys.exit(0)\n"
        "signal.signal(signal.SIGINT, save); signal.signal(signal.SIGTERM, save)\n"
        "if made.exists(): made.write_text('all'); sys.exit(0)\n"
        "print('trains', flush=True); time.sleep(60)\n"
    )
    argv = ["train", "--extends", "--makes", str(made), "--", sys.executable, "-c", code]
    line = [sys.executable, "-m", "scripts.recipes.run_stage", str(record), *argv]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as stage:
        assert stage.stdout is not None
        while "trains" not in stage.stdout.readline():
            pass
        if number == signal.SIGINT:  # as a terminal does
            os.killpg(stage.pid, number)
        else:
            stage.send_signal(number)
        assert "stopped" in stage.stdout.read() and stage.wait() == 128 + number
    assert made.read_text() == "half" and not Record(record).stages["train"]["done"]
    run(record, *argv)
    assert made.read_text() == "all" and Record(record).stages["train"]["done"]


def test_times_are_written_as_people_write_them():
    assert (clock(59.6), clock(65), clock(3725)) == ("01:00", "01:05", "1:02:05")
