"""Heteronyms in a sentence: which reading of "record" or "live" the words around ask for."""

from __future__ import annotations

from functools import lru_cache

from .context import around, verb_odds
from .english.heteronyms import MOSTLY_VERBS, readings
from .heteronym_rules import RULES
from .phonemes import dictionary, ending

PRIOR = 0.4  # odds of a word that is mostly a verb, or mostly a noun


def say_heteronym(text: str, start: int, stop: int) -> tuple[tuple[str, ...], str] | None:
    """The phonemes of a word in its text, and the name of its reading; None if it has one sound."""
    said = table().get(text[start:stop].lower())
    if said is None:
        return None
    word = text[start:stop].lower()
    place = around(text, start, stop)
    if word in RULES:
        name = RULES[word](place)
    else:
        stem = stems().get(word)
        odds = PRIOR if (stem or word) in MOSTLY_VERBS else -PRIOR
        name = "verb" if odds + verb_odds(place, stem is not None) > 0 else "noun"
    return said[name], name


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, tuple[str, ...]]]:
    """The readings of each word, by name; forms in -s of nouns and verbs are words of their own."""
    found = readings(dictionary())
    for word, said in list(found.items()):
        if "noun" in said and (form := plural(word)) not in found:
            found[form] = {name: (*p, *ending("s", p[-1])) for name, p in said.items()}
    del found["houses"]  # one sound
    return found


def plural(word: str) -> str:
    """The form in -s."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


@lru_cache(maxsize=1)
def stems() -> dict[str, str]:
    """The nouns and verbs of the table by their forms in -s."""
    return {plural(word): word for word, said in readings(dictionary()).items() if "noun" in said}
