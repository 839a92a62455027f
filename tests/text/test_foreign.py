"""Foreign words, initials and young words: said as an English reader would say them."""

import pytest

from nanospeech.text.english.foreign import plain, respelled
from nanospeech.text.g2p import guess
from nanospeech.text.phonemes import pronounce
from nanospeech.text.sentences import fit, prepare
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech.text.traced import Traced

PHONEMES = Tokenizer("phonemes", phoneme_vocab())


def said(text: str) -> list[str]:
    """The tokens of each word."""
    fitted, lost = fit(prepare(text, PHONEMES), PHONEMES)
    assert not lost
    tokens = PHONEMES.tokens(fitted)
    return "|".join(tokens).replace("| |", "  ").replace("|", " ").split("  ")


@pytest.mark.parametrize(
    "word, spelled",
    [
        ("Łukasz", "w u k a s h"),
        ("Błaszczykowski", "b w a s h c h y k o v s k i"),
        ("Şule", "sh u l e".replace("sh", "s h")),
        ("Çelik", "c h e l i k"),
        ("ñandú", "n y a n d u"),
        ("Žižek", "z h i z h e k"),
        ("Søren", "s o r e n"),
        ("Straße", "s t r a s s e"),
        ("résumé", "r e z u h m a y"),
        ("flambé", "f l a m b a y"),
        ("brûlées", "b r u l a y s"),
        ("touché", "t o o s h a y"),
    ],
)
def test_words_that_no_dictionary_has_are_spelled_by_sound(word, spelled):
    spelled = spelled.replace(" ", "")
    fitted, _ = fit(prepare(word, PHONEMES), PHONEMES)
    assert fitted.lower() == spelled
    assert said(word) == [" ".join(guess([spelled])[0])]


@pytest.mark.parametrize("word", ["José", "Nguyễn", "Dvořák", "naïve", "café", "Señor", "Škoda"])
def test_words_whose_plain_form_is_known_are_said_by_the_dictionary(word):
    assert said(word) == [" ".join(pronounce(plain(word)))]


def test_a_letter_a_with_a_ring_is_the_unit_where_it_stands_alone():
    for word in ("Ångström", "Åse", "BÅT", "Århus"):
        assert "angstrom" not in prepare(word, PHONEMES) and said(word) != said("angstroms")
    assert prepare("5 Å, or 3Å.", PHONEMES) == "five angstroms, or three angstroms."


def test_ascii_and_other_scripts_stay():
    for text in ("Lukasz went home.", "Что это? 你好 łąka's"):
        known = respelled(Traced.of(text), lambda word: True).text
        assert known == text
    assert respelled(Traced.of("«Łódź», Łódź's"), lambda word: False).text == "«Woodzh», Woodzh's"
    chars = Tokenizer("chars", [*" abcdefghijklmnopqrstuvwxyz.,'"])
    assert fit("Łukasz", chars) == ("lukasz", set())  # a model of letters was trained on these


@pytest.mark.parametrize(
    "written, letters",
    [
        ("IBM's", "I B M"),
        ("BBC's", "B B C"),
        ("UK's", "U K"),
        ("CEO's", "C E O"),
        ("FBI’s", "F B I"),
    ],
)
def test_initials_keep_their_letters_before_a_possessive(written, letters):
    bare, whole = said(letters.replace(" ", "")), said(written)
    assert whole == [f"{bare[0]} Z"]
    assert bare[0].replace("1", "").replace("2", "").replace("0", "") == " ".join(
        " ".join(pronounce(c)).replace("1", "") for c in letters.split()
    )


def test_acronyms_that_are_words_stay_words():
    assert said("NASA's")[0].split() == [*pronounce("nasa"), "Z"]
    assert said("Wi-Fi at home")[0].split() == list(pronounce("wifi"))
    assert said("COVID-19 vlogs")[0].startswith("K OW1 V IH0 D")
