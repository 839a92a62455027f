"""Language: what the text front end knows of a language. The base knows of none in particular.

docs/languages.md shows how to add one.
"""

from __future__ import annotations

from .traced import Traced


class Language:
    """A language's rules; those that it does not define are neutral.

    Attributes:
        code: ISO 639, such as "de"; "und" for no language in particular.
        alphabet: characters that a vocabulary for it has at least; "" where none are known.
    """

    code = "und"
    alphabet = ""

    def normalized(self, text: Traced) -> Traced:
        """The text with its numbers, signs and abbreviations written out as they are spoken.

        Args:
            text: a paragraph or several, folded (text.sentences.fold).
        """
        return text

    def ends_sentence(self, before: str, following: str) -> bool | None:
        """Whether a full stop ends its sentence; None leaves that to the general rules.

        Args:
            before: at most 40 characters that stand before the stop.
            following: at most 40 that stand behind it and its spaces; never empty.
        """
        return None

    def respelled(self, c: str) -> str:
        """What to read for a character that a vocabulary lacks; "" leaves that to general rules."""
        return ""
