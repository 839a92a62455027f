"""Passages: a chapter's text cut into what is spoken, kept and found again one by one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.text.headings import LONGEST
from nanospeech.text.markup import MARKUP, Marked, Span, read_markup
from nanospeech.text.pauses import pause_after
from nanospeech.text.sentences import byte_length, is_speakable, pack, prepare
from nanospeech.text.traced import Traced

LAYOUT = 1  # of the files that are kept; a change here makes all passages anew
BUDGET = 600  # bytes of a passage: about 40 seconds of English
MOST = 900  # bytes of a paragraph that is not cut
STACKED = 4  # headings that may follow each other; more short lines are a list, or verse
BLANK = re.compile(r"\n[^\S\n]*\n\s*")
EDGE = 1 << 20  # bytes at both ends of a file of weights that stand for it


@dataclass(frozen=True)
class Passage:
    """A few paragraphs, or a part of a long one.

    Attributes:
        text: what to say, without markup.
        after: kind of the pause behind it, of output.PAUSES, or its seconds; "" within a clause.
        voice: its name; "" for the book's.
        marked: the same text with its markup; None where it has none.
        before: seconds of silence before it; only at a chapter's beginning.
    """

    text: str
    after: str | float
    voice: str = ""
    marked: Marked | None = None
    before: float = 0.0

    @property
    def content(self) -> str | list[Any]:
        """What its speech depends on, for key()."""
        if self.marked is None:
            return self.text
        spans = [[s.said.text, s.style.rate, s.after] for s in self.marked.spans]
        said = "".join(text for text, *_ in spans)
        sounds = self.marked.phonemes.items()
        return [*spans, {word: how for word, how in sounds if word in said}]


Cut = tuple[int, int, str | float]  # a passage's characters in a text, and the pause behind it


def cut_passages(
    text: str,
    budget: int = BUDGET,
    most: int = MOST,
    markup: bool = True,
    check: Callable[[str], object] | None = None,
) -> list[Passage]:
    """Cuts a chapter between paragraphs; a paragraph of more than `most` bytes between sentences.

    A heading stays with what follows it. Passages without a letter or a digit are left out. What
    stands between [voice: NAME] and [/voice] is a passage of that voice.

    Args:
        markup: whether there is any; else all brackets are text.
        check: is called with the name of each voice, and raises InputError where there is none.

    Raises:
        InputError: markup that is wrong, such as a voice that is not closed, with its place.
    """
    if markup:
        whole = read_markup(text, lenient=True, check=check)
    else:
        whole = plain_marked(MARKUP.sub(lambda m: m[0].removeprefix("\\"), text))
    found: list[Passage] = []
    for voice, group in groupby(whole.spans, lambda span: span.style.voice):
        spans = list(group)
        said = "".join(span.written.text for span in spans)
        last = spans[-1].after
        last = pause_after(BLANK.sub("\n\n", said)) if last is None else last
        for start, stop, after in own_passages(said, last, budget, most):
            parts, more = part_of(spans, start, stop)
            after = after if more is None else more
            lines = between([said[a:b] for a, b in blocks(said, start, stop)])
            marked = Marked(tuple(parts), whole.phonemes) if any(map(is_marked, parts)) else None
            found.append(Passage(lines, after, voice or "", marked))
    if found:  # the chapter begins and ends
        found[0] = dataclasses.replace(found[0], before=whole.spans[0].before)
        if isinstance(found[-1].after, str):
            found[-1] = dataclasses.replace(found[-1], after="paragraph")
    return found


def plain_marked(text: str) -> Marked:
    """A text in which nothing is markup."""
    return Marked((Span(Traced.of(text), Traced.of(text)),), {})


def is_marked(span: Span) -> bool:
    """Whether a span is spoken in another way than its text alone would be."""
    return span.style.rate != 1 or span.after is not None or span.said.text != span.written.text


def part_of(spans: Sequence[Span], start: int, stop: int) -> tuple[list[Span], float | str | None]:
    """The spans of a passage, and the pause that is asked for at its end.

    Args:
        spans: of one voice.
        start: of the passage in their text as written.
        stop: behind its last character, which is no space.
    """
    found, at, after = [], 0, None
    for span in spans:
        low, high = max(start - at, 0), min(stop - at, len(span.written))
        at += len(span.written)
        if low >= high:
            continue
        ended = not span.written.text[high:].strip()
        after = span.after if ended and at >= stop else None
        style = span.style._replace(voice=None)
        pause = span.after if ended and at < stop else None
        found.append(Span(*sliced(span, low, high), style, pause))
    return found, after


def sliced(span: Span, start: int, stop: int) -> tuple[Traced, Traced]:
    """A part of a span: as written, and what is said for it."""
    low, high = np.searchsorted(span.said.starts, [start, stop])
    part = span.said[low:high]
    ends = np.minimum(part.stops, stop) - start
    return span.written[start:stop], Traced(part.text, part.starts - start, ends)


def blocks(text: str, start: int = 0, stop: int | None = None) -> list[tuple[int, int]]:
    """The paragraphs of a part of a text, without the spaces around them."""
    stop = len(text) if stop is None else stop
    edges = [start, *(e for m in BLANK.finditer(text, start, stop) for e in m.span()), stop]
    found = []
    for low, high in zip(edges[::2], edges[1::2]):
        said = text[low:high].strip()
        if said:
            low = text.index(said[0], low)
            found.append((low, low + len(said)))
    return found


def own_passages(text: str, last: str | float, budget: int, most: int) -> list[Cut]:
    """Where cut_passages cuts a text of one voice, with the pause that is due behind it."""
    found: list[Cut] = []
    held: list[tuple[int, int]] = []

    def size(ranges: list[tuple[int, int]]) -> int:
        return byte_length(between([text[a:b] for a, b in ranges]))

    for start, stop in blocks(text):
        if held and size(held) + size([(start, stop)]) > budget:
            count = len(held) - headings([text[a:b] for a, b in held])
            if count:
                found.append((held[0][0], held[count - 1][1], "paragraph"))
            held = held[count:]
        block = text[start:stop]
        parts = pack(block, budget) if byte_length(block) > most else [block]
        for part in parts[:-1]:
            stop = start + len(part)
            begin = held[0][0] if held else start
            found.append((begin, begin + len(text[begin:stop].rstrip()), pause_after(part)))
            held, start = [], stop
        start += len(parts[-1]) - len(parts[-1].lstrip())
        held.append((start, start + len(parts[-1].strip())))
    if held:
        found.append((held[0][0], held[-1][1], last))
    return [cut for cut in found if is_speakable(text[cut[0] : cut[1]])]


def between(paragraphs: list[str]) -> str:
    """Paragraphs with blank lines between them."""
    return "\n\n".join(paragraphs)


def headings(paragraphs: list[str]) -> int:
    """How many headings stand at the end of paragraphs; a list or verse of short lines has none."""
    for found in (is_heading, lambda block: block.startswith("#")):
        count = sum(1 for _ in takewhile(found, reversed(paragraphs)))
        if count <= STACKED:
            return count
    return 0


def is_heading(block: str) -> bool:
    """Whether a paragraph is a heading, or as short as one and without a mark at its end."""
    return block.startswith("#") or (
        "\n" not in block and len(block) <= LONGEST and block[-1:].isalnum()
    )


def lexicon_words(passage: Passage, tokenizer: Any) -> dict[str, tuple[str, ...]]:
    """The words of a user's lexicon that a passage has: no others change its speech.

    They are looked for in the text as written, and as the model reads it ("Dr." as "doctor").
    """
    if not tokenizer.lexicon:
        return {}
    spans = passage.marked.spans if passage.marked else ()
    said = "".join(span.said.text for span in spans) or passage.text
    texts = said, prepare(said, tokenizer)
    found = (place.entry for text in texts for place in tokenizer.lexicon.find(text))
    return {entry.written: entry.tokens for entry in found}


def speaker_facts(speaker: Any) -> dict[str, Any]:
    """What speech depends on beside its text and lexicon_words: voice, model and all settings.

    Args:
        speaker: a nanospeech.Speaker.
    """
    prompt = hashlib.sha256(speaker.prompt.mel.tobytes() + speaker.prompt.tokens.tobytes())
    return {
        "layout": LAYOUT,
        "model": model_digest(speaker.engine.folder),
        "prompt": prompt.hexdigest(),
        "voice": dataclasses.asdict(speaker.prompt.settings),
        "options": dataclasses.asdict(speaker.options),
        "output": dataclasses.asdict(dataclasses.replace(speaker.output, lexicon=None)),
        "speed": speaker.speed,
        "durations": speaker.durations,
        "chunk_seconds": speaker.chunk_seconds,
        "seed": speaker.seed,
        "language": speaker.tokenizer.language,
        **rounded(speaker.engine),
    }


def rounded(engine: Any) -> dict[str, Any]:
    """The type and the bits of an engine's weights, where they are not those of its device."""
    dtype, layers = engine.rounding or engine.dtype, engine.config.quantization
    found = {} if dtype == engine.usual_dtype(engine.device) else {"dtype": dtype}
    return found if layers is None else {**found, "quantization": dataclasses.asdict(layers)}


def model_digest(folder: str | Path | None) -> str:
    """A digest of a release folder: its configs and words whole, the ends of its weights."""
    digest = hashlib.sha256()
    files = sorted(Path(folder).rglob("*")) if folder is not None else []
    for path in files:
        if path.suffix not in (".json", ".txt", ".safetensors") or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as f:
            digest.update(f.read(EDGE))
            if size > EDGE:
                f.seek(max(EDGE, size - EDGE))
                digest.update(f.read(EDGE))
    return digest.hexdigest()


def passage_key(passage: Passage, speaker: Any, facts: dict[str, Any]) -> str:
    """key() of a passage.

    Args:
        speaker: of the passage.
        facts: of the speaker.
    """
    words = lexicon_words(passage, speaker.tokenizer)
    return key(passage.content, {**facts, "lexicon": words})


def key(content: str | list[Any], facts: dict[str, Any]) -> str:
    """The name under which a passage is kept: the same for the same words, voice and settings.

    Args:
        content: of a passage.
        facts: of its speaker, and the words of a lexicon.
    """
    said = json.dumps([content, facts], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]
