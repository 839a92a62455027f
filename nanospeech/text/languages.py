"""Languages: finds the front end of a language by its code; English stands here, as one of them.

Languages of this repository are in plugins.BUILT_IN; other packages add theirs by entry points of
the group nanospeech.languages.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from nanospeech import plugins
from nanospeech.errors import InputError

from .language import Language
from .normalize import expanded
from .traced import Traced

NONE = "und"  # ISO 639-2: undetermined
CODE = re.compile(r"[a-z]{2,3}")
DIGITS = frozenset("0123456789")


class English(Language):
    """English: rules of text/normalize.py and text/english/."""

    code = "en"
    alphabet = " .,!?;:-'\"()abcdefghijklmnopqrstuvwxyz"

    def normalized(self, text: Traced) -> Traced:
        return expanded(text)


@lru_cache
def find_language(code: str) -> Language:
    """The front end of a language; one without rules where there is none for it.

    Args:
        code: such as "de" or "de-AT", of which the first part counts; "und" for none.

    Raises:
        InputError: it is no code of a language.
    """
    short = base_code(code)
    where = plugins.find(plugins.LANGUAGES, short)
    if where is not None:
        return plugins.load(where)()
    other = Language()
    other.code = short
    return other


def base_code(code: str) -> str:
    """A code's first part in small letters: "de" of "de-AT".

    Raises:
        InputError: it is no code of a language.
    """
    short = code.strip().replace("_", "-").split("-")[0].lower()
    if not CODE.fullmatch(short):
        raise InputError(
            f"language {code!r} should be a code of two or three letters, such as en, de or pt-BR"
        )
    return short


def spoken_code(*codes: str | None) -> str:
    """What a recogniser listens for: the first of some codes that names a language, else en.

    Raises:
        InputError: it is no code of a language.
    """
    named = (base_code(code) for code in codes if code)
    return next((code for code in named if code != NONE), "en")


def language_names() -> list[str]:
    """Codes of the languages that have rules."""
    return plugins.names(plugins.LANGUAGES)


def language_of(code: str, vocab: Collection[str]) -> Language:
    """The language of a model's text.

    Args:
        code: as the model or the user names it; "" for a model that does not say. It is taken for
            an English one if its vocabulary has the letters a and e and no digits.
        vocab: of the model.
    """
    if code:
        return find_language(code)
    english = {"a", "e"} <= set(vocab) and spells_numbers(vocab)
    return find_language("en" if english else NONE)


def spells_numbers(vocab: Collection[str]) -> bool:
    """Whether a model reads numbers as words alone: it has tokens, and no digit among them."""
    return bool(vocab) and not DIGITS & set(vocab)
