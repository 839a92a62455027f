"""Prompts: a recording with its words as a model's input, trimmed, levelled and analysed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.mp3 import coded
from nanospeech.audio.narrow import widened
from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.text.sentences import (
    byte_length,
    check_unicode,
    encode,
    is_foreign,
    is_speakable,
    prepare,
)
from nanospeech.text.tokenizer import Tokenizer

from .f5_reference import f5_reference, f5_text
from .voices import VoiceSettings

log = logging.getLogger("nanospeech")
MAX_REFERENCE = 60.0  # seconds
MIN_REFERENCE = 0.5
REFERENCE_TAIL = 0.1  # seconds of silence after the prompt, so that its last sound does not leak
# plausible rates of speech; a prompt with the wrong text may be far off
BYTES_PER_SECOND = (5.0, 40.0)
USUAL_PACE = 15.0  # bytes a second, of a prompt whose words are not known


@dataclass(frozen=True, eq=False)  # arrays have no one truth of ==
class Prompt:
    """A voice as the model's input.

    Attributes:
        mel: float32 (N, M) log mel, whole patches, at the raised level; for a model of latents
            (N, C) of these.
        tokens: int64 ids of its words and the space that follows them; none where these are not
            known.
        rate: UTF-8 bytes of its text a second, or a usual one.
        gain: factor by which the recording was scaled.
        settings: the Voice's.
        text_bytes: UTF-8 bytes of its text, which F5-TTS's lengths go by.
    """

    mel: np.ndarray
    tokens: np.ndarray
    rate: float
    gain: float
    settings: VoiceSettings = VoiceSettings()
    text_bytes: int = 0


def check_reference(
    ref_audio: Any, ref_text: str | None, voice: str | None = None, wordless: bool = True
) -> None:
    """What can be said of a reference before its recording is read.

    Args:
        ref_text: None where its words are not known.
        wordless: whether the model can do without them (ModelConfig.hears_alone).

    Raises:
        InputError: a reference whose words are needed, or that comes with a voice, samples that are
            no floats, or a file that is missing or too long.
    """
    if ref_audio is None and ref_text is not None:
        raise InputError("the reference has no audio, only text; give both, or a voice instead")
    if ref_audio is None:
        return
    if voice is not None:
        raise InputError("give either a voice or a reference recording, not both")
    if ref_text is None and not wordless:
        raise InputError(
            "the reference has no text, only audio, and this model needs both; write down what is"
            " said in the recording"
        )
    check_unicode(ref_text or "")
    if ref_text is not None and not is_speakable(ref_text):
        raise InputError("the reference's text is empty; write down what is said in the recording")
    if isinstance(ref_audio, (str, PathLike)):
        audio.check_length(Path(ref_audio), MAX_REFERENCE)
    elif isinstance(ref_audio, np.ndarray) and ref_audio.dtype.kind != "f":
        raise InputError(
            f"the reference's samples are {ref_audio.dtype}, should be floats in -1 to 1; divide"
            " those of 16 bits by 32768"
        )


def make_prompt(wave: np.ndarray, text: str, config: ModelConfig, tokenizer: Tokenizer) -> Prompt:
    """Trims, levels and analyses a recording, by the rules of the model's config.

    Args:
        wave: float32 (n,) at the model's rate.
        text: what is said in it; nothing where that is not known.

    Raises:
        InputError: silent, too short, too long, or too short for so much text.
    """
    wave, gain, text, seconds = levelled(wave, text, config)
    mel = log_mel(wave, config.audio)
    if config.prompt_widen:
        mel = widened(mel, audio.rms(wave))
    patch = config.dit.patch_size
    mel = mel[: len(mel) // patch * patch]  # no patch is half prompt, half new
    if config.hears_alone and is_foreign(text, tokenizer):
        log.warning(
            "the model cannot read the reference's text, %.40s: its words are left unknown", text
        )
        text = ""
    text = " ".join(prepare(text, tokenizer).split())
    if not text:
        return Prompt(mel, np.zeros(0, np.int64), USUAL_PACE, gain)
    if config.rules == "f5":
        text = f5_text(text)
    else:  # a prompt that ends openly would run on into the new text
        text += ". " if text[-1:].isalnum() else " "
    tokens = encode(config.dit.edge + text, tokenizer)
    if len(tokens) * patch > len(mel):
        raise InputError(
            f"the reference's text of {len(text)} characters cannot be said in its"
            f" {seconds:.1f} s; write down just what is said in the recording"
        )
    return Prompt(mel, tokens, pace_of(text, seconds), gain, text_bytes=byte_length(text))


def levelled(
    wave: np.ndarray, text: str, config: ModelConfig
) -> tuple[np.ndarray, float, str, float]:
    """A recording trimmed and at the model's level.

    Returns:
        The wave, its gain, its text (cut with it, if it was), and its seconds of sound.

    Raises:
        InputError: silent, too short or too long.
    """
    rate = config.audio.sample_rate
    if wave.ndim != 1 or not np.isfinite(wave).all():
        raise InputError("the reference should be one channel of finite samples")
    if audio.is_silent(wave):
        raise InputError("the reference recording is silent")
    if len(wave) > MAX_REFERENCE * rate + 1:
        raise InputError(f"the reference is longer than {MAX_REFERENCE:g} s")
    f5 = config.rules == "f5"
    if f5:
        wave, text = f5_reference(wave, text, rate)
    else:
        wave = audio.trim(wave, rate, REFERENCE_TAIL)
    start, stop = audio.loud_span(wave, rate)
    seconds = (stop - start) / rate
    if seconds < MIN_REFERENCE:
        raise InputError(
            f"the reference holds {seconds:.2f} s of sound; at least {MIN_REFERENCE} s are needed"
        )
    tail = 0 if f5 else max(0, int(REFERENCE_TAIL * rate) - (len(wave) - stop))
    wave, gain = audio.set_level(np.pad(wave, (0, tail)), config.audio.prompt_rms)
    if config.prompt_codec is not None:
        wave = coded(wave)
    return wave, gain, text, seconds


def pace_of(text: str, seconds: float) -> float:
    """Bytes of a reference's text a second, in plausible bounds; others are warned of.

    A usual one where nothing is known of it.
    """
    if not text.strip():
        return USUAL_PACE
    pace = byte_length(text.strip()) / seconds
    if not BYTES_PER_SECOND[0] <= pace <= BYTES_PER_SECOND[1]:
        log.warning(
            "the reference's text of %d characters does not go with its %.1f s of sound; write down"
            " all that is said in the recording, and no more",
            len(text),
            seconds,
        )
    return float(np.clip(pace, *BYTES_PER_SECOND))
