"""Where a recording is cut: in the pauses, beside the words that its clips are to have."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.prepare.cut_places import (
    Pause,
    Place,
    chosen,
    clip_of,
    cut_window,
    found_again,
    kind_of,
    last_place,
    pauses,
    places,
)
from nanospeech.speech.reference import Word

SAID = "He went home at last. The dog barked all night long."


def test_a_mark_tells_on_which_side_of_a_short_word_a_pause_is():
    """As recognisers' times are off by more than such a word lasts."""
    said = ["He", "stopped.", "Not", "at", "once."]
    times = [(0, 0.4), (0.4, 0.9), (1.0, 1.5), (1.55, 1.8), (1.8, 2.2)]  # "Not" begins at 1.45
    words = [Word(text, *span) for text, span in zip(said, times)]
    pairs = {i: i for i in range(5)}
    (place,) = places([Pause(1.05, 1.45, 1.0)], words, said, pairs)
    assert (place.heard, place.said, place.ends) == (2, 2, True) and place.at == 1.25
    # without the mark it is where the times say
    plain = [Word(w.text.rstrip("."), w.start, w.end - 0.4 * (w.text == "Not")) for w in words]
    (place,) = places([Pause(1.15, 1.45, 1.0)], plain, [w.text for w in plain], pairs)
    assert (place.heard, place.ends) == (3, False)
    # words that do not agree with the text on both sides are not cut between
    assert not places([Pause(1.05, 1.45, 1.0)], words, said, {0: 0, 1: 1, 3: 9, 4: 10})
    # the text's marks count, not those heard; of two pauses beside a word the clearer one does
    marked = [Word(w.text.rstrip("."), w.start, w.end) for w in words]
    found = [Pause(0.92, 0.98, 0.1), Pause(1.05, 1.45, 1.0), Pause(1.82, 1.9, 0.5)]
    first, second = places(found, marked, said, pairs)
    assert (first.heard, first.start, first.ends) == (2, 1.05, True)
    assert (second.heard, second.ends) == (4, False) and first.cost < 1.3 < second.cost
    # but one misheard word between two that agree is the one between them
    assert places([Pause(1.05, 1.45, 1.0)], words, said, {0: 0, 1: 1, 3: 3, 4: 4})


def test_a_short_word_that_holds_a_pause_comes_after_it():
    """Recognisers let it begin where the one before ends, as Whisper did here."""
    said = ["weave", "cloth", "or", "how"]
    times = [(16.88, 17.1), (17.1, 17.42), (17.42, 18.4), (18.4, 18.56)]
    words = [Word(text, *span) for text, span in zip(said, times)]
    (place,) = places([Pause(17.52, 18.31, 1.0)], words, said, {i: i for i in range(4)})
    assert (place.heard, place.said) == (2, 2)


def test_pauses_are_as_quiet_as_the_recording_gets_and_longer_than_a_plosive():
    rng = np.random.default_rng(0)
    rate = audio.SAMPLE_RATE

    def sound(seconds: float, level: float) -> np.ndarray:
        return rng.normal(0, level, int(seconds * rate)).astype(np.float32)

    speech, quiet, breath = 0.1, 1e-4, 1e-2
    parts = [sound(1, speech), sound(0.3, quiet), sound(1, speech), sound(0.07, quiet)]
    parts += [sound(1, speech), sound(0.4, breath), sound(1, speech), sound(0.5, quiet)]
    found = pauses(np.concatenate(parts))
    assert [round(p.start, 1) for p in found] == [1.0, 4.8]
    assert [round(p.stop, 1) for p in found] == [1.3, 5.3]
    assert all(p.clear > 0.9 for p in found)
    assert not pauses(np.zeros(0, np.float32)) and not pauses(sound(2, speech))
    # a sound card's offset is no sound, and what is rarely spoken is speech too
    rare = np.concatenate([sound(1, quiet), sound(0.8, speech), sound(2, quiet)]) + 0.3
    assert [round(p.stop, 1) for p in pauses(rare.astype(np.float32))] == [1.0, 3.8]
    # where a machine left nothing at all, a room is quiet as well, only less clearly
    parts = [sound(1, speech), sound(0.2, 0), sound(1, speech), sound(0.2, 2e-3), sound(1, speech)]
    parts += [sound(0.11, 0), sound(1, speech)]  # a plosive
    first, second = pauses(np.concatenate(parts))
    assert first.clear == 1 and 0 < second.clear < 0.5 and round(second.stop, 1) == 2.4


