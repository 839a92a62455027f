"""Data preparation: MP3s, shards, vocabulary; nothing is lost without being counted."""

import contextlib
import csv
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio import mp3_length
from nanospeech.audio import wave as audio
from nanospeech.commands.prepare import main
from nanospeech.corpus import mp3
from nanospeech.corpus.layouts import Skip, find
from nanospeech.corpus.skips import by_reason, examples, nothing_usable
from nanospeech.errors import DataError, InputError
from nanospeech.prepare import mp3s
from nanospeech.prepare import shards as prepare
from nanospeech.prepare import vocab as vocab_of
from nanospeech.text.sentences import fit
from nanospeech.text.sentences import prepare as prepared
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.train.data.sources import TarSource

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"
LIBRITTS, LJSPEECH = FIXTURES / "libritts", FIXTURES / "ljspeech"
SHARD = FIXTURES / "speech-000000.tar"
WAV = LJSPEECH / "wavs/LJ001-0008.wav"


def tone(seconds=0.5, rate=24_000):
    return np.sin(np.arange(int(seconds * rate)) * 0.1).astype(np.float32) / 2


def read_tar(path):
    with tarfile.open(path) as tar:
        return {m.name: file.read() for m in tar if (file := tar.extractfile(m))}


def read_shards(folder):
    """key -> (mp3 bytes, meta), in the order of the shards."""
    files = {}
    for path in sorted(folder.glob("*.tar")):
        files |= read_tar(path)
    keys = [name[:-4] for name in files if name.endswith(".mp3")]
    return {k: (files[k + ".mp3"], json.loads(files[k + ".json"])) for k in keys}


def command(*argv, cwd=ROOT):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "nanospeech", "prepare", *map(str, argv)]
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.fixture
def dataset(tmp_path):
    """A copy of the LibriTTS fixture that may be written to."""
    return Path(shutil.copytree(LIBRITTS, tmp_path / "libritts"))


# MP3


@pytest.mark.parametrize("rate, channels", [(24_000, 1), (22_050, 1), (48_000, 2), (8_000, 1)])
def test_mp3_is_64_kbps_mono_24_khz_and_as_long_as_the_recording(rate, channels):
    file = io.BytesIO()
    wave = np.repeat(tone(3.3, rate)[:, None], channels, axis=1)
    sf.write(file, wave, rate, format="WAV", subtype="PCM_16")
    heard, ready = mp3.decode(file.getvalue())
    assert not ready
    data = mp3.encode(heard)
    with sf.SoundFile(io.BytesIO(data)) as f:
        assert (f.format, f.samplerate, f.channels) == ("MP3", 24_000, 1)
        assert f.frames == pytest.approx(3.3 * 24_000, abs=2)
    # the header of an MPEG-2 layer III frame: sync, and index 8 of its table of bit rates, 64 kbps
    assert data[:2] == b"\xff\xf3" and data[2] >> 4 == 8
    assert len(data) * 8 / 3.3 == pytest.approx(64_000, rel=0.03)
    assert mp3.decode(data)[1]


def test_an_mp3s_frames_are_counted_once(monkeypatch):
    data, counted = mp3.encode(tone(1.0)), []
    first = mp3_length.frame_bytes(data)  # which tells how many there are
    rates = mp3_length.bit_rates
    monkeypatch.setattr(mp3_length, "bit_rates", lambda *given: counted.append(1) or rates(*given))
    assert mp3.decode(data[first:])[1] and len(counted) == 1


def test_mp3_sounds_like_the_recording():
    wave, _ = mp3.decode(WAV.read_bytes())
    again, _ = mp3.decode(mp3.encode(wave))
    assert len(again) == len(wave)
    assert audio.rms(again - wave) < 0.15 * audio.rms(wave)


@pytest.mark.parametrize("most", [None, 30])
def test_a_flac_of_unknown_length_is_a_reason_and_ends_no_command(most):
    """As one that went through a pipe: libsndfile takes it for 2 ** 63 - 1 samples."""
    file = io.BytesIO()
    sf.write(file, tone(), 24_000, format="FLAC")
    content = bytearray(file.getvalue())
    content[22:26] = bytes(4)  # the header's number of samples
    with pytest.raises(mp3.BadAudio) as failed:
        mp3.decode(bytes(content), max_seconds=most)
    assert failed.value.args == ("unreadable audio", "its header does not tell how long it is")


