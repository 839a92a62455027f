"""Batching: speaks many texts at once, their chunks sorted by length into batches.

Needs no array library, reads and writes no files.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from nanospeech.arguments import whole
from nanospeech.config import BatchLimits
from nanospeech.errors import InputError
from nanospeech.text.markup import Marked
from nanospeech.text.sentences import byte_length

from . import chunks as speech
from .chunks import Chunk, Utterance
from .marked import directed
from .pauses import Paced, set_pauses
from .script import spoken_text

WINDOW = 8  # times the items of a batch: texts that are taken together
FIRST_GROUP, LAST_GROUP = 0.25, 2.0  # times the items of a batch: chunks that are sorted together


def batches(frames: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """Groups items of similar length into batches.

    Args:
        frames: of each item.
        limits: items of a batch, and items times its longest; an item beyond them goes alone.

    Returns:
        indices of the items of each batch, each once. The longest come first, so that a lack of
        memory shows at once.
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
    texts: Iterable[str | Marked],
    seeds: Iterable[int] | None = None,
    limits: BatchLimits = BatchLimits(),
) -> Iterator[tuple[int, Utterance | InputError]]:
    """Speaks texts as Speaker.speak_many does, and yields each as soon as it is done.

    The shortest come first, so that the first results are there early. Memory is bounded: texts
    are taken in groups that fill a few batches.

    Args:
        speaker: a nanospeech.Speaker.
        texts: what to say; of nanospeech.text.markup.read_markup if it has markup.
        seeds: one for each text; None is the speaker's own for all.
        limits: of a batch.

    Yields:
        the index of a text, and its utterance or error; in no particular order.

    Raises:
        InputError: seeds that do not fit the texts.
    """
    if seeds is not None:
        texts, seeds = list(texts), [whole("a seed", seed) for seed in seeds]
        if len(seeds) != len(texts) or any(seed < 0 for seed in seeds):
            raise InputError(
                f"seeds are {len(seeds)}, from {min(seeds, default=0)}; give one for each of the"
                f" {len(texts)} texts, 0 or more"
            )
    left, voices = enumerate(texts), {}
    while window := dict(islice(left, WINDOW * limits.items)):
        own = {i: whole("seed", speaker.seed) if seeds is None else seeds[i] for i in window}
        chunk_bytes = speaker.prompt.rate * speaker.chunk_seconds
        for group in groups(window, chunk_bytes, limits):
            texts_of = {i: window[i] for i in group}
            yield from _speak_group(speaker, texts_of, own, limits, voices)


def groups(texts: Mapping[int, Any], chunk_bytes: float, limits: BatchLimits) -> list[list[int]]:
    """Divides texts into groups that are spoken one after another, the shortest texts first.

    Batches take chunks of one group only. A group fills a few batches, except the first ones, which
    are small so that the first results are there early.

    Args:
        texts: by key.
        chunk_bytes: approximate size of the largest chunk.
        limits: of a batch.

    Returns:
        the keys of each group's texts.
    """
    found: list[list[int]] = []
    room, most = 0.0, limits.items * FIRST_GROUP
    for index in sorted(texts, key=lambda i: text_bytes(texts[i])):
        if room <= 0:
            found.append([])
            room, most = most, min(2 * most, limits.items * LAST_GROUP)
        found[-1].append(index)
        room -= 1 + text_bytes(texts[index]) // chunk_bytes
    return found


def effort(speaker: Any, text: Any) -> int:
    """About how long a text takes to speak, in bytes of text; 0 of what is none.

    The model goes through the prompt again with each chunk, so a word takes more than its share.
    """
    prompt, size = speaker.prompt, text_bytes(text)
    again = prompt.rate * len(prompt.mel) / speaker.engine.config.audio.frame_rate
    count = 1 + size // (prompt.rate * speaker.chunk_seconds)
    return round(size + count * again) if size else 0


def text_bytes(text: Any) -> int:
    """The length of a text in bytes; 0 for anything else."""
    return byte_length(spoken_text(text)) if isinstance(text, (str, Marked)) else 0


class Planned(NamedTuple):
    """A chunk, who speaks it, and where it stands in its text.

    Attributes:
        who: the speaker, or one of a style of markup.
        chunk: what is spoken.
        first: whether its text begins with it.
        last: whether its text ends with it.
    """

    who: Any
    chunk: Chunk
    first: bool
    last: bool


class Spoken(NamedTuple):
    """A chunk as speech: its wave, its mel as it was made (empty if it was aligned), its pauses."""

    wave: np.ndarray
    mel: np.ndarray
    paced: Paced


