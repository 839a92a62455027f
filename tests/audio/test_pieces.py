"""A recording read piece by piece is the recording read at once, and its damage comes last."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio import films, opus
from nanospeech.audio import wave as audio
from nanospeech.audio.pieces import Ahead, read_pieces, seconds_of
from nanospeech.audio.wave import BLOCK, MOST_CHANNELS
from nanospeech.errors import InputError
from tests.audio.test_audio import without_length


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


def test_so_is_a_phones_however_long(tmp_path, monkeypatch):
    av = pytest.importorskip("av")
    path, wave = tmp_path / "a.m4a", song(48_000)
    with av.open(str(path), "w") as out:
        sound = out.add_stream("aac", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(wave[None], format="fltp", layout="mono")
        frame.sample_rate = 48_000
        for packet in (*sound.encode(frame), *sound.encode(None)):
            out.mux(packet)
    whole = audio.read(path)
    monkeypatch.setattr(films, "MOST_SAMPLES", 1)  # that are read at once
    got = np.concatenate(list(read_pieces(path)))
    assert len(got) == pytest.approx(len(whole), abs=2) and seconds_of(path) == pytest.approx(
        7, 0.1
    )
    n = min(len(got), len(whole))
    assert np.abs(got[:n] - whole[:n]).max() < 1e-3


def test_headers_that_tell_no_rate_or_length_do_not_matter(tmp_path):
    path = tmp_path / "a.opus"
    noise = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    audio.write(path, noise)
    data = bytearray(path.read_bytes())
    data[40:44] = data[22:26] = bytes(4)
    data[22:26] = opus.checksum(data[: 28 + data[27]]).to_bytes(4, "little")
    path.write_bytes(data)
    assert audio.rms(np.concatenate([*read_pieces(path)])) > 0.07  # up to 12 kHz
    sf.write(path := tmp_path / "a.flac", song(24_000), 24_000)
    data = bytearray(path.read_bytes())
    data[22:26] = bytes(4)
    path.write_bytes(data)
    assert seconds_of(path) == 0 and sum(map(len, read_pieces(path))) == 7 * 24_000
    (path := tmp_path / "a.mp3").write_bytes(without_length(24_000, 1)[0])
    assert seconds_of(path) == pytest.approx(6, abs=0.1)


def test_more_channels_than_anyone_records_are_refused(tmp_path):
    for channels in (MOST_CHANNELS, MOST_CHANNELS + 1):
        sf.write(tmp_path / f"{channels}.wav", np.zeros((24, channels)), 24_000)
    assert sum(map(len, read_pieces(tmp_path / f"{MOST_CHANNELS}.wav"))) == 24
    with pytest.raises(InputError, match="33 channels; at most 32"):
        list(read_pieces(tmp_path / "33.wav"))


def test_what_is_behind_is_not_kept():
    ahead = Ahead(np.zeros(1000, np.float32) for _ in range(1100))
    for _ in range(99):
        ahead.look(1500)
        ahead.move(1)
        assert len(ahead.rest) < 2500
    tracemalloc.start()
    try:
        ahead.move(10**6)
        assert tracemalloc.get_traced_memory()[1] < 4 * BLOCK * 4
    finally:
        tracemalloc.stop()
    assert len(ahead.look(10**6)) == 100_000 - 99


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
