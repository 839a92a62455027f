"""Published data sets are read as they are unpacked: who speaks, in what language, and what."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.commands.prepare import main
from nanospeech.corpus import layouts, samples, tables
from nanospeech.corpus.layouts import find
from nanospeech.errors import InputError
from nanospeech_torch.finetune.recordings import find_samples, warn_of_speakers


def sound(path: Path) -> None:
    """A second of noise of its own, in whichever format the name has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(path.name.encode()))
    sf.write(path, 0.1 * rng.standard_normal(24_000), 24_000)


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def said(inputs: list[Path]) -> list[tuple]:
    samples, skips = find(inputs)
    assert not skips and len({s.key for s in samples}) == len(samples)
    return [(s.speaker, s.extra.get("language"), s.text) for s in samples]


COLUMNS = "client_id path sentence_id sentence up_votes down_votes age gender accents locale"
ANNA, BERT = 64 * "a1", 64 * "b2"


def common_voice(root: Path, locale: str = "de") -> Path:
    rows = []
    for n, (who, text) in enumerate(
        [(ANNA, "Guten Tag."), (BERT, '"Nein", sagt er.'), (ANNA, "a")]
    ):
        name = f"common_voice_{locale}_{n}.mp3"
        sound(root / "clips" / name)
        rows.append((who, name, f"id{n}", text, "2", "0", "", "", "", locale))
    table = ["\t".join(row) for row in (COLUMNS.split(), *rows)]
    write(root / "validated.tsv", *table)
    write(root / "train.tsv", *table[:2])
    write(root / "other.tsv", table[0])
    return root


