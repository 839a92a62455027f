"""Text: folds typography, splits sentences, packs them into chunks. Splitting loses no character.

normalize.py writes out numbers and abbreviations; tokenizer.py makes ids.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Protocol

import numpy as np

from nanospeech.errors import InputError

from .english.foreign import plain, respelled
from .formatting import unformatted
from .headings import AFTER_HEADING, LINE_END, sections
from .language import Language
from .languages import language_of, spells_numbers
from .left_out import LeftOut
from .normalize import SPACES
from .phonemes import pronounce
from .tags import hide, show
from .traced import Traced, joined

QUOTES = {"‘": "'", "’": "'", "‚": "'", "‛": "'", "′": "'", "“": '"', "”": '"', "„": '"', "‟": '"'}
QUOTES |= {"«": '"', "»": '"', "″": '"', "`": "'", "´": "'"}
DASHES = {"‐": "-", "‑": "-", "‒": "-", "–": "-", "−": "-", "—": " - ", "―": " - "}
INVISIBLE = dict.fromkeys(map(chr, (0xAD, 0x200B, 0x2060, 0xFEFF)), "")
FOLD = str.maketrans({**QUOTES, **DASHES, **INVISIBLE, "…": "..."})
# presentation forms of Latin letters and digits: ligatures such as "ﬁ", full-width "Ａ" and "１"
LATIN_FORMS = re.compile(r"[\uFB00-\uFB06\uFF10-\uFF19\uFF21-\uFF3A\uFF41-\uFF5A]")
# look-behinds let a run of spaces or marks be tried once, not from each of its characters
PARAGRAPH = re.compile(r"(?<![^\S\n])[^\S\n]*\n[^\S\n]*\n\s*")
# what is neither letter, digit nor space; tags that are hidden (tags.py) are none of these
MARK = r"(?:[^\w\s\U00100000-\U0010FFFF]|_)"
SAME_MARKS = re.compile(rf"(({MARK})(?:\s*\2){{2}})(?:\s*\2)+")  # one more than 3 times
MARKS = re.compile(rf"({MARK}(?:\s*{MARK}){{7}})(?:\s*{MARK})+")  # more than 8, of any kind

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
WORD_OR_SPACE = re.compile(r"\S+|\s+")

CLOSERS = r"[\"'”’)\]»」』）】]*"
SENTENCE_END = re.compile(
    rf"(?P<mark>(?<![.!?…؟।॥])[.!?…؟।॥]+){CLOSERS}(?:\s+|\Z)|[。！？｡．]+{CLOSERS}\s*|{PARAGRAPH.pattern}"
)
CLAUSE_END = re.compile(rf"(?:[,;:،؛]{CLOSERS}|\s[-–—])\s+|[—、，；：]\s*|\)\s+")
WORD_END = re.compile(r"\s+")
CHARACTER_END = re.compile(r"(?s)(?<=.)")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# abbreviations that stand before a name, that may end a sentence too, that stand before a number
TITLES = words(
    """mr mrs ms dr drs prof st mt ft capt gen col lt sgt maj cpl adm cmdr rev hon gov sen rep pres
    supt mme mlle asst v vs messrs cf approx viz incl excl"""
)
CLOSING = words(
    """etc inc ltd co corp bros jr sr dept est ave blvd rd ct pl a.m p.m ft lb lbs oz al mon tue
    tues wed thu thurs fri min mins max avg hr hrs sec secs tsp tbsp ph.d temp misc univ cont
    ed deg sq pkg qt gal govt acct wk yr yrs appt
    pkgs lg"""
)
COUNTING = words(
    """no nos fig figs vol p pp ch sec eq eqs art op pt tab ref refs bldg rm ste fl ext jan feb mar
    apr jun jul aug sep sept oct nov dec apt rte ca n nn ps"""
)
# signs that the vocabulary may lack, and what to read for them
SIGNS = {"[": "(", "]": ")", "{": "(", "}": ")", "¿": "", "¡": "", "․": "."}
# marks that have no sound of their own
UNSPOKEN = set("\"'()[]{}")


LINE_START = re.compile(r"\n[ \t]*\Z")
LONGEST = 40  # characters of an abbreviation


class Vocabulary(Protocol):
    """What this module needs of a tokenizer."""

    kind: str
    vocab: list[str]
    language: str
    tags: re.Pattern | None

    def pieces(self, text: str) -> list[str]: ...

    def unknown(self, text: str) -> set[str]: ...

    def encode(self, text: str) -> np.ndarray: ...


def fold(text: str) -> str:
    """One spelling for quotes, dashes, ellipses and spaces; blank lines stay; scripts stay.

    Long runs of marks are cut, see shorten.

    Raises:
        InputError: the text is not valid Unicode.
    """
    check_unicode(text)
    return folded(Traced.of(text)).text


def folded(text: Traced) -> Traced:
    """fold() of a text whose characters are traced."""
    if not unicodedata.is_normalized("NFC", text.text):
        text = text.sub(WORD_OR_SPACE, lambda m: unicodedata.normalize("NFC", m[0]))
    text = shorten(text.translate(FOLD))
    text = text.sub(LATIN_FORMS, lambda m: unicodedata.normalize("NFKC", m[0]))
    paragraphs = text.sub(LINE_END, "\n").split(PARAGRAPH)
    lines = (p.in_one_line().sub(CONTROLS, "") for p in paragraphs)
    return joined([line for line in lines if len(line)], "\n\n")


def shorten(text: Traced) -> Traced:
    """Cuts runs of marks, with or without spaces between them, whose length has no meaning.

    Three of one mark stay ("..."), or eight of several; letters and digits all stay. A model gives
    each mark a duration, so 500 dots would last a quarter of a minute.
    """
    return text.sub(SAME_MARKS, r"\1").sub(MARKS, r"\1")


def front_end(tokenizer: Vocabulary) -> Language:
    """The language that a tokenizer's text is read in."""
    return language_of(tokenizer.language, tokenizer.vocab)


