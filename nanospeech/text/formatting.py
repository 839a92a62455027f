"""Formatting: takes Markdown's and HTML's signs off a text, and leaves what a reader would say.

Of both only what people paste is known: links, lists, quotations, code, tables, tags and entities.
Headings are headings.py's; signs of emphasis go with all others that have no sound.
"""

from __future__ import annotations

import re
from html import unescape

from .english import words
from .traced import Edit, Traced

INLINE = words(
    """a abbr b big cite code del em font i img input ins kbd label mark q s small span strike
    strong sub sup tt u var wbr"""
)
BLOCKS = words(
    """article aside blockquote body center dd div dl dt footer form h1 h2 h3 h4 h5 h6 head header
    hr html li main nav ol p pre section table tbody td tfoot th thead title tr ul"""
)
COMMENT = re.compile(r"<!--[^<>]{0,2000}-->|<!doctype\s[^<>]{0,300}>|<\?xml\s[^<>]{0,300}>", re.I)
PAGE = re.compile(r"\s*(?:<\?xml[^<>]{0,300}>\s*)?<(?:!doctype\s+)?html\b", re.I)
# what a browser does not show; an element ends before another of its kind, so that the end of one
# that is not closed is not looked for in all of the text
UNSEEN = re.compile(
    r"<(head|script|style|svg|template)\b[^<>]*>(?:(?!<\1\b).)*?</\1\s*>", re.I | re.S
)
VALUE = r"(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s<>\"'=]+)"
TAG = re.compile(rf"</?([A-Za-z][A-Za-z0-9]{{0,9}})(?:\s+[\w:-]+\s*=\s*{VALUE})*\s*/?>")
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z]\w{1,31});")
# Markdown (CommonMark 0.31)
FENCE = re.compile(r"^ {0,3}(?:```|~~~)[^`\n]*$", re.MULTILINE)
LINK = re.compile(
    r"!?\[((?:[^\[\]\n]|\n(?![^\S\n]*\n)){0,300})\]\((?=[^()\s]*[/.#:]|\))[^()\s]*(?:\([^()\s]*\)[^()\s]*)?"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'))?\)"
)
NOTE = re.compile(r"\[\^[^\[\]\s]{1,40}\](?!:)")
AUTOLINK = re.compile(r"(?<!\w)<(?:mailto:)?((?:https?://|[\w.+-]{1,64}@)[^<>\s]{1,500})>")
# a quotation, and the sign of a new speaker in television's subtitles: "Hello. >> Hi."
QUOTE = re.compile(
    r"^ {0,3}(?:> ?)+(?! ?[\d=>])|>>+ (?<=[.!?\])\"] >> )(?=[A-Z\[\"])", re.MULTILINE
)
CUE = re.compile(  # the number and the times of a subtitle
    r"(?:\A(?:WEBVTT[^\n]*\n\n?)?|\n\n?)(?:\d{1,5}[ \t]*\n)?"
    r"(?:\d\d:)?\d\d:\d\d[.,]\d{3} --> [^\n]*\n"
)
TABLE_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-+:?[ \t]*\|[-:| \t]*$\n?", re.MULTILINE)
ROW = re.compile(r"^[ \t]*\|[ \t]*(\S[^\n]*?)[ \t]*\|[ \t]*$", re.MULTILINE)
BLANK = re.compile(r"(?<![^\S\n])[^\S\n]*\n[^\S\n]*\n\s*")
ITEM = re.compile(
    r"^[ \t]{0,12}(?:[-*+•‣▪◦●–][ \t]+(?:\[[ xX]\][ \t]+)?|(\d{1,3})([.)])[ \t]+)(?=\S)",
    re.MULTILINE,
)
# lines that stand for themselves: of a chat or a log, of a table by tabs, an address alone
NICK = re.compile(
    r"^(\[?\d{1,2}:\d\d(?::\d\d)?\]?[ \t]+|)<[ @+]?(\w{1,30})>[ \t]+(?=\S)", re.MULTILINE
)
DAY = r"\d{1,4}[/.-]\d{1,2}[/.-]\d{2,4}"
TIMED = (
    rf"\[?(?:{DAY},?[ T])?\d{{1,2}}:\d\d(?::\d\d)?(?:[ ]?[AaPp][Mm])?\]?[ \t]+(?:-[ \t]+)?[^\W\d_]"
)
CELLS = r"(?P<cells>)(?!(?:[-*+•‣▪◦●–]|\d{1,3}[.)])\t)[^\s][^\t\n]*\t[^\n]*\S"
ADDRESS = r"(?:https?|ftp)://\S+[ \t]*$|www\.\S+[ \t]*$"
LINE = re.compile(rf"^(?:{TIMED}|{CELLS}|{ADDRESS})", re.MULTILINE)
TABS = re.compile(r"(?<=\S) *\t[ \t]*(?=\S)")
UNENDED = re.compile(r"(?:[^\W_]|[€$£¥%‰°²³+])[\"'”’)\]*_`]*\Z")
LONGEST = 400  # characters before an item in which the end of the line before it is looked for


