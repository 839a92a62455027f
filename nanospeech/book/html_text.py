"""HTML: a page of a book to the paragraphs that are read aloud.

Left out: scripts, styles, markers of notes and the notes themselves, page numbers, ruby readings,
Project Gutenberg's licence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from unicodedata import normalize

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BLOCKS = names(
    """h1 h2 h3 h4 h5 h6 p div section article main header footer aside figure figcaption blockquote
    ul ol li dl dt dd table caption tr pre hr body address center details summary"""
)
SILENT = names(
    """script style head title template svg math rt rp iframe object audio video noscript select
    textarea nav"""
)
VOID = names("area base br col embed hr img input link meta param source track wbr")
NOTES = {"noteref", "footnote", "footnotes", "endnote", "endnotes", "rearnote", "rearnotes"}
NOTES |= {"doc-noteref", "doc-footnote", "doc-endnote", "doc-endnotes", "doc-backlink"}
NOTES |= {"pagebreak", "doc-pagebreak", "page-list", "annoref"}
PAGE_NUMBER = re.compile(r"\b(?:pagenum|pageno|page-?number|pgnum)\b", re.I)
NOTE_CLASS = re.compile(
    r"(?<![\w-])(?:(?:foot|end|rear)notes?|pg-boilerplate)\b", re.I
)  # of Project Gutenberg, whose licence is the last; of pandoc
HIDDEN = re.compile(r"\bdisplay\s*:\s*none\b", re.I)
# of a note, as a link's text; letters and Roman numerals only where they are raised
MARKER = re.compile(r"[\[(]?(?:\d{1,3}|[*†‡§]{1,3}|[a-z]|[ivxl]{2,6})[\])]?")
SECTION = re.compile(r"<!\[(?:CDATA\[|[^\[\]<>]{0,99}\]>)|\]\]>")  # of CDATA the text stays
BREAK = "\v"  # of a line, by <br>
GONE = "\0"  # a marker that stood in brackets, which go as well; no page has this character
EMPTIED = re.compile(rf"\s*\[{GONE}+\]|\s*\({GONE}+\)|{GONE}")
BREAKS = re.compile(rf"{BREAK}\s*{BREAK}")  # between paragraphs
DEEPEST = 100  # elements within each other, of which the ends are looked for
EXPONENT = re.compile(r"[+−–-]?\d{1,3}")
SHARE = re.compile(r"\d{1,2}[/⁄]\d{1,3}")  # raised behind a number, which it is added to
RAISED = str.maketrans("0123456789+-−–", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻")
# of a note behind a mark, or of a verse
NUMBER = re.compile(r"(^|[.,;:!?\"'”’)»]\s?)[⁰-⁹¹²³]{1,3}(?![⁰-⁹¹²³⁺⁻⁄])")
ALONE = re.compile(r"(?<![\w)\]⁺⁻])[⁰-⁹¹²³]+")  # before what it belongs to
OVER = re.compile(r"[⁰-⁹¹²³]/\Z")  # what a lowered number makes a fraction of
FRACTION = re.compile(r"(?<!\w)(\d{0,9})([⁰-⁹¹²³]{1,3})⁄(\d{1,3})\b")


@dataclass
class Page:
    """A page's text.

    Attributes:
        paragraphs: in order; headings begin with "# ".
        places: index of the paragraph at which an id of interest stands.
    """

    paragraphs: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)


@dataclass
class Held:
    """Text of an element that may turn out to be a note's marker."""

    tag: str
    before: str  # what the paragraph was before it
    linked: bool
    raised: bool  # it is within <sup>, or has one


def read_page(html: str, ids: frozenset[str] = frozenset()) -> Page:
    """The paragraphs of a page of XHTML or HTML, however broken.

    Args:
        html: the page.
        ids: of elements whose places are wanted.
    """
    reader = Reader(ids)
    reader.feed(parsable(html))
    reader.close()
    reader.flush()
    return reader.page


def parsable(html: str) -> str:
    """A page without what the standard library's parser fails at.

    That raises an AssertionError at most marked sections, "<![if x]>", and looks for the end of
    each tag and comment that has none anew, in the whole page.
    """
    html = SECTION.sub("", html)
    for opened, closed, instead in (("<", ">", "&lt;"), ("<!--", "-->", "")):
        last = html.rfind(closed)
        stop = last + len(closed) if last >= 0 else 0
        html = html[:stop] + html[stop:].replace(opened, instead)
    return html.replace("<![", " ")  # what is left over, or has come together


