"""EPUB: chapters, what is read of a page, and files that are broken or mean harm."""

from __future__ import annotations

import re
import struct
import time
import zipfile

import pytest

from nanospeech.book import archive
from nanospeech.book.archive import Archive, resolve
from nanospeech.book.epub import decode
from nanospeech.book.html_text import read_nav, read_page
from nanospeech.book.opening import open_book
from nanospeech.book.trees import parse_xml
from nanospeech.errors import InputError

from .epubs import NAV, PACKAGE, POINT, link, make_epub, png

PAGES = {
    "front.xhtml": "<p>For the beetle.</p>",
    "one.xhtml": "<h1 id='a'>One</h1><p>First.</p><h2 id='b'>Within</h2><p>Second.</p>",
    "two.xhtml": "<p>Third.</p>",
    "more.xhtml": "<p>Fourth.</p><p id='c'>Fifth.</p>",
}


def texts(path, **options) -> list[tuple[str, str]]:
    return [(c.title, c.read()) for c in open_book(path, **options).chapters]


def test_chapters_are_those_of_the_contents_and_no_page_is_lost(tmp_path):
    inner = (
        f"<ol>{link('Within', 'one.xhtml#b', '<ol>' + link('Deep', 'more.xhtml') + '</ol>')}</ol>"
    )
    nav = NAV.format(
        link("One", "one.xhtml#a", inner) + link("Two &amp; more", "two.xhtml"),
        link("Not this", "more.xhtml"),
    )
    path = make_epub(tmp_path / "b.epub", PAGES, nav=nav, cover=png())
    book = open_book(path)
    assert (book.title, book.author, book.language) == ("The Käfer", "Ann Onym, Bob", "en-GB")
    assert book.cover == png()
    assert texts(path) == [
        ("The Käfer", "For the beetle."),
        ("One", "# One\n\nFirst."),
        ("Within", "# Within\n\nSecond."),
        ("Two & more", "# Two & more\n\nThird.\n\nFourth.\n\nFifth."),
    ]
    assert [title for title, _ in texts(path, depth=1)] == ["The Käfer", "One", "Two & more"]
    assert texts(path, depth=3)[-1] == ("Deep", "# Deep\n\nFourth.\n\nFifth.")


@pytest.mark.parametrize(
    ("title", "body", "said"),
    [
        ("I. Pools", "<h2><a id='c'></a>I.<br/>Pools</h2><p>Go.</p>", "# I. Pools\n\nGo."),
        ("Pools", "<h2>Pools<a name='c'></a></h2><p>Go.</p>", "# Pools\n\nGo."),
        ("1. Pools", "<p id='c'>1</p><p>Pools</p><p>Go.</p>", "1\n\nPools\n\nGo."),
        ("Pools", "<p id='c'>ONE</p><h2>Pools</h2><p>Go.</p>", "ONE\n\n# Pools\n\nGo."),
        ("One: Pools", "<p id='c'>ONE</p><h2>Pools</h2><p>Go.</p>", "ONE\n\n# Pools\n\nGo."),
        ("Pools", "<p id='c'>ONE</p><p>Go.</p><h2>Lakes</h2>", "# Pools\n\nONE\n\nGo.\n\n# Lakes"),
    ],
)
def test_a_title_is_said_once_wherever_its_anchor_is_and_however_it_is_set(
    tmp_path, title, body, said
):
    page = {"one.xhtml": f"<h1>Start</h1><p>It begins.</p>{body}"}
    nav = NAV.format(link("Start", "one.xhtml") + link(title, "one.xhtml#c"), "")
    start, chapter = open_book(make_epub(tmp_path / "b.epub", page, nav=nav)).chapters
    assert start.read() == "# Start\n\nIt begins."
    assert (chapter.title, chapter.read()) == (title, said)


def test_a_title_that_no_page_has_is_said_of_the_first_chapter_too(tmp_path):
    pages = {"one.xhtml": "<p>First.</p>", "two.xhtml": "<p>Second.</p>"}
    nav = NAV.format(link("One", "one.xhtml") + link("Two", "two.xhtml"), "")
    path = make_epub(tmp_path / "b.epub", pages, nav=nav)
    assert texts(path) == [("One", "# One\n\nFirst."), ("Two", "# Two\n\nSecond.")]


