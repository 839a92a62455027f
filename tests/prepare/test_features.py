"""Encoding: features that train as the audio does, in shards that a kill cannot spoil."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from nanospeech.commands.prepare import main as prepare
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.prepare.features import add_references, main
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.sources import TarSource
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from tests.echo import tiny
from tests.train.test_data import until
from tests.train.test_stream import write_tar
from tests.training import samples, speech_model

ROOT = Path(__file__).parents[2]
TOKENIZER = Tokenizer("phonemes", phoneme_vocab())


def audio_shards(folder: Path, shards: int, each: int) -> list[str]:
    """The fixture's clips under many names."""
    folder.mkdir(exist_ok=True)
    paths, base = [], samples()
    for s in range(shards):
        files = []
        for i in range(each):
            clip = base[(s * each + i) % len(base)]
            files += [(f"{s:02d}{i:03d}.mp3", clip["mp3"]["bytes"])]
            files += [(f"{s:02d}{i:03d}.json", json.dumps(clip["json"]).encode())]
        paths.append(str(write_tar(folder / f"shard-{s:03d}.tar", files)))
    return paths


def contents(path: Path | str) -> list[dict]:
    return [sample for _, sample in TarSource([path]).open(0)]


def test_losses_from_audio_and_from_features_are_the_same(tmp_path, capsys):
    paths, out = audio_shards(tmp_path / "audio", 2, 5), tmp_path / "encoded"
    assert main([*paths, "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["shards"], document["clips"], document["skipped"]) == (2, 10, {})
    plan, loss = BatchPlan(4, 1600, 400), LossConfig(pair=0.7)
    streams = [
        SpeechBatches(data, TOKENIZER, plan, loss=loss, shuffle_buffer=4)
        for data in (paths, [str(out / Path(p).name) for p in paths])
    ]
    model = speech_model(text_num_embeds=len(TOKENIZER))
    audio, encoded = (until(stream, 2) for stream in streams)
    assert len(audio) == len(encoded) and any(" " in t for x in audio for t in x.texts)
    for a, e in zip(audio, encoded):
        assert a.texts == e.texts
        for one, two in zip(vars(a.batch).values(), vars(e.batch).values()):
            assert torch.equal(one, two)
    with torch.no_grad():
        one, two = (model(x[0].batch)["flow"][0] for x in (audio, encoded))
    assert torch.equal(one, two)


def test_features_have_the_documented_names_sizes_and_summary(tmp_path):
    [path] = audio_shards(tmp_path / "audio", 1, 4)
    assert main([path, "--out", str(tmp_path / "out"), "--references"]) == 0
    found = contents(tmp_path / "out" / "shard-000.tar")
    texts = {s["__key__"]: json.loads(s["json"])["text"] for s in found}
    arrays = {s["__key__"]: np.load(io.BytesIO(s["npy"])) for s in found}
    for sample in found:
        meta = json.loads(sample["json"])
        array, heard = arrays[sample["__key__"]], np.load(io.BytesIO(sample["ref.npy"]))
        assert array.dtype == np.float16 and array.shape[1] == 100
        assert len(array) == int(meta["target_duration"] * 93.75 + 1e-3) + 1
        assert meta["speaker"] == "kathleen" and meta["license"] == "CC0-1.0"
        [other] = [k for k, text in texts.items() if text == meta["ref_text"]]
        assert other != sample["__key__"] and np.array_equal(heard, arrays[other])
    stream = SpeechBatches(
        [str(tmp_path / "out" / "*.tar")],
        TOKENIZER,
        BatchPlan(2, 800, 400),
        loss=LossConfig(pair=1),
    )
    assert sum(len(x.texts) for x in until(stream, 1)) == 4  # each has a prompt of its own


def test_clips_of_nobody_are_no_prompts_of_each_other():
    names = {"a": "", "b": "", "c": "anna", "d": "anna"}
    found = [({"key": k, "npy": k}, {"text": k, "speaker": who}) for k, who in names.items()]
    add_references(found)
    assert ["ref.npy" in files for files, _ in found] == [False, False, True, True]


def test_bad_clips_are_counted_and_broken_shards_give_what_they_had(tmp_path, capsys):
    paths = audio_shards(tmp_path / "audio", 2, 4)
    data = Path(paths[0]).read_bytes()
    Path(paths[0]).write_bytes(data[: len(data) // 2])
    clip = samples()[0]
    bad = [("x.json", b'{"text": "no sound"}'), ("y.mp3", b"x"), ("y.json", b'{"text": "bad"}')]
    bad += [("z.mp3", clip["mp3"]["bytes"]), ("z.json", b'{"text": "so long", "duration": 9}')]
    paths.append(str(write_tar(tmp_path / "audio" / "bad.tar", bad)))
    assert main([*paths, "--out", str(tmp_path / "out"), "--workers", "2"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    want = {"broken shard": 1, "without audio": 1, "unreadable audio": 1, "wrong duration": 1}
    assert document["skipped"] == want and 4 < document["clips"] < 8
    out = [contents(tmp_path / "out" / Path(p).name) for p in paths]
    assert sum(map(len, out)) == document["clips"]


def test_a_killed_run_leaves_whole_shards_and_goes_on(tmp_path, capsys):
    paths, out = audio_shards(tmp_path / "audio", 6, 30), tmp_path / "out"
    command = [sys.executable, "-m", "nanospeech_torch.prepare.features", *paths, "--out", str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while run.poll() is None and not list(out.glob("*.tar")):
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    done = {p: p.stat().st_mtime_ns for p in out.glob("*.tar")}
    assert 0 < len(done) < 6
    skipped: Counter = Counter()
    for path in done:
        assert len(list(TarSource([path]).open(0, skipped=skipped))) == 30 and not skipped
    assert main([*paths, "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["shards"], document["already_there"]) == (6 - len(done), len(done))
    assert all(path.stat().st_mtime_ns == then for path, then in done.items())
    assert all(len(contents(out / Path(p).name)) == 30 for p in paths)
    assert not list(out.glob(".*.part"))


def test_shards_that_were_made_anew_are_encoded_again(tmp_path, capsys):
    paths, out = audio_shards(tmp_path / "audio", 2, 2), tmp_path / "encoded"
    assert main([*paths, "--out", str(out)]) == 0
    clip = samples()[2]
    files = [("new.mp3", clip["mp3"]["bytes"]), ("new.json", b'{"text": "Another one."}')]
    write_tar(Path(paths[1]), files)
    later = (out / "shard-001.tar").stat().st_mtime + 10
    os.utime(paths[1], (later, later))
    assert main([*paths, "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["shards"], document["already_there"], document["clips"]) == (1, 1, 1)
    (sample,) = contents(out / "shard-001.tar")
    assert json.loads(sample["json"])["text"] == "Another one."


def test_a_url_that_breaks_off_is_not_taken_for_finished(tmp_path, monkeypatch, capsys):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    paths = audio_shards(tmp_path, 2, 4)
    data = {Path(p).name: Path(p).read_bytes() for p in paths}
    ends: dict[str, int | None] = {"shard-001.tar": len(data["shard-001.tar"]) // 2}

    class Store(MemoryFileSystem):
        protocol = "breaking"

        def _open(self, path, *args, **options):
            name = Path(path).name
            return io.BytesIO(data[name][: ends.get(name)])

    fsspec.register_implementation("breaking", Store, clobber=True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    command = [f"breaking://{name}" for name in data] + ["--out", str(tmp_path / "out")]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["clips"] == 4 and document["skipped"] == {"broken shard": 1}
    assert [p.name for p in (tmp_path / "out").glob("*.tar")] == ["shard-000.tar"]
    ends.clear()
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["already_there"], document["clips"], document["skipped"]) == (1, 4, {})


def test_a_process_that_dies_ends_the_run_which_goes_on(tmp_path, monkeypatch, capsys):
    """As one does whose memory is at an end; the run waited for its shard for ever."""
    paths = audio_shards(tmp_path / "audio", 3, 2)
    (tmp_path / "dying.py").write_text(
        "import os, pathlib\n"
        "def encode(wave):\n"
        "    if not pathlib.Path('died').exists():\n"
        "        pathlib.Path('died').touch()\n"
        "        os._exit(9)\n"
        "    return wave[:4800].reshape(-1, 48)\n"
    )
    monkeypatch.chdir(tmp_path)
    flags = ["--out", "out", "--encoder", "dying:encode", "--workers"]
    assert main([*paths, *flags, "2"]) == 2
    assert "a worker process died" in capsys.readouterr().err
    assert main([*paths, *flags, "1"]) == 0
    assert all(len(contents(tmp_path / "out" / Path(p).name)) == 2 for p in paths)


def test_processes_of_a_killed_run_end_with_it(tmp_path):
    """They would write on, under the names under which the next run writes."""
    paths = audio_shards(tmp_path / "audio", 2, 2)
    (tmp_path / "endless.py").write_text(
        "import pathlib, os, time\n"
        "def encode(wave):\n"
        "    pathlib.Path(f'began.{os.getpid()}').touch()\n"
        "    time.sleep(1000)\n"
    )
    command = [sys.executable, "-m", "nanospeech_torch.prepare.features", *paths]
    command += ["--out", "out", "--encoder", "endless:encode", "--workers", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE)
    while run.poll() is None and len(list(tmp_path.glob("began.*"))) < 2:
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    try:
        run.communicate(timeout=60)  # until the last of them has closed its end
    finally:
        for path in tmp_path.glob("began.*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.suffix[1:]), signal.SIGKILL)


def test_any_function_of_a_wave_is_an_encoder(tmp_path, monkeypatch):
    (tmp_path / "my_codec.py").write_text(
        "def encode(wave):\n    n = len(wave) // 480\n"
        "    return wave[: n * 480].reshape(n, 480)[:, :128]\n"
    )
    monkeypatch.chdir(tmp_path)
    paths = audio_shards(tmp_path / "audio", 1, 3)
    assert main([*paths, "--out", "out", "--encoder", "my_codec:encode"]) == 0
    for sample in contents(tmp_path / "out" / "shard-000.tar"):
        array = np.load(io.BytesIO(sample["npy"]))
        assert array.dtype == np.float16 and array.shape[1] == 128
        seconds = json.loads(sample["json"])["target_duration"]
        assert len(array) == int(seconds * 50 + 1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--encoder", "none"], "should be mel, dacvae or MODULE:FUNCTION"),
        (["--encoder", "none_such:f"], "No module named"),
        (["--workers", "0"], "choose at least 1"),
        (["--references"], "choose another --out"),
        (["--out", "audio"], "is the folder of"),
        (["nothing-*.tar", "--workers", "1"], "no shards match"),
    ],
)
def test_mistakes_are_errors(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    paths = audio_shards(tmp_path / "audio", 1, 1)
    assert main([*paths, "--out", "out"]) == 0
    shards = paths if arguments[0].startswith("--") else [arguments.pop(0)]
    assert main([*shards, "--out", "out", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_two_runs_do_not_write_one_folder(tmp_path, capsys):
    """They wrote into one file at once, and the second ended when the first gave it its name."""
    paths, out = audio_shards(tmp_path / "audio", 1, 1), tmp_path / "out"
    hold = f"""
import sys
from pathlib import Path
from nanospeech.locks import alone
with alone(Path({str(out)!r}), "--out", print):
    print("held", flush=True)
    sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold], cwd=ROOT, **pipes) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        assert main([*paths, "--out", str(out)]) == 2
        assert f"in use by process {other.pid}" in capsys.readouterr().err
        other.kill()
    assert main([*paths, "--out", str(out)]) == 0
    assert {p.name for p in out.iterdir()} == {"shard-000.tar", "encode.json"}


def test_shards_of_nothing_usable_are_an_error_and_leave_nothing(tmp_path, capsys):
    path = write_tar(tmp_path / "bad.tar", [("x.mp3", b"x"), ("x.json", b'{"text": "a"}')])
    assert main([str(path), "--out", str(tmp_path / "out")]) == 2
    assert "1 unreadable audio" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*.tar"))


def test_dacvae_writes_latents_and_references(tmp_path, capsys):
    codec = tmp_path / "dacvae.safetensors"
    save_file(tiny.dacvae(), str(codec))
    paths, out = audio_shards(tmp_path / "audio", 2, 3), tmp_path / "latents"
    flags = ["--codec", str(codec), "--references", "--out", str(out)]
    assert prepare(["--features", "dacvae", *paths, *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["clips"] == 6
    for path in paths:
        for sample in contents(out / Path(path).name):
            meta, latent = json.loads(sample["json"]), np.load(io.BytesIO(sample["npy"]))
            assert latent.dtype == np.float16 and latent.shape[1] == 8
            # 48 kHz, and a latent for each hop of 96 samples, the last one begun
            assert len(latent) == pytest.approx(meta["target_duration"] * 500, abs=1)
            assert meta["text"]
    assert prepare(["features", *paths, "--encoder", "dacvae", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["already_there"] == 2
    assert prepare(["features", *paths, "--encoder", "dacvae", "--out", str(out)]) == 2
    assert "needs its weights" in capsys.readouterr().err
