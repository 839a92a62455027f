"""Making: a part of a text as a chunk, with its ids, its length and its pauses."""

from __future__ import annotations

from typing import Any

import numpy as np

from nanospeech.errors import InputError
from nanospeech.text.places import encode_places
from nanospeech.text.sentences import encode
from nanospeech.text.traced import Traced

from . import durations as lengths
from .chunks import Chunk
from .pauses import find_marks
from .script import Part
from .words import heard


def make_chunk(speaker: Any, part: Part, seed: int, seconds: float | None = None) -> Chunk:
    """A part of a text with its ids and its length.

    A short chunk begins with a comma of leading_pause seconds, if the model's config sets that.

    Args:
        speaker: who speaks it.
        part: what is to be said.
        seed: of its noise.
        seconds: its wanted length; pauses within it are then left as the model makes them.

    Raises:
        InputError: the model knows no character of it.
    """
    text, words = part.text, part.words
    config, tokenizer = speaker.engine.config, speaker.tokenizer
    tokens, places = encode_places(Traced.of(text + config.dit.edge), tokenizer)
    if not len(tokens):
        raise InputError(f"the model knows no character of {text[:40]!r}")
    frames, added = speaker.frames(text, tokens, seconds), 0
    if seconds is not None:
        said, asked = heard(tokens, places, tokenizer), frames
        whose = speaker.engine, speaker.prompt, text, tokens
        frames = lengths.made_frames(*whose, asked, speaker.durations)
        after = part.after if isinstance(part.after, float) else ""
        return Chunk(
            text,
            tokens,
            frames,
            seed,
            after=after,
            words=words,
            characters=said,
            before=part.before,
            asked=asked,
        )
    if config.leading_pause and frames < lengths.SHORT * config.audio.frame_rate:
        comma = encode(", ", tokenizer)
        tokens, added = np.concatenate([comma, tokens]), len(comma)
        places = np.pad(places, (added, 0), constant_values=-1)
        frames += lengths.frames(config, comma, config.leading_pause)
    aligned = config.dit.text_upsampling == "aligned"
    marks = find_marks(text, tokens, added, tokenizer) if aligned else ()
    said = heard(tokens, places, tokenizer)
    return Chunk(
        text, tokens, frames, seed, marks, part.after, speaker.speed, words, said, part.before
    )
