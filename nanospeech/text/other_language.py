"""Other language: German that an English model would read by English rules; told once.

It is known by words that stand in nearly every German sentence and are none of English.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache

log = logging.getLogger("nanospeech")
WORD = re.compile(r"[^\W\d_]+")
LEAST, SHARE = 3, 0.2  # different ones, and of all words of a text so far
WORDS = """
aber alle allem allen aller alles als auch auf aus bei beim bis bist dann das dass dein deine
dem denn der dich diese diesem diesen dieser dieses dir doch dort durch ein eine einem einen
einer eines etwas euch euer für gegen geht gewesen gibt habe haben hatte hatten heute hier ich
ihm ihn ihnen ihr ihre ihrem ihren ihrer immer ist jede jeder jetzt kann kein keine konnte
können könnte mehr mein meine mich mir mit muss nach nicht nichts noch nur oder ohne schon sehr
sein seine seinem seinen seiner seit selbst sich sie sind und uns unser unsere unter viel viele
vom von vor wann waren warum weil wenn werde werden wie wieder wir wird wo worden wurde wurden
zu zum zur zwischen über
"""
GERMAN = frozenset(WORDS.split())


class OtherLanguage:
    """Words of a text, whose parts come one after another.

    Args:
        code: of the language that the text is read in.
    """

    def __init__(self, code: str):
        self.code = code
        self.count = self.known = 0
        self.different: set[str] = set()

    def add(self, text: str) -> None:
        """Notes the words of a part; warns where the text is German so far and read as English."""
        if self.code != "en":
            return
        words = [word.lower() for word in WORD.findall(text)]
        german = [word for word in words if word in GERMAN]
        self.count, self.known = self.count + len(words), self.known + len(german)
        self.different |= {*german}
        if len(self.different) >= LEAST and self.known >= SHARE * self.count:
            warn_of_german()


@lru_cache
def warn_of_german() -> None:
    log.warning(
        "the text looks like German, and this model reads it as English: its words will be wrong;"
        " name a model that reads German (--model; docs/languages.md tells how to make one)"
    )
