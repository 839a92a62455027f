"""Subtitles: the words of speech as cues, in SRT, WebVTT or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError
from nanospeech.files import whole
from nanospeech.text.sentences import split_sentences

from .chunks import Word

FORMATS = ("srt", "vtt", "json")
LINE, LINES = 42, 2  # characters, lines of a cue
HOLD = 0.4  # seconds that a cue stays after its last word, if the next one is not there yet
GAP = 0.5  # seconds between two chunks from which a cue ends without a mark, as after a heading
CLAUSE = ",;:—–-)…"
BONUS = 20  # characters by which a break after a clause may be off the middle


@dataclass(frozen=True)
class Cue:
    """Lines that are shown from one time to another, in seconds."""

    start: float
    end: float
    lines: tuple[str, ...]


def cues(words: Sequence[Word], by_word: bool = False) -> list[Cue]:
    """Sentences as cues of at most two lines of 42 characters; longer ones are divided.

    Args:
        words: of an utterance, in order.
        by_word: a cue for each word instead.

    Marks that are not said are in the cue before them, those at the beginning in the first: a cue
    that lasts no time is none in WebVTT, and seen nowhere. The signs of headings, "# Title", are
    left out.
    """
    shown = [word for word in words if word.text.strip("#") or word.end > word.start]
    words = [part for word in shown for part in _parts(word)]
    if by_word:
        runs = [[word] for word in words]
    else:
        runs = [part for run in _heard(sentences(words)) for part in _fitting(run)]
    found = [Cue(run[0].start, run[-1].end, _lines(run) or (_text(run),)) for run in _heard(runs)]
    starts = [cue.start for cue in found[1:]]
    ends = [min(cue.end + HOLD, max(start, cue.end)) for cue, start in zip(found, starts)]
    return [replace(cue, end=end) for cue, end in zip(found, [*ends, *(c.end for c in found[-1:])])]


def sentences(words: Sequence[Word]) -> list[list[Word]]:
    """The words of each sentence."""
    cuts, at, place = set(), 0, 0
    for sentence in split_sentences(_text(words)):
        cuts.add(at := at + len(sentence))
    edges = []
    for i, (word, following) in enumerate(pairwise(words), 1):
        place += len(word.text) + (word.place + len(word.text) < following.place)
        apart = word.chunk < following.chunk and following.start - word.end > GAP
        if place in cuts or apart:
            edges.append(i)
    return _runs(words, edges)


def _parts(word: Word) -> list[Word]:
    """A word, cut where it is longer than a line."""
    count = -(-len(word.text) // LINE)
    each, size = (word.end - word.start) / max(count, 1), LINE
    return [
        replace(
            word,
            text=word.text[i * size : (i + 1) * size],
            start=word.start + each * i,
            end=word.start + each * (i + 1),
            place=word.place + i * size,
        )
        for i in range(count)
    ]


def _runs(words: Sequence[Word], edges: Iterable[int]) -> list[list[Word]]:
    return [list(words[a:b]) for a, b in pairwise([0, *edges, len(words)]) if a < b]


def _heard(runs: Iterable[list[Word]]) -> list[list[Word]]:
    """Runs that each last some time: one that does not is joined to the one before, or behind."""
    found: list[list[Word]] = []
    for run in runs:
        if found and not all(each[-1].end > each[0].start for each in (run, found[-1])):
            found[-1] += run
        else:
            found.append(list(run))
    return found


def _text(words: Sequence[Word]) -> str:
    """Words as a line, with spaces where the text has any."""
    spaced = [" " * _is_spaced(*pair) + pair[1].text for pair in pairwise(words)]
    return "".join([words[0].text, *spaced]) if words else ""


def _is_spaced(word: Word, following: Word) -> bool:
    """Whether a space stands between two words in the text."""
    return word.place + len(word.text) < following.place


def _fitting(words: list[Word]) -> list[list[Word]]:
    """A sentence in runs that fit into a cue, cut near the middle, rather after a clause."""
    if _lines(words):
        return [words]
    cut = min(_cuts(words))[1]
    return _fitting(words[:cut]) + _fitting(words[cut:])


def _cuts(words: Sequence[Word]) -> list[tuple[int, int, int, int]]:
    """Ways to cut words in two: how uneven each is, after how many, and both lengths as lines."""
    spaces = [_is_spaced(*pair) for pair in pairwise(words)]
    ends = list(accumulate(len(w.text) + s for w, s in zip(words, [False, *spaces])))
    found = []
    for i, (before, space) in enumerate(zip(ends, spaces), 1):
        after = ends[-1] - before - space
        bonus = BONUS * (words[i - 1].text[-1] in CLAUSE)
        found.append((abs(before - after) - bonus, i, before, after))
    return found


def _lines(words: Sequence[Word]) -> tuple[str, ...]:
    """A cue's lines, about equally long; none if they do not fit."""
    if sum(len(word.text) for word in words) > LINE * LINES:
        return ()
    if len(text := _text(words)) <= LINE:
        return (text,)
    fitting = [cut for cut in _cuts(words) if max(cut[2:]) <= LINE]
    return (_text(words[: min(fitting)[1]]), _text(words[min(fitting)[1] :])) if fitting else ()


