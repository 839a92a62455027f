"""Reading: the text that the command line speaks, from flags, files and standard input."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path

from .errors import InputError

BYTES = 65_536  # of standard input that are taken at once


def read_text(text: str | None) -> str:
    """The text of --text, or standard input's.

    Raises:
        InputError: there is none, or it is not UTF-8.
    """
    if text is None or text == "-":
        text = read_stdin()
    if not text.strip():
        raise InputError("no text: it is empty")
    return text


def check_stdin() -> None:
    """
    Raises:
        InputError: nobody has said what to speak, and standard input is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("no text; give --text, or pipe it in")


def read_stdin() -> str:
    """All of standard input, as UTF-8."""
    return "".join(arriving_text())


def arriving_text() -> Iterator[str]:
    """Standard input as it comes in, as UTF-8.

    Raises:
        InputError: it is not UTF-8, or there is none.
    """
    if sys.stdin is None:
        raise InputError("no text: standard input is closed")
    buffer = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        yield sys.stdin.read()
        return
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        while part := buffer.read1(BYTES):
            yield decoder.decode(part)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as e:
        raise InputError(f"standard input is not UTF-8 text: {e}") from e


def read_file(path: str) -> str:
    """A text file.

    Raises:
        InputError: there is none, or it is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read {path}: {e}") from e
