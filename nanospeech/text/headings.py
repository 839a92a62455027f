"""Headings: finds the lines of a text that are headings, and cuts the text after them."""

from __future__ import annotations

import re

from .traced import Edit, Traced, joined

AFTER_HEADING = "\n\n\n"  # in prepared text; a paragraph ends in two
MARKER = "\x1d"  # put after a heading while a text is cut
BLANK = re.compile(r"(?<![^\S\n])[^\S\n]*\n[^\S\n]*\n\s*")
# Markdown's headings (CommonMark 0.31, 4.2)
ATX = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S[^\n]*)$", re.MULTILINE)
LINE_END = re.compile("\r\n?")
EMPHASIS = "*_`"
LONGEST = 60  # characters of a heading that has no sign


def sections(text: Traced) -> list[Traced]:
    """Cuts a text after its headings, and removes their # signs.

    A heading is a line "# Title", or a paragraph of one short line that begins with a capital or a
    digit, does not end in a mark and is followed by another paragraph.

    Returns:
        Parts of the text; all but the last end with a heading.
    """
    text = text.sub(LINE_END, "\n").sub(re.compile(MARKER), " ").sub(BLANK, "\n\n")
    titles = [edit for match in ATX.finditer(text.text) for edit in _titled(match)]
    parts = []
    for part in text.edited(titles).split(re.compile(MARKER)):
        paragraphs = [p for p in part.split(BLANK) if p.text.strip()]
        start = 0
        for i, paragraph in enumerate(paragraphs[:-1]):
            if _is_heading(paragraph.text):
                parts.append(joined(paragraphs[start : i + 1], "\n\n"))
                start = i + 1
        parts.append(joined(paragraphs[start:], "\n\n"))
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


def _titled(match: re.Match) -> list[Edit]:
    """Leaves a heading's words, without signs and with a full stop if they have no mark."""
    title = match[1].rstrip()
    bare = title.rstrip("#")
    title = bare.rstrip() if bare.endswith((" ", "\t")) else title
    start = match.start(1) + len(title) - len(title.lstrip(EMPHASIS))
    title = title.strip(EMPHASIS)
    stop = "." if title[-1:].isalnum() else ""
    return [
        (match.start(), start, "\n\n"),
        (start + len(title), match.end(), stop + MARKER),
    ]


def _is_heading(paragraph: str) -> bool:
    line = paragraph.strip()
    begins = line[:1].isupper() or line[:1].isdigit()
    return begins and line[-1:].isalnum() and len(line) <= LONGEST and "\n" not in line
