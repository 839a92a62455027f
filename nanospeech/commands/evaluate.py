"""`nanospeech evaluate`: a model measured; and its lengths, its solvers and its vocoder."""

from __future__ import annotations

from collections.abc import Sequence

from nanospeech.commands.group import run_group

ABOUT = """Measures a model. Without the name of a tool it is `model`."""
TOOLS = {
    "model": ("nanospeech.evaluate.__main__:main", "word errors, similarity, sound quality, speed"),
    "cloning": ("nanospeech.evaluate.cloning:main", "voices that the model has not heard"),
    "durations": ("nanospeech.evaluate.durations:main", "predicted lengths against recordings"),
    "steps": ("nanospeech.evaluate.steps:main", "solvers, steps and guidance against quality"),
    "curve": ("nanospeech.evaluate.curve:main", "a picture of a training log"),
    "bits": ("nanospeech.evaluate.bits:main", "what rounding each kind of layer costs"),
    "vocoder": ("nanospeech_torch.evaluate.__main__:main", "a vocoder against Griffin-Lim"),
    "griffin-lim": ("nanospeech.evaluate.griffin_lim:main", "a recording through Griffin-Lim"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return run_group("evaluate", ABOUT, TOOLS, argv, default="model")
