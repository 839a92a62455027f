"""Latents: prompts, lengths and chunks for models of audio latents (EchoDiT).

Such a model hears the speaker's latents beside the new ones, reads the new text alone, and learned
its own end: it is given room for more than the text should take, and what is silent is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine.echo_sampling import end_of
from nanospeech.engine.sampling import noise
from nanospeech.release.prompt import Prompt, levelled, make_prompt, pace_of
from nanospeech.text.sentences import byte_length
from nanospeech.text.tokenizer import pad_tokens

ROOM = (1.5, 1.0)  # times the estimate, and seconds more, for models that learned their end
LEAST = 8  # latents of a chunk


def any_prompt(engine: Any, wave: np.ndarray, text: str, trained: bool = False) -> Prompt:
    """A recording as the prompt of a model of mels or of latents.

    Args:
        wave: float32 (n,) at the model's rate.
        text: what is said in it, or nothing; a model of latents takes its pace alone from it.
        trained: whether it is one of training's, which is taken as it is, whatever prompt_codec
            and prompt_widen of the config do to others.

    Raises:
        InputError: silent, too short or too long.
        CheckpointError: a model of latents without its codec.
    """
    config = engine.config
    if trained:
        config = replace(config, prompt_codec=None, prompt_widen=False)
    if config.echo is None:
        return make_prompt(wave, text, config, engine.tokenizer)
    wave, gain, text, seconds = levelled(wave, text, config)
    latents = engine.encode(wave)
    return Prompt(latents, np.zeros(0, np.int64), pace_of(text, seconds), gain)


def longest_chunk(config: ModelConfig) -> float:
    """Seconds at which a chunk may be estimated: so many fit, with their room, into a sample."""
    if config.echo is None:
        return math.inf
    most = config.echo.max_latents / config.audio.frame_rate
    return most if config.echo.takes_length else (most - ROOM[1]) / ROOM[0]


def latents_of(engine: Any, seconds: float, asked: bool) -> int:
    """Latents of a chunk that should last so long, within the model's bounds.

    Args:
        seconds: estimated, or as the user wants it.
        asked: whether the user does; else there is room for more, for a model that takes no length.
    """
    config = engine.config
    if not asked and not config.echo.takes_length:
        seconds = ROOM[0] * seconds + ROOM[1]
    patch = config.echo.latent_patch
    wanted = max(LEAST, math.ceil(seconds * config.audio.frame_rate))
    return min(-(-wanted // patch) * patch, config.echo.max_latents)


def rule_latents(engine: Any, prompt: Prompt, text: str, speed: float) -> int:
    """Latents of a chunk at the prompt's pace."""
    return latents_of(engine, byte_length(text) / prompt.rate / speed, asked=False)


def sample_latents(
    engine: Any,
    prompt: Prompt,
    chunks: Sequence[Any],
    options: SampleOptions,
    on_step: Callable[[int, int], None] | None = None,
) -> list[np.ndarray]:
    """Latents (N, C) of each chunk, as one batch, up to where their speech ends.

    Args:
        chunks: Chunk; those whose length was asked for (without a speed) keep it.
    """
    if options.cfg_strength is None:
        options = replace(options, cfg_strength=prompt.settings.cfg_strength)
    lens, width = np.array([chunk.frames for chunk in chunks]), engine.config.audio.n_mels
    noises = np.zeros((len(chunks), int(lens.max()), width), np.float32)
    for row, chunk in zip(noises, chunks):
        row[: chunk.frames] = noise(chunk.frames, width, chunk.seed)
    found = engine.sample(
        noises,
        np.repeat(prompt.mel[None], len(chunks), 0),
        pad_tokens([chunk.tokens for chunk in chunks]),
        options,
        lens_B=lens,
        prompt_frames_B=np.full(len(chunks), len(prompt.mel)),
        on_step=on_step,
    )
    rows, audio = (row[:n] for row, n in zip(found, lens)), engine.config.audio
    return [  # silence is zero in the network's units
        row
        if chunk.speed is None
        else row[: max(LEAST, end_of((row - audio.mel_mean) / audio.mel_std))]
        for row, chunk in zip(rows, chunks)
    ]