def prepare(text: str, tokenizer: Vocabulary) -> str:
    """Text as the model reads it: folded, and written out in its language; tags are unchanged.

    A model that knows digits gets numbers as they are. For a model of bytes only long runs of
    marks are cut. For others three line ends follow a heading, and two any other paragraph.

    Raises:
        InputError: the text is not valid Unicode.
    """
    return prepared(Traced.of(text), tokenizer).text


def prepared(text: Traced, tokenizer: Vocabulary) -> Traced:
    """prepare() of a text whose characters are traced."""
    check_unicode(text.text)
    if tokenizer.kind == "bytes":
        return shorten(text)
    text, tags = hide(text, tokenizer.tags)
    parts = map(folded, sections(unformatted(text.sub(LINE_END, "\n"))))
    if spells_numbers(tokenizer.vocab):
        language = front_end(tokenizer)
        parts = (folded(language.normalized(part)) for part in parts if len(part))
    return show(joined([part for part in parts if len(part)], AFTER_HEADING), tags)


def readable(text: str, tokenizer: Vocabulary) -> str:
    """A prepared text without the characters that the model cannot read.

    One warning names them all, so that encode of its parts does not warn again.
    """
    return legible(Traced.of(text), tokenizer).text


def legible(text: Traced, tokenizer: Vocabulary, left_out: LeftOut | None = None) -> Traced:
    """readable() of a text, or of a part of one, whose characters are traced.

    Args:
        left_out: of the whole text.
    """
    text = prepared(text, tokenizer)
    _, lost = fitted(text, tokenizer)
    (LeftOut() if left_out is None else left_out).add(lost, text.text)
    return _respelled(text, dict.fromkeys(lost, ""), tokenizer)


def _respelled(text: Traced, swap: Mapping[str, str], tokenizer: Vocabulary) -> Traced:
    """Replaces characters of a text, except in tokens of several characters."""
    table = str.maketrans(dict(swap))
    return _outside_tokens(text, lambda part: part.translate(table), tokenizer) if swap else text


