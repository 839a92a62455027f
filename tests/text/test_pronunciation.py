"""Laws of phonemes that users write: they become the tokenizer's tokens, or an error says why."""

from __future__ import annotations

import pytest

from nanospeech.errors import InputError
from nanospeech.text.phonemes import SYMBOLS, dictionary
from nanospeech.text.pronunciation import parse_phonemes


@pytest.mark.parametrize("written, alphabet, tokens", [
    ("T AH0 M AA1 T OW0", "", "T AH0 M AA1 T OW0"),
    ("T AH M AA1 T OW", "arpabet", "T AH0 M AA1 T OW0"),  # without a digit: unstressed
    ("K AE T", "", "K AE1 T"),  # the only vowel is stressed
    ("DH AH0", "", "DH AH0"),
    ("təˈmɑːtoʊ", "", "T AH0 M AA1 T OW0"),
    ("/təˈmeɪ.t͡oʊ/", "ipa", "T AH0 M EY1 T OW0"),
    ("[ˌɪntəˈnæʃənəl]", "", "IH2 N T AH0 N AE1 SH AH0 N AH0 L"),
    ("ˈt͡ʃɜːt͡ʃ", "", "CH ER1 CH"),
    ("ˈbʌtn̩", "", "B AH1 T AH0 N"),
    ("ðə", "", "DH AH0"),
    ("kæt", "", "K AE1 T"),
    ("əˈraʊnd", "", "AH0 R AW1 N D"),
    ("ˈletər", "", "L EH1 T ER0"),
    ("heə", "", "HH EH1 R"),
    ("'dʒʌdʒ", "", "JH AH1 JH"),
    ("kɹiːʲˈeɪʃən", "ipa", "K R IY0 EY1 SH AH0 N"),  # as espeak-ng writes "creation"
    ("mˈaʊnʔn̩", "ipa", "M AW1 N T AH0 N"),
    ("ɹˈo\u200dʊd", "ipa", "R OW1 D"),  # --ipa=3
])  # fmt: skip
def test_both_alphabets_become_tokens(written, alphabet, tokens):
    assert parse_phonemes(written, alphabet) == tokens.split()


def test_a_border_parts_words():
    wanted = ["N", "UW1", " ", "Y", "AO1", "R", "K"]
    assert parse_phonemes("N UW1 | Y AO1 R K") == wanted
    assert parse_phonemes("nuː jɔːɹk") == wanted


def test_every_word_of_the_dictionary_is_read_as_itself():
    for phonemes in list(dictionary().values())[::500]:
        assert parse_phonemes(phonemes, "arpabet") == phonemes.split()
        assert set(parse_phonemes(phonemes)) <= set(SYMBOLS)


@pytest.mark.parametrize("written, alphabet, said", [
    ("T AH0 XX", "arpabet", "'XX'"),
    ("t ah0", "arpabet", "capitals"),
    ("T AH5", "arpabet", "'AH5'"),
    ("tyˈmɛ", "ipa", "'y'"),
    ("T AH M AA T OW", "", "which syllable"),
    ("bʌnænɑ", "", "which syllable"),
    ("", "", "missing"),
    ("ˈ.", "ipa", "no sounds"),
    ("T AH0", "sampa", "'sampa'"),
])  # fmt: skip
def test_an_error_names_what_was_got(written, alphabet, said):
    with pytest.raises(InputError, match=said):
        parse_phonemes(written, alphabet)
