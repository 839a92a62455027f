"""Streaming: low latency by small first chunks and a vocoder that works in pieces; and texts that
are still being written. Needs no array library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeGuard, TypeVar

import numpy as np

from nanospeech.config import VocoderConfig
from nanospeech.engine.codec_streaming import decode_pieces
from nanospeech.release.prompt import Prompt
from nanospeech.text.language import Language
from nanospeech.text.sentences import PARAGRAPH, byte_length, pack, split_clauses, split_sentences

from . import chunks
from .chunks import finish, in_context
from .pauses import Paced

FIRST_SECONDS = 1.2  # about the length of a stream's first chunk
LEAST_SECONDS = 0.6  # shorter clauses are not split from their sentence
GROWTH = 2.0  # ratio of a chunk to the one before it, which plays while this one is generated
KERNEL = 7  # of the vocoder's convolutions
FIRST_PIECE = 48  # frames of a chunk that are decoded first: half a second
LONGEST_PIECE = 1024  # frames that are decoded at once
PORTION = 8192  # characters of a long text that are read before the first of it is spoken

T = TypeVar("T")


class Peekable(Generic[T]):
    """An iterator that can tell whether another item follows; it looks ahead only when asked."""

    def __init__(self, items: Iterable[T]):
        self.items = iter(items)
        self.seen: list[T] = []

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.seen.pop() if self.seen else next(self.items)

    def more(self) -> bool:
        """Whether another item follows; waits for it."""
        if not self.seen:
            self.seen.extend(item for item in [next(self.items, None)] if item is not None)
        return bool(self.seen)


class StepCounter:
    """Solver steps of a text's chunks, whose numbers differ where their voices' networks do.

    Args:
        told: called as told(done, steps) for the text, or None.
        expected: steps of each chunk that is known already.
    """

    def __init__(self, told: Callable[[int, int], None] | None, expected: Sequence[int]):
        self.told, self.expected = told, expected
        self.before = self.own = self.after = 0

    def begin(self, index: int) -> None:
        """Tells that the chunk of a number is next."""
        self.before, self.own = self.before + self.own, 0
        self.after = sum(self.expected[index + 1 :])

    def __call__(self, done: int, steps: int) -> None:
        """Is an engine's on_step: steps done and steps of this chunk."""
        self.own = steps
        if self.told is not None:
            self.told(self.before + done, self.before + steps + self.after)


def budgets(first: float, full: float) -> Iterator[float]:
    """Sizes of chunks, growing from the first to the full one, which is then repeated."""
    while first < full:
        yield first
        first *= GROWTH
    while True:
        yield full


def pack_early(text: str, sizes: Iterator[float], full: float, least: float) -> Iterator[str]:
    """sentences.pack with small first chunks: "".join(pack_early(...)) == text.

    Args:
        text: that is not spoken yet.
        sizes: an iterator of budgets(), shared by the parts of a text.
        full: the budget of later chunks, in bytes.
        least: bytes of the shortest clause that may be a chunk.
    """
    while text:
        budget = next(sizes)
        if budget >= full:
            yield from pack(text, full)
            return
        chunk = first_chunk(text, budget, full, least)
        yield chunk
        text = text[len(chunk) :]


def first_chunk(text: str, budget: float, full: float, least: float) -> str:
    """The complete sentences that fit into a budget, else the clauses that do.

    If none fits, the chunk ends at the first clause or sentence end beyond the budget: a clause is
    split only where pack would split it too.
    """
    whole = pack(text[: round(8 * full)], full)[0]  # only the start of a long text is packed
    sentences = ends(split_sentences(whole))
    clauses = [e for e in ends(split_clauses(whole)) if is_long_enough(whole, e, sentences, least)]
    for choices in (sentences, clauses):
        if fits := [e for e in choices if byte_length(whole[:e]) <= budget]:
            return whole[: fits[-1]]
    return whole[: min(*sentences, *clauses, len(whole))]


def ends(parts: list[str]) -> list[int]:
    """The end of each part in their concatenation."""
    return list(accumulate(map(len, parts)))


def is_long_enough(whole: str, end: int, sentences: list[int], least: float) -> bool:
    """Whether a clause and what it leaves of its sentence are both long enough."""
    after = next((s for s in sentences if s > end), len(whole))
    return byte_length(whole[:end]) >= least and byte_length(whole[end:after]) >= least


def whole_sentences(parts: Iterable[str], language: Language | None = None) -> Iterator[str]:
    """Groups text that arrives in parts into complete sentences; no character is lost.

    A sentence is complete when text follows it, as a mark may go on in the next part ("3." "14").

    Args:
        parts: of a text as written.
        language: of the text.
    """
    held = ""
    for part in parts:
        *done, held = split_sentences(held + part, language) or [""]
        if done:
            yield "".join(done)
    if held:
        yield held