def test_common_voice_has_people_a_language_and_its_clips_in_a_folder(tmp_path, capsys):
    """It was refused, as its columns have other names and its clips lie in another folder."""
    root = common_voice(tmp_path / "de")
    wanted = [(ANNA, "de", "Guten Tag."), (BERT, "de", '"Nein", sagt er.'), (ANNA, "de", "a")]
    assert said([root]) == said([root / "validated.tsv"]) == wanted
    assert said([root / "train.tsv"]) == wanted[:1]
    assert [s.reason for s in find([root, root / "train.tsv"])[1]] == ["in an earlier input too"]
    assert main(["shards", str(root), "--out", str(tmp_path / "shards"), "--jobs", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["speakers"] == 2
    samples, _ = find([tmp_path / "shards"])
    assert {(s.speaker, s.extra["language"], s.text) for s in samples} == set(wanted)
    assert all(s.extra.keys() == {"language"} for s in samples)  # none of its votes
    assert main(["mp3", str(root)]) == 2
    assert "as they are" in capsys.readouterr().err  # not that there are no recordings
    common_voice(tmp_path / "both" / "de")
    common_voice(tmp_path / "both" / "fr", "fr")
    assert [language for _, language, _ in said([tmp_path / "both"])] == 3 * ["de"] + 3 * ["fr"]


def test_common_voice_of_older_versions_leaves_out_endings_and_languages(tmp_path):
    sound(tmp_path / "clips" / "one.mp3")
    row = ["anna", "one", '"He said ""no"" to it."', "2"]
    write(tmp_path / "train.tsv", "client_id\tpath\tsentence\tup_votes", "\t".join(row))
    assert said([tmp_path]) == [("anna", None, 'He said "no" to it.')]
    write(tmp_path / "train.tsv", "client_id\tpath\tsentence", "anna\tgone.mp3\tyes", "anna\t\tno")
    assert [s.reason for s in find([tmp_path])[1]] == 2 * ["no audio file"]


def test_a_table_too_large_to_hold_is_refused_before_it_is_read(tmp_path):
    for name in ("all.csv", "validated.tsv", "all.jsonl"):
        with (tmp_path / name).open("wb") as f:
            f.truncate(2**40)
        with pytest.raises(InputError, match="divide it into several"):
            find([tmp_path / name])
    sound(tmp_path / "set" / "a.wav")
    sound(tmp_path / "set" / "b.wav")
    for name in ("a.txt", "b.json"):
        with (tmp_path / "set" / name).open("wb") as f:
            f.truncate(2**40)
    assert [s.reason for s in find([tmp_path / "set"])[1]] == 2 * ["unreadable text"]


def test_tables_and_texts_may_have_as_many_bytes_as_they_may(tmp_path, monkeypatch):
    sound(tmp_path / "a.wav")
    write(tmp_path / "all.csv", "audio,text", "a.wav,yes")
    write(tmp_path / "a.txt", "yes")
    monkeypatch.setattr(tables, "MOST_TABLE", size := (tmp_path / "all.csv").stat().st_size)
    monkeypatch.setattr(samples, "MOST_TEXT", 4)
    assert said([tmp_path / "all.csv"]) == said([tmp_path]) == [(None, None, "yes")]
    monkeypatch.setattr(tables, "MOST_TABLE", size - 1)
    monkeypatch.setattr(samples, "MOST_TEXT", 3)
    with pytest.raises(InputError, match=rf"has {size} bytes, a table {size - 1} at most"):
        find([tmp_path / "all.csv"])
    assert [s.reason for s in find([tmp_path])[1]] == ["unreadable text"]


def test_vctk_has_texts_in_a_folder_of_their_own_and_two_microphones(tmp_path):
    for name in (
        "p225/p225_001_mic1",
        "p225/p225_001_mic2",
        "p280/p280_002_mic2",
        "s5/s5_001_mic1",
    ):
        sound(tmp_path / "wav48_silence_trimmed" / f"{name}.flac")
    for name in ("p225/p225_001", "p280/p280_002", "p315/p315_001"):
        write(tmp_path / "txt" / f"{name}.txt", f"This is {name[-3:]}.")
    write(tmp_path / "speaker-info.txt", "ID  AGE", "p225  23")
    assert layouts.detect(tmp_path) == "vctk"
    samples, skips = find([tmp_path])
    assert [(s.speaker, s.text, s.audio.path.name) for s in samples] == [
        ("p225", "This is 001.", "p225_001_mic1.flac"),
        ("p280", "This is 002.", "p280_002_mic2.flac"),
    ]
    assert [(s.name, s.reason) for s in skips] == [
        ("p315/p315_001", "no audio file"),
        ("s5/s5_001", "no transcript"),
    ]
    old = tmp_path / "old"
    sound(old / "wav48" / "p225" / "p225_001.wav")
    write(old / "txt" / "p225" / "p225_001.txt", "Yes.")
    assert said([old]) == [("p225", None, "Yes.")]
    write(tmp_path / "texts" / "txt" / "p225" / "p225_001.txt", "Yes.")
    samples, [skip] = find([tmp_path / "texts"], "vctk")
    wanted = f"none of that name in {tmp_path / 'texts' / 'wav48_silence_trimmed'}"
    assert not samples and (skip.reason, skip.detail) == ("no audio file", wanted)


def test_librispeech_has_a_list_of_each_chapter_in_capitals(tmp_path):
    """Its recordings were said to be without words."""
    chapter = tmp_path / "dev-clean" / "84" / "121123"
    sound(chapter / "84-121123-0000.flac")
    write(chapter / "84-121123.trans.txt", "84-121123-0000 IT'S SO", "84-121123-0001 NO")
    write(tmp_path / "SPEAKERS.TXT", "84 | F | dev-clean")
    sound(tmp_path / "more.flac")
    (sample,), skips = find([tmp_path])
    assert (sample.key, sample.speaker, sample.text) == ("84-121123-0000", "84", "it's so")
    wanted = [("84-121123-0001", "no audio file"), ("more.flac", "no transcript")]
    assert [(s.name, s.reason) for s in skips] == wanted


def test_mls_has_a_list_of_what_is_said(tmp_path):
    for part, name in (("train", "10148_10119_000001"), ("dev", "252_10033_000000")):
        reader, book, _ = name.split("_")
        sound(tmp_path / part / "audio" / reader / book / f"{name}.flac")
        write(tmp_path / part / "transcripts.txt", f"{name}\twort für wort")
    write(
        tmp_path / "train" / "transcripts.txt", "10148_10119_000001\tein wort", "oops", "1_2_3\tx"
    )
    samples, skips = find([tmp_path])
    assert [(s.speaker, s.text) for s in samples] == [
        ("252", "wort für wort"),
        ("10148", "ein wort"),
    ]
    assert [(s.name, s.reason) for s in skips] == [
        ("transcripts.txt:2", "unreadable row"),
        ("1_2_3", "no audio file"),
    ]
    assert said([tmp_path / "dev"]) == [("252", None, "wort für wort")]


def test_aishell3_has_characters_and_their_pinyin_by_turns(tmp_path):
    sound(tmp_path / "train" / "wav" / "SSB0005" / "SSB00050001.wav")
    rows = ["SSB00050001.wav\t广 guang3 州 zhou1 女 nv3", "SSB00050002.wav\t广 州", "\tx y"]
    rows += ["SSB00050001.wav\t广 guang3 州"]  # of which something is missing
    write(tmp_path / "train" / "content.txt", *rows[:1])
    assert said([tmp_path]) == said([tmp_path / "train"]) == [("SSB0005", "zh", "广州女")]
    write(tmp_path / "train" / "content.txt", *rows)
    reasons = ["unreadable text", "no audio file", "unreadable text"]
    assert [s.reason for s in find([tmp_path])[1]] == reasons


def test_a_list_without_the_folder_of_its_recordings_is_of_another_layout(tmp_path):
    sound(tmp_path / "a.wav")
    for name in ("a.txt", "content.txt", "transcripts.txt", "txt/notes.txt"):
        write(tmp_path / name, "yes")
    assert layouts.detect(tmp_path) == "folder"


def test_hifi_tts_has_a_reader_in_the_name_of_each_list(tmp_path):
    for reader, part in (("92", "train"), ("92", "dev"), ("6097", "train")):
        audio = f"audio/{reader}_clean/1/{part}_0001.flac"
        sound(tmp_path / audio)
        row = {"audio_filepath": audio, "text": "it was no 1", "text_normalized": "It was No. one."}
        write(tmp_path / f"{reader}_manifest_clean_{part}.json", json.dumps(row | {"duration": 1}))
    assert said([tmp_path]) == [(who, None, "It was No. one.") for who in ("6097", "92", "92")]
    assert said([tmp_path / "92_manifest_clean_dev.json"]) == [("92", None, "It was No. one.")]


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_list_of_parts_of_recordings_is_refused(tmp_path, kind):
    """The whole recording was learnt as what is said in each part."""
    sound(tmp_path / "a.wav")
    row = {"audio_filepath": "a.wav", "text": "yes", "duration": 0.5, "offset": 0.0}
    table = tmp_path / f"m.{kind}"
    write(table, json.dumps(row))
    assert said([table]) == [(None, None, "yes")]
    write(table, json.dumps(row), json.dumps(row | {"text": "no", "offset": 0.5}))
    with pytest.raises(InputError, match=rf"m\.{kind}:2 is a part of a.wav, from 0.5 s on"):
        find([table])
    write(table, json.dumps({"audio": "a.wav", "text": "yes", "offset": 3}))  # of what, is not told
    assert said([table]) == [(None, None, "yes")]


@pytest.mark.parametrize("names", ["offset,duration", "start,end"])
def test_a_table_of_parts_of_recordings_is_refused_too(tmp_path, names):
    table = tmp_path / "all.csv"
    sound(tmp_path / "a.wav")
    write(table, f"audio,text,{names}", "a.wav,one,0.0,1", "a.wav,two,1.5,1")
    with pytest.raises(InputError, match=r"all\.csv:3 is a part of a.wav, from 1.5 s on"):
        find([table])
    cut_out = "a.wav,one,7.5,8", "a.wav,two,nan,"  # where they were in another recording
    write(table, "audio,text,start,end", *cut_out)
    assert [s.text for s in find([table])[0]] == ["one", "two"]


def test_a_list_of_nemos_is_read_and_other_json_is_not(tmp_path):
    sound(tmp_path / "a.wav")
    row = {"audio_filepath": "a.wav", "text": "yes", "speaker": 7, "text_normalized": ""}
    write(tmp_path / "train_manifest.json", json.dumps(row))
    assert said([tmp_path / "train_manifest.json"]) == [("7", None, "yes")]
    for name in ("text_normalized", "normalized_text"):  # this of its scripts, before the other
        row |= {name: f"yes, {name}"}
        write(tmp_path / "train_manifest.json", json.dumps(row))
        assert said([tmp_path / "train_manifest.json"]) == [("7", None, f"yes, {name}")]
    with pytest.raises(InputError, match=r"give it instead: .*train_manifest\.json"):
        find([tmp_path])
    for text in ("[", "{}", "3", json.dumps([row], indent=1)):
        write(tmp_path / "other.json", text)
        with pytest.raises(InputError, match="cannot tell the layout"):
            find([tmp_path / "other.json"])


def test_emilia_has_json_beside_its_recordings_in_a_folder_or_a_tar_or_in_a_table(tmp_path):
    folder, rows = tmp_path / "EN", []
    for n, language in enumerate(("en", "de")):
        name = f"EN_B00000_S0000{n}_W000000"
        sound(folder / f"{name}.mp3")
        who = name[:16]
        row = {"id": name, "wav": f"EN/{name}.mp3", "text": f" It is {n}.", "duration": 1.0}
        rows.append(json.dumps(row | {"speaker": who, "language": language, "dnsmos": 3.3}))
        write(folder / f"{name}.json", rows[-1])
    wanted = [("EN_B00000_S00000", "en", "It is 0."), ("EN_B00000_S00001", "de", "It is 1.")]
    assert layouts.detect(folder) == "folder" and said([folder]) == wanted
    with tarfile.open(tmp_path / "EN-B000000.tar", "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    write(tmp_path / "EN_B00000.jsonl", *rows)
    assert said([tmp_path / "EN-B000000.tar"]) == said([tmp_path / "EN_B00000.jsonl"]) == wanted
    write(folder / "EN_B00000_S00001_W000000.txt", "These words of ours go before.")
    assert said([folder])[1] == (None, None, "These words of ours go before.")
    write(folder / "EN_B00000_S00000_W000000.json", "{}")
    assert [s.reason for s in find([folder])[1]] == ["no transcript"]
    for other in ("[1]", "3", '"text"'):
        write(folder / "EN_B00000_S00000_W000000.json", other)
        assert [s.detail for s in find([folder])[1]] == ["no object with a text"]


def test_an_aligners_folders_are_of_who_speaks(tmp_path):
    """As of the Montreal Forced Aligner and Fish Speech; labels of HTK are no words."""
    for name in ("anna/a.wav", "bert/a.wav", "bert/b.wav", "wavs/c.wav"):
        sound(tmp_path / name)
        write((tmp_path / name).with_suffix(".lab"), f"words of {name}")
    write(tmp_path / "bert" / "b.lab", "0 1500000 sil", "1500000 2000000 w")
    samples, (skip,) = find([tmp_path])
    assert [(s.speaker, s.text) for s in samples] == [
        ("anna", "words of anna/a.wav"),
        ("bert", "words of bert/a.wav"),
        (None, "words of wavs/c.wav"),
    ]
    assert (skip.name, skip.reason) == ("bert/b", "times in its text")


def test_a_table_with_our_columns_keeps_those_of_others_as_they_are(tmp_path):
    sound(tmp_path / "a.wav")
    rows = "audio,text,path,client_id,sentence,locale", "a.wav,yes,b.wav,anna,no,de"
    write(tmp_path / "all.csv", *rows)
    (sample,), _ = find([tmp_path / "all.csv"])
    assert (sample.speaker, sample.text, sample.audio.path.name) == (None, "yes", "a.wav")
    assert sample.extra == dict(zip(rows[0].split(",")[2:], rows[1].split(",")[2:]))


def test_thorsten_and_audio_folders_are_tables_beside_recordings(tmp_path):
    sound(tmp_path / "thorsten" / "wavs" / "ab.wav")
    write(tmp_path / "thorsten" / "metadata.csv", "ab|Mit über 4000 Sprachaufnahmen.")
    assert said([tmp_path / "thorsten"]) == [(None, None, "Mit über 4000 Sprachaufnahmen.")]
    sound(tmp_path / "hub" / "train" / "a.wav")
    with (tmp_path / "hub" / "metadata.csv").open("w", newline="") as f:
        rows = [("file_name", "sentence", "speaker_id"), ("train/a.wav", "Well, yes.", "3")]
        csv.writer(f).writerows(rows)
    assert said([tmp_path / "hub"]) == [("3", None, "Well, yes.")]


def test_recordings_of_many_are_said_to_be_how_to_take_those_of_one(tmp_path, capsys):
    root = common_voice(tmp_path / "de")
    samples, _ = find_samples([root])
    warn_of_speakers(samples)
    told = capsys.readouterr().err
    assert "of 2 speakers" in told and "prepare curate --speakers NAME" in told
    out = tmp_path / "anna"
    argv = ["curate", str(root), "--speakers", ANNA, "--out", str(out), "--held-out", "0"]
    assert main([*argv, "--jobs", "1"]) == 0
    assert {s.speaker for s in find([out / "train"])[0]} == {ANNA}
