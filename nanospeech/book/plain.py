"""Plain text and Markdown: chapters by headings, text without markup.

Of Markdown (CommonMark 0.31) only what stands in prose is known: headings, emphasis, links,
pictures, lists, quotations, tables, footnotes, front matter, code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from nanospeech.errors import InputError
from nanospeech.speech.reading import read_file
from nanospeech.text.formatting import ENTITY, character
from nanospeech.text.markup import MARKUP, is_formed, without_markup

from .html_text import read_page
from .pages import Book, Chapter

LARGEST = 64 << 20  # bytes
MARKDOWN = (".md", ".markdown")
# YAML, behind comments; else "---" is a rule, and what follows is the book's
FRONT = re.compile(
    r"\A---[ \t]*\n((?:#[^\n]*\n)*[\w-]+[ \t]*:\s.*?(?<=\n))(?:---|\.\.\.)[ \t]*\n", re.S
)
# with the lines that go on with it, as of a list
FACT = re.compile(
    r"^(title|author|language|lang)[ \t]*:((?:[ \t]+\S.*)?(?:\n(?:[ \t]+|-[ \t])\S.*)*)$",
    re.M | re.I,
)
FOLDED = re.compile(r"[>|][+-]?")  # before a text on lines of its own, in YAML
FLOW = re.compile(r"\[(.*)\]")
ITEM = re.compile(r"-[ \t]+(?:name:[ \t]*)?")
# behind a heading: signs, and a name or a class as pandoc has them, such as {#start .big}
BEHIND = r"(?:[ \t]+#+)?(?:[ \t]*\{:?[ \t]*[#.-][^{}\n]*\})?[ \t]*$"
ATX = re.compile(rf"^ {{0,3}}(#{{1,6}})[ \t]+(\S[^ \t\n]*(?:[ \t]+[^ \t\n]+)*?){BEHIND}", re.M)
# no item and no quotation, which a rule may follow
UNDERLINED = re.compile(r"^(?! {4})[ \t]*(?![-*+>][ \t])(\S[^\n]*)\n {0,3}(=+|-{2,})[ \t]*$", re.M)
CODE_OF = re.compile(r"[A-Za-z]{2,3}(?:[-_]\w+)*")  # a language, such as "de-AT"
# what stands around a book of Project Gutenberg: facts before it, the licence behind it
EDGES = re.compile(
    r"^\*{3} ?(START|END) OF TH(?:E|IS) PROJECT GUTENBERG EBOOK\b[^*]{0,300}\*{3}[ \t]*$", re.M
)
# a line of its own that names a chapter, in some languages of books
KINDS = """chapter|part|book|canto|act|scene|letter|section|kapitel|teil|buch|abschnitt|chapitre
|partie|livre|capítulo|capitulo|parte|libro|capitolo|hoofdstuk|deel"""
NUMBERS = r"""\d{1,4}|[ivxlcdm]{1,8}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve
|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|first
|second|third|last|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|premier"""
ALONE = """prologue|epilogue|preface|foreword|introduction|afterword|prolog|epilog|vorwort|nachwort
|einleitung|prólogo|epílogo|prologo|epilogo|préface|avant-propos"""
NAMED = re.compile(
    rf"""(?:(?:{KINDS})\ (?:the\ )?(?:{NUMBERS})(?:-\w+)?\b
    (?:[.:]?|\s*[.:—–-]\s*\S.{{0,60}}|\s.{{0,60}}(?<![.,;!?]))|(?:{ALONE})[.:]?)""",
    re.I | re.X,
)
# at most 99 marks: of a line of thousands every length would be tried
FENCED = re.compile(r"^ {0,3}(`{3,99}|~{3,99})[^\n]*\n.*?^ {0,3}\1[`~]*[ \t]*$\n?", re.M | re.S)
# what begins anew, also behind a line that is not blank
BEGINS = r"[ \t]*$|\[\^[^\]\n]+\]:| {0,3}(?:#{1,6}[ \t]|[-*+][ \t]|1[.)][ \t]|[>|]|```|~~~)"
# a footnote's paragraphs: those behind the first are indented
FOOTNOTE = re.compile(
    r"^\[\^[^\]\n]+\]:[^\n]*"
    rf"(?:\n(?:(?:[ \t]*\n)?(?: {{4}}|\t)|(?!{BEGINS}))[^\n]*)*\n?",
    re.M,
)
RULE = re.compile(r"^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$", re.M)
MARGIN = re.compile(r"^[ \t]*(?:>[ \t]?)+|(?<![ \t])[ \t]*\\$", re.M)  # quotations, hard line ends
COMMENT = re.compile(r"<!--(?:(?!<!--).)*?-->", re.S)
# a line around a part with attributes, as pandoc, Quarto and others have it: "::: {.note}"
DIVISION = re.compile(
    r"^ {0,3}:{3,}(?!:)(?:[ \t]*(?:\{[^{}\n]*\}|[\w-]+))?(?:[ \t]+:+)?[ \t]*$", re.M
)
BULLET = re.compile(r"[ \t]*[-*+][ \t]+\S")
NUMBERED = re.compile(r"[ \t]*(\d{1,9})[.)][ \t]+\S")
TABLE_RULE = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*(?::?-+:?[ \t]*)?)*$", re.M)
UNCUT = re.compile(r"^[^\n]{150,}(?=(\n[^\S\n]*\S)?)", re.M)  # a line, and what is right below
LISTED = 2  # headings that follow each other and are still no table of contents
BLANK = re.compile(r"\n[ \t]*\n\s*")
EMPHASIS = re.compile(r"(?<![\w\\])(\*\*\*|\*\*|\*|___|__|_)(?=\S)(.{1,999}?)(?<=\S)\1(?!\w)", re.S)
# of a link: what is said, on one line or several, with brackets in it, and where it leads
SAID = r"(?:[^\[\]\\]|\\.|\[[^\[\]]{0,99}\]){0,999}"
LEADS = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"  # its own brackets are closed
SIMPLE: list[tuple[str, str | Callable[[re.Match], str]]] = [
    (rf"!\[{SAID}\](?:{LEADS}|\[[^\]\n]*\])", ""),  # a picture
    (rf"\[\^[^\]\n]{{1,99}}\]|\^\[{SAID}\]", ""),  # a footnote's marker, or all of it
    (rf"\[({SAID})\](?:{LEADS}|\[[^\]\n]*\])", lambda m: m[1]),  # links
    (r"(?<!`)`+([^`\n]+?)`+", lambda m: m[1]),
    (r"^ {0,3}\[[^\]\n]+\]:[ \t]*\S[^\n]*$", ""),  # where links lead
    (r"^[ \t]*[-*+][ \t]+(?:\[[ xX]\][ \t]+)?", ""),  # items
]
RULES = [(re.compile(pattern, re.M), rule) for pattern, rule in SIMPLE]
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
TAGGED = re.compile(r"</?[a-zA-Z][^<>\n]*>")
AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]+|[^<>\s@]+@[^<>\s@]+\.[^<>\s@]+)>")
CODE = re.compile(r"(`{1,99})[^`\n]+?\1")
TARGET = re.compile(r"\([^()\s]*[/.#:][^()\s]*\)")  # where a link leads, behind its text
HIDDEN = 0x100000  # private characters, which take the place of markup


def read_plain(path: str | Path, encoding: str = "utf-8") -> Book:
    """Reads a text or Markdown file.

    Raises:
        InputError: it cannot be read, is too large, or has no text.
    """
    path = Path(path)
    if path.stat().st_size > LARGEST:
        raise InputError(
            f"{path} has {path.stat().st_size} bytes; at most {LARGEST} are read: cut it"
        )
    text = read_file(str(path), encoding).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise InputError(f"{path} has no text")
    front, text = without_front(text)
    facts = {m[1].lower(): fact(m[2]) for m in FACT.finditer(front)}
    language = facts.get("language") or facts.get("lang", "")
    if path.suffix.lower() in MARKDOWN:
        text = DIVISION.sub("", COMMENT.sub("", FENCED.sub("", FOOTNOTE.sub("", text))))
        text = UNDERLINED.sub(lambda m: f"{'#' if m[2][0] == '=' else '##'} {m[1]}", text)
        clean = strip_markdown
    else:
        text, clean = apart(text), strip_text
    title, parts = cut(text)
    chapters = tuple(Chapter(name, lambda said=said: clean(said)) for name, said in parts)
    return Book(
        title=facts.get("title") or title or path.stem.replace("_", " "),
        author=facts.get("author", ""),
        language=language if CODE_OF.fullmatch(language) else "",  # no "English"
        chapters=tuple(Chapter(c.title or f"Part {n}", c.read) for n, c in enumerate(chapters, 1)),
    )


def fact(said: str) -> str:
    """What is said of a book: a line, several, or a list as YAML has them."""
    lines = [line.strip() for line in said.strip().split("\n")]
    lines = lines[1:] if FOLDED.fullmatch(lines[0]) else lines
    if lines and (flow := FLOW.fullmatch(lines[0])):
        lines = [f"- {item.strip()}" for item in flow[1].split(",")]
    between = ", " if any(map(ITEM.match, lines)) else " "
    items = (ITEM.sub("", line, count=1).strip("\"'") for line in lines)
    return between.join(filter(None, items))


def without_front(text: str) -> tuple[str, str]:
    """What says things of a book before it, and the book, without a licence behind it."""
    if front := FRONT.match(text):
        return front[1], text[front.end() :]
    start = next((m for m in EDGES.finditer(text) if m[1] == "START"), None)
    if start is None:
        return "", text
    ends = [m.start() for m in EDGES.finditer(text, start.end()) if m[1] == "END"]
    return text[: start.start()], text[start.end() : ends[-1] if ends else len(text)]


def apart(text: str) -> str:
    """A text with blank lines between its paragraphs, where each is a line, as of word processors.

    Nobody has cut the lines of such a text, and most of the long ones stand below each other.
    """
    below = [bool(found) for found in UNCUT.findall(text)]
    return text.replace("\n", "\n\n") if 2 * sum(below) > len(below) else text


def cut(text: str) -> tuple[str, list[tuple[str, str]]]:
    """A text's title and its chapters, by its headings: "# Title", or lines such as "Chapter 2".

    The level of "#" that cuts is the uppermost one that stands more than once; a single heading
    above it at the start is the title, and part of the first chapter if nothing else is.

    Returns:
        The title or "", and pairs of a chapter's title and its text, heading included. What stands
        before the first heading is a chapter called by the title.
    """
    heads = list(ATX.finditer(text))
    title = ""
    if heads:
        counts = [sum(len(m[1]) == level for m in heads) for level in range(1, 7)]
        level = next((n for n, count in enumerate(counts, 1) if count > 1), len(heads[0][1]))
        if len(heads[0][1]) < level and not text[: heads[0].start()].strip():
            title = plain_title(heads[0][2])
        starts = [(m.start(), plain_title(m[2])) for m in heads if len(m[1]) <= level]
        if title and len(starts) > 1 and starts[0][0] == heads[0].start():
            nothing = not text[heads[0].end() : starts[1][0]].strip()
            starts = [(starts[0][0], starts[1][1]), *starts[2:]] if nothing else starts
    else:
        starts = named_lines(text)
        text = mark_headings(text, starts)
        starts = [(m.start(), m[2]) for m in ATX.finditer(text)]
    if not starts:
        return title, [(title, text)]
    stops = [*(at for at, _ in starts[1:]), len(text)]
    parts = [(name, text[at:stop]) for (at, name), stop in zip(starts, stops)]
    before = text[: starts[0][0]]
    return title, [*([(title, before)] if any(map(str.isalnum, before)) else []), *parts]


def named_lines(text: str) -> list[tuple[int, str]]:
    """Paragraphs of one line, or of two, whose first names a chapter: its place and its words."""
    found = []
    place = 0
    for paragraph in BLANK.split(text):
        place = text.index(paragraph, place)
        lines = paragraph.strip().split("\n")
        if len(lines) <= 2 and NAMED.fullmatch(lines[0].strip()):
            found.append((text.index(lines[0], place), " ".join(line.strip() for line in lines)))
        place += len(paragraph)
    return without_contents(text, found)


def without_contents(text: str, found: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Headings without those that a table of contents lists: three or more with nothing between."""
    stops = [*(at for at, _ in found[1:]), len(text)]
    kept, first = [], 0  # of the headings, and of those without text that lead to one with it
    for i, ((at, name), stop) in enumerate(zip(found, stops)):
        full = bool(" ".join(text[at:stop].split())[len(name) :].strip())
        if full or i == len(found) - 1:
            kept += found[first : i + 1] if i - first < LISTED else found[i : i + full]
            first = i + 1
    return kept


