"""Samples of a dataset as clips: what is read of them, and what is refused for which reason."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from nanospeech.audio.mel import log_mel
from nanospeech.config import AudioConfig
from nanospeech.corpus.samples import AUDIO as AS_PREPARED
from nanospeech.errors import InputError
from nanospeech_torch.train.data import clips
from tests.audio.test_audio import without_length
from tests.train.shared import npy, wav_bytes

AUDIO = AudioConfig()
TONE = 0.1 * np.sin(np.arange(24_000) / 20)


def refused(reason: str, call, *given, **named) -> None:
    with pytest.raises(clips.Skip, match=f"^{reason}$"):
        call(*given, **named)


@pytest.mark.parametrize(
    "sample",
    [
        {"json": {"text": "hey", "speaker": 7}},
        {"json": b'{"text": "hey", "speaker": 7}'},
        {"json": '{"text": "hey", "speaker": 7}'},
        {"text": "hey", "speaker": 7},
        {"json": {"text": "hey", "speaker": 7}, "txt": "another"},
    ],
)
def test_metadata_are_json_or_plain_fields(sample):
    found = clips.metadata(sample)
    assert (found["text"], found["speaker"]) == ("hey", 7)


def test_a_speaker_without_a_name_is_none():
    """As of a table's empty field: all clips of that kind would be joined as one person's."""
    for said, heard in ((None, None), ("", None), (0, "0"), ("anna", "anna")):
        sample = {"text": "hey", "wav": wav_bytes(TONE), "speaker": said}
        assert clips.describe(sample, AUDIO)["speaker"] == heard


def test_a_text_may_be_a_file_of_its_own():
    assert clips.metadata({"txt": "\ufeffhé".encode()}) == {"text": "hé"}
    assert clips.metadata({"txt": "hé"}) == {"text": "hé"}
    assert clips.metadata({"txt": b"\xff"})["text"] == "\ufffd"
    beside = {"json": b'{"speaker": "anna", "duration": 2}', "txt": b"hey"}  # as prepare has it
    assert clips.metadata(beside) == {"text": "hey", "speaker": "anna", "duration": 2}
    for damaged in (b'{"text": ', "[1", b"[1]", "3"):
        refused("unreadable JSON", clips.metadata, {"json": damaged})


def test_texts_have_words():
    assert clips.spoken("  so \n") == "so"
    assert clips.spoken(3) == "3"
    for nothing in (None, "", " \n", True, ["so"]):
        refused("without text", clips.spoken, nothing)


def test_lengths_are_positive_and_finite():
    assert clips.positive(None, "duration") is None
    for value in (1e-3, "2.5", 999_999.5):
        assert clips.positive(value, "duration") == float(value)
    for value in (0, -0.5, 1e6, "long", float("nan"), float("inf"), [1], 10**400):
        refused("invalid duration", clips.positive, value, "duration")


def test_audio_is_bytes_or_a_file(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(TONE))
    for sample in (
        {"mp3": None, "wav": wav_bytes(TONE)},
        {"audio": {"bytes": wav_bytes(TONE), "path": "no such file"}},
        {"audio": {"bytes": None, "path": str(path)}},
    ):
        assert clips.audio_bytes(sample) == wav_bytes(TONE)
    assert clips.audio_bytes({"wav": b"second", "mp3": b"first"}) == b"first"
    for ending in AS_PREPARED:
        assert clips.audio_bytes({ending[1:]: b"in a tar"}) == b"in a tar"
    refused("unreadable audio", clips.audio_bytes, {"audio": {"path": str(tmp_path / "none")}})
    for sample in ({}, {"wav": b""}, {"wav": "text"}, {"audio": {"bytes": None, "path": ""}}):
        refused("without audio", clips.audio_bytes, sample)
    m4a = b"\0\0\0\x20ftypM4A "
    for sample in ({"m4a": m4a}, {"audio": {"bytes": m4a, "path": "a.m4a"}}, {"webm": b"x"}):
        refused("of a format that prepare shards has to convert", clips.audio_bytes, sample)
    assert clips.audio_bytes({"mp4": b"a picture", "wav": b"its sound"}) == b"its sound"
    with pytest.raises(InputError, match=r"decoded already \(dict\).*undecoded\(dataset\)"):
        clips.audio_bytes({"audio": {"path": "a.wav", "array": TONE, "sampling_rate": 24_000}})


def test_features_are_finite_numbers_of_the_models_width():
    rows = np.arange(12.0).reshape(4, 3)
    for value in (
        npy(rows),
        npy(rows.astype(np.float32), (2, 0)),
        npy(np.asfortranarray(rows)),
        {"bytes": npy(rows.astype(np.float16))},
        rows.tolist(),
    ):
        found = clips.features(value, 3)
        assert found.dtype == np.float16 and (found == rows).all()
    for other in (npy(rows[:0]), npy(rows.ravel()), npy(rows[:, :2]), rows[None].tolist()):
        refused("features of another shape", clips.features, other, 3)
    for value in (np.inf, np.nan, 1e6):  # the last is beyond float16
        refused("not finite", clips.features, npy(np.where(rows == 5, value, rows)), 3)


def test_features_are_numbers_that_are_all_there_and_never_objects():
    rows = np.arange(12.0).reshape(4, 3)
    objects = npy(np.array([[{}]], object))
    for damaged in (
        objects,
        npy(rows.astype(int)),
        npy(rows)[:-1],
        npy(rows) + b"0",
        npy(rows, (3, 0)),
        b"\x93NUMPY",
        b"",
        [["a"]],
        None,
    ):
        refused("unreadable features|features of another shape", clips.features, damaged, 3)
    guessed = npy(rows).replace(b"(4, 3), }  ", b"(-1, 3), } ")
    assert guessed != npy(rows)
    for damaged in (
        objects,
        npy(rows.astype(int)),
        npy(rows)[:-1],
        npy(rows, (3, 0)),
        guessed,
        guessed.replace(b"(-1, 3), } ", b"(-4,-3), } "),
    ):
        refused("unreadable features", clips.features, damaged, 3)


def test_a_clip_is_described_without_being_decoded():
    meta = {"text": " so ", "duration": 2, "speaker": 5, "language": "en", "sample_rate": 22_050}
    found = clips.describe({"__key__": "a", "wav": b"undecoded", "json": meta}, AUDIO)
    assert found == {
        "key": "a",
        "text": "so",
        "data": b"undecoded",
        "frames": int(2 * 93.75) + 1,
        "claimed": 2.0,
        "rate": 22_050,
        "speaker": "5",
        "language": "en",
    }
    plain = clips.describe({"wav": wav_bytes(TONE), "text": "so", "language": ""}, AUDIO)
    assert plain["key"] == str(zlib.crc32(wav_bytes(TONE)))
    assert (plain["claimed"], plain["frames"]) == (1.0, 94)  # as the file's header has it
    assert plain["speaker"] is plain["rate"] is None and "language" not in plain
    refused(
        "wrong rate",
        clips.describe,
        {"wav": wav_bytes(TONE), "text": "so", "sample_rate": 1},
        AUDIO,
    )
    refused("unreadable audio", clips.describe, {"wav": b"not audio", "text": "so"}, AUDIO)
    refused("without text", clips.describe, {"wav": wav_bytes(TONE)}, AUDIO)
    for nothing in ({}, {"text": ""}, {"text": None}):
        assert (
            clips.describe({"wav": wav_bytes(TONE), **nothing}, AUDIO, untranscribed=True)["text"]
            == ""
        )


def test_features_are_described_with_their_reference():
    rows, heard = np.ones((40, 100), np.float16), np.ones((30, 100), np.float16)
    sample = {"__key__": "a", "npy": npy(rows), "ref.npy": npy(heard)}
    meta = {"text": "so", "speaker": "s", "ref_text": " then "}
    found = clips.describe({**sample, "json": json.dumps(meta)}, AUDIO)
    assert (found["frames"], found["claimed"], found["data"].shape) == (40, None, (40, 100))
    reference = found.pop("reference")
    given = {"key": "a.ref", "text": "then", "frames": 30, "claimed": None}
    assert {k: v for k, v in reference.items() if k != "data"} == {
        **{k: v for k, v in found.items() if k != "data"},
        **given,
    }
    assert reference["data"].shape == (30, 100)
    for said in ({}, {"ref_text": None}, {"ref_text": " "}):
        meta = {"text": "so", **said}
        assert clips.describe({**sample, "json": meta}, AUDIO)["reference"]["text"] == ""
    for seconds, fits in ((40 / 93.75 + 0.14, True), (40 / 93.75 + 0.16, False)):
        described = {**sample, "json": {"text": "so", "target_duration": seconds}}
        if fits:
            assert clips.describe(described, AUDIO)["frames"] == 40
        else:
            refused("wrong duration", clips.describe, described, AUDIO)


def test_sample_rates_are_those_of_recordings():
    for rate in (None, 8_000, 44_100.0, 192_000, np.int64(24_000)):
        clips.check_rate(rate)
    for rate in (7_999, 192_001, float("nan"), "24000", [24_000]):
        refused("wrong rate", clips.check_rate, rate)


@pytest.mark.parametrize(
    ("seconds", "claimed", "fits"),
    [
        (9.0, None, True),
        (1.14, 1.0, True),  # a codec's padding
        (0.86, 1.0, True),
        (1.16, 1.0, False),
        (10.9, 10.0, True),  # a tenth
        (9.1, 10.0, True),
        (11.1, 10.0, False),
        (8.9, 10.0, False),
    ],
)
def test_a_clip_is_about_as_long_as_it_is_said_to_be(seconds, claimed, fits):
    if fits:
        clips.check_length(seconds, claimed)
    else:
        refused("wrong duration", clips.check_length, seconds, claimed)


def test_recordings_are_mixed_down_and_resampled():
    stereo = np.stack([TONE, 0.5 * TONE], 1)
    found = clips.read_wave(wav_bytes(stereo), AUDIO, {}, 2.0)
    assert found.dtype == np.float32 and np.abs(found - 0.75 * TONE).max() < 1e-4
    slow = clips.read_wave(
        wav_bytes(TONE[::2], 12_000), AUDIO, {"rate": 12_000, "claimed": 1.0}, 2.0
    )
    assert len(slow) == 24_000 and np.abs(slow - TONE)[200:-200].max() < 1e-3
    refused(
        "wrong rate", clips.read_wave, wav_bytes(TONE[::2], 12_000), AUDIO, {"rate": 24_000}, 2.0
    )
    refused("wrong rate", clips.read_wave, wav_bytes(TONE, 4_000), AUDIO, {}, 2.0)
    refused("wrong duration", clips.read_wave, wav_bytes(TONE), AUDIO, {"claimed": 2.0}, 2.0)
    refused("unreadable audio", clips.read_wave, b"not audio", AUDIO, {}, 2.0)
    odd = np.where(np.arange(24_000) == 9, np.nan, TONE)
    refused("not finite", clips.read_wave, wav_bytes(odd, subtype="FLOAT"), AUDIO, {}, 2.0)


def test_of_channels_that_cancel_out_the_loudest_is_trained_on():
    found = clips.read_wave(wav_bytes(np.stack([TONE, -0.98 * TONE], 1)), AUDIO, {}, 2.0)
    assert np.abs(found - TONE).max() < 1e-4


def test_an_mp3_that_tells_no_length_is_described_and_read_to_its_end():
    data, wave = without_length(24_000, 1)
    item = clips.describe({"text": "hey", "mp3": data}, AUDIO)
    assert item["claimed"] == pytest.approx(6, abs=0.2)
    assert len(clips.read_wave(data, AUDIO, item, 10.0)) == pytest.approx(len(wave), rel=0.03)


def test_a_clip_that_is_far_too_long_is_not_decoded_to_its_end():
    long = wav_bytes(np.zeros(24_000 * 9))
    assert len(clips.read_wave(long, AUDIO, {}, 2.0)) == int(24_000 * (1.2 * 2 + 1))
    assert len(clips.read_wave(long, AUDIO, {}, 0.5)) == int(24_000 * (1.2 * 0.5 + 1))
    assert len(clips.read_wave(long, AUDIO, {"claimed": 9.0}, 2.0)) == 24_000 * 9


def test_a_mels_longest_length_bounds_what_is_decoded(monkeypatch):
    bounds = []

    def read_wave(data, audio, item, longest):
        bounds.append(longest)
        return TONE.astype(np.float32)

    monkeypatch.setattr(clips, "read_wave", read_wave)
    clips.mel({"data": wav_bytes(TONE)}, AUDIO, 1, 150)
    assert bounds == [150 / 93.75]


def test_a_mel_is_that_of_the_recording_and_at_most_the_padding_is_cut_off():
    item = clips.describe({"wav": wav_bytes(TONE), "text": "so"}, AUDIO)
    want = log_mel(clips.read_wave(wav_bytes(TONE), AUDIO, {}, 2.0), AUDIO).astype(np.float16)
    n = len(want)
    for shortest, longest in ((n, n), (1, n - 1), (1, n - 14)):  # 0.15 s are 14.06 frames
        found = clips.mel(item, AUDIO, shortest, longest)
        assert found.dtype == np.float16 and (found == want[:longest]).all()
    refused("too long", clips.mel, item, AUDIO, 1, n - 15)
    refused("too short", clips.mel, item, AUDIO, n + 1, 2 * n)
    few = {"data": wav_bytes(TONE[:512]), "claimed": None, "rate": None}  # half a window
    refused("too short", clips.mel, few, AUDIO, 1, 100)
    assert len(clips.mel({**few, "data": wav_bytes(TONE[:513])}, AUDIO, 1, 100)) == 3
    made = {"data": want}
    assert clips.mel(made, AUDIO, 1, n) is not None
    refused("too short", clips.mel, made, AUDIO, n + 1, 2 * n)
