"""Pauses: as long as they should be in every voice, however the text was cut into chunks."""

from dataclasses import replace

import numpy as np
import pytest

from nanospeech import InputError, OutputOptions, SampleOptions, Speaker, load_engine
from nanospeech.audio.limiter import true_peak
from nanospeech.audio.loudness import loudness
from nanospeech.measure.pauses import measure, silence_at
from nanospeech.speech.chunks import CROSS_FADE, Chunk, Mark
from nanospeech.speech.pauses import (
    LEAD,
    TAIL,
    Paced,
    Span,
    _at,
    _sped,
    _spread,
    find_marks,
    levels,
    set_pauses,
    sounds,
)
from nanospeech.text.headings import ending
from nanospeech.text.pauses import pause_after, pauses_within
from nanospeech.text.sentences import encode, pack, prepare
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from tests.speech.test_speaker import RATE, EchoEngine, speaker

PHONEMES = Tokenizer("phonemes", phoneme_vocab())
BYTES = Tokenizer("bytes", [])
FRAME = 256 / RATE
# what readers do, in seconds; the measure is good to about 0.03
BOUNDS = {
    "clause": (0.15, 0.25),
    "sentence": (0.35, 0.5),
    "paragraph": (0.7, 0.9),
    "heading": (0.9, 1.2),
}
TEXT = (
    "# The Ship\n\nIt was late — very late, they said. Nobody waited.\n\n"
    "They went ashore, and slept well."
)
KINDS = ["heading", "clause", "clause", "sentence", "paragraph", "clause"]


# texts


@pytest.mark.parametrize(
    "written, read",
    [
        ("# Chapter One\nIt rained.", "Chapter One.\n\n\nIt rained."),
        ("It rained.\n## The *End* ##\n\nBye.", "It rained.\n\nThe End.\n\n\nBye."),
        ("CHAPTER I\r\n\r\nIt rained.\r\n\r\nBye.", "CHAPTER one\n\n\nIt rained.\n\nBye."),
        ("### Why?\nNo.", "Why?\n\n\nNo."),
        ("A line\nand another\n\nBye.", "A line and another\n\nBye."),
        ("and so on\n\nBye.", "and so on\n\nBye."),
        ("It rained.\n\n\n\nBye.", "It rained.\n\nBye."),
        ("The end", "The end"),
        ("#1 of them, item # 2.", "number one of them, item number two."),
        ("# \n\nHi.", "number\n\nHi."),
    ],
)
def test_headings_are_found_and_their_signs_are_not_read(written, read):
    assert prepare(written, PHONEMES) == read
    assert prepare(written, BYTES) == written


def test_each_end_has_its_pause():
    text = prepare("# One\nHe came, he saw (twice) and “left.” Then?\n\nBye now", PHONEMES)
    chunks = pack(text, 22)
    assert "".join(chunks) == text
    assert [pause_after(chunk) for chunk in chunks] == [
        "heading",
        "clause",
        "clause",
        "paragraph",
        "",
    ]
    assert [pause_after(t) for t in ("He said: ", "it - ", "word ", "Stop!) ", "", "...", "—")] == [
        "clause",
        "clause",
        "",
        "sentence",
        "",
        "sentence",
        "clause",
    ]
    line = "Dr. Smith came - at 3.14, so to say. He left."
    ends = {line[:end].strip(): kind for end, kind in pauses_within(line).items()}
    assert ends == {
        "Dr. Smith came -": "clause",
        "Dr. Smith came - at 3.14,": "clause",
        "Dr. Smith came - at 3.14, so to say.": "sentence",
    }


@pytest.mark.parametrize(
    "part, end",
    [("He came. ", " "), ("He came.\n\n", "\n\n"), ("Go", ""), ("# Title\n", "\n\n\n"),
     ("It rained.\n\nThe Mill\n\n", "\n\n\n"), ("It rained.\r\n\r\n", "\n\n")],
)  # fmt: skip
def test_parts_of_a_text_that_is_still_written_keep_their_ends(part, end):
    assert ending(part) == end


