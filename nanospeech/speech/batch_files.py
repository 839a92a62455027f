"""Batch files: the lines of a text file to WAV files in a folder. Files that exist are kept."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nanospeech.config import BatchLimits
from nanospeech.errors import InputError
from nanospeech.files import is_device
from nanospeech.text.markup import Marked

from .batching import effort, length_bar, speak_each
from .chunks import Utterance
from .subtitles import write_subtitles

NAME = re.compile(r"\w[\w.\- ]{0,99}(?<![. ])")  # no separators, nothing hidden
LONGEST = 240  # bytes of a name: files have up to 255, with what stands around it while written


@dataclass(frozen=True)
class Line:
    """A line to speak.

    Attributes:
        number: in the file, from 1.
        name: of its WAV file, without the extension.
        text: what to say.
    """

    number: int
    name: str
    text: str

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
    """Parses the lines of a file: "text", named by its line number, or "id|text".

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
        name = name.strip() if bar else f"{number:04d}"
        if not NAME.fullmatch(name) or len(name.encode()) > LONGEST:
            faults[number] = (
                f"id {name[:40]!r} should be letters, digits, dots, dashes, underscores and spaces,"
                f" up to 100 or {LONGEST} bytes; a | stands behind an id alone"
            )
        elif is_device(name):
            faults[number] = f"id {name!r} is a device's name on Windows; choose another"
        elif (first := names.setdefault(name.casefold(), number)) != number:
            faults[number] = f"id {name!r} is that of line {first}"
        else:
            lines.append(Line(number, name, said if bar else line))
    return lines, faults


def speak_file(
    text: str,
    folder: str | Path,
    load: Callable[[], Any],
    limits: BatchLimits = BatchLimits(),
    overwrite: bool = False,
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


def read_texts(
    lines: list[Line], read: Callable[[str], str | Marked] | None, faults: dict[int, str]
) -> tuple[list[str | Marked], list[Line]]:
    """What lines say, and the lines without those whose markup is wrong, which become faults."""
    texts, good = [], []
    for line in lines:
        try:
            texts.append(line.text if read is None else read(line.text))
            good.append(line)
        except InputError as e:
            faults[line.number] = str(e)
    return texts, good


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
