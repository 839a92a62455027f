"""Prompts: what makes one recording of a speaker a better prompt than another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.corpus.layouts import Sample, Source
from nanospeech.prepare import choose_prompts
from nanospeech.prepare.choose_prompts import Candidate, by_speaker, choose, license_text, main

TEXT = "One of the people spoke here."
SAMPLE = Sample("one", ("one",), Source(Path("one.wav")), TEXT, key="one")
GOOD = Candidate(SAMPLE, np.zeros(9, np.float32), 4.0, pace=15.0, level=-23.0, depth=40.0)


def saying(text: str, **extra: Any) -> Candidate:
    return replace(GOOD, sample=replace(SAMPLE, text=text, extra=extra))


@pytest.mark.parametrize(
    "worse",
    [
        replace(GOOD, seconds=1.9, depth=49.0),  # outside of 2 to 6 s, however quiet its pauses
        replace(GOOD, seconds=6.1, depth=49.0),
        replace(GOOD, seconds=3.9),
        replace(GOOD, seconds=4.1),
        replace(GOOD, pace=14.0),
        replace(GOOD, pace=16.0),
        replace(GOOD, level=-24.0),
        replace(GOOD, level=-22.0),
        replace(GOOD, depth=39.0),
        saying(TEXT, wer=0.01),
        saying(TEXT.replace(" of", ", of")),
        saying(TEXT[:-1]),
        saying(TEXT[:-1] + "?"),
        saying("One of these people spoke 4."),
        saying("One person spoke here."),
    ],
)
def test_each_flaw_makes_a_prompt_worse(worse):
    other = replace(GOOD)
    assert choose([worse, GOOD, other]) is GOOD
    assert choose([GOOD, worse, other]) is GOOD


def test_a_length_at_the_bounds_is_one_of_a_prompt_and_pauses_are_quiet_enough_at_50_db():
    for seconds in choose_prompts.SECONDS:
        fit = replace(GOOD, seconds=seconds)
        assert choose([replace(GOOD, seconds=seconds + (seconds - 4) * 0.01), fit]) is fit
        assert choose([replace(GOOD, seconds=7.0), fit]) is fit
    quiet = replace(GOOD, depth=50.0)
    assert choose([quiet, replace(GOOD, depth=70.0)]) is quiet
    assert choose([replace(GOOD, depth=48.0), quiet]) is quiet
    other = replace(GOOD, seconds=3.0, depth=43.0)  # a second of length is as much as 2 dB
    assert choose([GOOD, other]) is other and choose([GOOD, replace(other, depth=41.0)]) is GOOD


def test_dnsmos_decides_between_the_best_alone():
    # waves that say which they are; each is 1 dB worse than the one before
    ranked = [replace(GOOD, wave=np.full(9, n), depth=40.0 - n) for n in range(9)]
    heard = []

    def dnsmos(wave: np.ndarray) -> dict[str, float]:
        heard.append(int(wave[0]))
        return {"ovrl": 3.0 + 0.06 * wave[0]}  # which is worth 1.2 dB

    assert choose(ranked[::-1], dnsmos) is ranked[5]
    assert sorted(heard) == [0, 1, 2, 3, 4, 5]
    assert choose(ranked[::-1], lambda wave: {"ovrl": 3.0 + 0.04 * wave[0]}) is ranked[0]


def test_a_speaker_of_an_earlier_input_has_no_clips_of_a_later_one(tmp_path):
    for name, people in (("first", "a"), ("then", "ab")):
        (tmp_path / name).mkdir()
        audio.write(tmp_path / name / "0.wav", np.sin(np.arange(48_000) / 9).astype(np.float32))
        rows = [{"audio": "0.wav", "text": who, "speaker": who} for who in people]
        rows += [{"audio": "0.wav", "text": "fast", "speaker": f"{people[0]}-fast", "pace": 1.1}]
        lines = "\n".join(map(json.dumps, rows))
        (tmp_path / name / "metadata.jsonl").write_text(lines, encoding="utf-8")
    found = by_speaker([tmp_path / "first", tmp_path / "then"], "voice")
    where = {who: [s.audio.path.parent.name for s in samples] for who, samples in found.items()}
    assert where == {"a": ["first"], "b": ["then"]}


def test_a_licence_names_the_source_its_authors_and_where_the_terms_are(tmp_path, capsys):
    sample = replace(SAMPLE, extra={"source": "corpus", "license": "CC BY 4.0"})
    where = "CC BY 4.0: https://creativecommons.org/licenses/by/4.0/"
    assert license_text("anna", sample, {}).splitlines() == [
        'Voice "anna": recording.',
        "Source: corpus.",
        "Licence: CC BY 4.0.",
        "Clip: one.",
        where,
    ]
    assert license_text("anna", SAMPLE, {}).splitlines()[1:3] == [
        "Source: unknown.",
        "Licence: not stated.",
    ]
    about = {"title": "A Corpus", "by": "A. Smith", "license": "CC0 1.0", "kind": "synthetic"}
    known = {"corpus": about | {"note": "Of texts under CC BY 3.0."}}
    assert license_text("anna", sample, known).splitlines() == [
        'Voice "anna": synthetic.',
        "Source: A Corpus, A. Smith.",
        "Licence: CC0 1.0.",
        "Of texts under CC BY 3.0.",
        "Clip: one.",
        "CC BY 3.0: https://creativecommons.org/licenses/by/3.0/",
        "CC0 1.0: https://creativecommons.org/publicdomain/zero/1.0/",
    ]
    for wrong, told in (
        ("[]", "should map names"),
        ('{"a": "b"}', "should map names"),
        ("{", "can"),
    ):
        (tmp_path / "known.json").write_text(wrong)
        argv = [str(tmp_path), "--out", str(tmp_path), "--attributions"]
        assert main([*argv, str(tmp_path / "known.json")]) == 2
        assert told in capsys.readouterr().err