def recorded(wave: np.ndarray, rate: int, **kind) -> bytes:
    file = io.BytesIO()
    sf.write(file, wave, rate, **{"format": "WAV", "subtype": "FLOAT", **kind})
    return file.getvalue()


def test_a_recording_is_as_long_as_its_bounds_allow_and_not_a_sample_more_or_less():
    def failure(count: int, **bounds) -> str:
        try:
            wave, _ = mp3.decode(recorded(tone(1.0, 8_000)[:count], 8_000), **bounds)
        except mp3.BadAudio as e:
            return str(e)
        assert len(wave) == 3 * count
        return ""

    assert failure(4_000, min_seconds=0.5, max_seconds=0.5) == ""
    assert failure(4_001, max_seconds=0.5) == "too long, 0.50 s"
    assert failure(3_999, min_seconds=0.5) == "too short, 0.50 s"
    assert failure(10) == failure(7_999) == ""  # without bounds any length is


def test_channels_are_averaged_and_only_shards_own_kind_is_ready():
    left, right = tone(0.5), 0.3 * tone(0.5)[::-1]
    wave, _ = mp3.decode(recorded(np.stack([left, right], 1), 24_000))
    assert wave.dtype == np.float32 and np.abs(wave - (left + right) / 2).max() < 1e-6
    kind = {"format": "MP3", "subtype": "MPEG_LAYER_III"}
    for rate, channels in ((24_000, 1), (24_000, 2), (22_050, 1), (48_000, 1)):
        both = np.repeat(tone(0.5, rate)[:, None], channels, 1)
        ready = mp3.decode(recorded(both, rate, **kind))[1]
        assert ready == (rate == 24_000 and channels == 1)
    assert not mp3.decode(recorded(tone(0.5), 24_000))[1]


def test_an_mp3_holds_all_of_a_long_wave_and_cuts_what_is_too_loud():
    wave = tone(6.0)  # more than is written at once, twice
    again, _ = mp3.decode(mp3.encode(wave))
    for part in np.array_split(np.arange(len(wave)), 12):
        assert audio.rms(again[part] - wave[part]) < 0.15 * audio.rms(wave[part])
    loud = 30 * tone(0.3)
    assert np.abs(loud).max() > 2
    assert mp3.encode(loud) == mp3.encode(np.clip(loud, -1, 1)) != mp3.encode(loud / 30)


def test_a_conversion_is_done_once_its_file_is_whole_and_no_older(tmp_path):
    source, target = tmp_path / "a.wav", tmp_path / "a.mp3"
    source.write_bytes(recorded(tone(0.5), 24_000))
    assert not mp3.is_done(source, target)
    assert mp3.convert(source) is None and mp3.is_done(source, target)
    for later, done in ((0, True), (-5, True), (5, False)):
        made = target.stat().st_mtime
        os.utime(source, (made + later, made + later))
        assert mp3.is_done(source, target) == done
    os.utime(source, (0, 0))
    target.write_bytes(b"")
    assert not mp3.is_done(source, target)  # as a computer that lost its power leaves it


def test_what_cannot_be_converted_is_a_reason_and_leaves_what_was_there(tmp_path):
    (tmp_path / "a.mp3").write_bytes(b"earlier")
    for content, reason in (
        (b"RIFF", "unreadable audio"),
        (recorded(np.zeros(9), 8_000), "silent"),
    ):
        (tmp_path / "a.wav").write_bytes(content)
        found = mp3.convert(tmp_path / "a.wav")
        assert found is not None and found[0] == reason and found[1] not in ("", reason)
    found = mp3.convert(tmp_path / "gone.wav")
    assert found is not None and found[0] == "not to be written or read" and "gone.wav" in found[1]
    assert {p.name for p in tmp_path.iterdir()} == {"a.wav", "a.mp3"}
    assert (tmp_path / "a.mp3").read_bytes() == b"earlier"


