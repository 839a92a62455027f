"""Making: a part of a text as a chunk, with its ids, its length and its pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanospeech.errors import InputError
from nanospeech.text.places import encode_places
from nanospeech.text.sentences import byte_length, encode
from nanospeech.text.traced import Traced

from . import durations as lengths
from .chunks import CROSS_FADE, Chunk
from .pauses import find_marks
from .script import Part, asked_silence
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
        return Chunk(
            text,
            tokens,
            frames,
            seed,
            after=part.after,
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


def make_chunks(
    speakers: Sequence[Any], parts: Sequence[Part], seed: int, seconds: float
) -> list[Chunk]:
    """Chunks that last so long together; what one of them is off by, those behind it make up for.

    The share of each is its bytes, fewer for fast ones.

    Args:
        speakers: of each part.
        parts: what is to be said.
        seed: of the first one's noise.
        seconds: of the whole, with its pauses and less its cross-fades; there is a warning where
            the text cannot last so long.

    Raises:
        InputError: pauses leave nothing of it, or the model knows no character of a part.
    """
    config = speakers[0].engine.config
    rate, silence = config.audio.frame_rate, asked_silence(parts, seconds)
    weights = [byte_length(part.text) / part.style.rate for part in parts]
    # a mel has a frame more than its wave is long; latents have not
    overlap = CROSS_FADE + (0 if config.echo else 1 / rate)
    left, weight = seconds - silence + len(parts) * overlap - CROSS_FADE, sum(weights)
    made, counts = [], []
    for index, (who, part) in enumerate(zip(speakers, parts)):
        share = left * weights[index] / weight
        made.append(chunk := who.part_chunk(part, seed + index, share))
        counts.append(chunk.frames if chunk.asked is None else chunk.asked)
        left, weight = left - counts[-1] / rate, weight - weights[index]
    lengths.warn_of_length(config, seconds, counts, silence, overlap)
    return made