def unformatted(text: Traced) -> Traced:
    """A text without Markdown's and HTML's signs; items of lists and rows end in a full stop."""
    if "-->" in text.text:
        text = text.sub(CUE, lambda m: "\n" * (m.start() > 0))
    if PAGE.match(text.text):
        text = text.sub(UNSEEN, "")
    if "<" in text.text:
        text = text.sub(COMMENT, "").sub(AUTOLINK, lambda m: m[1]).sub(TAG, _tag)
    if "&" in text.text:
        text = text.sub(ENTITY, character)
    if "[" in text.text:
        for _ in range(2):  # a picture may be what is linked
            text = text.sub(LINK, lambda m: m[1])
        text = text.sub(NOTE, "")
    text = text.edited(_code(text.text)).sub(QUOTE, "").sub(NICK, lambda m: f"{m[1]}{m[2]}: ")
    text = text.edited(_lines(text.text))
    if "|" in text.text:
        text = text.sub(TABLE_RULE, "").sub(ROW, lambda m: m[1] + _stop(m[1], "."))
    return text.edited(_items(text.text))


def _tag(m: re.Match) -> str:
    name = m[1].lower()
    if name == "br":
        return "\n"
    return "" if name in INLINE else "\n\n" if name in BLOCKS else m[0]


def character(m: re.Match) -> str:
    """What a match of ENTITY stands for; itself where it stands for nothing."""
    said = unescape(m[0])
    return said if said.strip("\ufffd") and len(said) <= 2 else m[0]


def _stop(line: str, mark: str) -> str:
    """The mark of a line that ends in none."""
    return mark if UNENDED.search(line[-20:]) else ""


def _code(text: str) -> list[Edit]:
    """Takes the fences off code, and ends its lines: a command is no part of the next one."""
    edits: list[Edit] = []
    at = -1  # where a line of code begins; -1 outside code
    for fence in FENCE.finditer(text):
        closes = at >= 0 and len(fence[0].strip()) == 3
        for line in text[at : fence.start()].rstrip().split("\n")[:-1] if closes else ():
            end = at + len(line.rstrip())
            if any(c.isalnum() for c in line) and text[end - 1] not in ",;:.!?":
                edits.append((end, end, "."))
            at += len(line) + 1
        edits.append((fence.start(), fence.end(), ""))
        at = -1 if closes else fence.end()
    return edits


def _lines(text: str) -> list[Edit]:
    """Ends the lines of a chat, a log, a table by tabs or a list of addresses.

    There are two or more of them: a single line may belong to its sentence.
    """
    edits: list[Edit] = []
    for start, stop in _paragraphs(text):
        found = list(LINE.finditer(text, start, stop))
        for line in found if len(found) > 1 else ():
            end = text.find("\n", line.start(), stop)
            last = text[line.start() : stop if end < 0 else end].rstrip()
            at = line.start() + len(last)
            if line["cells"] is not None:
                tabs = TABS.finditer(text, line.start(), at)
                edits += [(tab.start(), tab.end(), ", ") for tab in tabs]
            if end >= 0 and not last.endswith((",", ";", ":", ".", "!", "?")):
                edits.append((at, at, "."))
    return edits


def _items(text: str) -> list[Edit]:
    """Takes the signs off the items of lists, and ends the lines before them.

    A list has two items or more: one line that begins with a dash is mostly a sentence's.
    """
    edits: list[Edit] = []
    for start, stop in _paragraphs(text):
        items = list(ITEM.finditer(text, start, stop))
        for item in items if len(items) > 1 else ():
            first = max(start, item.start() - LONGEST)
            before = text[first : item.start()].rstrip()
            at = first + len(before)
            title = before.rpartition("\n")[2].lstrip().startswith("#")
            if mark := _stop(before, ":" if item is items[0] else "."):
                edits += [] if title else [(at, at, mark)]
            number = f"{item[1]}. " if item[1] else ""
            edits.append((item.start(), item.end(), number))
    return edits


def _paragraphs(text: str) -> list[tuple[int, int]]:
    edges = [0, *(e for m in BLANK.finditer(text) for e in m.span()), len(text)]
    return list(zip(edges[::2], edges[1::2]))
