"""EPUBs for the tests, made from a few strings."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/>
</rootfiles></container>"""
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Käfer</dc:title>
<dc:creator>Ann Onym</dc:creator><dc:creator>Bob</dc:creator><dc:language>en-GB</dc:language>
{meta}</metadata><manifest>{items}</manifest><spine {toc}>{spine}</spine></package>"""
PAGE = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">
<head><title>Not said</title><style>p {{ color: red }}</style></head><body>{}</body></html>"""
NCX = """<?xml version="1.0"?><!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN"
"http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{}</navMap></ncx>"""
POINT = "<navPoint><navLabel><text>{}</text></navLabel><content src='{}'/>{}</navPoint>"
NAV = "<nav epub:type='toc'><ol>{}</ol></nav><nav epub:type='landmarks'><ol>{}</ol></nav>"


def png(size: int = 8) -> bytes:
    """A red square."""

    def part(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + b"\xc8\x1e\x28" * size for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def link(title: str, href: str, inner: str = "") -> str:
    """A line of a table of contents."""
    return f"<li><a href='{href}'>{title}</a>{inner}</li>"


def make_epub(
    path: Path,
    pages: dict[str, str],
    nav: str | None = None,
    ncx: str | None = None,
    more: dict[str, bytes] | None = None,
    cover: bytes | None = None,
) -> Path:
    """Writes an EPUB.

    Args:
        path: of the file.
        pages: bodies by name, in the order of reading.
        nav: body of the navigation document.
        ncx: contents of its navMap.
        more: other members, which may replace those made here.
        cover: a picture.
    """
    members = {"mimetype": b"application/epub+zip", "META-INF/container.xml": CONTAINER.encode()}
    items, spine, meta = [], [], ""
    for number, (name, body) in enumerate(pages.items()):
        members[f"OEBPS/{name}"] = PAGE.format(body).encode()
        items.append(f"<item id='p{number}' href='{name}' media-type='application/xhtml+xml'/>")
        spine.append(f"<itemref idref='p{number}'/>")
    if nav is not None:
        members["OEBPS/nav.xhtml"] = PAGE.format(nav).encode()
        items.append(
            "<item id='nav' properties='nav' href='nav.xhtml' media-type='application/xhtml+xml'/>"
        )
        spine.insert(0, "<itemref idref='nav'/>")
    if ncx is not None:
        members["OEBPS/toc.ncx"] = NCX.format(ncx).encode()
        items.append("<item id='ncx' href='toc.ncx' media-type='application/x-dtbncx+xml'/>")
    if cover is not None:
        members["OEBPS/cover.png"] = cover
        items.append("<item id='cover' href='cover.png' media-type='image/png'/>")
        meta = "<meta name='cover' content='cover'/>"
    members["OEBPS/book.opf"] = PACKAGE.format(
        meta=meta,
        items="".join(items),
        spine="".join(spine),
        toc="toc='ncx'" if ncx is not None else "",
    ).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in {**members, **(more or {})}.items():
            file.writestr(name, data)
    return path
