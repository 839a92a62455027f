"""Pages: replaces what stands between two markers of a Markdown page."""

from __future__ import annotations

from pathlib import Path

from nanospeech.errors import InputError


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replaces what stands between the markers of a page, which stay.

    Raises:
        InputError: the page has not both of them.
    """
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise InputError(f"{page} should hold the lines {begin} and {end} around its table")
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
