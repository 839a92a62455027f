"""Facts of voices: read beside their settings, measured, and shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nanospeech.audio import wave as audio
from nanospeech.audio.recording import bandwidth
from nanospeech.commands import main
from nanospeech.errors import CheckpointError
from nanospeech.release.folder import DEFAULT
from nanospeech.release.voice_facts import VoiceFacts, load_facts, table
from nanospeech.release.voices import find_voice, list_voices, own_voices
from tests.conftest import tone

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", list_voices(DEFAULT))
def test_facts_of_the_voices_that_ship_are_true(name):
    recording = own_voices(DEFAULT)[name]
    facts = load_facts(recording)
    assert facts.sex and facts.accent and facts.bandwidth and facts.wer
    assert facts.bandwidth == pytest.approx(bandwidth(audio.read(recording), 24_000), abs=10)
    assert facts.is_narrow == (name == "robin")
    licence = recording.with_name(f"{name}.license.txt").read_text(encoding="utf-8")
    assert facts.licence in licence and facts.origin in licence.replace("No person", "synthetic")
    page = (ROOT / "docs" / "default_voice.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {name}[^|]*\| \**([\d.]+) ± [\d.]+ %", page, re.M)
    assert row and float(row[1]) == facts.wer


def voice(folder: Path, about: str | None) -> Path:
    path = folder / "voices" / "anna.wav"
    path.parent.mkdir(exist_ok=True)
    audio.write(path, tone())
    path.with_suffix(".txt").write_text("hello there.")
    if about is not None:
        path.with_suffix(".json").write_text(about)
    return path


def test_folders_without_facts_and_with_later_ones_are_read(tmp_path):
    path = voice(tmp_path, None)
    assert load_facts(path) == VoiceFacts()
    voice(tmp_path, '{"pace": 1.1}')
    assert load_facts(path) == VoiceFacts() and find_voice("anna", tmp_path).settings.pace == 1.1
    voice(tmp_path, json.dumps({"pace": 1.2, "about": {"sex": "female", "age": 30, "wer": 4}}))
    assert load_facts(path) == VoiceFacts(sex="female", wer=4)
    assert find_voice("anna", tmp_path).settings.pace == 1.2


def test_facts_are_of_one_line_whatever_a_file_says(tmp_path):
    about = {"sex": "fe\nmale", "licence": "CC0\r\nname: \x1b[31mother\x07", "accent": " \n"}
    found = load_facts(voice(tmp_path, json.dumps({"about": about})))
    assert found == VoiceFacts(sex="fe male", licence="CC0 name: [31mother")


@pytest.mark.parametrize(
    "about", ['{"about": []}', '{"about": {"wer": "4"}}', '{"about": {"sex": 1}}', "[]", "{" * 200]
)
def test_facts_that_cannot_be_name_their_file(tmp_path, about):
    path = voice(tmp_path, about)
    with pytest.raises(CheckpointError, match=r"anna\.json"):
        load_facts(path)


def test_columns_of_a_table_are_those_of_a_terminal():
    """A letter of Chinese takes two of them, and a mark on a letter none."""
    names = "anna", "愛子", "Ａ", "Jose\u0301", "\u0e44\u0e17\u0e22\u0e35", "\u1112\u1161\u11ab"
    lines = table({name: VoiceFacts(sex="x", licence="美しい") for name in names})
    assert lines[0] == "voice  sex  accent  origin  licence  bandwidth  WER"
    behind = [line.removeprefix(name) for name, line in zip(names, lines[1:])]
    rest = "x    -       -       美しい   -          -"
    assert behind == [" " * (7 - wide) + rest for wide in (4, 4, 2, 4, 3, 2)]


def test_names_of_voices_do_not_steer_a_terminal(tmp_path, capsys):
    """Folders of models come from anywhere."""
    voice(tmp_path, '{"about": {"sex": "female"}}')
    for file in (tmp_path / "voices").iterdir():
        file.rename(file.with_name(file.name.replace("anna", "an\x1b[31mna\x9b2J")))
    (tmp_path / "config.json").write_text('{"default_voice": "an\\u001b[31mna\\u009b2J"}')
    (tmp_path / "model.safetensors").touch()
    assert main(["voices", "list", "--model", str(tmp_path)]) == 0
    assert "default: an[31mna2J\n" in (out := capsys.readouterr().out)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out)
    assert main(["voices", "show", "nobody", "--model", str(tmp_path)]) == 2
    assert r"an\x1b[31mna\x9b2J" in capsys.readouterr().err


def test_voices_are_listed_with_their_facts(capsys):
    assert main(["voices", "list"]) == 0
    out = capsys.readouterr().out
    (row,) = re.findall(r"^robin .*$", out, re.M)
    cells = re.split(r"\s{2,}", row)
    assert cells == ["robin", "male", "unknown", "human", "CC BY 4.0", "8.1 kHz *", "2.7 %"]
    assert "* narrow" in out and out.count("*") == 2 and "default: kathleen" in out
    (sample,) = re.findall(r"^samples: (.*)$", out, re.M)
    for name in list_voices(DEFAULT):
        assert Path(sample.replace("NAME", name)).is_file() and re.search(rf"^{name} ", out, re.M)


def test_a_voice_is_shown_with_its_sample_whatever_its_case(capsys):
    for name in ("robin", "Robin", "default/ROBIN"):
        assert main(["voices", "show", name]) == 0
        shown = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines()[:9])
        assert shown["name"] == "robin" and shown["bandwidth"] == "8,050 Hz, narrow"
        assert shown["WER"] == "2.74 %" and Path(shown["sample"]).is_file()


def test_a_folder_without_voices_lists_those_that_it_is_lent(tiny_release, tmp_path, capsys):
    assert main(["voices", "--model", str(tiny_release), "list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^tone +- +- +- +- +- +-$", out, re.M) and "narrow" not in out
