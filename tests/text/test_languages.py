"""Languages: found by code, chosen by model or user, and none of them English by accident."""

from __future__ import annotations

import dataclasses
from importlib.metadata import EntryPoint

import pytest

from nanospeech import plugins
from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.release.folder import open_release
from nanospeech.release.user_lexicon import tokenizer_of
from nanospeech.text.language import Language
from nanospeech.text.languages import (
    NONE,
    base_code,
    find_language,
    language_names,
    spoken_code,
)
from nanospeech.text.sentences import front_end, prepare
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech.text.traced import Traced

LETTERS = [*" abcdefghijklmnopqrstuvwxyz.,?!"]
TEXT = "Dr. Li paid $5 on Jan. 3, 1984."


class Shouted(Language):
    """A language of another package."""

    code = "xsh"

    def normalized(self, text: Traced) -> Traced:
        return text.translate(str.maketrans("abc", "ABC"))


def test_codes_find_rules_and_others_none():
    assert language_names()[:2] == ["en", "de"]
    assert find_language("de-AT").code == find_language("DE_ch").code == "de"
    assert type(find_language("fr")) is Language and find_language("fr").code == "fr"
    for code in ("", "english", "e", "12", "../de"):
        with pytest.raises(InputError, match="should be a code of two or three letters"):
            find_language(code)


def test_a_model_that_does_not_say_is_english_by_its_letters_alone():
    chars = Tokenizer("chars", LETTERS)
    assert front_end(chars).code == "en"
    assert front_end(Tokenizer("phonemes", phoneme_vocab())).code == "en"
    for vocab in ([*LETTERS, *"0123456789"], [*" абвгдежз."]):
        assert front_end(Tokenizer("chars", vocab)).code == "und"
    assert front_end(Tokenizer("bytes", [])).code == "und"
    assert prepare(TEXT, chars).startswith("Doctor Li paid five dollars")


def test_a_language_that_is_named_has_no_rule_of_english():
    chars = Tokenizer("chars", LETTERS)
    for code in ("und", "fr", "sw"):
        assert prepare(TEXT, chars.with_language(code)) == TEXT
    assert front_end(chars).code == "en", "the first tokenizer is unchanged"


def test_a_model_that_knows_digits_gets_them_in_any_language():
    digits = Tokenizer("chars", [*LETTERS, *"0123456789"])
    for code in ("en", "de", "und"):
        assert prepare("In 5 km", digits.with_language(code)) == "In 5 km"
    assert prepare("5 km ", Tokenizer("bytes", []).with_language("de")) == "5 km "


def test_the_models_language_counts_and_the_users_before_it(tiny_release, tmp_path):
    import shutil

    folder = tmp_path / "german"
    shutil.copytree(tiny_release, folder)
    config = ModelConfig.load(folder / "config.json")
    assert config.language == "" and open_release(folder).tokenizer.language == ""
    dataclasses.replace(config, language="de").save(folder / "config.json")
    tokenizer = open_release(folder).tokenizer
    assert tokenizer.language == "de" and tokenizer_of(tokenizer, None).language == "de"
    assert tokenizer_of(tokenizer, None, "en-GB").language == "en"
    with pytest.raises(InputError, match="should be a code"):
        tokenizer_of(tokenizer, None, "German")


def test_a_model_of_english_phonemes_speaks_no_other_language():
    phonemes = Tokenizer("phonemes", [])
    for code in ("de", "fr-CA"):
        with pytest.raises(InputError, match=f"phonemes of English, and the language is '{code}'"):
            tokenizer_of(phonemes, None, code)
    for code in ("en-GB", "und"):
        assert tokenizer_of(phonemes, None, code).language == base_code(code)
    german = phonemes.with_language("de-AT")  # of a model that says so
    assert tokenizer_of(german, None, "de").language == "de"


def test_another_package_adds_a_language(monkeypatch):
    entry = EntryPoint("xsh", f"{__name__}:Shouted", plugins.LANGUAGES)
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [entry] if group == plugins.LANGUAGES else [],
    )
    find_language.cache_clear()
    try:
        tokenizer = Tokenizer("chars", LETTERS).with_language("xsh")
        assert prepare("cab d", tokenizer) == "CAB d"
    finally:
        find_language.cache_clear()


def test_a_recogniser_listens_for_the_first_language_that_is_named():
    assert spoken_code("pt-BR", "de") == "pt" and spoken_code(None, "de") == "de"
    assert spoken_code(NONE, "de") == "de" and spoken_code(None, NONE) == spoken_code() == "en"
    with pytest.raises(InputError, match="should be a code"):
        spoken_code("high german")