@pytest.mark.parametrize("rate, channels", [(44_100, 1), (24_000, 2)])
def test_an_mp3_that_a_wav_was_made_of_is_not_written_over(tmp_path, rate, channels):
    original = recorded(
        np.repeat(tone(0.5, rate)[:, None], channels, 1), rate, format="MP3", subtype=None
    )
    (tmp_path / "a.mp3").write_bytes(original)
    (tmp_path / "a.wav").write_bytes(recorded(tone(0.5), 24_000))
    (tmp_path / "b.wav").write_bytes(recorded(tone(0.5), 24_000))
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("one")
    os.utime(tmp_path / "a.mp3", (0, 0))
    counts, skips = mp3s.make_mp3s([tmp_path])
    assert counts == {"written": 1, "kept": 0}
    assert [s.reason for s in skips] == ["another MP3 is there"]
    assert (tmp_path / "a.mp3").read_bytes() == original
    assert [s.audio.path.name for s in find([tmp_path])[0]] == ["a.wav", "b.mp3"]


def test_a_finished_mp3_is_read_instead_of_its_wav(dataset):
    mp3s.make_mp3s([dataset])
    samples, _ = find([dataset])
    assert {s.audio.path.suffix for s in samples} == {".mp3"}
    wav = samples[0].audio.path.with_suffix(".wav")
    made = wav.with_suffix(".mp3").stat().st_mtime
    for later, suffix in ((0, ".mp3"), (10, ".wav")):  # unpacked together, or recorded again
        os.utime(wav, (made + later, made + later))
        samples, _ = find([dataset])
        assert [s.audio.path.suffix for s in samples] == [suffix, ".mp3"]


def test_mp3s_resume_and_leave_no_half_files(dataset):
    (dataset / "dev/bad.wav").write_bytes(b"RIFF")
    counts, skips = mp3s.make_mp3s([dataset], jobs=2)
    assert counts == {"written": 2, "kept": 0}
    assert [(Path(s.name).name, s.reason) for s in skips] == [("bad.wav", "unreadable audio")]
    made = {p: p.stat().st_mtime_ns for p in dataset.rglob("*.mp3")}
    assert len(made) == 2 and not list(dataset.rglob("*.part"))
    next(iter(made)).unlink()
    assert mp3s.make_mp3s([dataset])[0] == {"written": 1, "kept": 1}
    assert sum(p.stat().st_mtime_ns == t for p, t in made.items()) == 1


def test_results_come_in_order_from_any_number_of_processes():
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD])
    work = prepare.partial(prepare.pack, options=prepare.ShardOptions())
    assert list(mp3.in_parallel(work, samples, 1)) == list(mp3.in_parallel(work, samples, 2))


def test_a_windows_machine_of_many_processors_has_as_many_processes_as_a_pool_can(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert list(mp3.in_parallel(abs, [], 96)) == []


WAITING = """
import time
from nanospeech.cli import command
from nanospeech.corpus.mp3 import in_parallel
def main(argv):
    done = in_parallel(time.sleep, [0, 600, 600], 2)
    next(done)
    print("working", flush=True)
    END
    next(done)
command(main, interrupted="interrupted")([])
"""


ENDS = "SIGINT", "SIGINT to it alone", "SIGINT where results are used", "SIGTERM", "SIGKILL"


@pytest.mark.parametrize("end", ENDS)
def test_processes_end_with_the_command_and_without_a_traceback(end):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    waiting = WAITING.replace("END", "time.sleep(600)" if "used" in end else "")
    command = subprocess.Popen([sys.executable, "-c", waiting], start_new_session=True, **pipes)
    try:
        assert command.stdout and command.stdout.readline() == "working\n"
        if end == "SIGINT":  # a terminal sends it to all of them
            os.killpg(command.pid, signal.SIGINT)
        else:
            command.send_signal(getattr(signal, end.split()[0]))
        told = command.communicate(timeout=60)[0]  # until none of them holds the pipe
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
    assert "Traceback" not in told and ("interrupted" in told) == end.startswith("SIGINT")


# shards


def test_shards_hold_every_sample_once(tmp_path):
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD])
    options = prepare.ShardOptions(size=3)
    counts, skips = prepare.make_shards(samples, tmp_path / "s", options)
    assert not skips and counts["samples"] == 8 and counts["shards"] == 3
    assert [len(read_tar(p)) for p in sorted((tmp_path / "s").iterdir())] == [6, 6, 4]
    shards = read_shards(tmp_path / "s")
    assert set(shards) == {s.key for s in samples}
    for s in samples:
        data, meta = shards[s.key]
        wave, ready = mp3.decode(data)
        assert ready and meta["duration"] == pytest.approx(len(wave) / 24_000, abs=1e-3)
        assert meta["text"] == s.text and meta.get("speaker") == s.speaker
    hours = sum(meta["duration"] for _, meta in shards.values()) / 3600
    assert counts["hours"] == pytest.approx(hours, abs=1e-4) and hours > 5e-4
    lj = shards["LJ001-0008"][1]["duration"]
    assert lj == pytest.approx(sf.info(str(WAV)).duration, abs=1e-3)  # recorded at 22.05 kHz
    # MP3s that are right already are kept to the byte, and so are a shard's other fields
    old = read_tar(SHARD)
    for name in (n for n in old if n.endswith(".mp3")):
        data, meta = shards[name[:-4]]
        assert data == old[name]
        before = json.loads(old[name[:-4] + ".json"])
        assert {k: v for k, v in meta.items() if k != "duration"} == {
            k: v for k, v in before.items() if k != "duration"
        }


