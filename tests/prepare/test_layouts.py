"""Layouts: how each is known and read, and what a table says that is not true of the clips."""

from __future__ import annotations

import csv
import json
import shutil
import tarfile
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.commands.prepare import main
from nanospeech.config import AudioConfig
from nanospeech.corpus import layouts
from nanospeech.corpus.keys import unique_keys, without_common_folder
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode
from nanospeech.corpus.skips import examples, nothing_usable
from nanospeech.errors import DataError, InputError
from nanospeech.evaluate.items import from_folder
from nanospeech.prepare import mp3s
from nanospeech.prepare.cut import text_of
from nanospeech_torch.train.data import clips

from .test_shards import FIXTURES, LIBRITTS, LJSPEECH, SHARD, WAV

TEXTS = ['"Well," he said.', "Good morning to you.", 'He left "early" today."']


@pytest.fixture
def waves(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    for n in range(3):
        sf.write(tmp_path / f"{n}.wav", 0.1 * rng.standard_normal(44_100), 44_100)
    return tmp_path


def test_layouts_are_recognised():
    assert [layouts.detect(p) for p in (LIBRITTS, LJSPEECH, SHARD, FIXTURES)] == [
        "libritts",
        "ljspeech",
        "webdataset",
        "webdataset",
    ]
    message = r"recordings \(\d+\) without their words: write what is said in LJ.*wav to LJ.*txt"
    with pytest.raises(InputError, match=message):
        layouts.detect(LJSPEECH / "wavs")


def test_data_sets_that_cannot_be_read_say_what_to_give(tmp_path):
    """Recordings were said to have no words where their table lies in a folder of a split."""
    (tmp_path / "hub" / "train").mkdir(parents=True)
    shutil.copy(WAV, tmp_path / "hub" / "train")
    (tmp_path / "hub" / "train" / "metadata.csv").write_text("file_name,text\n1.wav,yes\n")
    with pytest.raises(InputError, match=r"give it instead: .*hub.train.metadata\.csv"):
        find([tmp_path / "hub"])
    for name in ("READ ME.txt", "transcript.txt"):  # as of CSS10 and KSS
        (tmp_path / "hub" / name).write_text(f"train/1.wav{'|' * (name[0] == 't')}yes")
    with pytest.raises(InputError, match=r"instead: \S*metadata\.csv \S*transcript\.txt$"):
        find([tmp_path / "hub"])
    for n in range(9):
        (tmp_path / "hub" / f"{n}.csv").touch()
    with pytest.raises(InputError, match=r"instead: .* and 2 more$"):
        find([tmp_path / "hub"])
    (tmp_path / "all" / "de").mkdir(parents=True)
    shutil.copy(SHARD, tmp_path / "all" / "de")
    with pytest.raises(InputError, match=r"shards lie in folders of .*instead: \S*de.\*\.tar$"):
        find([tmp_path / "all"])
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "data-00000-of-00001.arrow").write_bytes(b"")
    with pytest.raises(InputError, match="write its recordings to files"):
        find([tmp_path / "saved"])
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "LJSpeech-1.1.tar.bz2").write_bytes(b"BZh9")
    for place in (tmp_path / "got", tmp_path / "got" / "LJSpeech-1.1.tar.bz2"):
        with pytest.raises(InputError, match=r"LJSpeech.*bz2 is packed: unpack it"):
            find([place])
    with tarfile.open(tmp_path / "LJSpeech-1.1.tar", "w") as tar:
        tar.add(LJSPEECH, "LJSpeech-1.1")
    samples, skips = find([tmp_path / "LJSpeech-1.1.tar"])
    assert not samples and "unpack what is no WebDataset" in skips[0].detail + skips[1].detail


def test_libritts_has_readers_and_ljspeech_reads_the_normalised_text(tmp_path):
    samples, skips = find([LIBRITTS])
    assert not skips and [s.speaker for s in samples] == ["9001", "9002"]
    for s in samples:
        beside = s.audio.path.with_suffix(".normalized.txt")
        assert s.text == beside.read_text(encoding="utf-8").strip()
    folder = Path(shutil.copytree(LJSPEECH, tmp_path / "lj"))
    (folder / "metadata.csv").write_text(
        "LJ001-0002|in 1455|in fourteen fifty-five\nLJ001-0008|has never|\nLJ001-0099|a|b\noops\n",
        encoding="utf-8",
    )
    samples, skips = find([folder])
    assert [s.text for s in samples] == ["in fourteen fifty-five", "has never"]
    assert [s.reason for s in skips] == ["no audio file", "no transcript"]


