"""Faults of recordings and names: each is counted by its reason, and none ends a command."""

import csv
import gzip
import importlib
import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio import wave as audio
from nanospeech.commands.prepare import main
from nanospeech.config import AudioConfig
from nanospeech.corpus import mp3
from nanospeech.corpus.layouts import find
from nanospeech.corpus.tars import Header
from nanospeech.errors import InputError
from nanospeech_torch.train.data import clips
from nanospeech_torch.train.data.sources import TarSource
from tests.training import write_tar

from .test_shards import LIBRITTS, ROOT, WAV, tone


def test_a_header_that_tells_more_than_fits_the_memory_is_a_reason():
    file = io.BytesIO()
    sf.write(file, tone(), 24_000, format="FLAC")
    content = bytearray(file.getvalue())
    content[21] |= 0x0F  # the upper bits of the number of samples: 2 ** 36 of them
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**37, limits[1]))  # bytes, wherever this runs
    try:
        with pytest.raises(mp3.BadAudio) as failed:
            mp3.decode(bytes(content))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert failed.value.args[0] == "unreadable audio"
    assert "more than fits the memory" in failed.value.args[1]


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_a_name_that_is_no_utf8_is_listed(tmp_path):
    """As files of an archive of another system have it; here one that cannot be used."""
    folder, out = tmp_path / "recordings", tmp_path / "shards"
    folder.mkdir()
    for name in ("good", "caf\udce9"):  # a byte E9, as Python has it in names
        (folder / f"{name}.txt").write_text("Good morning.")
    shutil.copy(WAV, folder / "good.wav")
    (folder / "caf\udce9.wav").touch()
    assert main(["shards", str(folder), "--out", str(out), "--jobs", "1"]) == 0
    with (out / "skipped.csv").open(encoding="utf-8", newline="") as f:
        assert [row["name"] for row in csv.DictReader(f)] == [r"caf\udce9"]


