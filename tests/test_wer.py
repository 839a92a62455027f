"""Word error rate: normalisation, edit distance, reading back what was measured."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nanospeech import audio
from nanospeech.errors import InputError
from scripts import wer as tool
from scripts.wer_text import cer, edit_distance, normalize, wer

ROOT = Path(__file__).resolve().parent.parent
SHARD = ROOT / "tests/fixtures/speech-000000.tar"


@pytest.mark.parametrize(
    "said, heard",
    [
        ("Don't stop; it's late!", "do not stop it is late"),
        ("twenty-one cats", "21 cats"),
        ("two thousand dollars", "$2,000"),
        ("We won't. They can't.", "we will not they cannot"),
        ("I’m sure she’ll come", "I am sure she will come"),
        ("The dog's bone", "the dogs bone"),
        ("Grey colours in the centre", "gray colors in the center"),
        ("he realised", "He realized."),
        ("Mister Brown is okay", "Mr. Brown is OK"),
        ("a café", "[Music] A cafe, um..."),
        ("three o'clock", "3 o'clock"),
    ],
)
def test_two_spellings_of_one_sound_are_the_same(said, heard):
    assert normalize(said) == normalize(heard)
    assert wer([(said, heard)]) == cer([(said, heard)]) == 0


def test_normalizing_twice_is_normalizing_once():
    for line in tool.read_texts(tool.SENTENCES):
        assert normalize(normalize(line)) == normalize(line) != ""


def test_different_words_stay_different():
    for a, b in [("cat", "cap"), ("can", "can't"), ("fifteen", "50"), ("we're", "were")]:
        assert normalize(a) != normalize(b)


def test_edit_distance_is_a_metric():
    rng = np.random.default_rng(0)
    words = [list(rng.choice(list("abc"), rng.integers(0, 7))) for _ in range(12)]
    for a in words:
        assert edit_distance(a, a) == 0
        assert edit_distance(a, []) == len(a)
        for b in words:
            assert edit_distance(a, b) == edit_distance(b, a) >= abs(len(a) - len(b))
            for c in words:
                assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_the_corpus_rate_weighs_by_words():
    assert wer([("one two three four", "one two three"), ("five", "six")]) == pytest.approx(2 / 5)
    assert wer([("yes", "yes it is so")]) == 3  # insertions may take it over 100 %
    assert cer([("abcd", "abxd")]) == pytest.approx(1 / 4)
    with pytest.raises(InputError, match="no words"):
        wer([("...", "hello")])


def test_the_sentences_are_fifty_plain_ones():
    lines = tool.read_texts(tool.SENTENCES)
    assert len(lines) == len(set(lines)) == 50
    assert all(5 <= len(line.split()) <= 16 and not any(map(str.isdigit, line)) for line in lines)


def test_recordings_come_with_their_texts():
    found = list(tool.recorded([SHARD]))
    assert len(found) == 4 and len(list(tool.recorded([SHARD, SHARD], limit=5))) == 5
    for key, text, wave, rate, compute in found:
        assert key and text and rate == 24_000 and compute is None
        assert wave.dtype == np.float32 and len(wave) > rate / 4


def test_saved_waves_are_measured_with_their_own_texts(tmp_path):
    wave = np.sin(np.arange(24_000) / 20).astype(np.float32) / 2
    tool.save_wave(tmp_path, "001", "hello there", wave, 24_000)
    tool.save_wave(tmp_path, "000", "good morning", wave, 24_000)
    found = list(tool.from_folder(tmp_path, tool.SENTENCES))
    assert [(key, text) for key, text, *_ in found] == [
        ("000", "good morning"),
        ("001", "hello there"),
    ]
    (tmp_path / "000.txt").unlink()
    texts = tmp_path / "lines.list"
    texts.write_text("only one\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"2 waves, but .* only 1"):
        list(tool.from_folder(tmp_path, texts))


def test_bad_arguments_end_in_one_line(tmp_path):
    for argv, message in [
        (["--recordings", "a.tar", "--wav-dir", "b"], "exclude each other"),
        (["--limit", "0"], "at least 1"),
        (["--steps", "0"], "choose 1 to 1000"),
    ]:
        command = [sys.executable, "scripts/wer.py", "--whisper", str(tmp_path), *argv]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 and message in lines[0]


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the shard .*none.tar"):
        list(tool.recorded([tmp_path / "none.tar"]))
    with pytest.raises(InputError, match=r"there are no .wav"):
        list(tool.from_folder(tmp_path, tool.SENTENCES))
    with pytest.raises(InputError, match="cannot read the sentences"):
        tool.read_texts(tmp_path / "none.txt")


def test_a_recogniser_measures_recordings(tmp_path, capsys):
    """With a real recogniser where one is at hand: NANOSPEECH_WHISPER names its folder."""
    pytest.importorskip("faster_whisper")
    if not (folder := os.environ.get("NANOSPEECH_WHISPER")):
        pytest.skip("NANOSPEECH_WHISPER is not set")
    out, waves = tmp_path / "wer.csv", tmp_path / "waves"
    argv = ["--recordings", str(SHARD), "--whisper", folder, "--out", str(out)]
    assert tool.main([*argv, "--wavs", str(waves)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["utterances"] == 4 and summary["wer"] < 0.2 and "rtf" not in summary
    with out.open(encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    assert sum(int(row["edits"]) for row in rows) == summary["edits"]
    assert len(list(waves.glob("*.wav"))) == 4
    assert len(audio.read(next(waves.glob("*.wav")))) > 0