def mark_headings(text: str, starts: list[tuple[int, str]]) -> str:
    """Puts "# " before headings, on lines of their own."""
    out, done = [], 0
    stops = [*(at for at, _ in starts[1:]), len(text)]
    for (at, name), stop in zip(starts, stops):
        out += [text[done:at], "\n\n# ", name, "\n\n"]
        done = at
        for line in text[at:stop].split("\n", 2)[:2]:
            if line.strip() and line.strip() in name:
                done += len(line) + 1
    return "".join([*out, text[done:]])


def plain_title(line: str) -> str:
    """A heading's words without markup."""
    return " ".join(without_markup(inline(line)).split())


def inline(text: str) -> str:
    """Text without the marks of emphasis, links and code; markup such as [pause 1s] stays.

    A bracket that was escaped, or is code, keeps a backslash where it would be markup.
    """
    text, marks = hide_markup(text)
    for pattern, rule in RULES:
        text = pattern.sub(rule, text)
    for _ in range(3):  # one within another
        text = EMPHASIS.sub(lambda m: m[2], text)
    text = ESCAPED.sub(lambda m: m[1], text)
    text = ENTITY.sub(character, text)
    text = MARKUP.sub(lambda m: "\\" * (is_formed(m) and not m[1]) + m[0], text)
    return text.translate({HIDDEN + i: mark for i, mark in enumerate(marks)})