def _speak_group(
    speaker: Any,
    texts: dict[int, Any],
    seeds: dict[int, int],
    limits: BatchLimits,
    voices: dict[str, Any],
) -> Iterator[tuple[int, Utterance | InputError]]:
    """Speaks the texts of one group."""
    planned: dict[int, list[Planned]] = {}
    for index, text in texts.items():
        try:
            planned[index] = plan(speaker, text, seeds[index], voices)
        except InputError as e:
            yield index, e
    spoken: dict[int, dict[int, Spoken]] = defaultdict(dict)
    spent: dict[int, float] = defaultdict(float)
    for places in _batches_by_voice(planned, limits):
        began = time.perf_counter()
        batch = [planned[index][place] for index, place in places]
        done = _speak_batch(batch)
        elapsed = time.perf_counter() - began
        frames = [_frames(one) for one in batch]
        for (index, place), own, result in zip(places, frames, done):
            spoken[index][place] = result
            spent[index] += elapsed * own / sum(frames)
            if len(spoken[index]) == len(planned[index]):
                chunks = [one.chunk for one in planned[index]]
                yield index, _utterance(speaker, chunks, spoken.pop(index), spent[index])


def _frames(planned: Planned) -> int:
    """Mel frames of a chunk behind its prompt."""
    return len(planned.who.prompt.mel) + planned.chunk.frames


def _batches_by_voice(
    planned: Mapping[int, Sequence[Planned]], limits: BatchLimits
) -> Iterator[list[tuple[int, int]]]:
    """The chunks of texts, as text and place in it, in batches of one voice each."""
    voices: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for index, chunks in planned.items():
        for place, one in enumerate(chunks):
            voices[id(one.who.prompt)].append((index, place))
    for items in voices.values():
        frames = [_frames(planned[index][place]) for index, place in items]
        for batch in batches(frames, limits):
            yield [items[i] for i in batch]


def plan(speaker: Any, text: Any, seed: int, voices: dict[str, Any]) -> list[Planned]:
    """The chunks of a text. Durations are predicted one by one, so they equal those of speak().

    Args:
        speaker: of the text.
        text: a string or of read_markup.
        seed: of its first chunk.
        voices: speakers of the voices that markup names, see marked.directed.

    Raises:
        InputError: the text cannot be spoken.
    """
    spoken_text(text)  # an error of its own where it is none
    own = directed(speaker, text, voices)
    parts, found = own.parts(text), []
    for i, part in enumerate(parts):
        who = own.casts.get(part.style, own)
        chunk = who.part_chunk(part, seed + i)
        found.append(Planned(who, chunk, i == 0, i == len(parts) - 1))
    return found


def _speak_batch(batch: Sequence[Planned]) -> list[Spoken]:
    """Chunks of one voice as speech."""
    who, chunks = batch[0].who, [one.chunk for one in batch]
    engine = who.engine
    mels = speech.sample(engine, who.prompt, chunks, who.options)
    paced = [
        set_pauses(engine, mel, one.chunk, who.output, one.first) for mel, one in zip(mels, batch)
    ]
    waves = speech.vocode(engine, who.prompt, [p.mel for p in paced])
    engine.clear_cache()
    hop = engine.config.audio.hop_length
    waves = [w[: p.samples(hop)] if one.last else w for w, p, one in zip(waves, paced, batch)]
    return [
        Spoken(np.concatenate(list(p.padded([w]))), mel if p.ends is None else mel[:0], p)
        for w, mel, p in zip(waves, mels, paced)
    ]


def _utterance(
    speaker: Any, chunks: list[Chunk], spoken: dict[int, Spoken], elapsed: float
) -> Utterance:
    texts = tuple(chunk.text for chunk in chunks)
    rate, timeline = speaker.sample_rate, speaker.timeline()
    for i, chunk in enumerate(chunks):
        timeline.add(spoken[i].mel, chunk, spoken[i].paced, i)
        timeline.joined(len(spoken[i].wave))
    joined = speech.join([spoken[i].wave for i in range(len(chunks))], rate)
    wave = np.concatenate(list(speaker.level([joined])))
    words = timeline.take(len(wave), last=True) if speaker.aligner is not None else None
    return Utterance(wave, rate, elapsed, chunks[0].seed, texts, words)


@contextmanager
def length_bar(lengths: Sequence[int], unit: str, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr whose estimate goes by the effort of texts.

    Args:
        lengths: of each text, its effort().
        unit: what to call a text.
        shown: whether there is a bar.

    Yields:
        a function to call with the index of each finished text.
    """
    from tqdm import tqdm

    shape = "{percentage:3.0f}% of the work|{bar}| {postfix}[{elapsed}<{remaining}]"
    count = 0
    with tqdm(
        total=sum(lengths),
        disable=not shown,
        leave=False,
        smoothing=0,
        mininterval=0,
        bar_format=shape,
    ) as bar:

        def done(index: int) -> None:
            nonlocal count
            count += 1
            bar.set_postfix_str(f"{count}/{len(lengths)} {unit}s ", refresh=False)
            bar.update(lengths[index])

        yield done


@contextmanager
def step_bar(shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar of solver steps on stderr; gives what stream() takes as on_step."""
    from tqdm import tqdm

    with tqdm(unit="step", disable=not shown, leave=False) as bar:

        def on_step(done: int, steps: int) -> None:
            bar.total = steps
            bar.update(done - bar.n)

        yield on_step
