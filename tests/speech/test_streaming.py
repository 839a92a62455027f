"""Streams of speech: no word is lost, pieces are the whole, seams are not heard, memory is flat."""

from __future__ import annotations

import dataclasses
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from nanospeech import InputError, SampleOptions, Speaker, load_engine
from nanospeech.audio import wave as audio
from nanospeech.config import VocoderConfig
from nanospeech.output import OutputOptions
from nanospeech.release.prompt import Prompt
from nanospeech.speech import chunks as speech
from nanospeech.speech import script, streaming
from nanospeech.speech.chunks import CROSS_FADE
from nanospeech.speech.pauses import Paced, set_pauses
from nanospeech.text.languages import find_language
from nanospeech.text.sentences import pack, split_sentences
from tests.conftest import BACKENDS, tone
from tests.speech.test_speaker import RATE, EchoEngine, speaker
from tests.text.test_sentences import SPLITS, messy_text

FAST = SampleOptions(steps=2)
TEXT = (
    "The boat left the harbour at dawn, and nobody saw it go. It came back late, with fish! "
    "Who had counted them, and why, was never told. They were sold in the square.\n\nThe end."
)


def early(text: str, first: float = 20, full: float = 150) -> list[str]:
    return list(streaming.pack_early(text, streaming.budgets(first, full), full, least=9))


@pytest.mark.parametrize("seed", range(20))
def test_early_chunks_lose_no_character(seed):
    text = messy_text(seed)
    for first, full in ((4, 40), (20, 150), (200, 150)):
        assert "".join(early(text, first, full)) == text


@pytest.mark.parametrize("sentences", SPLITS, ids=lambda s: s[0][:20])
def test_early_chunks_end_with_a_sentence_or_a_clause(sentences):
    text = "".join(sentences)
    chunks = early(text)
    assert "".join(chunks) == text
    for chunk in chunks[:-1]:
        assert chunk.rstrip()[-1] in '.!?,;:)。！？"' or chunk.endswith("\n")


@pytest.mark.parametrize("seed", range(5))
def test_portions_lose_no_character_and_end_where_they_can(seed):
    text = messy_text(seed) * 5
    for most in (1, 7, 60):
        cut = list(streaming.portions(text, most=most))
        assert "".join(cut) == text and all(most < len(p) <= 2 * most for p in cut[:-1])
        assert len(cut[-1]) <= 2 * most
        assert list(streaming.portions(text[: 2 * most], most=most)) == [text[: 2 * most]]
    lines = "a word, another word\n" * 40
    for unit in ("It went. ", "One line, and\nmore. So.\n\n", "no mark at all ", lines):
        *cut, _ = streaming.portions(unit * 60, most=100)
        assert len(cut) > 1
        assert all(p.endswith("\n" if "\n" in unit else " ") for p in cut)


def test_a_text_of_two_portions_is_not_long():
    text = "a" * 2 * streaming.PORTION
    assert not streaming.is_long(text) and streaming.is_long(text + "a")
    assert not streaming.is_long(["a", *text])


def test_steps_are_counted_over_all_chunks():
    told: list[tuple[int, int]] = []
    count = streaming.StepCounter(lambda done, of: told.append((done, of)), [4, 2, 3])
    for index, steps in enumerate([5, 2, 3]):  # the first one's are more than were expected
        count.begin(index)
        count(1, steps)
        count(steps, steps)
    assert told == [(1, 10), (5, 10), (6, 10), (7, 10), (8, 10), (10, 10)]


