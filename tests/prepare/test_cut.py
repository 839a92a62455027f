"""Long recordings become clips with their words: whole sentences, cut in pauses, none lost."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.audio import wave as audio
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode
from nanospeech.errors import DataError, InputError
from nanospeech.prepare import cut as tool
from nanospeech.prepare.cut_folder import ClipFolder
from nanospeech.speech.reference import EDGE, Word

FIXTURES = Path(__file__).parents[1] / "fixtures"
SETTINGS = {
    "speaker": "anna",
    "language": None,
    "whisper": "base",
    "min_seconds": 1.0,
    "max_seconds": 9.0,
}
TIMES = 6  # that the fixtures' clips are read, one after the other: a minute and a quarter


class Tape:
    """A long recording of real clips with pauses between them, and its words with their times.

    Each clip's words are spread evenly over it, so that times are off as a recogniser's are.
    """

    def __init__(self, path: Path, misheard: int = 0):
        samples, _ = find([FIXTURES / "speech-000000.tar", FIXTURES / "libritts"])
        rng = np.random.default_rng(0)
        self.path, self.words, parts, at = path, list[Word](), [], 0.0
        self.texts: list[str] = []
        self.spans: list[tuple[float, float]] = []
        for number, sample in enumerate(samples * TIMES):
            text = f"{sample.text.rstrip('.!?')} {number}."
            wave = audio.trim(decode(sample.audio.read())[0], keep_seconds=0)
            seconds, said = len(wave) / audio.SAMPLE_RATE, text.split()
            for i, word in enumerate(said):
                heard = "something" if misheard and i % misheard == 2 else word
                start, stop = (at + seconds * (i + k) / len(said) for k in (0.05, 0.95))
                self.words.append(Word(heard, start, stop))
            self.texts.append(text)
            self.spans.append((at, at + seconds))
            pause = rng.normal(0, 1e-4, int(rng.uniform(0.25, 0.8) * audio.SAMPLE_RATE))
            parts += [wave, pause.astype(np.float32)]
            at += seconds + len(pause) / audio.SAMPLE_RATE
        audio.write(path, np.concatenate(parts))
        self.seconds, self.heard = at, 0

    def listener(self, folder: ClipFolder, ends: int | None = None) -> tool.Listener:
        """What hears the words of the window that a folder is at; ends as Ctrl-C does."""
        self.heard = 0

        def listen(wave: np.ndarray) -> list[Word]:
            if self.heard == ends:
                raise KeyboardInterrupt
            self.heard += 1
            at = folder.progress(self.path).samples / audio.SAMPLE_RATE
            stop = at + len(wave) / audio.SAMPLE_RATE
            return [
                Word(w.text, w.start - at, w.end - at)
                for w in self.words
                if at <= (w.start + w.end) / 2 < stop
            ]

        return listen

    def cut(self, out: Path, ends: int | None = None, **settings: object) -> ClipFolder:
        folder = ClipFolder(out, SETTINGS | settings)
        tool.cut(self.path, folder, self.listener(folder, ends), lambda _: None)
        return folder


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "metadata.csv").open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


@pytest.fixture(scope="module")
def tape(tmp_path_factory) -> Tape:
    return Tape(tmp_path_factory.mktemp("tape") / "long.flac")


@pytest.fixture(scope="module")
def whole(tape, tmp_path_factory) -> Path:
    """The folder of its clips."""
    out = tmp_path_factory.mktemp("whole") / "clips"
    tape.cut(out)
    return out


def test_the_clips_are_all_of_the_recording_in_its_order(tape, whole):
    assert tape.seconds > 2 * tool.WINDOW / audio.SAMPLE_RATE
    said = " ".join(row["text"] for row in rows(whole)).split()
    lost = (whole / "skipped.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert said == " ".join(tape.texts).split() and not lost
    assert {row["speaker"] for row in rows(whole)} == {"anna"}


def test_clips_begin_and_end_in_the_pauses_and_hold_all_that_is_between(tape, whole):
    edges = [t for span in tape.spans for t in span]
    for row in rows(whole):
        wave = audio.read(whole / row["audio"])
        start = int(Path(row["audio"]).stem.split("_")[1]) / 100
        loud_a, loud_b = (x / audio.SAMPLE_RATE for x in audio.loud_span(wave))
        assert 0.03 * (start > 0) <= loud_a <= 0.12
        assert 0.03 <= len(wave) / audio.SAMPLE_RATE - loud_b <= 0.12
        assert 1 <= loud_b - loud_a <= 9.5
        texts = [i for i, text in enumerate(tape.texts) if text.split()[-1] in row["text"].split()]
        if row["text"] == " ".join(tape.texts[i] for i in texts):  # of whole sentences
            first, last = tape.spans[texts[0]][0], tape.spans[texts[-1]][1]
            assert loud_b - loud_a == pytest.approx(last - first, abs=0.1)
            assert min(abs(start - t) for t in edges) < 0.9
    ends = [row["text"].endswith(tuple(t.split()[-1] for t in tape.texts)) for row in rows(whole)]
    assert np.mean(ends) > 0.6  # others are longer than a clip may be


@pytest.mark.parametrize("ends", [0, 1, 2])
def test_a_stopped_run_goes_on_as_if_nothing_had_been(tape, whole, tmp_path, ends):
    out = tmp_path / "clips"
    with pytest.raises(KeyboardInterrupt):
        tape.cut(out, ends)
    with (out / "metadata.csv").open("a", encoding="utf-8") as f:  # of the window that it was at
        f.write("long_9999999.flac,never saved,anna\r\n" * bool(ends))
        if ends:
            [known] = json.loads((out / ".cut.json").read_text())["recordings"].values()
            f.write(f"long_{known['samples'] * 100 // 24_000:07d}.flac,never saved,anna\r\n")
    tape.cut(out)
    names = sorted(p.name for p in whole.iterdir())
    assert sorted(p.name for p in out.iterdir()) == names
    for name in names:
        if name != ".cut.json":
            assert (out / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize("form", ["excel", "semicolons", "no newline", "renamed"])
def test_a_table_that_was_looked_through_meanwhile_keeps_what_it_says(tape, whole, tmp_path, form):
    """As spreadsheets save it: with a mark of its bytes, other signs, other columns, other rows."""
    out = tmp_path / "clips"
    with pytest.raises(KeyboardInterrupt):
        tape.cut(out, 1)
    before = rows(out)
    mine = [{"text": "Mine, all mine.", "audio": before[0]["audio"], "speaker": "anna", "note": ""}]
    mine += [{**row, "note": "good"} for row in before[2:]]  # one is gone
    if form == "renamed":
        mine[1]["audio"] = "long_mine.flac"
    with (out / "metadata.csv").open("w", newline="", encoding="utf-8-sig") as f:
        writer = csv.DictWriter(f, list(mine[0]), delimiter=";" if form == "semicolons" else ",")
        writer.writeheader()
        writer.writerows(mine)
    if form == "no newline":
        data = (out / "metadata.csv").read_bytes()
        (out / "metadata.csv").write_bytes(data.rstrip())
    tape.cut(out)
    rest = [{**row, "note": ""} for row in rows(whole)[len(before) :]]
    assert rows(out) == [*mine, *rest]


def test_a_table_that_is_none_any_more_is_told_and_stays(tape, tmp_path):
    out = tmp_path / "clips"
    with pytest.raises(KeyboardInterrupt):
        tape.cut(out, 1)
    with (out / "metadata.csv").open("a", encoding="utf-8") as f:
        f.write("long_0000000.flac,Yes, it is,anna\r\n")
    data = (out / "metadata.csv").read_bytes()
    with pytest.raises(InputError, match=r"line \d+ of .* more fields"):
        tape.cut(out)
    assert (out / "metadata.csv").read_bytes() == data
    (out / "metadata.csv").unlink()
    tape.cut(out)  # what is left
    assert rows(out)


def test_a_text_beside_the_recording_gives_the_words(tmp_path):
    tape = Tape(tmp_path / "book.flac", misheard=6)
    unread = "Nobody read this page of the book, on which a printer thanks his friends. " * 4
    (tmp_path / "book.txt").write_text(f"{unread * 10}\n{' '.join(tape.texts)}\n{unread}")
    tape.cut(tmp_path / "clips")
    said = " ".join(row["text"] for row in rows(tmp_path / "clips"))
    assert "something" not in said and "printer" not in said
    whole = " ".join(tape.texts)
    assert all(row["text"] in whole for row in rows(tmp_path / "clips"))
    assert len(said) > 0.8 * len(whole)


def test_what_is_read_otherwise_than_the_text_is_left_out_and_told(tmp_path):
    tape = Tape(tmp_path / "book.flac")
    known = [text for i, text in enumerate(tape.texts) if i != 4]
    (tmp_path / "book.txt").write_text(" ".join(known))
    folder = tape.cut(tmp_path / "clips")
    said = [row["text"] for row in rows(tmp_path / "clips")]
    assert all(text in " ".join(known) for text in said)
    assert {skip.reason for skip in folder.skips} == {"not the words of its text"}
    assert any(tape.texts[4][:20] in skip.detail for skip in folder.skips)
    assert folder.progress(tape.path).words == len(" ".join(known).split())


def test_what_follows_where_a_word_was_parted_is_left_out(tmp_path):
    wave = np.random.default_rng(0).normal(0, 0.1, 36 * 24_000).astype(np.float32)
    audio.write(tmp_path / "a.flac", wave)
    folder = ClipFolder(tmp_path / "clips", SETTINGS | {"max_seconds": 20.0})

    def listen(wave: np.ndarray) -> list[Word]:
        return [Word("word", 0.4 * i, 0.4 * i + 0.4) for i in range(len(wave) // 9_600)]

    tool.cut(tmp_path / "a.flac", folder, listen, lambda _: None)
    assert not rows(tmp_path / "clips")
    assert [skip.reason for skip in folder.skips] == 2 * ["no pause to cut at"]


def test_a_text_without_spaces_does_not_give_the_words(tape, tmp_path):
    """It would be one word, and nothing heard would be it."""
    (tmp_path / "long.flac").write_bytes(tape.path.read_bytes())
    (tmp_path / "long.txt").write_text("他们都回家了", encoding="utf-8")
    folder = ClipFolder(tmp_path / "clips", SETTINGS | {"language": "zh"})
    here = Path(tape.path)
    tape.path = tmp_path / "long.flac"
    try:
        tool.cut(tape.path, folder, tape.listener(folder), lambda _: None)
    finally:
        tape.path = here
    said = "".join(row["text"] for row in rows(tmp_path / "clips"))
    assert "".join(said.split()) == "".join(" ".join(tape.texts).split())


def test_what_is_too_long_or_too_short_between_its_pauses_is_left_out(tape, tmp_path):
    lengths = sorted({round(stop - start, 2) for start, stop in tape.spans})
    least, most = sum(lengths[:2]) / 2, lengths[-2] - 0.02 + 2 * EDGE
    folder = tape.cut(tmp_path / "short", min_seconds=least, max_seconds=most)
    assert {skip.reason for skip in folder.skips} == {"no pause to cut at", "too short"}
    # each is lost by itself
    assert len(rows(tmp_path / "short")) + len(folder.skips) == len(tape.texts)
    longest = [audio.read(tmp_path / "short" / r["audio"]) for r in rows(tmp_path / "short")]
    assert all(len(wave) <= most * audio.SAMPLE_RATE for wave in longest)


def test_silence_at_both_ends_is_no_part_of_a_clip(tmp_path):
    tape = Tape(tmp_path / "long.flac")
    still = np.zeros(12 * audio.SAMPLE_RATE, np.float32)
    audio.write(tape.path, np.concatenate([still, audio.read(tape.path), still]))
    tape.words = [Word(w.text, w.start + 12, w.end + 12) for w in tape.words]
    tape.cut(tmp_path / "clips")
    assert " ".join(row["text"] for row in rows(tmp_path / "clips")) == " ".join(tape.texts)


def test_an_offset_hides_no_pause(tape, whole, tmp_path):
    other = Tape(tmp_path / "long.flac")
    audio.write(other.path, audio.read(other.path) * 0.8 + 0.15)
    other.cut(tmp_path / "clips")
    assert [r["text"] for r in rows(tmp_path / "clips")] == [r["text"] for r in rows(whole)]
    means = [np.mean(audio.read(tmp_path / "clips" / r["audio"])) for r in rows(tmp_path / "clips")]
    assert np.abs(means).max() < 1e-3


@pytest.mark.parametrize("folder", ["clips", "."])
def test_the_clips_are_no_recordings_where_they_lie_among_these(tape, tmp_path, folder):
    (tmp_path / "long.flac").write_bytes(tape.path.read_bytes())
    out = tmp_path / folder
    assert tool.recordings_of([tmp_path], out) == [tmp_path / "long.flac"]
    tape.cut(out)
    assert tool.recordings_of([tmp_path], out) == [tmp_path / "long.flac"]
    with pytest.raises(DataError, match="there are no recordings"):
        tool.recordings_of(out.glob("*_*.flac"), out)
    (tmp_path / "day").mkdir()
    (dated := tmp_path / "day" / "talk_20260101.flac").write_bytes(b"")  # as a clip is called
    (out / "long_10000000.flac").write_bytes(b"")  # of the 28th hour
    found = tool.recordings_of([tmp_path, tmp_path / "long.flac"], out)
    assert found == [dated, tmp_path / "long.flac"]


def test_a_recording_as_long_as_a_window_is_heard_at_once(tmp_path, monkeypatch):
    wave = np.random.default_rng(0).normal(0, 0.1, 72_000).astype(np.float32)
    audio.write(tmp_path / "a.flac", wave)
    for window, heard in ((72_000, [72_000]), (71_999, [71_999])):
        windows, told = [], []

        def listen(wave: np.ndarray, windows=windows) -> list[Word]:
            windows.append(len(wave))
            return []

        monkeypatch.setattr(tool, "WINDOW", window)
        folder = ClipFolder(tmp_path / str(window), SETTINGS)
        tool.cut(tmp_path / "a.flac", folder, listen, told.append)
        assert sum(told) == pytest.approx(3.0)
        assert windows[:1] == heard and (len(windows) == 1) == (window == 72_000)


def test_unsure_words_are_left_out(tape, tmp_path):
    folder = ClipFolder(tmp_path / "clips", SETTINGS)
    sure = tape.listener(folder)

    def doubtful(wave: np.ndarray) -> list[Word]:
        return [Word(w.text, w.start, w.end, 0.4) for w in sure(wave)]

    tool.cut(tape.path, folder, doubtful, lambda _: None)
    assert not rows(tmp_path / "clips") and {s.reason for s in folder.skips} == {"unsure words"}


def run(capsys, *words: object) -> tuple[int, str, str]:
    code = tool.main([str(w) for w in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_cuts_adds_and_is_done(tape, tmp_path, monkeypatch, capsys):
    out = tmp_path / "clips"
    folder: list[ClipFolder] = []
    plain = ClipFolder.__post_init__

    def kept(self: ClipFolder) -> None:
        folder[:] = [self]
        plain(self)

    monkeypatch.setattr(ClipFolder, "__post_init__", kept)
    monkeypatch.setattr(tool, "whisper_of", lambda *_: lambda w: tape.listener(folder[0])(w))
    words = (tape.path, "--out", out, "--speaker", "anna", "--language", "de")
    code, told, _ = run(capsys, *words)
    counts = json.loads(told)
    assert code == 0 and counts["clips"] == len(rows(out)) and counts["minutes"] > 1
    samples, skips = find([out])  # as every other tool reads it
    assert len(samples) == counts["clips"] and not skips
    assert {(s.speaker, s.extra["language"]) for s in samples} == {("anna", "de")}

    monkeypatch.setattr(tool, "whisper_of", lambda *_: pytest.fail("nothing is left to hear"))
    assert json.loads(run(capsys, *words)[1]) == counts
    fresh = (*words[:2], tmp_path / "fresh", "--language", "de")
    monkeypatch.undo()  # a misspelt model or language is no setting to be held to
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, _, error = run(capsys, *fresh, "--whisper", "smal")
    assert code == 2 and not list((tmp_path / "fresh").iterdir())
    code, _, error = run(capsys, *words, "--max-seconds", 5)
    assert code == 2 and "--max-seconds 12" in error
    code, _, error = run(capsys, *words[:-2])
    assert code == 2 and "was cut with --language de; give" in error
    code, _, error = run(capsys, *words[:-2], "--whisper", "small", "--language", "de")
    assert code == 2 and "was cut with --whisper base; give" in error
    ClipFolder(tmp_path / "unnamed", SETTINGS | {"speaker": None}).save()
    with pytest.raises(InputError, match="was cut with no --speaker; give"):
        ClipFolder(tmp_path / "unnamed", SETTINGS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata.csv").write_text("audio,text\n")
    code, _, error = run(capsys, tape.path, "--out", tmp_path / "other")
    assert code == 2 and "something else" in error


def test_what_cannot_be_cut_is_told(tmp_path, tape, capsys):
    for words, told in (
        ((tmp_path / "none.mp3", "--out", tmp_path / "a"), "there is no file or folder"),
        ((tmp_path, "--out", tmp_path / "a"), "there are no recordings"),
        ((tape.path, "--out", tmp_path / "a", "--max-seconds", 30), "at most 20"),
        ((tape.path, "--out", tmp_path / "a", "--min-seconds", 0), "more than 0"),
        (
            (tape.path, "--out", tmp_path / "a", "--min-seconds", 5, "--max-seconds", 5),
            "the second well above the first",
        ),
        ((tape.path, "--out", tmp_path / "a", "--threads", 0), "at least 1"),
        ((tape.path, "--out", tmp_path / "a", "--language", "x1y2"), "x1y2"),
    ):
        code, _, error = run(capsys, *words)
        assert code == 2 and told in error, error
    (tmp_path / "noise.wav").write_bytes(b"no audio")
    code, _, error = run(
        capsys, tmp_path / "noise.wav", "--out", tmp_path / "b", "--max-seconds", 20
    )
    assert code == 2 and "noise.wav" in error and "none of the recordings" in error


def test_a_recording_in_which_nobody_speaks_is_told_so(tmp_path, monkeypatch, capsys):
    """It was said that there are no recordings."""

    def listen(wave: np.ndarray) -> list[Word]:
        assert not audio.is_silent(wave)  # of which a recogniser makes words
        return []

    monkeypatch.setattr(tool, "whisper_of", lambda *_: listen)
    audio.write(tmp_path / "still.wav", np.zeros(48_000, np.float32))
    audio.write(tmp_path / "music.wav", np.sin(np.arange(96_000) / 9).astype(np.float32) / 2)
    for name in ("still.wav", "music.wav"):
        for _ in range(2):
            words = (tmp_path / name, "--out", tmp_path / f"{name}.out")
            code, told, error = run(capsys, *words, "--whisper", tmp_path / "small")
            assert (code, told) == (2, "") and f"no words are heard in {tmp_path / name}" in error
        state = json.loads((tmp_path / f"{name}.out" / ".cut.json").read_text())
        assert state["settings"]["whisper"] == "small"


def test_recordings_of_one_name_have_clips_of_their_own_and_changed_ones_are_refused(tmp_path):
    folder = ClipFolder(tmp_path / "clips", SETTINGS)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.wav").write_bytes(b"1234")
    names = [folder.progress(tmp_path / name / "one.wav").name for name in ("a", "b", "c", "a")]
    assert names == ["one", "one-2", "one-3", "one"]
    folder.progress(tmp_path / "a" / "one.wav").samples = 2
    (tmp_path / "a" / "one.wav").write_bytes(b"12345")
    with pytest.raises(InputError, match="has changed"):
        folder.progress(tmp_path / "a" / "one.wav")


def test_recordings_that_were_moved_are_not_cut_again(tmp_path):
    before = tmp_path / "before"
    before.mkdir()
    (before / "one.wav").write_bytes(b"1234")
    (before / "ONE.flac").write_bytes(b"1234")  # is one file with the clips of the other on a Mac
    folder = ClipFolder(tmp_path / "clips", SETTINGS)
    names = [folder.progress(before / name).name for name in ("one.wav", "ONE.flac")]
    assert names == ["one", "ONE-2"]
    before.rename(tmp_path / "after")
    for name, own in zip(("one.wav", "ONE.flac"), names):
        assert folder.progress(tmp_path / "after" / name).name == own
    assert len(folder.recordings) == 2
    (tmp_path / "One.mp3").write_bytes(b"12345")
    assert folder.progress(tmp_path / "One.mp3").name == "One-3"


def test_a_recording_that_is_damaged_later_on_keeps_what_was_before(tape, tmp_path):
    data = tape.path.read_bytes()
    (tmp_path / "long.flac").write_bytes(data[: len(data) * 2 // 3])
    short = Tape(tmp_path / "whole.flac")
    short.path = tmp_path / "long.flac"
    folder = short.cut(tmp_path / "clips")
    said = " ".join(row["text"] for row in rows(tmp_path / "clips"))
    assert " ".join(tape.texts).startswith(said[:-40]) and len(said) > 300
    assert folder.progress(short.path).done and folder.skips[-1].reason == "damaged"


def test_one_that_cannot_be_read_keeps_no_other_from_being_cut(tape, tmp_path, monkeypatch, capsys):
    out, bad = tmp_path / "clips", tmp_path / "a.wav"
    sf.write(bad, np.full(24_000, np.nan, np.float32), 24_000, "FLOAT")
    (tmp_path / "b.flac").write_bytes(tape.path.read_bytes())
    (tmp_path / "b.txt").write_bytes("Words of a book".encode("utf-16"))
    words = [Word("Hello", 0.1, 0.9), Word("there.", 0.9, 1.8)]
    monkeypatch.setattr(tool, "whisper_of", lambda *_: lambda _: words)
    audio.write(tmp_path / "c.flac", audio.read(tape.path)[: 2 * 24_000])
    recordings = (bad, tmp_path / "b.flac", tmp_path / "c.flac")
    code, told, error = run(capsys, *recordings, "--out", out)
    assert code == 0 and "b.txt as UTF-8" in error and "not numbers" in error
    assert json.loads(told)["skipped"] == {"damaged": 1}
    assert [row["audio"] for row in rows(out)] == ["c_0000000.flac"]
    assert rows(out)[0].keys() == {"audio", "text"}
    audio.write(bad, audio.read(tmp_path / "c.flac"))  # once it is mended
    assert run(capsys, *recordings, "--out", out)[0] == 0
    assert sorted(row["audio"] for row in rows(out)) == ["a_0000000.flac", "c_0000000.flac"]


def test_clips_do_not_overlap(whole):
    spans = []
    for row in rows(whole):
        start = int(Path(row["audio"]).stem.split("_")[1]) / 100
        spans.append((start, start + len(audio.read(whole / row["audio"])) / audio.SAMPLE_RATE))
    assert all(a[1] <= b[0] + 0.25 for a, b in pairwise(spans))
