"""Joining: kept passages to a chapter, with the pauses that are due; one passage in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.output import OutputOptions
from nanospeech.speech.chunks import Word

from .work import Work

HEAD, TAIL = 0.05, 0.12  # seconds of a passage's own silence that are kept before and after it
BEFORE, AFTER = 0.5, 1.5  # seconds of silence at a chapter's ends
WITHIN = 0.06  # between two passages of one clause, whose voices differ
FADE = 0.005  # seconds


@dataclass(frozen=True)
class Placed:
    """A passage in its chapter, in samples.

    Attributes:
        key: of its files.
        start: in the chapter.
        low: first sample of its own that is taken.
        high: behind the last one.
    """

    key: str
    start: int
    low: int
    high: int


@dataclass(frozen=True)
class Chapter:
    """A chapter's passages and its length in samples."""

    placed: tuple[Placed, ...]
    samples: int


def lay_out(
    keys: Sequence[str],
    afters: Sequence[str | float],
    work: Work,
    output: OutputOptions,
    speed: float,
    before: float = 0.0,
) -> Chapter:
    """Places passages one after another; reads what is known of them, and no speech.

    Args:
        keys: of the passages.
        afters: kinds of the pauses behind them, or seconds; the last one is the chapter's end, at
            which seconds alone count.
        work: where they are.
        output: lengths of pauses; one that is off gets the usual length.
        speed: by which pauses are divided, but for those in seconds.
        before: seconds of silence that the chapter asks to begin with.
    """
    rate, usual = work.rate, OutputOptions()
    at, placed, tail = round(max(BEFORE, before) * rate), [], 0
    for index, key in enumerate(keys):
        facts = work.facts(key)
        low = max(0, facts["start"] - round(HEAD * rate))
        high = min(facts["samples"], facts["stop"] + round(TAIL * rate))
        if index:
            kind = afters[index - 1]
            if isinstance(kind, str):
                asked = output.pause(kind) if kind else WITHIN
                seconds = ((usual.pause(kind) or 0.0) if asked is None else asked) / speed
            else:
                seconds = kind
            wanted, own = round(seconds * rate), tail + facts["start"] - low
            if own > wanted:  # of what both passages have, each loses its share
                low = facts["start"] - (facts["start"] - low) * wanted // own
                cut = tail - tail * wanted // own
                placed[-1] = replace(placed[-1], high=placed[-1].high - cut)
                at -= cut
            at += max(0, wanted - own)
        placed.append(Placed(key, at, low, high))
        at, tail = at + high - low, high - facts["stop"]
    end = 0.0 if not afters or isinstance(afters[-1], str) else afters[-1]
    return Chapter(tuple(placed), at + max(round(AFTER * rate), round(end * rate) - tail))


def chapter_waves(chapter: Chapter, work: Work) -> Iterator[np.ndarray]:
    """A chapter's samples in order: float32 pieces, `chapter.samples` of them in all.

    Raises:
        InputError: a passage is damaged.
    """
    at, fade = 0, round(FADE * work.rate)
    for placed in chapter.placed:
        yield np.zeros(placed.start - at, np.float32)
        wave = work.wave(placed.key)[placed.low : placed.high]
        yield audio.fade_edges(wave, fade)
        at = placed.start + len(wave)
    yield np.zeros(chapter.samples - at, np.float32)


def heard_words(chapters: Sequence[Chapter], work: Work) -> list[Word]:
    """The words of chapters that follow each other, as written, and when they are heard.

    Args:
        chapters: of lay_out.
        work: where their passages are.
    """
    found: list[Word] = []
    begins, chunk, place = 0, 0, 0
    for chapter in chapters:
        for placed in chapter.placed:
            later = (begins + placed.start - placed.low) / work.rate
            words = [Word(*row) for row in work.facts(placed.key)["words"] or ()]
            found += [
                Word(w.text, w.start + later, w.end + later, w.chunk + chunk, w.place + place)
                for w in words
            ]
            if words:
                chunk = found[-1].chunk + 1
                place = found[-1].place + len(found[-1].text) + 2
        begins += chapter.samples
    return found