def test_a_language_is_written_beside_each_text_that_names_none(tmp_path):
    lines = [{"audio": str(WAV), "text": t} for t in ("Guten Tag.", "Hi.", "Ja.")]
    lines[1]["language"], lines[2]["language"] = "en", ""  # as of an empty field of a CSV
    manifest = tmp_path / "all.jsonl"
    manifest.write_text("\n".join(map(json.dumps, lines)))
    samples, _ = find([manifest])
    prepare.make_shards(samples, tmp_path / "s", prepare.ShardOptions(language="de"))
    metas = [meta for _, meta in read_shards(tmp_path / "s").values()]
    found = {m["text"]: m["language"] for m in metas}
    assert found == {"Guten Tag.": "de", "Hi.": "en", "Ja.": "de"}
    with pytest.raises(InputError, match="language 'german' should be a code"):
        prepare.ShardOptions(language="german")


def test_the_seed_alone_decides_the_order(tmp_path):
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD])
    orders = []
    for name, seed, jobs in [("a", 1, 1), ("b", 1, 2), ("c", 2, 1)]:
        prepare.make_shards(samples, tmp_path / name, prepare.ShardOptions(seed=seed), jobs)
        orders.append((tmp_path / name / "shard-000000.tar").read_bytes())
    assert orders[0] == orders[1] != orders[2]
    in_order = [s.key for s in samples]
    assert list(read_shards(tmp_path / "a")) != in_order
    assert sorted(read_shards(tmp_path / "a")) == sorted(read_shards(tmp_path / "c"))


def broken_dataset(folder):
    """Good and bad recordings of every kind; the good ones are a.wav and b.mp3."""
    texts = dict.fromkeys(["a", "b", "noise", "nan", "none", "silent", "long", "short"], "a text")
    texts |= {"blank": " \n", "zero": "a text"}
    for name, text in texts.items():
        (folder / f"{name}.normalized.txt").write_text(text, encoding="utf-8")
    (folder / "latin.normalized.txt").write_bytes("café".encode("latin-1"))
    for name in ("a", "blank", "latin", "untold"):
        sf.write(folder / f"{name}.wav", tone(), 24_000)
    (folder / "b.mp3").write_bytes(mp3.encode(tone()))
    (folder / "noise.mp3").write_bytes(bytes(range(256)) * 40)
    sf.write(folder / "nan.wav", np.full(9000, np.nan, np.float32), 24_000, subtype="FLOAT")
    sf.write(folder / "silent.wav", np.zeros(9000), 24_000)
    sf.write(folder / "zero.wav", np.zeros(0), 24_000)
    sf.write(folder / "long.wav", tone(3), 24_000)
    sf.write(folder / "short.wav", tone(0.1), 24_000)


