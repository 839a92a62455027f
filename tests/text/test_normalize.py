"""Normalize: English as it is read out, by a table; and laws that hold for any text."""

from __future__ import annotations

import logging
import random
import time
from pathlib import Path

import numpy as np
import pytest

from nanospeech import Speaker
from nanospeech.text.english.number_words import cardinal, roman, year
from nanospeech.text.left_out import LONGEST, LeftOut
from nanospeech.text.normalize import expand
from nanospeech.text.sentences import (
    encode,
    fit,
    fold,
    legible,
    pack,
    prepare,
    readable,
    split_sentences,
)
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech.text.traced import Traced
from tests.speech.test_speaker import TEXT, EchoEngine, sound

TABLE = Path(__file__).parents[1] / "fixtures" / "normalize.tsv"
CASES = [
    tuple(line.removeprefix("\\").split("\t"))
    for line in TABLE.read_text(encoding="utf-8").splitlines()
    if not line.startswith("# ")
]
PHONEMES = Tokenizer("phonemes", phoneme_vocab())
LOWER = Tokenizer("chars", list(" abcdefghijklmnopqrstuvwxyz.,'!?"))
BYTES = Tokenizer("bytes", [])


def read_out(text: str) -> str:
    return fold(expand(fold(text)))


@pytest.mark.parametrize(("written", "spoken"), CASES, ids=[c[0][:40] for c in CASES])
def test_english_is_read_out(written, spoken):
    assert read_out(written) == spoken


def test_the_table_is_long_and_its_own_output_stays_as_it_is():
    assert len(CASES) >= 200
    for written, spoken in CASES:
        assert read_out(spoken) == spoken, written


def random_text(rng: random.Random) -> str:
    """Half of it any characters of Unicode, half pieces of the table in any order."""
    if rng.random() < 0.5:
        ranges = [(32, 127), (32, 0x250), (0x2000, 0x2C00), (1, 0xD7FF), (0xE000, 0x10FFFF)]
        return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randrange(60)))
    pieces = [word for written, _ in CASES for word in written.split()]
    return " ".join(rng.choice(pieces) for _ in range(8))


MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8)]


@pytest.mark.parametrize("seed", [0, *MORE_SEEDS])
def test_any_text_is_read_in_known_characters_and_the_rest_is_named(seed, caplog):
    rng = random.Random(seed)
    for _ in range(150):
        text = random_text(rng)
        for tokenizer in (PHONEMES, LOWER):
            prepared = prepare(text, tokenizer)
            assert not any(c.isascii() and c.isdigit() for c in prepared)
            fitted, lost = fit(prepared, tokenizer)
            assert not tokenizer.unknown(fitted)
            assert not any(c in fitted for c in lost)
            caplog.clear()
            whole = readable(text, tokenizer)
            warning = "".join(r.getMessage() for r in caplog.records)
            assert len(caplog.records) == bool(lost)
            assert all(repr(c) in warning for c in sorted(lost)[:LONGEST])
            assert len(lost) <= LONGEST or f" and {len(lost) - LONGEST} more" in warning
            assert not fit(whole, tokenizer)[1]


def test_a_word_of_two_alphabets_is_named_as_it_is_written(caplog):
    """Its syllables were taken apart, and the parts were neither named as written nor left out."""
    whole = readable("쳿É said", PHONEMES)
    assert [r.getMessage().split(";")[0] for r in caplog.records] == ["the model has no '쳿'"]
    assert whole == "É said" and not fit(whole, PHONEMES)[1]


@pytest.mark.parametrize("seed", [0, *MORE_SEEDS[:3]])
def test_normalisation_is_idempotent(seed):
    rng = random.Random(seed)
    for _ in range(150):
        once = read_out(random_text(rng))
        assert read_out(once) == once


# each was, or could be, slow in the square of its length
RUNS = ["1", "1.", "1,111", "1-", "1/", "1:", "1 ", "$1", ".", "?!", " ", "\n", "-", "=", "a",
        "A.", "A. ", "a@", "a.", "www.", "Dr. ", "etc. ", "x1", "1 km ", "²", "½", "(", '"', "1'",
        "/a", "a/", "5' x ", "Jan-", "3 - ", "12 Elm ", "A ", "$1-", "1^2 "]  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_long_runs_of_anything_are_read(run):
    text = (run * 6_000)[:6_000]
    began = time.process_time()
    assert "".join(split_sentences(text)) == text
    said = read_out(text)
    assert not any(c.isdigit() for c in said)
    assert "".join(pack(said, 500)) == said
    assert time.process_time() - began < 2  # the square of it would be many seconds


