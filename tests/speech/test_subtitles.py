"""Subtitles: cues that hold every word, in time and in bounds, in formats that others read."""

import json
import random
import re
from itertools import pairwise

import av
import pytest

from nanospeech import InputError
from nanospeech.speech.chunks import Word
from nanospeech.speech.subtitles import LINE, check_subtitles, cues, subtitles, write_subtitles


def spoken(text: str, each: float = 0.3) -> list[Word]:
    """Words of equal lengths; a dash alone has none."""
    words, at = [], 0.5
    for match in re.finditer(r"\S+", text):
        length = each if any(c.isalnum() for c in match[0]) else 0.0
        words.append(Word(match[0], at, at + length, 0, match.start()))
        at += length + (0.4 if match[0][-1] in ".,!?" else 0.02)
    return words


TEXT = (
    "Dr. Hall paid $5 million at 9:30 p.m. — he did. Nobody saw it, and nobody who was there in the"
    " evening of that day, cold and long as it was, would have said a word about what they had seen"
    " on the quay. <Bye> & so on!"
)


def test_cues_are_sentences_of_two_lines():
    found = cues(spoken(TEXT))
    assert found[0].lines == ("Dr. Hall paid $5 million", "at 9:30 p.m. — he did.")
    assert found[-1].lines == ("<Bye> & so on!",)
    assert found[1].lines[0].startswith("Nobody") and len(found) == 4
    assert " ".join(line for cue in found for line in cue.lines) == TEXT


@pytest.mark.parametrize("seed", range(5))
def test_cues_of_any_words_hold_them_all_in_bounds_and_in_order(seed):
    rng = random.Random(seed)
    pieces = ["a", "word,", "and", "supercalifragilistic", "end.", "—", "x" * 100, "Oh!", "e.g."]
    text = " ".join(rng.choice(pieces) for _ in range(rng.randrange(1, 80)))
    words = spoken(text)
    for by_word in (False, True):
        found = cues(words, by_word)
        shown = "".join("".join(cue.lines) for cue in found)
        assert shown.replace(" ", "") == text.replace(" ", "")
        for cue in found:
            assert len(cue.lines) <= 2 and cue.end > cue.start
            assert by_word or all(0 < len(line) <= LINE for line in cue.lines)
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(found))
        assert found[0].start == words[0].start and found[-1].end >= words[-1].end - 1e-9


def test_lines_are_as_full_as_can_be_and_have_the_spaces_of_the_text_alone():
    assert [cue.lines for cue in cues(spoken("x" * 84))] == [("x" * 42, "x" * 42)]
    assert [cue.lines for cue in cues(spoken("x" * 20 + " " + "x" * 21))] == [
        ("x" * 20 + " " + "x" * 21,)
    ]
    long = [Word("x" * 50, 0, 1, 0, 0), Word("好", 1, 1.2, 0, 50)]
    assert [cue.lines for cue in cues(long)] == [("x" * 42, "x" * 8 + "好")]
    words = [Word("你", 0, 0.2, 0, 0), Word("好", 0.2, 0.4, 0, 1), Word("吗", 0.5, 0.7, 0, 3)]
    assert [cue.lines for cue in cues(words)] == [("你好 吗",)]


def test_a_line_rather_ends_after_a_clause_than_in_the_middle():
    said = "One two three four five, six seven eight nine ten eleven twelve"
    assert cues(spoken(said))[0].lines[0] == "One two three four five,"
    assert cues(spoken(said.replace(",", "")))[0].lines[0] == "One two three four five six seven"
    said = "One two three four five six seven eight no, ten eleven twelve or more"
    first, _ = cues(spoken(said))[0].lines  # up to the comma it would have 43 characters
    assert first == "One two three four five six seven"


def test_a_cue_for_each_word_takes_marks_along():
    found = cues(spoken("So — it is."), by_word=True)
    assert [cue.lines for cue in found] == [("So —",), ("it",), ("is.",)]


def test_marks_that_are_not_said_are_in_a_cue_that_lasts():
    words = spoken("— So it is. *** Yes! ***")
    assert [cue.lines[0] for cue in cues(words)] == ["— So it is.", "*** Yes! ***"]
    assert [cue.lines[0] for cue in cues(words, by_word=True)][::3] == ["— So", "Yes! ***"]
    times = [cue.split(" --> ") for cue in re.findall(r".+ --> .+", subtitles(words, "vtt"))]
    assert all(start < end for start, end in times)


def test_signs_of_headings_are_not_shown():
    words = spoken("It was. ## The end It is.")
    for by_word in (False, True):
        assert "#" not in str(cues(words, by_word)) and "The" in str(cues(words, by_word))
    assert cues(spoken("C# has a # 5"), by_word=True)[0].lines == ("C#",)
    assert json.loads(subtitles(words, "json"))["words"][2]["text"] == "##"
    heard = [Word("#", 0.1, 0.5, 0, 0), Word("5.", 0.5, 0.9, 0, 2)]  # "number five"
    assert [cue.lines for cue in cues(heard)] == [("# 5.",)]


