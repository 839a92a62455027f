"""German that is read as English is told, once; English never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanospeech.speech.script import parts
from nanospeech.speech.streaming import budgets
from nanospeech.text.other_language import OtherLanguage, warn_of_german
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

ROOT = Path(__file__).resolve().parents[2]
TOLD = "the text looks like German"


@pytest.fixture(autouse=True)
def untold():
    warn_of_german.cache_clear()


def add(text: str, code: str = "en") -> None:
    OtherLanguage(code).add(text)


@pytest.mark.parametrize(
    "text",
    [
        "Guten Tag, wie geht es Ihnen heute?",
        "Der alte Mann ging langsam über die Straße und sah in das Fenster.",
        "Das Wetter wird morgen besser, sagte der Sprecher.",
        "ICH HABE KEINE ZEIT.",
    ],
)
def test_german_is_told_where_it_is_read_as_english(text, caplog):
    for code in ("de", "und", "fr"):
        add(text, code)
    assert not caplog.text
    add(text)
    add(text)
    assert caplog.text.count(TOLD) == 1


def test_english_is_never_taken_for_german(caplog):
    texts = [*(ROOT / "nanospeech/evaluate").glob("*.txt"), *ROOT.glob("docs/*.md")]
    assert len(texts) > 20
    for path in texts:
        for line in path.read_text(encoding="utf-8").splitlines():
            add(line)
    for text in (
        "Ursula von der Leyen met Otto von Bismarck and Ludwig van Beethoven.",
        "He told the crowd that he was a Berliner, and he told them so in German: ich bin ein"
        " Berliner. They cheered, for they had understood him.",
        "Wow, der Hund!",
    ):
        add(text)
    assert not caplog.text


def test_what_is_spoken_is_looked_at_part_by_part(caplog):
    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    text = ["Good evening. ", "Der Zug hat sich verspätet, aber wir warten noch. "]

    def speak(tokenizer: Tokenizer) -> None:
        assert list(parts(text, tokenizer, budgets(100, 100), 100, 15))

    speak(tokenizer.with_language("de"))
    assert TOLD not in caplog.text
    speak(tokenizer)
    assert caplog.text.count(TOLD) == 1
