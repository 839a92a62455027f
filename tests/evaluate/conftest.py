"""Fixtures of the evaluation's tests."""

from __future__ import annotations

import pytest

from nanospeech.evaluate import __main__ as evaluate
from nanospeech.evaluate import cloning_report, report

TEXTS = ["The cat sat on a mat.", "Two birds sing."]


@pytest.fixture
def drawn() -> None:
    """For tests that look at the pictures of a report."""
    pytest.importorskip("matplotlib", reason="it is of the extra eval")


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch) -> None:
    """Other reports have none, which take as long to draw as a text to speak."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(report, "draw", lambda *_: [])
        monkeypatch.setattr(cloning_report, "draw", lambda *_: None)


@pytest.fixture
def arguments(tiny_release, tmp_path):
    """arguments(*flags) -> parsed arguments of a run of the tiny model on two sentences."""
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("\n".join(TEXTS), encoding="utf-8")

    def parse(*flags: str, metrics: str = "wer,leak,rtf,duration", model=tiny_release):
        pytest.importorskip("torch")
        line = [str(model), "--sentences", str(sentences), "--out", str(tmp_path / "out")]
        line += ["--backend", "torch", "--device", "cpu", "--steps", "2", "--metrics", metrics]
        return evaluate.build_parser().parse_args([*line, *flags])

    return parse
