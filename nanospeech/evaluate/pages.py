"""Pages: texts and cells of Markdown; replaces what stands between two markers of a page."""

from __future__ import annotations

import re
from pathlib import Path

from nanospeech.errors import InputError


def literal(text: str) -> str:
    """A text as Markdown that shows it as it is, whatever signs of Markdown and HTML it has."""
    return re.sub(r"([\\`*_\[\]<>#~&]|^[-+])", r"\\\1", " ".join(text.split()))


def cell(text: str) -> str:
    """Markdown or a name as a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def around(page: Path, begin: str, end: str) -> tuple[str, str]:
    """What stands before and behind the markers of a page.

    Raises:
        InputError: the page has not both of them.
    """
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise InputError(f"{page} should hold the lines {begin} and {end} around its table")
    return before, after


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replaces what stands between the markers of a page, which stay.

    Raises:
        InputError: the page has not both of them.
    """
    before, after = around(page, begin, end)
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