def subtitles(words: Sequence[Word], form: str, by_word: bool = False) -> str:
    """A whole file of subtitles.

    Args:
        words: of an utterance.
        form: of FORMATS. JSON has the cues, and the words with all that is known of them.
        by_word: see cues.
    """
    found = cues(words, by_word)
    if form == "json":
        about: dict[str, Any] = {
            "words": [_rounded(asdict(word)) for word in words],
            "cues": [_rounded(asdict(cue)) for cue in found],
        }
        return json.dumps(about, ensure_ascii=False, indent=1) + "\n"
    blocks = ["WEBVTT"] if form == "vtt" else []
    for number, cue in enumerate(found, 1):
        text = "\n".join(cue.lines)
        if form == "vtt":
            text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            blocks.append(f"{stamp(cue.start, '.')} --> {stamp(cue.end, '.')}\n{text}")
        else:
            text = text.replace("-->", "→")
            blocks.append(f"{number}\n{stamp(cue.start, ',')} --> {stamp(cue.end, ',')}\n{text}")
    return "\n\n".join(blocks) + "\n"


def _rounded(about: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in about.items()}


def stamp(seconds: float, point: str) -> str:
    """Seconds as 00:01:02,345."""
    whole, ms = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{point}{ms:03d}"


def format_of(path: str | Path) -> str:
    """The format that a file's name asks for.

    Raises:
        InputError: another ending than those of FORMATS.
    """
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in FORMATS:
        endings = ", ".join(f".{form}" for form in FORMATS)
        raise InputError(f"cannot write subtitles to {path}: it should end in one of {endings}")
    return form


def check_subtitles(path: str | Path) -> None:
    """Makes sure that write_subtitles could write here.

    Raises:
        InputError: another ending, no such folder, or something else than a file is there.
    """
    format_of(path)
    real = Path(path)
    if not real.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {real.parent}")
    if real.exists() and not (real.is_file() and os.access(real, os.W_OK)):
        raise InputError(f"cannot write {path}: it is not a file that may be written")


def write_subtitles(path: str | Path, words: Sequence[Word] | None, by_word: bool = False) -> None:
    """Writes subtitles in the format of the file's name, whole or not at all.

    Raises:
        InputError: the words have no times, or the file cannot be written.
    """
    if words is None:
        raise InputError(
            "no subtitles: this model does not know when its words are heard; give Speaker an"
            " aligner, such as load_engine() of the voice that ships"
        )
    text = subtitles(words, format_of(path), by_word)
    try:
        with whole(Path(os.path.realpath(path))) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    except OSError as e:
        raise InputError(f"cannot write {path}: {e.strerror or e}") from e
