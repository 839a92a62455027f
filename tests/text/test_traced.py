"""Traced: edits that equal those of strings, and places that are in order and never lost."""

import random
import re

import numpy as np
import pytest

from nanospeech.text.lexicon import Lexicon
from nanospeech.text.places import encode_places
from nanospeech.text.sentences import prepare, prepared
from nanospeech.text.tags import hide, show
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech.text.traced import Rules, Traced, joined, unchanged_ends
from tests.text.test_normalize import BYTES, CASES, LOWER, PHONEMES, random_text

RULES = [
    (r"[aeiou]+", lambda m: m[0].upper()),
    (r"\b", lambda m: "|"),
    (r"(\w+) (\w+)", lambda m: f"{m[2]} and {m[1]} "),
    (r"\s+", " "),
    (r"(?<=\w)(?=\d)", lambda m: " "),
    (r"[^\w\s]", lambda m: ""),
]


def test_rules_are_compiled_when_they_first_run_and_once():
    rules = Rules([(r"b+", lambda m: "c"), (r"c", lambda m: "d")])
    assert "compiled" not in vars(rules)
    assert Traced.of("abba").run(rules).text == "ada"
    assert next(iter(rules)) is next(iter(rules))


@pytest.mark.parametrize(("pattern", "rule"), RULES, ids=[pattern for pattern, _ in RULES])
def test_edits_are_those_of_strings(pattern, rule):
    rng = random.Random(1)
    for _ in range(50):
        text = random_text(rng)
        found = Traced.of(text).sub(re.compile(pattern), rule)
        assert found.text == re.sub(pattern, rule, text)
        assert len(found.text) == len(found.starts) == len(found.stops)
        assert Traced.of(text).in_one_line().text == " ".join(text.split())
        parts = Traced.of(text).split(re.compile(r"\s"))
        assert [p.text for p in parts] == re.split(r"\s", text)
        assert joined(parts, "--").text == "--".join(re.split(r"\s", text))


def test_characters_that_no_rule_touches_keep_their_places():
    text = Traced.of("He paid $5 to Dr. Hall", 100)
    found = text.run([
        (re.compile(r"to Dr\. H"), lambda m: "to Doctor H"),
        (re.compile(r"\$5"), lambda m: "five dollars"),
    ])  # fmt: skip
    assert found.text == "He paid five dollars to Doctor Hall"
    spans = list(zip(found.starts.tolist(), found.stops.tolist()))
    assert spans[:8] == [(i, i + 1) for i in range(100, 108)]
    assert set(spans[8:20]) == {(108, 110)}  # both words stand for "$5"
    assert spans[20:24] == [(i, i + 1) for i in range(110, 114)]  # " to " is as it was
    assert set(spans[24:30]) == {(114, 117)}
    assert spans[30:] == [(i, i + 1) for i in range(117, 122)]


def test_what_is_put_in_stands_between_its_neighbours():
    text = Traced.of("ab cd", 10)
    for at in (0, 3, 5):
        found = text.edited([(at, at, "x")])
        assert (found.starts[at], found.stops[at]) == (10 + at, 10 + at)
    for last, place in (("cd", 15), ("", 20)):
        whole = joined([Traced.of("ab", 10), Traced.of(""), Traced.of(last, place)], "-")
        assert whole.text == f"ab--{last}"
        assert whole.starts.tolist() == [10, 11, 12, 12, 15, 16][: len(whole)]
        assert whole.stops.tolist() == [11, 12, 12, 15 if last else 12, 16, 17][: len(whole)]


def test_only_whole_words_are_unchanged():
    assert unchanged_ends("New York", "New Yorker") == (4, 0)
    assert unchanged_ends("5 km ", "five kilometers ") == (0, 1)
    assert unchanged_ends("a b", "a b") == (3, 0)


@pytest.mark.parametrize("tokenizer", [PHONEMES, LOWER, BYTES], ids=lambda t: t.kind)
def test_places_are_in_order_and_within_the_text(tokenizer):
    rng = random.Random(2)
    for text in [written for written, _ in CASES] + [random_text(rng) for _ in range(60)]:
        found = prepared(Traced.of(text), tokenizer)
        assert found.text == prepare(text, tokenizer)
        if len(found):
            assert np.all(np.diff(found.starts) >= 0) and np.all(np.diff(found.stops) >= 0), text
            assert found.starts[0] >= 0 and found.stops[-1] <= len(text)
            assert np.all(found.stops >= found.starts)


def test_words_that_no_rule_may_touch_keep_the_places_of_their_characters():
    words = {"New Orleans\u2060": "N UW1 | AO1 R L AH0 N Z", "Wall St. 5": "W AO1 L | AY1"}
    tokenizer = Tokenizer("phonemes", phoneme_vocab()).with_lexicon(Lexicon(words))
    text = "In New Orleans\u2060, or Wall St. 5 men"
    found = prepared(Traced.of(text), tokenizer)
    for word in words:
        at, place = found.text.index(word), text.index(word)
        assert [*found.starts[at : at + len(word)]] == [*range(place, place + len(word))]
    _, places = encode_places(found, tokenizer)
    assert (np.diff(places) >= 0).all()
    alias = Traced.of("NO!").edited([(0, 2, "New Orleans")])  # all of it stands for two letters
    shown = show(*hide(alias, re.compile("New Orleans")))
    assert shown.text == alias.text and [*shown.starts] == [*alias.starts]
    assert [*shown.stops] == [*alias.stops] == [2] * 11 + [3]
