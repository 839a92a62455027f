"""German texts that are long: the time that they take grows with their length, not its square."""

from __future__ import annotations

import time

import pytest

from nanospeech.text.languages import find_language
from nanospeech.text.sentences import split_sentences
from nanospeech.text.traced import Traced

RUNS = ["1", "1.", "1. ", "111.", "1,", "1-", "1 - ", "1/", "1:", "1 ", "111 ", "0 ", "1x", "€1",
        "1€", "1'111", "a_", "a/", "a.", "Mo, ", "II. ", "Otto I. ", "1. und ", "am 1. ", "usw. ",
        "12:10, ", "5 €/", "½", "1 Mio. ", "1.1.1.1 ", "1 Ei ", "Fr. 1.-", "Nr. 1. ", "§1a", "Aa*",
        "Ae/r ", "Code-", "a v. ", "1/2 A", "A > ", "a^", "2·", "(", " .a",
        "1-m-", "(0 ", "A x ", "1 Mio. t "]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def num2words():
    pytest.importorskip("num2words", reason="it is of the extra languages")


@pytest.mark.parametrize("run", RUNS)
def test_long_runs_of_anything_are_read(run):
    text = (run * 6_000)[:6_000]
    language = find_language("de")
    began = time.process_time()
    said = language.normalized(Traced.of(text)).text
    assert "".join(split_sentences(text, language)) == text
    assert not any(c.isdigit() and c.isdecimal() for c in said)
    assert time.process_time() - began < 2  # the square of it would be many seconds


def test_a_wall_of_digits_is_read_one_by_one():
    said = find_language("de").normalized(Traced.of("1" * 50_000)).text
    assert said.split() == ["eins"] * 50_000