def _outside_tokens(
    text: Traced, change: Callable[[Traced], Traced], tokenizer: Vocabulary
) -> Traced:
    """Changes a text, except tokens of several characters."""
    pieces, at = [], 0
    for place, piece in enumerate(tokenizer.pieces(text.text)):
        part = text[at : at + len(piece)]
        pieces.append(part if place % 2 else change(part))
        at += len(piece)
    return joined(pieces)


def check_unicode(text: str) -> None:
    """
    Raises:
        InputError: half of a surrogate pair is in the text.
    """
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise InputError("the text is not valid UTF-8")


def whole_characters(text: str) -> str:
    """A text with U+FFFD for each half of a surrogate pair."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def fit(text: str, tokenizer: Vocabulary) -> tuple[str, set[str]]:
    """Respells characters that a vocabulary lacks by the nearest that it has.

    Capitals become small letters, accents go, a colon becomes a comma, a dash a space.

    Returns:
        The text, and the characters that are left out because none is near.
    """
    found, lost = fitted(Traced.of(text), tokenizer)
    return found.text, lost


def fitted(text: Traced, tokenizer: Vocabulary) -> tuple[Traced, set[str]]:
    """fit() of a text whose characters are traced."""
    unknown = tokenizer.unknown(text.text)
    if not unknown:
        return text, set()
    if tokenizer.kind == "phonemes":
        text = _outside_tokens(
            text, lambda part: respelled(part, lambda w: pronounce(w) is not None), tokenizer
        )
        unknown = tokenizer.unknown(text.text)
    swap, lost = {}, set()
    language = front_end(tokenizer)
    for c in sorted(unknown):
        if len(c) != 1:
            continue
        own = language.respelled(c)
        choices = [c.lower(), *filter(None, (own, own.lower())), *_nearest(c)]
        near = [s for s in choices if not tokenizer.unknown(s)]
        swap[c] = near[0] if near else ""
        if not near and not _silent(c):
            lost.add(c)
    return _respelled(text, swap, tokenizer).sub(SPACES, " "), lost


def _nearest(c: str) -> Iterable[str]:
    bare = SIGNS.get(c, plain(c))
    yield from filter(None, (c.lower(), bare, bare.lower(), c.casefold()))
    yield from {";": ",:", ":": ",;", "!": ".", "?": ".", "，": ",", "。": ".", "、": ","}.get(
        c, ""
    )
    if c.isspace() or unicodedata.category(c) in ("Pd", "Pc") or c in "/\\|":
        yield " "


def _silent(c: str) -> bool:
    """Whether a character has no sound: quotes, brackets, joiners, accents, variations."""
    return (
        c in UNSPOKEN
        or c.isspace()
        or unicodedata.category(c) in ("Cc", "Cf", "Me")
        or "\u0300" <= c <= "\u036f"
        or "\ufe00" <= c <= "\ufe0f"
    )


def encode(text: str, tokenizer: Vocabulary) -> np.ndarray:
    """int64 (T,) ids of prepared text, respelled to fit; warns of characters left out."""
    fitted, lost = fit(text, tokenizer)
    LeftOut().add(lost, text)
    return tokenizer.encode(fitted)


def is_speakable(text: str) -> bool:
    """Whether a text has a letter or a digit."""
    return any(c.isalnum() for c in text)


def is_foreign(text: str, tokenizer: Vocabulary) -> bool:
    """Whether most of a text's letters are of a writing that a vocabulary lacks."""
    letters, lost = [c for c in text if c.isalpha()], fit(text, tokenizer)[1]
    return 2 * sum(c in lost for c in letters) > len(letters)


def split_sentences(text: str, language: Language | None = None) -> list[str]:
    """Cuts after sentences and paragraphs: "".join(split_sentences(t)) == t.

    Spaces stay with the sentence before them. "3.14", "Dr. Who", "10:30", "e.g. this" are not cut.

    Args:
        text: as written, or prepared.
        language: whose abbreviations are known beside the general ones.
    """
    cuts, start = [], 0
    for match in SENTENCE_END.finditer(text):
        if match["mark"] is None or _ends(text, start, match, language):
            start = match.end()
            cuts.append(start)
    return _slices(text, cuts)