def test_an_ncx_is_read_where_there_is_no_nav(tmp_path):
    inner = POINT.format("Within", "one.xhtml#b", "")
    ncx = POINT.format("One", "one.xhtml", inner) + POINT.format("Five", "more.xhtml#c", "")
    path = make_epub(tmp_path / "b.epub", PAGES, ncx=ncx)
    assert texts(path) == [
        ("The Käfer", "For the beetle."),
        ("One", "# One\n\nFirst."),
        ("Within", "# Within\n\nSecond.\n\nThird.\n\nFourth."),
        ("Five", "# Five\n\nFifth."),
    ]


def test_a_picture_among_the_pages_ends_no_book(tmp_path):
    path = make_epub(tmp_path / "b.epub", PAGES, cover=png())
    with zipfile.ZipFile(path) as file:
        package = file.read("OEBPS/book.opf")
    package = package.replace(b"<spine >", b"<spine><itemref idref='cover'/>")
    path = make_epub(path, PAGES, cover=png(), more={"OEBPS/book.opf": package})
    assert len(open_book(path).chapters) == len(PAGES)


def test_an_ncx_is_found_where_the_spine_does_not_name_it(tmp_path):
    ncx = POINT.format("One", "one.xhtml", "")
    path = make_epub(tmp_path / "b.epub", PAGES, ncx=ncx)
    with zipfile.ZipFile(path) as file:
        package = file.read("OEBPS/book.opf").replace(b"toc='ncx'", b"")
    path = make_epub(path, PAGES, ncx=ncx, more={"OEBPS/book.opf": package})
    assert [title for title, _ in texts(path)] == ["The Käfer", "One"]


def test_a_part_of_an_ncx_that_leads_nowhere_is_no_chapter(tmp_path):
    label = "<navLabel><text>Part</text></navLabel>"
    inner = POINT.format("One", "one.xhtml", "") + f"<navPoint>{label}<content/></navPoint>"
    path = make_epub(tmp_path / "b.epub", PAGES, ncx=f"<navPoint>{label}{inner}</navPoint>")
    assert [title for title, _ in texts(path)] == ["The Käfer", "One"]


def test_pages_are_chapters_where_there_are_no_contents(tmp_path):
    path = make_epub(tmp_path / "b.epub", {**PAGES, "empty.xhtml": "<img src='a.png'/>"})
    assert [c.title for c in open_book(path).chapters] == [
        "Chapter 1",
        "One",
        "Chapter 3",
        "Chapter 4",
    ]


def test_what_is_no_text_of_the_book_is_not_read():
    page = read_page(
        "<script>a()</script><style>b</style><p>It<sup><a href='#n1'>1</a></sup> was"
        " <b>so</b>.<a href='notes.xhtml#n2'>[2]</a> Said he.<sup>3</sup> Now"
        "<a epub:type='noteref' href='#x'>see</a>.</p>"
        "<span class='pagenum'>12</span><aside epub:type='footnote'><p>A note.</p></aside>"
        "<p>H<sub>2</sub>O and the 1<sup>st</sup> of x<sup>2</sup>,<br/>then"
        " <a href='#part'>the part</a> &amp; <ruby>漢<rt>kan</rt></ruby>.</p><p>* * *</p>"
        "<table><tr><td>a</td><td>b</td></tr></table><h2>A<br/>B</h2><p hidden>no</p>"
    )
    assert page.paragraphs == [
        "It was so. Said he. Now.",
        "H2O and the 1st of x², then the part & 漢.",
        "a, b",
        "# A B",
    ]


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("See Chapter <a href='#c5'>5</a> and Figure&nbsp;<a href='a#f'>3</a>.", "5 and Figure 3."),
        ("It was<a href='#n'>1</a> so <a href='#n'>[2]</a> here.", "It was so here."),
        ("It<a href='#n'><sup>a</sup></a> was <a href='#n'><sup>1</sup></a> so.", "It was so."),
        ("It<sup><a href='#n'>iv</a></sup> was <a href='#n'>vi</a> so.", "It was vi so."),
        ("It was.[<a href='#n'>1</a>] So <sup>[<a href='#n'>2</a>]</sup> is it.", "was. So is it."),
        ("It (<a href='#n'>12</a>) was (<a href='#t'>table 2</a>, x()).", "It was (table 2, x())."),
        ("10<sup>6</sup> in 3 m<sup>2</sup>, 10<sup>−8</sup>", "10⁶ in 3 m², 10⁻⁸"),
        (
            "<sup>1</sup>It was. <sup>2</sup>And it&#160;is.<sup>12</sup> So",
            "It was. And it is. So",
        ),
        ("the <sup>14</sup>C", "the 14C"),
        ("Add, <sup>1</sup>/<sub>2</sub> cup", "Add, 1/2 cup"),
        ("2<sup>1</sup>/<sub>2</sub> or 10<sup>2</sup>/5", "2 1/2 or 10²/5"),
        ("2<sup>1/2</sup> cups, <sup>3⁄4</sup> of 10<sup>3⁄4</sup>", "2 1/2 cups, 3⁄4 of 10 3⁄4"),
    ],
)
def test_numbers_that_mark_no_note_stay_what_they_are(html, said):
    assert read_page(html).paragraphs[0].endswith(said)


