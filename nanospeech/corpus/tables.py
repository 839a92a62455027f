"""Tables: lines, rows and fields of manifests, and JSON that can be kept."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError, reason

ALSO = {"file_name": "audio", "transcription": "text"}  # as Hugging Face's audio folders have it
LONGEST_NAME = 60  # characters of a speaker in a table without a header


def parsed(data: str | bytes) -> Any:
    """What JSON says, if it can be written again.

    Raises:
        ValueError: it is damaged, nested too deeply, or has half of a surrogate pair.
    """
    try:
        found = json.loads(data)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    return found


def as_text(found: Any) -> str:
    """A text of JSON, where a number may stand without quotes.

    Raises:
        ValueError: it is of another type.
    """
    if isinstance(found, bool) or not isinstance(found, (str, int, float)):
        raise ValueError(f"text is {found!r}"[:80])
    return str(found)


def lines_of(path: Path) -> list[str]:
    """The lines of a table, split at line feeds alone; at returns where there is no line feed.

    Raises:
        InputError: it is missing or not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return text.split("\n" if "\n" in text else "\r")  # as spreadsheets on a Mac may write
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read {path} as UTF-8 text: {reason(e)}") from e


def columns(names: Iterable[str]) -> list[str]:
    """What the columns of a table are called here; those of ALSO, unless ours are there too."""
    names = list(names)
    return [ALSO.get(n, n) if ALSO.get(n) not in names else n for n in names]


def rows_of(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, fields) of a manifest; a line that is no row comes as its error."""
    lines = lines_of(path)
    if path.suffix.lower() == ".jsonl":
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = parsed(line)
                    if isinstance(row, dict):
                        yield number, dict(zip(columns(row), row.values()))
                    else:
                        yield number, ValueError("not an object")
                except ValueError as e:
                    yield number, e
        return
    # tables with tabs are mostly written without quoting, and a text may begin with a quote
    tabs = path.suffix.lower() == ".tsv"
    form: dict[str, Any] = (
        {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    )
    reader = csv.DictReader((line + "\n" for line in lines), **form)
    try:
        names = list(reader.fieldnames or [])
        reader.fieldnames = columns(names)
        if not {"audio", "text"} <= set(reader.fieldnames):
            raise InputError(
                f"the first line of {path} should name the columns audio and text (and perhaps "
                f"speaker), got {names}"
            )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as e:
        raise InputError(
            f"{path} is no CSV near line {reader.reader.line_num}: {e}; put quotes around a text"
            " that has some, and write each of these twice"
        ) from e


def names_speakers(rows: Iterable[Sequence[str]]) -> bool:
    """Whether the second of three columns is who speaks, not the text as written.

    A text as written has one reading, a speaker says many texts.
    """
    pairs = {(row[1].strip(), row[2].strip()) for row in rows if len(row) > 2 and row[2].strip()}
    seconds = {second for second, _ in pairs}
    return 0 < 2 * len(seconds) <= len(pairs) and max(map(len, seconds)) <= LONGEST_NAME
