"""Making: a part of a text as a chunk, with its ids, its length and its pauses."""

from __future__ import annotations

from typing import Any

import numpy as np

from nanospeech.errors import InputError
from nanospeech.text.pauses import pause_after
from nanospeech.text.places import encode_places
from nanospeech.text.sentences import encode
from nanospeech.text.traced import Traced
from nanospeech.text.written import Written

from . import durations as lengths
from .chunks import Chunk
from .pauses import find_marks
from .words import heard


def make_chunk(
    speaker: Any,
    text: str,
    seed: int,
    seconds: float | None = None,
    after: str | float | None = None,
    words: tuple[Written, ...] = (),
    before: float = 0.0,
) -> Chunk:
    """One of Speaker.chunks(), with its ids and its length.

    A short chunk begins with a comma of leading_pause seconds, if the model's config sets that.

    Args:
        speaker: who speaks it.
        text: the chunk.
        seed: of its noise.
        seconds: its wanted length; pauses are then left as the model makes them.
        after: kind or seconds of the next pause; None takes that of its last mark.
        words: as written, by their places in it.
        before: seconds of silence at its beginning; 0 is the model's own.

    Raises:
        InputError: the model knows no character of it.
    """
    config, tokenizer = speaker.engine.config, speaker.tokenizer
    tokens, places = encode_places(Traced.of(text + config.dit.edge), tokenizer)
    if not len(tokens):
        raise InputError(f"the model knows no character of {text[:40]!r}")
    frames, added = speaker.frames(text, tokens, seconds), 0
    if seconds is not None:
        said = heard(tokens, places, tokenizer)
        return Chunk(text, tokens, frames, seed, words=words, characters=said)
    if config.leading_pause and frames < lengths.SHORT * config.audio.frame_rate:
        comma = encode(", ", tokenizer)
        tokens, added = np.concatenate([comma, tokens]), len(comma)
        places = np.pad(places, (added, 0), constant_values=-1)
        frames += lengths.frames(config, comma, config.leading_pause)
    aligned = config.dit.text_upsampling == "aligned"
    marks = find_marks(text, tokens, added, tokenizer) if aligned else ()
    after = pause_after(text) if after is None else after
    said = heard(tokens, places, tokenizer)
    return Chunk(text, tokens, frames, seed, marks, after, speaker.speed, words, said, before)
