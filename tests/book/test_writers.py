"""Writers: an audiobook or a folder holds the very samples, names and marks that were given."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nanospeech.book.pages import Book
from nanospeech.book.writers import (
    PLAYLIST,
    Marked,
    Tagged,
    check_whole,
    file_name,
    iso_639_2,
    number_of,
    others_listed,
    without_damaged_cover,
    write_chapter,
    write_cover,
    write_m4b,
    write_playlist,
)
from nanospeech.errors import InputError
from tests.conftest import tone

from .epubs import png

RATE = 24_000
BOOK = Book("The  Käfer", "Ann", "de-AT", (), png())


def heard(av, path: Path) -> np.ndarray:
    with av.open(str(path)) as made:
        return np.concatenate([f.to_ndarray()[0] for f in made.decode(audio=0)])


def test_an_audiobook_holds_the_very_samples_in_their_chapters(tmp_path):
    av = pytest.importorskip("av", reason="it is of the extra book")
    at = np.arange(7000) / RATE
    wave = (0.5 * np.sin(2 * np.pi * (1000 + 5000 * at) * at)).astype("f4")  # it rises
    chapters = [
        Marked("One", 3000, np.split(wave[:3000], [1000, 1024, 1100])),
        Marked("Two", 2500, [wave[3000:5500]]),
        Marked("Three", 1500, [wave[5500:]]),
    ]
    path = tmp_path / "b.m4b"
    write_m4b(path, BOOK, chapters, RATE, 128_000)
    found = heard(av, path)
    assert 7000 <= len(found) < 8 * 1024
    assert np.abs(found[:7000] - wave)[2000:-100].max() < 0.05  # an encoder begins badly
    with av.open(str(path)) as made:
        marks = made.chapters()
        facts, (stream,), (picture,) = made.metadata, made.streams.audio, made.streams.video
        assert stream.metadata["language"] == "deu" and stream.rate == RATE
        (packet,) = [p for p in made.demux(picture) if p.size]
        assert bytes(packet) == png()
        assert picture.disposition == av.stream.Disposition.attached_pic
    assert [mark["metadata"]["title"] for mark in marks] == ["One", "Two", "Three"]
    seconds = [float(mark[edge] * mark["time_base"]) for mark in marks for edge in ("start", "end")]
    wanted = [n / RATE for n in (0, 3000, 3000, 5500, 5500, 7000)]
    assert seconds == pytest.approx(wanted, abs=1e-3)  # marks are in milliseconds
    assert facts["title"] == facts["album"] == BOOK.title and facts["artist"] == "Ann"
    assert facts["genre"] == "Audiobook" and os.listdir(tmp_path) == ["b.m4b"]


def test_an_audiobook_is_cut_at_full_scale_and_has_the_bits_that_are_asked_for(tmp_path):
    av = pytest.importorskip("av", reason="it is of the extra book")
    noise = np.random.default_rng(0).standard_normal(9000).astype("f4") * 0.1
    sizes, plain = [], Book("", "", "", ())
    for bitrate in (16_000, 96_000):
        write_m4b(tmp_path / "n.m4b", plain, [Marked("", 9000, [noise])], RATE, bitrate)
        sizes.append((tmp_path / "n.m4b").stat().st_size)
    assert sizes[1] > 2 * sizes[0]
    with av.open(str(tmp_path / "n.m4b")) as made:
        assert not {"title", "artist", "album"} & set(made.metadata)
        assert not made.streams.video and made.streams.audio[0].metadata["language"] == "und"
    write_m4b(tmp_path / "a.m4b", plain, [Marked("", 9000, [10 * tone(1.0)[:9000]])], RATE)
    low, high = np.percentile(heard(av, tmp_path / "a.m4b")[1000:-1000], [5, 95])
    assert (low, high) == pytest.approx((-1, 1), abs=0.2)


def test_an_audiobook_that_cannot_be_written_leaves_nothing(tmp_path):
    pytest.importorskip("av", reason="it is of the extra book")
    with pytest.raises(InputError, match=r"has 0\.5 of 2\.0 s"):
        write_m4b(tmp_path / "b.m4b", BOOK, [Marked("One", 2 * RATE, [tone(0.5)])], RATE)
    with pytest.raises(InputError, match=r"cannot write .*b\.m4b"):  # AAC has no such rate
        write_m4b(tmp_path / "b.m4b", BOOK, [Marked("One", 100, [tone(0.1)])], 12_345)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("cover", [png()[:20], png()[:60], b"\xff\xd8\xff" + b"abc" * 400, b""])
def test_a_cover_is_left_out_where_it_is_damaged(caplog, cover):
    pytest.importorskip("av", reason="it is of the extra book")
    assert without_damaged_cover(BOOK) is BOOK and not caplog.text
    damaged = Book("B", "A", "en", (), cover)
    assert without_damaged_cover(damaged) == Book("B", "A", "en", ())
    assert caplog.text.count("left out the cover") == bool(cover)


def test_a_chapters_file_has_its_facts_and_is_whole_or_not_there(tmp_path):
    path, book = tmp_path / "02 One.opus", Book("B", "", "en", ())
    write_chapter(path, book, 2, Marked("One", RATE, [tone(0.5), tone(0.5)]), RATE)
    with soundfile.SoundFile(str(path)) as file:
        assert (file.title, file.album, file.artist) == ("One", "B", "")
        assert file.tracknumber == "2" and file.frames / file.samplerate == pytest.approx(
            1, abs=0.01
        )
    path.unlink()
    with pytest.raises(InputError, match=r"has 0\.5 of 1\.0 s"):
        write_chapter(path, book, 2, Marked("One", RATE, [tone(0.5)]), RATE)
    assert not os.listdir(tmp_path)


def test_a_playlist_keeps_other_chapters_of_its_book_that_are_there(tmp_path):
    book = Book("My\n book", "A", "en", (None,) * 10)
    assert [number_of(name) for name in ("12 A.mp3", "a 1.mp3", "")] == [12, 0, 0]
    assert others_listed(tmp_path, book, []) == []
    files = [(f"{n:02d} A.mp3", f"A\n{n}", n + 0.4) for n in (10, 1, 3)]
    for name, *_ in files:
        (tmp_path / name).touch()
    write_playlist(tmp_path, book, files)
    line = ["#EXTINF:1,A 1", "01 A.mp3", "#EXTINF:3,A 3", "03 A.mp3", "#EXTINF:10,A 10", "10 A.mp3"]
    head = ["#EXTM3U", "#PLAYLIST:My book"]
    assert (tmp_path / PLAYLIST).read_bytes() == "\n".join([*head, *line, ""]).encode()
    new = [("03 Ä.mp3", "Ä", 9.6)]
    write_playlist(tmp_path, book, new)
    line[2:4] = ["#EXTINF:10,Ä", "03 Ä.mp3"]
    assert (tmp_path / PLAYLIST).read_text("utf-8").splitlines() == [*head, *line]
    (tmp_path / "01 A.mp3").unlink()
    for hostile in ("/11 A.mp3", "00 A.mp3", "11 A.mp3", "02 A.opus"):
        (tmp_path / hostile.strip("/")).touch()
        line += ["#EXTINF:5,A", hostile]
    (tmp_path / "05 A.mp3").touch()
    line += ["#EXTINF:x,A", "05 A.mp3"]
    (tmp_path / PLAYLIST).write_text("\n".join([*head, *line]), "utf-8")
    assert others_listed(tmp_path, book, new) == [("10 A.mp3", "A 10", 10.0)]
    assert others_listed(tmp_path, Book("Other", "A", "en", book.chapters), new) == []
    (tmp_path / PLAYLIST).write_bytes(b"#EXTM3U\n#PLAYLIST:My book\n\xff")
    assert others_listed(tmp_path, book, new) == []


def test_a_covers_name_tells_its_kind(tmp_path):
    for cover in (png(), b"\xff\xd8\xff"):
        write_cover(tmp_path, cover)
    assert (tmp_path / "cover.png").read_bytes() == png()
    assert (tmp_path / "cover.jpg").read_bytes() == b"\xff\xd8\xff"


def test_names_of_files_and_languages():
    assert file_name(3, "../A: “B”/C?\n", "opus", 9) == "03 A B C.opus"
    assert file_name(1, "\u202e..", "mp3", 9) == "01.mp3"
    assert file_name(2, "हिन्दी: ที่นี่", "mp3", 9) == "02 हिन्दी ที่นี่.mp3"  # whose vowels are marks
    names = [file_name(n, "A", "mp3", 135) for n in range(1, 136)]  # as Moby-Dick
    assert names == sorted(names) and names[10] == "011 A.mp3"
    assert len(os.fsencode(file_name(1, "漢" * 200, "mp3", 9))) < 255
    assert [iso_639_2(n) for n in ("de-AT", "en_GB", "fil", "xx", "")] == [
        *("deu", "eng", "fil", "und", "und")
    ]


def test_what_a_power_cut_left_of_a_chapter_is_written_over(tmp_path):
    path, book = tmp_path / "02 One.opus", Book("B", "A", "en", ())
    with Tagged(path, RATE, {"title": "One", "tracknumber": "2"}) as cut:
        cut.write(tone(0.5))
        shutil.copy(cut.part, tmp_path / "left")
        left = cut.part
    os.replace(tmp_path / "left", left)
    path.unlink()
    write_chapter(path, book, 2, Marked("One", RATE, [tone(1.0)]), RATE)
    assert os.listdir(tmp_path) == ["02 One.opus"]


def test_a_finished_file_that_is_shorter_than_its_speech_is_an_error(tmp_path):
    chapters = [Marked("One", 4 * RATE, []), Marked("Two", 6 * RATE, [])]
    check_whole(tmp_path / "b.m4b", 9.95, chapters, RATE)  # an encoder's frames are not its speech
    with pytest.raises(InputError, match=r"b\.m4b has 9\.8 of 10\.0 s; is the disk full"):
        check_whole(tmp_path / "b.m4b", 9.8, chapters, RATE)
