"""What cannot be read or written is told by name, with the reason and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech import InputError
from nanospeech.audio import wave as audio
from nanospeech.audio.sound_file import SoundFile

NONE = np.zeros(0, np.float32)
ANY = "WAV, FLAC, MP3, Ogg and AIFF can be read: convert others, as by ffmpeg -i FILE new.wav"


def told(call, *given) -> str:
    with pytest.raises(InputError) as error:
        call(*given)
    return str(error.value)


def check_length(path: Path) -> float:
    return audio.check_length(path, 60)


@pytest.mark.parametrize("read", [audio.read, check_length])
def test_a_recording_that_cannot_be_read(tmp_path, monkeypatch, read):
    monkeypatch.chdir(tmp_path)
    assert told(read, "none.wav") == "there is no file none.wav"
    address = "https://example.com/a.wav"
    for name in (address, str(Path(address))):
        said = f"there is no file {name}; addresses are not opened: download it, and name the file"
        assert told(read, name) == said
    assert "standard input is not read: save" in told(read, "-")
    assert told(read, tmp_path) == f"{tmp_path} is a folder; name a recording in it"
    assert f"{os.devnull} is no plain file; save" in told(read, os.devnull)
    (empty := tmp_path / "empty.wav").touch()
    sf.write(empty, NONE, 24_000)
    assert told(read, empty) == f"{empty} holds no audio"
    for name in ("a.mp3", "a.m4a", "a", "a.MKV"):
        Path(name).write_text("text")
    assert told(read, "a.mp3") == f"cannot read a.mp3 as audio: Format not recognised; {ANY}"
    assert told(read, "a") == f"cannot read a as audio: Format not recognised; {ANY}"
    ffmpeg = "convert it, as by ffmpeg -i FILE new.wav"
    for name in ("a.m4a", "a.MKV"):
        for there, why in (
            (True, "it is damaged, or of"),
            (False, "pip install 'nanospeech-tts[b"),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(audio, "can_decode", lambda there=there: there)
                said = told(read, name)
            assert f"Format not recognised; {why}" in said and said.endswith(ffmpeg)


def test_bytes_that_cannot_be_read():
    why = "cannot read the recording as audio: Format not recognised"
    assert told(audio.read, b"text") == f"{why}; {ANY}"


def test_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = told(audio.check_writable, "speech.m4a")
    assert said.startswith("cannot write speech.m4a: .m4a needs an encoder")
    assert said.endswith("ffmpeg -i speech.wav speech.m4a")
    said = told(audio.check_writable, "none/a.wav")
    assert said == f"cannot write none/a.wav: there is no folder {tmp_path / 'none'}"
    Path("a.wav").write_text("mine")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # to root all can be written
    assert told(audio.check_writable, "a.wav") == "cannot write a.wav: it is read-only"
    assert audio.check_writable("b.wav") == tmp_path / "b.wav" and os.listdir() == ["a.wav"]


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a folder where none may write")
def test_a_folder_that_takes_no_file():
    path = Path("/sys/kernel/a.wav")
    with pytest.raises(OSError) as refused:  # by permissions, or as all of it is read-only
        path.touch()
    said = f"cannot write {path}: {refused.value.strerror}"
    assert told(audio.check_writable, path) == said == str(audio.unwritten(path, path, OSError()))


def test_a_file_is_the_same_to_the_byte_whenever_its_sound_is(tmp_path):
    wave = np.sin(np.arange(9000) / 9).astype(np.float32)
    for suffix in (".ogg", ".opus", ".flac"):
        for name in "ab":
            audio.write(tmp_path / (name + suffix), wave)
        first, second = ((tmp_path / (name + suffix)).read_bytes() for name in "ab")
        assert first == second


class Interrupted:
    """libsndfile, with a Ctrl-C as it has closed a file."""

    def __init__(self, library):
        self.library, self.closed = library, 0

    def __getattr__(self, name: str):
        return getattr(self.library, name)

    def sf_close(self, file) -> None:
        self.closed += 1
        if self.closed == 1:  # a second time its memory is freed again, and the process aborts
            self.library.sf_close(file)
        raise KeyboardInterrupt


@pytest.mark.parametrize("opened", [SoundFile, audio.forward])
def test_a_file_is_closed_once_where_ctrl_c_comes_as_that_is_done(tmp_path, monkeypatch, opened):
    sf.write(tmp_path / "a.wav", np.zeros(100), 24_000)
    library = Interrupted(sf._snd)
    monkeypatch.setattr(sf, "_snd", library)
    with pytest.raises(KeyboardInterrupt), opened(str(tmp_path / "a.wav")) as file:
        pass
    file.close()
    assert library.closed == 1
