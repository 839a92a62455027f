"""Pronunciation: phonemes that a user writes, in ARPAbet or IPA, as the tokenizer's own tokens.

Tokens are ARPAbet as in the CMU Pronouncing Dictionary: a vowel ends in its stress, 0, 1 or 2.
"""

from __future__ import annotations

import re
import unicodedata

from nanospeech.errors import InputError

from .phonemes import CONSONANTS, VOWELS

ALPHABETS = ("arpabet", "ipa")
BORDER = " "  # the token between two words
ARPABET = re.compile(rf"(?:({'|'.join(VOWELS)})([012]?)|({'|'.join(CONSONANTS)}))")
# IPA to ARPAbet; vowels of WEAK are unstressed unless a mark says otherwise
IPA_VOWELS = {
    "aɪ": "AY", "aʊ": "AW", "eɪ": "EY", "oʊ": "OW", "əʊ": "OW", "ɔɪ": "OY", "ɔʏ": "OY", "ai": "AY",
    "au": "AW", "ei": "EY", "ou": "OW", "ɔi": "OY", "oi": "OY", "æ": "AE", "ɑ": "AA", "ɒ": "AA",
    "a": "AA", "ɐ": "AH", "ʌ": "AH", "ə": "AH", "ɔ": "AO", "e": "EH", "ɛ": "EH", "ɝ": "ER",
    "ɚ": "ER", "ɜ": "ER", "ɜɹ": "ER", "əɹ": "ER", "ɪ": "IH", "ᵻ": "IH", "ɨ": "IH", "i": "IY",
    "o": "OW", "ʊ": "UH", "u": "UW", "ʉ": "UW",
}  # fmt: skip
WEAK = {"ə", "ɚ", "ᵻ", "ɨ", "əɹ"}
IPA_CENTRING = {"eə": "EH R", "ɛə": "EH R", "ɪə": "IH R", "ʊə": "UH R"}  # British "-r" vowels
IPA_CONSONANTS = {
    "tʃ": "CH", "dʒ": "JH", "ʧ": "CH", "ʤ": "JH", "hw": "W", "b": "B", "d": "D", "ð": "DH",
    "f": "F", "g": "G", "ɡ": "G", "h": "HH", "k": "K", "l": "L", "ɫ": "L", "m": "M", "n": "N",
    "ŋ": "NG", "p": "P", "ɹ": "R", "ɾ": "T", "s": "S", "ʃ": "SH", "t": "T", "θ": "TH", "v": "V",
    "ʔ": "T", "w": "W", "ʍ": "W", "j": "Y", "x": "K", "z": "Z", "ʒ": "ZH",
}  # fmt: skip
SYLLABIC = "\u0329"  # under a consonant that is a syllable, as in "button"
SAME_IPA = str.maketrans({"'": "ˈ", "’": "ˈ", ":": "ː", "r": "ɹ", "ɻ": "ɹ", "ε": "ɛ", "ǝ": "ə"})
# length, syllables, ties, aspiration, glides between vowels
NO_SOUND = re.compile("[ː.\u0361\u035c\u200dʰʲ‿\u02d1]")
SIGNS = {**IPA_VOWELS, **IPA_CENTRING, **IPA_CONSONANTS}
IPA = re.compile(
    f"(?P<stress>[ˈˌ])|(?P<border>\\s+|\\|)"
    f"|(?P<sign>{'|'.join(sorted(SIGNS, key=len, reverse=True))})(?P<syllabic>{SYLLABIC}?)"
)


