"""Durations: how long a text lasts, by the model or the prompt's pace. Knows no array library."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from nanospeech.arguments import number
from nanospeech.config import ModelConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.f5_reference import f5_frames
from nanospeech.release.prompt import Prompt
from nanospeech.text.sentences import byte_length
from nanospeech.text.tags import has_tag
from nanospeech.text.tokenizer import pad_tokens

from .latents import latents_of, rule_latents

log = logging.getLogger("nanospeech")
MODEL_SPEEDS = (0.8, 1.0)  # beyond them a model drops and slurs words (docs/output.md)
MIN_SPEECH = 0.35  # seconds of new speech; without it "Hi." comes out clipped
# Seconds. A text lasts at least this plus half of the rule's estimate: single words are slow.
SLOW_START = 0.45
# Seconds. Shorter texts get ModelConfig.leading_pause and the longest of the estimates.
SHORT = 1.0
# Choices of --duration and the estimates that each takes the mean of: `own` of Engine.duration.
# The errors of a duration model and of token durations are independent, so their mean is better.
DURATION_SOURCES = {"both": (False, True), "model": (False,), "tokens": (True,), "rule": ()}
Duration = Literal["both", "model", "tokens", "rule"]
DURATIONS: tuple[Duration, ...] = get_args(Duration)
CHUNK_SECONDS = 10.0  # of new speech; models drift on chunks longer than their training clips


def chunk_length(chunk_seconds: float) -> float:
    """About how long chunks are, in seconds.

    Raises:
        InputError: it is no number, or none above 0.
    """
    if not number("chunk_seconds", chunk_seconds) > 0:
        raise InputError(f"chunk_seconds is {chunk_seconds}; choose more than 0")
    return float(chunk_seconds)


def model_speed(speed: float) -> float:
    """The speed at which the model itself speaks; its mel is stretched by what is left."""
    return min(max(speed, MODEL_SPEEDS[0]), MODEL_SPEEDS[1])


def own_speed(config: ModelConfig, speed: float) -> float:
    """The speed at which a model is asked to speak.

    Latents cannot be stretched: a network that takes its length as a condition is asked for all of
    it, and others speak as fast as they learned to.
    """
    wholly = config.echo is not None and config.echo.takes_length
    return speed if wholly else model_speed(speed)


def warn_of_speed(config: ModelConfig, speed: float) -> None:
    """Warns where a speed is asked of a model that has none but its own."""
    if config.echo is not None and not config.echo.takes_length and speed != 1:
        log.warning(
            "the model %r speaks at its own speed, whatever is asked: it takes no length",
            config.name,
        )


def choose_durations(engine: Any, wanted: str | None) -> str:
    """The source of durations: the wanted one, or the best that the model has; of DURATIONS.

    Raises:
        InputError: there is no such choice.
        CheckpointError: the model has no such durations, or lacks the model of them that its
            config describes.
    """
    told = engine.config.duration is not None and not engine.has_duration_model
    if told and wanted not in ("tokens", "rule"):
        raise CheckpointError(
            f"{engine.folder} has no duration.safetensors, which its config.json describes; fetch"
            ' the whole folder again, or write "duration": null there to speak without it'
        )
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
        there = "tokens or " if aligned else "model or " if engine.has_duration else ""
        raise CheckpointError(
            f"{engine.folder} has no {lack} for this voice: choose duration {there}rule"
        )
    return wanted


def estimate_seconds(
    engine: Any, prompt: Prompt, text: str, tokens: np.ndarray, sources: Sequence[bool]
) -> float:
    """Seconds of new speech that a chunk takes at the prompt's pace.

    Args:
        text: the chunk.
        tokens: its ids.
        sources: of DURATION_SOURCES.
    """
    by_rule = byte_length(text) / prompt.rate
    seconds = [_model_seconds(engine, prompt, tokens, own) for own in sources] or [by_rule]
    # an estimate far off the rule is wrong: it might be minutes, or nothing
    seconds = [s if by_rule / 4 <= s <= 4 * by_rule + 2 else by_rule for s in seconds]
    mean = math.prod(seconds) ** (1 / len(seconds))
    if mean < SHORT:
        mean = max(seconds)  # a word or two by itself lasts longer than within a sentence
    return max(mean, SLOW_START + by_rule / 2)


def _model_seconds(engine: Any, prompt: Prompt, tokens: np.ndarray, own: bool) -> float:
    """The model's estimate for the new speech; see Engine.duration."""
    total = engine.duration(
        prompt.mel[None],
        pad_tokens([np.concatenate([prompt.tokens, tokens])]),
        lens_B=np.array([len(prompt.mel)]),
        prompt_tokens_B=np.array([len(prompt.tokens)]),
        own=own,
    )
    seconds = float(total[0]) - len(prompt.mel) / engine.config.audio.frame_rate
    return seconds * prompt.settings.pace


