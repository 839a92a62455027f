"""User lexicon: words that a user keeps, for every model, and those of one command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nanospeech.errors import InputError
from nanospeech.text.languages import NONE, base_code
from nanospeech.text.lexicon import Lexicon
from nanospeech.text.tokenizer import Tokenizer

from .user_voices import data_folder

NAME = "lexicon.txt"
OFF = "off"


def lexicon_path() -> Path:
    """Where the user's lexicon is, or would be."""
    return data_folder() / NAME


def open_lexicon(wanted: str | Path | Mapping[str, str] | None) -> Lexicon | None:
    """The words to speak by; None if there are none.

    Args:
        wanted: a file, or phonemes by word, which go before the user's own; None for those alone;
            OFF for no words at all.

    Raises:
        InputError: a lexicon cannot be read or has a wrong line.
    """
    if wanted == OFF:
        return None
    # Path's own raises in a home folder that may not be entered, up to Python 3.13
    own = Lexicon.load(lexicon_path()) if os.path.isfile(lexicon_path()) else None
    if wanted is None:
        return own
    given = Lexicon(wanted) if isinstance(wanted, Mapping) else Lexicon.load(wanted)
    return own | given if own else given


def tokenizer_of(
    tokenizer: Tokenizer,
    wanted: str | Path | Mapping[str, str] | None,
    language: str | None = None,
) -> Tokenizer:
    """A model's tokenizer with the words to speak by, see open_lexicon, and another language.

    The user's own words are nothing to a model without phonemes; others are an error.

    Raises:
        InputError: as open_lexicon, the model reads no phonemes, or it reads those of English and
            another language is asked for.
    """
    lexicon = open_lexicon(wanted)
    code = language and base_code(language)
    read = "en", NONE, tokenizer.language and base_code(tokenizer.language)
    if code and tokenizer.kind == "phonemes" and code not in read:
        raise InputError(
            f"the model reads phonemes of English, and the language is {language!r}; leave it out,"
            " or name a model that reads that one (--model)"
        )
    tokenizer = tokenizer.with_language(code)
    if wanted is None or wanted == OFF:
        return tokenizer.with_lexicon(lexicon)
    known = Tokenizer(tokenizer.kind, tokenizer.vocab, lexicon)
    return known.with_language(tokenizer.language)