@pytest.mark.parametrize("size", [40_000, pytest.param(400_000, marks=pytest.mark.slow)])
def test_a_wall_of_digits_and_dots_is_read(size):
    for text in ("1" * size, "1." * (size // 2)):
        said = expand(text)
        assert said.count("one") == text.count("1")


FOREIGN = [
    "これは「テスト」です。2024年1月5日、１２：３０に会いましょう…全角　スペース",
    "Die Straße ist 3,5 km lang – „schön“, nicht wahr? Größe: 1.234,56 €",
    "مرحبا، الساعة ٣:٤٥ مساءً؟ ١٢٣",
    "« Où est-il ? » — l’œuvre coûte 5 €",
    "नमस्ते। क\u094d\u200dष १२३",
    "می\u200cخواهم ۵ کتاب",
    "e\u0301 \u212b ﬁ ½ №5 👍🏽 Dr. Smith, $5, U.S.",
]


@pytest.mark.parametrize("text", FOREIGN)
def test_a_model_of_bytes_reads_what_is_written(text):
    assert prepare(text, BYTES) == text == readable(text, BYTES)
    assert bytes(encode(text, BYTES).tolist()).decode() == text


class ByteEngine(EchoEngine):
    """An engine whose tokens are bytes."""

    def __init__(self):
        super().__init__()
        self.tokenizer = BYTES


@pytest.mark.parametrize("text", FOREIGN)
def test_a_speaker_of_bytes_changes_no_character_but_spaces(text, caplog):
    speaker = Speaker(ByteEngine(), ref_audio=sound(2.5), ref_text=TEXT, seed=1)
    spoken = "".join(speaker.chunks(text))
    assert spoken.split() == text.split() or "".join(spoken.split()) == "".join(text.split())
    assert not caplog.records


def test_a_letter_is_respelled_or_dropped_and_never_read_as_another():
    fitted, lost = fit(prepare("Ærø, Łódź, Þór, naïve Straße", PHONEMES), PHONEMES)
    assert fitted == "Aero, Woodzh, Thor, naive Strasse" and not lost
    fitted, lost = fit(prepare("a Жук and 你", PHONEMES), PHONEMES)
    assert fitted.split() == ["a", "and"] and lost == set("Жук你")


def test_one_warning_names_all_that_is_not_spoken(caplog):
    text = "Hello 你 there. 🙂 This is fine. " * 20 + "And ж."
    whole = readable(text, PHONEMES)
    for chunk in pack(whole, 60):
        assert isinstance(encode(chunk, PHONEMES), np.ndarray)
    assert [r.getMessage() for r in caplog.records] == [
        "the model has no 'ж', '你', '🙂'; left out of 你, ж"
    ]
    assert caplog.records[0].levelno == logging.WARNING
    caplog.clear()
    readable("Plain “text” — naïve, 50% [of] it ™ zero\u200bwidth 👍".replace("👍", ""), PHONEMES)
    assert not caplog.records


def test_abbreviations_and_decimals_split_no_sentence():
    text = (
        "Dr. Smith paid $3.5 to Mr. Hall on Jan. 5. Maj. Tom of St. Ives left at 5 p.m. in a car."
    )
    assert split_sentences(text)[0].endswith("Jan. 5. ") and len(split_sentences(text)) == 2
    assert len(split_sentences(read_out(text))) == 2


def test_numerals():
    assert roman("XIV") == 14 and roman("MCMXCIX") == 1999
    assert roman("IIX") is None and roman("") is None and roman("ABC") is None
    assert len({year(n) for n in range(1000, 3000)}) == 2000
    assert cardinal(10**18).endswith("quintillion")


def test_the_examples_of_the_document_are_read_so():
    document = (Path(__file__).parents[2] / "docs" / "text.md").read_text(encoding="utf-8")
    table = document[document.index("| written | read |") :].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:2] == "| "]
    assert len(rows) > 10
    for written, spoken in rows[1:]:
        assert read_out(written) == spoken


def test_what_is_left_out_is_told_once_with_its_words(caplog):
    left_out = LeftOut()
    for part in (
        "Hello «Привет», world ★.",
        "Жук и мир",
        "Привет again",
        " ".join("абвгдежзийклмно"),
    ):
        legible(Traced.of(part), PHONEMES, left_out)
    first, second, third = (r.getMessage() for r in caplog.records)
    assert first == "the model has no 'П', 'в', 'е', 'и', 'р', 'т', '★'; left out of Привет"
    assert second.endswith("left out of Жук, и, мир")
    assert third.endswith("left out of а, б, в, г, д, е, ж, з, и, й, к, л and 3 more")
    assert [*left_out.words][:4] == ["Привет", "Жук", "и", "мир"]


def test_a_speaker_warns_once_of_what_it_cannot_say(caplog):
    speaker = Speaker(EchoEngine(), ref_audio=sound(2.5), ref_text=TEXT, seed=1, chunk_seconds=2)
    spoken = speaker.speak("one 你 and two. then 好 three and four. " * 6)
    assert len(spoken.chunks) > 2 and not any("你" in c for c in spoken.chunks)
    assert [r.getMessage() for r in caplog.records] == [
        "the model has no '你', '好'; left out of 你, 好"
    ]
