"""Foreign: words with letters that English lacks, spelled as an English reader would say them.

For models that read phonemes: words whose plain form the dictionary has ("café") are not touched.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from nanospeech.text.traced import Traced

# letters that no decomposition takes to ASCII
PLAIN = {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "æ": "ae", "Æ": "Ae"}
PLAIN |= {"œ": "oe", "Œ": "Oe", "þ": "th", "Þ": "Th", "ð": "th", "Ð": "Th", "ı": "i", "ħ": "h"}
PLAIN |= {"ß": "ss", "ẞ": "SS", "ŋ": "ng"}
# letters by their sound, where it is not that of the bare letter
LETTERS = {"ł": "w", "ñ": "ny", "ń": "ny", "ň": "ny", "ç": "s", "ş": "sh", "ș": "sh", "š": "sh"}
LETTERS |= {"ś": "sh", "č": "ch", "ć": "ch", "ž": "zh", "ź": "zh", "ż": "zh", "ř": "rzh"}
LETTERS |= {"ě": "ye", "ğ": "", "ü": "oo", "ű": "oo", "ů": "oo", "å": "aw", "ą": "on", "ę": "en"}
LETTERS |= {"ț": "ts", "ţ": "ts", "ő": "o"}
POLISH = set("łąęńśźż")  # letters of Polish alone, whose other letters then sound as its own do
PAIRS = {"sz": "sh", "cz": "ch", "rz": "zh", "ch": "h", "w": "v", "j": "y", "c": "ts", "ó": "oo"}
POLISH_SOUNDS = re.compile("|".join(PAIRS))
# words whose plain form is another one
OTHERS = {"résumé": "rezuhmay", "résumés": "rezuhmays", "rosé": "rozay", "pâté": "pattay"}
OTHERS |= {"touché": "tooshay", "née": "nay", "blasé": "blahzay", "outré": "ootray", "à": "ah"}
OTHERS |= {"pâtés": "pattays", "nestlé": "nesslay", "crème": "krem"}
OTHERS |= {"exposé": "expozay", "exposés": "expozays", "maté": "mahtay"}
LAST_E = re.compile(r"ée?(s?)\Z")  # of "brûlée", whose plain form has another sound
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def plain(text: str) -> str:
    """Latin letters without accents."""
    bare = (c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return "".join(PLAIN.get(c, c) for c in bare)


def respelled(text: Traced, is_known: Callable[[str], bool]) -> Traced:
    """A text whose foreign words are spelled by their sound, unless their plain form is known.

    Args:
        text: in composed Unicode (NFC).
        is_known: whether a plain word is said by the dictionary.
    """
    if text.text.isascii():
        return text
    return text.sub(WORD, lambda m: _word(m[0], is_known))


def _word(word: str, is_known: Callable[[str], bool]) -> str:
    lower = word.lower()
    if lower in OTHERS:
        return OTHERS[lower]
    if not plain(lower).replace("’", "'").isascii():  # of another alphabet, in part
        return word
    if LAST_E.search(lower) and not is_known(plain(word).removesuffix("s")):
        lower = LAST_E.sub(r"ay\1", lower)
    elif not LETTERS.keys() & set(lower) or is_known(plain(word)):
        return word
    if POLISH & set(lower):
        lower = POLISH_SOUNDS.sub(lambda m: PAIRS[m[0]], lower)
    if lower[0] == "ç":  # Turkish, Albanian
        lower = "ch" + lower[1:]
    spelled = plain("".join(LETTERS.get(c, c) for c in lower))
    return spelled.capitalize() if word[0].isupper() else spelled
