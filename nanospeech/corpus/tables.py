"""Tables: lines, rows and fields of manifests, and JSON that can be kept."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError, reason
from nanospeech.text.languages import base_code

OURS = {name: name for name in ("audio", "text", "speaker", "language")}
# as Hugging Face's audio folders, F5-TTS's tables, Coqui's and NeMo's call our columns
ALSO = {
    "file_name": "audio", "audio_file": "audio", "audio_filepath": "audio",
    "transcription": "text", "speaker_name": "speaker", "speaker_id": "speaker",
}  # fmt: skip
LESS = {
    "wav": "audio", "path": "audio", "file": "audio", "filename": "audio", "filepath": "audio",
    "audio_path": "audio", "wav_path": "audio", "wav_filename": "audio",
    "sentence": "text", "transcript": "text", "client_id": "speaker",
}  # fmt: skip
NAMED = {"id": "audio"}  # in tables with bars, of names without endings
WRITTEN_OUT = "normalized_text", "text_normalized"  # NeMo's, and Hi-Fi TTS's
AS_READ = *WRITTEN_OUT, "normalized_transcription"  # as LJSpeech's own notes have it
COMMON_VOICE = {"client_id", "path", "sentence"}
STARTS = "offset", "start", "start_time", "begin_time", "begin"
MOST_TABLE = 2**32  # bytes
CODE = re.compile(r"([a-z]{2}|yue)([_-]\w+)?", re.I)  # of a language; of three letters are words
ABOVE = re.compile(r"(?:sep=.)?", re.I)
LONGEST_NAME = 60  # characters of a speaker in a table without a header


def parsed(data: str | bytes) -> Any:
    """What JSON says, if it can be written again; NaN and Infinity, which are none, as null.

    Raises:
        ValueError: it is damaged, nested too deeply, or has half of a surrogate pair.
    """
    try:
        found = json.loads(data, parse_constant=lambda _: None)  # pandas' NaN: not known
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


def wrong_language(code: Any) -> str:
    """What is wrong with a recording's language, where it is a code that no run takes."""
    try:
        base_code(str(code or "en"))
    except InputError as e:
        return str(e)
    return ""


def lines_of(path: Path) -> list[str]:
    """The lines of a table, split at line feeds alone; at returns where there is no line feed.

    Raises:
        InputError: it is missing, not UTF-8 or too large.
    """
    try:
        if (size := path.stat().st_size) > MOST_TABLE:
            raise InputError(
                f"{path} has {size:,} bytes, a table {MOST_TABLE:,} at most; divide it into several"
            )
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return text.split("\n" if "\n" in text else "\r")  # as spreadsheets on a Mac may write
    except (OSError, UnicodeDecodeError) as e:
        mend = "; save it as UTF-8" if isinstance(e, UnicodeDecodeError) else ""
        raise InputError(f"cannot read {path} as UTF-8 text: {reason(e)}{mend}") from e


def has_bars(table: Path) -> bool:
    """Whether columns of a table are divided by |."""
    return "|" in next((line for line in lines_of(table) if line.strip()), "")


def columns(names: Iterable[str], bars: bool = False) -> list[str]:
    """What a table's columns are called here; the first of ALSO's, unless ours is there too.

    LESS's are those of a table that has no recordings or texts without them, and NAMED's of one
    with bars. Capitals make no other name.
    """
    names = list(names)
    for also in (OURS, ALSO, LESS, NAMED if bars else {}):
        if also in (LESS, NAMED) and {"audio", "text"} <= set(names):
            break
        for index, name in enumerate(names):
            if (ours := also.get(name.strip().lower())) and ours not in names:
                names[index] = ours
    return names


def names_columns(fields: Iterable[str], bars: bool = False) -> bool:
    """Whether a table's first line says what its columns are."""
    return {"audio", "text"} <= set(columns(fields, bars))


def has_objects(path: Path) -> bool:
    """Whether the first line of a file is an object of a table's."""
    try:
        row = parsed(next((line for line in lines_of(path) if line.strip()), ""))
    except ValueError:
        return False
    return isinstance(row, dict) and names_columns(row)


def as_clip(row: dict[Any, Any]) -> dict[Any, Any]:
    """A row of Common Voice's tables, whose recordings lie in clips/; of its votes nothing is kept.

    Older versions leave out the endings of names.
    """
    file, text = row.get("audio"), row.get("text")
    if file:
        row["audio"] = f"clips/{file}" if Path(file).suffix else f"clips/{file}.mp3"
    kept = {k: row[k] for k in ("audio", "text", "speaker", None) if k in row}
    return kept | {"text": text, "language": row.get("locale") or None}