def test_a_folder_of_recordings_with_a_text_beside_each(tmp_path):
    (tmp_path / "more").mkdir()
    for name, text in (("a.wav", "one\n"), ("more/a.FLAC", "two  words"), ("b.wav", "")):
        shutil.copy(WAV, tmp_path / name)
        (tmp_path / name).with_suffix(".txt").write_text(text, encoding="utf-8-sig")
    shutil.copy(WAV, tmp_path / "c.wav")
    shutil.copy(WAV, tmp_path / "a.mp3")  # of the same recording as a.wav
    assert layouts.detect(tmp_path) == "folder"
    samples, skips = find([tmp_path])
    assert [(s.text, s.audio.path.name) for s in samples] == [
        ("one", "a.mp3"),
        ("two words", "a.FLAC"),
    ]
    assert len({s.key for s in samples}) == 2 and all(s.speaker is None for s in samples)
    assert [(s.name, s.reason) for s in skips] == [("b", "empty text"), ("c", "no transcript")]


@pytest.mark.parametrize("text", ["a.txt", "a.normalized.txt"])
def test_linked_folders_are_read_and_no_recording_twice(tmp_path, text):
    """As data sets are put together of speakers that lie elsewhere."""
    inside, outside = tmp_path / "set/b", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        shutil.copy(WAV, folder / "a.wav")
        (folder / text).write_text(folder.name)
        (folder / "._a.wav").write_bytes(b"of a Mac")
    (tmp_path / "set/anna").symlink_to(outside)
    (tmp_path / "set/again").symlink_to(inside)
    (inside / "loop").symlink_to(tmp_path / "set")
    assert layouts.detect(tmp_path / "set") == ("folder" if text == "a.txt" else "libritts")
    samples, skips = find([tmp_path / "set"])
    assert [(s.name, s.text) for s in samples] == [("anna/a", "elsewhere"), ("b/a", "b")]
    assert not skips
    assert mp3s.make_mp3s([tmp_path / "set"])[0] == {"written": 2, "kept": 0}


def test_a_linked_folder_with_one_that_was_read_has_its_others_read(tmp_path):
    for name in "abcdefg":
        (tmp_path / name).mkdir()
        shutil.copy(WAV, tmp_path / name / f"{name}.wav")
        (tmp_path / name / f"{name}.txt").write_text(name)
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert [s.text for s in find([tmp_path / "a"])[0]] == list("abcdefg")


def test_a_recording_that_is_linked_to_is_one(tmp_path):
    """Parts of a data set may be links to all of it: a clip was trained on and held out."""
    for place, name in (("all", "a"), ("all", "b"), ("train", "a")):
        audio, text = (tmp_path / place / f"{name}.{kind}" for kind in ("wav", "txt"))
        audio.parent.mkdir(exist_ok=True)
        text.write_text("one")
        if place == "all":
            shutil.copy(WAV, audio)
        else:
            audio.symlink_to(f"../all/{name}.wav")
    samples, skips = find([tmp_path])
    assert [s.key for s in samples] == ["a", "b"]
    assert [(s.name, s.reason) for s in skips] == [("train/a", "listed twice")]


def test_formats_that_are_not_read_are_counted_and_said_to_be(
    tmp_path,
):
    for name in ("a.opus", "b.m4a", "c.wav", "c.m4a", "d.M4A", "e.wav"):
        shutil.copy(WAV, tmp_path / name)
        (tmp_path / name).with_suffix(".txt").write_text("one", encoding="utf-8")
    (tmp_path / "e.txt").write_bytes("schön".encode("latin-1"))
    samples, skips = find([tmp_path])
    assert [s.audio.path.name for s in samples] == ["a.opus", "c.wav"]
    why = {s.name: s for s in skips}
    assert {s.reason for s in (why["b"], why["d"])} == {"a format that is not read"}
    assert "convert it" in why["b"].detail and why["e"].detail.endswith("save it as UTF-8")
    for name in ("a.opus", "c.wav", "e.wav"):
        (tmp_path / name).unlink()
    with pytest.raises(DataError, match=r"none of 3 recordings can be used.*convert it"):
        raise nothing_usable(find([tmp_path])[1], [tmp_path])


@pytest.mark.parametrize("ending", ["wav", "m4a", "MP4"])
def test_a_link_to_no_recording_is_told(tmp_path, ending):
    """A traceback was all that a command said of it."""
    for name in (f"a.{ending}", "b.wav"):
        (tmp_path / name).symlink_to(WAV if name == "b.wav" else tmp_path / "gone")
        (tmp_path / name).with_suffix(".txt").write_text("one")
    samples, skips = find([tmp_path])
    assert [s.name for s in samples] == ["b"]
    assert [(s.name, s.reason) for s in skips] == [("a", "no audio file")]
    assert f"a.{ending} is no file" in skips[0].detail