def test_a_heading_without_a_mark_is_a_cue_of_its_own():
    words = [Word("Chapter", 0, 0.4, 0, 0), Word("One", 0.4, 0.8, 0, 8)]
    words += [Word("It", 1.9, 2.1, 1, 13), Word("rained.", 2.1, 2.6, 1, 16)]
    assert [cue.lines for cue in cues(words)] == [("Chapter One",), ("It rained.",)]
    # a sentence that was spoken in two chunks has no gap there
    words[2:] = [Word("it", 1.2, 1.4, 1, 13), Word("rained.", 1.4, 1.9, 1, 16)]
    assert [cue.lines for cue in cues(words)] == [("Chapter One it rained.",)]
    # nor is a pause within a chunk one
    words[2:] = [Word("it", 1.9, 2.1, 0, 13), Word("rained.", 2.1, 2.6, 0, 16)]
    assert [cue.lines for cue in cues(words)] == [("Chapter One it rained.",)]


def test_times_count_to_hours_and_a_cue_stays_for_a_moment():
    words = [Word("One.", 3.0004, 59.9996, 0, 0), Word("Two.", 3599.9994, 3600.5, 1, 5)]
    words += [Word("Three.", 3600.75, 4210.0, 2, 10), Word("End.", 359_999.5, 360_000.25, 3, 17)]
    times = [
        ("00:00:03,000", "00:01:00,400"),
        ("00:59:59,999", "01:00:00,750"),
        ("01:00:00,750", "01:10:10,400"),
        ("99:59:59,500", "100:00:00,250"),
    ]
    rows = enumerate(zip(times, words), 1)
    srt = [f"{n}\n{start} --> {end}\n{word.text}\n" for n, ((start, end), word) in rows]
    assert subtitles(words, "srt") == subtitles(words, "srt", True) == "\n".join(srt)


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_another_program_reads_the_files(form, tmp_path):
    path = tmp_path / f"speech.{form}"
    write_subtitles(path, spoken(TEXT))
    with av.open(str(path)) as file:
        packets = [p for p in file.demux() if p.size]
    found = cues(spoken(TEXT))
    assert len(packets) == len(found)
    for packet, cue in zip(packets, found):
        assert float(packet.pts * packet.time_base) == pytest.approx(cue.start, abs=0.001)
        assert float(packet.duration * packet.time_base) == pytest.approx(
            cue.end - cue.start, abs=0.002
        )
        text = bytes(packet).decode()
        for sign, name in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            text = text.replace(sign, name) if form == "vtt" else text
        assert tuple(text.split("\n")) == cue.lines


def test_json_has_words_and_cues():
    words = spoken("Hello — you.")
    found = json.loads(subtitles(words, "json"))
    assert found["words"][0] == {
        "text": "Hello", "start": 0.5, "end": 0.8, "chunk": 0, "place": 0,
    }  # fmt: skip
    assert found["cues"] == [{"start": 0.5, "end": 1.14, "lines": ["Hello — you."]}]
    (word,) = json.loads(subtitles([Word("é", 1 / 3, 2 / 3, 0, 0)], "json"))["words"]
    assert (word["start"], word["end"]) == (0.333, 0.667)
    assert '"é"' in subtitles([Word("é", 0.0, 0.5, 0, 0)], "json")
    assert subtitles([], "srt") == "\n" and subtitles([], "vtt") == "WEBVTT\n"


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_an_arrow_of_the_text_is_not_taken_for_one_of_times(form):
    assert subtitles(spoken("Go --> there."), form).count("-->") == 1


def test_what_a_link_leads_to_is_written(tmp_path):
    (tmp_path / "link.srt").symlink_to(tmp_path / "real.srt")
    write_subtitles(tmp_path / "link.srt", spoken("Hi."))
    assert (tmp_path / "link.srt").is_symlink() and "Hi." in (tmp_path / "real.srt").read_text()


def test_what_cannot_be_written_is_said(tmp_path):
    for write in (check_subtitles, lambda path: write_subtitles(path, spoken("Hi."))):
        with pytest.raises(InputError, match=r"\.srt, \.vtt, \.json"):
            write(tmp_path / "a.txt")
        with pytest.raises(InputError, match=r"cannot write .*: (there is no|No such)"):
            write(tmp_path / "no" / "a.srt")
    with pytest.raises(InputError, match="aligner"):
        write_subtitles(tmp_path / "a.srt", None)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a.srt").mkdir()
    (tmp_path / "b.srt").write_text("of the last time")
    with pytest.raises(InputError, match="not a file"):
        check_subtitles(tmp_path / "a.srt")
    check_subtitles(tmp_path / "b.srt")


def test_a_sentence_of_tens_of_thousands_of_words_or_marks_is_divided_too():
    """In squared time, as it was, this took minutes."""
    said = [Word("well", i / 10, i / 10 + 0.1, 0, 5 * i) for i in range(10_000)]
    found = cues(said)
    assert all(len(line) <= LINE for cue in found for line in cue.lines)
    assert " ".join(line for cue in found for line in cue.lines).split() == ["well"] * len(said)
    marks = [Word("—", 1.0, 1.0, 0, 5 + 2 * i) for i in range(10_000)]
    (cue,) = cues([Word("Well", 0.0, 1.0, 0, 0), *marks])
    assert (cue.start, cue.end) == (0, 1) and "".join(cue.lines).count("—") == len(marks)
