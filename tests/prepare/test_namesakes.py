"""Speakers of one name in several data sets: one person unless it is said that they are not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.commands.prepare import main
from nanospeech.corpus.layouts import find


@pytest.fixture
def sets(tmp_path) -> list[Path]:
    """Two tables of recordings of speakers 0 and anna, and one of them has a 1."""
    rng = np.random.default_rng(0)
    for name, people in (("a/data", ["0", "anna"]), ("b/data", ["0", "anna", "1", ""])):
        (tmp_path / name).mkdir(parents=True)
        rows = ["audio,text,speaker"]
        for n, who in enumerate(people):
            sf.write(tmp_path / name / f"{n}.wav", 0.1 * rng.standard_normal(24_000), 24_000)
            rows.append(f"{n}.wav,hello,{who}")
        (tmp_path / name / "metadata.csv").write_text("\n".join(rows) + "\n")
    return [tmp_path / "a/data", tmp_path / "b/data"]


def test_they_are_told_apart_where_that_is_asked_for(sets, tmp_path, capsys):
    people = [s.speaker for s in find(sets, distinct=True)[0]]
    assert people == ["a_data-0", "a_data-anna", "b_data-0", "b_data-anna", "1", None]
    assert "warning" not in capsys.readouterr().err
    for place in sets:  # nobody of one data set has another name, nor has a recording another key
        assert find([place], distinct=True) == find([place])
    both = [[s.key for s in find(sets, distinct=d)[0]] for d in (False, True)]
    assert both[0] == both[1]
    for more, count in (([], 3), (["--distinct-speakers"], 5)):
        out = tmp_path / f"shards{count}"
        assert main(["shards", *map(str, sets), "--out", str(out), "--jobs", "1", *more]) == 0
        assert json.loads(capsys.readouterr().out)["speakers"] == count


def test_a_number_in_several_data_sets_is_warned_of(sets, capsys):
    """Clips of one were prompts of the other."""
    assert [s.speaker for s in find(sets)[0]] == ["0", "anna", "0", "anna", "1", None]
    (told,) = capsys.readouterr().err.splitlines()
    assert "and 1 (0) are in several" in told and str(sets[1]) in told and "--distinct" in told
    for table in (sets[0] / "0.csv", sets[0] / "1.csv"):  # two parts of one data set
        table.write_text(f"audio,text,speaker\n{table.stem}.wav,hello,0\n")
    assert {s.speaker for s in find([sets[0] / "0.csv", sets[0] / "1.csv"], distinct=True)[0]} == {
        "0"
    }
    find([sets[0] / "0.csv", sets[0] / "1.csv"])
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "people, told",
    [
        (["s5", "spk 12", "Speaker_003"], "3 (s5, spk 12, Speaker_003) are in"),
        (["p225", "1234", "anna2", "7", "08", "-9", "999"], "4 (7, 08, -9, …) are in"),
        (["p225", "1234", "SSB0005", "12a"], ""),  # of one data set alone
    ],
)
def test_the_first_few_numbers_are_told(sets, capsys, people, told):
    for place in sets:
        rows = [f"0.wav,hello,{who}\n" for who in people]
        (place / "metadata.csv").write_text("audio,text,speaker\n" + "".join(rows))
    find(sets)
    said = capsys.readouterr().err
    assert told in said and bool(told) == bool(said)
