"""Laws of words with several sounds: the reading that the sentence asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanospeech.text.heteronyms import say_heteronym, table
from nanospeech.text.phonemes import SYMBOLS
from nanospeech.text.sentences import pack
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

FOLDER = Path(__file__).parent.parent / "fixtures" / "heteronyms"
PHONEMES = Tokenizer("phonemes", phoneme_vocab())


def share_right(name: str) -> tuple[int, float]:
    """How many sentences a list has, and the share that is read right."""
    rows = [line.split("\t") for line in (FOLDER / name).read_text().splitlines()]
    right = 0
    for label, sentence in rows:
        before, word, behind = sentence.split("*")
        assert label in table()[word.lower()], (label, sentence)
        found = say_heteronym(before + word + behind, len(before), len(before) + len(word))
        right += found is not None and found[1] == label
    return len(rows), right / len(rows)


def test_readings_are_sounds_and_differ():
    assert len(table()) > 200
    for word, said in table().items():
        assert len(set(said.values())) == len(said) == 2, word
        assert all(set(p) <= set(SYMBOLS) for p in said.values()), word


@pytest.mark.parametrize("name, least", [("dev.tsv", 100), ("dev_2.tsv", 700)])
def test_the_rules_read_the_sentences_that_they_were_made_by(name, least):
    count, share = share_right(name)
    assert count > least and share == 1


def test_and_those_that_they_were_not():
    count, share = share_right("test.tsv")
    assert count == 300 and share > 0.95


@pytest.mark.parametrize("text, phonemes", [
    ("I read it yesterday.", "R EH1 D"),
    ("We read about it in the paper this morning.", "R EH1 D"),
    ("I will read it this morning.", "R IY1 D"),
    ("I will read it.", "R IY1 D"),
    ("Read it!", "R IY1 D"),
    ("He'd rather live here.", "L IH1 V"),
    ("She watched it live on TV.", "L AY1 V"),
    ("The show airs live.", "L AY1 V"),
    ("Is it live?", "L AY1 V"),
    ("Live from New York!", "L AY1 V"),
    ("I saw you live through it.", "L IH1 V"),
    ("Let them live in peace.", "L IH1 V"),
    ("They live close by.", "K L OW1 S"),
    ("Des Moines", "D AH0   M OY1 N"),
    ("Her uncle Des came.", "D EH1 Z"),
    ("an LED TV", "EH1 L IY1 D IY1   T IY1 V IY1"),
    ("She took the SAT.", "EH1 S EY1 T IY1"),
    ("SAT scores", "EH1 S EY1 T IY1"),
    ("HE SAT DOWN", "S AE1 T   D AW1 N"),
    ("He led TV crews. HE LED THE BAND.", "L EH1 D   T IY1 V IY1"),
    ("“Record” is a word. They object to it.", "R EH1 K ER0 D"),
])  # fmt: skip
def test_tokens_are_those_of_the_reading(text, phonemes):
    assert phonemes in " ".join(PHONEMES.tokens(text))


def test_a_clause_is_read_alike_whatever_follows():
    """Places of pauses are found by the tokens of a text up to a mark."""
    for line in (FOLDER / "test.tsv").read_text().splitlines():
        text = line.split("\t")[1].replace("*", "") + " "
        more = text + "The records increase, they live close by."
        assert PHONEMES.tokens(more)[: len(PHONEMES.tokens(text))] == PHONEMES.tokens(text)


def test_long_texts_cost_in_proportion():
    text = "They read " * 2000
    assert len(pack(text, 200)) > 10 and len(PHONEMES.spoken(text)) > 7000