def test_bad_files_are_skipped_counted_and_listed(tmp_path):
    broken_dataset(tmp_path)
    out = tmp_path / "out"
    limits = "--min-seconds=0.2", "--max-seconds=2"
    done = command("shards", tmp_path, "--out", out, *limits, "--jobs=1")
    assert done.returncode == 0, done.stderr
    assert set(read_shards(out)) == {"a", "b"}
    with (out / "skipped.csv").open(newline="", encoding="utf-8") as f:
        listed = {row["name"]: row["reason"] for row in csv.DictReader(f)}
    assert listed == {
        "blank": "empty text",
        "latin": "unreadable text",
        "long": "too long",
        "nan": "samples that are not numbers",
        "noise": "unreadable audio",
        "none": "no audio file",
        "short": "too short",
        "silent": "silent",
        "untold": "no transcript",
        "zero": "empty audio",
    }
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["samples"] == 2 and sum(summary["skipped"].values()) == 10
    assert all(reason in done.stderr for reason in listed.values())


def test_nothing_usable_is_an_error_and_replaces_nothing(tmp_path):
    out = tmp_path / "out"
    samples, _ = find([SHARD])
    prepare.make_shards(samples, out)
    before = (out / "shard-000000.tar").read_bytes()
    (tmp_path / "x.wav").write_bytes(b"no audio")
    (tmp_path / "x.normalized.txt").write_text("a text", encoding="utf-8")
    bad, _ = find([tmp_path], "libritts")
    with pytest.raises(DataError, match=r"can be used: 1 unreadable audio; the first is x \("):
        prepare.make_shards(bad, out, overwrite=True)
    with pytest.raises(InputError, match="--overwrite"):
        prepare.make_shards(samples, out)
    with pytest.raises(InputError, match="would be replaced"):
        prepare.make_shards(find([out])[0], out, overwrite=True)
    assert (out / "shard-000000.tar").read_bytes() == before
    assert [p.name for p in out.iterdir()] == ["shard-000000.tar"]
    prepare.make_shards(samples, out, prepare.ShardOptions(size=1), overwrite=True)
    prepare.make_shards(samples, out, overwrite=True)
    assert [p.name for p in out.iterdir()] == ["shard-000000.tar"]  # the stale ones are gone


def test_a_recording_that_is_gone_by_its_turn_is_a_reason(tmp_path):
    shutil.copy(WAV, tmp_path / "a.wav")
    (tmp_path / "a.txt").write_text("one")
    (sample,) = find([tmp_path])[0]
    (tmp_path / "a.wav").unlink()
    found = prepare.pack(sample, prepare.ShardOptions())
    assert (
        isinstance(found, Skip) and found.reason == "unreadable audio" and "a.wav" in found.detail
    )


def test_a_clip_named_after_a_speaker_is_read_whatever_the_name(tmp_path):
    """As prepare spoken names them; all after a dot was taken for the type of the file."""
    with prepare.ShardWriter(tmp_path, "spoken", 10) as writer:
        for name in ("J. Smith", "st.john", "anna"):
            writer.add(f"{name}_000001", {"npy": b"1", "ref.npy": b"2", "json": b"{}"})
    found = [sample for _, sample in TarSource([tmp_path / "spoken-000000.tar"]).open(0)]
    assert [s.pop("__key__") for s in found] == ["J_ Smith_000001", "st_john_000001", "anna_000001"]
    assert all(s == {"npy": b"1", "ref.npy": b"2", "json": b"{}"} for s in found)


