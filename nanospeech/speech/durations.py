"""Lengths: how long a text lasts, by the model or the prompt's pace. Knows no array library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nanospeech.config import ModelConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.voices import Prompt
from nanospeech.text.sentences import byte_length
from nanospeech.text.tokenizer import pad_tokens

MIN_SPEECH = 0.35  # seconds of new speech; without it "Hi." comes out clipped
SLOW_START = 0.45  # a text lasts this and half of what the rule says: words alone are spoken slowly
# seconds: what is shorter gets the lead (ModelConfig.lead), and the longer of two times told
SHORT = 1.0
# who tells how long a text lasts, and what is asked for it (`own` of Engine.duration); the errors
# of a duration model and of token durations are not the same ones, so their mean is better
ASKED = {"both": (False, True), "model": (False,), "tokens": (True,), "rule": ()}
DURATIONS = tuple(ASKED)


def choose_durations(engine: Any, wanted: str | None) -> str:
    """Who tells how long a text lasts: one of DURATIONS.

    Raises:
        InputError: there is no such choice.
        CheckpointError: the model cannot tell.
    """
    aligned = engine.config.dit.text_upsampling == "aligned"
    both = aligned and engine.has_duration_model
    if wanted is None:
        return "both" if both else "model" if engine.has_duration else "rule"
    if wanted not in DURATIONS:
        raise InputError(f"duration {wanted!r} not known; choose from {', '.join(DURATIONS)}")
    if wanted == "model" and not engine.has_duration:
        raise CheckpointError(
            f"{engine.folder} has no duration.safetensors and its model no durations of its own;"
            " choose duration rule, or train a duration model (docs/durations.md)"
        )
    if wanted == "tokens" and not aligned:
        raise CheckpointError(
            f"the model in {engine.folder} has no durations of tokens: it is not an aligned one;"
            " choose duration rule, or model if it has a duration model"
        )
    if wanted == "both" and not both:
        lack = "duration.safetensors" if aligned else "aligned model"
        raise CheckpointError(f"{engine.folder} has no {lack}: choose duration model or rule")
    return wanted


def told(
    engine: Any, prompt: Prompt, text: str, tokens: np.ndarray, asked: Sequence[bool]
) -> float:
    """Seconds of new speech that a chunk takes at the prompt's pace.

    Args:
        text: the chunk.
        tokens: its ids.
        asked: of ASKED.
    """
    by_rule = byte_length(text) / prompt.rate
    seconds = [_told_by_model(engine, prompt, tokens, own) for own in asked] or [by_rule]
    # a duration model far off the rule is wrong, and may ask for minutes or for nothing
    seconds = [s if by_rule / 4 <= s <= 4 * by_rule + 2 else by_rule for s in seconds]
    mean = math.prod(seconds) ** (1 / len(seconds))
    if mean < SHORT:
        mean = max(seconds)  # a word or two by itself lasts longer than within a sentence
    return max(mean, SLOW_START + by_rule / 2)


def _told_by_model(engine: Any, prompt: Prompt, tokens: np.ndarray, own: bool) -> float:
    """What the model says of the length of the new speech; see Engine.duration."""
    total = engine.duration(
        prompt.mel[None],
        pad_tokens([np.concatenate([prompt.tokens, tokens])]),
        lens_B=np.array([len(prompt.mel)]),
        prompt_tokens_B=np.array([len(prompt.tokens)]),
        own=own,
    )
    seconds = float(total[0]) - len(prompt.mel) / engine.config.audio.frame_rate
    return seconds * prompt.manner.pace


def frames(config: ModelConfig, tokens: np.ndarray, seconds: float) -> int:
    """Mel frames for so many seconds: whole patches, and a patch a token at least."""
    patch = config.dit.patch_size
    least = max(1, len(tokens)) * patch
    return max(least, -(-round(seconds * config.audio.frame_rate) // patch) * patch)


def shared(seconds: float, chunks: Sequence[str], overlap: float) -> list[float]:
    """Splits a wanted length between chunks; what cross-fades take away is given back before."""
    whole = seconds + (len(chunks) - 1) * overlap
    weight = sum(map(byte_length, chunks))
    return [whole * byte_length(chunk) / weight for chunk in chunks]