def test_the_first_of_a_long_text_is_spoken_before_the_rest_is_read(monkeypatch):
    """Reading a book of a megabyte took 30 s; what is wrong at its end is told when it is due."""
    read: list[int] = []
    legible = script.legible
    monkeypatch.setattr(script, "legible", lambda *a: read.append(len(a[0])) or legible(*a))
    paragraph = "One and two and three. Four and five.\n\n"
    text = paragraph * (5 * streaming.PORTION // len(paragraph))
    one = speaker()
    pieces = one.pieces(text)
    assert len(next(pieces).wave) and sum(read) < len(text) / 2
    wanted = [part.text for part in one.parts(text, early=True)]
    portions = streaming.portions(text)
    assert [part.text for part in one._texts(portions, early=True)] == wanted
    with pytest.raises(InputError, match="no text to speak"):
        one.pieces(". " * 2 * streaming.PORTION)
    with pytest.raises(InputError, match="UTF-8"):
        one.pieces(text + "\ud800")


def test_chunks_grow_from_a_clause_to_those_of_a_whole_text():
    text = "One clause is here, and another one is there. " * 30
    chunks = early(text)
    assert chunks[0] == "One clause is here, "
    sizes = [len(c) for c in chunks]
    assert sizes[0] < sizes[1] < sizes[3] and max(sizes) <= 150
    rest = text[sum(sizes[:4]) :]
    assert chunks[4:] == pack(rest, 150)
    assert early("Hi. Yes. No. But nobody was there.") == ["Hi. Yes. No. ", "But nobody was there."]
    # a short end of a sentence stays with it, and one that has no clause is not parted
    assert (
        early("It was far away from here, too. Then not.")[0] == "It was far away from here, too. "
    )
    assert early("No clause ends in this sentence here. Then.")[0].endswith("here. ")


@pytest.mark.parametrize("sentences", SPLITS, ids=lambda s: s[0][:20])
def test_text_that_arrives_in_bits_has_the_same_sentences(sentences):
    text = "".join(sentences)
    for size in (1, 2, 5, 1000):
        bits = [text[i : i + size] for i in range(0, len(text), size)]
        runs = list(streaming.whole_sentences(bits))
        assert "".join(runs) == text
        assert [s for run in runs for s in split_sentences(run)] == sentences


def test_an_abbreviation_of_the_language_ends_no_sentence():
    german, sentence = find_language("de"), "Das Haus Nr. 5 ist alt, bzw. Sehr alt. "
    assert list(streaming.whole_sentences(sentence * 3, german)) == [sentence] * 3
    *cut, _ = streaming.portions(sentence * 60, german, most=100)
    assert len(cut) > 1 and all(p.endswith("Sehr alt. ") for p in cut)


def engine_with(engine, config: VocoderConfig | None):
    """An EchoEngine that says it has such a vocoder."""
    engine.config = dataclasses.replace(engine.config, vocoder=config)
    return engine


@pytest.mark.parametrize("frames", [2, 17, 60, 200, 437])
def test_a_mel_in_pieces_is_the_whole(tiny_release, engine_of, backend, frames):
    engine = engine_of(tiny_release, backend)
    mel = np.random.default_rng(frames).standard_normal((frames, 100)).astype("f4") * 2 - 4
    whole = engine.vocode(mel[None])[0]
    for first, skip in ((8, 0), (48, 16), (5, 1)):
        pieces = list(streaming.vocode(engine, mel, skip, first))
        wave = np.concatenate([whole[:0], *pieces])
        assert wave.shape == whole[skip * 256 :].shape
        assert np.abs(wave - whole[skip * 256 :]).max(initial=0) <= 2e-5 * np.abs(whole).max()
        assert frames < 100 or len(pieces) > 1


def test_the_shipped_vocoder_in_pieces_is_the_whole():
    engine = load_engine(backend="torch")
    mel = Speaker(engine, seed=1).prompt.mel[:230]
    whole = engine.vocode(mel[None])[0]
    pieces = list(streaming.vocode(engine, mel))
    assert len(pieces) > 1
    assert np.abs(np.concatenate(pieces) - whole).max() <= 2e-5


def test_pieces_grow_and_none_is_a_scrap():
    engine = engine_with(EchoEngine(), VocoderConfig(num_layers=1))
    for hops, wanted in ((60, [8, 16, 36]), (73, [8, 16, 32, 17]), (12, [12]), (13, [8, 5])):
        mel = np.ones((hops + 1, 100), np.float32)
        assert [len(p) // 256 for p in streaming.vocode(engine, mel, first=8)] == wanted


def test_no_sample_depends_on_what_is_out_of_reach(tiny_release, engine_of, backend):
    engine = engine_of(tiny_release, backend)
    reach = streaming.receptive_field(engine.config.vocoder)
    assert reach == 3 * 3 + 2
    mel = np.random.default_rng(0).standard_normal((1, 80, 100)).astype("f4")
    other = mel.copy()
    other[0, 40] += 3
    a, b = (engine.vocode(x)[0].reshape(-1, 256) for x in (mel, other))
    changed = np.flatnonzero(np.abs(a - b).max(1) > 0)  # hops; hop n lies between frames n and n+1
    assert 40 - reach <= changed[0] and changed[-1] < 40 + reach
    assert len(changed) >= 2 * reach - 2  # and reach is no longer than it must be


def test_convolutions_are_as_wide_as_is_reckoned():
    pytest.importorskip("mlx.core")
    from nanospeech_mlx import vocoder as mlx
    from nanospeech_torch import vocoder as torch

    assert streaming.KERNEL == torch.KERNEL == mlx.KERNEL


def test_a_vocoder_with_griffin_lim_iters_has_no_receptive_field():
    engine = engine_with(EchoEngine(), VocoderConfig(griffin_lim_iters=3))
    assert streaming.receptive_field(engine.config.vocoder) is None
    mel = np.random.default_rng(0).standard_normal((300, 100)).astype("f4")
    (piece,) = streaming.vocode(engine, mel, 16)
    assert np.array_equal(piece, engine.vocode(mel[None])[0][16 * 256 :])


def test_the_first_half_second_is_decoded_before_the_rest_of_its_chunk():
    engine, sizes = engine_with(EchoEngine(), VocoderConfig(num_layers=1)), []
    decode = engine.vocode

    def vocode(mel_BNM, lens_B=None):
        sizes.append(mel_BNM.shape[1])
        return decode(mel_BNM, lens_B)

    engine.vocode = vocode
    voice = speaker(engine)
    first = streaming.FIRST_PIECE + streaming.receptive_field(engine.config.vocoder)
    for whole in (False, True):
        sizes.clear()
        next(voice.pieces("It goes on and on, and nothing stops it on its way", early=not whole))
        assert (sizes[0] <= first + speech.CONTEXT) != whole
        assert whole == (len(sizes) == 1)


def test_the_vocoder_begins_with_the_end_of_the_prompt():
    new = np.full((5, 100), 7, np.float32)
    for frames in (3, speech.CONTEXT, 40):
        mel = np.random.default_rng(0).standard_normal((frames, 100)).astype("f4")
        row, count = speech.in_context(EchoEngine(), Prompt(mel, np.arange(3), 15.0, 1.0), new)
        assert count == min(frames, speech.CONTEXT)
        assert np.array_equal(row, np.concatenate([mel[frames - count :], new]))


@pytest.mark.parametrize(
    ("backend", "kind"),
    [  # MLX takes ten times as long for the first
        pytest.param(b, k, marks=pytest.mark.slow if (b, k) == ("mlx", "tiny_release") else [])
        for b in BACKENDS
        for k in ("tiny_release", "tiny_aligned")
    ],
    indirect=["backend"],
)
def test_a_stream_is_its_chunks_spoken_and_joined(request, engine_of, backend, kind):
    engine = engine_of(request.getfixturevalue(kind), backend)
    own = OutputOptions(loudness=None)  # a stream's gain depends on its pieces
    voice = Speaker(engine, options=FAST, seed=5, chunk_seconds=3, output=own)
    parts = voice.parts(TEXT, early=True)
    assert len(parts) > len(voice.chunks(TEXT))
    waves = []
    for i, part in enumerate(parts):
        chunk = voice.chunk(part.text, 5 + i, after=part.after)
        (mel,) = speech.sample(engine, voice.prompt, [chunk], FAST)
        paced = set_pauses(engine, mel, chunk, voice.output, first=i == 0)
        waves += speech.vocode(engine, voice.prompt, [paced.mel])
    waves[-1] = waves[-1][: paced.samples(256)]
    pieces = list(voice.stream(TEXT))
    joined = speech.join(waves, RATE)
    whole = np.concatenate(list(voice.level([joined], early=True)))
    assert len(pieces) > len(parts)
    assert np.abs(np.concatenate(pieces) - whole).max() <= 1e-4 * max(1, np.abs(whole).max())


def test_the_chunks_of_a_stream_are_the_text_normalised():
    engine = EchoEngine()
    voice = speaker(engine)
    assert len(voice.chunks(TEXT, early=True)) > len(voice.chunks(TEXT))
    assert " ".join(voice.chunks(TEXT, early=True)) == " ".join(voice.chunks(TEXT))
    list(voice.stream(TEXT))
    said = " ".join(c["text"] for c in engine.calls)
    assert said == " ".join(voice.chunks(TEXT)).lower()
    assert engine.calls[0]["text"] == "the boat left the harbour at dawn,"


@pytest.mark.parametrize("early", [True, False])
def test_a_sentence_is_heard_before_the_next_is_written(early):
    text, asked = "First this is said. Then that! And last it ends", []

    def words():
        for word in text.split(" "):
            asked.append(word)
            yield word + " "

    engine = EchoEngine()
    output = OutputOptions(None, pause_sentence=0.5, pause_paragraph=0.5)
    waves = speaker(engine, output=output).stream(words(), early=early)
    heard = next(waves)
    assert len(asked) == 5 and len(engine.calls) == 1  # "Then" shows that "said." is whole
    assert len(heard) / RATE > 0.5
    rest = list(waves)
    said = [c["text"] for c in engine.calls]
    assert said == ["first this is said.", "then that!", "and last it ends"]
    text = "First this is said.\n\nThen that!\n\nAnd last it ends"
    whole = speaker(EchoEngine(), output=output).speak(text)
    assert np.array_equal(np.concatenate([heard, *rest]), whole.wave)


def test_text_that_arrives_must_say_something_and_has_no_length():
    with pytest.raises(InputError, match="no text"):
        list(speaker().stream(iter([" ", "..."])))
    with pytest.raises(InputError, match="length"):
        speaker().stream(iter(["Hello."]), seconds=3)


def test_a_wanted_length_is_met_by_a_stream():
    pieces = list(speaker(chunk_seconds=4).stream(TEXT, seconds=20))
    assert sum(map(len, pieces)) / RATE == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize("minutes", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_memory_is_flat_over_minutes_of_text(minutes):
    engine = engine_with(EchoEngine(), VocoderConfig(num_layers=2))
    text = "It goes on and on, and nothing is kept of it. " * (24 * minutes)
    waves = speaker(engine).stream(text)
    heard, peaks = 0, []
    tracemalloc.start()
    for minute in (1, 2, minutes):
        while heard < minute * 60 * RATE and (wave := next(waves, None)) is not None:
            heard += len(wave)
            engine.calls.clear()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
    tracemalloc.stop()
    assert heard > 0.95 * minutes * 60 * RATE and engine.rests > 5 * minutes
    assert peaks[2] < 1.1 * peaks[1] < 100e6


def test_mlx_keeps_no_freed_memory_between_chunks(tiny_release, engine_of):
    mx = pytest.importorskip("mlx.core")
    engine = engine_of(tiny_release, "mlx")
    waves = Speaker(engine, options=FAST, seed=1).stream("hello there. bye!")
    assert len(list(waves)) > 1
    mx.clear_cache()
    engine.vocode(np.zeros((1, 50, 100), "f4"))
    assert mx.get_cache_memory() > 0
    engine.clear_cache()
    assert mx.get_cache_memory() == 0


# seams


def high_band(wave: np.ndarray, at: int, width: int = 480) -> float:
    """Energy above 6 kHz in 20 ms around a sample."""
    part = wave[max(0, at - width // 2) : at + width // 2]
    power = np.abs(np.fft.rfft(part * np.hanning(len(part)), width)) ** 2
    return float(power[round(6000 * width / RATE) :].sum())


INAUDIBLE = 2e-5  # that energy of white noise of -90 dBFS


def clicks(wave: np.ndarray, seams: list[int]) -> list[int]:
    """The seams with more in the high band than 20 ms before, 20 ms after and usual around.

    Usual is the median within a quarter of a second in silence, where a click is heard best, and
    the most within a sound. What is still there 20 ms later is the onset of a sound, no click.
    """
    found = []
    for seam in seams:
        near = range(max(240, seam - RATE // 4), min(len(wave) - 240, seam + RATE // 4), 240)
        around = [high_band(wave, p) for p in near if all(abs(p - s) > 960 for s in seams)]
        silent = audio.rms(wave[seam - 480 : seam]) < 0.01
        sides = [high_band(wave, seam - 480), high_band(wave, seam + 480)]
        usual = (np.median if silent else np.max)(around)
        if high_band(wave, seam) > 1.05 * max(*sides, usual, INAUDIBLE):
            found.append(seam)
    return found


def test_no_seam_clicks():
    # by default: in two steps only, what imitates him breathes at a seam, 20 ms at -60 dBFS
    voice = Speaker(load_engine(backend="torch"), "robin", seed=2)
    text = (
        "It rained all night. The moon came out, and the road was wet. We wait."  # no s at a seam
    )
    parts = voice._waves(voice.parts(text, early=True), None, None, True, voice.timeline())
    pieces = list(audio.cross_fade(parts, int(CROSS_FADE * RATE)))  # not yet levelled
    wave = np.concatenate(pieces)
    # a chunk's cross-fade begins where the piece before was cut off, and lasts 30 ms
    cuts = np.cumsum([len(p) for p in pieces])[:-1].tolist()
    seams = sorted({cut + shift for cut in cuts for shift in (0, 360)})
    assert len(cuts) > len(voice.chunks(text, early=True))
    assert clicks(wave, seams) == []
    silent = [c for c in cuts if max(map(audio.rms, (wave[c - 480 : c], wave[c : c + 960]))) < 0.01]
    assert len(silent) >= 3  # and no sound begins right behind them
    for cut in silent:
        broken = wave.copy()
        broken[cut:] += np.float32(0.05)  # a step
        assert cut in clicks(broken, seams)


def test_a_recording_in_pieces_is_joined_without_a_trace():
    """Only seams between waves are mixed; those inside one are left alone."""
    wave = tone(1.0)
    cuts = [0, 3000, 3100, 9000, len(wave)]
    pieces = [wave[a:b] for a, b in pairwise(cuts)]
    other = tone(0.5, pitch=200)
    in_pieces = np.concatenate(list(audio.cross_fade([iter(pieces), other], 720)))
    assert np.array_equal(in_pieces, audio.join([wave, other], 720))


def test_a_chunk_in_pieces_fades_only_at_its_ends():
    prompt = Prompt(np.ones((20, 100), "f4"), np.arange(3), 15.0, 2.0)
    engine = engine_with(EchoEngine(), VocoderConfig(num_layers=1))
    mel = np.random.default_rng(1).standard_normal((400, 100)).astype("f4")
    pieces = list(streaming.vocode_chunk(engine, prompt, mel))
    assert len(pieces) > 2
    assert np.array_equal(np.concatenate(pieces), speech.vocode(engine, prompt, [mel])[0])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("last", [31, 49, 51, 101])  # the first piece has 48
def test_the_silence_behind_a_chunk_is_heard_where_another_follows(early, last):
    prompt = Prompt(np.ones((20, 100), "f4"), np.arange(3), 15.0, 1.0)
    engine = engine_with(EchoEngine(), VocoderConfig(num_layers=1))
    mel = np.random.default_rng(1).standard_normal((101, 100)).astype("f4")
    whole = speech.vocode(engine, prompt, [mel])[0]
    for following, count in (([mel], 100), ([], last - 1)):
        ahead = streaming.Peekable(following)
        pieces = list(streaming.vocode_paced(engine, prompt, Paced(mel, last), early, ahead))
        assert np.array_equal(np.concatenate(pieces), whole[: count * 256])
    assert engine.rests == 2