def test_a_full_disk_is_left_no_fuller(tmp_path):
    samples, _ = find([SHARD])
    with files_up_to(5000), pytest.raises(OSError):
        prepare.make_shards(samples, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


@contextlib.contextmanager
def files_up_to(size):
    """The system refuses to write files of more bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("portions", [False, True])
def test_a_set_is_replaced_when_the_new_one_is_whole(tmp_path, portions):
    samples, _ = find([LIBRITTS, LJSPEECH])
    options, out = prepare.ShardOptions(size=1), tmp_path / "out"
    making = prepare.spread_shards if portions else prepare.make_shards
    way: dict[str, Any] = {"runner": map} if portions else {}
    prepare.make_shards(samples, out, options)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    sizes = sorted(map(len, before.values()))
    with files_up_to(sizes[-1] - 1), pytest.raises((OSError, DataError)):  # not all of them fit
        making(samples, out, options, overwrite=True, **way)
    shutil.rmtree(out / ".portions", ignore_errors=True)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    making(samples[:2], out, options, overwrite=True, **way)
    assert {p.name for p in out.iterdir()} == {"shard-000000.tar", "shard-000001.tar"}
    assert len(read_shards(out)) == 2 < len(before)


def test_ctrl_c_leaves_the_old_set(tmp_path):
    table, out = tmp_path / "all.csv", tmp_path / "out"
    table.write_text("audio,text\n" + "".join(f"{WAV},hello {n}\n" for n in range(2000)))
    prepare.make_shards(find([SHARD])[0], out, prepare.ShardOptions(size=1))
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    argv = [sys.executable, "-m", "nanospeech", "prepare", "shards", str(table), "--out", str(out)]
    argv += ["--overwrite", "--size", "2", "--jobs", "1"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (out / ".shard-000003.part").exists():
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "interrupted" in told, told
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_shards_of_a_longer_prefix_are_others(tmp_path):
    samples, _ = find([SHARD])
    for prefix in ("anna-long", "anna", "anna"):  # the second is not refused, the third replaces
        options = prepare.ShardOptions(prefix=prefix)
        prepare.make_shards(
            samples, tmp_path, options, overwrite=(tmp_path / "anna-000000.tar").exists()
        )
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {"anna-long-000000.tar", "anna-000000.tar"}


@pytest.mark.parametrize("mixed", [False, True])
def test_datasets_reads_the_shards_back(tmp_path, monkeypatch, mixed):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    samples, _ = find([LIBRITTS, LJSPEECH, SHARD] if mixed else [LIBRITTS])
    prepare.make_shards(samples, tmp_path, prepare.ShardOptions(size=3))
    files = str(tmp_path / "*.tar")
    stream = datasets.load_dataset("webdataset", data_files=files, split="train", streaming=True)
    # not Audio(decode=False): some releases of datasets want torchcodec even for that
    raw = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    stream = stream.cast_column("mp3", raw)
    rows = list(stream)
    assert {row["__key__"] for row in rows} == {s.key for s in samples}
    for row in rows:
        assert len(mp3.decode(row["mp3"]["bytes"])[0]) > 0
        meta = {k: v for k, v in row["json"].items() if v is not None}
        assert meta == read_shards(tmp_path)[row["__key__"]][1]


# vocabulary and the command line


def test_vocab_is_every_character_once_a_line(tmp_path):
    out = tmp_path / "deep" / "vocab.txt"
    assert main(["vocab", str(LIBRITTS), str(LJSPEECH), "--out", str(out)]) == 0
    lines = out.read_bytes().decode("utf-8").split("\n")
    texts = [s.text for s in find([LIBRITTS, LJSPEECH])[0]]
    assert lines == sorted(set("".join(texts)))
    tokenizer = Tokenizer.load("chars", out)
    assert not any(tokenizer.unknown(text) for text in texts)


def test_the_vocabulary_has_what_training_makes_of_the_characters(tmp_path):
    """Its texts are folded: else apostrophes that are set, and umlauts of a Mac, were left out."""
    texts = ["Don’t stop — “now”…", unicodedata.normalize("NFD", "Der Bär hört zu.")]
    rows = [json.dumps({"audio": str(WAV), "text": text}) for text in texts]
    (tmp_path / "m.jsonl").write_text("\n".join(rows), encoding="utf-8")
    vocab = vocab_of.make_vocab(find([tmp_path / "m.jsonl"])[0])
    assert set("".join(texts)) <= set(vocab)
    tokenizer = Tokenizer("chars", vocab).with_language("de")
    read = ['Don\'t stop - "now"...', "Der Bär hört zu."]
    assert [fit(prepared(t, tokenizer), tokenizer) for t in texts] == [(t, set()) for t in read]


def test_digits_in_the_transcripts_are_told(tmp_path, capsys):
    """One makes a model that gets all numbers as they are, and knows that digit alone."""
    texts, out = ("Chapter 3.", "It was 1 of many.", "None."), tmp_path / "vocab.txt"
    lines = [json.dumps({"audio": str(WAV), "text": text}) for text in texts]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    assert main(["vocab", str(tmp_path / "m.jsonl"), "--out", str(out)]) == 0
    assert "digits are in 2 of 3 transcripts" in capsys.readouterr().err
    kept = [t for t in Tokenizer.load("chars", out).vocab if not t.isdigit()]
    tokenizer = Tokenizer("chars", kept)
    assert prepared("Chapter 3.", tokenizer) == "Chapter three."
    (tmp_path / "m.jsonl").write_text(lines[2])
    assert main(["vocab", str(tmp_path / "m.jsonl"), "--out", str(out)]) == 0
    assert not capsys.readouterr().err


def test_odd_white_space_never_reaches_the_vocabulary(tmp_path):
    shutil.copy(WAV, tmp_path / "one.wav")
    row = {"audio": "one.wav", "text": "\ta\r\nb\u2028c\u00a0d\x85e\n"}
    (tmp_path / "m.jsonl").write_text(json.dumps(row), encoding="utf-8")
    samples, _ = find([tmp_path / "m.jsonl"])
    assert samples[0].text == "a b c d e"
    vocab = vocab_of.make_vocab(samples)
    assert "\n".join(vocab).splitlines() == vocab == list(" abcde")


def test_phonemes_need_no_transcripts(tmp_path):
    out = tmp_path / "vocab.txt"
    assert main(["vocab", "--kind", "phonemes", "--out", str(out)]) == 0
    assert Tokenizer.load("phonemes", out).vocab == phoneme_vocab()


def test_the_three_steps_from_the_command_line(dataset, tmp_path):
    for argv in [
        ("vocab", dataset, "--out", "vocab.txt"),
        ("mp3", dataset, "--jobs", 1),
        ("shards", dataset, "--out", "shards", "--jobs", 2),
    ]:
        done = command(*argv, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["skipped"] == {}
    assert len(read_shards(tmp_path / "shards")) == 2
    for name, (data, _) in read_shards(tmp_path / "shards").items():
        assert data == next(dataset.rglob(f"{name}.mp3")).read_bytes()


def test_bad_arguments_end_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.tar").write_bytes(b"no tar at all")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.wav").write_bytes(b"RIFF")
    assert prepare.ShardOptions(size=1, min_seconds=1.0, max_seconds=1.0).max_seconds == 1.0
    for argv, message in [
        (["shards", tmp_path / "gone"], "there is no file or folder "),
        (["shards", tmp_path / "empty"], "cannot tell the layout"),
        (["shards", tmp_path / "broken.tar"], "uncompressed tar"),
        (["shards", SHARD, "--size", "0"], "at least 1 sample"),
        (["shards", SHARD, "--min-seconds", "2", "--max-seconds", "1"], "2.0 is more than --max-"),
        (["shards", SHARD, "--prefix", "a/b"], "'a/b' should be the first part of a file's name"),
        (["shards", SHARD, "--prefix", ""], "'' should be the first part of a file's name"),
        (["shards", SHARD, "--jobs", "0"], "at least 1"),
        (["mp3", tmp_path / "gone"], "there is no folder"),
        (["mp3", tmp_path / "bad"], "none of 1 recordings can be used: 1 unreadable audio"),
        (["shards", SHARD, "--out", tmp_path / "broken.tar"], "cannot read or write"),
        (["mp3", tmp_path / "empty"], "there is no .wav or .flac"),
        (["vocab"], "INPUT"),
    ]:
        code = main(list(map(str, argv)))
        said = capsys.readouterr().err
        lines = said.strip().splitlines()
        assert code == 2 and len(lines) == 1 and message in lines[0], said


def test_help_teaches():
    done = command("shards", "--help")
    assert done.returncode == 0
    assert all(w in done.stdout for w in ("LibriTTS", "LJSpeech", "manifest", "skipped.csv"))


def test_reasons_are_counted():
    skips = [Skip("b", "too long"), Skip("a", "silent"), Skip("c", "silent", "peak 0")]
    assert list(by_reason(skips).items()) == [("silent", 2), ("too long", 1)]
    assert examples(skips) == ["2: silent, for example a, c", "1: too long, for example b"]
    assert examples(skips[2:]) == ["1: silent, for example c (peak 0)"]
    assert "3 recordings can be used: 2 silent, 1 too long; the first is b (too long)" in str(
        nothing_usable(skips, [])
    )