def test_notes_are_known_by_their_class_and_letters_that_are_pictures_are_read():
    page = read_page(
        "<p><img class='drop' alt='T'/>he <i>end</i>,<a class='footnote-ref' href='#n'>1</a> he"
        " said."
        "<img alt='x'/> <span style='display: none'>no</span></p><div><img alt='N'/></div>"
        "<p><img alt='Cat'/>ran.</p>"
        "<div class='footnote'><p><a href='#r'>[1]</a> A note.</p></div><p class='foot'>Go.</p>"
        "<section class='footnotes footnotes-end-of-document'><p>Another.</p></section>"
        "<p class='has-footnote'>Stay.</p>"
        "<section class='pg-boilerplate pgheader'><h2>A licence</h2><p>By reading.</p></section>"
    )
    assert page.paragraphs == ["The end, he said.", "ran.", "Go.", "Stay."]


def test_a_place_within_a_paragraph_begins_another():
    page = read_page("<p>One <a id='c'></a>two.</p>", frozenset("c"))
    assert (page.paragraphs, page.places) == (["One", "two."], {"c": 1})


def test_contents_are_the_links_of_their_own_list_alone():
    others = f"<ol>{link('Other', 'o.xhtml')}</ol>"
    own = link("One", "1.xhtml", f"<ol>{link('Within', '2.xhtml')}</ol>")
    toc = f"<nav epub:type='toc'><ol>{own}</ol></nav>"
    found = read_nav(f"<nav epub:type='landmarks'>{others}</nav>{toc}{others}")
    assert [(e.title, e.href, e.depth) for e in found] == [
        ("One", "1.xhtml", 1),
        ("Within", "2.xhtml", 2),
    ]


def test_two_breaks_of_a_line_are_between_paragraphs():
    page = read_page(
        "<div>One<br/>\n <br/>He<sup><a href='#n'>1</a></sup> said<br>so.<br><br><br>\n\nTwo</div>"
        "<h2>A<br/><br/>B</h2>"
    )
    assert page.paragraphs == ["One", "He said so.", "Two", "# A B"]


def test_what_is_left_out_ends_with_its_own_element_and_links_are_text():
    assert read_page(
        "<p>a</p><div role='doc-footnote'><br>b<div>c</div>d<img src='x'></div><p>e</p>"
        "<p>See chapter <a href='two.xhtml'>5</a>, or <a name='q' href='#p'>page</a> 7.</p>"
    ).paragraphs == ["a", "e", "See chapter 5, or page 7."]


def test_broken_markup_is_read_as_far_as_it_goes():
    assert read_page("<head><link href='a'><title>No</title><body><p>One").paragraphs == ["One"]
    assert read_page("<p>One<p>Two <b>three</p></i> four<script>x").paragraphs == [
        "One",
        "Two three",
        "four",
    ]
    (said,) = read_page("<p>a &bogus; b &#x110000; <").paragraphs
    assert said.startswith("a &bogus; b")