def frames(config: ModelConfig, tokens: np.ndarray, seconds: float) -> int:
    """Mel frames for a number of seconds: whole patches, at least one a token."""
    patch = config.dit.patch_size
    least = max(1, len(tokens)) * patch
    return max(least, -(-round(seconds * config.audio.frame_rate) // patch) * patch)


def asked_frames(engine: Any, tokens: np.ndarray, seconds: float) -> int:
    """Mel frames or latents of a chunk whose seconds are asked for."""
    if engine.config.echo:
        return latents_of(engine, seconds, asked=True)
    return frames(engine.config, tokens, seconds)


def made_frames(
    engine: Any, prompt: Prompt, text: str, tokens: np.ndarray, asked: int, source: str
) -> int:
    """Mel frames that the model makes where others are asked for: as near as MODEL_SPEEDS let it.

    Args:
        asked: of asked_frames; latents, which cannot be stretched, are made as asked.
        source: of DURATIONS.
    """
    if engine.config.echo:
        return asked
    slowest, fastest = (
        new_frames(engine, prompt, text, tokens, speed * prompt.settings.speed, source)
        for speed in MODEL_SPEEDS
    )
    return min(max(asked, fastest), slowest)


def new_frames(
    engine: Any, prompt: Prompt, text: str, tokens: np.ndarray, speed: float, source: str
) -> int:
    """Mel frames of new speech for a chunk.

    Args:
        text: the chunk.
        tokens: its ids.
        speed: at which the model speaks.
        source: of DURATIONS; "rule" is that of the model's config.
    """
    if engine.config.echo:
        return rule_latents(engine, prompt, text, speed)
    if source == "rule" and engine.config.rules == "f5":
        count = len(prompt.tokens) + len(tokens)
        return f5_frames(len(prompt.mel), prompt.text_bytes, count, byte_length(text), speed)
    sources = DURATION_SOURCES[source]
    if True in sources and has_tag(tokens, engine.tokenizer.vocab):
        sources = (True,)  # finetuning teaches a tag's length to these alone
    seconds = estimate_seconds(engine, prompt, text, tokens, sources)
    return frames(engine.config, tokens, max(seconds / speed, MIN_SPEECH))


def warn_of_length(
    config: ModelConfig, asked: float, counts: Sequence[int], silence: float, overlap: float
) -> None:
    """Warns where a text cannot last as long as is asked.

    Args:
        asked: seconds of the whole.
        counts: frames or latents of each chunk, of asked_frames.
        silence: seconds of the pauses between them.
        overlap: seconds by which chunks overlap.
    """
    patch = config.echo.latent_patch if config.echo else config.dit.patch_size
    rate = config.audio.frame_rate
    takes = sum(counts) / rate - (len(counts) - 1) * overlap + silence
    if abs(takes - asked) > len(counts) * (patch + 1) / rate:  # more than is rounded
        bound = "least" if takes > asked else "most"
        log.warning("the text takes at %s %.1f s, not the %g s asked for", bound, takes, asked)
