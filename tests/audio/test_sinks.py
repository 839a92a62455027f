"""Where speech goes while it is made: files, pipes and loudspeakers get all of it, and in order."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

import nanospeech
from nanospeech import InputError
from nanospeech.audio import sound_file
from nanospeech.audio import wave as audio
from nanospeech.audio.sinks import File, Loudspeaker, Memory, Pipe, pcm16
from tests.conftest import tone

RATE = 24_000


@pytest.mark.parametrize("suffix", list(audio.FORMATS))
def test_a_file_written_bit_by_bit_is_the_file_written_at_once(tmp_path, suffix):
    wave = tone(1.5)
    with File(tmp_path / f"a{suffix}", RATE) as out:
        for part in np.array_split(wave, 7):
            out.write(part)
    audio.write(tmp_path / f"b{suffix}", wave)
    a, b = (audio.read(tmp_path / f"{name}{suffix}") for name in "ab")
    assert len(a) == len(b) and np.abs(a - b).max() < 1e-2
    assert out.seconds == pytest.approx(1.5) and len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("suffix", list(audio.FORMATS))
def test_files_of_one_sound_have_the_same_bytes(tmp_path, suffix):
    """libsndfile draws the number of an Ogg stream; of other sound it is another, for chains."""
    for name, wave in {"a": tone(1.2), "b": tone(1.2), "c": tone(1.2, 300)}.items():
        audio.write(tmp_path / f"{name}{suffix}", wave)
        with File(tmp_path / f"{name}2{suffix}", RATE) as out:
            out.write(wave)
    data = {path.stem: path.read_bytes() for path in tmp_path.iterdir()}
    assert data["a"] == data["b"] and data["a2"] == data["b2"] and len(data) == 6
    if suffix in (".ogg", ".opus"):
        found = {name: set(re.findall(rb"OggS.{10}(.{4})", data[name], re.S)) for name in "ac"}
        assert len(found["a"]) == len(found["c"]) == 1 and found["a"] != found["c"]
    assert len(audio.read(tmp_path / f"c{suffix}")) == pytest.approx(1.2 * RATE, abs=1500)


def test_a_file_keeps_what_was_spoken_before_an_interrupt_and_nothing_of_a_failure(tmp_path):
    path = tmp_path / "a.wav"
    with pytest.raises(KeyboardInterrupt), File(path, RATE) as out:
        out.write(tone(0.5))
        raise KeyboardInterrupt
    assert len(audio.read(path)) == RATE // 2
    for error, spoken in ((InputError, 0.2), (KeyboardInterrupt, 0)):
        with pytest.raises(error), File(path, RATE) as out:
            out.write(tone(spoken))
            raise error
        assert len(audio.read(path)) == RATE // 2 and os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize("suffix", list(audio.FORMATS))
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("blocks", [0, 2])
def test_an_interrupt_in_a_block_counts_what_the_file_has(tmp_path, suffix, late, blocks):
    path = tmp_path / f"a{suffix}"
    with pytest.raises(KeyboardInterrupt), File(path, RATE) as out:
        for _ in range(blocks):
            out.write(tone(0.5))
        write = out.file.write

        def interrupted(block):
            if late:
                write(block)
            raise KeyboardInterrupt

        out.file.write = interrupted
        out.write(tone(0.5))
    spoken = (blocks + late) / 2
    assert out.seconds == pytest.approx(spoken, abs=0.06)  # MP3 tells its length by frames
    assert os.listdir(tmp_path) == ([path.name] if spoken else [])
    if spoken:
        assert len(audio.read(path)) / RATE == pytest.approx(spoken, abs=0.06)


@pytest.mark.parametrize("suffix", list(audio.FORMATS))
@pytest.mark.parametrize("seconds", [0.02, 1.5])
def test_a_full_disk_is_named_whenever_it_is_full(tmp_path, suffix, seconds):
    resource = pytest.importorskip("resource", reason="not on Windows")
    path, wave = tmp_path / f"speech{suffix}", tone(seconds)
    audio.write(path, wave)
    size = path.stat().st_size
    path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    why = f"cannot write {path}: {os.strerror(errno.EFBIG)}"
    for room in (0, 40, size // 2, size - 100, size - 5):  # larger files: as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with pytest.raises(InputError) as bit_by_bit, File(path, 24_000) as file:
                file.write(wave)
            with pytest.raises(InputError) as once:
                audio.write(path, wave)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(once.value) == str(bit_by_bit.value) == why, room
        assert not list(tmp_path.iterdir()), room


def test_a_ctrl_c_while_a_file_is_opened_leaves_nothing(tmp_path, monkeypatch):
    def late(real):
        def call(*args, **more):
            real(*args, **more)
            raise KeyboardInterrupt

        return call

    for owner, name in ((sound_file, "SoundFile"), (Path, "touch")):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, late(getattr(owner, name)))
            with File(tmp_path / "a.wav", RATE):
                pass
        assert not list(tmp_path.iterdir()), name


def test_a_pipe_carries_a_wav_that_readers_take(tmp_path):
    tiny = np.array([1e-10, -1e-10, -1.5e-5, 1.5e-5, 0], "f4")
    wave = np.concatenate([tone(0.7) * 5, tiny])  # over full scale, and hardly anything
    with open(tmp_path / "pipe", "wb") as file, Pipe(file, RATE) as out:
        for part in np.array_split(wave, 3):
            out.write(part)
    data = (tmp_path / "pipe").read_bytes()
    assert len(data) == 44 + 2 * len(wave) and data[40:44] == b"\xff" * 4
    assert data[44:] == audio.wav_bytes(wave)[44:] == pcm16(wave)
    assert np.allclose(audio.read(data), np.clip(wave, -1, 1), atol=1e-4)


class Card:
    """A sound card without a loudspeaker: it keeps what it is given, or is pulled out."""

    def __init__(self, plays: int = 1000):
        self.played: list[np.ndarray] = []
        self.plays, self.calls = plays, []

    def OutputStream(self, samplerate, channels, dtype):
        assert (samplerate, channels, dtype) == (RATE, 1, "float32")
        return self

    def write(self, wave):
        if len(self.played) == self.plays:
            raise OSError("device unavailable")
        self.played.append(wave[:, 0])

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def abort(self):
        self.calls.append("abort")

    def close(self):
        self.calls.append("close")


def test_loudspeakers_get_all_in_order_and_stop_when_all_is_heard():
    card, parts = Card(), np.array_split(tone(1.0), 40)
    with Loudspeaker(card, RATE) as out:
        for part in parts:
            out.write(part)
    assert np.array_equal(np.concatenate(card.played), tone(1.0))
    assert card.calls == ["start", "stop", "close"]
    with pytest.raises(KeyboardInterrupt), Loudspeaker(card := Card(), RATE) as out:
        raise KeyboardInterrupt
    assert card.calls == ["start", "abort", "close"]


def test_a_sound_card_that_goes_away_is_an_error():
    wanted = pytest.raises(nanospeech.BackendError, match="device unavailable")
    with wanted, Loudspeaker(Card(plays=2), RATE) as out:
        for part in np.array_split(tone(1.0), 40):
            out.write(part)


def test_a_sound_card_that_cannot_be_opened_is_an_error():
    class Busy:
        def OutputStream(self, **_):
            raise RuntimeError("Invalid sample rate")

    with pytest.raises(nanospeech.BackendError, match="cannot play: Invalid sample rate"):
        Loudspeaker(Busy(), RATE)


def test_a_sound_card_that_does_not_start_is_an_error():
    class Gone(Card):
        def start(self):
            raise RuntimeError("Error starting stream: Device unavailable")

    wanted = pytest.raises(nanospeech.BackendError, match="cannot play: Error starting stream")
    with wanted, Loudspeaker(card := Gone(), RATE):
        pass
    assert card.calls == ["close"] and not card.played


def test_memory_keeps_all():
    out = Memory(RATE)
    assert len(out.wave) == 0
    with out:
        out.write(tone(0.1))
        out.write(tone(0.2))
    assert np.array_equal(out.wave, np.concatenate([tone(0.1), tone(0.2)]))


# the command, as a process of its own, by the backend that is imported soonest

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(nanospeech.__file__).parents[1])}


def start(release: Path, folder: Path, *flags: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "nanospeech.generate", "--model", str(release)]
    command += ["--backend", "onnx", "--device", "cpu", "--steps", "8", *flags]
    return subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=False, **options
    )


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
@pytest.mark.parametrize(
    "name, flags",
    [
        ("SIGINT", ["--stream"]),
        pytest.param("SIGINT", [], marks=pytest.mark.slow),
        ("SIGTERM", []),
        pytest.param("SIGHUP", [], marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_leaves_a_valid_file_of_what_was_spoken(tiny_release, tmp_path, name, flags):
    pytest.importorskip("onnxruntime")
    text = "hello there, this is a long story. " * 2000  # it does not end before it is noticed
    with start(tiny_release, tmp_path, "--text", text, "--output", "a.wav", *flags) as process:
        while process.poll() is None:  # some speech is written beside the file
            parts = list(tmp_path.glob(".nanospeech-*.wav"))
            if parts and parts[0].stat().st_size > 60_000:
                break
            time.sleep(0.05)
        process.send_signal(getattr(signal, name))
        error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "Traceback" not in error, error
    assert os.listdir(tmp_path) == ["a.wav"]
    info = sf.info(tmp_path / "a.wav")
    assert info.frames * 2 + 44 == (tmp_path / "a.wav").stat().st_size > 60_000
    assert f"interrupted; {info.duration:.2f} s were spoken; they are in a.wav" in error


@pytest.mark.skipif(os.name == "nt", reason="pipes break otherwise there")
def test_a_reader_that_stops_early_ends_it_quietly(tiny_release, tmp_path):
    pytest.importorskip("onnxruntime")
    text = "hello there, this is a long story. " * 300
    flags = ["--text", text, "--output", "-", "--stream", "--quiet"]
    with start(tiny_release, tmp_path, *flags, stdout=subprocess.PIPE) as process:
        head = process.stdout.read(1044)  # type: ignore[union-attr]
        process.stdout.close()  # type: ignore[union-attr]
        error = process.stderr.read()  # type: ignore[union-attr]
        assert process.wait(timeout=60) == 0
    assert error == b"" and head[:4] == b"RIFF" and os.listdir(tmp_path) == []