def test_a_damaged_page_is_reported_and_the_others_are_read(tmp_path):
    nav = NAV.format(link("One", "one.xhtml") + link("Two", "two.xhtml"), "")
    path = make_epub(tmp_path / "b.epub", PAGES, nav=nav)
    with zipfile.ZipFile(path) as file:
        info = file.getinfo("OEBPS/one.xhtml")
        at = info.header_offset + 30 + len(info.filename) + 5
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    front, one, two = open_book(path).chapters
    with pytest.raises(InputError, match=r"one\.xhtml is damaged"):
        one.read()
    assert front.read() == "For the beetle." and two.read().endswith("Fifth.")


def test_copy_protection_is_named(tmp_path):
    sealed = b"<encryption><CipherReference URI='OEBPS/one.xhtml'/></encryption>"
    path = make_epub(tmp_path / "b.epub", PAGES, more={"META-INF/encryption.xml": sealed})
    chapters = open_book(path).chapters
    assert chapters[0].read()
    with pytest.raises(InputError, match="copy protection"):
        chapters[1].read()


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1/x"> %p;]><a/>',
        "<a>" * 200,
        "<a><b></a>",
        "",
    ],
)
def test_documents_with_entities_or_without_form_are_refused(tmp_path, document):
    with pytest.raises(InputError, match="a document"):
        parse_xml(document.encode(), "a document")
    encoded = document.encode("utf-16")
    path = make_epub(tmp_path / "b.epub", PAGES, more={"OEBPS/book.opf": encoded})
    with pytest.raises(InputError, match=r"book\.opf"):
        open_book(path)


def test_zip_bombs_are_refused_before_they_grow(tmp_path, monkeypatch):
    big = {"OEBPS/one.xhtml": b"<p>" + b"a" * (8 << 20)}
    path = make_epub(tmp_path / "ratio.epub", PAGES, more=big)
    assert path.stat().st_size < 20_000
    with pytest.raises(InputError, match=r"one\.xhtml grows from"):
        open_book(path).chapters[1].read()

    monkeypatch.setattr(archive, "LARGEST_RATIO", 10**9)
    monkeypatch.setattr(archive, "LARGEST_TOTAL", 1 << 20)
    with pytest.raises(InputError, match="of a book are read"):
        open_book(path).chapters[1].read()
    with pytest.raises(InputError, match="at most 1000 are read"):
        Archive(path).read("OEBPS/one.xhtml", 1000)

    monkeypatch.setattr(archive, "LARGEST_FILE", path.stat().st_size - 1)
    with pytest.raises(InputError, match="MiB; at most 0 are read"):
        Archive(path)
    monkeypatch.setattr(archive, "LARGEST_FILE", path.stat().st_size)
    monkeypatch.setattr(archive, "MOST_MEMBERS", 5)
    with pytest.raises(InputError, match="at most 5 are read"):
        open_book(path)
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 100)
    with pytest.raises(InputError, match="a directory of"):
        open_book(path)


def test_a_directory_is_as_large_as_zipfile_takes_it_to_be(tmp_path):
    """ZIP64 tells its size once more, and an end's fields may hold what an end begins with."""
    path = make_epub(tmp_path / "b.epub", PAGES)
    data, large = path.read_bytes(), 9 << 20
    plain = data[:-22] + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, large, len(data), 0)
    twice = data[:-22] + struct.pack("<4s4s2H2LH", b"PK\5\6", b"PK\5\6", 1, 1, large, 0, 0)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, large, 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(data) - 22, 1)
    for changed in (plain, twice, data[:-22] + record + locator + data[-22:]):
        path.write_bytes(changed)
        with pytest.raises(InputError, match=f"has a directory of {large} bytes; at most"):
            open_book(path)


def test_a_size_that_the_header_understates_is_no_way_in(tmp_path):
    path = make_epub(tmp_path / "b.epub", PAGES, more={"OEBPS/one.xhtml": b"<p>" + b"ab" * 500_000})
    data = path.read_bytes()
    real = (1_000_003).to_bytes(4, "little")
    assert data.count(real) == 2
    path.write_bytes(data.replace(real, (900).to_bytes(4, "little")))
    with pytest.raises(InputError, match="damaged"):
        open_book(path).chapters[1].read()


