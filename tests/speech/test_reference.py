"""Recordings made ready to be voices: cut with their words, cleaned, and told what is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from nanospeech.audio import wave as audio
from nanospeech.audio.recording import bandwidth, denoised, depth
from nanospeech.errors import BackendError, InputError
from nanospeech.measure import transcription
from nanospeech.measure.transcription import joined, whole_words
from nanospeech.release.folder import DEFAULT
from nanospeech.speech.reference import Word, quiet_spot, read_reference, spoken_before
from tests.speech.test_speaker import EchoEngine, speaker

FIXTURES = Path(__file__).parents[1] / "fixtures"
CLIPS = sorted((FIXTURES / "ljspeech" / "wavs").glob("*.wav"))
RATE = audio.SAMPLE_RATE


def speech(seconds: float) -> np.ndarray:
    """Recorded speech of so many seconds, level and band as they were."""
    whole = np.concatenate([audio.trim(audio.read(p)) for p in CLIPS])
    return np.resize(whole, int(seconds * RATE))


def hum(samples: int) -> np.ndarray:
    """A tone below all voices."""
    return 0.05 * np.sin(2 * np.pi * 30 * np.arange(samples) / RATE).astype(np.float32)


def nobody():
    raise BackendError("nobody listens here")


def kept(tmp_path: Path, wave: np.ndarray, text: str | None = "hello there.", listener=nobody):
    soundfile.write(tmp_path / "me.wav", wave, RATE, subtype="FLOAT")
    return read_reference(tmp_path / "me.wav", text, listener)


def test_silence_level_and_edges_are_dealt_with(tmp_path):
    quiet = np.pad(0.02 * speech(4.0), (2 * RATE, RATE))
    found = kept(tmp_path, quiet, " hello   there. ")
    assert found.text == "hello there." and not found.heard
    assert 3.3 < len(found.wave) / RATE < 4.3
    start, stop = audio.loud_span(found.wave)
    for silence in (start, len(found.wave) - stop):
        assert silence / RATE == pytest.approx(0.1, abs=0.011)
    assert audio.rms(found.wave) == pytest.approx(0.1, rel=0.3)  # less where peaks are too high
    assert np.abs(found.wave).max() <= 0.98
    told = " ".join(found.notes)
    assert "s of silence were cut out" in told and "level was raised by" in told
    assert "clipped" not in told and "noisy" not in told and "only" not in told
    assert found.bandwidth == pytest.approx(bandwidth(speech(4.0), RATE), rel=0.02)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_silence_in_the_middle_is_not_speech(tmp_path, noise):
    """In its level, its pace, and what is kept of it, it would count as such."""
    words = speech(4.0)
    plain = np.concatenate([words, np.zeros(RATE // 2, np.float32), words])
    long = np.concatenate([words, np.zeros(7 * RATE, np.float32), words])
    hiss = noise * np.random.default_rng(0).standard_normal(len(long)).astype(np.float32)
    found = kept(tmp_path, long + hiss, None, None)
    other = kept(tmp_path, plain + hiss[: len(plain)], None, None)
    assert len(found.wave) / RATE == pytest.approx(len(other.wave) / RATE, abs=0.3)
    assert audio.rms(found.wave) == pytest.approx(audio.rms(other.wave), rel=0.03)
    assert not any("cut after" in n for n in found.notes)
    assert any(re.match(r"6\.\d s of silence were cut out", n) for n in found.notes)
    # where the cut passes, nothing is heard
    assert np.abs(np.diff(found.wave)).max() < 1.05 * np.abs(np.diff(other.wave)).max()


@pytest.mark.parametrize(
    ("decibels", "said"), [(-10, "raised by 10 dB"), (8, "lowered by 8 dB"), (-4, None), (4, None)]
)
def test_a_level_is_told_from_six_decibels_on(tmp_path, decibels, said):
    wave = np.pad(speech(4.0), RATE // 10)
    notes = kept(tmp_path, wave * np.float32(0.1 / audio.rms(wave) * 10 ** (decibels / 20))).notes
    told = [n for n in notes if "level was" in n]
    assert len(told) == bool(said) and all(said in n for n in told)
    assert not any("silence" in n for n in notes)


def test_hiss_is_lowered_and_told_with_what_it_was_and_is(tmp_path):
    clean = audio.read(DEFAULT / "voices" / "kumo.flac")
    noise = np.random.default_rng(0).standard_normal(len(clean))
    loud = np.percentile(np.abs(clean), 95)
    found = kept(tmp_path, (clean + 10 ** (-38 / 20) * loud * noise).astype(np.float32))
    (note,) = [n for n in found.notes if "hiss" in n]
    before, gained = map(int, re.findall(r"(\d+) dB", note))
    assert 30 < before < 45 and 8 < gained <= 12
    assert depth(found.wave) == pytest.approx(before + gained, abs=2)
    # no pauses tell what is noise here: it stays, and nothing is told of it
    steady = np.random.default_rng(0).uniform(-0.2, 0.2, 5 * RATE).astype(np.float32)
    assert not any("hiss" in n for n in kept(tmp_path, steady).notes)
    assert not any("hiss" in n for n in kept(tmp_path, clean).notes)


@pytest.mark.parametrize("text", ["", "..."])
def test_a_text_without_words_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="has no words; write down what is said"):
        kept(tmp_path, speech(4.0), text)


@pytest.mark.parametrize(
    ("text", "far"), [("Hm.", "slow"), ("All of it was said at once. " * 20, "fast")]
)
def test_a_text_that_is_not_the_recordings_is_told_when_it_is_kept(tmp_path, text, far):
    (note,) = [n for n in kept(tmp_path, speech(5.0), text).notes if "does not go with" in n]
    assert (
        f"text of {len(text.strip())} characters" in note and f"too {far}: write down all" in note
    )
    fits = kept(tmp_path, speech(5.0), "All of it was said, and it took five seconds to say.")
    assert not any("does not go with" in n for n in fits.notes)


def test_an_offset_is_not_heard_as_noise(tmp_path):
    wave = np.pad(speech(4.0), RATE)
    plain, moved = kept(tmp_path, wave), kept(tmp_path, wave + np.float32(0.05))
    assert moved.notes == plain.notes
    assert abs(len(moved.wave) - len(plain.wave)) < RATE / 50
    assert abs(float(moved.wave.mean())) < 1e-3


def test_a_recogniser_that_hears_no_words_or_lacks_the_language_is_an_error(monkeypatch):
    pytest.importorskip("ctranslate2")
    dots = [SimpleNamespace(word=" .", start=0.0, end=1.0, probability=1.0)] * 3
    model = SimpleNamespace(
        supported_languages=["en", "de"],
        transcribe=lambda *_, **__: ([SimpleNamespace(words=dots)], None),
    )
    monkeypatch.setattr(transcription, "load_whisper", lambda *_, **__: model)
    with pytest.raises(InputError, match="no words were heard"):
        transcription.whisper_listener("base", "de")(speech(3.0))
    with pytest.raises(InputError, match="no language 'xx'"):
        transcription.whisper_listener("base", "xx")


@pytest.mark.parametrize("seconds, words", [(5.0, 9), (20.0, 5)])
def test_words_of_writing_without_spaces_are_put_together_as_it_is_written(
    tmp_path, seconds, words
):
    pieces = ["我们", "用", "iPhone", "15", "，", "你好", "。", "Hello", "there."]
    times = np.linspace(0, seconds, len(pieces) + 1)
    heard = [Word(p, float(a), float(b)) for p, a, b in zip(pieces, times, times[1:])]
    wave = speech(seconds)
    for a in times[1:-1]:  # a pause behind each
        at = int(a * RATE)
        wave[at - 2400 : at + 2400] = 0
    found = kept(tmp_path, wave, None, lambda: lambda _: heard)
    whole = "我们用 iPhone 15 ，你好。 Hello there."
    assert found.heard and (found.text == whole if words == 9 else whole.startswith(found.text))


def test_a_word_that_whisper_cuts_is_one():
    class Piece:
        def __init__(self, word: str, start: float):
            self.word, self.start, self.end = word, start, start + 0.5
            self.probability = 1 - start / 100

    words: list[Word] = []

    def heard(*pieces: str) -> list[str]:
        nonlocal words
        words = whole_words(Piece(p, i) for i, p in enumerate(pieces))
        assert all(a.end <= b.start for a, b in pairwise(words))
        return [w.text for w in words]

    said = (
        " I",
        " paid",
        " $10",
        ",000",
        " for",
        " twenty",
        "-five",
        " ",
        " flags,",
        " at",
        " 7",
        ":30.",
    )
    assert heard(*said) == ["I", "paid", "$10,000", "for", "twenty-five", "flags,", "at", "7:30."]
    assert (words[2].start, words[2].end, words[2].chance) == (2, 3.5, 0.97)  # the least of them
    assert heard(" At", " 7", ":30", ":15.") == ["At", "7:30:15."]
    assert heard("Hello", " there.") == ["Hello", "there."]
    assert heard("\u4f60\u597d", "\u5417") == ["\u4f60\u597d", "\u5417"]  # written without spaces
    assert heard(" \u4f60\u597d", "\u5417") == ["\u4f60\u597d", "\u5417"]
    pieces = "我", "用", " i", "Phone", " 15", "拍", "了", "一", "张", "照", "片"
    latin = ["我", "用", "iPhone", "15", "拍", "了", "一", "张", "照", "片"]
    assert heard(*pieces) == latin  # which a Latin word's space does not change
    assert joined(latin, spaced=False) == "我用iPhone 15拍了一张照片"
    assert joined(["It", "rains."]) == "It rains." and joined([], spaced=False) == ""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("clipped", r"\d\.\d+ % of its samples are clipped.*lower the microphone"),
        ("noisy", r"noisy: .* 1?\d dB below its speech.*quieter room"),
        ("short", r"only 1\.\d s: 3 to 12 s"),
        ("narrow", r"narrow: its sound ends at [34]\.\d kHz"),
    ],
)
def test_what_is_wrong_is_told_with_its_measure_and_remedy(tmp_path, fault, said):
    wave = speech(1.6 if fault == "short" else 5.0)
    if fault == "clipped":
        wave = np.clip(wave * 20, -1, 1)
    elif fault == "noisy":
        wave = wave + 0.3 * audio.rms(wave) * np.random.default_rng(0).standard_normal(len(wave))
    elif fault == "narrow":
        wave = audio.resample(audio.resample(wave, RATE, 8000), 8000, RATE)
    notes = "\n".join(kept(tmp_path, wave.astype(np.float32)).notes)
    assert len(re.findall(said, notes)) == 1, notes


def test_a_voice_with_few_highs_is_not_narrow(tmp_path):
    """Its sound dies away where a telephone's ends."""
    wave = speech(2.5)
    hertz = np.fft.rfftfreq(len(wave), 1 / RATE)
    gain = 10 ** (-6 * np.maximum(hertz - 4000, 0) / 1000 / 20)
    soft = np.fft.irfft(np.fft.rfft(wave) * gain, len(wave)).astype(np.float32)
    found = kept(tmp_path, soft)
    assert found.bandwidth < 9800 and not any("narrow" in n for n in found.notes)
    cut = np.fft.irfft(np.fft.rfft(wave) * (hertz < 8000), len(wave)).astype(np.float32)
    assert any("narrow" in n for n in kept(tmp_path, cut).notes)