def test_a_window_ends_with_its_last_sentence():
    way = [Place(t, t, 0, 0, ends=t < 18) for t in (4.0, 8.0, 17.0, 22.0)]
    found = last_place(way, 10)
    assert found is not None and found.at == 17
    assert last_place(way, 5) == found
    found = last_place(way, 20)  # with a phrase, where none does
    assert found is not None and found.at == 22
    assert last_place(way, 25) is None


@pytest.mark.parametrize(
    "word, kind",
    [("end.", "sentence"), ("end.”", "sentence"), ("so,", "phrase"), ("so", "word"), ('"', "word")],
)
def test_marks_end_sentences_and_phrases(word, kind):
    assert kind_of(word) == kind


def test_a_place_in_a_text_is_found_again_and_stays_where_nothing_is_known():
    text = [f"w{i}" for i in range(3000)]
    words = [Word(t, i, i + 0.5) for i, t in enumerate(text[2000:2040])]
    assert found_again(words, text, 100) == 2000
    assert found_again(words, text, 1990) == 1990  # it is near
    other = [Word("other", i, i + 0.5) for i in range(5)]
    assert found_again([*other, *words], text, 100) == 1995  # where the first of them would be
    assert found_again([*other, *words[:3], *other], text, 100) == 100  # three words are by chance
    assert found_again([Word("other", i, i + 1) for i in range(30)], text, 100) == 100


@pytest.mark.parametrize(
    "text, kept",
    [
        (SAID, True),
        (SAID.replace("at last", "finally"), True),  # read, and heard otherwise
        (SAID.replace("all night", "all the night"), True),  # not heard
        (SAID.replace(" The dog", " CHAPTER II. The dog"), False),
        (f"CHAPTER TWO {SAID}", False),
        (SAID.replace(" The dog barked", " The barked"), True),
        (SAID.replace("last. The dog barked", "last. barked"), False),  # nobody wrote that
        (SAID.replace(" all night long", ""), False),
    ],
)
def test_a_clip_has_no_words_that_nobody_reads_and_none_that_nobody_wrote(text, kept):
    rate, said = audio.SAMPLE_RATE, SAID.split()
    words = [Word(w, 0.1 + 0.4 * i, 0.5 + 0.4 * i) for i, w in enumerate(said)]
    rng = np.random.default_rng(0)
    wave = rng.normal(0, 0.1, int(4.6 * rate)).astype(np.float32)
    wave[: int(0.1 * rate)] *= 1e-3
    wave[int(4.5 * rate) :] *= 1e-3
    (clip,) = cut_window(wave, words, True, (1.0, 9.0), text.split()).clips
    assert (clip.reason == "") is kept and (not kept or clip.text == text)


WORDS = [Word(f"w{i}", 0.5 + 0.4 * i, 0.9 + 0.4 * i) for i in range(10)]
FROM, TO = Place(0.0, 0.5, 0, 0), Place(4.5, 5.1, 10, 10)  # the pauses around them


