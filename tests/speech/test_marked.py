"""Marked: markup is heard: pauses in seconds, speeds, sounds, and words as they were written."""

from itertools import pairwise

import numpy as np
import pytest

from nanospeech import InputError, OutputOptions, SampleOptions, Speaker
from nanospeech.audio import wave as audio
from nanospeech.config import BatchLimits
from nanospeech.speech.marked import directed
from nanospeech.text.markup import read_markup
from nanospeech.text.ssml import read_ssml
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from tests.speech.test_speaker import TEXT, EchoEngine, sound, speaker
from tests.speech.test_words import ToneEngine, tones


def test_pauses_and_speeds_are_heard_and_words_stay_as_written():
    voice = speaker(ToneEngine(), output=OutputOptions(loudness=None))
    text = "one two[pause 700ms] three[pause 2s] [slow]four five[/slow] [spell: BC] nine [pause 1s]"
    spoken = voice.speak(read_markup(text))
    words = spoken.words
    assert [w.text for w in words] == ["one", "two", "three", "four", "five", "BC", "nine"]
    assert all(text[w.place :].startswith(w.text) for w in words)
    heard = tones(spoken.wave)
    assert len(heard) == 8  # two letters
    gaps = [b[0] - a[1] for a, b in pairwise(heard)]
    assert gaps[1] == pytest.approx(0.7, abs=0.05) and gaps[2] == pytest.approx(2.0, abs=0.05)
    assert spoken.seconds - heard[-1][1] == pytest.approx(1.0, abs=0.1)
    plain = voice.speak("four five").words
    assert words[4].end - words[3].start == pytest.approx(
        (plain[1].end - plain[0].start) / 0.8, rel=0.1
    )
    pieces = list(voice.pieces(read_markup(text), early=False))
    assert tuple(w for piece in pieces for w in piece.words) == words
    assert np.array_equal(np.concatenate([p.wave for p in pieces]), spoken.wave)


class PhonemeEngine(EchoEngine):
    """An engine whose tokens are phonemes."""

    def __init__(self):
        super().__init__()
        self.tokenizer = Tokenizer("phonemes", phoneme_vocab())


def test_sounds_are_those_of_the_one_word_that_they_are_for():
    text = read_markup("A tomato, [say: tomato | T OW1], and tomato, [say: Tomato | M OW1]!")
    engine = PhonemeEngine()
    who = directed(Speaker(engine, ref_audio=sound(2.5), ref_text=TEXT, seed=1), text)
    (part,) = who.parts(text)
    ids = who.chunk(part.text, 1, words=part.words).tokens
    read = "".join(engine.tokenizer.vocab[i] for i in ids)
    assert read == "AH0 TAH0MEY1TOW2, TOW1, AH0ND TAH0MEY1TOW2, MOW1!"
    assert [word.text for word in part.words][2:3] == ["tomato,"]
    with pytest.raises(InputError, match="reads chars, not phonemes: it cannot say 'x'"):
        speaker().speak(read_markup("an [say: x | T OW1]"))


def test_another_voice_speaks_as_the_speaker_is_told_to_and_is_as_loud(tmp_path):
    (tmp_path / "voices").mkdir()
    for name, loudness in (("one", -30), ("two", -24)):
        audio.write(tmp_path / "voices" / f"{name}.wav", sound(2.5), 24_000)
        (tmp_path / "voices" / f"{name}.txt").write_text(TEXT)
        (tmp_path / "voices" / f"{name}.json").write_text(f'{{"loudness": {loudness}}}')
    engine = PhonemeEngine()
    engine.folder = tmp_path
    told = {"options": SampleOptions(steps=3), "seed": 4, "duration": "rule", "chunk_seconds": 4.0}
    told["output"] = OutputOptions(pause_clause=0.1)
    who = Speaker(engine, "one", speed=1.2, **told)
    text = read_markup("[voice: two]A [say: dog | T OW1] [fast][fast]sat.[/fast][/fast][/voice]")
    marked = directed(who, text)
    other, faster = marked.casts.values()
    assert other.voice.name == faster.voice.name == "two" and who.voice.name == "one"
    assert {name: getattr(other, name) for name in told} == told
    assert (other.speed, faster.speed) == (1.2, pytest.approx(1.2 * 1.25**2))
    alone = Speaker(engine, "two").prompt.gain
    assert other.prompt.gain / alone == pytest.approx(10 ** (6 / 20))
    ids = other.chunk("dog\u2060", 1).tokens
    assert [engine.tokenizer.vocab[i] for i in ids] == ["T", "OW1"]
    for speed, style in ((4.0, "fast"), (0.25, "slow")):  # which are the bounds
        bound = directed(Speaker(engine, "one", speed=speed), read_markup(f"[{style}]A[/{style}]"))
        assert [cast.speed for cast in bound.casts.values()] == [speed]
    known: dict[str, Speaker] = {}
    directed(who, text, known)
    before = dict(known)  # of one text, for the next
    directed(who, read_markup("[voice: two]A[/voice]"), known)
    assert known == before and list(known) == ["two"]


def test_a_pause_before_all_text_is_heard_first():
    voice = speaker(ToneEngine(), output=OutputOptions(loudness=None))
    text = read_markup("[pause 800ms]one two")
    spoken = voice.speak(text)
    heard = tones(spoken.wave)
    assert heard[0][0] == pytest.approx(0.8, abs=0.05) and spoken.words
    assert spoken.words[0].start == pytest.approx(0.8, abs=0.05)
    early = list(voice.pieces(text))
    assert np.concatenate([p.wave for p in early]).shape == spoken.wave.shape
    assert tuple(w for piece in early for w in piece.words) == spoken.words


def test_a_paragraph_ends_where_a_style_does():
    for text in ("[slow]One two.[/slow]\n\n[fast]Three.[/fast]", "[slow]One two.\n\n[/slow]Three."):
        assert [p.after for p in speaker().parts(read_markup(text))] == ["paragraph", "sentence"]
    found = read_markup("[slow]One.[/slow] \n\n [spell: AB] two")
    assert [s.written.text for s in found.spans] == ["One. \n\n ", "AB two"]
    last = found.spans[1].said
    assert last.text == "ay B two" and list(last.starts) == [0, 0, 0, 0, 2, 3, 4, 5]


class CountingEngine(ToneEngine):
    """A ToneEngine that notes the sizes of batches."""

    def sample(self, noise_BNM, *args, **kwargs):
        self.batches.append(len(noise_BNM))
        return super().sample(noise_BNM, *args, **kwargs)


def test_markup_in_a_batch_is_that_of_each_text_alone():
    engine = CountingEngine()
    voice = speaker(engine, output=OutputOptions(loudness=None))
    texts = [
        read_markup("[pause 300ms]one [slow]two three[/slow][pause 1s] four"),
        "one two",
        read_markup("[fast]five[/fast] six"),
        read_ssml("<speak>seven<break time='900ms'/> <s>eight</s></speak>"),
        read_markup("[voice: nobody]one[/voice]"),
    ]
    *good, bad = voice.speak_many(texts, limits=BatchLimits(items=3))
    assert max(engine.batches) > 1
    assert isinstance(bad, InputError) and "nobody" in str(bad)
    for text, together in zip(texts, good):
        alone = voice.speak(text)
        assert isinstance(together, type(alone))
        assert np.array_equal(together.wave, alone.wave) and together.words == alone.words
