"""Pages: what a book is to those that speak and bind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """A part of a book that players can go to.

    Attributes:
        title: as the table of contents has it.
        read: its text: paragraphs between blank lines, headings as lines "# Title". Raises
            InputError where the file is damaged there.
    """

    title: str
    read: Callable[[], str]


@dataclass(frozen=True)
class Book:
    """A book's chapters and facts.

    Attributes:
        title: of the whole.
        author: "" if the file does not say.
        language: as the file has it, such as "en-GB"; "" if it does not say.
        chapters: in order.
        cover: a JPEG or PNG file.
    """

    title: str
    author: str
    language: str
    chapters: tuple[Chapter, ...]
    cover: bytes | None = None