def test_links_stay_inside_of_the_archive(tmp_path):
    assert resolve("OEBPS/text/a.xhtml", "../b%20c.xhtml#d") == ("OEBPS/b c.xhtml", "d")
    assert resolve("OEBPS/a.xhtml", "#d") == ("OEBPS/a.xhtml", "d")
    assert resolve("OEBPS/a.xhtml", "/OEBPS/b.xhtml") == ("OEBPS/b.xhtml", "")  # the archive's root
    for href in ("../../etc/passwd", "/../etc/passwd", "file:///etc/passwd", "//host/a", "..\\a"):
        assert resolve("OEBPS/a.xhtml", href)[0] == ""
    item = "<item id='p0' href='../../../../etc/passwd' media-type='application/xhtml+xml'/>"
    package = PACKAGE.format(meta="", items=item, spine="<itemref idref='p0'/>", toc="")
    path = make_epub(tmp_path / "b.epub", PAGES, more={"OEBPS/book.opf": package.encode()})
    with pytest.raises(InputError, match=r"has no '../../../../etc/passwd' \(outside of the book"):
        open_book(path).chapters[0].read()


@pytest.mark.parametrize(
    ("href", "name"),
    [
        ("a%20b.xhtml", "a b.xhtml"),
        ("a%20b.xhtml", "a%20b.xhtml"),
        ("Text/One.xhtml", "text/one.xhtml"),
        ("h\u00f6.xhtml", "ho\u0308.xhtml"),
        ("h%C3%B6.xhtml", "h\u00f6.xhtml"),
    ],
)
@pytest.mark.parametrize("between", ["/", "\\"])
@pytest.mark.parametrize("flagged", [True, False])
def test_a_page_is_found_however_its_name_is_spelled(tmp_path, href, name, flagged, between):
    nav = NAV.format(link("Its title", href.swapcase() if "%" not in href else href), "")
    path = make_epub(tmp_path / "b.epub", {href: "<h1>A</h1><p>Found.</p>"}, nav=nav)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "c.epub", "w") as new:
        for info in old.infolist():
            own = info.filename if info.filename != f"OEBPS/{href}" else f"OEBPS/{name}"
            member = zipfile.ZipInfo("a")  # which would make slashes of backslashes on Windows
            member.filename = own.replace("/", between)
            new.writestr(member, old.read(info))
    if not flagged:  # as old archivers write it
        data = (tmp_path / "c.epub").read_bytes()
        for head, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            data = re.sub(
                re.escape(head) + b".{%d}" % (at - 4) + b"(..)",
                lambda m: m[0][:-1] + bytes([m[0][-1] & ~8]),
                data,
                flags=re.S,
            )
        (tmp_path / "c.epub").write_bytes(data)
    chapters = open_book(tmp_path / "c.epub").chapters
    assert [(c.title, c.read()) for c in chapters] == [("Its title", "# A\n\nFound.")]


def test_titles_of_an_ncx_may_have_the_entities_of_html(tmp_path):
    ncx = POINT.format("Caf&eacute;&nbsp;&amp; bar", "one.xhtml", "")
    path = make_epub(tmp_path / "b.epub", PAGES, ncx=ncx)
    assert open_book(path).chapters[1].title == "Café & bar"
    more = {"OEBPS/toc.ncx": f"\n<ncx><navMap>{ncx}</navMap></ncx>".encode()}  # no document type
    path = make_epub(tmp_path / "b.epub", PAGES, ncx=ncx, more=more)
    assert open_book(path).chapters[1].title == "Café & bar"


def test_no_text_is_read_twice_or_lost_where_the_contents_are_out_of_order(tmp_path):
    page = "<h2 id='a'>A</h2><p>first.</p><h2 id='b'>B</h2><p>second.</p>"
    toc = link("B", "one.xhtml#b") + link("A", "one.xhtml#a") + link("C", "one.xhtml#nowhere")
    path = make_epub(tmp_path / "b.epub", {"one.xhtml": page}, nav=NAV.format(toc, ""))
    assert [(c.title, c.read()) for c in open_book(path).chapters] == [
        ("A", "# A\n\nfirst."), ("B", "# B\n\nsecond."),
    ]  # fmt: skip
    toc = link("One", "one.xhtml") + link("Two", "one.xhtml#nowhere")
    path = make_epub(tmp_path / "b.epub", {"one.xhtml": page}, nav=NAV.format(toc, ""))
    assert [c.read()[:8] for c in open_book(path).chapters] == ["# A\n\nfir"]