def test_recordings_are_whole_centred_and_not_clipped():
    """Half of a download was trained on with all of its words, and loud floats became noise."""
    wave = tone(2.0)

    def of(wave: np.ndarray, **how: str) -> bytes:
        file = io.BytesIO()
        sf.write(file, wave, 24_000, **how)
        return file.getvalue()

    whole = of(wave, format="WAV")
    data = whole.index(b"data") + 4
    for told in (10, 2 * len(whole)):
        with pytest.raises(mp3.BadAudio, match="not as long"):
            mp3.decode(whole[:data] + told.to_bytes(4, "little") + whole[data + 4 :])
    piped = whole[:data] + b"\xff" * 4 + whole[data + 4 :]
    more = whole + b"LIST" + (8).to_bytes(4, "little") + b"INFOISFT"
    photo = whole[:-40_000] + b"_PMX" + (80_000).to_bytes(4, "little") + bytes(80_000)
    photo = (
        photo[:data] + (len(whole) - data - 4 - 40_000).to_bytes(4, "little") + photo[data + 4 :]
    )
    assert len(mp3.decode(photo)[0]) == pytest.approx(len(wave) - 20_000, abs=100)
    for good in (whole, piped, more, whole[:-100]):
        assert len(mp3.decode(good)[0]) == pytest.approx(len(wave), abs=100)
    for cut in (whole, of(wave, format="MP3")):
        with pytest.raises(mp3.BadAudio, match="not as long"):
            mp3.decode(cut[: len(cut) // 2])
    for odd in (0.2 + wave / 2, 30_000 * wave):
        found, _ = mp3.decode(of(odd.astype(np.float32), format="WAV", subtype="FLOAT"))
        assert np.corrcoef(found, wave)[0, 1] > 0.9999 and abs(found).max() <= 1
        assert abs(found.mean()) < 1e-3


def test_a_wav_is_known_to_be_cut_off_whatever_chunks_it_has():
    def of(wave: np.ndarray, subtype: str, chunk: bytes = b"") -> bytes:
        file = io.BytesIO()
        sf.write(file, wave, 24_000, format="WAV", subtype=subtype)
        whole = file.getvalue()
        return whole[:12] + chunk + whole[12:]

    for chunk in (b"", b"junk" + (3).to_bytes(4, "little") + b"odd\0"):
        whole = of(tone(2.0), "PCM_16", chunk)
        assert len(mp3.decode(whole[: len(whole) * 96 // 100])[0]) > 45_000
        with pytest.raises(mp3.BadAudio, match="not as long"):
            mp3.decode(whole[: len(whole) * 94 // 100])
    whole = of(tone(1.0)[:-1], "PCM_U8")  # an odd number of bytes
    more = b"_PMX" + (60_000).to_bytes(4, "little") + bytes(60_000)
    padded = whole.ljust(len(whole) + len(whole) % 2, b"\0")
    assert len(mp3.decode(padded + more)[0]) == 23_999
    with pytest.raises(mp3.BadAudio, match="not as long"):  # no name of a chunk
        mp3.decode(padded + b"\x80\x7f\x80\x7f" + more)
    many = np.repeat(tone(0.1)[:, None], audio.MOST_CHANNELS, 1)
    assert len(mp3.decode(of(many, "PCM_16"))[0]) == 2_400


# commands


@pytest.mark.parametrize("tool", ["shards", "curate", "hear", "levels", "tags", "prompts", "vocab"])
def test_where_nothing_can_be_used_each_tool_says_why(tmp_path, capsys, tool):
    shutil.copy(WAV, tmp_path / "a.wav")
    (tmp_path / "a.txt").write_text(" ")
    before = sorted(tmp_path.iterdir())
    out = [] if tool == "levels" else ["--out", str(tmp_path / "out")]
    assert main([tool, str(tmp_path), *out]) == 2
    assert "the first is a (empty text)" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("tool", ["levels", "prompts", "spoken"])
def test_a_number_of_clips_below_one_is_a_mistake(tmp_path, capsys, tool):
    out = [] if tool == "levels" else ["--out", str(tmp_path)]
    more = ["texts.txt"] if tool == "spoken" else []
    assert main([tool, str(LIBRITTS), *more, *out, "--clips", "-1"]) == 2
    assert "--clips is -1" in capsys.readouterr().err


def test_tags_are_not_written_over_the_words_that_they_are_found_in(tmp_path, capsys):
    shutil.copy(WAV, tmp_path / "a.wav")
    (tmp_path / "a.txt").write_text("in fourteen fifty five")
    assert main(["tags", str(tmp_path), "--out", str(tmp_path), "--all"]) == 2
    assert "choose another" in capsys.readouterr().err
    assert (tmp_path / "a.txt").read_text() == "in fourteen fifty five"
    assert main(["tags", str(tmp_path), "--out", str(tmp_path / "tagged"), "--all"]) == 0


def test_tags_keep_speakers_and_languages(tmp_path, capsys):
    """A voice in two languages was finetuned on all of its texts as one's."""
    table, out = tmp_path / "in.csv", tmp_path / "tagged"
    shutil.copy(WAV, tmp_path / "a.wav")
    shutil.copy(WAV, tmp_path / "b.wav")
    rows = ["audio,text,speaker,language", 'a.wav,"in, 55",anna,en', "b.wav,im Jahr,bert,de"]
    table.write_text("\n".join(rows))
    assert main(["tags", str(table), "--out", str(out), "--all"]) == 0
    samples, skips = find([out])
    found = [(s.key, s.text, s.speaker, s.extra) for s in samples]
    assert not skips and found == [
        ("a", "in, 55", "anna", {"language": "en"}),
        ("b", "im Jahr", "bert", {"language": "de"}),
    ]
    before = (out / "metadata.csv").read_bytes()
    assert main(["tags", str(table), "--out", str(out), "--all"]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert (out / "metadata.csv").read_bytes() == before


def test_two_runs_do_not_write_one_set(tmp_path, capsys):
    """They would write each other's shards; sets of other prefixes may be written beside it."""
    hold = f"""
import sys
from pathlib import Path
from nanospeech.prepare.shards import writing
with writing(Path({str(tmp_path)!r}), "shard"):
    print("held", flush=True)
    sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    argv = ["shards", str(LIBRITTS), "--out", str(tmp_path), "--jobs", "1"]
    with subprocess.Popen([sys.executable, "-c", hold], cwd=ROOT, **pipes) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        assert main(argv) == 2
        assert f"in use by process {other.pid}" in capsys.readouterr().err
        assert main([*argv, "--prefix", "more"]) == 0
        other.kill()
    (tmp_path / ".shard-000007.part").touch()  # of a killed run of more shards
    assert main(argv) == 0
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {
        *("shard-000000.tar", "skipped.csv"),
        *("more-000000.tar", "more-skipped.csv"),  # else the last run's alone would be listed
    }


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="not on a Mac")
@pytest.mark.parametrize("tool", ["shards", "mp3s", "curate", "hear"])
def test_there_is_a_process_for_each_core_that_may_be_used(tool):
    """Not for each that there is: in a container of few they would not fit the memory."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        parser = importlib.import_module(f"nanospeech.prepare.{tool}").build_parser()
    finally:
        os.sched_setaffinity(0, allowed)
    assert parser.get_default("jobs") == 1


# shards of other tools


def four(folder: Path) -> tuple[Path, list[int]]:
    """A tar of four samples, and where its members begin."""
    files = [
        (f"{key}.{kind}", data)
        for key in "abcd"
        for kind, data in (("mp3", bytes(3000)), ("json", b'{"text": "one", "duration": 1}'))
    ]
    with tarfile.open(path := write_tar(folder / "four.tar", files)) as tar:
        return path, [member.offset for member in tar]


def trained_on(path: Path) -> tuple[list[str], Counter]:
    skipped: Counter = Counter()
    return [s["__key__"] for _, s in TarSource([path]).open(0, skipped=skipped)], skipped


@pytest.mark.parametrize("fault", ["a damaged header", "cut off in a recording"])
def test_of_a_damaged_shard_what_is_before_is_used_and_the_rest_is_told(tmp_path, fault):
    path, starts = four(tmp_path)
    data = bytearray(path.read_bytes())
    if fault == "a damaged header":
        data[starts[4] + 148 : starts[4] + 156] = b"no sum!!"
    else:
        del data[starts[4] + 1000 :]
    path.write_bytes(data)
    samples, skips = find([tmp_path])
    assert [s.key for s in samples] == trained_on(path)[0] == ["a", "b"]
    assert [(s.name, s.reason) for s in skips] == [("four.tar", "broken shard")]
    assert "samples before that are used" in skips[0].detail
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"four\.tar as an uncompressed tar: it is empty"):
        find([tmp_path])


def test_of_a_shard_that_is_cut_off_behind_a_recording_that_one_is_used(tmp_path):
    files = [("a.json", b'{"text": "one"}'), ("a.mp3", bytes(1024))]
    with tarfile.open(path := write_tar(tmp_path / "one.tar", files)) as tar:
        end = tar.getmember("a.mp3").offset_data + 1024
    path.write_bytes(path.read_bytes()[:end])
    [sample], skips = find([path])
    assert sample.key == "a" and len(sample.audio.read()) == 1024
    assert [skip.reason for skip in skips] == ["broken shard"]  # there may have been more


@pytest.mark.parametrize("size", [2**62, 2**40, -512, -1024, -1])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_header_whose_size_cannot_be_ends_a_shard_at_once(tmp_path, kind, size):
    path, starts = four(tmp_path)
    data = bytearray(path.read_bytes())
    header = data[starts[4] : starts[4] + 512]
    # a size of 12 bytes whose first has its highest bit set is binary, and may be negative
    header[124:136] = bytes([0xFF if size < 0 else 0x80]) + (size % 2**88).to_bytes(11, "big")
    header[156:157], header[148:156] = kind, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[starts[4] : starts[4] + 512] = header
    path.write_bytes(data)
    samples, skips = find([path])
    kept, skipped = trained_on(path)
    assert [s.key for s in samples] == kept == ["a", "b"] and skipped == {"broken shard": 1}
    assert f"a header tells of {size:,} bytes" in skips[0].detail


@pytest.mark.parametrize("size", [100_000, -1024])
@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE])
def test_a_size_of_links_and_folders_says_nothing(tmp_path, kind, size):
    """Nothing follows them, whatever size a program writes."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("a.mp3", "other", "b.mp3"):
            member = tarfile.TarInfo(name)
            if name == "other":
                member.type, member.linkname, member.size = kind, "a.mp3", size
            tar.addfile(member)
    assert trained_on(path) == (["a", "b"], {})


def test_a_size_that_a_pax_header_tells_is_bounded_too(tmp_path):
    path = tmp_path / "pax.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, told in (("a.mp3", {}), ("b.mp3", {"size": "-1024"}), ("c.mp3", {})):
            member = tarfile.TarInfo(name)
            member.pax_headers = told
            tar.addfile(member)
    kept, skipped = trained_on(path)
    assert kept == ["a"] and skipped == {"broken shard": 1}


@pytest.mark.parametrize(
    "kind, most", [(tarfile.REGTYPE, 2**36), (tarfile.XHDTYPE, 2**16), (tarfile.SYMTYPE, 2**99)]
)
def test_a_member_may_have_as_many_bytes_as_it_may(kind, most):
    header = Header("x")
    header.type = kind
    for size in (0, most):
        header.size = size
        assert header.checked() is header
    for size in (-1, most + 1) if kind != tarfile.SYMTYPE else ():
        header.size = size
        with pytest.raises(tarfile.ReadError, match=f"tells of {size:,} bytes"):
            header.checked()


def test_a_name_of_gigabytes_is_not_unpacked(tmp_path):
    path = tmp_path / "name.tar.gz"
    with gzip.GzipFile(path, "wb", 1) as file:
        name = tarfile.TarInfo("x")
        name.type, name.size = tarfile.GNUTYPE_LONGNAME, 2**27
        file.write(name.tobuf(tarfile.GNU_FORMAT))
        for _ in range(2**7):
            file.write(bytes(2**20))
    tracemalloc.start()
    try:
        assert trained_on(path) == ([], {"broken shard": 1})
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_few_bytes_that_are_hundreds_of_channels_are_not_unpacked():
    file = io.BytesIO()
    with sf.SoundFile(file, "w", 48_000, 255, format="OGG", subtype="VORBIS") as f:
        for _ in range(8):
            f.write(np.zeros((6_000, 255), np.float32))
    data = file.getvalue()
    assert len(data) < 20_000  # of 49 MB
    with pytest.raises(mp3.BadAudio, match="too many channels, 255"):
        mp3.decode(data)
    with pytest.raises(clips.Skip, match="too many channels"):
        clips.read_wave(data, AudioConfig(), {}, 30)


def test_a_row_that_names_a_pipe_or_a_device_waits_for_none(tmp_path):
    os.mkfifo(tmp_path / "pipe.wav")
    for path in (tmp_path / "pipe.wav", "/dev/null", tmp_path, tmp_path / "gone.wav", "a\0b", 7):
        row = {"text": "one", "audio": {"bytes": None, "path": path if path == 7 else str(path)}}
        with pytest.raises(clips.Skip, match="unreadable audio"):
            clips.describe(row, AudioConfig())
    (tmp_path / "a.wav").write_bytes(WAV.read_bytes())
    row = {"text": "one", "audio": {"bytes": None, "path": str(tmp_path / "a.wav")}}
    assert clips.describe(row, AudioConfig())["data"] == WAV.read_bytes()


def test_samples_of_one_name_that_follow_each_other_are_two(tmp_path):
    files = [(n, d) for t in "12" for n, d in (("x.mp3", t.encode()), ("x.json", b'{"text": "a"}'))]
    path = write_tar(tmp_path / "twice.tar", files)
    samples, _ = find([path])
    assert [s.audio.read() for s in samples] == [b"1", b"2"]
    assert [s.key for s in samples] == ["twice_x", "twice_x-2"] and trained_on(path)[0] == [
        "x",
        "x",
    ]


def test_what_a_mac_adds_and_names_with_dots_are_understood(tmp_path):
    files = [("._x.mp3", b"0"), ("x.mp3", b"1"), ("._x.txt", b"0"), ("x.txt", b"\xef\xbb\xbfone")]
    write_tar(tmp_path / "mac.tar", [*files, ("y.1.mp3", b"2"), ("y.1.json", b"{}")])
    (tmp_path / "._mac.tar").write_bytes(b"0")
    samples, skips = find([tmp_path])
    assert [(s.key, s.text) for s in samples] == [("x", "one")]
    detail = (
        "it has .1.json, .1.mp3; a key ends at the first dot: pack it under a name without dots"
    )
    assert [(s.reason, s.detail) for s in skips] == [("no audio file", detail)]
    raw = next(s for _, s in TarSource([tmp_path / "mac.tar"]).open(0))
    assert clips.metadata(raw)["text"] == "one"


@pytest.mark.parametrize("meta", ["[" * 100_000, r'{"text": "\ud83d"}', '{"text": ["a"]}', "[1]"])
def test_json_that_cannot_be_kept_costs_its_sample_alone(tmp_path, meta):
    files = [
        ("a.mp3", b"1"),
        ("a.json", meta.encode()),
        ("b.mp3", b"2"),
        ("b.json", b'{"text": 5}'),
    ]
    samples, skips = find([write_tar(tmp_path / "odd.tar", files)])
    assert [s.text for s in samples] == ["5"]
    assert [s.reason for s in skips] == ["unreadable text"]


def test_half_an_emoji_costs_its_sample_alone_where_features_are_stored(tmp_path, capsys):
    clip = mp3.encode(tone(1.0))
    metas = [r'{"text": "half \ud83d"}', r'{"text": "a", "speaker": "\ud83d"}', '{"text": "a"}']
    files = [
        (f"{key}.{kind}", data)
        for key, meta in zip("abc", metas)
        for kind, data in (("mp3", clip), ("json", meta.encode()))
    ]
    path = write_tar(tmp_path / "odd.tar", files)
    assert main(["features", str(path), "--out", str(tmp_path / "out")]) == 0
    assert "left out 2: unreadable JSON" in capsys.readouterr().err
    assert trained_on(tmp_path / "out/odd.tar")[0] == ["c"]
