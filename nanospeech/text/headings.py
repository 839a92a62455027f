"""Headings: finds the lines of a text that are headings, and cuts the text after them."""

from __future__ import annotations

import re

AFTER_HEADING = "\n\n\n"  # in prepared text; a paragraph ends in two
MARKER = "\x1d"  # put after a heading while a text is cut
BLANK = re.compile(r"(?<![^\S\n])[^\S\n]*\n[^\S\n]*\n\s*")
# Markdown's headings (CommonMark 0.31, 4.2)
ATX = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S[^\n]*)$", re.MULTILINE)
LONGEST = 60  # characters of a heading that has no sign


def sections(text: str) -> list[str]:
    """Cuts a text after its headings, and removes their # signs.

    A heading is a line "# Title", or a paragraph of one short line that begins with a capital or a
    digit, does not end in a mark and is followed by another paragraph.

    Returns:
        Parts of the text; all but the last end with a heading.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = BLANK.sub("\n\n", text.replace(MARKER, " "))
    parts = []
    for part in ATX.sub(lambda m: f"\n\n{_titled(m[1])}{MARKER}", text).split(MARKER):
        paragraphs = [p for p in BLANK.split(part) if p.strip()]
        start = 0
        for i, paragraph in enumerate(paragraphs[:-1]):
            if _is_heading(paragraph):
                parts.append("\n\n".join(paragraphs[start : i + 1]))
                start = i + 1
        parts.append("\n\n".join(paragraphs[start:]))
    return parts


def ending(text: str) -> str:
    """The whitespace at the end of a part of a text that is still being written.

    Returns:
        AFTER_HEADING, two line ends after another paragraph, else a space or nothing.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    said = text.rstrip()
    behind = text[len(said) :]
    if ATX.match(said[said.rfind("\n") + 1 :]):
        return AFTER_HEADING
    if behind.count("\n") < 2:
        return " " if behind else ""
    return AFTER_HEADING if _is_heading(BLANK.split(said)[-1]) else "\n\n"


def _titled(line: str) -> str:
    """A heading's words, without closing signs and with a full stop if it has no mark."""
    title = line.rstrip()
    bare = title.rstrip("#")
    title = (bare.rstrip() if bare.endswith((" ", "\t")) else title).strip("*_`")
    return f"{title}." if title[-1:].isalnum() else title


def _is_heading(paragraph: str) -> bool:
    line = paragraph.strip()
    begins = line[:1].isupper() or line[:1].isdigit()
    return begins and line[-1:].isalnum() and len(line) <= LONGEST and "\n" not in line
