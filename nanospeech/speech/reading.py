"""Reading: the text that the command line speaks, from flags, files and standard input."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterator

from nanospeech.errors import InputError, reason
from nanospeech.text.markup import MARKUP, Marked, read_markup
from nanospeech.text.ssml import read_ssml

BYTES = 65_536  # of standard input that are taken at once
UTF8 = "utf-8"
DOCUMENTS = {  # what files begin with that hold text, but are none
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "an EPUB, a Word document or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "an old Word document",
    b"{\\rtf": "rich text (RTF)",
}


def read_text(text: str | None, encoding: str = UTF8) -> str:
    """The text of --text, or standard input's.

    Raises:
        InputError: there is none, or it is of another encoding.
    """
    if text is None or text == "-":
        text = read_stdin(encoding)
    return some(text)


def some(text: str) -> str:
    """The text.

    Raises:
        InputError: it is empty.
    """
    if not text.strip():
        raise InputError("no text: it is empty")
    return text


def choose_markup(brackets: bool | None, ssml: bool) -> Callable[[str], str | Marked] | None:
    """What reads the markup of a text; None if there is to be none.

    Args:
        brackets: of --markup and --no-markup; None reads it unless the text is SSML.
        ssml: of --ssml.

    Raises:
        InputError: both are asked for.
    """
    if ssml and brackets:
        raise InputError("give --markup or --ssml, not both")
    return read_ssml if ssml else None if brackets is False else read_brackets


def read_brackets(text: str) -> str | Marked:
    """A text with its markup read; the text itself where it has none.

    Raises:
        InputError: markup that is wrong, with its place.
    """
    if not MARKUP.search(text):
        return text
    try:
        return read_markup(text)
    except InputError as e:
        raise InputError(f"{e}; or give --no-markup, and all brackets are text") from e


def names_file(text: str | None) -> bool:
    """Whether the text is the name of a file, probably by mistake."""
    return text is not None and os.path.isfile(text)


def check_stdin() -> None:
    """
    Raises:
        InputError: there is no text to speak, and standard input is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("no text; give --text or --file, or pipe it in")


def read_stdin(encoding: str = UTF8) -> str:
    """All of standard input."""
    return "".join(arriving_text(encoding))


def arriving_text(encoding: str = UTF8) -> Iterator[str]:
    """Standard input as it comes in.

    Raises:
        InputError: it is of another encoding, or there is none.
    """
    if sys.stdin is None:
        raise InputError("no text: standard input is closed")
    decoder = codecs.getincrementaldecoder(codec(encoding))()
    buffer = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        yield sys.stdin.read()
        return
    try:
        part = buffer.read1(BYTES)
        check_begin("standard input", part)
        while part:
            yield decoder.decode(part)
            part = buffer.read1(BYTES)
        yield decoder.decode(b"", final=True)
    except UnicodeError as e:
        raise undecoded("standard input", encoding, e) from e


def read_file(path: str, encoding: str = UTF8) -> str:
    """A text file; "-" is standard input.

    Raises:
        InputError: there is none, it is a document of another kind, or of another encoding.
    """
    if path == "-":
        return read_stdin(encoding)
    name = codec(encoding)
    try:
        with open(path, "rb") as file:
            check_begin(path, file.peek(8))
            return io.TextIOWrapper(file, encoding=name).read()
    except InputError:
        raise
    except UnicodeError as e:
        raise undecoded(path, encoding, e) from e
    except (OSError, ValueError) as e:
        raise InputError(f"cannot read {path}: {reason(e)}") from e


def check_begin(where: str, start: bytes) -> None:
    """
    Raises:
        InputError: what begins so is a document that has to be made a text first.
    """
    for begin, kind in DOCUMENTS.items():
        if start.startswith(begin):
            raise InputError(
                f"cannot read {where}: it is {kind}, not plain text; save or convert it as a .txt"
                " file, for example with Calibre or pandoc; nanospeech book reads an .epub as it is"
            )


def codec(encoding: str) -> str:
    """Python's name of an encoding; that of UTF-8 passes over a byte order mark.

    Raises:
        InputError: there is none of that name, or it is not of text.
    """
    try:
        name = codecs.lookup(encoding).name
        "a".encode(name)  # "rot13" and the like are no encodings of text
    except (LookupError, ValueError) as e:
        raise InputError(
            f"encoding {encoding!r} not known; choose utf-8, latin-1, cp1252, utf-16, or another"
            " of Python's"
        ) from e
    return "utf-8-sig" if name == UTF8 else name


def undecoded(where: str, encoding: str, e: UnicodeError) -> InputError:
    """What to do about a text that is of another encoding."""
    start = e.object[:2] if isinstance(e, UnicodeDecodeError) else b""
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        offer = "it begins as UTF-16 does: add --encoding utf-16"
    elif isinstance(e, UnicodeDecodeError) and b"\0" in e.object:
        offer = "if it is a text at all, name its own, such as --encoding utf-16-le"
    elif codec(encoding) == "utf-8-sig":
        offer = "add --encoding cp1252 if it is an old Western European one, or name its own"
    else:
        offer = "name the one that it has, or leave --encoding out for UTF-8"
    return InputError(f"cannot read {where}: it is not {encoding.upper()} text ({e}); {offer}")