def parse_phonemes(text: str, alphabet: str = "") -> list[str]:
    """Reads phonemes as people write them.

    Args:
        text: ARPAbet, "T AH0 M AA1 T OW0", words parted by "|"; or IPA, "təˈmɑːtoʊ", words parted
            by spaces. A vowel of ARPAbet without a digit is unstressed, and of IPA without a mark;
            in a word with one vowel that is not weak the marks may be left out.
        alphabet: of ALPHABETS; "" to take ARPAbet if there are capitals, else IPA.

    Returns:
        Tokens of the "phonemes" tokenizer: "AH0", "T"; BORDER between words.

    Raises:
        InputError: an unknown alphabet or sign, no sounds, or no stress where it is needed.
    """
    if alphabet and alphabet not in ALPHABETS:
        raise InputError(f"alphabet {alphabet!r} is not known; choose arpabet or ipa")
    if not text.strip():
        raise InputError("phonemes are missing; write some, such as T AH0 M AA1 T OW0 or təˈmɑːtoʊ")
    if alphabet == "arpabet" or (not alphabet and re.search("[A-Z]", text)):
        words = [_arpabet(part, text) for part in text.split("|") if part.strip()]
    else:
        words = _ipa(text)
    words = [word for word in words if word]
    if not words:
        raise InputError(f"no sounds in {text!r}")
    tokens = _stressed(words[0], text)
    for word in words[1:]:
        tokens += [BORDER, *_stressed(word, text)]
    return tokens


def _arpabet(part: str, text: str) -> list[tuple[str, str]]:
    """A word's phonemes without stress, and their stress: "0" to "2", "" for none written."""
    found = []
    for symbol in part.split():
        match = ARPABET.fullmatch(symbol)
        if match is None:
            hint = " (symbols are in capitals)" if ARPABET.fullmatch(symbol.upper()) else ""
            raise InputError(
                f"{symbol!r} in {text!r} is no phoneme of ARPAbet{hint}; vowels are"
                f" {' '.join(VOWELS)} with 0, 1 or 2 behind, consonants {' '.join(CONSONANTS)}"
            )
        found.append((match[1] or match[3], match[2] or ""))
    return found


def _ipa(text: str) -> list[list[tuple[str, str]]]:
    """Words as of _arpabet; a stress mark goes to the next vowel."""
    signs = text.strip()
    if len(signs) > 2 and signs[0] + signs[-1] in ("//", "[]"):
        signs = signs[1:-1]
    signs = NO_SOUND.sub("", unicodedata.normalize("NFD", signs).translate(SAME_IPA))
    words: list[list[tuple[str, str]]] = [[]]
    at, stress = 0, ""
    while at < len(signs):
        match = IPA.match(signs, at)
        if match is None:
            odd = signs[at]
            name = unicodedata.name(odd, "no character")
            raise InputError(f"{odd!r} ({name}) in {text!r} is no IPA sign of an English sound")
        at = match.end()
        if match["stress"]:
            stress = "1" if match[0] == "ˈ" else "2"
        elif match["border"]:
            words.append([])
        else:
            spoken = _sign(match["sign"], bool(match["syllabic"]), stress)
            stress = "" if any(p in VOWELS for p, _ in spoken) else stress
            words[-1] += spoken
    return words


def _sign(sign: str, syllabic: bool, stress: str) -> list[tuple[str, str]]:
    """The phonemes of one IPA sign, and their stress."""
    if syllabic:
        return [("ER", stress or "0")] if sign == "ɹ" else [("AH", "0"), (SIGNS[sign], "")]
    return [(p, stress or "0" * (sign in WEAK)) for p in SIGNS[sign].split()]


def _stressed(word: list[tuple[str, str]], text: str) -> list[str]:
    """A word's tokens; where no vowel has a stress, the only full one has the first."""
    vowels = [stress for p, stress in word if p in VOWELS]
    open_ = vowels.count("")
    if len(vowels) > 1 and open_ > 1 and not set(vowels) & {"1", "2"}:
        raise InputError(
            f"{text!r} does not say which syllable is stressed: write 1 behind its vowel (AA1,"
            " ARPAbet) or ˈ before the syllable (IPA)"
        )
    missing = "0" if set(vowels) & {"1", "2"} else "1"
    return [p + (stress or missing) if p in VOWELS else p for p, stress in word]
