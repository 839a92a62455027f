"""Marked: speakers for the spans of a text with markup, each with its own speed or voice."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from nanospeech.errors import InputError, VoiceError
from nanospeech.release.voices import find_voice
from nanospeech.text.lexicon import Lexicon
from nanospeech.text.markup import Marked, Style

from .script import SPEEDS


def directed(speaker: Any, text: str | Marked, known: dict[str, Any] | None = None) -> Any:
    """The speaker that speaks a text: itself, or for markup one that knows its words and styles.

    Args:
        speaker: a nanospeech.Speaker.
        text: what to say.
        known: speakers of voices, by name, so that many texts share them; new ones are added.

    Raises:
        InputError: a voice that is not there, or sounds for a model that reads no phonemes.
    """
    if not isinstance(text, Marked):
        return speaker
    other = copy.copy(speaker)
    if text.phonemes:
        if speaker.tokenizer.kind != "phonemes":
            word = next(iter(text.phonemes)).rstrip("\u2060")
            raise InputError(
                f"this model reads {speaker.tokenizer.kind}, not phonemes: it cannot say"
                f" {word!r} by them; respell the word instead"
            )
        words = Lexicon(text.phonemes)
        lexicon = speaker.tokenizer.lexicon
        other.tokenizer = speaker.tokenizer.with_lexicon(lexicon | words if lexicon else words)
    other.casts, known = {}, {} if known is None else known
    for span in text.spans:
        if span.style != Style() and span.style not in other.casts:
            other.casts[span.style] = cast(other, span.style, known)
    return other


def cast(speaker: Any, style: Style, known: dict[str, Any]) -> Any:
    """A speaker for a style that is not the speaker's own."""
    other = copy.copy(speaker)
    if style.voice is not None:
        if style.voice not in known:
            known[style.voice] = voiced(speaker, style.voice)
        other = copy.copy(known[style.voice])
        if other.engine.tokenizer.vocab == speaker.engine.tokenizer.vocab:
            other.tokenizer = speaker.tokenizer
    other.speed = min(max(speaker.speed * style.rate, SPEEDS[0]), SPEEDS[1])
    return other


def voiced(speaker: Any, voice: str) -> Any:
    """A speaker with another voice of the model, as loud as the speaker's own.

    Raises:
        InputError: there is no such voice.
        VoiceError: its files cannot be used.
    """
    find_voice(voice, speaker.engine.folder)
    more = {"chunk_seconds": speaker.chunk_seconds, "output": speaker.output}
    more["duration"] = speaker.duration
    more |= {"options": speaker.options, "seed": speaker.seed}
    try:
        other = type(speaker)(speaker.engine, voice, **more)
    except InputError as e:
        find_voice(voice, speaker.engine.folder)  # which refuses one that was removed since
        raise VoiceError(f"voice {voice!r} cannot be spoken: {e}") from e
    own, theirs = speaker.prompt.settings.loudness, other.prompt.settings.loudness
    if own is not None and theirs is not None:
        gain = other.prompt.gain * 10 ** ((theirs - own) / 20)
        other.prompt = dataclasses.replace(other.prompt, gain=gain)
    return other