def test_contents_that_cannot_be_read_cost_no_page(tmp_path, caplog):
    more = {"OEBPS/toc.ncx": b"<ncx><navMap>"}
    path = make_epub(tmp_path / "b.epub", PAGES, ncx="<ncx/>", more=more)
    assert len(open_book(path).chapters) == len(PAGES)
    assert "no table of contents to go by: OEBPS/toc.ncx" in caplog.text


@pytest.mark.parametrize("kind", ["application/xml", "text/xml", "", "text/x-oeb1-document"])
def test_a_page_is_read_whatever_type_it_is_listed_with(tmp_path, kind):
    item = f"<item id='p0' href='one.xhtml' media-type='{kind}'/>"
    item += "<item id='p1' href='cover.svg' media-type='image/svg+xml'/>"
    spine = "<itemref idref='p0'/><itemref idref='p1'/>"
    package = PACKAGE.format(meta="", items=item, spine=spine, toc="")
    path = make_epub(tmp_path / "b.epub", PAGES, more={"OEBPS/book.opf": package.encode()})
    assert len(open_book(path).chapters) == 1 and open_book(path).chapters[0].read()


XML = '<?xml version="1.0" encoding="{}"?>'


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("", "utf-16"),
        ("", "cp1252"),
        ("UTF-8", "cp1252"),
        ("UTF-16", "utf-16"),
        ("UTF-16", "utf-8"),  # converted, and the declaration left
        ("windows-1252", "cp1252"),
        ("ISO-8859-1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("iso-8859-15", "iso-8859-15"),
        ("none-such", "utf-8"),
        ("unicode_escape", "utf-8"),
    ],
)
def test_a_page_is_read_in_its_encoding(tmp_path, declared, encoding):
    said = "“Don’t,” Zoë said." if encoding != "iso-8859-15" else "Zoë paid 5 € to Œuvre."
    head = XML.format(declared) if declared else ""
    for more in ("", " "):  # an odd number of bytes and an even one
        page = f"{head}<html><body><p>{said}</p></body></html>{more}".encode(encoding)
        path = make_epub(tmp_path / "b.epub", PAGES, more={"OEBPS/two.xhtml": page})
        assert open_book(path).chapters[2].read() == said


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<meta charset='windows-1251'><p>Привет</p>".encode("cp1251"), "Привет"),
        ("<meta content='text/html; charset=koi8-r'/><p>Привет</p>".encode("koi8-r"), "Привет"),
        ("<meta charset='windows-1251'><p>Привет</p>".encode(), "Привет"),
        ("<?xml version='1.0' encoding = 'windows-1251'?><p>Да</p>".encode("cp1251"), "Да"),
        ("<p>Zoë said </p>".encode() + b"\x93yes\x94", "Zoë said “yes”"),
    ],
)
def test_a_page_says_its_encoding_in_html_too_and_a_stray_byte_costs_no_other(page, said):
    assert " ".join(read_page(decode(page)).paragraphs) == said


def test_asides_of_the_spine_are_left_out_and_covers_and_titles_found(tmp_path):
    kind = "media-type='application/xhtml+xml'"
    items = f"<item id='p0' href='one.xhtml' {kind}/><item id='p1' href='two.xhtml' {kind}/>"
    items += "<item id='c' href='cover.png' media-type='image/png' properties='x cover-image'/>"
    spine = "<itemref idref='p1' linear='no'/><itemref idref='p0' linear='yes'/>"
    package = PACKAGE.format(meta="", items=items, spine=spine, toc="")
    path = make_epub(
        tmp_path / "b.epub", PAGES, cover=png(), more={"OEBPS/book.opf": package.encode()}
    )
    book = open_book(path)
    assert book.cover == png() and [c.title for c in book.chapters] == ["One"]
    nav = NAV.format(link("", "front.xhtml") + link("One", "one.xhtml"), "")
    path = make_epub(tmp_path / "b.epub", PAGES, nav=nav)
    assert [c.title for c in open_book(path).chapters] == ["Chapter 1", "One"]
    assert open_book(path).chapters[0].read() == "For the beetle."  # a page has its own title


