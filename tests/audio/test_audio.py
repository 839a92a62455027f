"""Audio: every file libsndfile knows becomes the same wave; nothing half-written is left."""

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

import nanospeech
from nanospeech import InputError
from nanospeech.audio import opus, sinks
from nanospeech.audio import wave as audio
from nanospeech.audio.mp3_length import with_length
from nanospeech.corpus import mp3

RATE = audio.SAMPLE_RATE


def tone(seconds: float, rate: int = RATE, hz: float = 440.0, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype("f4")


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    """Largest normalised correlation over lags up to 100 ms (codecs delay)."""
    n = min(len(a), len(b)) - 4800
    a = a[2400 : 2400 + n]
    best = max(
        float(a @ b[lag : lag + n]) / np.linalg.norm(b[lag : lag + n]) for lag in range(4800)
    )
    return best / float(np.linalg.norm(a))


@pytest.mark.parametrize(
    "suffix, rate, channels, subtype",
    [
        ("wav", 24_000, 1, "PCM_16"),
        ("wav", 8_000, 1, "ULAW"),
        ("wav", 8_000, 1, "GSM610"),
        ("wav", 48_000, 2, "FLOAT"),
        ("flac", 44_100, 2, "PCM_24"),
        ("aiff", 16_000, 6, "PCM_16"),
        ("ogg", 22_050, 1, "VORBIS"),
        ("mp3", 44_100, 2, "MPEG_LAYER_III"),
    ],
)
def test_any_format_rate_and_channel_count_reads_alike(tmp_path, suffix, rate, channels, subtype):
    path = tmp_path / f"a.{suffix}"
    sf.write(path, np.repeat(tone(1.0, rate)[:, None], channels, 1), rate, subtype=subtype)
    wave = audio.read(path)
    assert wave.dtype == np.float32 and wave.ndim == 1
    assert abs(len(wave) - RATE) < RATE * 0.1
    assert similarity(tone(1.0), wave) > 0.99
    assert np.array_equal(audio.read(path.read_bytes()), wave)
    assert similarity(wave, mp3.decode(path.read_bytes())[0]) > 0.99


def test_opus_that_names_no_rate_keeps_its_sound(tmp_path):
    """Rate 0 is "not told" (RFC 7845); libsndfile takes the lowest, 8 kHz."""
    path = tmp_path / "a.opus"
    wave = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
    audio.write(path, wave)
    truth, data = audio.read(path), bytearray(path.read_bytes())
    data[40:44] = bytes(4)
    size = 28 + data[27]
    data[22:26] = bytes(4)
    data[22:26] = opus.checksum(data[:size]).to_bytes(4, "little")
    path.write_bytes(data)
    for source in (path, bytes(data)):
        found = audio.read(source)
        assert len(found) == pytest.approx(len(truth), abs=50)
        assert audio.rms(found) == pytest.approx(audio.rms(truth), rel=0.05)


def without_length(rate: int, channels: int) -> tuple[bytes, np.ndarray]:
    """An MP3 of varying bit rates as an encoder writes it into a pipe, and its sound at `rate`."""
    loud = np.sin(np.arange(6 * rate) / rate) > 0.5  # bits follow the sound
    noise = np.random.default_rng(0).standard_normal(6 * rate).astype(np.float32)
    wave = np.repeat((noise * (0.001 + 0.1 * loud))[:, None], channels, 1)
    file = io.BytesIO()
    with sf.SoundFile(
        file, "w", rate, channels, "MPEG_LAYER_III", format="MP3", bitrate_mode="VARIABLE"
    ) as f:
        f.write(wave)
    data = file.getvalue()
    return data[data.index(data[:2], data.index(b"Xing")) :], wave[:, 0]


@pytest.mark.parametrize("rate, channels", [(48_000, 2), (44_100, 1), (24_000, 1), (8_000, 2)])
def test_an_mp3_that_tells_no_length_is_read_to_its_end(tmp_path, rate, channels):
    """libsndfile reckons it from the first frame's bit rate, and reads no further."""
    data, wave = without_length(rate, channels)
    assert sf.info(io.BytesIO(data)).duration < 5
    (tmp_path / "a.mp3").write_bytes(data)
    tag = b"ID3\x03\0\0\0\0\x02\x0f" + bytes(2 * 128 + 15)
    assert audio.check_length(tmp_path / "a.mp3", 60) == pytest.approx(6, abs=0.2)
    truth = audio.resample(wave, rate, RATE)
    for source in (tmp_path / "a.mp3", data, tag + data, data[:-9] + b"TAG" + bytes(125)):
        found = audio.read(source)
        assert len(found) == pytest.approx(len(truth), abs=0.2 * RATE)
        last = slice(-2 * RATE, -RATE)
        assert audio.rms(found[last]) == pytest.approx(audio.rms(truth[last]), rel=0.3)
    assert not mp3.decode(data)[1]  # a shard has it anew
    assert with_length(b"x" + data) == b"x" + data
    long = 60 * data  # of more frames than are looked for in vain
    assert len(with_length(long)) > len(long)
    odd = data[:4] + data[:2] * 2**22  # what might begin a frame again and again
    assert with_length(odd) is odd


def test_an_mp3_is_written_without_a_word_of_its_decoder(tmp_path, capfd):
    """mpg123 prints errors of the frames behind which it begins, which many a speech has."""
    for voice in sorted((Path(nanospeech.__file__).parent / "default" / "voices").glob("*.flac")):
        wave = audio.read(voice)
        audio.write(tmp_path / "a.mp3", wave)
        with sinks.File(tmp_path / "b.mp3", RATE) as out:
            out.write(wave)
        assert (tmp_path / "a.mp3").read_bytes() == (tmp_path / "b.mp3").read_bytes()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", ["mp3", "flac", "ogg", "opus"])
def test_a_file_whose_end_is_not_there_is_told(tmp_path, suffix):
    part = tmp_path / f"a.{suffix}"
    audio.write(part, tone(1))
    audio.check_end(part, RATE)
    part.write_bytes(part.read_bytes()[:-600])
    with pytest.raises((OSError, sf.LibsndfileError)):
        audio.check_end(part, RATE)


@pytest.mark.skipif(os.name == "nt", reason="files there are not sparse")
def test_a_wav_of_more_than_its_header_can_tell_is_whole(tmp_path):
    """25 hours at 24 kHz: libsndfile writes a header without a length, and reads less than all."""
    part, samples = tmp_path / "a.wav", 2**31 + RATE
    with part.open("wb") as f:
        f.write(sinks.wav_header(RATE))
        f.truncate(44 + 2 * samples)
    assert sf.info(part).frames < samples
    audio.check_end(part, samples)
    os.truncate(part, 44 + 2 * samples - 1)
    with pytest.raises(OSError, match="the end of the file"):
        audio.check_end(part, samples)


def test_an_mp3_is_not_read_whole_if_it_tells_its_length_or_is_huge(tmp_path):
    sf.write(tmp_path / "a.mp3", tone(0.3), RATE)
    data = (tmp_path / "a.mp3").read_bytes()
    tag = b"ID3\x03\0\0\0\0\x02\x0f" + bytes(2 * 128 + 15)
    for start in (data, tag + data, without_length(RATE, 1)[0]):
        with open(tmp_path / "long.mp3", "wb") as file:
            file.write(start)
            file.truncate(2**40)  # more than any memory, of which the disk has no more than `start`
        assert opus.as_file(tmp_path / "long.mp3") == str(tmp_path / "long.mp3")


def test_channels_are_heard_alike(tmp_path):
    left, right = tone(0.3), tone(0.3, hz=700.0)
    sf.write(tmp_path / "a.wav", np.stack([left, right], 1), RATE, subtype="FLOAT")
    assert np.allclose(audio.read(tmp_path / "a.wav"), (left + right) / 2, atol=1e-6)


@pytest.mark.parametrize("read", [audio.read, lambda path: mp3.decode(path.read_bytes())[0]])
def test_of_channels_that_cancel_out_the_loudest_is_heard(tmp_path, read):
    left = tone(0.3)
    sf.write(tmp_path / "a.wav", np.stack([left, -0.98 * left], 1), RATE, subtype="FLOAT")
    assert np.allclose(read(tmp_path / "a.wav"), left, atol=1e-6)
    sf.write(tmp_path / "b.wav", np.stack([left, 0 * left], 1), RATE, subtype="FLOAT")
    assert np.allclose(read(tmp_path / "b.wav"), left / 2, atol=1e-6)
    assert audio.mono(np.array([[1, -1]], "f4")) == [1] and len(audio.mono(np.zeros((0, 2)))) == 0


def test_more_samples_than_a_recording_has_are_refused_from_its_header(tmp_path):
    path = tmp_path / "wide.flac"
    sf.write(path, np.zeros((48_000, 8), np.float32), 655_350)
    assert len(audio.read(path, max_seconds=1)) == pytest.approx(RATE * 48_000 / 655_350, abs=1)
    with pytest.raises(InputError, match="655350 samples a second in 8 channels, too many"):
        audio.read(path, max_seconds=0.1)


def test_a_long_recording_is_refused_from_its_header(tmp_path):
    path = tmp_path / "long.wav"
    with sf.SoundFile(path, "w", 8000, 1) as f:
        for _ in range(600):
            f.write(np.zeros(8000, np.float32))
    with pytest.raises(InputError, match=r"lasts 600\.0 s; at most 60 s"):
        audio.check_length(path, 60)
    with pytest.raises(InputError, match="at most 60 s"):
        audio.read(path, max_seconds=60)
    assert len(audio.read(path, 8000, max_seconds=600)) == 600 * 8000


def flac_of(claimed: int, wave: np.ndarray) -> bytes:
    """A FLAC whose header claims so many samples (36 bits, of which these are the last 32)."""
    file = io.BytesIO()
    sf.write(file, wave, RATE, format="FLAC")
    content = bytearray(file.getvalue())
    content[22:26] = struct.pack(">I", claimed)
    return bytes(content)


def test_no_more_is_decoded_than_a_header_claims():
    wave = tone(2.0)
    assert len(audio.read(flac_of(len(wave), wave), max_seconds=3)) == len(wave)
    assert len(audio.read(flac_of(RATE, wave), max_seconds=1)) == RATE
    with pytest.raises(InputError, match=r"lasts 2\.0 s; at most 1 s"):
        audio.read(flac_of(len(wave), wave), max_seconds=1)


def test_a_flac_of_unknown_length_is_refused_for_what_it_is(tmp_path):
    (tmp_path / "piped.flac").write_bytes(flac_of(0, tone(1.0)))
    for source in (tmp_path / "piped.flac", (tmp_path / "piped.flac").read_bytes()):
        for most in (None, 60):
            with pytest.raises(InputError, match="header does not tell how long it is"):
                audio.read(source, max_seconds=most)
    with pytest.raises(InputError, match="header does not tell how long it is"):
        audio.check_length(tmp_path / "piped.flac", 60)


@pytest.mark.parametrize("content", [b"", b"not audio at all", b"RIFF\x00\x00\x00\x00WAVE"])
def test_what_is_no_audio_is_an_input_error(tmp_path, content):
    path = tmp_path / "x.wav"
    path.write_bytes(content)
    with pytest.raises(InputError):
        audio.read(path)
    with pytest.raises(InputError):
        audio.check_length(path, 60)


def test_missing_files_folders_and_nan_are_input_errors(tmp_path):
    for path in (tmp_path / "no.wav", tmp_path):
        with pytest.raises(InputError):
            audio.read(path)
    sf.write(tmp_path / "nan.wav", np.full(100, np.nan, "f4"), RATE, subtype="FLOAT")
    with pytest.raises(InputError, match="not numbers"):
        audio.read(tmp_path / "nan.wav")
    sf.write(tmp_path / "empty.wav", np.zeros(0, "f4"), RATE)
    with pytest.raises(InputError, match="no audio"):
        audio.read(tmp_path / "empty.wav")


def test_level_is_only_raised_by_default():
    quiet, gain = audio.set_level(tone(1, level=0.01))
    assert audio.rms(quiet) == pytest.approx(0.1, rel=1e-4)
    assert np.allclose(quiet / gain, tone(1, level=0.01), atol=1e-7)
    loud, gain = audio.set_level(tone(1, level=0.9))
    assert gain == 1 and np.array_equal(loud, tone(1, level=0.9))
    for none in (np.zeros(9, "f4"), np.zeros(0, "f4")):
        silent, gain = audio.set_level(none)
        assert gain == 1 and audio.rms(silent) == 0 and len(silent) == len(none)


def test_level_is_brought_to_what_a_model_asks_for():
    for level in (0.01, 0.9):
        wave, gain = audio.set_level(tone(1, level=level), 0.07)
        assert audio.rms(wave) == pytest.approx(0.07, rel=1e-4)
        assert np.allclose(wave / gain, tone(1, level=level), atol=1e-6)


def test_trim_keeps_the_sound_and_the_asked_margin():
    wave = np.concatenate([np.zeros(RATE, "f4"), tone(0.5), np.zeros(RATE, "f4")])
    trimmed = audio.trim(wave, RATE, keep_seconds=0.05)
    assert abs(len(trimmed) / RATE - 0.6) < 0.021
    assert np.sum(trimmed**2) == pytest.approx(np.sum(wave**2), rel=1e-6)
    assert audio.loud_span(np.zeros(RATE, "f4")) == (0, 0)
    assert len(audio.trim(np.zeros(0, "f4"))) == 0
    assert np.array_equal(audio.trim(wave), trimmed)
    assert np.array_equal(audio.trim(tone(0.5)), tone(0.5))  # there is less than the margin


def test_what_is_over_40_db_below_the_loudest_is_silence():
    for below, sounds in ((39.5, True), (40.5, False)):
        wave = np.full(RATE, 10 ** (-below / 20), "f4")
        wave[RATE // 2 : RATE // 2 + 240] = 1
        for level in (1, 1e-3):  # however soft the whole is
            found = audio.loud_span(wave * np.float32(level))
            assert found == ((0, RATE) if sounds else (RATE // 2, RATE // 2 + 240))
    assert audio.loud_span(np.ones(250, "f4")) == (0, 250)  # the last block is no whole one
    assert audio.loud_span(np.full(250, 5e-7, "f4")) == (0, 0)  # below any recording's noise


def test_an_offset_is_taken_off_and_a_mean_that_any_recording_has_stays():
    wave = tone(1, level=0.1)
    for offset in (0.2, -0.2, 2e-3):
        assert np.allclose(audio.centred(wave + np.float32(offset)), wave, atol=1e-4)
    none = wave[:0]
    assert audio.centred(wave) is wave and audio.centred(none) is none
    near = wave + np.float32(5e-4)
    assert audio.centred(near) is near
    assert audio.is_silent(wave * np.float32(0.009)) and not audio.is_silent(
        wave * np.float32(0.02)
    )
    assert audio.is_silent(wave[:0])


def test_what_is_over_full_scale_is_made_softer_as_a_whole():
    wave = np.array([0.5, -0.25], "f4")
    assert audio.unclipped(wave).tolist() == [0.5, -0.25]
    assert audio.unclipped(5 * wave).tolist() == [1, -0.5] == (-audio.unclipped(-5 * wave)).tolist()
    assert audio.overshoot(wave[:0]) == 1


def test_a_cross_fade_is_linear_however_waves_are_cut():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n).astype("f4") for n in (900, 700))
    up = (np.arange(100) + 0.5) / 100
    wanted = np.concatenate([a[:-100], a[-100:] * (1 - up) + b[:100] * up, b[100:]])
    assert np.allclose(audio.join([a, b], 100), wanted, atol=1e-6)
    ones, none = np.ones(2, "f4"), np.zeros(2, "f4")
    assert audio.join([ones, none], 1).tolist() == [1, 0.5, 0]
    pieces = [np.split(a, [400, 650, 870]), np.split(b, [150, 160, 600])]
    assert np.allclose(audio.join(pieces, 100), wanted, atol=1e-6)


@pytest.mark.parametrize("overlap", [0, 1, 100, 5000])
def test_cross_fade_of_a_constant_is_that_constant(overlap):
    """Weights sum to one, and the pieces concatenate to the joined whole."""
    waves = [np.full(n, 0.5, np.float32) for n in (3000, 200, 4000, 0, 7)]
    pieces = list(audio.cross_fade(iter(waves), overlap))
    whole = audio.join(waves, overlap)
    assert np.array_equal(np.concatenate(pieces), whole)
    assert np.allclose(whole, 0.5, atol=1e-6)
    assert len(audio.join(waves[:1] + waves[2:3], overlap)) == 7000 - min(overlap, 3000)
    assert len(audio.join([], overlap)) == 0


def test_edges_fade_to_nothing_and_the_middle_stays():
    wave = audio.fade_edges(np.ones(1000, "f4"), 100)
    assert abs(wave[0]) < 0.01 and abs(wave[-1]) < 0.01
    assert np.array_equal(wave[100:900], np.ones(800, "f4"))
    short = np.ones(7, "f4")
    assert np.allclose(audio.fade_edges(short, 100), [1 / 6, 0.5, 5 / 6, 1, 5 / 6, 0.5, 1 / 6])
    assert (short == 1).all()  # a copy was faded
    for n, wanted in ((3, [0.5, 1, 0.5]), (2, [0.5, 0.5]), (1, [1]), (0, [])):
        assert audio.fade_edges(np.ones(n, "f4"), 100).tolist() == wanted
    assert (audio.fade_edges(short, 3, begins=False)[:4] == 1).all()
    assert (audio.fade_edges(short, 3, ends=False)[3:] == 1).all()


@pytest.mark.parametrize("suffix", list(audio.FORMATS))
def test_what_is_written_reads_back(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    wave = tone(4.0)
    audio.write(path, wave)
    assert similarity(wave, audio.read(path)) > 0.99
    assert os.listdir(tmp_path) == [path.name]
    audio.write(path, wave * 5)  # over full scale is clipped, over an older file
    assert np.abs(audio.read(path)).max() <= 1.3  # but for what coding adds


def test_unwritable_outputs_are_found_beforehand_and_leave_nothing(tmp_path):
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "file").write_text("x")
    before = sorted(os.listdir(tmp_path))
    for name in ("a.xyz", "a", "no/such/a.wav", "folder.wav", "file/a.wav", "a" * 300 + ".wav"):
        with pytest.raises(InputError, match="cannot write"):
            audio.check_writable(tmp_path / name)
        with pytest.raises(InputError, match="cannot write"):
            audio.write(tmp_path / name, tone(0.1))
    with pytest.raises(ValueError):  # of libsndfile, within the file
        audio.write(tmp_path / "b.wav", np.zeros((9, 2), np.float32))
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_device_is_not_replaced_and_a_link_is_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(InputError, match="plain file"):
        audio.write(tmp_path / "pipe.wav", tone(0.1))
    (tmp_path / "link.wav").symlink_to(tmp_path / "real.wav")
    audio.write(tmp_path / "link.wav", tone(0.1))
    assert (tmp_path / "link.wav").is_symlink() and (tmp_path / "real.wav").is_file()


def test_wav_bytes_are_a_wav_file():
    assert np.allclose(audio.read(audio.wav_bytes(tone(1))), tone(1), atol=1e-4)
    for n in (65_535, 65_536, 65_537, 140_000):  # files are written in blocks
        wave = np.random.default_rng(n).uniform(-1, 1, n).astype(np.float32)
        for found in (audio.wav_bytes(2 * wave), audio.flac_bytes(2 * wave)):
            assert np.allclose(audio.read(found), np.clip(2 * wave, -1, 1), atol=1e-4)
