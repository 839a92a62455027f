"""Output: pauses, loudness, pronunciation and language of speech, their defaults and flags."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any

from .arguments import check_kind, number, number_or
from .config import option
from .errors import InputError

LOUDNESS = (-40.0, -9.0)  # LUFS
LONGEST_PAUSE = 10.0  # seconds
WORDS = ("lexicon", "language")  # fields that are no numbers
OFF = "off (None in Python)"
PAUSES = ("clause", "sentence", "paragraph", "heading")  # from the shortest to the longest


@dataclass(frozen=True)
class OutputOptions:
    """Pauses, loudness, words of a lexicon, and the language of texts.

    None leaves a pause, or the level, as the model makes it. Pauses are seconds of silence at
    speed 1; a speed of 2 halves them. The lexicon is a path, or phonemes by word.
    """

    loudness: float | None = option(-18.0, "LUFS of the speech, by EBU R 128; off: the voice's own")
    pause_clause: float | None = option(
        0.2, "seconds of silence after a comma, a colon or a dash, at speed 1; off: the model's"
    )
    pause_sentence: float | None = option(0.42, "the same after a sentence")
    pause_paragraph: float | None = option(0.8, "the same after a paragraph")
    pause_heading: float | None = option(
        1.05, "the same after a heading: a line '# Title', or a short paragraph without a full stop"
    )
    lexicon: str | Path | Mapping[str, str] | None = option(
        None,
        "file of words and their phonemes, a tab between them, that goes before your own"
        " lexicon.txt; off: neither (default: your own)",
    )

    language: str | None = option(
        None,
        "of the text, such as en or de-AT: by whose rules numbers and signs are read (default:"
        " the model's)",
    )

    def __post_init__(self):
        for field in numbers():
            value = getattr(self, field.name)
            low, high = LOUDNESS if field.name == "loudness" else (0.0, LONGEST_PAUSE)
            if value is not None and not low <= number(field.name, value, OFF) <= high:
                raise InputError(f"{field.name} is {value:g}; choose {low:g} to {high:g}, or {OFF}")
        kinds = (str, PathLike, Mapping, NoneType)
        check_kind("lexicon", self.lexicon, kinds, "a file, phonemes by word, 'off' or None")
        if isinstance(self.lexicon, Mapping):
            for word, phonemes in self.lexicon.items():
                check_kind("a word of the lexicon", word, str, "a string")
                check_kind(f"the lexicon's {word!r}", phonemes, str, "a string of phonemes")
        check_kind("language", self.language, (str, NoneType), "a code such as 'en', or None")

    def pause(self, kind: str) -> float | None:
        """Seconds of a pause of PAUSES at speed 1; None leaves it as it is."""
        return getattr(self, f"pause_{kind}")


def numbers() -> list[dataclasses.Field]:
    """The fields that are numbers."""
    return [f for f in dataclasses.fields(OutputOptions) if f.name not in WORDS]


# of speech to be measured: speaker encoders and DNSMOS take another level for another voice, and
# a user's own words are no part of the model
MEASURED = OutputOptions(loudness=None, lexicon="off")


def number_or_off(text: str) -> float | None:
    """A number, or None for "off"."""
    return number_or(text, "off", "none")


def add_output_flags(add: Any) -> None:
    """Flags of OutputOptions: --loudness, --pause-clause and so on, --lexicon, --language.

    Args:
        add: a parser's add_argument.
    """
    for field in numbers():
        add(
            "--" + field.name.replace("_", "-"),
            dest=field.name,
            type=number_or_off,
            default=field.default,
            metavar="N",
            help=f"{field.metadata['help']} (default: %(default)s)",
        )
    for name, value in zip(WORDS, ("FILE", "CODE")):
        said = OutputOptions.__dataclass_fields__[name].metadata["help"]
        add(f"--{name}", metavar=value, help=said)


def read_output(args: argparse.Namespace) -> OutputOptions:
    """What is asked of pauses and loudness.

    Raises:
        InputError: a value is out of bounds.
    """
    return OutputOptions(
        **{f.name: getattr(args, f.name) for f in dataclasses.fields(OutputOptions)}
    )
