"""Pauses: sets the silences in a chunk's mel to the lengths that its text asks for.

The alignment of an aligned model gives the frames of each punctuation mark; quiet frames there are
repeated or removed. So the background noise stays the recording's own, and pauses do not depend on
streaming or batching. For models that are not aligned only the pauses between chunks are set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from nanospeech.audio.mel import CLAMP
from nanospeech.output import OutputOptions
from nanospeech.text.pauses import pauses_within
from nanospeech.text.places import encode_places
from nanospeech.text.tags import has_tag
from nanospeech.text.tokenizer import BYTES, Tokenizer
from nanospeech.text.traced import Traced

from .chunks import CROSS_FADE, Chunk, Mark
from .durations import model_speed

QUIET = 35.0  # dB below a chunk's loud frames from which a frame is quiet
SHALLOW = 20.0  # dB below them that a pause has at least, in a noisy voice too
FLOOR = 6.0  # dB above its quietest frame that a pause of a noisy voice reaches
LOUD = 95  # percentile of a chunk's frames that counts as loud
SLACK = 4  # frames around those of a mark in which its pause may begin and end
LEAD = 0.05  # seconds of silence before a chunk
TAIL = 0.12  # after the last one
WITHIN = 0.06  # between two chunks of one clause
DEPTH = 2.0  # nepers, 17 dB, by which a recording's noise is lowered within pauses
CALM = 6  # quiet frames that are repeated to make a pause longer
SLOPE = 2  # frames next to a sound over which it is lowered


class Span(NamedTuple):
    """Frames of a mel, how many they became, and their kind: one of _spread's, or "sound"."""

    start: int
    stop: int
    count: int
    kind: str


