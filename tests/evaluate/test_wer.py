"""Error rates of text: spellings of one sound, edit distance, words that leak."""

import numpy as np
import pytest

from nanospeech.errors import InputError
from nanospeech.evaluate.items import SENTENCES, read_texts
from nanospeech.measure.wer import cer, edit_distance, leaked, normalize, rate, wer


@pytest.fixture
def normalizer():
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")


SAME = [
    ("Don't stop; it's late!", "do not stop it is late"),
    ("twenty-one cats", "21 cats"),
    ("two thousand dollars", "$2,000"),
    ("We won't. They can't.", "we will not they cannot"),
    ("I’m sure she’ll come", "I am sure she will come"),
    ("Grey colours in the centre", "gray colors in the center"),
    ("he realised", "He realized."),
    ("Mister Brown is okay", "Mr. Brown is OK"),
    ("a café", "[Music] A cafe, um..."),
    ("three o'clock", "3 o'clock"),
    ("It opens at nine thirty", "It opens at 9:30."),
    ("at ten oh five a.m. today", "at 10:05 AM today"),
    ("seven pm", "7:00 p.m."),
    ("the U.S.A. and the U.K.", "the USA and the UK"),
    ("nineteen eighty-four", "1984"),
    ("on the third of June", "on the 3rd of June"),
    ("a hundred miles", "100 miles"),
    ("two point five percent", "2.5%"),
    ("ten kilograms", "10kg"),
    ("Doctor Jones lives at number five", "Dr. Jones lives at No. 5"),
    ("five dollars and ninety-nine cents", "$5.99"),
    ("The king (who was old) left.", "the king, who was old, left"),
    ("\ufeffThey co\u00adoperate", "They cooperate."),
]


@pytest.mark.parametrize("said, heard", SAME)
def test_two_spellings_of_one_sound_are_the_same(normalizer, said, heard):
    assert normalize(said) == normalize(heard)
    assert wer([(said, heard)]) == cer([(said, heard)]) == 0


def test_different_words_stay_different(normalizer):
    for a, b in [("cat", "cap"), ("can", "can't"), ("fifteen", "50"), ("we're", "were")]:
        assert normalize(a) != normalize(b)


def test_every_sentence_has_words_left(normalizer):
    for line in read_texts(SENTENCES):
        words = normalize(line)
        assert words and words == words.lower() and not set(words) & set(',;:?!"')


def test_other_languages_keep_their_letters(normalizer):
    assert normalize("Où est l'été ?", "fr") == normalize("où est l été", "fr")
    assert normalize("Er (der König) kommt", "de") == normalize("Er, der König, kommt.", "de")
    assert normalize("नमस्ते, दुनिया!", "hi") == "नमस्ते दुनिया"
    assert len(normalize("你好，世界", "zh").split()) == 4  # a character is a word


def test_edit_distance_is_a_metric():
    rng = np.random.default_rng(0)
    words = [list(rng.choice(list("abc"), rng.integers(0, 7))) for _ in range(12)]
    for a in words:
        assert edit_distance(a, a) == 0
        assert edit_distance(a, []) == len(a)
        for b in words:
            assert edit_distance(a, b) == edit_distance(b, a) >= abs(len(a) - len(b))
            for c in words:
                assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_the_corpus_rate_weighs_by_words(normalizer):
    assert wer([("red blue green black", "red blue green"), ("white", "pink")]) == pytest.approx(
        2 / 5
    )
    assert wer([("yes", "yes it is so")]) == 3  # insertions may take it over 100 %
    assert cer([("abcd", "abxd")]) == pytest.approx(1 / 4)
    with pytest.raises(InputError, match="no words"):
        wer([("...", "hello")])


def test_a_rate_of_nothing_is_refused():
    assert rate([(1, 4), (0, 6)]) == 0.1
    with pytest.raises(InputError, match="no words"):
        rate([])


def test_only_words_of_the_prompt_that_were_not_asked_for_leak(normalizer):
    prompt = "They are big trees and require plenty of room."
    assert leaked("The cat sat.", "The cat sat.", prompt) == []
    assert leaked("The cat sat.", "Plenty of room. The cat sat.", prompt) == ["plenty", "room"]
    assert leaked("The cat sat.", "They are the cat and sat.", prompt) == []  # function words
    assert leaked("A big cat.", "A big cat.", prompt) == []  # it was asked for
    assert leaked("The bedroom.", "The bed room.", prompt) == []  # spelt otherwise
    assert leaked("The cat sat.", "The dog sat.", prompt) == []  # an error, but no leak
    assert leaked("A bigger cat.", "A big cat.", prompt) == []  # another form
    assert leaked("An abbey.", "Tree, an abbey.", "A tree.") == ["tree"]
    assert leaked("Ask the reed.", "Tree, ask the reed.", "A tree.") == ["tree"]  # no word of it
    assert leaked("A room.", "Room, a room.", prompt) == ["room"]  # once was asked for
    assert leaked("The cat sat.", "You, the cat sat.", "I saw you.") == ["you"]  # its last word
    assert leaked("The cat sat.", "You cat sat.", "I saw you.") == []


def test_the_sentences_are_plain_ones():
    lines = read_texts(SENTENCES)
    assert len(lines) == len(set(lines)) >= 50
    assert all(3 <= len(line.split()) <= 25 for line in lines)
