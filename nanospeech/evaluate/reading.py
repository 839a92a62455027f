"""Reading: how a model that is measured reads its texts."""

from __future__ import annotations

from dataclasses import replace

from nanospeech.output import MEASURED, OutputOptions
from nanospeech.text.languages import NONE, spoken_code


def read_in(asked: str | None, own: str) -> str | None:
    """The language that texts are read in; None for the model's own.

    Args:
        asked: for this measurement, if any.
        own: the model's; one of several languages reads in the one that is listened for.
    """
    return spoken_code(asked, own) if asked or own == NONE else None


def measured_in(own: str) -> OutputOptions:
    """MEASURED, with the language of read_in where none is asked for."""
    return replace(MEASURED, language=read_in(None, own))
