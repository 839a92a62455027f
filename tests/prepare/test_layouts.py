"""Layouts: quotes in the texts of tables, and what a table says that is not true of the clips."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.commands.prepare import main
from nanospeech.config import AudioConfig
from nanospeech.corpus.layouts import find
from nanospeech.errors import InputError
from nanospeech.evaluate.items import from_folder
from nanospeech_torch.train.data import clips

TEXTS = ['"Well," he said.', "Good morning to you.", 'He left "early" today."']


@pytest.fixture
def waves(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    for n in range(3):
        sf.write(tmp_path / f"{n}.wav", 0.1 * rng.standard_normal(44_100), 44_100)
    return tmp_path


def test_quotes_in_tables_with_tabs_are_part_of_the_text(waves):
    rows = ["audio\ttext", *(f"{n}.wav\t{text}" for n, text in enumerate(TEXTS))]
    (waves / "all.tsv").write_text("\n".join(rows) + "\n")
    samples, skips = find([waves / "all.tsv"])
    assert [s.text for s in samples] == TEXTS and not skips


def test_a_table_with_commas_whose_quotes_do_not_end_is_a_mistake(waves):
    rows = ["audio,text", '0.wav,"never', "1.wav,ended"]
    (waves / "all.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=r"all\.csv is no CSV near line \d"):
        find([waves / "all.csv"])


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_rate_in_a_table_is_not_that_of_the_clips(waves, kind):
    """They are brought to 24 kHz, and a clip that says otherwise is not trained on."""
    table = waves / f"all.{kind}"
    if kind == "csv":
        rows = [f"{n}.wav,good morning to you,44100" for n in range(3)]
        table.write_text("\n".join(["audio,text,sample_rate", *rows]))
    else:
        row = {"text": "good morning to you", "sample_rate": 44_100}
        table.write_text("\n".join(json.dumps({"audio": f"{n}.wav", **row}) for n in range(3)))
    assert main(["shards", str(table), "--out", str(waves / "shards")]) == 0
    samples, _ = find([waves / "shards"])
    assert len(samples) == 3
    for sample in samples:
        meta = {"text": sample.text, **sample.extra}
        raw = {"__key__": sample.key, "mp3": sample.audio.read(), "json": meta}
        item = clips.describe(raw, AudioConfig())
        assert 90 < len(clips.mel(item, AudioConfig(), 1, 10_000)) < 98


def test_recordings_are_measured_against_their_own_words(waves):
    for n in range(3):
        (waves / f"{n}.txt").write_text(f"first line {n}\nsecond line\n")
    assert [i.text for i in from_folder(waves)] == [f"first line {n} second line" for n in range(3)]
    (waves / "1.txt").unlink()
    with pytest.raises(InputError, match=r"has no 1\.txt, as 2 others have"):
        from_folder(waves)