def rows_of(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, fields) of a manifest; a line that is no row comes as its error."""
    lines = lines_of(path)
    if path.suffix.lower() in (".jsonl", ".json"):
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = parsed(line)
                    if not isinstance(row, dict):
                        raise ValueError("not an object")
                    said = [name for name in WRITTEN_OUT if row.get(name)]
                    if said and path.suffix.lower() == ".json":
                        row["text"] = row.pop(said[0])
                    yield number, dict(zip(columns(row), row.values()))
                except ValueError as e:
                    yield number, e
        return
    # before the heading: blank lines, and the separator as Excel names it
    above = next((n for n, line in enumerate(lines) if not ABOVE.fullmatch(line.strip())), 0)
    lines = lines[above:]
    # tables with tabs are mostly written without quoting, and a text may begin with a quote
    if path.suffix.lower() == ".tsv" and not lines[0].startswith('"'):
        form: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    else:  # spreadsheets of countries with decimal commas write ;
        head = lines[0].replace('"', "").replace(" ", "")
        between = next((c for c in ",;\t" if names_columns(head.split(c))), ",")
        spaced = f"{between} " in lines[0]
        form = {"delimiter": between, "strict": True, "skipinitialspace": spaced}
    # a return within a text, as of a web page's, ends no row
    said = chain(lines[:1], (line.replace("\r", " ") for line in lines[1:]))
    reader = csv.DictReader((line + "\n" for line in said), **form)
    try:
        names = list(reader.fieldnames or [])
        reader.fieldnames = columns(names)
        if not names_columns(names):
            raise InputError(
                f"the first line of {path} should name the columns audio and text (and perhaps "
                f"speaker), got {names}"
            )
        clips = {*names} - {*reader.fieldnames} >= COMMON_VOICE  # all have other names here
        for row in reader:
            if "quoting" in form and row.get("text"):  # a spreadsheet quotes a text with quotes
                row["text"] = unquoted(row["text"])
            yield reader.line_num + above, as_clip(row) if clips else row
    except csv.Error as e:
        raise no_csv(path, reader.reader.line_num + above, e) from e


def start_of(row: dict[Any, Any]) -> tuple[float | None, bool]:
    """Where a row begins in its recording, in seconds, and whether it is surely a part of that.

    A clip that was cut out may be told where it was: only that others begin elsewhere in the same
    file says that it is a part. NeMo's "offset" beside "duration" is of nothing else.
    """
    for name in STARTS:
        try:
            since = float(row.get(name) or 0)
        except (TypeError, ValueError):
            continue
        if name in row and since == since:  # pandas' NaN is not known
            return since, name == "offset" and "duration" in row and since > 0
    return None, False


def unquoted(field: str) -> str:
    """A field without the quotes that writers of CSV put around one that has some, each twice."""
    inner = field[1:-1].replace('""', "\0")
    doubled = field[:1] == field[-1:] == '"' and "\0" in inner and '"' not in inner
    return inner.replace("\0", '"') if doubled else field


def quoted_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a table with bars whose fields are all in quotes, as names too.

    No rows of another table: no file's name begins and ends with quotes.
    """
    lines = lines_of(path)
    if not re.match(r'"[^"|]+"\|', next((line for line in lines if line.strip()), "")):
        return
    reader = csv.reader((line + "\n" for line in lines), delimiter="|", strict=True)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as e:
        raise no_csv(path, reader.line_num, e) from e


def no_csv(path: Path, line: int, e: csv.Error) -> InputError:
    return InputError(
        f"{path} is no CSV near line {line}: {e}; put quotes around a text that has some, and write"
        " each of these twice"
    )


def rows_with_bars(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, fields) of "id|text as written|text as read"; no text where there is no |.

    Or of a table whose first line names its columns, where a line of more comes as an error; or
    with who speaks before the text, as Piper's, or behind it, as those of VITS and StyleTTS 2; or
    GPT-SoVITS's "path|speaker|language|text".
    """
    rows = list(quoted_rows(path))
    if not rows:
        lines = enumerate(lines_of(path), 1)
        rows = [(n, [*map(unquoted, line.split("|"))]) for n, line in lines if line.strip()]
    names = [name.strip() for name in rows[0][1]] if rows else []
    in_languages = all(len(row) == 4 and CODE.fullmatch(row[2].strip()) for _, row in rows)
    if in_languages or names_columns(names, bars=True):
        names = ["audio", "speaker", "language", "text"] if in_languages else columns(names, True)
        read = [n for n in names if n.lower().replace(" ", "_") in AS_READ]
        for number, row in rows if in_languages else rows[1:]:
            found: Any = dict(zip(names, row))
            if read and found.get(read[0], "").strip():
                found["text"] = found.pop(read[0])
            yield number, found if len(row) <= len(names) else ValueError(f"{len(row)} fields")
        return
    who = speakers_column([row for _, row in rows])
    for number, (name, *texts) in rows:
        found = {"audio": name}
        if who and len(texts) > 1:
            found["speaker"] = texts.pop(who - 1).strip()
        if texts:
            found["text"] = next((t for t in reversed(texts[:2]) if t.strip()), "")
        yield number, found


def speakers_column(rows: Iterable[Sequence[str]]) -> int | None:
    """Which of three columns, 1 or 2, is who speaks; None where both are texts.

    A text as written has one reading, a speaker says many texts, and has a shorter name.
    """
    pairs = {(row[1].strip(), row[2].strip()) for row in rows if len(row) > 2}
    pairs = {pair for pair in pairs if all(pair)}
    found = {1: {first for first, _ in pairs}, 2: {second for _, second in pairs}}
    few = {c: names for c, names in found.items() if 0 < 2 * len(names) <= len(pairs)}
    longest = {c: max(map(len, names)) for c, names in few.items()}
    column = min(longest, key=longest.__getitem__, default=None)
    return column if column and longest[column] <= LONGEST_NAME else None
