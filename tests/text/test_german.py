"""German: how it is read, where its sentences end, and what a model without umlauts gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nanospeech.errors import BackendError
from nanospeech.speech.streaming import whole_sentences
from nanospeech.text.german.german import STAGES
from nanospeech.text.german.number_words import cardinal
from nanospeech.text.languages import find_language
from nanospeech.text.sentences import fit, prepare, split_sentences
from nanospeech.text.tokenizer import Tokenizer
from nanospeech.text.traced import Traced

CASES = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "fixtures" / "german.tsv")
    .read_text(encoding="utf-8")
    .splitlines()
]
VOCAB = [*" abcdefghijklmnopqrstuvwxyzäöüß.,?!"]


@pytest.fixture(scope="module")
def german() -> Tokenizer:
    pytest.importorskip("num2words", reason="it is of the extra languages")
    return Tokenizer("chars", VOCAB).with_language("de")


def test_numbers_dates_amounts_and_abbreviations_are_read_as_pinned(german):
    assert len(CASES) >= 150 and len({text for text, _ in CASES}) == len(CASES)
    found = [(text, prepare(text, german)) for text, _ in CASES]
    assert found == [tuple(case) for case in CASES]


def test_a_stage_that_is_skipped_would_have_changed_nothing():
    skipped = 0
    for text in (text for case in CASES for text in case):
        for rules, needed in STAGES:
            if not needed.search(text):
                skipped += 1
                assert Traced.of(text).run(rules).text == text
    assert skipped > 100


def test_what_has_been_read_is_read_again_unchanged(german):
    said = [said for _, said in CASES]
    kept = ("Jan.", "Max.")  # names that look like abbreviations
    assert [prepare(s, german) for s in said if not s.endswith(kept)] == [
        s for s in said if not s.endswith(kept)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Am 3. Mai kam er.| Dann ging er.",
        "Im 19. Jahrhundert war das so.| Heute nicht.",
        "Er ist 19.| Das ist jung.",
        "Wir mögen z. B. Äpfel.| Und Birnen.",
        "Das ist gut, d. h. nicht schlecht.| Ja.",
        "Äpfel, Birnen usw.| Das ist Obst.",
        "Äpfel usw. sind Obst.",
        "Dr. Müller und Prof. Weber kamen.| Gut!",
        "Nach § 5 Abs. 2 gilt das.| Immer.",
        "Es war 1989.| Die Mauer fiel.",
        "Fragen Sie Hrn. Schmidt.| Er weiß es.",
    ],
)
def test_sentences_end_where_they_do(text):
    wanted = text.split("|")
    language = find_language("de")
    assert "".join(split_sentences(text.replace("|", ""), language)) == "".join(wanted)
    found = split_sentences(text.replace("|", ""), language)
    assert [s.strip() for s in found] == [s.strip() for s in wanted]
    # and while it is still being written
    letters = whole_sentences(iter(text.replace("|", "")), language)
    assert [s.strip() for s in letters] == [s.strip() for s in wanted]


def test_a_model_without_umlauts_gets_their_usual_spelling(german):
    plain = Tokenizer("chars", [*" abcdefghijklmnopqrstuvwxyz.,"])
    assert fit("Öl, Straße", plain.with_language("de")) == ("oel, strasse", set())
    assert fit("Öl", plain.with_language("fi"))[0] == "ol"
    assert fit("Öl", german)[0] == "öl"


def test_the_missing_package_is_named(german, monkeypatch):
    cardinal.cache_clear()
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(BackendError, match=r"pip install 'nanospeech-tts\[languages\]'"):
        prepare("5 Äpfel", german)
    assert prepare("Äpfel", german) == "Äpfel"
