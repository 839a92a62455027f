"""Written: each word as written has one span of what is read, in order, and none is lost."""

import random
import re
import time
from itertools import pairwise

import pytest

from nanospeech.text.sentences import legible, prepare
from nanospeech.text.traced import Traced
from nanospeech.text.written import WORD, Written, by_length, divide, written_words
from tests.text.test_normalize import BYTES, CASES, LOWER, PHONEMES, random_text


def words_of(text: str, tokenizer=PHONEMES, place: int = 0) -> tuple[list[Written], str]:
    said = legible(Traced.of(text), tokenizer)
    return written_words(text, said, lambda word: prepare(word, tokenizer), place), said.text


def check(text: str, tokenizer) -> None:
    words, said = words_of(text, tokenizer, 7)
    assert "".join(word.text for word in words) == "".join(text.split())
    at, place = 0, 7
    for word in words:
        assert at <= word.start <= word.stop <= len(said), (text, word)
        assert not any(c.isalnum() for c in said[at : word.start]), (text, word)
        assert word.place >= place and text[word.place - 7 :].startswith(word.text)
        at, place = word.stop, word.place + len(word.text)
    assert not any(c.isalnum() for c in said[at:]) or not words


@pytest.mark.parametrize("tokenizer", [PHONEMES, LOWER, BYTES], ids=lambda t: t.kind)
def test_every_word_of_the_table_is_said_once_and_in_order(tokenizer):
    for written, _ in CASES:
        check(written, tokenizer)


@pytest.mark.parametrize("seed", range(4))
def test_every_word_of_any_text_is_said_once_and_in_order(seed):
    rng = random.Random(seed)
    for _ in range(120):
        text = random_text(rng)
        if rng.random() < 0.3:
            text = f"# {text}\n\n{random_text(rng)} — \n\n{random_text(rng)}"
        check(text, rng.choice([PHONEMES, LOWER, BYTES]))


READ = [
    ("Jan. 5, 2024, 9:30 p.m. ET", "January|fifth,|twenty twenty-four,|nine thirty|pee em|E T"),
    ("he paid $5 million to Dr. Hall.", "he|paid|five|million dollars|to|Doctor|Hall."),
    ("5 January — Henry VIII of the U.S.", "the fifth of|January|-|Henry|the eighth|of|the|U S."),
    ("## The *End* ##\n\nslept—the 5’10\" man", "|The|End.||slept -|the|five foot ten|man"),
    ("2 1/2 miles & x² + 3 🙂!", "two and a|half|miles|and|x squared|plus|three|!"),
    ("这是 5 km。", "||five|kilometers。"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), READ, ids=[text for text, _ in READ])
def test_words_are_read_as_they_should_be(text, said):
    words, read = words_of(text)
    found = [read[word.start : word.stop] for word in words]
    assert found == said.split("|")


def test_a_word_said_for_several_is_shared_by_length():
    assert by_length(["ab", "a", "b"], 10, 18) == [(10, 14), (14, 16), (16, 18)]
    said = Traced.of("x plus y").sub(re.compile("x plus"), lambda m: "sum")
    words = written_words("x plus y", said, lambda word: word)
    assert [(word.start, word.stop) for word in words] == [(0, 0), (0, 3), (4, 5)]


def test_a_word_that_a_rule_puts_in_goes_with_the_one_before():
    for pattern, new, parts in (
        ("(?<=go) ", " right away ", ["go right away", "home"]),
        ("^", "please ", ["please go", "home"]),
        ("$", " now", ["go", "home now"]),
    ):
        said = Traced.of("go home").sub(re.compile(pattern), new)
        words = written_words("go home", said, lambda word: word)
        assert [said.text[word.start : word.stop] for word in words] == parts


def test_many_words_that_are_said_as_a_whole_are_shared_unread():
    spans = [(3 * i, 3 * i + 2) for i in range(64)]  # 64 * 64 > 4000: reading takes the square
    parts = divide(["ab"] * 64, spans, "ab " * 64, pytest.fail)
    assert parts[0][0] == 0 and parts[-1][1] == spans[-1][1]
    assert all(a[1] == b[0] for a, b in pairwise(parts))


def test_words_of_a_text_of_dashes_are_found_at_once():
    begin = time.process_time()
    assert len(WORD.findall("—" * 20_000)) == 20_000
    assert WORD.findall("Oh — “—no…” —" + "!" * 200) == ["Oh", "—", "“—", "no…”", "—" + "!" * 200]
    assert time.process_time() - begin < 3