def test_marks_are_the_silent_tokens_between_words():
    text = prepare("He came — “late,” she said. Wi-Fi, too", PHONEMES)
    comma = encode(", ", PHONEMES)
    tokens = np.concatenate([comma, encode(text + " ", PHONEMES)])
    marks = find_marks(text, tokens, len(comma), PHONEMES)
    said = ["".join(PHONEMES.vocab[t] for t in tokens[m.start : m.stop]) for m in marks]
    assert said == [' - "', '," ', ". ", ", "]
    assert [m.kind for m in marks] == ["clause", "clause", "sentence", "clause"]
    for line, places in (
        ("Hé, là. Oui", [(3, 5), (8, 10)]),
        ("Oui, ...", []),  # before no word
    ):
        found = find_marks(line, BYTES.encode(line), 0, BYTES)
        assert [(m.start, m.stop) for m in found] == places


def test_a_pause_that_a_tag_stands_for_is_as_long_as_the_tag_makes_it():
    tokenizer = Tokenizer("chars", [*" no,.—", "<pause>"])
    for text, count in (
        ("no. no", 1),
        ("no. <pause> no", 0),
        ("no <pause>. no", 0),
        ("n, no", 1),
        ("— no, no", 1),  # the first stands before no word
        ("no, no <pause> no", 1),
    ):
        assert len(find_marks(text, encode(text, tokenizer), 0, tokenizer)) == count
    poor = Tokenizer("chars", ["n", "o"])  # nothing is silent between these words
    assert find_marks("no, no", poor.encode("no, no"), 0, poor) == ()


def test_letters_and_digits_sound():
    assert [n for n in range(256) if sounds(n, BYTES)] == [
        *(n for n in range(128) if chr(n).isascii() and chr(n).isalnum()), *range(128, 256)
    ]  # fmt: skip


# mels


def test_levels_are_in_decibels():
    mel = np.repeat([[0.0], [1.0]], 100, axis=1)  # a neper is 8.686 dB, a hundred of them 20
    assert levels(mel) == pytest.approx([20, 28.686], abs=1e-3)


