"""Pages: replaces what stands between two markers of a Markdown page."""

from __future__ import annotations

from pathlib import Path

from nanospeech.errors import InputError


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
