"""Batching: many texts through the engine at once, their chunks sorted by length into batches.

Knows no array library and no files.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from nanospeech.config import BatchLimits
from nanospeech.errors import InputError

from . import chunks as speech
from .chunks import Chunk, Utterance

WINDOW = 8  # times the items of a batch: texts whose chunks are sorted together


def batches(frames: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """Shares items out to batches, those of about one length together.

    Args:
        frames: of each item.
        limits: items of a batch, and items times its longest; an item beyond them goes alone.

    Returns:
        indices of the items of each batch, each once. The longest go first: what does not fit into
        memory is known at once.
    """
    found: list[list[int]] = []
    for index in sorted(range(len(frames)), key=lambda i: -frames[i]):
        room = min(limits.items, limits.frames // frames[found[-1][0]]) if found else 0
        if found and len(found[-1]) < room:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def speak_each(
    speaker: Any,
    texts: Iterable[str],
    seeds: Iterable[int] | None = None,
    limits: BatchLimits = BatchLimits(),
) -> Iterator[tuple[int, Utterance | InputError]]:
    """Speaks texts as Speaker.speak_many does, and hands each out when it is done.

    Memory is bounded: so many texts as fill some batches are taken at a time.

    Args:
        speaker: a nanospeech.Speaker.
        texts: what to say.
        seeds: one for each text; None is the speaker's own for all.
        limits: of a batch.

    Yields:
        the text's index, and its utterance or what is wrong with it; in no certain order.

    Raises:
        InputError: seeds that do not fit the texts.
    """
    if seeds is not None:
        texts, seeds = list(texts), list(seeds)
        if len(seeds) != len(texts) or any(seed < 0 for seed in seeds):
            raise InputError(
                f"seeds are {len(seeds)}, from {min(seeds, default=0)}; give one for each of the"
                f" {len(texts)} texts, 0 or more"
            )
    left = enumerate(texts)
    while window := dict(islice(left, WINDOW * limits.items)):
        own = {i: speaker.seed if seeds is None else seeds[i] for i in window}
        yield from _speak_window(speaker, window, own, limits)


def _speak_window(
    speaker: Any, texts: dict[int, str], seeds: dict[int, int], limits: BatchLimits
) -> Iterator[tuple[int, Utterance | InputError]]:
    """Speaks the texts of one window."""
    planned: dict[int, list[Chunk]] = {}
    for index, text in texts.items():
        try:
            planned[index] = plan(speaker, text, seeds[index])
        except InputError as e:
            yield index, e
    items = [(index, place) for index in planned for place in range(len(planned[index]))]
    start = len(speaker.prompt.mel)
    frames = [start + planned[index][place].frames for index, place in items]
    waves: dict[int, dict[int, np.ndarray]] = defaultdict(dict)
    spent: dict[int, float] = defaultdict(float)
    for batch in batches(frames, limits):
        began = time.perf_counter()
        places = [items[i] for i in batch]
        spoken = _speak_batch(speaker, [planned[index][place] for index, place in places])
        each = (time.perf_counter() - began) / sum(frames[i] for i in batch)
        for i, (index, place), wave in zip(batch, places, spoken):
            waves[index][place] = wave
            spent[index] += each * frames[i]
            if len(waves[index]) == len(planned[index]):
                chunks = planned.pop(index)
                yield index, _utterance(speaker, chunks, waves.pop(index), spent[index])


def plan(speaker: Any, text: str, seed: int) -> list[Chunk]:
    """The chunks of a text. Lengths are asked one by one: they are speak()'s to the frame.

    Raises:
        InputError: the text cannot be spoken.
    """
    if not isinstance(text, str):
        raise InputError(f"a text should be a string, got {type(text).__name__}")
    return [speaker.chunk(part, seed + i) for i, part in enumerate(speaker.chunks(text))]


def _speak_batch(speaker: Any, chunks: list[Chunk]) -> list[np.ndarray]:
    mels = speech.sample(speaker.engine, speaker.prompt, chunks, speaker.options)
    waves = speech.vocode(speaker.engine, speaker.prompt, mels)
    speaker.engine.clear_cache()
    return waves


def _utterance(
    speaker: Any, chunks: list[Chunk], waves: dict[int, np.ndarray], elapsed: float
) -> Utterance:
    texts = tuple(chunk.text for chunk in chunks)
    rate = speaker.sample_rate
    wave = speech.join([waves[i] for i in range(len(chunks))], texts, rate)
    return Utterance(wave, rate, elapsed, chunks[0].seed, texts)
