"""Words: each as written, heard when its times say so, whatever was done to the speech."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from nanospeech import CheckpointError, InputError, OutputOptions
from nanospeech.audio.mel import log_mel
from nanospeech.speech.chunks import CROSS_FADE, Chunk, Word
from nanospeech.speech.pauses import Paced, sounds
from nanospeech.speech.script import parts, share
from nanospeech.speech.words import Aligned, Timeline, align
from nanospeech.speech.words import frames as frames_of
from nanospeech.text.markup import read_markup
from nanospeech.text.traced import Traced
from nanospeech.text.written import Written
from tests.speech.test_speaker import RATE, EchoEngine, speaker

TEXT = (
    "A Heading\n\nOn Jan. 5, 2024, at 9:30 p.m. — he (Dr. Hall) paid $5 million to me."
    " Nobody in the U.S. saw it go… it went; slept—the end!\n\n*** Bye now 🙂"
)
FRAME = 256 / RATE


class ToneEngine(EchoEngine):
    """An aligned engine whose words are tones and whose spaces and marks are silent."""

    def __init__(self, upsampling: str = "aligned"):
        super().__init__(upsampling=upsampling)

    def sample(self, noise_BNM, cond_BNM, text_BT, options, *, lens_B, prompt_frames_B,
               prompt_tokens_B, on_step):  # fmt: skip
        made = cond_BNM.copy()
        for mel, ids, n, start, known in zip(
            made, text_BT, lens_B, prompt_frames_B, prompt_tokens_B
        ):
            tokens = [i for i in ids[known:] if i >= 0]
            each = self.align(mel[start:n], tokens)
            loud = np.repeat([sounds(token, self.tokenizer) for token in tokens], each)
            mel[start:n] = np.where(loud, 2.0, -9.0)[:, None]
        return made

    def vocode(self, mel_BNM, lens_B=None):
        lens = [mel_BNM.shape[1]] * len(mel_BNM) if lens_B is None else lens_B
        return [
            np.repeat(np.exp(mel[1:n, 0]) / 40, 256).astype(np.float32)
            for mel, n in zip(mel_BNM, lens)
        ]


def tones(wave: np.ndarray) -> list[tuple[float, float]]:
    """Seconds in which tones begin and end."""
    loud = np.concatenate([[False], np.abs(wave) > 0.09, [False]])
    edges = np.flatnonzero(np.diff(loud.astype(int))).reshape(-1, 2)
    return [(a / RATE, b / RATE) for a, b in edges]


@pytest.mark.parametrize("speed", [1.0, 1.7, 0.6])
@pytest.mark.parametrize(
    "output",
    [
        OutputOptions(loudness=None),
        OutputOptions(None, 0.5, 1.0, 2.0),
        OutputOptions(None, 0.06, 0.1),
    ],
)
def test_words_are_heard_when_their_times_say_so(speed, output):
    voice = speaker(ToneEngine(), speed=speed, output=output, chunk_seconds=3.0)
    spoken = voice.speak(TEXT)
    assert "".join(word.text for word in spoken.words) == "".join(TEXT.split())
    assert max(word.chunk for word in spoken.words) == len(spoken.chunks) - 1 >= 3
    heard = tones(spoken.wave)
    said = [word for word in spoken.words if word.end > word.start]
    assert [w.text for w in spoken.words if w not in said] == ["—", "***", "🙂"]
    edges = [start for start, _ in heard], [stop for _, stop in heard]
    for word in said:
        assert min(abs(word.start - edge) for edge in edges[0]) < 2.5 * FRAME, word
        assert min(abs(word.end - edge) for edge in edges[1]) < 2.5 * FRAME, word
    count = {"Jan.": 1, "2024,": 3, "9:30": 2, "p.m.": 2, "U.S.": 2, "million": 2, "slept—": 1}
    for word in said:  # the tones of a word are its own
        inside = [a for a, b in heard if word.start < (a + b) / 2 < word.end]
        assert len(inside) == count.get(word.text.strip("()"), 1), word
    assert all(a.end <= b.start for a, b in pairwise(spoken.words))
    assert said[-1].end <= spoken.seconds


@pytest.mark.parametrize("seconds", [None, 12.0])
def test_times_count_the_pauses_of_markup_whatever_length_is_asked_for(seconds):
    text = read_markup("[pause 1.5s]one two.[pause 2s] [slow]three four.[/slow] [pause 1s] five.")
    voice = speaker(ToneEngine(), output=OutputOptions(loudness=None))
    spoken = voice.speak(text, seconds)
    heard = tones(spoken.wave)
    assert len(heard) == len(spoken.words) == 5
    for word, (start, stop) in zip(spoken.words, heard):
        assert word.start == pytest.approx(start, abs=2.5 * FRAME), word
        assert word.end == pytest.approx(stop, abs=2.5 * FRAME), word
    assert heard[0][0] == pytest.approx(1.5, abs=0.2)
    gaps = [b[0] - a[1] for a, b in pairwise(heard)]
    assert gaps[1] > 2 and gaps[3] > 1 and max(gaps[0], gaps[2]) < 1
    assert seconds is None or spoken.seconds == pytest.approx(seconds, abs=0.1)


def test_times_are_the_same_whole_streamed_and_in_batches():
    voice = speaker(ToneEngine(), chunk_seconds=3.0)
    words = voice.speak(TEXT).words
    pieces = list(voice.pieces(TEXT, early=False))
    assert tuple(word for piece in pieces for word in piece.words) == words
    other, again = voice.speak_many(["something else. " * 5, TEXT])
    assert again.words == words and other.words[-1].text == "else."


@pytest.mark.parametrize("early", [True, False])
def test_a_piece_completes_its_words(early):
    voice, done, words = speaker(ToneEngine(), chunk_seconds=3.0), 0, []
    for piece in voice.pieces(TEXT, early=early):
        assert all(done <= word.end * RATE for word in piece.words)
        done += len(piece.wave)
        assert all(word.end * RATE <= done + 1 for word in piece.words)
        words += piece.words
    assert "".join(word.text for word in words) == "".join(TEXT.split())
    assert all(TEXT[word.place :].startswith(word.text) for word in words)


def test_places_count_through_the_parts_of_a_text_that_is_being_written():
    voice = speaker(ToneEngine(), chunk_seconds=3.0)
    letters = (TEXT[i : i + 7] for i in range(0, len(TEXT), 7))
    words = [word for piece in voice.pieces(letters) for word in piece.words]
    assert "".join(word.text for word in words) == "".join(TEXT.split())
    assert all(TEXT[word.place :].startswith(word.text) for word in words)
    assert all(a.end <= b.start for a, b in pairwise(words))


def test_a_word_that_is_cut_is_one_word():
    voice = speaker(ToneEngine(), chunk_seconds=1.5)
    spoken = voice.speak("It was 123,456,789,123,456,789 then.")
    number = spoken.words[2]
    assert number.text == "123,456,789,123,456,789" and number.chunk < spoken.words[3].chunk - 1
    assert number.end - number.start > 3 and spoken.words[3].start > number.end
    lines = [Traced.of("ab cd")[:2], Traced.of("ab cd")[3:]]
    cut = list(share([Written("x", 0, 0, 5), Written("-", 1, 5, 5)], lines))
    assert [[(w.start, w.stop, w.whole) for w in line] for line in cut] == [
        [(0, 2, False)], [(0, 2, True), (2, 2, True)],
    ]  # fmt: skip


def test_words_move_with_a_mel_that_a_length_in_seconds_stretches():
    voice = speaker(ToneEngine(), output=OutputOptions(loudness=None))
    spoken = voice.speak("one two three", seconds=4.0)
    heard = tones(spoken.wave)
    times = [(word.start, word.end) for word in spoken.words]
    assert np.allclose(times, heard, atol=2.5 * FRAME)  # edges are stretched as well


def test_an_aligned_model_finds_the_words_of_one_that_is_not():
    assert speaker(ToneEngine("none")).speak(TEXT).words is None
    plain, helped = ToneEngine("none"), ToneEngine()
    voice = speaker(plain, aligner=helped, output=OutputOptions(loudness=None))
    spoken = voice.speak("one two, three")
    heard = tones(spoken.wave)
    assert [word.text for word in spoken.words] == ["one", "two,", "three"]
    times = [(word.start, word.end) for word in spoken.words]
    assert np.allclose(times, heard, atol=8 * FRAME)  # it hears a space more at both ends
    with pytest.raises(CheckpointError, match="cannot find words"):
        speaker(plain, aligner=plain)
    for name, size in (
        ("sample_rate", 16_000),
        ("n_fft", 2048),
        ("hop_length", 128),
        ("n_mels", 80),
    ):
        other = ToneEngine()
        audio = dataclasses.replace(other.config.audio, **{name: size})
        other.config = dataclasses.replace(other.config, audio=audio)
        with pytest.raises(CheckpointError, match=f"its {name} is {size}, not"):
            speaker(plain, aligner=other)


def test_words_that_cannot_be_found_are_timed_by_their_length(caplog):
    class Deaf(ToneEngine):
        def align(self, mel_NM, tokens):
            raise InputError("there are fewer frames than tokens")

    voice = speaker(ToneEngine("none"), aligner=Deaf(), output=OutputOptions(None, None, None))
    spoken = voice.speak("one two three", seconds=3.0)
    assert [word.text for word in spoken.words] == ["one", "two", "three"]
    each = spoken.seconds / len(" one two three ")  # a model's edges are a space
    times = [(word.start, word.end) for word in spoken.words]
    wanted = [(each * a, each * b) for a, b in ((1, 4), (5, 8), (9, 14))]
    assert np.allclose(times, wanted, atol=1.5 * FRAME)
    assert [r.getMessage() for r in caplog.records] == [
        "the words of 'one two three' are timed by their length alone: there are fewer frames"
        " than tokens"
    ]


@pytest.mark.parametrize("frame", [5, 40])
def test_a_frame_is_heard_where_its_window_is(frame):
    click = np.zeros(50 * 256, np.float32)
    click[frame * 256] = 1
    engine = ToneEngine()
    assert log_mel(click).sum(1).argmax() == frame
    line = Timeline(engine, engine)
    middle = (line.seconds(frame) + line.seconds(frame + 1)) / 2
    assert middle * RATE == pytest.approx(frame * 256)
    assert line.seconds(0) == 0


def test_parts_say_what_is_read_and_hold_every_word():
    engine = ToneEngine()
    found = list(parts([TEXT, " — ", "And more."], engine.tokenizer, iter([20.0] * 99), 20.0, 5.0))
    texts = [word.text for part in found for word in part.words if word.whole]
    assert "".join(texts) == "".join((TEXT + "—And more.").split())
    for part in found:
        for word in part.words:
            assert 0 <= word.start <= word.stop <= len(part.text)


def test_a_pause_before_what_cannot_be_read_is_kept():
    text = read_markup("[pause 1s]世界 [slow]hello [pause 300ms] there[/slow]")
    first, second = speaker().parts(text)
    assert (first.before, second.before) == (1.0, 0.0) and first.after == 0.3
    assert [word.text for word in first.words] == ["世", "界", "hello"]


def test_words_that_cannot_be_read_at_the_end_of_a_marked_text_are_kept():
    text = read_markup("hello [slow]there.[/slow] [fast]世界[/fast] [fast]好[/fast]")
    first, second = speaker().parts(text)
    assert [word.text for word in first.words] == ["hello"]
    assert [word.text for word in second.words] == ["there.", "世", "界", "好"]
    words = speaker(ToneEngine()).speak(text).words
    assert [(word.text, word.place) for word in words[-2:]] == [("界", 33), ("好", 48)]
    assert words[-1].start == words[-1].end == words[1].end


def test_no_word_ends_behind_the_speech():
    line = Timeline(EchoEngine(), None)
    line.waiting = [Word("one", 0.2, 1.5, 0, 0), Word("two", 1.5, 1.6, 0, 4)]
    assert line.take(RATE) == ()
    assert [(w.start, w.end) for w in line.take(RATE, last=True)] == [(0.2, 1.0), (1.0, 1.0)]


def test_a_word_that_goes_on_waits_and_one_at_the_end_of_a_piece_is_complete():
    line = Timeline(EchoEngine(), None)
    one, two = Word("one", 0.2, 1.0, 0, 0), Word("two", 1.0, 1.5, 0, 4)
    line.waiting, line.cut = [one, two], True
    assert line.take(RATE - 1) == () and line.take(RATE) == (one,)
    assert line.take(2 * RATE) == () and line.take(2 * RATE, last=True) == (two,)


def test_chunks_are_counted_without_their_cross_fades():
    line, fade = Timeline(EchoEngine(), None), int(CROSS_FADE * RATE)
    counts = []
    for samples in (100, 1000, 2000, 500):  # shorter ones fade over all of themselves
        list(line.counted([np.zeros(60), np.zeros(samples - 60)]))
        counts.append(line.samples)
    assert counts == [100, 1000, 3000 - fade, 3000 - fade]


def test_tokens_are_between_the_edges_of_the_mel_and_words_are_half_open():
    engine, mel = ToneEngine(), np.zeros((9, 100), np.float32)
    chunk = Chunk("ab", np.array([0, 1, 2, 0]), 9, 1, characters=np.array([-1, 0.5, 1.5, -1]))
    for ends, edges in ((None, [0, 2, 4, 6, 9]), (np.array([1, 5, 7, 9]), [0, 1, 5, 7, 9])):
        found = align(engine, mel, chunk, Paced(mel, 9, ends=ends))
        assert found.edges.tolist() == edges
        assert found.characters.tolist() == [-1, 0.5, 1.5, -1]
    found = Aligned(np.array([0, 2, 5, 9]), np.array([0.0, 1.0, 2.0]))
    words = [Written("ab", 0, 0, 2), Written("-", 2, 2, 2), Written("c", 3, 2, 3)]
    assert frames_of(found, words) == [(0, 5), None, (5, 9)]