def is_long(text: Any) -> TypeGuard[str]:
    """Whether a text has several portions()."""
    return isinstance(text, str) and len(text) > 2 * PORTION


def portions(text: str, language: Language | None = None, most: int = PORTION) -> Iterator[str]:
    """Cuts a long text into portions that can be read one by one: "".join(portions(t)) == t.

    They have `most` characters or more, up to twice as many. They end with a paragraph where they
    can, else with a sentence, a line or a word.
    """
    at = 0
    while len(text) - at > 2 * most:
        behind = text[at + most : at + 2 * most]
        first, *more = split_sentences(behind, language)
        if paragraph := PARAGRAPH.search(behind):
            cut = paragraph.end()
        elif more:
            cut = len(first)
        else:
            cut = 1 + behind.rfind("\n") or 1 + behind.rfind(" ") or len(behind)
        yield text[at : at + most + cut]
        at += most + cut
    if text[at:]:
        yield text[at:]


def receptive_field(config: VocoderConfig | None) -> int | None:
    """Frames on each side that a sample depends on, or None if it depends on all.

    A convolution of 7 adds three frames on each side; the inverse STFT half of its window. A
    vocoder with griffin_lim_iters integrates phases from the first frame on: its samples depend on
    all frames.
    """
    if config is None or config.griffin_lim_iters:
        return None
    convolutions = config.num_layers + 1
    return convolutions * (KERNEL // 2) + config.n_fft // (2 * config.hop_length)


def vocode(
    engine: Any, mel_NM: np.ndarray, skip: int = 0, first: int = FIRST_PIECE
) -> Iterator[np.ndarray]:
    """Decodes a log mel in pieces, each with the context that its samples depend on.

    Their concatenation is the wave of engine.vocode, up to float32 rounding. If samples depend on
    all frames (griffin_lim_iters), the mel is decoded in one piece.

    Args:
        mel_NM: log mel.
        skip: frames at the start that are context only.
        first: frames of the first piece; each further one is twice as long, up to LONGEST_PIECE.

    Yields:
        float32 waves; (N - 1 - skip) * hop_length samples in all.
    """
    hop, around = engine.config.audio.hop_length, receptive_field(engine.config.vocoder)
    stop, start = len(mel_NM) - 1, skip
    size = max(1, stop - skip) if around is None else first
    while start < stop:
        end = start + size if stop - start > 1.5 * size else stop  # no piece is a scrap
        low = 0 if around is None else max(0, start - around)
        high = len(mel_NM) if around is None else min(len(mel_NM), end + around)
        wave = engine.vocode(mel_NM[None, low:high])[0]
        yield wave[(start - low) * hop : (end - low) * hop]
        start, size = end, min(2 * size, LONGEST_PIECE)


def vocode_chunk(engine: Any, prompt: Prompt, mel: np.ndarray) -> Iterator[np.ndarray]:
    """The wave of chunks.vocode for a chunk's mel, in pieces."""
    whole, skip = in_context(engine, prompt, mel)
    hop, rate = engine.config.audio.hop_length, engine.config.audio.sample_rate
    done, total = 0, (len(mel) - 1) * hop
    pieces, codec = vocode(engine, whole, skip), engine.config.codec
    if codec is not None:
        # a call of the engine for each piece, as it may be used by turns or in a thread of its own
        pieces, total = decode_pieces(engine.decoded, mel, codec), len(mel) * hop
    for wave in pieces:
        begins, done = done == 0, done + len(wave)
        yield finish(wave, prompt, rate, begins, done == total)


def vocode_paced(
    engine: Any, prompt: Prompt, paced: Paced, early: bool, ahead: Peekable[Any]
) -> Iterator[np.ndarray]:
    """A chunk's wave in pieces, with the silence behind it if another chunk follows.

    Args:
        early: decode it in pieces; else at once.
        ahead: the chunks that follow.
    """
    if early:
        pieces = vocode_chunk(engine, prompt, paced.mel)
    else:
        pieces = chunks.vocode(engine, prompt, [paced.mel])
    done, last = 0, paced.samples(engine.config.audio.hop_length)
    for piece in pieces:
        cut, done = last - done, done + len(piece)
        if not 0 <= cut < len(piece):
            yield piece
            continue
        if cut:
            yield piece[:cut]
        if not ahead.more():  # which is asked late: it may still be written
            break
        yield piece[cut:]
    engine.clear_cache()
