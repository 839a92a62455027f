"""Beginning: how a stream's first chunk is made sooner: by fewer steps, with less of the prompt.

Each of the network's evaluations goes through the prompt as well, which is longer than a first
chunk. What follows it is made as without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nanospeech.config import SampleOptions
from nanospeech.errors import InputError
from nanospeech.release.prompt import Prompt

from . import chunks
from .chunks import Chunk
from .pauses import sounds

SECONDS = 1.2  # the least of a prompt that is left


@dataclass(frozen=True)
class First:
    """How a stream's first chunk is sampled.

    Attributes:
        prompt: the voice's, or its end.
        steps: most of the solver, on a uniform grid. A distilled network keeps its own, which it
            was taught.
    """

    prompt: Prompt
    steps: int


def choose_first(engine: Any, prompt: Prompt, steps: int) -> First | None:
    """A voice's First, whichever network speaks; None where nothing is to be made less.

    The prompt is shortened where the voice is in the weights, and the model can find its words.

    Args:
        engine: of the voice.
        prompt: of the voice.
        steps: of the solver; 0 for a chunk that is made like the others.
    """
    config = engine.config
    if not steps or config.echo:
        return None
    shorter = config.imitates is False and config.dit.text_upsampling == "aligned"
    return First(last_words(engine, prompt) if shorter else prompt, steps)


def sample(who: Any, chunk: Chunk, options: SampleOptions, on_step: Any, begins: bool) -> Any:
    """Log mel (N, M) of a speaker's next chunk; steps that a caller chose are kept.

    Args:
        who: a Speaker.
        chunk: of its text.
        options: of the text.
        on_step: see chunks.sample.
        begins: whether the chunk is a stream's first.
    """
    prompt, first = who.prompt, who.first
    if first is not None and begins and options.steps is None:
        prompt, config = first.prompt, who.engine.config
        fewer = first.steps < int(config.chosen(options, "steps"))
        if fewer and not config.dit.max_strength:
            options = replace(options, steps=first.steps, schedule="uniform")
    (mel,) = chunks.sample(who.engine, prompt, [chunk], options, on_step)
    return mel


def last_words(engine: Any, prompt: Prompt, seconds: float = SECONDS) -> Prompt:
    """A prompt without its first words; at least so many seconds are left."""
    try:
        frames = engine.align(prompt.mel, prompt.tokens)
    except InputError:  # fewer frames than its text needs
        return prompt
    patch, most = engine.config.dit.patch_size, len(prompt.mel)
    most -= round(seconds * engine.config.audio.frame_rate)
    loud = np.array([sounds(token, engine.tokenizer) for token in prompt.tokens])
    begins = np.flatnonzero(loud & ~np.concatenate([[True], loud[:-1]]))
    starts = (np.cumsum(frames) - frames)[begins] // patch * patch
    kept = np.flatnonzero(starts <= most)
    if not len(kept):
        return prompt
    token, frame = begins[kept[-1]], int(starts[kept[-1]])
    return replace(prompt, mel=prompt.mel[frame:], tokens=prompt.tokens[token:])