def split_clauses(text: str) -> list[str]:
    """Cuts after commas, colons and dashes: "".join(split_clauses(t)) == t."""
    return _slices(text, (m.end() for m in CLAUSE_END.finditer(text)))


def _ends(text: str, start: int, match: re.Match, language: Language | None) -> bool:
    """Whether a mark such as "." that is followed by a space ends its sentence."""
    mark, following = match["mark"], text[match.end() : match.end() + 1]
    if not following:
        return True
    closed = match.group().rstrip() != mark
    if following.islower() and (closed or mark in ("...", "…")):
        return False  # “Stop!” he said
    # no abbreviation is longer; slices of the whole sentence would make long texts slow
    before = text[max(start, match.start() - LONGEST) : match.start()]
    word = re.search(r"[^\s(\[\"'“‘]*\Z", before)[0]  # type: ignore[index]
    if mark != "." or closed:
        return True
    if language is not None:
        own = language.ends_sentence(before, text[match.end() : match.end() + LONGEST])
        if own is not None:
            return own
    name = word.lower()
    if name in CLOSING and word != "Ft":  # Worth
        return following.isupper()
    if name in COUNTING:
        # "the no. of people", of which what follows may have come in part
        of = name == "no" and "of ".startswith(text[match.end() : match.end() + 3])
        return not (following.isdigit() or of)
    if name in TITLES or re.fullmatch(r"(?:[^\W\d]\.)+[^\W\d]", word):
        return False
    if following.islower() and re.fullmatch(r"[A-Z][a-z]{0,4}\.[A-Z][a-z]{0,4}", word):
        return False  # an M.Phil. in law
    if len(word) == 1 and word.isupper():  # an initial, or the word I
        return word == "I" and not re.match(r"[A-Z]\.", text[match.end() :])
    opens = match.start() - start < LONGEST and before.strip() == word
    opens = opens or (len(word) <= 3 and bool(LINE_START.search(before[: -len(word) or None])))
    return not (word.isdigit() and opens)  # "1. " opens a list, or an item within one


def _slices(text: str, cuts: Iterable[int]) -> list[str]:
    edges = [0, *cuts, len(text)]
    return [text[a:b] for a, b in pairwise(edges) if a < b]


def byte_length(text: str) -> int:
    """UTF-8 bytes: the measure of how long a text takes to say, whatever its script."""
    return len(text.encode("utf-8", "surrogatepass"))  # halves of pairs are told of elsewhere


def pack(text: str, budget: float, size: Callable[[str], float] = byte_length) -> list[str]:
    """Packs sentences into chunks of at most `budget`: "".join(pack(t, b)) == t.

    A sentence beyond the budget is cut at clauses, else at words, else between characters. No
    chunk goes beyond the end of a paragraph.

    Args:
        budget: largest size of a chunk; a single character may exceed it.
        size: measures a text.
    """
    pieces = [p for s in split_sentences(text) for p in _divide(s, budget, size)]
    return _merge(pieces, budget, size)


def _divide(
    text: str,
    budget: float,
    size: Callable[[str], float],
    ends: tuple[re.Pattern, ...] = (CLAUSE_END, WORD_END, CHARACTER_END),
) -> list[str]:
    if size(text) <= budget or not ends:
        return [text]
    parts = _slices(text, (m.end() for m in ends[0].finditer(text)))
    parts = [p for part in parts for p in _divide(part, budget, size, ends[1:])]
    # about equal parts: a last chunk of one word would be spoken badly
    share = size(text) / -(-size(text) // budget)
    return _merge(parts, min(budget, share * 1.2), size)


def _merge(pieces: list[str], budget: float, size: Callable[[str], float]) -> list[str]:
    chunks: list[str] = []
    for piece in pieces:
        new_paragraph = not chunks or PARAGRAPH.search(chunks[-1][len(chunks[-1].rstrip()) :])
        if new_paragraph or size(chunks[-1] + piece) > budget:
            chunks.append(piece)
        else:
            chunks[-1] += piece
    return chunks