@dataclass(frozen=True)
class Paced:
    """A chunk's mel with its pauses.

    Attributes:
        mel: float32 (N, M), the silence before the next chunk included.
        last: frames of it that are wanted if no chunk follows.
        spans: of the mel that it was made from, in order.
        ends: int64 (T,), behind the last frame of each token of an aligned model's chunk, in the
            mel that it was made from; else None.
        silence: samples of silence to put before and after its wave; for latents and lengths that
            are asked for, in which no pause can be set.
    """

    mel: np.ndarray
    last: int
    spans: tuple[Span, ...] = ()
    ends: np.ndarray | None = None
    silence: tuple[int, int] = (0, 0)

    def padded(self, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The pieces of its wave, with the silence around them."""
        before, after = (np.zeros(count, np.float32) for count in self.silence)
        return (p for p in chain([before], pieces, [after]) if len(p))

    def samples(self, hop: int) -> int:
        """Samples of its wave that are wanted if no chunk follows."""
        return (self.last - 1) * hop

    def place(self, frame: float, begins: bool) -> float:
        """Where a frame of the mel that it was made from is now.

        Args:
            frame: an edge of a sound.
            begins: whether the sound begins there; within a pause it does at the pause's end.
        """
        at = 0
        for span in self.spans:
            inside = frame < span.stop or (frame == span.stop and not begins)
            if inside and span.kind == "sound":
                share = (frame - span.start) / max(span.stop - span.start, 1)
                return at + span.count * share
            if inside:
                return at + span.count if begins else at
            at += span.count
        return at


def find_marks(
    text: str,
    tokens: np.ndarray,
    before: int,
    tokenizer: Tokenizer,
    larger: Mapping[int, str] | None = None,
) -> tuple[Mark, ...]:
    """The tokens at which pauses are due. What a tag stands beside is as long as the tag makes it.

    Args:
        text: as the model reads it.
        tokens: ids of the chunk.
        before: number of tokens before those of the text.
        larger: pauses that replace those of pauses_within: kinds by place in the text.
    """
    marks, (_, middles) = [], encode_places(Traced.of(text), tokenizer)
    for place, kind in sorted({**pauses_within(text), **(larger or {})}.items()):
        start = stop = before + int(np.searchsorted(middles, place))
        while start > 0 and not sounds(tokens[start - 1], tokenizer):
            start -= 1
        while stop < len(tokens) and not sounds(tokens[stop], tokenizer):
            stop += 1
        around = tokens[[start - 1, stop]] if 0 < start < stop < len(tokens) else []
        if len(around) and not has_tag(around, tokenizer.vocab):
            marks.append(Mark(start, stop, kind))
    return tuple(marks)


def sounds(token: int, tokenizer: Tokenizer) -> bool:
    """Whether a token is no mark and no space."""
    if tokenizer.kind == "pieces":  # parts of words, most of them
        return True
    if tokenizer.kind in BYTES:
        return token >= 128 or chr(token).isalnum()
    return any(c.isalnum() for c in tokenizer.vocab[token])


def levels(mel_NM: np.ndarray) -> np.ndarray:
    """Each frame's power in dB, relative to an arbitrary reference: float64 (N,)."""
    return 10 / np.log(10) * np.log(np.exp(2 * mel_NM.astype(np.float64)).sum(1))


def set_pauses(
    engine: Any, mel_NM: np.ndarray, chunk: Chunk, output: OutputOptions, first: bool
) -> Paced:
    """Sets the pauses within a chunk's mel, and those to the chunks before and after it.

    Args:
        engine: that made the mel.
        mel_NM: float32 log mel of new speech alone.
        chunk: of the mel; one without a speed is left unchanged.
        first: whether it is the first chunk.
    """
    speed = chunk.speed
    around = chunk.before, chunk.after if isinstance(chunk.after, float) else 0.0
    before, after = (round(s * engine.config.audio.sample_rate) for s in around)
    if engine.config.echo:  # latents as they are, whose last one has samples too
        whole = Span(0, len(mel_NM), len(mel_NM), "sound")
        return Paced(mel_NM, len(mel_NM) + 1, (whole,), silence=(before, after))
    aligned = engine.config.dit.text_upsampling == "aligned" and (chunk.marks or chunk.words)
    ends = np.cumsum(engine.align(mel_NM, chunk.tokens)) if aligned and len(mel_NM) else None
    if speed is None or not len(mel_NM):
        count = len(mel_NM) if chunk.asked is None else chunk.asked
        whole = Span(0, len(mel_NM), count, "sound")
        if count != len(mel_NM):
            mel_NM = _at(mel_NM, _sped(0, len(mel_NM), len(mel_NM) / count))
        return Paced(mel_NM, count, (whole,), ends, (before, after))
    level, rate = levels(mel_NM), engine.config.audio.frame_rate
    loud = float(np.percentile(level, LOUD))
    quiet = level < loud - QUIET
    edges = np.flatnonzero(~quiet)
    begin, end = int(edges[0]), int(edges[-1]) + 1

    def frames(kind: str | float) -> int | None:
        if not isinstance(kind, str):
            return round(kind * rate)
        seconds = output.pause(kind)
        return None if seconds is None else round(seconds / speed * rate)

    lead = _spread(0, begin, round((chunk.before or LEAD) * rate), level, "before")
    if first and not chunk.before and begin < len(lead):
        lead = np.arange(begin)
    parts: list[tuple[np.ndarray, str]] = [(lead, "before")]
    stops = [begin]
    at, factor = begin, speed / model_speed(speed)
    for start, stop, wanted in _runs(ends, chunk, level, loud, frames):
        if begin < start and stop <= end:
            parts += [
                (_sped(at, start, factor), "sound"),
                (_spread(start, stop, wanted, level, "between"), "between"),
            ]
            stops += [start, stop]
            at = stop
    parts.append((_sped(at, end, factor), "sound"))
    spoken = sum(len(places) for places, _ in parts)
    wanted, tail = (
        frames(chunk.after) if chunk.after != "" else round(WITHIN * rate),
        len(mel_NM) - end,
    )
    if wanted is not None:
        # the chunk's last frame makes no samples, and the cross-fade takes its share
        tail = max(1, wanted - round(LEAD * rate) + round(CROSS_FADE * rate) + 1)
    parts.append((_spread(end, len(mel_NM), tail, level, "after"), "after"))
    mel = np.concatenate([_quietened(_at(mel_NM, places), kind) for places, kind in parts])
    stops += [end, len(mel_NM)]
    spans = [
        Span(start, stop, len(places), kind)
        for start, stop, (places, kind) in zip([0, *stops], stops, parts)
    ]
    last = spoken + min(tail, len(mel_NM) - end, round(TAIL * rate))
    if not isinstance(chunk.after, str):  # a pause that was asked for is kept at the end too
        last = spoken + tail
    return Paced(mel, last, tuple(spans), ends)


def _quietened(mel_NM: np.ndarray, kind: str) -> np.ndarray:
    """Lowers the noise of a pause before, between or after sounds; leaves a sound unchanged.

    Next to a sound the level changes over SLOPE frames; at the ends of a chunk it stays low.
    """
    if kind == "sound":
        return mel_NM
    i = np.arange(len(mel_NM)) / SLOPE
    fall = i if kind != "before" else np.inf
    rise = i[::-1] if kind != "after" else np.inf
    depth = DEPTH * np.minimum(1, np.minimum(fall, rise)) * np.ones(len(mel_NM))
    return np.maximum(mel_NM - depth[:, None], np.log(CLAMP)).astype(np.float32)


def _runs(
    ends: np.ndarray | None, chunk: Chunk, level: np.ndarray, loud: float, frames: Any
) -> list[tuple[int, int, int]]:
    """The quiet frames at each mark, in order: start, stop and the wanted number of frames."""
    if ends is None:
        return []
    runs: list[tuple[int, int, int]] = []
    for mark in chunk.marks:
        if (wanted := frames(mark.kind)) is None:
            continue
        low = min(max(0, int(ends[mark.start - 1]) - SLACK), len(level) - 1)
        high = int(ends[mark.stop - 1]) + SLACK
        start = stop = low + int(np.argmin(level[low:high]))
        least = max(loud - QUIET, min(level[start] + FLOOR, loud - SHALLOW))
        while level[start] < least and start > 0 and level[start - 1] < least:
            start -= 1
        while stop < len(level) and level[stop] < least:
            stop += 1
        if start == stop and mark.kind == "clause":  # read on without a breath
            continue
        if runs and start <= runs[-1][1]:  # one silence for two marks
            before = runs.pop()
            start, stop, wanted = before[0], max(stop, before[1]), max(wanted, before[2])
        runs.append((start, stop, wanted))
    return runs


def _sped(start: int, stop: int, factor: float) -> np.ndarray:
    """Places of frames, from start to stop, that play `factor` times as fast."""
    count = round((stop - start) / factor)
    places = start + (np.arange(count) + 0.5) * factor - 0.5
    return np.clip(places, start, max(start, stop - 1))


def _at(mel_NM: np.ndarray, places: np.ndarray) -> np.ndarray:
    """A mel at places between its frames, by linear interpolation: float32 (len(places), M)."""
    low = np.floor(places).astype(np.int64)
    share = (places - low).astype(np.float32)[:, None]
    high = np.minimum(low + 1, len(mel_NM) - 1)
    return np.where(share > 0, mel_NM[low] * (1 - share) + mel_NM[high] * share, mel_NM[low])


def _spread(start: int, stop: int, count: int, level: np.ndarray, kind: str) -> np.ndarray:
    """As many frames of a pause as are wanted, of those from start to stop.

    Too many go from the middle of a pause between sounds, so that they die away and begin as they
    did, and from a chunk's edge. Too few are made up for by the quietest frames, back and forth.

    Args:
        level: of all frames; where there is none from start to stop, the quietest is repeated.
        kind: "before", "between" or "after" sounds.
    """
    have = stop - start
    if not have:
        return np.full(count, int(np.argmin(level)))
    if have >= count:
        head = {"before": 0, "between": -(-count * 3 // 5), "after": count}[kind]
        return np.r_[start : start + head, stop - (count - head) : stop]
    width = min(CALM, have)
    loudest = np.lib.stride_tricks.sliding_window_view(level[start:stop], width).max(1)
    calm = start + int(np.argmin(loudest)) + np.arange(width)
    left, right = np.arange(start, calm[-1] + 1), np.arange(calm[-1] + 1, stop)
    if kind == "before":  # what is beyond the calm may be a breath
        left, right = left[:0], np.arange(calm[0], stop)
    elif kind == "after":
        right = right[:0]
    more = np.resize(np.concatenate([calm[::-1], calm]), count - len(left) - len(right))
    return np.concatenate([left, more, right])
