"""Sound of phones and films, which libsndfile does not read: PyAV decodes it where installed."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nanospeech.audio import films
from nanospeech.audio import wave as audio
from nanospeech.audio.recording import clipping
from nanospeech.errors import InputError

av = pytest.importorskip("av")
RATE = 48_000
CODECS = {".m4a": "aac", ".mp4": "aac", ".mov": "aac", ".aac": "aac", ".webm": "libopus",
          ".mkv": "pcm_f32le", ".wma": "wmav2", ".3gp": "aac"}  # fmt: skip


def sweep(seconds: float = 2.0, rate: int = RATE) -> np.ndarray:
    """A tone that rises, so that no place is like another."""
    t = np.arange(int(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * (200 + 150 * t) * t)).astype(np.float32)


def written(
    path: Path, *tracks: np.ndarray, rate: int = RATE, picture: bool = False, title: str = ""
) -> Path:
    """A file of tracks of sound, float32 (channels, n), and of a picture if wanted."""
    with av.open(str(path), "w", format="asf" if path.suffix == ".wma" else None) as out:
        out.metadata["title"] = title
        layouts = ["mono" if len(wave) == 1 else "stereo" for wave in tracks]
        if picture:
            film = out.add_stream("mpeg4", rate=5)
            film.width = film.height = 64
            film.pix_fmt = "yuv420p"
        sounds = [out.add_stream(CODECS[path.suffix], rate=rate, layout=at) for at in layouts]
        for sound in sounds:
            sound.bit_rate = 96_000
        if picture:
            still = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
            out.mux(film.encode(still.reformat(format="yuv420p")))
            out.mux(film.encode(None))
        for sound, wave_CN, layout in zip(sounds, tracks, layouts):
            frame = av.AudioFrame.from_ndarray(wave_CN, "fltp", layout)
            frame.rate = rate
            plain = av.AudioResampler(sound.format, layout, rate, sound.frame_size or 960)
            for piece in [*plain.resample(frame), *plain.resample(None)]:
                out.mux(sound.encode(piece))
            out.mux(sound.encode(None))
    return path


@pytest.mark.parametrize("suffix", CODECS)
def test_sound_is_what_was_encoded(tmp_path, suffix):
    path = written(tmp_path / f"a{suffix}", sweep()[None], picture=suffix in (".mp4", ".mkv"))
    found = audio.read(path)
    wanted = audio.resample(sweep(), RATE, audio.SAMPLE_RATE)
    assert abs(len(found) - len(wanted)) < 0.15 * audio.SAMPLE_RATE  # what encoders add at the ends
    loud = wanted[2400:-2400]
    match = np.correlate(found, loud, "valid").max() / np.square(loud).sum()
    assert match > 0.95
    assert np.array_equal(audio.read(path.read_bytes()), found)  # of an upload, say
    assert clipping(path.read_bytes()) == clipping(path) == 0
    with pytest.raises(InputError, match=r"the recording has over 1 s; cut it"):
        audio.read(path.read_bytes(), max_seconds=1)
    assert audio.check_length(path, 3) == pytest.approx(2, abs=0.15)
    with pytest.raises(InputError, match=r"lasts 2.* s; at most 1 s"):
        audio.read(path, max_seconds=1)


def caf(kind: bytes, encoder: str, frames: int, late: int, cookie: bytes = b"") -> bytes:
    """sweep() as iOS and macOS record it, in a Core Audio Format file; FFmpeg writes none of these.

    Args:
        kind, encoder: of the codec, for Apple and for FFmpeg.
        frames, late: samples of a packet, and those before the sound.
        cookie: what the decoder has to know.
    """
    codec = av.CodecContext.create(encoder, "w")
    codec.sample_rate, codec.layout, codec.bit_rate = RATE, "mono", 64_000
    codec.format = codec.codec.audio_formats[0]
    codec.open()
    frame = av.AudioFrame.from_ndarray(sweep()[None], "fltp", "mono")
    frame.rate = RATE
    plain = av.AudioResampler(codec.format, "mono", RATE, codec.frame_size)
    pieces = [*plain.resample(frame), *plain.resample(None), None]
    packets = [bytes(packet) for piece in pieces for packet in codec.encode(piece)]
    padding = len(packets) * frames - late - 2 * RATE
    sizes = b"".join(bytes([128 | len(p) >> 7, len(p) & 127]) for p in packets)
    chunks = (
        (b"desc", struct.pack(">d4s5I", RATE, kind, 0, 0, frames, 1, 0)),
        (b"kuki", cookie),
        (b"pakt", struct.pack(">2q2i", len(packets), 2 * RATE, late, padding) + sizes),
        (b"data", bytes(4) + b"".join(packets)),
    )
    found = (name + struct.pack(">q", len(data)) + data for name, data in chunks if data)
    return b"caff\0\1\0\0" + b"".join(found)


# an MP4's description of an AAC stream of 48 kHz and one channel, as Apple writes it
ESDS = bytes.fromhex(
    "03 80808022 000000 04 80808014 4015 000000 00000000 00000000 05 80808002 1188 06 80808001 02"
)


@pytest.mark.parametrize("of", [(b"opus", "libopus", 960, 312), (b"aac ", "aac", 1024, 1024, ESDS)])
def test_what_ios_and_macos_record_is_read(tmp_path, of):
    path = tmp_path / "New Recording.caf"
    path.write_bytes(caf(*of))
    found = audio.read(path)
    loud = audio.resample(sweep(), RATE, audio.SAMPLE_RATE)[2400:-2400]
    assert abs(len(found) - 2 * audio.SAMPLE_RATE) < 0.15 * audio.SAMPLE_RATE
    assert np.correlate(found, loud, "valid").max() / np.square(loud).sum() > 0.95
    assert np.array_equal(audio.read(path.read_bytes()), found)
    soundfile.write(path, sweep(), RATE, subtype="ALAC_16")  # libsndfile reads these itself
    assert not films.is_film(path) and len(audio.read(path)) == 2 * audio.SAMPLE_RATE


def test_channels_that_cancel_out_are_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = written(tmp_path / "a.m4a", np.stack([sweep(), -sweep()]))
    path = named.rename("talk: a.m4a")  # which FFmpeg would take for an address
    assert audio.rms(audio.read(path)) == pytest.approx(audio.rms(sweep()), rel=0.1)


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_sound_of_any_rate_and_level_is_kept(tmp_path, rate):
    path = written(tmp_path / "a.mkv", 5 * sweep(rate=rate)[None], rate=rate)
    found = audio.read(path.rename(tmp_path / "A.MKV"))
    loud = audio.resample(sweep(rate=rate), rate, audio.SAMPLE_RATE)[2400:-2400]
    match = np.correlate(found, loud, "valid").max() / np.square(loud).sum()
    assert match == pytest.approx(5, abs=0.1)  # where 16 bits end, it would be cut off


def test_of_several_tracks_the_first_is_heard(tmp_path):
    path = written(tmp_path / "a.mkv", sweep()[None], np.zeros((1, 2 * RATE), np.float32))
    assert audio.rms(audio.read(path)) == pytest.approx(audio.rms(sweep()), rel=0.1)


def test_a_film_is_decoded_up_to_a_bound_alone(tmp_path, monkeypatch):
    assert films.MOST_SAMPLES == 10 * 60 * 2 * 48_000  # as the error says
    monkeypatch.setattr(films, "MOST_SAMPLES", 3 * RATE)  # of two seconds, those of mono are fewer
    assert len(audio.read(written(tmp_path / "a.m4a", sweep()[None])))
    with pytest.raises(InputError, match="over ten minutes"):
        audio.read(written(tmp_path / "b.m4a", np.stack([sweep()] * 2)))


@pytest.mark.parametrize(
    "name, start, wanted",
    [
        *[("a.mov", b"\0\0\0\x08" + box, True) for box in (b"moov", b"mdat", b"wide", b"free")],
        *[("a.aac", b"\xff" + sync, True) for sync in (b"\xf0", b"\xf1", b"\xf8", b"\xf9")],
        ("A.M4B", b"\0\0\0\x20ftypM4B ", True),
        ("a.wav", b"\0\0\0\x20ftypM4A ", True),  # renamed, as if that made it one
        ("a.m4a", b"\x1a\x45\xdf\xa3", True),
        ("a", b"\xff\xf1\x50\x80", True),
        ("a.amr", b"#!AMR\n", True),
        ("a.tar", b"takefree.mp3", False),
        ("a.aac", b"\xff\xfb\x90\0", False),  # an MP3
        ("a.wma", b"RIFF", False),
        ("a.webm", b"RIFF", False),
    ],
)
def test_a_film_is_known_by_its_beginning(tmp_path, name, start, wanted):
    (tmp_path / name).write_bytes(start)
    assert films.is_film(tmp_path / name) is wanted
    by_bytes = start[:4] not in (b"RIFF", b"\xff\xfb\x90\0")
    assert films.is_film(start) is by_bytes and not films.is_film(b"ID3" + start)


def test_a_films_sound_is_in_memory_once_alone(tmp_path):
    path = written(tmp_path / "a.m4a", np.stack([sweep(30.0)] * 2))
    films.as_wav(path)  # what is imported at first does not count
    tracemalloc.start()
    try:
        size = len(films.as_wav(path).getbuffer())
        assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"#EXTM3U\n#EXTINF:1,\n", b"\0\0\0\x18ftypM4A ", b"RIFF", b""])
def test_what_is_no_film_is_told(tmp_path, content):
    """A list of other files or addresses under such a name is not followed either."""
    secret = written(tmp_path / "secret.m4a", sweep()[None])
    path = tmp_path / "a.m4a"
    path.write_bytes(content + (str(secret).encode() if content[:1] == b"#" else b""))
    with pytest.raises(InputError, match=r"cannot read .*a\.m4a as audio"):
        audio.read(path)


def test_a_film_without_sound_and_a_missing_decoder_are_told(tmp_path, monkeypatch):
    with av.open(str(tmp_path / "mute.mp4"), "w") as out:
        film = out.add_stream("mpeg4", rate=5)
        film.width = film.height = 64
        film.pix_fmt = "yuv420p"
        still = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
        out.mux(film.encode(still.reformat(format="yuv420p")))
        out.mux(film.encode(None))
    with pytest.raises(InputError, match=r"mute\.mp4 holds no audio"):
        audio.read(tmp_path / "mute.mp4")
    monkeypatch.setattr(films, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'nanospeech-tts\[book\]'"):
        audio.read(written(tmp_path / "a.m4a", sweep()[None]))


def test_a_voice_is_added_from_a_phones_recording(tmp_path):
    clip = audio.read(Path(__file__).parents[2] / "nanospeech/default/voices/robin.flac", RATE)
    path = written(tmp_path / "memo.m4a", np.tile(clip, 3)[None])
    env = {**os.environ, "NANOSPEECH_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "nanospeech", "voices", "add", "anna", str(path)]
    done = subprocess.run([*command, "--text", "Some words."], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.rglob("anna.flac")
    assert len(audio.read(kept)) > audio.SAMPLE_RATE


def test_a_title_that_is_no_unicode_does_not_matter(tmp_path):
    path = written(tmp_path / "a.m4a", sweep()[None], title="Caf_")
    path.write_bytes(path.read_bytes().replace(b"Caf_", "Caf\xe9".encode("latin-1")))
    assert len(audio.read(path)) > 1.9 * audio.SAMPLE_RATE


def test_newer_pyav_takes_nothing_for_such_a_title(tmp_path, monkeypatch):
    path, real = written(tmp_path / "a.m4a", sweep()[None]), av.open

    def newer(file, mode=None, format=None, options=None):
        return real(file, mode, format, options)

    monkeypatch.setattr(av, "open", newer)
    monkeypatch.setattr(av, "__version__", "19.0.2")
    assert len(audio.read(path)) > 1.9 * audio.SAMPLE_RATE


def test_older_quicktime_and_tagged_aac_are_read_and_damage_is_no_missing_extra(tmp_path):
    film = written(tmp_path / "a.mov", sweep()[None])
    data = film.read_bytes()
    assert data[4:8] == b"ftyp"
    film.write_bytes(data[:4] + b"skip" + data[8:])  # places in it are counted from its beginning
    frames = written(tmp_path / "b.aac", sweep()[None])
    tagged = tmp_path / "c.aac"
    tagged.write_bytes(b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + frames.read_bytes())
    for path in (film, tagged):
        assert abs(len(audio.read(path)) - 2 * audio.SAMPLE_RATE) < 0.15 * audio.SAMPLE_RATE
    (tmp_path / "c.m4a").write_bytes(b"junk" * 99)
    with pytest.raises(InputError) as e:
        audio.read(tmp_path / "c.m4a")
    assert "pip install" not in str(e.value) and "damaged" in str(e.value)


def test_the_same_film_has_the_same_bytes_at_any_second(tmp_path):
    path = tmp_path / "a.m4a"
    written(path, sweep()[None])
    found = films.as_wav(path).read()
    # a PEAK chunk holds, after its size and version, the second in which it was written
    assert found.count(b"PEAK") == 1
    assert found[found.index(b"PEAK") + 12 :][:4] == bytes(4)
    assert len(soundfile.read(films.as_wav(path))[0])