@pytest.mark.parametrize(
    "heard, said, bounds, reason",
    [
        (10, 10, (4.0, 4.0), ""),  # the seconds between the pauses count
        (10, 10, (4.1, 9.0), "too short"),
        (10, 10, (1.0, 3.9), "no pause to cut at"),
        (7, 10, (1.0, 9.0), ""),  # words that agree
        (6, 10, (1.0, 9.0), "not the words of its text"),
        (7, 11, (1.0, 9.0), "not the words of its text"),  # of the longer of the two
        (6, 6, (1.0, 9.0), "not the words of its text"),
    ],
)
def test_a_clip_is_what_was_heard_and_said_between_two_pauses(heard, said, bounds, reason):
    pairs = {j: j * (said - 1) // 9 for j in range(10) if j % 10 < heard}
    text = [f"w{i}" for i in range(said)]
    to = dataclasses.replace(TO, said=said)
    clip = clip_of(FROM, to, WORDS, text, pairs, bounds, True)
    assert clip.reason == reason and (clip.start, clip.stop) == pytest.approx((0.4, 4.6))
    if not reason:
        assert clip.text == " ".join(text)
        near = clip_of(Place(0.4, 0.5, 0, 0), to, WORDS, text, pairs, bounds, True)
        assert near.start == pytest.approx(0.45)  # half of a short pause is the next clip's


@pytest.mark.parametrize("chance, reason", [(0.51, ""), (0.49, "unsure words")])
def test_words_are_heard_with_some_certainty(chance, reason):
    words = [
        dataclasses.replace(w, chance=0.9 if i else 10 * chance - 8.1) for i, w in enumerate(WORDS)
    ]
    said, pairs = [w.text for w in words], {j: j for j in range(10)}
    assert clip_of(FROM, TO, words, said, pairs, (1.0, 9.0), True).reason == reason


def test_a_recording_is_cut_into_clips_of_a_usual_length_and_as_little_as_can_be_is_lost():
    way = [Place(float(t), float(t), t, t, 0.1) for t in range(17)]
    assert [b.at - a.at for a, b in chosen(way, 1.0, 16.0)] == [4.0] * 4
    way = [Place(float(t), float(t), t, t, 2.0) for t in (0, 2, 20)]
    assert [b.at for _, b in chosen(way, 1.0, 12.0)] == [2.0, 20.0]


def test_a_window_is_done_up_to_the_middle_of_a_pause_and_silence_at_the_ends_is_no_clips():
    rate, rng = audio.SAMPLE_RATE, np.random.default_rng(0)
    wave = rng.normal(0, 0.1, 12 * rate).astype(np.float32)
    for start, stop in (0.0, 1.0), (6.6, 7.4), (10.6, 12.0):
        wave[int(start * rate) : int(stop * rate)] *= 1e-3
    words = [Word("word", 1 + 0.4 * i, 1.4 + 0.4 * i) for i in range(14)]
    words[-1] = Word("word.", *(words[-1].start, words[-1].end))
    words += [Word("word", 7.4 + 0.4 * i, 7.8 + 0.4 * i) for i in range(8)]
    window = cut_window(wave, words, False, (1.0, 9.0))
    assert window.seconds == pytest.approx(7.0, abs=0.05) and window.words == 14
    window = cut_window(wave, words, True, (1.0, 9.0))
    assert window.words == 22
    spans = [t for clip in window.clips for t in (clip.start, clip.stop)]
    assert spans == pytest.approx([0.9, 6.7, 7.3, 10.7], abs=0.05)


@pytest.mark.parametrize("at", [0, 6, 12])
@pytest.mark.parametrize("seconds, reason", [(1.0, ""), (4.0, "sound without words")])
def test_no_clip_has_music_in_it(at, seconds, reason):
    """Which is as loud as speech; a recogniser may let the word after it begin anywhere."""
    wave = np.random.default_rng(0).normal(0, 0.1, 240_000).astype(np.float32)
    times = [0.4 * i + 0.4 + (seconds if i >= at else 0) for i in range(12)]
    words = [Word("word", end - 0.4, end) for end in times]
    (clip,) = cut_window(wave[: int((5 + seconds) * 24_000)], words, True, (1.0, 12.0)).clips
    assert clip.reason == reason


@pytest.mark.parametrize("chance, reason", [(0.12, "unsure words"), (0.98, "")])
def test_a_word_that_is_heard_twice_for_once_is_unsure(chance, reason):
    """As Whisper did with the end of "the sound of a car."; some say a word twice."""
    wave = np.random.default_rng(0).normal(0, 0.1, 100_000).astype(np.float32)
    words = [Word(f"w{i}", 0.4 * i, 0.4 * i + 0.4) for i in range(9)]
    words.insert(5, Word("W4.", 2.0, 2.0, chance))
    (clip,) = cut_window(wave, words, True, (1.0, 12.0)).clips
    assert clip.reason == reason


@pytest.mark.parametrize("seconds, clips", [(1.0, 1), (3.0, 2)])
def test_no_clip_has_a_long_silence_within(seconds, clips):
    way = [Place(0.0, 0.1, 0, 0), Place(2.1, 2.1 + seconds, 5, 5)]
    way += [Place(4.1 + seconds, 5 + seconds, 10, 10)]
    assert len(chosen(way, 1.5, 11.8)) == clips


def test_no_clip_begins_or_ends_where_nobody_pauses():
    """Where somebody speaks on for half a minute, the recording is parted within a word."""
    rate, rng = audio.SAMPLE_RATE, np.random.default_rng(0)
    wave = rng.normal(0, 0.1, 29 * rate).astype(np.float32)
    words = [Word("word", 0.4 * i, 0.4 * i + 0.4) for i in range(72)]
    for pause in (4.0, 9.2):  # behind words 10 and 23
        wave[int((pause - 0.2) * rate) : int((pause + 0.2) * rate)] *= 1e-3
    window = cut_window(wave, words, False, (1.0, 19.8))
    assert window.torn and window.seconds > 20
    assert window.words == sum(w.end <= window.seconds for w in words)
    assert [clip.reason == "" for clip in window.clips] == [True, False]
    window = cut_window(wave, words, False, (1.0, 19.8), torn=True)
    assert [clip.reason == "" for clip in window.clips] == [False, False]