@pytest.mark.parametrize(
    ("creators", "author"),
    [
        ("<dc:creator o:role='aut'>A B</dc:creator><dc:creator o:role='ill'>C</dc:creator>", "A B"),
        ("<dc:creator id='a'>A</dc:creator><dc:creator id='c'>C</dc:creator>"
         "<meta refines='#c' property='role' scheme='marc:relators'>trl</meta>", "A"),
        ("<dc:creator id='a'>A</dc:creator><dc:creator id='c'>C</dc:creator>"
         "<meta refines='#c' property='role'>AUT</meta>"
         "<meta refines='#c' property='role'>ill</meta>"
         "<meta refines='#a' property='file-as'>B</meta>",
         "A, C"),
        ("<dc:creator o:role='AUT'>A</dc:creator><dc:creator o:role='ill'>B</dc:creator>", "A"),
        ("<dc:creator o:role='edt'>A</dc:creator><dc:creator o:role='edt'>B</dc:creator>", "A, B"),
        ("<dc:creator>A</dc:creator><dc:creator> </dc:creator>", "A"),
    ],
)  # fmt: skip
def test_an_author_is_who_wrote_the_book(tmp_path, creators, author):
    package = (
        "<package xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:o='http://www.idpf.org/2007/opf'>"
        f"<metadata>{creators}</metadata>"
        "<manifest><item id='p' href='one.xhtml' media-type='application/xhtml+xml'/></manifest>"
        "<spine><itemref idref='p'/></spine></package>"
    )
    path = make_epub(tmp_path / "b.epub", PAGES, more={"OEBPS/book.opf": package.encode()})
    assert open_book(path).author == author


def test_titles_do_not_steer_a_terminal(tmp_path):
    title = "One \x1b[2J\x9b31m\u0085two"
    nav = NAV.format(link(title, "one.xhtml"), "")
    path = make_epub(tmp_path / "b.epub", {"one.xhtml": "<p>It.</p>"}, nav=nav)
    assert open_book(path).chapters[0].title == "One [2J 31m two"
    (tmp_path / "b.md").write_text(f"---\ntitle: {title}\n---\n# {title}\n\nIt.", "utf-8")
    book = open_book(tmp_path / "b.md")
    assert book.title.isprintable() and book.chapters[0].title.isprintable()


def test_files_that_are_no_books_are_named(tmp_path):
    (tmp_path / "a.epub").write_bytes(b"PK\x03\x04 nothing")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "a.txt").write_text(" \n")
    for name, why in ("a.epub", "no EPUB"), ("a.pdf", "wanted .epub"), ("a.txt", "no text"):
        with pytest.raises(InputError, match=why):
            open_book(tmp_path / name)
    with pytest.raises(InputError, match="there is no file"):
        open_book(tmp_path / "b.epub")
    (tmp_path / "unpacked.epub").mkdir()  # as Apple Books keeps them
    with pytest.raises(InputError, match="is a folder; name a file, for an unpacked EPUB zip"):
        open_book(tmp_path / "unpacked.epub")
    with zipfile.ZipFile(tmp_path / "c.epub", "w") as file:
        file.writestr("a.txt", "a")
    with pytest.raises(InputError, match="no package document"):
        open_book(tmp_path / "c.epub")


@pytest.mark.parametrize(
    "page",
    [
        "<p>a</p><![if x]><![endif]><![ b <![c[ <!]]>[d",
        "<p>a</p>" + "<!-- b " * 20_000,
        "<p>a</p>" + "<b " * 20_000,
        "<p>a" + "<sup>" * 20_000 + "</a>" * 20_000 + "</p>",
        "<p>a</p><svg>" + "<b>" * 20_000 + "</i>" * 20_000 + "</svg>",
    ],
    ids=["sections", "comments", "tags", "raised", "silent"],
)
def test_a_page_that_means_harm_is_read_at_once_and_no_error_of_ours(page):
    begin = time.process_time()
    assert read_page(page).paragraphs[0] == "a"
    assert read_nav(page) == []
    assert time.process_time() - begin < 5


def test_text_in_cdata_is_text():
    assert read_page("<p>a <![CDATA[b & c]]> d</p>").paragraphs == ["a b & c d"]
