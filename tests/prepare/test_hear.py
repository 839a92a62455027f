"""Several clips heard at once: each gets its own words back."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.prepare import hear
from nanospeech.prepare.hear import alignment, portions, share_out
from scripts.recipes.synthesize import Speaker, draw_speaker, finish


def test_words_go_to_the_text_they_were_said_in():
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")
    texts = ["The cat sat down.", "It rained all day.", "We went home."]
    assert share_out(texts, "The cat sat down. It rained all day. We went home.") == [
        "the cat sat down",
        "it rained all day",
        "we went home",
    ]
    # a word lost, one misheard and one added stay with their neighbours
    heard = "The cat down it rained old day today we went home"
    assert share_out(texts, heard) == ["the cat down", "it rained old day today", "we went home"]
    assert share_out(texts, "") == ["", "", ""]


def test_an_inaudible_clip_gets_no_words_of_its_neighbours():
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")
    texts = ["Green apples fell.", "Nobody spoke at dinner.", "Snow covered the roof."]
    heard = "Green apples fell. Snow covered the roof."
    assert share_out(texts, heard) == ["green apples fell", "", "snow covered the roof"]


@pytest.mark.parametrize("seed", range(20))
def test_an_alignment_never_goes_back_and_finds_equal_words(seed):
    rng = np.random.default_rng(seed)
    said = [str(w) for w in rng.integers(0, 50, 12)]
    owners = alignment(said, said)
    assert owners == list(range(12))
    heard = [w for w in said if rng.random() < 0.8] + ["new"]
    owners = alignment(said, heard)
    assert len(owners) == len(heard) and owners == sorted(owners)
    assert all(0 <= o < len(said) for o in owners)


def test_portions_keep_order_and_lose_nothing():
    assert list(portions(list("abcdefg"), 3)) == [list("abc"), list("def"), ["g"]]  # type: ignore


class Ear:
    """In the place of faster-whisper's model: words are tones, and mumbled beside others."""

    WORDS = "alpha", "papà", "bravo", "città", "charlie", "delta", "echo"
    supported_languages = "en", "it"
    calls: ClassVar[list[tuple[str, float]]] = []

    def __init__(self, *_, **__):
        Ear.calls.clear()

    def transcribe(self, wave, language, **_):
        Ear.calls.append((language, len(wave) / 16_000))
        tenths = np.abs(wave[: len(wave) // 1600 * 1600].reshape(-1, 1600)).max(1) > 0.05
        begins = np.flatnonzero(np.diff(tenths.astype(int), prepend=0) == 1) + 1
        spectra = [np.abs(np.fft.rfft(wave[i * 1600 :][:16_000])) for i in begins]
        words = [self.WORDS[round(spectrum.argmax() / 200) - 1] for spectrum in spectra]
        if len(words) > 1:
            words = [word.replace("papà", "papa").replace("bravo", "brave") for word in words]
        return [SimpleNamespace(text=f" {word}") for word in words], None


class Ears:
    """In the place of faster-whisper's pipeline of batches."""

    def __init__(self, model: Ear):
        self.model = model

    def transcribe(self, wave, language, clip_timestamps, batch_size, **_):
        assert len(clip_timestamps) <= batch_size
        segments = []
        for clip in clip_timestamps:
            start, end = (round(clip[k] * 16_000) for k in ("start", "end"))
            words, _ = self.model.transcribe(wave[start:end], language)
            segments += [SimpleNamespace(start=clip["start"], text=w.text) for w in words]
        return segments, None


@pytest.fixture
def ear(monkeypatch):
    """Tones are heard in the place of words."""
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")
    library = pytest.importorskip("faster_whisper")
    monkeypatch.setattr(library, "WhisperModel", Ear)
    monkeypatch.setattr(library, "BatchedInferencePipeline", Ears)


def test_clips_of_a_language_are_heard_together_and_again_alone_where_badly(ear, tmp_path, capsys):
    rows = []
    for i, word in enumerate(Ear.WORDS):
        tone = 0.3 * np.sin(2 * np.pi * 200 * (i + 1) * np.arange(6 * 24_000) / 24_000)
        audio.write(tmp_path / f"{i}.wav", tone.astype(np.float32))
        rows.append(
            {"audio": f"{i}.wav", "text": word} | ({"language": "it-IT"} if i in (1, 3) else {})
        )
    rows += [{"audio": "0.wav", "text": "hello", "language": "Italian?"}]
    table, out = tmp_path / "clips.jsonl", tmp_path / "heard.csv"
    table.write_text("\n".join(map(json.dumps, rows)))
    argv = [str(table), "--out", str(out), "--whisper", str(tmp_path), "--jobs", "1"]
    assert hear.main([*argv, "--language", "Italian?"]) == 2
    assert hear.main(argv) == 0
    assert sorted(language for language, _ in Ear.calls) == ["en"] * 3 + ["it"] * 2
    windows = sorted(seconds for _, seconds in Ear.calls)  # alone, one left, two, four
    assert windows == pytest.approx([6, 6, 6.7, 13.4, 26.8], abs=0.1)
    with out.open(encoding="utf-8", newline="") as f:
        found = list(csv.DictReader(f))
    assert sorted(row["heard"] for row in found) == sorted(Ear.WORDS)
    for row in found:
        assert row["text"] == row["heard"]
        assert row["recogniser"].removeprefix(tmp_path.name) == " it" * ("à" in row["text"])
    assert hear.main(argv) == 0 and len(Ear.calls) == 5  # nothing is heard twice
    if not Path("/proc/self/mem").exists():
        return
    (tmp_path / "2.wav").unlink()  # what was heard, and is on a disk with an error now, is left
    (tmp_path / "2.wav").symlink_to("/proc/self/mem")
    capsys.readouterr()
    assert hear.main(argv) == 0 and len(Ear.calls) == 5
    counts = json.loads(capsys.readouterr().out)
    assert (counts["known"], counts["left_to_curate"]) == (6, 1)


def heard_of(folder, capsys, clips: dict[str, float], *options: str) -> tuple[dict, list[str]]:
    """The counts of a run over tones of such words and lengths, and what was heard, in order."""
    rows = []
    for word, seconds in clips.items():
        at = np.arange(round(seconds * 24_000)) / 24_000
        tone = 0.3 * np.sin(2 * np.pi * 200 * (Ear.WORDS.index(word) + 1) * at)
        audio.write(folder / f"{word}.wav", tone.astype(np.float32))
        rows.append({"audio": f"{word}.wav", "text": word})
    (folder / "clips.jsonl").write_text("\n".join(map(json.dumps, rows)))
    argv = [str(folder / "clips.jsonl"), "--out", str(folder / "heard.csv"), "--jobs", "1"]
    assert hear.main([*argv, "--whisper", str(folder), *options]) == 0
    with (folder / "heard.csv").open(encoding="utf-8", newline="") as f:
        return json.loads(capsys.readouterr().out), [row["heard"] for row in csv.DictReader(f)]


@pytest.mark.parametrize(
    "clips, windows",
    [
        ({"alpha": 13.8, "charlie": 13.8}, 1),  # with their pauses as long as a window
        ({"alpha": 13.9, "charlie": 13.8}, 2),
    ],
)
def test_clips_fill_a_window_with_their_pauses(ear, tmp_path, capsys, clips, windows):
    _, heard = heard_of(tmp_path, capsys, clips)
    assert len(Ear.calls) == windows and heard == list(clips)


def test_what_is_too_long_for_a_window_or_a_sound_alone_is_left_to_curate(ear, tmp_path, capsys):
    clips = {"alpha": 28.0, "bravo": 28.1, "charlie": 0.11, "delta": 0.09}
    for heard, known in ((2, 0), (0, 2)):
        counts, said = heard_of(tmp_path, capsys, clips)
        wanted = {"heard": heard, "known": known, "left_to_curate": 2}
        assert {k: counts[k] for k in wanted} == wanted and len(said) == 2


@pytest.mark.parametrize("again, heard", [("0.2", "brave"), ("0.19", "bravo")])
def test_a_clip_of_which_more_than_a_share_is_misheard_is_heard_again(
    ear, tmp_path, capsys, again, heard
):
    _, said = heard_of(tmp_path, capsys, {"bravo": 6.0, "charlie": 6.0}, "--again", again)
    assert said == [heard, "charlie"]


NAMES = ["af_bella", "am_puck", "bf_emma", "bm_lewis", "jf_alpha", "jm_kumo"]


def test_a_speaker_depends_on_seed_and_number_alone():
    a, b = draw_speaker(1, 7, NAMES), draw_speaker(1, 7, NAMES)
    assert np.array_equal(a.timbre, b.timbre) and (a.factor, a.speed) == (b.factor, b.speed)
    assert not np.array_equal(a.timbre, draw_speaker(2, 7, NAMES).timbre)
    many = [draw_speaker(1, n, NAMES) for n in range(400)]
    men = np.array([n[1] == "m" for n in NAMES])
    for s in many:
        assert isinstance(s, Speaker)
        assert s.timbre.sum() == pytest.approx(1) and s.prosody.sum() == pytest.approx(1)
        assert 0.84 <= s.factor <= 1.21
    share = np.array([s.timbre[men].sum() for s in many])
    assert 140 <= (share > 0.5).sum() <= 220  # 0.45
    assert np.allclose(share, share.round())  # of one sex
    assert not any(s.factor > 1.1 for s in many if s.timbre[men].sum() == 0)  # higher than people
    assert sum(s.factor == 1 for s in many) > 80
    assert 40 < sum(s.timbre.max() == 1 for s in many) < 130  # voices as they are
    points = np.array([s.timbre[men] for s in many if s.timbre.max() != 1 and s.timbre[men].any()])
    voices = np.eye(3)  # of the men: points vary as they do
    np.testing.assert_allclose(points.mean(0), voices.mean(0), atol=0.15)
    np.testing.assert_allclose(np.cov(points.T), np.cov(voices.T, bias=True), atol=0.06)
    assert not any(s.prosody[4:].any() for s in many)  # of English voices


def test_plain_speakers_are_the_voices_and_one_voice_makes_do():
    for n, name in enumerate(NAMES):
        speaker = draw_speaker(0, n, NAMES, plain=True)
        assert NAMES[int(np.argmax(speaker.timbre))] == name
        assert speaker.timbre.max() == speaker.prosody.max() == speaker.factor == speaker.speed == 1
    for names in (["jm_kumo"], ["af_bella", "jm_kumo"]):  # a sex without another, or without any
        for n in range(40):
            assert draw_speaker(0, n, names).timbre.sum() == pytest.approx(1)


def test_a_wave_is_trimmed_and_brought_to_a_level():
    tone = 0.3 * np.sin(np.arange(24_000) * 0.05).astype(np.float32)
    wave = finish(
        np.concatenate([np.zeros(12_000, np.float32), tone, np.zeros(12_000, np.float32)])
    )
    assert wave is not None and len(wave) == pytest.approx(24_000 + 2 * 1920, abs=50)
    loud = wave[np.abs(wave) > 0.01]
    assert np.sqrt(np.mean(loud**2)) == pytest.approx(0.09, rel=0.05)
    assert finish(np.zeros(24_000, np.float32)) is None
