"""Texts that people have read out most: answers, code, papers, business, chats."""

from __future__ import annotations

import pytest

from nanospeech.text.sentences import fit, prepare
from nanospeech.text.spoken import say_word
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

PHONEMES = Tokenizer("phonemes", phoneme_vocab())


@pytest.mark.parametrize("words, phonemes", [
    ("ET OT SEC PST", "IY1 T IY1 / OW1 T IY1 / EH1 S IY1 S IY1 / P IY1 EH1 S T IY1"),
    ("et psst", "EH1 T / P S T"),
    ("PCIe NVMe", "P IY1 S IY1 AY1 IY1 / EH1 N V IY1 EH1 M IY1"),
    ("GPs PAs OKs", "JH IY1 P IY1 Z / P IY1 EY1 Z / OW1 K EY1 Z"),
    ("OD'd I'd", "OW1 D IY1 D / AY1 D"),
    ("YAML CUDA JPEGs", "Y AE1 M AH0 L / K UW1 D AH0 / JH EY1 P EH2 G Z"),
    ("stdin ffmpeg", "S T AE1 N D ER0 D IH1 N / EH1 F EH1 F EH1 M P EH2 G"),
    ("thx ppl", "TH AE1 NG K S / P IY1 P AH0 L"),
])  # fmt: skip
def test_initials_and_names_of_programs_are_said_as_people_say_them(words, phonemes):
    assert " / ".join(" ".join(say_word(word)[0]) for word in words.split()) == phonemes


@pytest.mark.parametrize("text, said", [
    ("Conduct regular audits.", "K AH0 N D AH1 K T"),
    ("Conduct in class matters.", "K AA1 N D AH0 K T"),
    ("Address security concerns early.", "AH0 D R EH1 S"),
    ("Write your name and address on it.", "AE1 D R EH2 S"),
    ("Present relevant data.", "P R IY0 Z EH1 N T"),
    ("Present day Iraq.", "P R EH1 Z AH0 N T"),
    ("You can export it, or import contacts.", "IH2 M P AO1 R T"),
    ("As demand increases, prices rise.", "IH2 N K R IY1 S IH0 Z"),
    ("When using objects, free them.", "AA1 B JH EH0 K T S"),
    ("Students who read daily do well.", "R IY1 D"),
    ("Those who read it loved it.", "R EH1 D"),
    ("We live-streamed it.", "L AY1 V"),
    ("A study on lead in water.", "L EH1 D"),
    ("He took the lead in water polo.", "L IY1 D"),
    ("The road winds past it.", "W AY1 N D Z"),
])  # fmt: skip
def test_words_of_several_sounds_in_everyday_sentences(text, said):
    tokens = " ".join(PHONEMES.tokens(fit(prepare(text, PHONEMES), PHONEMES)[0]))
    assert said in tokens
