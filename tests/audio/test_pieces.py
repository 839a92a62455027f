"""A recording read piece by piece is the recording read at once, and its damage comes last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio import wave as audio
from nanospeech.audio.pieces import Ahead, read_pieces, seconds_of
from nanospeech.errors import InputError


def song(rate: int, seconds: float = 7.0) -> np.ndarray:
    """A tone that rises, so that no place is like another."""
    t = np.arange(int(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * (200 + 150 * t) * t)).astype(np.float32)


@pytest.mark.parametrize(
    "name, rate", [("a.wav", 44_100), ("a.flac", 24_000), ("a.ogg", 48_000), ("a.mp3", 16_000)]
)
def test_the_pieces_are_the_whole(tmp_path, name, rate):
    path = tmp_path / name
    sf.write(path, np.stack([song(rate), 0.5 * song(rate)], axis=1), rate)
    pieces = list(read_pieces(path))
    assert len(pieces) > 2 and all(p.dtype == np.float32 for p in pieces)
    got, whole = np.concatenate(pieces), audio.read(path)
    assert len(got) == pytest.approx(len(whole), abs=2)
    n = min(len(got), len(whole))
    assert np.abs(got[:n] - whole[:n]).max() < 1e-3
    assert seconds_of(path) == pytest.approx(7, abs=0.1)


def test_so_is_a_phones(tmp_path):
    av = pytest.importorskip("av")
    path, wave = tmp_path / "a.m4a", song(48_000)
    with av.open(str(path), "w") as out:
        sound = out.add_stream("aac", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(wave[None], format="fltp", layout="mono")
        frame.sample_rate = 48_000
        for packet in (*sound.encode(frame), *sound.encode(None)):
            out.mux(packet)
    got, whole = np.concatenate(list(read_pieces(path))), audio.read(path)
    assert len(got) == pytest.approx(len(whole), abs=2) and seconds_of(path) == pytest.approx(
        7, 0.1
    )
    n = min(len(got), len(whole))
    assert np.abs(got[:n] - whole[:n]).max() < 1e-3


def test_one_looks_ahead_as_far_as_one_likes_and_goes_on(tmp_path):
    path, wave = tmp_path / "a.wav", song(24_000)
    sf.write(path, wave, 24_000, "FLOAT")
    ahead, at = Ahead(read_pieces(path)), 0
    for look, move in ((100, 50), (70_000, 1), (5, 90_001), (30_000, 30_000)):
        assert np.array_equal(ahead.look(look), wave[at : at + look])
        ahead.move(move)
        at += move
    assert np.array_equal(ahead.look(10**7), wave[at:]) and ahead.damage is None
    ahead.move(10**7)
    assert not len(ahead.look(1))


def test_what_is_before_the_damage_is_read(tmp_path):
    path = tmp_path / "a.flac"
    sf.write(path, song(24_000), 24_000)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    ahead = Ahead(read_pieces(path))
    got = ahead.look(10**7)
    assert 2 < len(got) / 24_000 < 4.5
    assert np.abs(got - song(24_000)[: len(got)]).max() < 1e-3


@pytest.mark.parametrize("content", [b"", b"no audio at all"])
def test_what_is_no_audio_is_told(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    for read in (lambda p: list(read_pieces(p)), seconds_of):
        with pytest.raises(InputError, match=r"a\.wav"):
            read(Path(tmp_path / "a.wav"))
    sf.write(tmp_path / "b.wav", np.array([0.0, np.nan, 0.1], np.float32), 24_000, "FLOAT")
    with pytest.raises(InputError, match="not numbers"):
        list(read_pieces(tmp_path / "b.wav"))
