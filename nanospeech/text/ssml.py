"""SSML: the elements of the Speech Synthesis Markup Language (W3C, 1.1) that markup.py has too.

Read by the standard library's expat; a document type, entities of its own and great depth are
refused.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any
from xml.parsers import expat

from nanospeech.errors import InputError

from .markup import DEEPEST, Builder, Marked, seconds
from .normalize import ordinal
from .sentences import check_unicode

LARGEST = 4 << 20  # bytes
ALPHABETS = {"x-arpabet": "arpabet", "ipa": "ipa", "": ""}
RATES = {"x-slow": 0.65, "slow": 0.8, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5}
BREAKS = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.8, "x-strong": 1.2}
LETTERS = ("characters", "spell-out", "digits", "telephone")
PLAIN = ("cardinal", "number", "date", "time", "unit", "currency", "address")
ATTRIBUTES = {
    "speak": {"version", "xmlns", "xml:lang", "xmlns:xsi", "xsi:schemaLocation"},
    "break": {"time", "strength"},
    "phoneme": {"alphabet", "ph"},
    "sub": {"alias"},
    "say-as": {"interpret-as", "format", "detail"},
    "prosody": {"rate"},
    "voice": {"name"},
    "p": {"xml:lang"},
    "s": {"xml:lang"},
}
ORDINAL = re.compile(r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:st|nd|rd|th|\.)?", re.I)
DATE = re.compile(r"(\d{1,4})([-/. ])(\d{1,2})\2(\d{1,4})")
ORDERS = ("mdy", "dmy", "ymd")  # of the parts of a date
WHOLE = ("phoneme", "sub", "say-as")  # elements of text alone


def read_ssml(text: str) -> Marked:
    """Reads SSML.

    Raises:
        InputError: no well-formed XML, or elements that are not known, with what and where.
    """
    check_unicode(text)
    data = text.encode("utf-8")
    if len(data) > LARGEST:
        raise InputError(f"the SSML has {len(data):,} bytes; at most {LARGEST:,} are taken")
    return _Reader(text, data).read()


class _Reader:
    """What expat calls."""

    def __init__(self, text: str, data: bytes):
        self.source, self.data = text, data
        self.build = Builder()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.inner: list[tuple[str, int]] = []  # text of an element of text alone
        self.byte = self.character = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.placed(self.start)
        self.parser.EndElementHandler = self.placed(self.end)
        self.parser.CharacterDataHandler = self.placed(self.characters)
        self.parser.StartDoctypeDeclHandler = self.placed(self.refuse)
        self.parser.EntityDeclHandler = self.placed(self.refuse)

    def read(self) -> Marked:
        try:
            self.parser.Parse(self.data, True)
        except expat.ExpatError as e:
            raise InputError(
                f"not well-formed SSML at line {e.lineno}, column {e.offset + 1}:"
                f" {expat.ErrorString(e.code)}"
            ) from e
        return self.build.marked()

    def placed(self, take: Callable[..., None]) -> Callable[..., None]:
        """The same, with line and column in its errors."""

        def taken(*given: Any) -> None:
            try:
                take(*given)
            except InputError as e:
                line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
                raise InputError(f"SSML at line {line}, column {column}: {e}") from e

        return taken

    def refuse(self, name: str, *_: Any) -> None:
        raise InputError("a document type or an entity of its own is not read; leave it out")

    def place(self) -> int:
        """Where expat is, in characters."""
        index = self.parser.CurrentByteIndex
        self.character += len(self.data[self.byte : index].decode("utf-8"))
        self.byte = index
        return self.character

    def start(self, name: str, values: dict[str, str]) -> None:
        if name not in ATTRIBUTES:
            known = ", ".join(f"<{known}>" for known in ATTRIBUTES)
            raise InputError(f"<{name}> is not known; {known} are")
        if (name == "speak") != (not self.open):
            raise InputError(f"<{name}> stands in the wrong place: <speak> is around all, once")
        unknown = sorted(values.keys() - ATTRIBUTES[name])
        if unknown := [key for key in unknown if not key.startswith("xmlns:")]:
            raise InputError(f"<{name}> has no attribute {unknown[0]!r} here")
        if self.open and self.open[-1][0] in (*WHOLE, "break"):
            raise InputError(f"<{name}> is within <{self.open[-1][0]}>, which has text alone")
        if len(self.open) > DEEPEST:
            raise InputError(f"<{name}> is within {DEEPEST} others; at most so many are taken")
        self.open.append((name, values))
        if name == "break":
            self.build.end(pause(values))
        elif name == "prosody":
            self.build.open(rate=rate(values.get("rate", "")))
        elif name == "voice":
            if not values.get("name"):
                raise InputError('<voice> needs a name: <voice name="kumo">')
            self.build.open(voice=values["name"])
        elif name in ("p", "s"):
            self.build.end()

    def end(self, name: str) -> None:
        _, values = self.open.pop()
        if name in WHOLE:
            word = "".join(text for text, _ in self.inner)
            place = self.inner[0][1] if self.inner else self.place()
            self.inner = []
            self.whole(name, values, word, place)
        elif name in ("prosody", "voice"):
            self.build.close()
        elif name in ("p", "s"):
            self.build.end("paragraph" if name == "p" else "sentence")

    def characters(self, text: str) -> None:
        if self.open[-1][0] in WHOLE:
            self.inner.append((text, self.place()))
        elif self.open[-1][0] == "break" and text.strip():
            raise InputError("<break> has no text")
        else:
            # line ends of XML are spaces; paragraphs are <p>
            self.build.text(text.replace("\n", " "), self.place())

    def whole(self, name: str, values: dict[str, str], word: str, place: int) -> None:
        """Takes an element of text alone."""
        if not word.strip():
            raise InputError(f"<{name}> has no text")
        if name == "phoneme":
            alphabet = values.get("alphabet", "")
            if alphabet not in ALPHABETS:
                raise InputError(f"alphabet {alphabet!r} is not known; choose x-arpabet or ipa")
            self.build.say(word, values.get("ph", ""), ALPHABETS[alphabet], place)
        elif name == "sub":
            if not values.get("alias", "").strip():
                raise InputError('<sub> needs an alias: <sub alias="et cetera">etc</sub>')
            self.build.text(word, place, values["alias"])
        else:
            self.say_as(values, word, place)

    def say_as(self, values: dict[str, str], word: str, place: int) -> None:
        kind, order = values.get("interpret-as", ""), values.get("format")
        number = ORDINAL.fullmatch(word.strip())
        if kind in LETTERS:
            self.build.spell(word, place)
        elif kind == "ordinal" and number:
            self.build.text(word, place, ordinal(int(number[1].replace(",", ""))))
        elif kind == "date" and order is not None:
            self.build.text(word, place, date(word, order))
        elif kind in PLAIN:
            self.build.text(word, place)
        else:
            known = ", ".join((*LETTERS, "ordinal", *PLAIN))
            raise InputError(f"{word[:20]!r} cannot be said as {kind!r}; of {known}")


def date(word: str, order: str) -> str:
    """A date of digits as 2024-12-31, which every language reads.

    Args:
        word: such as 31.12.2024.
        order: of ORDERS.

    Raises:
        InputError: it is none, or of another order.
    """
    if order not in ORDERS:
        raise InputError(f"format {order!r} is not known; choose from {', '.join(ORDERS)}")
    match = DATE.fullmatch(word.strip())
    found = dict(zip(order, match.group(1, 3, 4))) if match else {"y": ""}
    try:
        if len(found["y"]) != 4:
            raise ValueError("no year")
        return datetime.date(*(int(found[part]) for part in "ymd")).isoformat()
    except ValueError as e:
        raise InputError(
            f"{word[:20]!r} is no date of the format {order}, with a year of four digits"
        ) from e


def pause(values: dict[str, str]) -> float:
    """Seconds of a <break>."""
    if "time" in values:
        return seconds(values["time"])
    strength = values.get("strength", "medium")
    if strength not in BREAKS:
        raise InputError(f"strength {strength!r} is not known; choose from {', '.join(BREAKS)}")
    return BREAKS[strength]


def rate(text: str) -> float:
    """The rate of a <prosody>: a word, "80%", "-20%" or "0.8".

    Raises:
        InputError: it is none, or out of 0.5 to 2.
    """
    if text in RATES:
        return RATES[text]
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        found = float(number) / (100 if percent else 1)
        if percent and number[:1] in ("+", "-"):  # a change
            found += 1
    except ValueError:
        found = 0.0
    if not 0.5 <= found <= 2:
        names = ", ".join(RATES)
        raise InputError(
            f"rate {text!r} should be one of {names}, or 50% to 200%, or -50% to +100%"
        )
    return found