def hide_markup(text: str) -> tuple[str, list[str]]:
    """A text with a private character in the place of each piece of markup, and the pieces.

    What is code, escaped or the text of a link is none.
    """
    code = [m.span() for m in CODE.finditer(text)]
    marks: list[str] = []

    def hide(match: re.Match) -> str:
        within = any(a <= match.start() < b for a, b in code)
        if within or match[1] or not is_formed(match) or TARGET.match(text, match.end()):
            return match[0]
        marks.append(match[0])
        return chr(HIDDEN + len(marks) - 1)

    return MARKUP.sub(hide, text), marks


def strip_markdown(text: str) -> str:
    """A chapter's paragraphs; headings stay as lines "# Title" """
    text = AUTOLINK.sub(lambda m: m[1].removeprefix("mailto:"), MARGIN.sub("", text))
    text = ATX.sub(lambda m: f"\n\n# {m[2]}\n\n", TABLE_RULE.sub("", RULE.sub("", text)))
    paragraphs = []
    for paragraph in (item for block in BLANK.split(text) for item in items(block)):
        if TAGGED.search(paragraph):
            paragraphs += read_page(paragraph.replace("\n", " ")).paragraphs
            continue
        lines = [
            ", ".join(filter(None, (cell.strip() for cell in line.strip("| \t").split("|"))))
            if line.lstrip().startswith("|")
            else line
            for line in paragraph.split("\n")
        ]
        paragraphs.append("\n".join(lines))
    return spoken(map(inline, paragraphs))


def items(paragraph: str) -> list[str]:
    """A list's items, each a paragraph, as those of an EPUB are; of other paragraphs the whole.

    A number begins one where a list can: at the start, as 1, or after another.
    """
    found: list[list[str]] = [[]]
    numbered = False
    for line in paragraph.split("\n"):
        number = NUMBERED.match(line)
        begins = number and (numbered or number[1] == "1" or not found[-1])
        numbered = numbered or bool(begins)
        if begins or BULLET.match(line):
            found.append([])
        found[-1].append(line)
    return ["\n".join(lines) for lines in found if lines]


def spoken(paragraphs: Iterable[str]) -> str:
    """The paragraphs that have letters or digits."""
    return "\n\n".join(p.strip() for p in paragraphs if any(map(str.isalnum, p)))


def strip_text(text: str) -> str:
    """A chapter's paragraphs: emphasis such as _this_ without its marks."""
    text = EMPHASIS.sub(lambda m: m[2], RULE.sub("", text))
    return spoken(BLANK.split(text))
