"""Transcription: the words of a recording and when they are said, by Whisper (arXiv 2212.04356)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.errors import BackendError, InputError, require
from nanospeech.speech.reference import (
    HEARD,
    Listener,
    Reference,
    Word,
    common_share,
    read_reference,
)
from nanospeech.text.sentences import is_speakable

from .metrics import RATE, check_language, load_whisper

SPACED = 0.25  # share of pieces that begin with a space, in writing with spaces
COMMON = 0.6  # share of words from which a text is what was heard: 0.71 to 1 of right texts
SURE = 0.8  # probability from which another language is taken for the one that is spoken


def whisper_listener(
    name: str = "base",
    language: str | None = "en",
    say: Callable[[str], None] | None = None,
    download: bool = True,
) -> Listener:
    """A function of a wave, float32 (n,) at 24 kHz, that returns the words in it.

    Args:
        name: a faster-whisper size, which is downloaded at first, or a folder.
        language: code of the language that is spoken; None for the one that it sounds like.
        say: prints a line where it is another one, of which there are no words then. Without it,
            nobody asks.
        download: whether the model may be, where this machine lacks it.

    Raises:
        BackendError: faster-whisper is not installed.
        InputError: there is no such model, or it does not know the language. What is returned
            raises it where no word is heard.
    """
    model = load_whisper(name, extra="transcribe", download=download)
    if language is not None:
        check_language(model, language)

    def listen(wave: np.ndarray) -> list[Word]:
        heard = audio.resample(wave, audio.SAMPLE_RATE, RATE)
        if say is not None and language is not None:
            spoken, chance, _ = model.detect_language(heard)
            if spoken != language and chance >= SURE:
                say(f"note: it sounds like {spoken!r}, not {language!r}: no words are read")
                return []
        words = words_in(model, heard, language)
        if not is_speakable(" ".join(word.text for word in words)):
            raise InputError("no words were heard in the recording; if there are, give its text")
        return words

    return listen


def words_in(model: Any, wave: np.ndarray, language: str | None) -> list[Word]:
    """The words that a faster-whisper model hears in a wave, float32 (n,) at RATE."""
    require("ctranslate2", "transcribe").set_random_seed(0)
    segments, _ = model.transcribe(
        wave,
        language=language,
        beam_size=5,
        condition_on_previous_text=False,
        word_timestamps=True,
    )
    return whole_words(word for segment in segments for word in segment.words or ())


def whole_words(pieces: Iterable[Any]) -> list[Word]:
    """Whisper's pieces as words.

    It cuts at punctuation within a word too ("$10,000", "twenty-five"); what begins with a space
    begins a word. In writing without spaces each piece is one, but for pieces of a Latin word.

    Args:
        pieces: of faster-whisper, with word, start, end and probability.
    """
    pieces = [p for p in pieces if p.word.strip()]
    spaced = sum(p.word[0].isspace() for p in pieces[1:]) >= SPACED * len(pieces)
    words: list[Word] = []
    for piece in pieces:
        word = Word(piece.word.strip(), float(piece.start), float(piece.end), piece.probability)
        apart = piece.word[0].isspace() or not words
        if not apart and (spaced or is_latin(words[-1].text, word.text)):
            a = words.pop()
            word = Word(a.text + word.text, a.start, word.end, min(a.chance, word.chance))
        words.append(word)
    return words


def is_latin(before: str, after: str) -> bool:
    """Whether letters or digits of ASCII meet where one text ends and the next begins."""
    return (before[-1] + after[0]).isascii() and before[-1].isalnum() and after[0].isalnum()


def joined(words: Sequence[str], spaced: bool = True) -> str:
    """Words as a text; in writing without spaces there are some between Latin words alone."""
    if spaced or not words:
        return " ".join(words)
    rest = (f" {b}" if is_latin(a, b) else b for a, b in pairwise(words))
    return words[0] + "".join(rest)


def other_words(wave: np.ndarray, text: str, whisper: str, language: str | None) -> str:
    """What is said in a recording, where it is not its text.

    Args:
        wave: float32 (n,) at audio.SAMPLE_RATE.
        text: that is to be said in it, in any language.
        whisper: of whisper_listener, and so is the language, in which it listens first.

    Returns:
        The words; nothing where most are the text's, or Whisper is not on this machine.
    """
    heard = ""
    for code in dict.fromkeys((language, None)):
        try:
            words = whisper_listener(whisper, code, download=False)(wave)
        except (BackendError, InputError):
            break
        if common_share(words, text) >= COMMON:
            return ""
        heard = heard or " ".join(w.text for w in words)
    return f"{heard[:HEARD]}{'...' * (len(heard) > HEARD)}"


def hear_reference(
    recording: str | Path,
    text: str | None,
    whisper: str,
    say: Callable[[str], None],
    language: str | None = "en",
    flag: str = "--text",
    needed: bool = False,
    spoken: bool = False,
) -> Reference:
    """Prepares a recording as a voice, transcribes it if no text is given, and prints notes on it.

    Where there is no Whisper, or another language is spoken, its words stay unknown.

    Args:
        recording: its file.
        text: what is said in it.
        whisper: of whisper_listener, and so is the language.
        say: prints a line.
        flag: of the command, that gives the text.
        needed: whether the model cannot do without the words.
        spoken: whether a Speaker is made with it at once, which warns of words that do not fit.

    Raises:
        InputError: a recording that cannot be used.
        BackendError: the words are needed, and there is no Whisper.
    """

    def listener() -> Listener:
        return whisper_listener(whisper, language, None if needed else say)

    try:
        found = read_reference(recording, text, listener, spoken)
    except BackendError as e:
        if needed:
            raise BackendError(f"{e}; or write down what is said in it: {flag} '...'") from e
        if text is None:
            say(f"note: nobody heard its words, which tell its pace ({e}); {flag} '...' gives them")
        else:
            say(f"note: nobody heard where its words are, as it is to be cut ({e})")
        found = read_reference(recording, text, None, spoken)
    for note in found.notes:
        say(f"note: {note}")
    # one that was cut was compared already; a Speaker that is made at once should not wait
    whole = text is not None and not spoken and found.text == " ".join(text.split())
    if whole and (other := other_words(found.wave, found.text, whisper, language)):
        say(
            f"note: its text does not seem to be what is said in it; heard was: {other} Write down"
            f" all that is said, and no more: {flag} '...'"
        )
    if found.heard:
        say(f"heard: {found.text}")
    return found
