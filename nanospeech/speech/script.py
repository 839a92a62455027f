"""Script: a text cut into what is spoken at once, each part with its words as written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nanospeech.arguments import number, whole
from nanospeech.errors import InputError
from nanospeech.text.headings import ending
from nanospeech.text.left_out import LeftOut
from nanospeech.text.markup import Marked, Span, Style
from nanospeech.text.other_language import OtherLanguage
from nanospeech.text.pauses import pause_after
from nanospeech.text.sentences import check_unicode, fold, front_end, is_speakable, legible, prepare
from nanospeech.text.tags import check_tags, hide, show
from nanospeech.text.tokenizer import Tokenizer
from nanospeech.text.traced import Traced, joined
from nanospeech.text.written import Written, written_words

from .streaming import LEAST_SECONDS, Peekable, pack_early, portions

SPEEDS = (0.25, 4.0)
MAX_SECONDS = 3600.0  # longest speech that --duration accepts


def check_speech(
    text: str | None, speed: float, seed: int | None, seconds: float | None = None
) -> None:
    """Checks arguments before any model is loaded.

    Raises:
        InputError: there is no text, or speed, seed or length are no numbers or out of range.
    """
    if text is not None:
        check_unicode(text)
    if text is not None and not any(is_speakable(fold(part)) for part in portions(text)):
        raise InputError(f"there is no text to speak in {text[:40]!r}")
    if not SPEEDS[0] <= number("speed", speed) <= SPEEDS[1]:
        raise InputError(f"speed is {speed}; choose {SPEEDS[0]:g} to {SPEEDS[1]:g}")
    if seed is not None and whole("seed", seed) < 0:
        raise InputError(f"seed is {seed}; choose 0 or more")
    if seconds is not None and not 0 < number("seconds", seconds) <= MAX_SECONDS:
        raise InputError(f"duration is {seconds} s; choose more than 0, up to {MAX_SECONDS:g}")


class Part(NamedTuple):
    """A chunk to be.

    Attributes:
        text: as the model reads it.
        after: the pause behind it: a kind, or seconds.
        words: as written, by their places in the text.
        style: how it is spoken.
        before: seconds of silence before it, if it is the first.
    """

    text: str
    after: str | float
    words: tuple[Written, ...] = ()
    style: Style = Style()
    before: float = 0.0


def asked_silence(parts: Sequence[Part], seconds: float) -> float:
    """Seconds of the pauses between parts whose length is given, within a wanted length.

    Raises:
        InputError: they leave nothing of it to speak in.
    """
    pauses = [part.after for part in parts if isinstance(part.after, float)]
    silence = sum(pauses) + (parts[0].before if parts else 0.0)
    if silence >= seconds:
        raise InputError(
            f"the pauses of the text last {silence:g} s of the {seconds:g} s that are asked for;"
            " ask for more, or shorten them"
        )
    return silence


def parts(
    texts: Iterable[str | Span],
    tokenizer: Tokenizer,
    sizes: Iterator[float],
    full: float,
    rate: float,
    left_out: LeftOut | None = None,
) -> Iterator[Part]:
    """The chunks of a text that comes in parts.

    Args:
        texts: its parts, of whole sentences; or the spans of a text with markup.
        tokenizer: of the model that speaks.
        sizes: of streaming.budgets.
        full: the budget of later chunks, in bytes.
        rate: bytes a second.
        left_out: is told what the model cannot read.
    """
    place, before = 0, 0.0
    left_out = LeftOut() if left_out is None else left_out
    other = OtherLanguage(front_end(tokenizer).code)
    held: list[Written] = []  # words without a sound that came in a text without any
    last: Part | None = None  # of a span, which waits for such words behind it
    for text in texts:
        span = text if isinstance(text, Span) else plain(text, place)
        check_tags(span.said.text, tokenizer.kind, tokenizer.ids)
        other.add(span.written.text)
        said = legible(span.said, tokenizer, left_out)
        words = written_words(span.written.text, said, lambda word: prepare(word, tokenizer))
        words = [replace(w, place=int(span.written.starts[w.place])) for w in words]
        place, before = place + len(span.written), before + span.before
        hidden, tags = hide(Traced.of(said.text), tokenizer.tags)  # which are never cut
        whole = joined([hidden, Traced.of(ending(span.written.text), len(said))])
        chunks, at = [], 0
        for packed in pack_early(whole.text, sizes, full, rate * LEAST_SECONDS):
            chunk = show(whole[at : at + len(packed)], tags)
            at += len(packed)
            if is_speakable(chunk.text):
                chunks.append(chunk)
        words = [*(replace(word, start=0, stop=0) for word in held), *words]
        lines = [chunk.in_one_line() for chunk in chunks]
        for chunk, line, own in zip(chunks, lines, share(words, lines)):
            after = pause_after(chunk.text)
            if line is lines[-1] and span.after is not None:
                after = span.after
            if last is not None:
                yield last
            last, before = Part(line.text, after, own, span.style, before), 0.0
        held = [] if chunks else words
        if last is not None and span is not text:  # what follows may not be written yet
            yield last
            last = None
    if last is not None:
        end = len(last.text)
        yield last._replace(words=(*last.words, *(replace(w, start=end, stop=end) for w in held)))


def some(found: Iterator[Part], said: str = "", left_out: LeftOut | None = None) -> Iterator[Part]:
    """The parts of a text, the first of which is made now.

    Args:
        found: of parts().
        said: the text, for the message.
        left_out: what the model could not read of it, where the text is not known as a whole.

    Raises:
        InputError: there is none.
    """
    ahead = Peekable(found)
    if ahead.more():
        return ahead
    said = said or " ".join(left_out.words if left_out else ())
    if is_speakable(fold(said)):
        raise InputError(f"the model knows no character of {said[:40]!r}")
    raise InputError("there is no text to speak")


def spoken_text(text: str | Marked) -> str:
    """A text without its markup.

    Raises:
        InputError: it is no text.
    """
    if isinstance(text, Marked):
        return text.text
    if not isinstance(text, str):
        raise InputError(f"a text should be a string, got {type(text).__name__}")
    return text


def plain(text: str, place: int) -> Span:
    """A text without markup."""
    return Span(Traced.of(text, place), Traced.of(text))


def share(words: list[Written], lines: list[Traced]) -> Iterator[tuple[Written, ...]]:
    """The words of each line, with their places in it; a word that is cut is in both lines.

    Args:
        words: by their places in the text that the lines are of.
        lines: at least one letter each. The last takes all words that are left.
    """
    first = 0
    for line, following in zip(lines, [*lines[1:], None]):
        limit = np.inf if following is None else int(following.starts[0])
        stop = first
        while stop < len(words) and words[stop].start < limit:
            stop += 1
        yield tuple(within(word, line, limit) for word in words[first:stop])
        first = stop - 1 if stop > first and words[stop - 1].stop > limit else stop


def within(word: Written, line: Traced, limit: float) -> Written:
    """A word by its place in a line."""
    start = int(np.searchsorted(line.starts, word.start, "left"))
    stop = int(np.searchsorted(line.stops, word.stop, "right"))
    whole = word.stop <= limit
    return replace(word, start=start, stop=max(start, stop), whole=whole)
