"""Reading: how a model that is measured reads its texts."""

from __future__ import annotations

from dataclasses import replace

from nanospeech.output import MEASURED, OutputOptions
from nanospeech.text.languages import NONE


def measured_in(language: str, own: str) -> OutputOptions:
    """MEASURED, of texts in the language that is listened for, where the model's own is several."""
    return replace(MEASURED, language=language if own == NONE else None)
