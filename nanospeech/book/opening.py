"""Opening: reads a book by its file's kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nanospeech.errors import InputError
from nanospeech.text.sentences import CONTROLS

from .epub import read_epub
from .pages import Book
from .plain import read_plain


def open_book(path: str | Path, encoding: str = "utf-8", depth: int = 2) -> Book:
    """Reads a book's table of contents; chapters are read later, one by one.

    Args:
        path: an .epub, .txt or .md file.
        encoding: of a .txt or .md file.
        depth: levels of an EPUB's table of contents that become chapters.

    Raises:
        InputError: there is no such file, it is no book, or one beyond the bounds.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file, for an unpacked EPUB zip what is in it")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    kind = path.suffix.lower()
    if kind == ".epub":
        return without_controls(read_epub(path, depth))
    if kind in (".txt", ".md", ".markdown", ".text"):
        return without_controls(read_plain(path, encoding))
    raise InputError(
        f"{path} is no book that can be read: wanted .epub, .txt or .md; convert others first, for"
        " example with Calibre or pandoc"
    )


def without_controls(book: Book) -> Book:
    """A book whose titles hold no characters that would steer a terminal."""

    def shown(text: str) -> str:
        return " ".join(CONTROLS.sub(" ", text).split())

    chapters = tuple(replace(chapter, title=shown(chapter.title)) for chapter in book.chapters)
    facts = {name: shown(getattr(book, name)) for name in ("title", "author", "language")}
    return replace(book, chapters=chapters, **facts)
