"""Batch files: the lines of a text file to WAV files in a folder. Files that exist are kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from nanospeech.config import BatchLimits
from nanospeech.errors import InputError
from nanospeech.files import check_apart, is_device
from nanospeech.text.markup import Marked, Span, Style
from nanospeech.text.traced import Traced

from .batching import effort, length_bar, speak_each
from .chunks import Utterance
from .subtitles import write_subtitles

FIELDS = ("text", "id", "output_file", "voice")  # of a line that is an object of JSON
NAME = re.compile(r"\w[\w.\- ]{0,99}(?<![. ])")  # no separators, nothing hidden
LONGEST = 240  # bytes of a name: files have up to 255, with what stands around it while written


@dataclass(frozen=True)
class Line:
    """A line to speak.

    Attributes:
        number: in the file, from 1.
        name: of its WAV file, without the extension.
        text: what to say.
        voice: whose, if not the speaker's.
    """

    number: int
    name: str
    text: str
    voice: str | None = None

    @property
    def file(self) -> str:
        return f"{self.name}.wav"


@dataclass
class Outcome:
    """Results of a batch.

    Attributes:
        spoken: lines that were written.
        there: lines whose file existed already, with the subtitles that are wanted.
        failures: number and reason of each line that failed.
        seconds: of the new speech.
        elapsed: seconds that it took, without loading the model.
        interrupted: by Ctrl-C.
    """

    spoken: int = 0
    there: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0
    interrupted: bool = False
    failures: dict[int, str] = field(default_factory=dict)


def read_lines(text: str, marked: bool = False) -> tuple[list[Line], dict[int, str]]:
    """Parses the lines of a file: "text", named by its line number, "id|text", or JSON.

    Blank lines are skipped, but counted.

    Args:
        text: of the file.
        marked: whether it has markup, within whose brackets a | may stand.

    Returns:
        The lines, and the number and fault of each invalid one.
    """
    lines, faults, names = [], {}, {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, bar, said = line.partition("|")
        if marked and set(name) & set("[<"):
            name, bar, said = "", "", line
        name, said = (name.strip(), said) if bar else (f"{number:04d}", line)
        voice = None
        if (given := json_object(line)) is not None:
            if fault := json_fault(given):
                faults[number] = fault
                continue
            name, said = named(given) or f"{number:04d}", given["text"]
            voice = given.get("voice")
        if not NAME.fullmatch(name) or len(name.encode()) > LONGEST:
            faults[number] = (
                f"id {name[:40]!r} should be letters, digits, dots, dashes, underscores and spaces,"
                f" at most 100 of them and {LONGEST} bytes; a text with a | needs an id before it"
            )
        elif is_device(name):
            faults[number] = f"id {name!r} is a device's name on Windows; choose another"
        elif (first := names.setdefault(name.casefold(), number)) != number:
            faults[number] = f"id {name!r} is that of line {first}"
        else:
            lines.append(Line(number, name, said, voice))
    return lines, faults


def json_object(line: str) -> dict[str, Any] | None:
    """The object that a line is, as Piper takes them, without nulls; None for one that is text."""
    try:
        found = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {key: value for key, value in found.items() if value is not None}


def named(given: dict[str, Any]) -> str:
    """The name that an object of JSON gives: its id, or that of its output_file."""
    return str(given.get("id", PurePath(str(given.get("output_file", ""))).stem))


def json_fault(given: dict[str, Any]) -> str | None:
    """What is wrong with an object of JSON."""
    if not isinstance(given.get("text"), str):
        return 'the object has no "text"'
    if not isinstance(given.get("voice", ""), str):
        return f'"voice" is {given["voice"]!r}; it should be a name'
    unknown = [key for key in given if key not in FIELDS]
    return f"{unknown[0]!r} is not known; write {', '.join(FIELDS)}" if unknown else None


def speak_file(
    text: str,
    folder: str | Path,
    load: Callable[[], Any],
    limits: BatchLimits = BatchLimits(),
    overwrite: bool = False,
    sources: Sequence[str | None] = (),
    progress: bool = False,
    subtitles: tuple[str, bool] | None = None,
    read: Callable[[str], str | Marked] | None = None,
) -> Outcome:
    """Speaks the lines of a text, each into its WAV file as soon as it is done.

    Args:
        text: of read_lines.
        folder: made if it is not there.
        load: makes the nanospeech.Speaker; called only if there is a line to speak.
        limits: of a batch.
        overwrite: speak lines again whose file is there.
        sources: files that are read, and not written over.
        progress: show a bar on stderr.
        subtitles: write a file of this format beside each WAV; and whether by words.
        read: what reads the markup of lines, if they may have some.

    Returns:
        The results so far, also after Ctrl-C and where files cannot be written any more.

    Raises:
        InputError: there are no lines, or the folder cannot be made.
    """
    lines, faults = read_lines(text, marked=read is not None)
    if not lines and not faults:
        raise InputError("no text: the batch has no lines")
    folder = make_folder(folder)
    left = [line for line in lines if overwrite or not (folder / line.file).exists()]
    new = {line.name for line in left}
    there = [line for line in lines if line.name not in new]
    bare = {} if subtitles is None else without_subtitles(there, folder, subtitles[0])
    faults |= bare
    outcome = Outcome(there=len(there) - len(bare), failures=faults)
    left = apart(left, folder, sources, subtitles, faults)
    texts, left = read_texts(left, read, faults)
    if not left:
        return outcome
    speaker = load()
    began = time.perf_counter()
    results = speak_each(speaker, texts, None, limits)
    try:
        lengths = [effort(speaker, text) for text in texts]
        with length_bar(lengths, "file", progress) as done:
            for index, result in results:
                if not write(result, left[index], folder, outcome, subtitles):
                    break  # nor will there be room for others: nothing is spoken in vain
                done(index)
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.elapsed = time.perf_counter() - began
    return outcome


def without_subtitles(lines: list[Line], folder: Path, form: str) -> dict[int, str]:
    """Lines whose file is there without subtitles, for which its words would be needed, and why."""
    besides = {line: f"{line.name}.{form}" for line in lines}
    return {
        line.number: f"{line.file} is there without {beside}; --overwrite writes both anew"
        for line, beside in besides.items()
        if not (folder / beside).exists()
    }


def apart(
    lines: list[Line],
    folder: Path,
    sources: Sequence[str | None],
    subtitles: tuple[str, bool] | None,
    faults: dict[int, str],
) -> list[Line]:
    """The lines whose files are none of those that are read; the others become faults."""
    found = []
    for line in lines:
        beside = [] if subtitles is None else [folder / f"{line.name}.{subtitles[0]}"]
        try:
            check_apart(sources, [folder / line.file, *beside])
            found.append(line)
        except InputError as e:
            faults[line.number] = f"{e}, or give the line another id"
    return found


def read_texts(
    lines: list[Line], read: Callable[[str], str | Marked] | None, faults: dict[int, str]
) -> tuple[list[str | Marked], list[Line]]:
    """What lines say, and the lines without those whose markup is wrong, which become faults."""
    texts, good = [], []
    for line in lines:
        try:
            texts.append(in_voice(line.text if read is None else read(line.text), line.voice))
            good.append(line)
        except InputError as e:
            faults[line.number] = str(e)
    return texts, good


def in_voice(text: str | Marked, voice: str | None) -> str | Marked:
    """A text in a voice, but for the parts that have one of their own."""
    if voice is None:
        return text
    if isinstance(text, str):
        text = Marked((Span(Traced.of(text), Traced.of(text)),), {})
    style = Style(voice=voice)
    spans = [
        replace(s, style=s.style if s.style.voice else style._replace(rate=s.style.rate))
        for s in text.spans
    ]
    return replace(text, spans=tuple(spans))


def write(
    result: Utterance | InputError,
    line: Line,
    folder: Path,
    outcome: Outcome,
    subtitles: tuple[str, bool] | None = None,
) -> bool:
    """Saves the speech of a line, as a complete file or none, and counts it.

    Returns:
        False where files cannot be written.
    """
    if isinstance(result, InputError):
        outcome.failures[line.number] = str(result)
        return True
    try:
        if subtitles is not None:
            form, by_word = subtitles
            write_subtitles(folder / f"{line.name}.{form}", result.words, by_word)
        result.save(folder / line.file)
        outcome.spoken += 1
        outcome.seconds += result.seconds
    except InputError as e:
        outcome.failures[line.number] = f"{e}; the lines that are left were not spoken"
        return False
    return True


def make_folder(path: str | Path) -> Path:
    """Makes a folder and those above it.

    Raises:
        InputError: it cannot be made, or something else is there.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(
            f"cannot write into {folder}: {e.strerror}; give --output FOLDER with --batch"
        ) from e
    return folder
