"""EPUB: chapters by the table of contents (EPUB 3's nav, else EPUB 2's ncx), text by the spine.

Of what a package may hold, the container, the package document, the table of contents, pages and a
cover are read; nothing is run, fetched or written.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from xml.etree.ElementTree import Element

from nanospeech.errors import InputError

from .archive import Archive, resolve, spelled
from .html_text import Entry, Page, read_nav, read_page
from .pages import Book, Chapter
from .trees import first_text, parse_xml

log = logging.getLogger("nanospeech")

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
PAGE_NAMES = (".xhtml", ".html", ".htm")  # of pages whatever type they are listed with
PICTURES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
MOST_PAGES = 10_000
FIRST = 4  # paragraphs of a chapter that its title may be in
ENCODING = re.compile(rb"^\s*<\?xml[^>]*encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
CHARSET = re.compile(rb"<meta\b[^>]*\bcharset\s*=\s*[\"']?([A-Za-z0-9._-]+)", re.I)
# of Python alone: what they decode to may be no text, or take hours
NO_ENCODINGS = ("utf-7", "unicode-escape", "raw-unicode-escape", "punycode", "idna")
STRAY = {0xDC00 + i: bytes([i]).decode("cp1252", "replace") for i in range(128, 256)}
HEAD = 1024  # bytes of a page in which a <meta> names its encoding (WHATWG, HTML)


@dataclass(frozen=True)
class Start:
    """Where a chapter begins.

    Attributes:
        title: of the chapter.
        page: index in the spine.
        place: id of an element; "" for the page's start.
    """

    title: str
    page: int
    place: str


@dataclass(frozen=True)
class Item:
    """A file that the package document lists."""

    name: str
    kind: str
    properties: str


def read_epub(path: str | Path, depth: int = 2) -> Book:
    """Reads an EPUB's package document and table of contents.

    Args:
        path: the file.
        depth: levels of the table of contents that become chapters.

    Raises:
        InputError: it is no EPUB, damaged where the whole depends on it, or beyond the bounds.
    """
    archive = Archive(path)
    name, package = find_package(archive)
    items = manifest(package, name)
    spine = find_spine(package, items)
    if not spine:
        raise InputError(f"{path} has no pages that can be read")
    try:
        entries = contents(archive, package, items)
    except InputError as e:
        log.warning("a chapter for each page, as there is no table of contents to go by: %s", e)
        entries = []
    starts = find_starts(entries, spine, depth)
    title = first_text(package, "title") or Path(path).stem
    reader = Pages(archive, spine, starts)
    chapters = reader.by_contents(title) if starts else reader.by_page()
    return Book(
        title=title,
        author=", ".join(authors(package)),
        language=first_text(package, "language"),
        chapters=tuple(chapters),
        cover=find_cover(archive, package, items),
    )


def find_package(archive: Archive) -> tuple[str, Element]:
    """The package document (.opf) and its name."""
    name = ""
    if CONTAINER in archive:
        root = parse_xml(archive.read(CONTAINER), CONTAINER)
        name = next((e.get("full-path", "") for e in root.iter("rootfile")), "")
    if name not in archive:
        name = next((n for n in archive.members if n.lower().endswith(".opf")), "")
    if not name:
        raise InputError(f"{archive.path} is no EPUB: it has no package document (.opf)")
    return name, parse_xml(archive.read(name), name)


def authors(package: Element) -> list[str]:
    """Who wrote a book; where nobody is said to have, all creators: illustrators, editors."""
    roles: dict[str, set[str]] = {}  # of EPUB 3, each one or several; EPUB 2 has attributes
    for e in package.iter("meta"):
        if e.get("property") == "role":
            who = e.get("refines", "").removeprefix("#")
            roles.setdefault(who, set()).add((e.text or "").strip().lower())
    found = [
        (name, {role.lower()} if (role := e.get("role")) else roles.get(e.get("id", ""), {"aut"}))
        for e in package.iter("creator")
        if (name := " ".join((e.text or "").split()))
    ]
    return [name for name, of in found if "aut" in of] or [name for name, _ in found]


def manifest(package: Element, name: str) -> dict[str, Item]:
    """The files that a package lists, by id."""
    return {
        e.get("id", ""): Item(
            resolve(name, href := e.get("href", ""))[0] or f"{href!r} (outside of the book)",
            e.get("media-type", "").lower(),
            e.get("properties", ""),
        )
        for e in package.iter("item")
    }


def find_spine(package: Element, items: dict[str, Item]) -> list[str]:
    """Names of the pages in the order of reading, without a navigation document."""
    found = []
    for reference in package.iter("itemref"):
        item = items.get(reference.get("idref", ""))
        if item is None or reference.get("linear") == "no":
            continue
        if item.kind not in PAGES and not item.name.lower().endswith(PAGE_NAMES):
            continue
        if "nav" not in item.properties.split() and item.name not in found:
            found.append(item.name)
        if len(found) > MOST_PAGES:
            raise InputError(f"the book has more than {MOST_PAGES} pages")
    return found


def contents(
    archive: Archive, package: Element, items: dict[str, Item]
) -> list[tuple[Entry, str, str]]:
    """The table of contents: entries with the member and the place that they lead to."""
    for item in items.values():
        if "nav" in item.properties.split() and item.name in archive:
            entries = read_nav(decode(archive.read(item.name)))
            if entries:
                return [(e, *resolve(item.name, e.href)) for e in entries]
    spine = next(package.iter("spine"), None)
    listed = items.get(spine.get("toc", "") if spine is not None else "")
    ncx = listed or next((i for i in items.values() if "ncx" in i.kind), None)
    if ncx is None or ncx.name not in archive:
        return []
    root = parse_xml(archive.read(ncx.name), ncx.name)
    return [(e, *resolve(ncx.name, e.href)) for e in nav_points(root)]


def nav_points(root: Element) -> list[Entry]:
    """The entries of an ncx, in order."""
    found: list[Entry] = []
    todo = [(point, 1) for m in root.iter("navMap") for point in reversed(m.findall("navPoint"))]
    while todo:
        point, depth = todo.pop()
        label, target = point.find("navLabel"), point.find("content")
        title = first_text(label, "text") if label is not None else ""
        if target is not None and target.get("src"):
            found.append(Entry(title, target.get("src", ""), depth))
        todo += [(inner, depth + 1) for inner in reversed(point.findall("navPoint"))]
    return found


def find_starts(
    entries: Sequence[tuple[Entry, str, str]], spine: list[str], depth: int
) -> list[Start]:
    """Where chapters begin, in the order of reading; of entries for one place the last counts."""
    places = {spelled(name): i for i, name in enumerate(spine)}
    found: dict[tuple[int, str], str] = {}
    for entry, name, place in entries:
        if spelled(name) in places and entry.depth <= depth:
            key = places[spelled(name)], place
            found.pop(key, None)
            found[key] = entry.title
    starts = [Start(title, page, place) for (page, place), title in found.items()]
    return sorted(starts, key=lambda s: s.page)


class Pages:
    """The pages of a book, cut into chapters; a page is read when its chapter is.

    Args:
        archive: the file.
        spine: names of the pages.
        starts: of the chapters, in order.
    """

    def __init__(self, archive: Archive, spine: list[str], starts: list[Start]):
        self.archive, self.spine = archive, spine
        self.sealed = encrypted(archive)
        self.ids = {
            page: frozenset(s.place for s in starts if s.page == page and s.place)
            for page in {s.page for s in starts}
        }
        self.page = lru_cache(maxsize=2)(self._page)
        grouped = groupby(starts, lambda start: start.page)
        self.starts = [start for page, some in grouped for start in self._ordered(page, [*some])]

    def _ordered(self, page: int, starts: list[Start]) -> list[Start]:
        """The starts of a page in the order of the page, whatever the contents have.

        One whose place is not there is at the page's beginning; of several at one place the last
        counts. What begins with the page has no place.
        """
        if not any(start.place for start in starts):
            return starts
        try:
            places = self.page(page).places
        except InputError:  # told when the chapter is read
            return starts
        found: dict[int, Start] = {}
        for start in starts:
            known = start.place in places
            at = places[start.place] if known else 0
            if known or at not in found:
                found[at] = Start(start.title, page, start.place if at else "")
        return [found[at] for at in sorted(found)]

    def _page(self, index: int) -> Page:
        name = self.spine[index]
        if spelled(name) in self.sealed:
            raise InputError(f"{name} is encrypted; a book with copy protection cannot be read")
        return read_page(decode(self.archive.read(name)), self.ids.get(index, frozenset()))

    def by_contents(self, book_title: str) -> list[Chapter]:
        """A chapter for each start, and one for pages before the first."""
        first, starts = self.starts[0], self.starts
        titles = [start.title for start in starts]
        if first.page or first.place:
            starts, titles = [Start("", 0, ""), *starts], [book_title, *titles]
        stops = [*starts[1:], Start("", len(self.spine), "")]
        return [
            Chapter(title or f"Chapter {n}", lambda a=start, b=stop: self.text(a, b))
            for n, (title, start, stop) in enumerate(zip(titles, starts, stops), 1)
        ]

    def by_page(self) -> list[Chapter]:
        """A chapter for each page, named by its first heading."""
        chapters = []
        for index in range(len(self.spine)):
            start, stop = Start("", index, ""), Start("", index + 1, "")
            try:
                paragraphs = self.page(index).paragraphs
            except InputError:  # told when the chapter is read
                paragraphs = [""]
            heading = next((p[2:] for p in paragraphs if p.startswith("# ")), "")
            if paragraphs:
                title = heading or f"Chapter {len(chapters) + 1}"
                chapters.append(Chapter(title, lambda a=start, b=stop: self.text(a, b)))
        return chapters

    def text(self, start: Start, stop: Start) -> str:
        """The paragraphs from one place to another, under the title if they have no heading."""
        found: list[str] = []
        for index in range(start.page, min(stop.page + 1, len(self.spine))):
            if index == stop.page and not stop.place:
                break
            page = self.page(index)
            low = page.places.get(start.place, 0) if index == start.page else 0
            high = page.places.get(stop.place, 0) if index == stop.page else len(page.paragraphs)
            found += page.paragraphs[low:high]
        if found and not says_title(found, start.title):
            found.insert(0, f"# {start.title}")
        return "\n\n".join(found)


def says_title(paragraphs: Sequence[str], title: str) -> bool:
    """Whether a chapter begins with a heading, or with its title in one or more paragraphs.

    Many books print it in paragraphs of a style of their own, the number before the name.
    """
    first = paragraphs[:FIRST]
    wanted, *said = ("".join(c for c in text.casefold() if c.isalnum()) for text in (title, *first))
    for i, paragraph in enumerate(first):
        known = wanted.endswith(said[i]) or said[i].endswith(wanted)
        if paragraph.startswith("# ") and (i == 0 or known):
            return True
        if any("".join(said[i:stop]) == wanted for stop in range(i + 1, len(said) + 1)):
            return True
    return not wanted


def encrypted(archive: Archive) -> set[str]:
    """Names of the members that are encrypted for a reader program, in one spelling."""
    if ENCRYPTION not in archive:
        return set()
    root = parse_xml(archive.read(ENCRYPTION), ENCRYPTION)
    return {spelled(resolve("", e.get("URI", ""))[0]) for e in root.iter("CipherReference")}


def find_cover(archive: Archive, package: Element, items: dict[str, Item]) -> bytes | None:
    """The cover, if it is a JPEG or PNG."""
    names = [i.name for i in items.values() if "cover-image" in i.properties.split()]
    for meta in package.iter("meta"):
        if meta.get("name") == "cover" and meta.get("content", "") in items:
            names.append(items[meta.get("content", "")].name)
    for name in names:
        try:
            data = archive.read(name)
        except InputError:
            continue
        if picture_kind(data):
            return data
    return None


def picture_kind(data: bytes) -> str:
    """jpeg, png or "", by the first bytes."""
    return next((kind for magic, kind in PICTURES.items() if data.startswith(magic)), "")


def decode(data: bytes) -> str:
    """A page's text: by its byte order mark, its XML declaration, as UTF-8, by its <meta>.

    Without any of these it is Windows-1252, and so are single bytes that are no UTF-8.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    declared, named = ENCODING.match(data), CHARSET.search(data[:HEAD])
    for name in (declared, "utf-8-sig", named):
        try:
            if name:
                known = name if isinstance(name, str) else declared_encoding(name[1].decode())
                return data.decode(known)
        except (UnicodeError, LookupError):
            continue
    return data.decode("utf-8-sig", errors="surrogateescape").translate(STRAY)


def declared_encoding(name: str) -> str:
    """What a page is encoded in that says so in ASCII, as browsers take it (WHATWG, HTML).

    Then it cannot be UTF-16, and what is called Latin-1 has the quotes of Windows.
    """
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return name
    if known.startswith(("utf-16", "utf-32")) or known in NO_ENCODINGS:
        return "utf-8-sig"
    return "cp1252" if known in ("iso8859-1", "ascii") else name
