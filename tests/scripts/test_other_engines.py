"""Shards by other programs: each voice's own sentences, and what is said where one fails."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode
from scripts.recipes.other_engines import ENGINES, main, share

TEXTS = [
    "The boat left the harbour before the sun was up.",
    "Nobody had told her that the bridge was closed.",
    "Too short.",
    "We kept the old clock, although it never worked again.",
]
US = f"{sys.executable} -m nanospeech --backend onnx --text {{text}} --output {{out}}"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def test_a_program_speaks_a_shard_that_training_reads(texts, tmp_path, capsys):
    excluded = tmp_path / "excluded.txt"
    excluded.write_text("\n".join(TEXTS[1::2]).upper(), encoding="utf-8")
    command = [str(texts), "--out", str(tmp_path / "shards"), "--engine", f"us={US}"]
    command += ["--only", "us", "--exclude", str(excluded)]
    assert main(command) == 0
    assert "us-0.tar" in capsys.readouterr().out
    (sample,) = find([tmp_path / "shards"])[0]
    assert (sample.text, sample.speaker) == (TEXTS[0], "us")
    seconds = len(decode(sample.audio.read())[0]) / SAMPLE_RATE
    assert 1.5 < seconds < 6
    with tarfile.open(tmp_path / "shards/us-0.tar") as tar:
        (file,) = [tar.extractfile(m) for m in tar if m.name.endswith(".json")]
        assert file is not None
        told = json.load(file)
    assert told["duration"] == pytest.approx(seconds, abs=0.06)
    made = (tmp_path / "shards/us-0.tar").stat()
    assert main(command) == 0 and (tmp_path / "shards/us-0.tar").stat() == made


def test_each_voice_has_sentences_of_its_own():
    many = [f"sentence {n}" for n in range(1000)]
    said = {name: share(name, many, 100, seed=0) for name in ENGINES}
    assert all(len(set(s)) == 100 for s in said.values())
    assert said["flite-awb"] == share("flite-awb", many, 100, seed=0)
    assert said["flite-awb"] != share("flite-awb", many, 100, seed=1)
    shared = set(said["flite-awb"]) & set(said["flite-rms"])
    assert len(shared) < 30  # ten on average
    assert len(share("flite-awb", many[:5], 100, seed=0)) == 5


@pytest.mark.parametrize(
    "engine, told",
    [
        ("us=cat {out}", "No such file"),
        ("us=true {out}", "no WAV was written"),
        ("us=no-such-program {out}", "not installed: no-such-program"),
    ],
)
def test_a_program_that_fails_is_named_and_leaves_no_shard(texts, tmp_path, capsys, engine, told):
    out = tmp_path / "shards"
    assert main([str(texts), "--out", str(out), "--engine", engine, "--only", "us"]) != 0
    assert told in capsys.readouterr().err
    assert not list(out.glob("*"))


@pytest.mark.parametrize("engine", ["us", "=flite {out}", "us=flite {text}", "a/b=flite {out}"])
def test_an_engine_is_a_name_and_a_command_that_writes(texts, tmp_path, capsys, engine):
    assert main([str(texts), "--out", str(tmp_path), "--engine", engine]) == 2
    assert "is not NAME=" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags, told",
    [
        (["--only", "nobody"], "no voice nobody; there are: rhvoice-bdl"),
        (["--each", "0"], "--each is 0; 1 or more"),
    ],
)
def test_voices_and_counts_that_cannot_be_are_told(texts, tmp_path, capsys, flags, told):
    assert main([str(texts), "--out", str(tmp_path), *flags]) == 2
    assert told in capsys.readouterr().err