def test_clipping_is_told_from_a_ten_thousandth_on(tmp_path):
    for runs, told in ((1, False), (2, True)):
        wave = 0.5 * speech(5.0)
        for at in range(runs):
            wave[RATE * (at + 1) : RATE * (at + 1) + 9] = 1  # of 120,000
        assert any("clipped" in n for n in kept(tmp_path, wave).notes) == told


@pytest.mark.parametrize(
    ("wave", "said"),
    [
        (np.zeros(RATE, np.float32), r"silent: its loudest sample is nothing at all"),
        (np.full(RATE, 1e-4, np.float32), r"silent: its loudest sample is -80 dB.*microphone"),
        # what a sound card's offset alone is, and its last bit
        (0.25 + np.arange(RATE) % 3 * 2.0**-15, r"silent: its loudest sample is -90 dB"),
        (np.pad(speech(0.8), RATE), r"holds 0\.\d s of sound; record 3 to 12 s"),
        (np.pad(speech(0.8), RATE) + hum(67_200), r"holds 0\.\d s of sound; record 3 to 12 s"),
        (hum(4 * RATE), r"silent but for rumble below 55 Hz, -26 dB loud"),
    ],
)
def test_what_is_no_voice_is_refused_with_its_measure(tmp_path, wave, said):
    with pytest.raises(InputError, match=said):
        kept(tmp_path, wave)
    (tmp_path / "text.wav").write_text("no audio")
    with pytest.raises(InputError, match="cannot read"):
        read_reference(tmp_path / "text.wav", None, nobody)


