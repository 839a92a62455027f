"""Pinyin: Chinese text to syllables with tones, other text to characters, as F5-TTS tokenises.

Words are found by rjieba and read by pypinyin, both of the extra [zh]. The tokens are those of
F5-TTS's vocabulary (Chen et al., arXiv 2410.06885), so that models of that layout can be read.
"""

from __future__ import annotations

from nanospeech.errors import require

FOLD = str.maketrans({";": ",", "“": '"', "”": '"', "‘": "'", "’": "'"})
JOINING = " :'\""  # a token after which a word of ASCII needs no space
FILLER = 0  # id of the space, and of what the vocabulary lacks


def is_han(c: str) -> bool:
    """Whether a character is read as a syllable: CJK ideographs, and what stands before them."""
    return "\u3100" <= c <= "\u9fff"


def pinyin_tokens(text: str) -> list[str]:
    """Tokens of a text: " " and "ni3" for each ideograph, else single characters.

    A word of several ASCII characters is set off by a space from what stands before it. The tone
    of a syllable is that in its word, tone sandhi applied: 你好 is ni2 hao3.

    Raises:
        BackendError: rjieba or pypinyin is not installed.
    """
    out: list[str] = []
    for word in require("rjieba", "zh").cut(text.translate(FOLD)):
        if word.isascii():
            if len(word) > 1 and out and out[-1] not in JOINING:
                out.append(" ")
            out += word
        elif all(len(c.encode()) == 3 for c in word):
            out += _read(word, syllables(word))
        else:
            for c in word:
                out += _read(c, syllables(c) if is_han(c) else [c])
    return out


def pinyin_parts(text: str) -> list[tuple[str, list[str]]]:
    """Each character of a text with its tokens; spaces that were added count with the next one."""
    found: list[tuple[str, list[str]]] = []
    at, held = 0, []
    for token in pinyin_tokens(text):
        if token == " " and text[at : at + 1] not in (" ", "\n", "\t"):
            held.append(token)
            continue
        found.append((text[at : at + 1], [*held, token]))
        at, held = at + 1, []
    return found


def _read(word: str, sounds: list[str]) -> list[str]:
    """Each ideograph's sound behind a space; others' as they are."""
    out: list[str] = []
    for c, sound in zip(word, sounds):
        out += [" ", sound] if is_han(c) else [sound]
    return out


def syllables(word: str) -> list[str]:
    """Pinyin of each character of a word, tones as digits; what is no ideograph stays."""
    pypinyin = require("pypinyin", "zh")
    return pypinyin.lazy_pinyin(
        word, style=pypinyin.Style.TONE3, tone_sandhi=True, errors=lambda rest: list(rest)
    )
