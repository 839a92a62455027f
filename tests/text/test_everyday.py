"""Texts that people have read out most: answers, code, papers, business, chats."""

from __future__ import annotations

import pytest

from nanospeech.text.spoken import say_word


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