def test_words_that_are_not_given_are_listened_for(tmp_path):
    heard = [Word("Hello", 0.1, 0.5), Word("there.", 0.6, 1.2)]
    found = kept(tmp_path, speech(4.0), None, lambda: lambda wave: heard)
    assert found.text == "Hello there." and found.heard
    with pytest.raises(BackendError, match="nobody listens"):
        kept(tmp_path, speech(4.0), None)


def long_recording() -> tuple[np.ndarray, list[Word]]:
    """Twenty seconds with a pause of 0.4 s after each 2.6, and eight words to each stretch."""
    parts, words = [], []
    for k in range(7):
        parts += [audio.trim(speech(6))[: RATE // 10 * 26], np.zeros(RATE // 10 * 4, np.float32)]
        for i in range(8):
            mark = "." if i == 7 and k == 2 else "," if i == 7 else ""
            start = 3.0 * k + 0.325 * i
            words.append(Word(f"word{k}{i}{mark}", start, start + 0.3))
    return np.concatenate(parts), words


def test_a_long_recording_is_cut_at_a_pause_with_its_words(tmp_path):
    wave, words = long_recording()
    found = kept(tmp_path, wave, None, lambda: lambda wave: words)
    assert found.text.split() == [w.text for w in words[:24]]  # the sentence's end, not a comma's
    assert 7.8 < len(found.wave) / RATE < 8.9  # the pause is cut off
    assert any("cut at a pause after 8." in n and "24 words" in n for n in found.notes)


def test_a_recording_is_not_raised_beyond_full_scale(tmp_path):
    wave = 0.05 * speech(4)
    wave[2 * RATE] = 0.5  # a knock
    found = kept(tmp_path, wave)
    assert np.abs(found.wave).max() == pytest.approx(0.98, abs=0.001)
    assert not any("level was" in n for n in found.notes)  # less than 6 dB up to full scale


@pytest.mark.parametrize(("comma", "count"), [(15, 16), (None, 32)])
def test_a_long_recording_is_rather_cut_behind_a_comma_else_late(tmp_path, comma, count):
    wave, words = long_recording()
    bare = [replace(w, text=w.text.strip(",.") + "," * (i == comma)) for i, w in enumerate(words)]
    assert len(kept(tmp_path, wave, None, lambda: lambda wave: bare).text.split()) == count


def test_no_more_is_listened_to_than_may_be_kept(tmp_path):
    wave, words = long_recording()
    heard: list[int] = []
    listens = lambda: lambda wave: heard.append(len(wave)) or words  # noqa: E731
    found = kept(tmp_path, np.tile(wave, 5), None, listens)
    assert len(wave) * 5 > 60 * RATE and heard == [30 * RATE]
    assert found.text.split() == [w.text for w in words[:24]]


def test_given_words_are_cut_where_they_are_those_that_were_heard(tmp_path):
    wave, words = long_recording()
    given = [w.text.upper() for w in words]
    given[24] = "another"  # heard otherwise: it is not known which side of the pause it is on
    found = kept(tmp_path, wave, " ".join(given), lambda: lambda wave: words)
    assert found.text.split() == given[:32] and not found.heard
    for other in ("something else was said", " ".join(given[:5])):  # given[:5]: there is more
        with pytest.raises(InputError, match=r"does not go with .* was heard: word00 word01"):
            kept(tmp_path, wave, other, lambda: lambda wave: words)


def test_a_recording_without_a_pause_is_not_cut_in_a_word(tmp_path):
    wave = np.random.default_rng(0).uniform(-0.5, 0.5, 20 * RATE).astype(np.float32)
    words = [Word("ah", 0.5 * i, 0.5 * i + 0.5) for i in range(40)]
    with pytest.raises(InputError, match=r"lasts 20\.0 s and has no pause"):
        kept(tmp_path, wave, None, lambda: lambda wave: words)


def with_pause(seconds: float, decibels: float, at: float = 5.0) -> np.ndarray:
    """Sound without pauses but for one that is so much quieter."""
    wave = np.random.default_rng(0).uniform(-0.5, 0.5, 20 * RATE).astype(np.float32)
    wave[int(at * RATE) : int((at + seconds) * RATE)] *= np.float32(10 ** (-decibels / 20))
    return wave


def cut_after(found) -> float:
    """Seconds after which a recording was cut, by its note."""
    (note,) = [n for n in found.notes if n.startswith("cut at a pause")]
    return float(re.findall(r"after ([\d.]+) s", note)[0])


@pytest.mark.parametrize("end", [4.9, 5.0, 5.15])
def test_a_pause_is_found_though_words_were_heard_a_tenth_of_a_second_off(tmp_path, end):
    words = [Word("ah", 0, end), Word("oh", end + 0.05, 8), Word("uh", 8, 20)]
    words = [Word("hm", 0, 0), *words, Word("er", 21, 22), Word("um", 22, 23)]  # or far off
    found = kept(tmp_path, with_pause(0.1, 60), None, lambda: lambda wave: words)
    assert found.text == "hm ah" and cut_after(found) in (5.0, 5.1)


@pytest.mark.parametrize(
    ("seconds", "decibels", "is_one"), [(0.1, 8, 0), (0.1, 13, 1), (0.03, 60, 0)]
)
def test_a_pause_is_quiet_and_longer_than_a_stop(tmp_path, seconds, decibels, is_one):
    words = [Word("ah", 0, 5), Word("oh", 5.1, 20)]
    wave = with_pause(seconds, decibels)
    if is_one:
        assert kept(tmp_path, wave, None, lambda: lambda wave: words).text == "ah"
    else:
        with pytest.raises(InputError, match="has no pause"):
            kept(tmp_path, wave, None, lambda: lambda wave: words)


def test_a_silence_within_a_sentence_is_no_better_than_a_pause_behind_it(tmp_path):
    wave = with_pause(0.2, 45) * (with_pause(0.2, 300, at=6.0) != 0)
    words = [Word("ah.", 0, 5), Word("oh", 5.2, 6), Word("uh", 6.2, 20)]
    found = kept(tmp_path, wave, None, lambda: lambda wave: words)
    assert found.text == "ah." and cut_after(found) == pytest.approx(5.1, abs=0.1)


def test_the_quietest_moment_is_the_middle_of_a_pause():
    for at in (5.0, 11.5):
        spot, drop = quiet_spot(with_pause(0.06, 20, at), at - 1, at + 1)
        assert spot == pytest.approx(at + 0.03, abs=0.01)
        assert drop == pytest.approx(20, abs=1.5)


def test_words_that_are_said_again_and_again_are_told_apart_by_their_order(tmp_path):
    wave, words = long_recording()
    given = [w.text for w in words] * 5  # of five times the text, one is listened to
    found = kept(tmp_path, np.tile(wave, 5), " ".join(given), lambda: lambda wave: words)
    assert found.text.split() == given[:24]
    many = [Word("nothing", w.start, w.end) for w in words]
    with pytest.raises(InputError) as error:  # of which a line is told
        kept(tmp_path, wave, " ".join(given), lambda: lambda wave: many)
    assert "nothing nothing ... Write down" in str(error.value) and len(str(error.value)) < 320


def test_boundaries_are_those_with_the_same_words_on_both_sides():
    heard = [Word(w, 0, 0) for w in ["one", "two", "too", "three", "four"]]
    assert spoken_before(heard, ["One,", "two:", "three", "four"]) == {0: 1, 3: 3}


def test_hiss_is_lowered_and_speech_is_kept():
    clean = audio.trim(audio.read(DEFAULT / "voices" / "kumo.flac"))
    rng = np.random.default_rng(0)
    noise = (10 ** (-30 / 20) * audio.rms(clean) * rng.standard_normal(len(clean))).astype(
        np.float32
    )
    noisy = clean + noise
    better = denoised(noisy, RATE)
    assert better.shape == noisy.shape
    assert depth(better) > depth(noisy) + 8
    assert audio.rms(better - clean) < 0.75 * audio.rms(noise)
    # a wave without pauses tells nothing of its noise, and stays
    assert np.array_equal(denoised(noise, RATE), noise)
    silence = np.zeros(RATE, np.float32)
    assert np.array_equal(denoised(silence, RATE), silence)


@pytest.mark.parametrize(("below", "changed"), [(9, False), (15, True), (40, True)])
def test_a_steady_noise_is_lowered_by_a_wiener_filter_and_by_twelve_decibels_at_most(
    below, changed
):
    """A hum of 3 kHz, beside words and under sounds three times as loud at its own frequency."""
    time = np.arange(4 * RATE) / RATE
    on = np.sin(np.pi * time) > -0.3  # pauses of 0.8 s
    word, hum = (np.sin(2 * np.pi * hertz * time) for hertz in (1000, 3000))
    level = 10 ** (-below / 20)
    wave = (0.2 * (word * on + level * hum * (1 + 2 * on * (below == 40)))).astype(np.float32)
    out = denoised(wave, RATE)
    assert np.array_equal(out, wave) != changed
    if not changed:
        return
    inner = np.convolve(on, np.ones(RATE // 5), "same")
    quiet, loud = inner == 0, inner > RATE // 5 - 1
    assert quiet.mean() > 0.1 and loud.mean() > 0.2
    fallen = 20 * np.log10(audio.rms(wave[quiet]) / audio.rms(out[quiet]))
    assert fallen == pytest.approx(12, abs=0.2)
    kept = [2 * (out * sine)[loud].mean() / 0.2 for sine in (word, hum)]
    assert kept[0] == pytest.approx(1, abs=2e-3)
    if below == 40:  # 9 times the noise's power is 8 of signal and one of noise
        assert kept[1] == pytest.approx(3 * level * 8 / 9, rel=0.03)


def test_depth_is_between_the_loudest_and_the_quietest_tenth():
    levels = np.full(100, 1e-2)
    levels[:12], levels[12:24] = 1e-3, 1e-1
    wave = np.repeat(levels, RATE // 50) * np.random.default_rng(0).choice([-1, 1], 2 * RATE)
    assert depth(wave) == pytest.approx(40, abs=0.1)
    levels[8:12] = levels[20:24] = 1e-2
    wave = np.repeat(levels, RATE // 50) * np.sign(wave)
    assert depth(wave) == pytest.approx(0, abs=0.1)


def test_the_bandwidth_is_where_sound_ends():
    wave = np.random.default_rng(0).standard_normal(2 * RATE).astype(np.float32) * 0.1
    assert bandwidth(wave, RATE) > 11_800
    for rate in (8_000, 16_000):
        narrow = audio.resample(audio.resample(wave, RATE, rate), rate, RATE)
        assert bandwidth(narrow, RATE) == pytest.approx(rate / 2, rel=0.06)
    assert bandwidth(np.zeros(RATE, np.float32), RATE) == 0


@pytest.mark.parametrize(
    ("decibels", "share", "wide"),
    [(-50, 1.0, True), (-70, 1.0, False), (-20, 0.1, True), (-20, 0.005, False)],
)
def test_what_is_60_db_weaker_or_seldom_has_no_part_in_the_bandwidth(decibels, share, wide):
    rng, high = np.random.default_rng(0), 3 * RATE
    white = np.fft.rfft(rng.standard_normal(high))
    hertz = np.fft.rfftfreq(high, 1 / RATE)
    low, top = (np.fft.irfft(white * part, high) for part in (hertz < 5000, hertz >= 5000))
    wave = low + 10 ** (decibels / 20) * top * (np.arange(high) < share * high)
    assert bandwidth(wave, RATE) == pytest.approx(12_000 if wide else 5000, rel=0.02)


def test_a_single_tone_has_no_part_in_the_bandwidth():
    white = np.fft.rfft(np.random.default_rng(0).standard_normal(3 * RATE))
    low = np.fft.irfft(white * (np.fft.rfftfreq(3 * RATE, 1 / RATE) < 5000))
    tone = np.sin(2 * np.pi * 9000 * np.arange(len(low)) / RATE) * np.hanning(len(low))
    assert bandwidth(low + 2e-3 * tone, RATE) == pytest.approx(5000, rel=0.02)


@pytest.mark.parametrize("said", ["so it was said", "was it said?", "it was said,", "it was."])
def test_a_prompt_that_ends_openly_does_not_run_on_into_the_text(said):
    engine = EchoEngine()
    speaker(engine, ref_text=said).speak("hello there.")
    mark = "" if said[-1] in ".,?" else "."
    assert engine.calls[0]["prompt"] == f"{said}{mark} "
    assert engine.calls[0]["text"] == "hello there."


@pytest.mark.parametrize("text", [None, "Hello there, and all that is said after it."])
def test_where_nobody_listens_a_long_recording_is_cut_and_its_words_are_unknown(tmp_path, text):
    wave = speech(30.0)
    for at in (4.0, 9.0, 13.0):  # the second is the quietest moment of what may be kept, late
        wave[int(at * RATE) : int((at + 0.3) * RATE)] = 0
    soundfile.write(tmp_path / "me.wav", wave, RATE, subtype="FLOAT")
    found = read_reference(tmp_path / "me.wav", text, None)
    assert found.text == "" and not found.heard
    assert 8.5 < len(found.wave) / RATE < 9.5
    (note,) = [n for n in found.notes if n.startswith("cut after")]
    assert ("text left out" in note) == (text is not None)
    assert not any("does not go with" in n for n in found.notes)
    short = read_reference(write(tmp_path, speech(4.0)), text, None)
    assert short.text == (text or "") and not short.heard


def write(folder: Path, wave: np.ndarray) -> Path:
    soundfile.write(folder / "short.wav", wave, RATE, subtype="FLOAT")
    return folder / "short.wav"


def test_a_listener_that_understands_nothing_leaves_the_words_unknown(tmp_path):
    found = kept(tmp_path, speech(4.0), None, lambda: lambda wave: [])
    assert found.text == "" and not found.heard
    assert len(kept(tmp_path, speech(20.0), None, lambda: lambda wave: []).wave) / RATE <= 12


@pytest.mark.parametrize(
    ("chance", "asks", "heard"), [(0.95, True, 0), (0.5, True, 1), (0.95, False, 1)]
)
def test_words_of_another_language_are_not_written_down_as_english(
    monkeypatch, chance, asks, heard
):
    pytest.importorskip("ctranslate2")
    word = SimpleNamespace(word=" hello", start=0.0, end=1.0, probability=1.0)
    model = SimpleNamespace(
        supported_languages=["en", "it"],
        detect_language=lambda *_, **__: ("it", chance, []),
        transcribe=lambda *_, **__: ([SimpleNamespace(words=[word])], None),
    )
    monkeypatch.setattr(transcription, "load_whisper", lambda *_, **__: model)
    said: list[str] = []
    listen = transcription.whisper_listener("base", "en", said.append if asks else None)
    assert len(listen(speech(3.0))) == heard
    assert bool(said) == (not heard)
    own = transcription.whisper_listener("base", "it", said.append)
    assert len(own(speech(3.0))) == 1