class Reader(HTMLParser):
    """Collects a page's paragraphs as its tags go by."""

    def __init__(self, ids: frozenset[str]):
        super().__init__(convert_charrefs=True)
        self.ids, self.page = ids, Page()
        self.text = ""  # of the paragraph so far
        self.heading = False
        self.initial = ""  # a letter that is a picture, if the next text goes on with it
        self.silent: list[str] = []  # open elements of what is left out, with those inside
        self.held: list[Held] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        for name in ("id", "name"):
            if known.get(name) in self.ids:
                if tag in BLOCKS or not self.heading:  # one within a heading is of all of it
                    self.flush()
                self.page.places.setdefault(known[name], len(self.page.paragraphs))
        if tag == "body":
            self.silent = []  # of a head that does not end
        if self.silent:
            if tag not in VOID and len(self.silent) < DEEPEST:
                self.silent.append(tag)
            return
        if tag in SILENT or is_note(known):
            if tag not in VOID:
                self.silent.append(tag)
            return
        if tag in BLOCKS:
            self.flush()
            self.heading = tag in HEADINGS
        elif tag == "br":
            self.text += BREAK
        elif tag == "img":
            letter = known.get("alt", "").strip()
            self.initial = letter if len(letter) == 1 and letter.isalpha() else ""
        elif tag in ("td", "th"):
            self.text += ", " if self.text.strip() else ""
        elif tag == "sub" and OVER.search(self.text[-2:]):
            self.text = f"{self.text[:-1]}⁄"
        elif len(self.held) < DEEPEST and (
            tag == "sup" or (tag == "a" and "#" in known.get("href", ""))
        ):
            within = any(held.raised for held in self.held)
            self.held.append(Held(tag, self.text, tag == "a", tag == "sup" or within))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.silent:
            if tag in self.silent:  # an element that was never closed ends with the one around it
                while self.silent.pop() != tag:
                    pass
            return
        if tag in BLOCKS:
            self.flush()
        elif tag in ("a", "sup") and any(held.tag == tag for held in self.held):
            while True:
                held = self.held.pop()
                self.drop_marker(held)
                if held.tag == tag:
                    break

    def drop_marker(self, held: Held) -> None:
        """Removes what a link said if it marks a note: [1], *; a number by <sup> is raised.

        A number that is linked behind a space is the book's own, as in "see Chapter 5".
        """
        said = self.text[len(held.before) :].strip()
        near, before = held.before[-1:], held.before.rstrip()
        linked = any(other.linked for other in self.held)
        if held.raised:
            for other in self.held:
                other.raised = True
        number = said.isdigit() and near.isspace()
        marker = MARKER.fullmatch(said) and (held.raised or not (said.isalpha() or number))
        if held.linked and marker and before:
            self.text = held.before + GONE * (before[-1] in "[(")
        elif not held.linked and not linked and EXPONENT.fullmatch(said):
            self.text = held.before + said.translate(RAISED)
        elif held.raised and near.isdigit() and SHARE.fullmatch(said):
            self.text = f"{held.before} {said}"

    def handle_data(self, data: str) -> None:
        if not self.silent and data:
            self.text += self.initial * data[0].isalpha() + data.replace(GONE, "")
            self.initial = ""

    def flush(self) -> None:
        """Ends the paragraph; an empty line of <br> stands between two."""
        parts = [self.text] if self.heading else BREAKS.split(self.text)
        self.text, self.held, self.initial = "", [], ""
        for part in parts:
            said = EMPTIED.sub("", " ".join(part.split()))
            said = " ".join(lowered(said).split())
            if any(c.isalnum() for c in said):
                self.page.paragraphs.append(f"# {said}" if self.heading else said)
        self.heading = False


def lowered(text: str) -> str:
    """A paragraph in which exponents alone are raised numbers: no fractions, isotopes and notes."""
    text = FRACTION.sub(lambda m: f"{m[1]} {normalize('NFKC', m[2])}/{m[3]}", text)
    return ALONE.sub(lambda m: normalize("NFKC", m[0]), NUMBER.sub(r"\1", text))


def is_note(attributes: dict[str, str]) -> bool:
    """Whether an element is a note, its marker or a page's number, or hidden."""
    kinds = f"{attributes.get('epub:type', '')} {attributes.get('role', '')}".lower().split()
    named = attributes.get("class", "")
    return (
        bool(NOTES & set(kinds))
        or "hidden" in attributes
        or any(pattern.search(named) for pattern in (PAGE_NUMBER, NOTE_CLASS))
        or bool(HIDDEN.search(attributes.get("style", "")))
    )


@dataclass(frozen=True)
class Entry:
    """A line of a table of contents.

    Attributes:
        title: as printed.
        href: where it leads to.
        depth: 1 for the uppermost.
    """

    title: str
    href: str
    depth: int


def read_nav(html: str) -> list[Entry]:
    """The table of contents of an EPUB 3 navigation document; its other lists are left out."""
    reader = Navigation()
    reader.feed(parsable(html))
    reader.close()
    return reader.entries


class Navigation(HTMLParser):
    """Collects the links of <nav epub:type="toc">, with the depth of their lists."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.entries: list[Entry] = []
        self.inside, self.depth = False, 0
        self.href: str | None = None
        self.title = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        if tag == "nav":
            self.inside = "toc" in f"{known.get('epub:type', '')} {known.get('role', '')}"
            self.depth = 0
        elif self.inside and tag == "ol":
            self.depth += 1
        elif self.inside and tag == "a" and known.get("href"):
            self.href, self.title = known["href"], ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "nav":
            self.inside = False
        elif tag == "ol":
            self.depth -= 1
        elif tag == "a" and self.href is not None:
            self.entries.append(Entry(" ".join(self.title.split()), self.href, max(1, self.depth)))
            self.href = None

    def handle_data(self, data: str) -> None:
        if self.href is not None:
            self.title += data
