"""Narrate: speaks a book's chapters passage by passage, keeps each, and binds them.

What is kept already is not spoken again, so the same command goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.config import BatchLimits
from nanospeech.errors import InputError, require
from nanospeech.speech.batching import effort, length_bar, speak_each
from nanospeech.speech.subtitles import FORMATS as SUBTITLES
from nanospeech.speech.subtitles import write_subtitles

from . import writers
from .joining import Chapter, chapter_waves, heard_words, lay_out
from .pages import Book
from .passages import Passage, cut_passages, passage_key, speaker_facts
from .work import Work
from .writers import Marked

M4B = (".m4b", ".m4a")
ENDING = re.compile(r"\.[A-Za-z]\w{1,4}")  # of a file; "Vol. 1" and "J.R.R" are folders


@dataclass(frozen=True)
class Target:
    """Where a book goes, and in which form.

    Attributes:
        path: an .m4b file, or a folder.
        format: of a folder's files, of writers.FORMATS.
        bitrate: of an .m4b, bits a second.
        overwrite: whether to replace a finished book.
        keep: whether to keep the passages of a finished book.
        subtitles: their format, for a file beside each sound file; None: there are none.
    """

    path: Path
    format: str = "opus"
    bitrate: int = writers.BITRATE
    overwrite: bool = False
    keep: bool = False
    subtitles: str | None = None

    @property
    def single(self) -> bool:
        """Whether the book becomes one file."""
        return self.path.suffix.lower() in M4B

    @property
    def work(self) -> Path:
        """The folder of what is kept until the book is bound."""
        path = self.path if self.path.name.strip(".") else self.path.resolve()  # as "." has no name
        return path.parent / f"{path.name}.work"

    def check(self) -> None:
        """
        Raises:
            InputError: it cannot be written, or a finished book is there.
            BackendError: it needs a package that is not installed.
        """
        if self.single:
            require("av", "book")
        elif ENDING.fullmatch(self.path.suffix) and not self.path.is_dir():
            raise InputError(
                f"{self.path} should be a file that ends in .m4b, or a folder for"
                f" {' or '.join(writers.FORMATS)} files"
            )
        if not self.path.absolute().parent.is_dir():
            raise InputError(f"there is no folder {self.path.absolute().parent}")
        if self.path.exists() and self.single != self.path.is_file():
            raise InputError(f"{self.path} is {'no' if self.single else 'a'} file")
        there = self.path.exists() and (self.single or any(self.path.iterdir()))
        if there and not self.overwrite and not self.work.exists():
            raise InputError(f"{self.path} is there already; add --overwrite to replace it")


@dataclass
class Part:
    """A chapter as it is to be spoken.

    Attributes:
        number: in the book, from 1.
        title: of the chapter.
        passages: in order.
        keys: of the passages.
    """

    number: int
    title: str
    passages: list[Passage]
    keys: list[str]


@dataclass
class Outcome:
    """Results of a book.

    Attributes:
        chapters: that were bound.
        seconds: of their speech.
        spoken: passages that were spoken now.
        kept: passages that were there already.
        failures: what went wrong, a line each.
        wanted: passages in all.
    """

    chapters: int = 0
    seconds: float = 0.0
    spoken: int = 0
    kept: int = 0
    wanted: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def written_bar(
    samples: int, shown: bool
) -> Iterator[Callable[[Iterable[np.ndarray]], Iterator[np.ndarray]]]:
    """A bar on stderr while a book is written, which for many hours takes minutes.

    Args:
        samples: of the whole book.
        shown: whether there is a bar.

    Yields:
        a function of waves that returns the same, and moves the bar.
    """
    from tqdm import tqdm

    shape = "{percentage:3.0f}% written|{bar}| [{elapsed}<{remaining}]"
    with tqdm(total=samples, disable=not shown, leave=False, bar_format=shape) as bar:

        def watched(waves: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
            for wave in waves:
                yield wave
                bar.update(len(wave))

        yield watched


class Narrator:
    """Speaks and binds one book.

    Args:
        book: of pages.open_book.
        speaker: a nanospeech.Speaker.
        target: where it goes.
        voiced: makes a Speaker of another voice, for the passages that name one.
        progress: whether there is a bar, and a line for each chapter, on stderr.
        markup: whether the text may have markup; else all its brackets are text.
    """

    def __init__(
        self,
        book: Book,
        speaker: Any,
        target: Target,
        voiced: Callable[[str], Any] | None = None,
        progress: bool = False,
        markup: bool = True,
    ):
        self.book = writers.without_damaged_cover(book) if target.single else book
        self.speaker, self.target = speaker, target
        self.progress, self.markup = progress, markup
        self.voiced = voiced
        self.voices: dict[str, tuple[Any, dict[str, Any]]] = {"": (speaker, speaker_facts(speaker))}
        self.work = Work(target.work, speaker.sample_rate, target.subtitles is not None)
        self.outcome = Outcome()
        self.begun = 0  # missing passages of the chapters before

    def run(self, numbers: Sequence[int], limits: BatchLimits) -> Outcome:
        """Speaks what is not kept yet, then binds. self.outcome is valid after Ctrl-C, too.

        Args:
            numbers: of the chapters, from 1.
            limits: of a batch.

        Raises:
            InputError: no chapter can be spoken, or the book cannot be written.
            OSError: as the disk is full; what was finished is kept.
        """
        parts = self.plan(numbers)
        if not parts:
            raise self.nothing()
        wanted = list(dict.fromkeys(k for part in parts for k in part.keys))
        self.outcome.wanted, self.outcome.kept = len(wanted), self.work.count(wanted)
        if not self.target.single:
            self.target.path.mkdir(exist_ok=True)
        todo = [
            effort(self.speaker, p.text)
            for part in parts
            for p, k in zip(part.passages, part.keys)
            if not self.work.has(k)
        ]
        files: list[tuple[str, str, float]] = []
        with length_bar(todo, "passage", self.progress and bool(todo)) as done:
            for part in parts:
                self.speak(part, limits, done)
                if not self.target.single:
                    files += self.write_file(part)
        if self.target.single:
            self.bind(parts)
        elif files:
            writers.write_playlist(self.target.path, self.book, files)
            if self.book.cover:
                writers.write_cover(self.target.path, self.book.cover)
        complete = len(numbers) == len(self.book.chapters) or not self.work.others({*wanted})
        if complete and not self.outcome.failures and not self.target.keep:
            self.work.remove()
        return self.outcome

    def nothing(self) -> InputError:
        """The error of a book of which no chapter is left."""
        why = "; ".join(self.outcome.failures) or "there is no text in them"
        return InputError(f"no chapter can be spoken: {why}")

    def voice(self, name: str) -> tuple[Any, dict[str, Any]]:
        """The speaker of a voice, and what its speech depends on.

        Raises:
            InputError: there is no such voice.
        """
        if name not in self.voices:
            if self.voiced is None:
                raise InputError(f"the text asks for the voice {name!r}, and there is one alone")
            speaker = self.voiced(name)
            self.voices[name] = speaker, speaker_facts(speaker)
        return self.voices[name]

    def plan(self, numbers: Sequence[int]) -> list[Part]:
        """Reads the chapters and cuts them; those that cannot be read are noted as failures."""
        parts = []
        for number in numbers:
            chapter = self.book.chapters[number - 1]
            try:
                passages = cut_passages(chapter.read(), markup=self.markup, check=self.voice)
                keys = [passage_key(passage, *self.voice(passage.voice)) for passage in passages]
            except InputError as e:
                self.outcome.failures.append(f"chapter {number}, {chapter.title}: {e}")
                continue
            if passages:
                parts.append(Part(number, chapter.title, passages, keys))
        return parts

    def speak(self, part: Part, limits: BatchLimits, done: Callable[[int], None]) -> None:
        """Speaks a chapter's missing passages, and keeps each as soon as it is there.

        Args:
            part: loses the passages that cannot be spoken.
            limits: of a batch.
            done: is called with the number of each passage that was missing in the book.
        """
        missing = [i for i, k in enumerate(part.keys) if not self.work.has(k)]
        lost: list[int] = []
        for index, result in self.spoken(part, missing, limits):
            if isinstance(result, InputError):
                lost.append(index)
                said = " ".join(part.passages[index].text.split())[:40]
                self.outcome.failures.append(
                    f"chapter {part.number}, {part.title}: left out {said!r}: {result}"
                )
            else:
                said = result.words
                words = None if said is None else [dataclasses.astuple(word) for word in said]
                self.work.save(part.keys[index], result.wave, words=words)
                self.outcome.spoken += 1
            done(missing.index(index) + self.begun)
        self.begun += len(missing)
        part.passages = [p for i, p in enumerate(part.passages) if i not in lost]
        part.keys = [k for i, k in enumerate(part.keys) if i not in lost]
        if self.progress and missing:
            from tqdm import tqdm

            tqdm.write(f"chapter {part.number}, {part.title}: spoken", file=sys.stderr)

    def spoken(
        self, part: Part, missing: Sequence[int], limits: BatchLimits
    ) -> Iterator[tuple[int, Any]]:
        """Speaks passages of a chapter, voice by voice; yields the index and speech of each."""
        for name in dict.fromkeys(part.passages[i].voice for i in missing):
            own = [i for i in missing if part.passages[i].voice == name]
            texts = [part.passages[i].marked or part.passages[i].text for i in own]
            for place, result in speak_each(self.voice(name)[0], texts, None, limits):
                yield own[place], result

    def laid_out(self, part: Part) -> Chapter:
        """A chapter's passages in their places."""
        afters = [passage.after for passage in part.passages]
        how = self.work, self.speaker.output, self.speaker.speed, part.passages[0].before
        return lay_out(part.keys, afters, *how)

    def marked(self, title: str, chapter: Chapter) -> Marked:
        """A chapter with its speech, which is read as it is written."""
        return Marked(title, chapter.samples, chapter_waves(chapter, self.work))

    def write_words(self, path: Path, chapters: Sequence[Chapter]) -> None:
        """Writes the subtitles of a file, if they are wanted."""
        if self.target.subtitles is not None:
            beside = path.with_suffix(f".{self.target.subtitles}")
            write_subtitles(beside, heard_words(chapters, self.work))

    def count(self, chapters: Sequence[Marked]) -> None:
        """Adds chapters to the outcome."""
        self.outcome.chapters += len(chapters)
        self.outcome.seconds += sum(c.samples for c in chapters) / self.work.rate

    def bind(self, parts: Sequence[Part]) -> None:
        """Writes one file of all chapters."""
        places = {part.number: self.laid_out(part) for part in parts if part.keys}
        if not places:
            raise self.nothing()
        rate, target = self.work.rate, self.target
        titles = {part.number: part.title for part in parts}
        chapters = [self.marked(titles[number], place) for number, place in places.items()]
        with written_bar(sum(c.samples for c in chapters), self.progress) as watched:
            chapters = [replace(c, waves=watched(c.waves)) for c in chapters]
            writers.write_m4b(target.path, self.book, chapters, rate, target.bitrate)
        self.write_words(target.path, list(places.values()))
        self.count(chapters)

    def write_file(self, part: Part) -> list[tuple[str, str, float]]:
        """Writes a chapter's file, if it is not there as it would be; returns it for a playlist."""
        if not part.keys:
            return []
        place, rate = self.laid_out(part), self.work.rate
        chapter = self.marked(part.title, place)
        of = len(self.book.chapters)
        name = writers.file_name(part.number, part.title, self.target.format, of)
        path = self.target.path / name
        state = {"file": name, "passages": part.keys, "samples": chapter.samples}
        state["tags"] = [part.title, self.book.title, self.book.author]
        before = self.work.finished_chapter(part.number)
        if not path.is_file() or before != state:
            writers.write_chapter(path, self.book, part.number, chapter, rate)
            self.work.finish_chapter(part.number, state)
            if before:
                remove_renamed(path.with_name(before["file"]), path)
        self.write_words(path, [place])
        self.count([chapter])
        return [(name, part.title, chapter.samples / rate)]


def remove_renamed(old: Path, new: Path) -> None:
    """Removes a chapter's file of an earlier run, whose title was another one.

    One of another format stays, as both may be wanted.
    """
    other = old.stem.casefold() != new.stem.casefold()  # else one file on some systems
    if other and old.suffix == new.suffix:
        for suffix in old.suffix, *(f".{kind}" for kind in SUBTITLES):
            old.with_suffix(suffix).unlink(missing_ok=True)
