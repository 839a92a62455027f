"""Books: an EPUB to an audiobook and back, and what is kept of one that stopped."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nanospeech.audio import wave as audio
from nanospeech.book.joining import Chapter, Placed, chapter_waves, heard_words, lay_out
from nanospeech.book.narrate import Target, remove_renamed
from nanospeech.book.passages import cut_passages
from nanospeech.book.work import Work
from nanospeech.commands.book import main
from nanospeech.errors import InputError
from nanospeech.output import OutputOptions
from tests.conftest import needs, tone

from .epubs import NAV, link, make_epub, png

RATE = 24_000
FAST = ("--backend", "torch", "--device", "cpu", "--steps", "1", "--voice", "tone", "--cfg", "0")
FAST += ("--duration", "rule")  # which is soonest told
PAGES = {
    "one.xhtml": "<h1>The start</h1><p>hello there, general.</p><p>it is late.</p>",
    "two.xhtml": "<p>the second one is short.</p>",
    "three.xhtml": "<h1>At last</h1><p>and this is the end.</p>",
}


@pytest.fixture
def book(tmp_path) -> Path:
    nav = NAV.format(
        link("Start", "one.xhtml") + link("Next/2", "two.xhtml") + link("Last", "three.xhtml"), ""
    )
    return make_epub(tmp_path / "b.epub", PAGES, nav=nav, cover=png())


@pytest.fixture
def run(tiny_release, capsys):
    """run(file, output, more flags) -> exit code and what was said."""
    needs("torch")

    def run(file: Path, output: Path, *flags: str) -> tuple[int, str]:
        words = [str(file), "--output", str(output), "--model", str(tiny_release), *FAST, *flags]
        return main(words), capsys.readouterr().err

    return run


def test_an_audiobook_has_its_chapters_facts_cover_and_speech(book, run, tmp_path, monkeypatch):
    av = pytest.importorskip("av", reason="it is of the extra book")
    monkeypatch.chdir(tmp_path)
    target = Path("Part: b.m4b")  # which FFmpeg would take for an address
    code, said = run(book, target, "--subtitles", "srt")
    assert code == 0 and "3 chapters" in said and not Path("Part: b.m4b.work").exists()
    assert "% written|" in said
    with av.open(str(target.absolute())) as made:
        marks = made.chapters()
        assert [m["metadata"]["title"] for m in marks] == ["Start", "Next/2", "Last"]
        ends = [float(m["end"] * m["time_base"]) for m in marks]
        starts = [float(m["start"] * m["time_base"]) for m in marks]
        assert starts[0] == 0 and starts[1:] == pytest.approx(ends[:-1], abs=0.002)
        assert made.duration / 1e6 == pytest.approx(ends[-1], abs=0.05)
        facts = made.metadata
        assert facts["title"] == "The Käfer" and facts["artist"] == "Ann Onym, Bob"
        assert facts["genre"] == "Audiobook" and facts["major_brand"] == "M4B "
        (stream,) = made.streams.audio
        assert stream.metadata["language"] == "eng" and stream.codec_context.name == "aac"
        (picture,) = made.streams.video
        assert picture.disposition == av.stream.Disposition.attached_pic
        packets = list(made.demux(picture))
        assert bytes(packets[0]) == png()
    with av.open(str(target.absolute())) as made:
        wave = np.concatenate([f.to_ndarray()[0] for f in made.decode(audio=0)])
    assert len(wave) / RATE == pytest.approx(ends[-1], abs=0.1)
    for start, end in zip(starts, ends):  # silence, speech, silence
        a, b = int(start * RATE), int(end * RATE)
        assert audio.rms(wave[a : a + RATE // 3]) < 1e-3 > audio.rms(wave[b - RATE : b])
        assert audio.rms(wave[a + RATE // 2 : b - 3 * RATE // 2]) > 0.01
    cues = Path("Part: b.srt").read_text("utf-8").strip().split("\n\n")
    assert "The start" in cues[0] and cues[-1].endswith("and this is the end.")
    hours, minutes, seconds = cues[-1].split("\n")[1].split(" --> ")[0].split(":")
    assert starts[2] < 60 * int(minutes) + float(seconds.replace(",", ".")) < ends[2]
    code, said = run(book, target)
    assert code == 2 and "add --overwrite" in said


def test_a_damaged_cover_does_not_cost_the_book(run, tmp_path, caplog):
    file, output = make_epub(tmp_path / "b.epub", PAGES, cover=png()[:60]), tmp_path / "b.m4b"
    code, said = run(file, output, "--quiet")
    assert code == 0 and output.is_file(), said
    assert "left out the cover" in caplog.text


def test_a_folder_has_a_file_for_each_chapter_and_a_playlist(book, run, tmp_path):
    target = tmp_path / "out"
    code, said = run(book, target, "--chapters", "2-3", "--format", "mp3", "--title", "Mine")
    assert code == 0, said
    names = ["02 Next 2.mp3", "03 Last.mp3"]
    assert sorted(p.name for p in target.iterdir()) == [*names, "cover.png", "playlist.m3u8"]
    lines = (target / "playlist.m3u8").read_text("utf-8").splitlines()
    assert lines[:2] == ["#EXTM3U", "#PLAYLIST:Mine"] and [lines[3], lines[5]] == names
    with soundfile.SoundFile(str(target / names[1])) as file:
        assert file.title == "Last" and file.album == "Mine" and file.artist == "Ann Onym, Bob"
        seconds = file.frames / file.samplerate
    assert lines[4] == f"#EXTINF:{round(seconds)},Last"


def test_a_chapter_that_is_read_again_leaves_the_others_in_the_playlist(book, run, tmp_path):
    target = tmp_path / "out"
    playlist, names = target / "playlist.m3u8", ["01 Start.mp3", "02 Next 2.mp3", "03 Last.mp3"]
    assert run(book, target, "--format", "mp3")[0] == 0
    whole = playlist.read_text("utf-8")
    assert whole.splitlines()[3::2] == names
    assert run(book, target, "--format", "mp3", "--overwrite", "--chapters", "2")[0] == 0
    assert playlist.read_text("utf-8") == whole
    (target / names[0]).unlink()
    hostile = "#EXTINF:3,Up\n../03 Last.mp3\n#EXTINF:1,Far\n99 Far.mp3\n#EXTINF:x,\n01.mp3\n"
    playlist.write_text(whole + hostile, "utf-8")
    assert run(book, target, "--format", "mp3", "--overwrite", "--chapters", "2")[0] == 0
    assert playlist.read_text("utf-8").splitlines()[3::2] == names[1:], "a file is gone"
    assert run(book, target, "--format", "opus", "--overwrite", "--chapters", "1")[0] == 0
    assert playlist.read_text("utf-8").splitlines()[3::2] == ["01 Start.opus"]
    assert run(book, target, "--overwrite", "--chapters", "2", "--title", "Another")[0] == 0
    assert playlist.read_text("utf-8").splitlines()[3::2] == ["02 Next 2.opus"], "another book"


def test_another_title_or_author_reaches_chapters_that_are_finished(book, run, tmp_path):
    for title, spoken in (("One", 3), ("Two", 0)):
        flags = ("--keep-work", "--overwrite", "--title", title, "--author", f"{title} Onym")
        code, said = run(book, tmp_path / "out", *flags)
        assert code == 0 and f"{spoken} passages spoken" in said
        paths = [*(tmp_path / "out").glob("*.opus")]
        assert len(paths) == 3
        for path in paths:
            with soundfile.SoundFile(path) as file:
                assert (file.album, file.artist) == (title, f"{title} Onym")


def test_speech_of_other_types_and_bits_is_not_mixed(run, tmp_path):
    path = tmp_path / "b.md"
    path.write_text("hello there.", "utf-8")
    for flags in ([], ["--dtype", "float16"], ["--quantize", "4"], ["--quantize", "8"]):
        for spoken in (1, 0):
            code, said = run(path, tmp_path / "out", "--keep-work", "--overwrite", *flags)
            assert code == 0 and f"{spoken} passage" in said, said


def test_a_chapter_whose_title_changed_leaves_no_file_of_the_old_one(run, tmp_path):
    path, target = tmp_path / "b.md", tmp_path / "out"
    for titles in (("Teh start", "End"), ("The start", "Within", "End"), ("The Start", "End")):
        path.write_text("\n\n".join(f"# {title}\n\nhello there." for title in titles), "utf-8")
        code, said = run(path, target, "--keep-work", "--chapters", f"1-{len(titles)}")
        assert code == 0, said
        names = [f"{n:02d} {title}.opus" for n, title in enumerate(titles, 1)]
        listed = (target / "playlist.m3u8").read_text("utf-8").splitlines()[3::2]
        assert listed == names and {*names} <= {p.name for p in target.iterdir()}
        assert "Teh start" in titles or not [*target.glob("*Teh*")]
    assert not (target / "02 Within.opus").exists()
    assert run(path, target, "--keep-work", "--format", "mp3")[0] == 0
    assert len([*target.glob("*.opus")]) >= 2, "of another format: both may be wanted"


@pytest.mark.parametrize(
    ("new", "left"),
    [
        ("01 New.opus", {"01 Old.mp3"}),
        ("01 OLD.opus", {"01 Old.opus", "01 Old.srt", "01 Old.mp3"}),
        ("01 New.mp3", {"01 Old.opus", "01 Old.srt", "01 Old.mp3"}),
    ],
)
def test_a_renamed_chapter_leaves_what_may_be_wanted(tmp_path, new, left):
    for name in ("01 Old.opus", "01 Old.srt", "01 Old.mp3"):
        (tmp_path / name).touch()
    remove_renamed(tmp_path / "01 Old.opus", tmp_path / new)
    assert {path.name for path in tmp_path.iterdir()} == left


def test_a_damaged_chapter_is_reported_and_the_rest_is_read(run, tmp_path):
    pages = {**PAGES, "bad.xhtml": "<p>never heard</p>"}
    path = make_epub(tmp_path / "b.epub", pages, more={"OEBPS/bad.xhtml": b"a" * 10_000_000})
    target = tmp_path / "out"
    code, said = run(path, target)
    assert code == 1 and "chapter 4, Chapter 4: OEBPS/bad.xhtml grows from" in said
    assert len(list(target.glob("*.opus"))) == 3 and "3 chapters" in said
    # what was spoken is kept for a mended file
    make_epub(path, {**PAGES, "bad.xhtml": "<p>it is heard now.</p>"})
    code, said = run(path, target)
    assert code == 0 and "1 passage spoken, 3 there already" in said
    assert len(list(target.glob("*.opus"))) == 4 and not (tmp_path / "out.work").exists()


def test_some_chapters_leave_what_is_kept_of_the_others(book, run, tmp_path):
    target, work = tmp_path / "out", tmp_path / "out.work"
    assert run(book, target, "--keep-work")[0] == 0
    shutil.rmtree(target)  # as after a book that was stopped
    assert run(book, target, "--chapters", "1")[0] == 0 and work.exists()
    code, said = run(book, target)
    assert code == 0 and "0 passages spoken, 3 there already" in said and not work.exists()


def test_words_that_the_model_lacks_cost_their_passage_alone(run, tmp_path):
    path = tmp_path / "b.md"
    path.write_text("hello there.\n\n" + "漢" * 900 + "\n\nthe end.\n", "utf-8")
    code, said = run(path, tmp_path / "out")
    assert code == 1 and "left out '漢漢" in said and "out: 1 chapter, " in said


def test_a_marked_speaker_has_a_voice_and_an_unknown_one_costs_the_chapter(
    tiny_release, run, tmp_path
):
    folder = tmp_path / "model"
    shutil.copytree(tiny_release, folder)
    for kind in ("wav", "txt"):
        shutil.copy(folder / "voices" / f"tone.{kind}", folder / "voices" / f"other.{kind}")
    soundfile.write(folder / "voices" / "other.wav", tone(1.0, 220), RATE)
    path = tmp_path / "b.md"
    flags = ("--model", str(folder), "--keep-work")
    path.write_text("# One\n\nhello there. [voice: other]hello there.[/voice]\n", "utf-8")
    code, said = run(path, tmp_path / "out", *flags)
    assert code == 0 and "2 passages spoken" in said
    # the book's own voice says the same words, which are not spoken again, for the other's
    path.write_text("# One\n\nhello there.\n\n[voice: nobody]hello.[/voice]\n", "utf-8")
    code, said = run(path, tmp_path / "other", *flags)
    where = "[voice: nobody] at line 5, column 1: voice 'nobody' not found"
    assert code == 2 and f"chapter 1, One: {where}" in said


@pytest.mark.parametrize("name", ["b.md", "b.txt", "b.epub"])
def test_markup_of_a_book_is_spoken_unless_it_is_to_be_text(run, tmp_path, name):
    path, found = tmp_path / name, {}
    for pause in ("1s", "3s"):
        text = f"hello there. [pause {pause}] [slow]hello there.[/slow] [pause for effect]"
        if name == "b.epub":
            make_epub(path, {"one.xhtml": f"<p>{text}</p>"})
        else:
            path.write_text(text, "utf-8")
        for flag in ("--quiet", "--no-markup"):
            target = tmp_path / f"out{pause}{flag}"
            code, said = run(path, target, "--keep-work", flag)
            assert code == 0, said
            (kept,) = (target.with_name(target.name + ".work") / "passages").glob("*.json")
            found[pause, flag] = json.loads(kept.read_text())["samples"] / RATE
    assert found["3s", "--quiet"] - found["1s", "--quiet"] == pytest.approx(2, abs=0.1)
    assert abs(found["3s", "--no-markup"] - found["1s", "--no-markup"]) < 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ctrl_c_loses_no_passage_and_the_same_command_goes_on(tiny_release, tmp_path, run, name):
    path, target = tmp_path / "b.md", tmp_path / "out"
    chapters = (f"# {n}\n\n" + "hello there, general. " * 3 for n in range(200))
    path.write_text("\n\n".join(chapters), "utf-8")
    words = [str(path), "--output", str(target), "--model", str(tiny_release), *FAST]
    words += ["--backend", "onnx"]  # which is imported soonest
    command = [sys.executable, "-m", "nanospeech", "book", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    kept = tmp_path / "out.work" / "passages"
    ended = time.monotonic() + 60
    while len(list(kept.glob("*.json"))) < 2 and time.monotonic() < ended:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(getattr(signal, name))
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "the same command goes on" in said
    there = {p: p.stat().st_mtime_ns for p in kept.glob("*.json")}
    assert 2 <= len(there) < 200 and f"{len(there)} of 200 passages are kept" in said
    assert not [*kept.glob(".*"), *target.glob(".*")], "no file that is not whole"
    assert not (tmp_path / "out.work" / "run.lock").exists()
    flags = ["--backend", "onnx", "--keep-work", "--chapters", f"1-{len(there)}"]
    code, said = run(path, target, *flags)
    assert code == 0 and f"0 passages spoken, {len(there)} there already" in said
    assert {p: p.stat().st_mtime_ns for p in there} == there


def test_a_full_disk_loses_no_passage(tmp_path, run):
    path, target = tmp_path / "b.md", tmp_path / "out"
    path.write_text("# One\n\nhello.\n\n# Two\n\n" + "hello there, general. " * 20, "utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))  # larger files: as on a full disk
    try:
        code, said = run(path, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2 and "the disk is full" in said and "1 of 2 passages are kept" in said
    kept = tmp_path / "out.work" / "passages"
    assert len(list(kept.iterdir())) == 2
    code, said = run(path, target)
    assert code == 0 and "1 passage spoken, 1 there already" in said


def test_a_kept_passage_that_is_damaged_is_made_anew(tmp_path, run):
    path, target = tmp_path / "b.md", tmp_path / "out"
    path.write_text("hello there.", "utf-8")
    assert run(path, target, "--keep-work")[0] == 0
    (flac,) = (tmp_path / "out.work" / "passages").glob("*.flac")
    whole = flac.read_bytes()
    flac.write_bytes(whole[: len(whole) // 2])
    (target / "01 Part 1.opus").unlink()
    code, said = run(path, target, "--keep-work")
    assert code == 2 and "the same command makes it anew" in said
    assert run(path, target, "--keep-work")[0] == 0 and flac.read_bytes() == whole


def test_pauses_between_passages_are_those_asked_for(tmp_path):
    work = Work(tmp_path / "w", RATE)
    rest = np.zeros(RATE, np.float32)
    for name in "ab":
        work.save(name, np.concatenate([rest, tone(0.5), rest]))
    output = OutputOptions(pause_paragraph=0.7, pause_sentence=None)
    chapter = lay_out(["a", "b", "a"], ["paragraph", "sentence", "paragraph"], work, output, 2.0)
    wave = np.concatenate(list(chapter_waves(chapter, work)))
    assert len(wave) == chapter.samples and chapter.placed[1].low > 0
    loud = np.abs(wave) > 1e-3
    edges = np.flatnonzero(np.diff(loud.astype(int)))
    gaps = [b - a for a, b in pairwise(edges) if b - a > RATE // 10]
    # that at speed 1 divided by the speed; the default where it is off
    assert [g / RATE for g in gaps] == pytest.approx([0.35, 0.21], abs=0.012)


@pytest.mark.parametrize(
    "after, speed, wanted", [("", 1.0, 0.06), ("sentence", 4.0, 0.105), (0.02, 1.0, 0.02)]
)
def test_a_pause_may_be_shorter_than_the_silence_that_passages_have(tmp_path, after, speed, wanted):
    """There were 170 ms of it at least, even within a clause."""
    work = Work(tmp_path / "w", RATE)
    rest = np.zeros(RATE, np.float32)
    work.save("a", np.concatenate([rest, tone(0.5), rest]), words=[("Hi.", 1.0, 1.5, 0, 0)])
    chapter = lay_out(["a"] * 3, [after] * 3, work, OutputOptions(), speed)
    wave = np.concatenate(list(chapter_waves(chapter, work)))
    edges = np.flatnonzero(np.diff((np.abs(wave) > 1e-3).astype(int)))
    gaps = [(a / RATE, b / RATE) for a, b in pairwise(edges) if b - a > RATE // 100]
    assert len(wave) == chapter.samples
    assert [b - a for a, b in gaps] == pytest.approx([wanted] * 2, abs=0.012)
    words = heard_words([chapter], work)
    assert [word.end for word in words[:2]] == pytest.approx([a for a, _ in gaps], abs=0.01)
    assert [word.start for word in words[1:]] == pytest.approx([b for _, b in gaps], abs=0.01)


@pytest.mark.parametrize("asked, silent", [("", 0.5), ("[pause 4s]", 4.0)])
def test_a_pause_is_kept_at_either_end_of_a_chapter(tmp_path, asked, silent):
    (passage,) = cut_passages(f"{asked}hello there.\n\n{asked}")
    work = Work(tmp_path / "w", RATE)
    work.save("a", np.concatenate([tone(0.5), np.zeros(RATE // 4, np.float32)]))
    chapter = lay_out(
        ["a"] * 3, ["sentence", "", passage.after], work, OutputOptions(), 2.0, passage.before
    )
    assert chapter.placed[0].low == 0  # it begins with its sound
    loud = np.flatnonzero(np.abs(np.concatenate(list(chapter_waves(chapter, work)))) > 1e-3)
    ends = loud[0] / RATE, (chapter.samples - loud[-1]) / RATE
    kept = chapter.placed[0].high / RATE - 0.5  # of the silence that the passage ends in
    assert 0.1 < kept < 0.25
    assert ends == pytest.approx((silent, max(silent, 1.5 + kept)), abs=0.05)


def test_words_are_heard_in_the_chapter_where_they_are_said_to_be(tmp_path):
    work = Work(tmp_path / "w", RATE)
    rest = np.zeros(RATE, np.float32)
    rows = [("Hi,", 1.0, 1.3, 0, 0), ("you.", 1.3, 1.5, 0, 4)]
    work.save("a", np.concatenate([rest, tone(0.5), rest]), words=rows)
    chapter = lay_out(["a"] * 3, ["paragraph"] * 3, work, OutputOptions(), 1.0)
    wave = np.concatenate(list(chapter_waves(chapter, work)))
    first, second, last = chapter.placed
    start, stop = (work.facts("a")[name] for name in ("start", "stop"))
    assert (first.start, first.low, first.high) == (12_000, start - 1200, stop + 2880)
    assert second.start + start - second.low - (first.start + stop - first.low) == 19_200
    assert chapter.samples == last.start + last.high - last.low + 36_000
    words = heard_words([Chapter((), 10 * RATE), chapter], work)
    assert [w.text for w in words] == ["Hi,", "you."] * 3
    assert [w.chunk for w in words] == [0, 0, 1, 1, 2, 2]
    assert [w.place for w in words] == [0, 4, 10, 14, 20, 24]
    assert [w.end - w.start for w in words] == pytest.approx([0.3, 0.2] * 3)
    for word in words[::2]:
        at = round((word.start - 10) * RATE)
        assert audio.rms(wave[at - 480 : at]) < 1e-4 < 0.01 < audio.rms(wave[at : at + 4800])


def test_a_passage_that_is_cut_within_a_sound_does_not_click(tmp_path):
    work = Work(tmp_path / "w", RATE)
    work.save("a", np.full(3000, 0.5, np.float32))
    chapter = Chapter((Placed("a", 100, 500, 2500),), 3000)
    wave = np.concatenate(list(chapter_waves(chapter, work)))
    assert not wave[:100].any() and not wave[2100:].any()
    assert np.allclose(wave[220:1980], 0.5, atol=1e-4)  # but for 5 ms
    assert max(wave[100], wave[2099]) < 0.01 < 0.2 < min(wave[160], wave[2039]) < 0.3


def test_memory_does_not_grow_with_the_book(tmp_path):
    work = Work(tmp_path / "w", RATE)
    work.save("a", tone(10))

    def peak(count: int) -> int:
        placed = tuple(Placed("a", 11 * RATE * i, 0, 10 * RATE) for i in range(count))
        chapter = Chapter(placed, 11 * RATE * count)
        tracemalloc.start()
        samples = sum(len(wave) for wave in chapter_waves(chapter, work))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert samples == chapter.samples
        return highest

    assert peak(60) < 1.1 * peak(6)


def test_a_book_in_another_language_is_noted(run, tmp_path):
    path = tmp_path / "b.md"
    for code, noted in ("fr", True), ("en-US", False), ("", False), ("klingon!", False):
        path.write_text(f"---\nlanguage: {code}\n---\nhello there.\n", "utf-8")
        said = run(path, tmp_path / "out", "--overwrite")[1]
        assert ("the book is in fr, and read by the rules of en" in said) == noted, code


def test_a_folder_may_have_a_dot_in_its_name(tmp_path):
    (tmp_path / "old.opus").mkdir()
    for name in "Vol. 1", "v1.2", "J.R.R", "old.opus":
        Target(tmp_path / name, overwrite=True).check()
    with pytest.raises(InputError, match="or a folder"):
        Target(tmp_path / "new.opus").check()


def test_a_book_goes_into_an_empty_folder_as_a_run_that_kept_nothing_leaves_it(
    run, tmp_path, monkeypatch
):
    path = tmp_path / "b.md"
    path.write_text("hello there.", "utf-8")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    assert Target(Path(".")).work == Target(tmp_path / "out").work
    assert Target(Path("..")).work == Target(tmp_path).work
    assert run(path, Path("."))[0] == 0
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".work")] == []
    code, said = run(path, Path("."))
    assert code == 2 and "add --overwrite" in said
    assert sorted(os.listdir()) == ["01 Part 1.opus", "playlist.m3u8"]


def test_flags_that_cannot_be_met_are_refused_before_the_model_is_loaded(book, tmp_path, capsys):
    for flags, why in (
        (["--output", str(tmp_path / "a.wav")], "should be a file that ends in .m4b, or a folder"),
        (["--output", str(tmp_path / "no" / "a.m4b")], "there is no folder"),
        ([], "name the audiobook"),
        (["--chapters", "2-9"], "the book has chapters 1 to 3"),
        (["--chapters", "x"], "should be numbers"),
        (["--chapters", "1,3-2"], "--chapters 3-2 should be 2-3: from low to high"),
        (["--depth", "0"], "--depth is 0; choose 1 or more"),
        (["--output", str(tmp_path / "a.m4b"), "--bitrate", "5"], "choose 16 to 320"),
        (["--cover", str(book)], "should be a JPEG or PNG"),
    ):
        assert main([str(book), "--model", "nowhere", *flags]) == 2
        assert why in capsys.readouterr().err
    assert main([str(book), "--list"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "The Käfer - Ann Onym, Bob - en-GB" and "Next/2" in out


def test_a_book_that_cannot_be_spoken_at_all_is_an_error(run, tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("* * *", "utf-8")
    code, said = run(path, tmp_path / "out")
    assert code == 2 and "no chapter can be spoken: there is no text in them" in said
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="damaged"):
        Work(tmp_path / "w", RATE).facts("none")


def test_two_runs_into_one_output_are_not_mixed(book, run, tmp_path):
    target, work = tmp_path / "b", tmp_path / "b.work"
    hold = "import sys, nanospeech.locks as l, pathlib\n"
    hold += "with l.alone(pathlib.Path(sys.argv[1]), '--output', print): print('held', flush=True);"
    hold += " sys.stdin.read()"
    held: dict = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", hold, str(work)], **held) as other:
        assert other.stdout and other.stdout.readline().strip() == b"held"
        code, said = run(book, target, "--chapters", "1")
        assert code == 2 and f"in use by process {other.pid}" in said and "another --output" in said
        assert not target.exists()
    code, said = run(book, target, "--chapters", "1", "--voice", "nobody")
    assert code == 2 and "nobody" in said and not work.exists()
    assert run(book, target, "--chapters", "1")[0] == 0 and not work.exists()
