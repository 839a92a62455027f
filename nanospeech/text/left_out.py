"""Left out: characters of a text that a model cannot read, and their words; told once a text."""

from __future__ import annotations

import logging

log = logging.getLogger("nanospeech")
MOST, LONGEST = 12, 32  # words that a warning names, and the characters of each that it shows


class LeftOut:
    """What a model leaves out of a text, whose parts come one after another.

    Attributes:
        characters: that it has not.
        words: as written, that lack a letter or all of them.
    """

    def __init__(self) -> None:
        self.characters: set[str] = set()
        self.words: dict[str, None] = {}

    def add(self, lost: set[str], text: str) -> None:
        """Notes what is lost of a part, and warns of characters that were not lost before."""
        new = lost - self.characters
        self.characters |= lost
        letters = {c for c in lost if c.isalpha()}
        words = [w for w in text.split() if not letters.isdisjoint(w)] if letters else []
        bare = dict.fromkeys("".join(c for c in w if c.isalnum() or c in lost) for w in words)
        self.words |= bare
        if new:
            shown = ", ".join(map(shortened, [*bare][:MOST]))
            more = f" and {len(bare) - MOST} more" if len(bare) > MOST else ""
            behind = f" of {shown}{more}" if bare else ""
            signs = ", ".join(map(repr, sorted(new)[:LONGEST]))
            others = f" and {len(new) - LONGEST} more" if len(new) > LONGEST else ""
            log.warning("the model has no %s%s; left out%s", signs, others, behind)

    def named(self) -> list[str]:
        """Some of the words, as a header or a line names them."""
        return [*map(shortened, [*self.words][:MOST])]


def shortened(word: str) -> str:
    """A word, or its beginning: a text without spaces is one word."""
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