def test_what_phones_record_is_learned_from(tmp_path, monkeypatch):
    pytest.importorskip("av")
    from tests.audio.test_films import RATE, written

    folder = tmp_path / "phone"
    folder.mkdir()
    tone = np.sin(np.arange(2 * RATE) * 0.05, dtype=np.float32)[None] * 0.3
    for name in ("a.m4a", "b.mp4"):
        written(folder / name, tone)
        (folder / name).with_suffix(".txt").write_text("one", encoding="utf-8")
    (folder / "c.m4a").write_bytes((folder / "a.m4a").read_bytes()[:400])  # copied in part
    (folder / "c.txt").write_text("one", encoding="utf-8")
    assert [s.name for s in find([folder])[0]] == ["a", "b", "c"]
    with tarfile.open(tmp_path / "phone.tar", "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    packed, wrong = find([tmp_path / "phone.tar"])
    assert [s.key for s in packed] == ["a", "b", "c"] and not wrong
    assert [s.audio.read() for s in packed] == [s.audio.read() for s in find([folder])[0]]
    monkeypatch.setattr("nanospeech.audio.films.find_spec", lambda name: None)
    wrong = find([tmp_path / "phone.tar"])[1]
    assert [s.detail.partition(" or")[0] for s in wrong] == [
        f"{suffix}; pip install 'nanospeech-tts[book]'," for suffix in (".m4a", ".mp4", ".m4a")
    ]
    monkeypatch.undo()
    assert main(["shards", str(folder), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    kept = find(sorted((tmp_path / "out").glob("*.tar")))[0]
    assert len(kept) == 2
    assert all(abs(len(decode(s.audio.read())[0]) / 24_000 - 2) < 0.15 for s in kept)


def test_a_table_of_returns_is_read_and_one_whose_header_has_some_is_no_csv(waves):
    (waves / "all.csv").write_bytes(b"audio,text\r0.wav,one\r1.wav,two\r")
    assert [s.text for s in find([waves / "all.csv"])[0]] == ["one", "two"]
    (waves / "all.csv").write_bytes(b"audio,te\rxt\n0.wav,one\n")
    with pytest.raises(InputError, match=r"all\.csv is no CSV near line 1"):
        find([waves / "all.csv"])


@pytest.mark.parametrize("kind, mark", [("tsv", "\t"), ("csv", ",")])
def test_a_return_within_a_text_ends_no_row(waves, kind, mark):
    """The whole table was said to be no CSV, and to want quotes."""
    rows = [("audio", "text"), ("0.wav", "one\rmore"), ("1.wav", "two\r"), ("2.wav", "\rthree")]
    rows += [("2.wav", "four\r1.wav", "five")]  # a row that ends with one
    (waves / f"all.{kind}").write_bytes("\n".join(map(mark.join, rows)).encode())
    samples, skips = find([waves / f"all.{kind}"])
    assert [s.text for s in samples] == ["one more", "two", "three"]
    assert [s.reason for s in skips] == ["more fields than columns"]


def test_a_recording_of_two_inputs_is_one(tmp_path, monkeypatch):
    """It was two, one of them trained on and the other perhaps held out."""
    alone = {s.key for s in find([SHARD])[0]}
    (tmp_path / "set").symlink_to(SHARD.parent)
    samples, skips = find([SHARD, tmp_path / "set", tmp_path / f"set/{SHARD.name}"])
    assert {s.key for s in samples} >= alone and len({s.text for s in samples}) == len(samples)
    assert {s.reason for s in skips} == {"in an earlier input too"}
    assert len(skips) == 2 * len(alone)
    # a table may have a recording twice, with other words
    (tmp_path / "a.csv").write_text(f"audio,text\n{WAV},one\n{WAV},two\n")
    samples, skips = find([tmp_path / "a.csv", SHARD])
    assert len(samples) == 2 + len(alone) and not skips


def test_a_row_that_stands_twice_is_one(waves):
    """Two keys were made of it, of which one could be held out and the other trained on."""
    once = "0|one\n1|two\n"
    (waves / "metadata.csv").write_text(once)
    alone = find([waves])[0]
    (waves / "metadata.csv").write_text(once + "0| one \n1|other\n")
    samples, skips = find([waves])
    assert samples[:1] == alone[:1] and [s.text for s in samples] == ["one", "two", "other"]
    assert [(s.name, s.reason) for s in skips] == [("0", "listed twice")]
    rows = [f"0.wav,one,{who}\n" for who in ("anna", "anna", "bert")]
    (waves / "people.csv").write_text("audio,text,speaker\n" + "".join(rows))
    samples, skips = find([waves / "people.csv"])
    assert [s.speaker for s in samples] == ["anna", "bert"] and len(skips) == 1


@pytest.mark.parametrize("ours, theirs", [("NFC", "NFD"), ("NFD", "NFC")])
@pytest.mark.parametrize("layout", ["folder", "manifest", "ljspeech", "manifest of folders"])
def test_a_name_is_found_in_either_form_of_unicode(tmp_path, layout, ours, theirs):
    """Recordings of a Mac and a table that was typed look alike, and no recording was there."""
    name, other = (unicodedata.normalize(form, "bär") for form in (ours, theirs))
    place = f"wavs/{name}" if "of folders" in layout else "wavs"
    (tmp_path / place).mkdir(parents=True)
    shutil.copy(WAV, tmp_path / place / f"{name}.wav")
    {
        "folder": lambda: (tmp_path / f"wavs/{other}.txt").write_text("one"),
        "manifest": lambda: (tmp_path / "metadata.csv").write_text(
            f"audio,text\nwavs/{other}.wav,one\n", encoding="utf-8"
        ),
        "ljspeech": lambda: (tmp_path / "metadata.csv").write_text(f"{other}|one\n", "utf-8"),
        "manifest of folders": lambda: (tmp_path / "metadata.csv").write_text(
            f"audio,text\nwavs/{other}/{other}.wav,one\n", encoding="utf-8"
        ),
    }[layout]()
    samples, skips = find([tmp_path])
    assert [(s.text, s.audio.path.stem) for s in samples] == [("one", name)] and not skips


def test_what_a_mac_records_is_read_beside_others(tmp_path, capsys):
    """It was left out without a word."""
    wave, rate = sf.read(WAV)
    sf.write(tmp_path / "a.aiff", wave, rate)
    shutil.copy(tmp_path / "a.aiff", tmp_path / "b.AIF")
    shutil.copy(WAV, tmp_path / "c.wav")
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("has never been surpassed")
    assert main(["shards", str(tmp_path), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 3


def test_manifests_of_both_kinds_say_the_same(tmp_path):
    shutil.copy(WAV, tmp_path / "one.wav")
    rows = [
        {"audio": "one.wav", "text": 'She said, "never".', "speaker": "anna", "mood": "calm"},
        {"audio": "gone.wav", "text": "not there", "speaker": "", "mood": ""},
        {"audio": "one.wav", "text": "  ", "speaker": "", "mood": ""},
    ]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as f:
        writer = csv.DictWriter(f, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "a.jsonl").write_text(lines + "\n{broken\n[1]\n", encoding="utf-8")
    (from_csv, csv_skips), (from_jsonl, skips) = (
        find([tmp_path / "a.csv"]),
        find([tmp_path / "a.jsonl"]),
    )
    assert from_csv == from_jsonl and len(from_csv) == 1
    assert from_csv[0].speaker == "anna" and from_csv[0].extra == {"mood": "calm"}
    assert [s.reason for s in csv_skips] == ["no audio file", "empty text"]
    assert [s.reason for s in skips[2:]] == ["unreadable row", "unreadable row"]
    (tmp_path / "b.csv").write_text("file;words\n", encoding="utf-8")
    with pytest.raises(InputError, match="columns audio and text"):
        find([tmp_path / "b.csv"])


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "names", [("audio", "text"), ("file_name", "transcription"), ("audio_filepath", "text")]
)
def test_a_folder_may_have_its_table_in_it(waves, kind, names):
    """As Hugging Face's audio folders; it was read as LJSpeech's, of which no line is one."""
    rows = [{names[0]: f"{n}.wav", names[1]: f"one, | {n}", "speaker": "anna"} for n in range(2)]
    with (waves / f"metadata.{kind}").open("w", newline="", encoding="utf-8-sig") as f:
        if kind == "csv":
            writer = csv.DictWriter(f, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        else:
            f.write("\n".join(map(json.dumps, rows)))
    samples, skips = find([waves])
    assert [(s.key, s.text, s.speaker, s.extra) for s in samples] == [
        (str(n), f"one, | {n}", "anna", {}) for n in range(2)
    ]
    assert not skips


def test_a_language_that_no_run_takes_is_told_at_once(waves):
    """Shards were made of them, of which training then used none."""
    rows = [("0.wav", "English"), ("1.wav", "en_US"), ("2.wav", "")]
    lines = [f"{file},Good morning.,{code}\n" for file, code in rows]
    (waves / "all.csv").write_text("audio,text,language\n" + "".join(lines))
    samples, [skip] = find([waves / "all.csv"])
    assert [s.name for s in samples] == ["1.wav", "2.wav"]
    assert (skip.name, skip.reason) == ("0.wav", "invalid language") and "such as en" in skip.detail


def test_the_columns_of_ours_go_before_those_of_others(waves):
    row = {"file_name": "1.wav", "audio": "0.wav", "transcription": "NO", "text": "yes"}
    (waves / "all.jsonl").write_text(json.dumps(row))
    (sample,) = find([waves / "all.jsonl"])[0]
    assert (sample.key, sample.text) == ("0", "yes")
    assert sample.extra == {"file_name": "1.wav", "transcription": "NO"}


def test_quotes_that_a_writer_of_csv_doubled_are_single_in_tables_with_bars(waves):
    texts = ['He said "no" again.', '"Yes," he said, "no."', '"Well"', '"Oh ""dear" he said."']
    with (waves / "metadata.csv").open("w", newline="") as f:
        csv.writer(f, delimiter="|").writerow(["0", texts[0]])
        f.writelines(f"{n % 3}|{text}\n" for n, text in enumerate(texts) if n)
    assert [s.text for s in find([waves])[0]] == texts


@pytest.mark.parametrize(
    "mark, header", [("|", ()), ("|", ("audio", "text")), ("\t", ("audio", "text"))]
)
def test_tables_whose_fields_are_all_in_quotes_are_read(waves, mark, header):
    """No recording was found, as its name had quotes; a bar or a line's end may be in a text."""
    texts = [*TEXTS[:2], "One | two,\nthree."]
    table = waves / ("all.tsv" if mark == "\t" else "metadata.csv")
    with table.open("w", newline="") as f:
        rows = [header] * bool(header) + [(n, text) for n, text in enumerate(texts)]
        rows = [(f"{n}.wav" if header and n != "audio" else n, text) for n, text in rows]
        csv.writer(f, delimiter=mark, quoting=csv.QUOTE_ALL).writerows(rows)
    samples, skips = find([table])
    assert [s.text for s in samples] == [" ".join(text.split()) for text in texts] and not skips
    table.write_text(table.read_text() + '"0"' + mark + '"never')
    with pytest.raises(InputError, match=r"is no CSV near line \d"):
        find([table])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_tables_in_a_spreadsheets_encoding_say_how_to_save_them(waves, encoding):
    (waves / "metadata.csv").write_bytes("0|schön\n".encode(encoding))
    with pytest.raises(InputError, match=r"metadata\.csv as UTF-8 text.*save it as UTF-8"):
        find([waves])


def test_a_recorders_capitals_are_an_ending_too(waves):
    (waves / "0.wav").rename(waves / "0.WAV")
    (waves / "metadata.csv").write_text("0|Good morning.\n0.WAV|Good day.\n")
    samples, skips = find([waves])
    assert [s.text for s in samples] == ["Good morning.", "Good day."] and not skips


@pytest.mark.parametrize("words", ["TXT", "JSON"])
def test_so_are_those_of_the_words_beside_it(tmp_path, words):
    shutil.copy(WAV, tmp_path / "0.WAV")
    said = "Good day." if words == "TXT" else '{"text": "Good day."}'
    (tmp_path / f"0.{words}").write_text(said)
    (sample,), skips = find([tmp_path])
    assert (sample.text, sample.audio.path.name) == ("Good day.", "0.WAV") and not skips
    if words == "TXT":
        assert text_of(sample.audio.path) == ["Good", "day."]


@pytest.mark.parametrize("mark", ["|", ","])
def test_tables_of_windows_name_folders_as_it_does(waves, mark):
    (waves / "wavs").mkdir()
    (waves / "0.wav").rename(waves / "wavs/0.wav")
    table = mark.join(["audio", "text\nwavs\\0.wav", "one"])
    (waves / "metadata.csv").write_text(table)
    (sample,), skips = find([waves])
    assert (sample.text, sample.audio.path) == ("one", waves / "wavs/0.wav") and not skips


def test_times_are_no_words(waves):
    """They were learnt to be said, where labels or subtitles lie beside a recording as its text."""
    (waves / "0.txt").write_text("0.000000\t1.200000\tWell.\n1.300000\t2.500000\tYes.\n")
    (waves / "1.txt").write_text("1\n00:00:00,000 --> 00:00:01,200\nWell.\n")
    (waves / "2.txt").write_text("At 10:30 --> 3.5 and\n4.5\tof 7.")
    samples, skips = find([waves])
    assert [s.name for s in samples] == ["2"]
    assert {(s.reason, "prepare cut" in s.detail) for s in skips} == {("times in its text", True)}
    assert [s.name for s in skips] == ["0", "1"]
    with pytest.raises(InputError, match=r"1\.txt has times in its text"):
        text_of(waves / "1.wav")


@pytest.mark.parametrize("name", ["0.wav", "wavs/0.wav"])
def test_a_line_of_ljspeechs_may_name_the_file(waves, name):
    """Piper's metadata.csv has it, and F5-TTS's with its folder and a header."""
    (waves / "wavs").mkdir()
    (waves / "0.wav").rename(waves / "wavs/0.wav")
    (waves / "metadata.csv").write_text(f"audio_file|text\n{name}|Good morning.\n")
    samples, skips = find([waves])
    assert [(s.text, s.audio.path) for s in samples] == [("Good morning.", waves / "wavs/0.wav")]
    assert samples[0].key in ("0", "wavs_0") and not skips


@pytest.mark.parametrize("table", ["metadata.csv", "all.jsonl"])
def test_keys_tell_nothing_of_where_recordings_lie(waves, table):
    """Absolute paths, as F5-TTS's tables have, came into the names of shards' members."""
    files = [waves / who / f"{n}.wav" for who in ("anna", "bert") for n in (0, 1)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        shutil.copy(WAV, file)
    rows = [*((file, f"text {n}") for n, file in enumerate(files)), (files[0], "another text")]
    bars = "".join(f"{file}|{text}\n" for file, text in rows)
    lines = "\n".join(json.dumps({"audio": str(file), "text": text}) for file, text in rows)
    (waves / table).write_text(bars if table.endswith("csv") else lines)
    source = waves if table.endswith("csv") else waves / table
    name = Path(source).stem
    keys = [s.key for s in find([source])[0]]
    assert keys == [f"{name}_anna_0", "anna_1", "bert_0", "bert_1", f"{name}_anna_0-2"]
    assert without_common_folder([("d", "/", "u", "me", "1"), ("d", "/", "u", "me", "2")]) == [
        ("d", "1"),
        ("d", "2"),
    ]
    deep, flat, near = ("d", "/", "u", "me", "a", "1"), ("d", "/", "u", "2"), ("d", "u", "3")
    assert without_common_folder([deep, flat, near]) == [("d", "me", "a", "1"), ("d", "2"), near]
    assert without_common_folder([("d", "/", "1")]) == without_common_folder([deep]) == [("d", "1")]
    assert not without_common_folder([])
    assert without_common_folder([("d",), near]) == [("d",), near]


def test_the_speakers_of_pipers_table_are_kept(waves):
    """They were passed over, and all their recordings taken for one person's."""
    for n in range(8):
        shutil.copy(WAV, waves / f"{n}.wav")
    said = ["Good morning.", "Good day.", "", "How?", "Good day.", "Fine.", "Well.", "Thanks."]
    who = ["anna", " anna", "anna", "bert k", "bert k", "bert k", "", "bert k"]
    rows = [f"{n}|{w}|{s}\n" for n, (w, s) in enumerate(zip(who, said))]
    (waves / "metadata.csv").write_text("".join(rows))
    samples, _ = find([waves])
    wanted = {(w.strip() or None, s) for w, s in zip(who, said) if s}
    assert {(s.speaker, s.text) for s in samples} == wanted


@pytest.mark.parametrize(
    "table, wanted",
    [
        ("0|1|one\n1|1|one\n2|1|one\n3|2|two\n4|3|three\n", {"one", "two", "three"}),  # numbers
        ("0|one|\n1|one|One.\n", {"one", "One."}),  # one that is read as it is written
        (f"0|{'one ' * 16}|one\n1|{'one ' * 16}|One.\n", {"one", "One."}),
        ("0|1|one|of some\n", {"one"}),
        ("0|one|\n1|two|\n", {"one", "two"}),
        (f"0|{'a' * 61}|one\n1|{'a' * 61}|two\n", {"one", "two"}),  # too long for a name
    ],
)
def test_texts_as_they_are_written_are_no_speakers(waves, table, wanted):
    (waves / "metadata.csv").write_text(table)
    for n in range(5):
        shutil.copy(WAV, waves / f"{n}.wav")
    assert {(s.speaker, s.text) for s in find([waves])[0]} == {(None, text) for text in wanted}
    (waves / "metadata.csv").write_text(f"0|{'a' * 60}|one\n1|{'a' * 60}|two\n")
    assert {s.speaker for s in find([waves])[0]} == {"a" * 60}
    (waves / "metadata.csv").write_text("0|anna|one\n1|anna|two\n2|three\n")
    found = {(s.speaker, s.text) for s in find([waves])[0]}  # who says two texts is a speaker
    assert found == {("anna", "one"), ("anna", "two"), (None, "three")}


def test_speakers_stand_behind_texts_or_under_a_name_as_well(waves):
    """As in tables of VITS, StyleTTS 2 and Coqui: what was learnt to be said was who says it."""
    said, who = ["Good morning.", "Good day.", "How are you?", "Fine."], ["0", "1", "0", "1"]
    rows = [(n % 3, s, w) for n, (s, w) in enumerate(zip(said, who))]
    wanted = list(zip(said, who))
    table = waves / "metadata.csv"
    table.write_text("".join(f"{n}.wav|{s}|{w}\n" for n, s, w in rows))
    samples, skips = find([waves])
    assert [(s.text, s.speaker) for s in samples] == wanted and not skips
    lines = ["audio_file|text|speaker_name|language", *(f"{n}.wav|{s}|{w}|en" for n, s, w in rows)]
    table.write_text("\n".join([*lines, "0.wav|one | two|0|en"]))
    samples, skips = find([waves])
    assert [(s.text, s.speaker) for s in samples] == wanted
    assert {s.extra["language"] for s in samples} == {"en"}
    assert [(s.name, s.reason) for s in skips] == [("metadata.csv:6", "more fields than columns")]
    for few in (["yes", "no"], ["Good morning to you all.", "Good day to you."]):  # each by four
        table.write_text("".join(f"{n % 3}|{few[n % 2]}|{'abcd'[n // 2]}\n" for n in range(8)))
        assert {(s.text, s.speaker) for s in find([waves])[0]} <= {
            (t, w) for t in few for w in "abcd"
        }


def test_tables_of_gpt_sovits_have_who_speaks_and_in_what_language_before_texts(waves):
    table = waves / "all.list"
    rows = [(0, "anna", "EN", "Well."), (1, "anna", "ja", "はい"), (2, "bert", "yue", "好")]
    table.write_text("".join(f"{waves}/{n}.wav|{w}|{c}|{s}\n" for n, w, c, s in rows), "utf-8")
    samples, skips = find([table])
    found = [(int(s.key), s.speaker, s.extra["language"], s.text) for s in samples]
    assert found == rows and not skips
    table.write_text("0|one|no\n1|two|ja\n2|three|en\n")  # words, of a table of three columns
    found = [(s.speaker, s.text) for s in find([table])[0]]
    assert found == [(None, "no"), (None, "ja"), (None, "en")]
    table.write_text("0|a|en|Well.\n1|b|spoken|Yes.\n")  # no code in one of them
    assert all("language" not in s.extra for s in find([table])[0])


def test_a_table_may_have_spaces_behind_its_commas(waves):
    (waves / "all.csv").write_text('audio, text\n0.wav, "Well, yes"\n1.wav, no\n')
    assert [s.text for s in find([waves / "all.csv"])[0]] == ["Well, yes", "no"]


@pytest.mark.parametrize(
    "table",
    [
        "audio | text | speaker\n0 | one | anna\n1 | two | anna\n",
        "0 | anna | en | one\n1 | anna | en | two\n",
        "audio,text,speaker\n0.wav,one,anna\n1.wav,two,anna \n",
        "id|text|speaker\n0|one|anna\n1|two|anna\n",
        "ID|Transcription|Normalized Transcription|Speaker\n0|1|one|anna\n1|two||anna\n",
        "Audio;Text;Speaker\n0.wav;one;anna\n1.wav;two;anna\n",
        "Filename,Transcript,Speaker ID,Speaker\n0.wav,one,1,anna\n1.wav,two,1,anna\n",
    ],
)
def test_tables_name_their_columns_in_many_ways(waves, table):
    """Else no recording is found, a first line is one, or, by spaces, one person counts as two."""
    (waves / "metadata.csv").write_text(table, encoding="utf-8")
    samples, skips = find([waves])
    assert not skips
    found = [(s.key, s.text, s.speaker) for s in samples]
    assert found == [("0", "one", "anna"), ("1", "two", "anna")]


@pytest.mark.parametrize("between", [";", "\t"])
def test_spreadsheets_may_divide_columns_by_other_signs(waves, between):
    with (waves / "all.csv").open("w", newline="", encoding="utf-8-sig") as f:
        writer = csv.writer(f, delimiter=between, quoting=csv.QUOTE_ALL)
        writer.writerows([["audio", "text", "speaker_id"], ["0.wav", f'a, b{between} "c"', 7]])
    (sample,) = find([waves / "all.csv"])[0]
    assert (sample.text, sample.speaker) == (" ".join(f'a, b{between} "c"'.split()), "7")


@pytest.mark.parametrize("folder", ["wavs", "wav", "."])
def test_recordings_of_ljspeechs_table_may_lie_as_pipers(waves, folder):
    (waves / folder).mkdir(exist_ok=True)
    (waves / "0.wav").rename(waves / folder / "0.wav")
    (waves / "metadata.csv").write_text("0|Good morning.\n")
    (sample,) = find([waves])[0]
    assert (sample.key, sample.audio.path) == ("0", waves / folder / "0.wav")


def test_keys_are_unique_and_have_no_dots():
    parts = [("d", "a", "x.1"), ("d", "b", "x.1"), ("d", "c", "y"), ("e", "a", "x.1")]
    parts += [("d", "c", "y"), ("d", "c", "y-2"), ("", "日本"), ("", "")]
    keys = unique_keys(parts)
    assert len(set(keys)) == len(parts)
    assert all(key and "." not in key and "/" not in key and key.isascii() for key in keys)
    assert unique_keys([("d", "1", "a"), ("d", "1", "b")]) == ["a", "b"]
    assert unique_keys([("d", "1", "a"), ("d", "2", "a")]) == ["1_a", "2_a"]
    assert unique_keys([("d", "CON"), ("d", "con_")]) == ["CON_", "con_"]  # a Windows device
    many = unique_keys([("d", "十"), ("d__-3",), *[("d", "百")] * 4])
    assert many == ["d__", "d__-3", "d__-2", "d__-4", "d__-5", "d__-6"]


def test_quotes_in_tables_with_tabs_are_part_of_the_text(waves):
    rows = ["audio\ttext", *(f"{n}.wav\t{text}" for n, text in enumerate(TEXTS))]
    rows.append('0.wav\t"She said ""yes"" to it."')  # as spreadsheets write one
    (waves / "all.tsv").write_text("\n".join(rows) + "\n")
    samples, skips = find([waves / "all.tsv"])
    assert [s.text for s in samples] == [*TEXTS, 'She said "yes" to it.'] and not skips


def test_a_table_with_commas_whose_quotes_do_not_end_is_a_mistake(waves):
    rows = ["audio,text", '0.wav,"never', "1.wav,ended"]
    (waves / "all.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=r"all\.csv is no CSV near line \d"):
        find([waves / "all.csv"])


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_separator_within_a_text_does_not_cut_it(waves, kind):
    mark = "," if kind == "csv" else "\t"
    table = waves / f"all.{kind}"
    rows = [("audio", "text"), ("0.wav", "Hello", " world."), ("1.wav", "Good day.", "", " ")]
    table.write_text("\n".join(map(mark.join, rows)))
    samples, skips = find([table])
    assert [s.text for s in samples] == ["Good day."]
    assert [(s.name, s.reason) for s in skips] == [(f"all.{kind}:2", "more fields than columns")]
    assert skips[0].detail.startswith("' world.' is behind; ")
    assert ("put quotes around" in skips[0].detail) is (kind == "csv")


@pytest.mark.parametrize("above", ["sep=;\n", "\n \n", "SEP=;\n\n"])
def test_what_spreadsheets_write_above_the_heading_is_no_heading(waves, above):
    table = waves / "all.csv"
    table.write_text(f"{above}audio;text\n0.wav;Hello.\ngone.wav;Hi.\n")
    samples, (gone,) = find([table])
    assert [s.text for s in samples] == ["Hello."]
    assert gone.name == f"all.csv:{above.count(chr(10)) + 3} gone.wav"


def test_a_key_with_dots_is_told_where_keys_end(waves):
    with tarfile.open(waves / "a.tar", "w") as tar:
        tar.add(waves / "0.wav", "clip.0.wav")
    (skip,) = find([waves / "a.tar"])[1]
    assert skip.name == "a.tar/clip" and skip.reason == "no audio file"
    assert skip.detail.startswith("it has .0.wav; a key ends at the first dot")


@pytest.mark.parametrize("folder", ["/data/", "C:\\data\\", "gone/"])
def test_paths_of_another_machine_have_a_remedy(waves, folder):
    (waves / "all.csv").write_text(f"audio,text\n{folder}0.wav,Hello.\n")
    (skip,) = find([waves / "all.csv"])[1]
    assert ("write paths relative to the table" in skip.detail) is (folder != "gone/")


def test_recordings_with_subtitles_alone_are_to_be_cut(waves):
    (waves / "1.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nHello.\n")
    with pytest.raises(InputError, match=r"subtitles, such as 1\.vtt.* prepare cut .* to 1\.txt"):
        find([waves])


def test_rows_of_too_many_fields_are_told_together(waves, capsys):
    table = waves / "all.csv"
    rows = [f"{i % 2}.wav,Hello, friend" for i in range(7)]
    table.write_text("\n".join(["audio,text", *rows, '0.wav,"Hello, friend"', "gone.wav,Hello"]))
    wanted = (
        "7: more fields than columns, for example all.csv:2 (' friend' is behind; put quotes around"
        " a text with commas), all.csv:3, all.csv:4"
    )
    _, skips = find([table])
    told, gone = examples(skips)
    assert told == wanted and gone.startswith("1: no audio file, for example all.csv:10 gone.wav (")
    assert str(waves / "gone.wav") in gone
    for tool, word in (("shards", "skipped"), ("curate", "dropped")):
        assert main([tool, str(table), "--out", str(waves / tool), "--jobs", "1"]) == 0
        out, err = capsys.readouterr()
        told = [line for line in (out + err).splitlines() if "columns, for" in line]
        assert told == [f"{word} {wanted}"]


def test_a_text_in_the_place_of_a_name_ends_no_command(waves):
    words = "a long sentence " * 30
    (waves / "all.csv").write_text(f"audio,text\n{words},0.wav\n1.wav,one\n")
    (waves / "metadata.csv").write_text(f"{words}|0\n1|one\n")
    (waves / "wavs").mkdir()
    (waves / "1.wav").rename(waves / "wavs/1.wav")
    for place, found in ((waves, 1), (waves / "all.csv", 0)):
        samples, skips = find([place])
        assert len(samples) == found and skips[0].reason == "no audio file"


def test_json_that_cannot_be_kept_is_counted(waves):
    """Half of a surrogate pair has no UTF-8; numbers without quotes are texts, as in training."""
    rows = [
        r'{"audio": "0.wav", "text": "half of an \ud83d emoji"}',
        r'{"audio": "0.wav", "text": "whole", "speaker": "\udc00"}',
        "[" * 100_000,
        '{"audio": "0.wav", "text": ["a list"]}',
        '{"audio": "0.wav", "text": 1984}',
    ]
    (waves / "all.jsonl").write_text("\n".join(rows))
    samples, skips = find([waves / "all.jsonl"])
    assert [s.text for s in samples] == ["1984"]
    assert [s.reason for s in skips] == 3 * ["unreadable row"] + ["unreadable text"]
    assert skips[3].name == "all.jsonl:4" and "a list" in skips[3].detail


def test_what_pandas_does_not_know_is_not_said(waves):
    """NaN was the text "nan", and a speaker's name."""
    rows = ['"text": NaN', '"text": "yes", "speaker": NaN, "mood": -Infinity']
    (waves / "all.jsonl").write_text("\n".join(f'{{"audio": "0.wav", {row}}}' for row in rows))
    (waves / "1.json").write_text('{"text": NaN}')
    (sample,), (skip,) = find([waves / "all.jsonl"])
    assert (sample.text, sample.speaker, sample.extra) == ("yes", None, {"mood": None})
    assert skip.reason == "no transcript"
    assert [s.reason for s in find([waves], "folder")[1] if s.name == "1"] == ["unreadable text"]


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
    assert main(["shards", str(table), "--out", str(waves / "shards"), "--jobs", "1"]) == 0
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