class AlignedEngine(EchoEngine):
    """Finds two frames of each token, which is what its mels are made of here."""

    def __init__(self):
        super().__init__(upsampling="aligned")

    def align(self, mel_NM, tokens):
        return np.full(len(tokens), len(mel_NM) // len(tokens))


def made(pauses: list[tuple[int, int]], frames: int = 400, floor: float = -9.0) -> np.ndarray:
    """A mel that is loud but for these frames."""
    mel = np.random.default_rng(0).normal(0, 0.3, (frames, 100)).astype("f4")
    for start, stop in pauses:
        mel[start:stop] = floor
    return mel


def spans(mel: np.ndarray) -> list[int]:
    """Frames of each silence."""
    level = levels(mel)
    quiet = np.concatenate([[0], level < np.percentile(level, 95) - 20, [0]])
    edges = np.flatnonzero(np.diff(quiet.astype(int)))
    return (edges[1::2] - edges[::2]).tolist()


def chunk(marks: list[tuple[int, str]], after: str = "", speed: float | None = 1.0) -> Chunk:
    """Two hundred tokens, the marks of which are single ones."""
    found = tuple(Mark(at, at + 1, kind) for at, kind in marks)
    return Chunk("", np.arange(200), 400, 0, found, after, speed)


def test_silences_get_the_length_that_is_wanted():
    mel = made([(0, 20), (98, 104), (196, 260), (380, 400)])
    marks = [(50, "clause"), (110, "sentence")]
    output = OutputOptions(pause_clause=0.2, pause_sentence=0.4, pause_paragraph=0.8)
    for speed in (1.0, 2.0):
        paced = set_pauses(AlignedEngine(), mel, chunk(marks, "paragraph", speed), output, True)
        lead, clause, sentence, tail = spans(paced.mel)
        assert clause == round(0.2 / speed / FRAME) and sentence == round(0.4 / speed / FRAME)
        assert lead == round(LEAD / FRAME)
        # with the lead of the chunk behind it, but for the cross-fade and a frame without samples
        joint = tail + lead - round(CROSS_FADE / FRAME) - 1
        assert joint == round(0.8 / speed / FRAME)
        assert paced.last == len(paced.mel) - tail + round(TAIL / FRAME)
    off = OutputOptions(pause_clause=None, pause_sentence=None, pause_paragraph=None)
    assert spans(set_pauses(AlignedEngine(), mel, chunk(marks, "paragraph"), off, True).mel)[
        1:
    ] == [6, 64, 20]


def test_sounds_stay_as_they_are_and_noise_is_lowered():
    mel = made([(0, 20), (98, 110), (380, 400)], floor=-5.0)
    paced = set_pauses(AlignedEngine(), mel, chunk([(52, "clause")]), OutputOptions(), True)
    start = round(LEAD / FRAME)
    assert np.array_equal(paced.mel[start : start + 78], mel[20:98])
    wanted = round(0.2 / FRAME)
    behind = start + 78 + wanted
    assert np.array_equal(paced.mel[behind : behind + 270], mel[110:380])
    pause = paced.mel[start + 78 : behind].mean(1)
    assert pause[[0, 1, 2, wanted // 2]] == pytest.approx([-5, -6, -7, -7])
    # at the ends of a chunk it stays low, and rises to its sounds
    lead, tail = paced.mel[:start].mean(1), paced.mel[behind + 270 :].mean(1)
    for edge in (lead, tail[::-1]):
        assert edge[[0, -1]] == pytest.approx([-7, -5])


@pytest.mark.parametrize(
    "first, before, wanted", [(True, 0.0, 2), (False, 0.0, 5), (True, 1.0, 94), (True, 0.01, 1)]
)
def test_a_beginning_is_no_longer_than_it_was_unless_it_is_asked_for(first, before, wanted):
    begun = replace(chunk([]), before=before)
    paced = set_pauses(AlignedEngine(), made([(0, 2)]), begun, OutputOptions(), first)
    assert paced.spans[0] == Span(0, 2, wanted, "before") and paced.ends is None
    other = set_pauses(EchoEngine(), made([(0, 2)]), begun, OutputOptions(), first)
    assert other.spans == paced.spans and other.ends is None


@pytest.mark.parametrize("mark", [8, 195])
def test_a_mark_within_the_silence_around_a_chunk_makes_no_pause(mark):
    mel = made([(0, 20), (380, 400)])
    paced = set_pauses(AlignedEngine(), mel, chunk([(mark, "sentence")]), OutputOptions(), True)
    assert [s.kind for s in paced.spans] == ["before", "sound", "after"]
    assert [s.stop for s in paced.spans] == [20, 380, 400]


def test_a_pause_of_a_noisy_voice_is_found():
    for frames in ([(98, 110)], [(90, 98), (98, 110)]):
        mel = made(frames, floor=-2.6)  # 23 dB below its speech
        mel[90:98] += 1.0 * (len(frames) > 1)
        paced = set_pauses(AlignedEngine(), mel, chunk([(50, "clause")]), OutputOptions(), True)
        assert [(s.start, s.stop) for s in paced.spans if s.kind == "between"] == [(98, 110)]


def test_a_mark_without_a_pause_does_not_cost_the_next_one_its_own():
    marks, wanted = [(50, "clause"), (110, "sentence")], round(0.4 / FRAME)
    for silences, clause in (([(196, 230)], 0.2), ([(98, 104), (196, 230)], None)):
        output = OutputOptions(pause_clause=clause, pause_sentence=0.4)
        paced = set_pauses(AlignedEngine(), made(silences), chunk(marks), output, True)
        assert [s.count for s in paced.spans if s.kind == "between"] == [wanted]


def test_the_shortest_pause_between_chunks_is_the_cross_fade():
    output = OutputOptions(pause_sentence=0.0)
    mel = made([(380, 400)])
    paced = set_pauses(AlignedEngine(), mel, chunk([], "sentence"), output, True)
    assert paced.spans[-1] == Span(380, 400, 1, "after")


def test_a_clause_that_is_read_on_has_no_pause_and_a_sentence_always():
    mel = made([(0, 10), (390, 400)])
    for kind, count in (("clause", 2), ("sentence", 3)):
        paced = set_pauses(AlignedEngine(), mel, chunk([(50, kind)]), OutputOptions(), True)
        assert len(spans(paced.mel)) == count


def test_two_marks_in_one_silence_make_the_longer_pause():
    mel = made([(0, 10), (44, 54), (98, 120), (390, 400)])
    marks = [(22, "clause"), (50, "sentence"), (55, "clause")]
    paced = set_pauses(AlignedEngine(), mel, chunk(marks), OutputOptions(), True)
    counts = [round(0.2 / FRAME), round(0.42 / FRAME)]
    assert [s for s in paced.spans if s.kind == "between"] == [
        Span(44, 54, counts[0], "between"),
        Span(98, 120, counts[1], "between"),
    ]


def test_a_marks_silence_is_the_one_beside_it_though_others_are_deeper():
    for start, stop in ((93, 97), (105, 109)):  # of which one is within four of the mark's two
        paced = set_pauses(
            AlignedEngine(), made([(start, stop)]), chunk([(50, "clause")]), OutputOptions(), True
        )
        assert [(s.start, s.stop) for s in paced.spans if s.kind == "between"] == [(start, stop)]
    for deeper in ((92, 95), (107, 110)):  # beyond four frames from the mark's two
        mel = made([(0, 10), (390, 400)])
        mel[99:103], mel[slice(*deeper)] = -7.0, -9.0
        output = OutputOptions(pause_clause=0.3)
        paced = set_pauses(AlignedEngine(), mel, chunk([(50, "clause")]), output, True)
        (pause,) = (span for span in paced.spans if span.kind == "between")
        assert (pause.start, pause.stop) == (99, 103)
        assert pause.count == round(0.3 / FRAME)


def test_a_pause_that_is_made_longer_keeps_its_frames_and_a_shorter_one_its_ends():
    level = np.random.default_rng(0).normal(size=60)
    for have in (1, 3, 9, 30):
        for count in range(1, 50):
            start, stop = 10, 10 + have
            before, between, after = (
                _spread(start, stop, count, level, kind).tolist()
                for kind in ("before", "between", "after")
            )
            assert len(before) == len(between) == len(after) == count
            if count <= have:
                assert before == list(range(stop - count, stop))
                assert after == list(range(start, start + count))
                steps = np.diff(between)
                assert (steps > 0).all() and (steps > 1).sum() <= 1  # one cut, near the middle
                for kept in np.flatnonzero(steps > 1) + 1:
                    assert 0.6 * count <= kept < 0.6 * count + 1
                assert between[0] == start and (count < 3 or between[-1] == stop - 1)
            else:
                assert set(between) == set(range(start, stop)) and between[0] == start
                assert (abs(np.diff(between)) > 1).sum() <= 1  # back and forth, then to the end
                assert set(before) == set(range(min(before), stop)) and after[0] == start
                assert set(after) == set(range(start, max(after) + 1))


def test_a_breath_at_the_edge_of_a_chunk_is_not_part_of_a_longer_pause():
    for kind, breath, calm in (
        ("before", range(10), range(10, 16)),
        ("after", range(20, 30), range(14, 20)),
    ):
        level = np.full(30, -90.0)
        level[list(breath)], level[list(calm)] = -30.0, -95.0
        assert not set(_spread(0, 30, 60, level, kind)) & set(breath)
        assert set(_spread(0, 30, 60, level, "between")) > set(breath)


def test_places_move_with_their_frames():
    kinds = [(0, 5, 3, "before"), (5, 15, 20, "sound"), (15, 18, 9, "between")]
    spans = [*kinds, (18, 18, 0, "sound"), (18, 20, 4, "after")]
    paced = Paced(np.zeros((36, 100), np.float32), 36, tuple(Span(*span) for span in spans))
    for begins in (False, True):
        at = [paced.place(frame / 2, begins) for frame in range(41)]
        assert at == sorted(at)
        assert paced.place(10, begins) == 3 + 10
    assert [paced.place(frame, True) for frame in (0, 5, 15, 16, 18)] == [3, 3, 32, 32, 36]
    assert [paced.place(frame, False) for frame in (0, 5, 15, 16, 18)] == [0, 0, 23, 23, 23]

    one, none = (Paced(paced.mel, 4, (Span(0, n, 4 * n, "sound"),)) for n in (1, 0))
    assert (one.place(0.5, True), none.place(0, False)) == (2, 0)


def test_a_mel_between_its_frames_is_on_the_line_from_one_to_the_next():
    ramp = np.arange(10, dtype=np.float32)[:, None].repeat(2, 1)
    places = np.array([0, 0.25, 3.5, 8.75, 9])
    assert np.array_equal(_at(ramp, places), places[:, None].repeat(2, 1))
    assert _sped(2, 5, 0.5).tolist() == [2, 2.25, 2.75, 3.25, 3.75, 4]  # of frames 2 to 4 alone
    assert _sped(2, 6, 2.0).tolist() == [2.5, 4.5]


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0, 4.0])
def test_beyond_the_models_speeds_its_mel_is_stretched(speed):
    engine = AlignedEngine()
    text = "a sentence that is long enough to be sped up"
    whole = speaker(EchoEngine()).speak(text).seconds
    assert speaker(EchoEngine(), speed=speed).speak(text).seconds == pytest.approx(
        whole / speed, rel=0.06
    )
    paced = set_pauses(engine, made([(0, 5)]), chunk([], speed=speed), OutputOptions(), True)
    factor = speed / min(max(speed, 0.8), 1.0)
    assert paced.last == pytest.approx(5 + 395 / factor, abs=1)


def test_a_length_that_is_asked_for_is_left_alone():
    mel = made([(0, 20), (98, 104)])
    paced = set_pauses(
        AlignedEngine(), mel, chunk([(50, "clause")], speed=None), OutputOptions(), 1
    )
    assert paced.mel is mel and paced.samples(256) == 399 * 256


def test_options_are_checked():
    for wrong in ({"loudness": 0.0}, {"pause_clause": -1.0}, {"pause_heading": 11.0}):
        with pytest.raises(InputError, match="or off"):
            OutputOptions(**wrong)
    assert OutputOptions(loudness=None, pause_clause=None).pause("clause") is None
    defaults = [getattr(OutputOptions(), f"pause_{kind}") for kind in BOUNDS]
    assert all(low <= value <= high for value, (low, high) in zip(defaults, BOUNDS.values()))


# speech


def test_silences_are_measured_where_they_are():
    rng = np.random.default_rng(0)
    wave = rng.normal(0, 0.1, 3 * RATE).astype("f4")
    wave[RATE : RATE + RATE // 4] *= 1e-3
    assert silence_at(wave, RATE, 1.0, 1.3) == pytest.approx(0.25, abs=0.011)
    assert silence_at(wave, RATE, 0.95, 0.96) == pytest.approx(0.25, abs=0.011)
    assert silence_at(wave, RATE, 2.0, 2.2) == 0
    # the closure of a last "k", its release, then the pause, with a mark aligned at the closure
    wave[int(0.82 * RATE) : int(0.92 * RATE)] = 0
    assert silence_at(wave, RATE, 0.8, 0.85) == pytest.approx(0.25, abs=0.011)


@pytest.fixture(scope="module")
def engine():
    return load_engine(backend="torch", dtype="float32")


def check(engine, wave: np.ndarray) -> None:
    found = measure(engine, wave, TEXT)
    assert {kind: len(times) for kind, times in found.items()} == {
        kind: KINDS.count(kind) for kind in BOUNDS
    }
    for kind, (low, high) in BOUNDS.items():
        assert low - 0.03 <= np.median(found[kind]) <= high + 0.03, (kind, found)


@pytest.mark.parametrize("voice", ["kathleen", pytest.param("robin", marks=pytest.mark.slow)])
def test_readers_pauses_and_one_loudness_in_real_speech(engine, voice):
    reader = Speaker(engine, voice, options=SampleOptions(steps=4), seed=1)
    for wave, off in ((reader.speak(TEXT).wave, 0.3), (np.concatenate([*reader.stream(TEXT)]), 1)):
        check(reader.engine, wave)
        assert loudness(wave, RATE) == pytest.approx(OutputOptions().loudness, abs=off)
        assert true_peak(wave) <= -1 and abs(wave[0]) < 1e-3 and abs(wave[-1]) < 1e-3


# what a batch says is what its texts are alone, see test_batch.py
@pytest.mark.parametrize("way", ["stream", pytest.param("batch", marks=pytest.mark.slow)])
def test_pauses_do_not_depend_on_how_a_text_is_cut(engine, way):
    output = OutputOptions(loudness=None)
    reader = Speaker(engine, options=SampleOptions(steps=4), seed=1, chunk_seconds=2, output=output)
    assert len(reader.chunks(TEXT)) > 4
    words = (part + " " for part in TEXT.split(" "))
    if way == "stream":
        check(reader.engine, np.concatenate(list(reader.stream(words, early=False))))
    else:
        check(reader.engine, reader.speak_many([TEXT])[0].wave)
