"""Markup: brackets in a text, or SSML, that say how it is spoken: pauses, letters, sounds, voices.

    [pause 500ms]  [spell: ABC]  [say: tomato | T AH0 M AA1 T OW0]
    [slow]...[/slow]  [fast]...[/fast]  [voice: kumo]...[/voice]

Other brackets are text, and so is one behind a backslash. What is spoken stays traced to the text
as written. ssml.py reads SSML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from nanospeech.errors import InputError

from .pronunciation import parse_phonemes
from .traced import Traced, joined

NAMES = "pause|spell|say|slow|fast|voice"
# signs of IPA that no word is written with; Piper's [[ phonemes ]] have one
SIGNS = "ˈˌːɐɑɒəɚɛɜɝɔɡɪɫɹɾʃʊʌʒʔᵻ"
SOUNDS = rf"\[(?=[^\[\]]{{0,99}}[{SIGNS}])([^\[\]]{{1,100}})\]"
MARKUP = re.compile(rf"(\\?)\[(?:\s*(/\s*)?({NAMES})\b(?!-[a-z])([^\[\]]*)|{SOUNDS})\]", re.I)
# what stands behind the name in markup of the right form, and in hardly anything else
FORMS = {"pause": r"[\s:]*\d.*", "say": r"\s*:.*\|.*", "spell": r"\s*:.*", "voice": r"\s*:.*"}
TIME = re.compile(r"\s*\+?(\d{1,5}(?:\.\d{1,3})?|\.\d{1,3})\s*(ms|s)\s*")
LONGEST_PAUSE = 10.0  # seconds
RATES = {"slow": 0.8, "fast": 1.25}
SLOWEST, FASTEST = 0.5, 2.0
# marks that belong to the word before a style's end, or behind its beginning
CLOSING = re.compile(r"[,.;:!?…)\]}»”’\"']+(?=\s|$)")
OPENING = re.compile(r"(?:^|(?<=\s))[(\[{«“‘„\"']+$")
WORD = re.compile(r"[^\W_]")  # a letter or digit
JOINER = "\u2060"  # behind a word with sounds of its own; more of them for its other sounds
DEEPEST = 32


class Style(NamedTuple):
    """How a span is spoken: times the speed, and by whom; None is the speaker's own voice."""

    rate: float = 1.0
    voice: str | None = None


@dataclass(frozen=True)
class Span:
    """A piece of a text that is spoken in one way.

    Attributes:
        written: without markup, traced from the text that was given.
        said: what is to be read for it, traced from `written`.
        style: how.
        after: seconds of the pause behind it, or its kind, of output.PAUSES; None: that of its
            marks.
        before: seconds of silence before it; only where the text begins with a pause.
    """

    written: Traced
    said: Traced
    style: Style = Style()
    after: float | str | None = None
    before: float = 0.0


@dataclass(frozen=True)
class Marked:
    """A text with markup, read.

    Attributes:
        spans: in order.
        phonemes: of words of the spans, for a lexicon.
    """

    spans: tuple[Span, ...]
    phonemes: dict[str, str]

    @property
    def text(self) -> str:
        """The text as written, without markup."""
        return "".join(span.written.text for span in self.spans)

    @property
    def silence(self) -> float:
        """Seconds of all pauses whose length is given."""
        after = (span.after for span in self.spans if isinstance(span.after, float | int))
        return sum(after) + sum(span.before for span in self.spans)

    def with_voices(self, find: Callable[[str], str]) -> Marked:
        """The same, with the names of its voices as find() gives them; it may raise."""
        return replace(self, spans=tuple(_in_voice(span, find) for span in self.spans))


class Builder:
    """Collects the spans of a text."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.phonemes: dict[str, str] = {}
        self.sounds: dict[str, dict[str, int]] = {}  # of each word, with how many joiners
        self.styles = [Style()]
        self.written: list[Traced] = []
        self.said: list[Traced] = []
        self.length = 0
        self.before = 0.0  # seconds of pauses before all text

    def text(self, text: str, place: int, said: str | None = None) -> None:
        """Takes a piece of text, and what is said for it if that is something else.

        Raises:
            InputError: it goes on with a word that has sounds of its own, or is one within a word.
        """
        if not text:
            return
        before = self.written[-1].text[-1:] if self.written else ""
        sounds = (said or "").endswith(JOINER) or (self.said and self.said[-1].text[-1:] == JOINER)
        if sounds and before.isalnum() and text[0].isalnum():
            raise InputError(
                f"{text[:20]!r} is one word with what stands before it: give the sounds of it all"
            )
        own = Traced.of(text, self.length)
        self.written.append(Traced.of(text, place))
        self.said.append(own if said is None else own.edited([(0, len(text), said)]))
        self.length += len(text)

    def say(self, word: str, phonemes: str, alphabet: str, place: int) -> None:
        """Takes a word and its sounds."""
        parse_phonemes(phonemes, alphabet)
        word = word.strip()
        if not WORD.search(word):
            raise InputError(f"{word!r} is no word that sounds could be for")
        one = " ".join(word.split())
        sounds = self.sounds.setdefault(one.lower(), {})
        marked = one + JOINER * sounds.setdefault(phonemes, len(sounds) + 1)
        self.phonemes[marked] = phonemes
        self.text(word, place, marked)

    def spell(self, word: str, place: int) -> None:
        """Takes a word that is said letter by letter."""
        letters = [c for c in word if c.isalnum()]
        if not letters:
            raise InputError("there is no letter to spell")
        named = ("ay" if c in "aA" else c.upper() for c in letters)
        self.text(word, place, " ".join(named))

    def end(self, after: float | str | None = None, last: bool = False) -> None:
        """Ends the span, if there is any text in it, with a pause.

        Args:
            after: the pause.
            last: whether no text follows; a quote or bracket that opens stays with what it opens.
        """
        written, said = self._without_edge(joined(self.written), joined(self.said))
        left: list[Traced] = []
        begun = bool(self.spans) or WORD.search(written.text)
        if begun and not last and (match := OPENING.search(written.text)):
            cut = match.start() - len(written)
            if said.text[cut:] == match[0]:
                opening, at = said[len(said) + cut :], match.start()
                left = [written[at:], Traced(match[0], opening.starts - at, opening.stops - at)]
                written, said = written[:at], said[: len(said) + cut]
        if not WORD.search(written.text) and written.text.strip():
            if not self.spans:  # marks that begin the next span
                self._begin_later(after)
                self.written, self.said = [written], [said]  # not joined anew at each pause
                return
            self._add_marks(written, said)
            written = written[:0]
        if written.text.strip():
            before, self.before = self.before, 0.0
            self.spans.append(Span(written, said, self.styles[-1], after, before))
        elif after is not None and self.spans:
            self.spans[-1] = replace(self.spans[-1], after=longer(self.spans[-1].after, after))
        else:
            self._begin_later(after)
        self.written, self.said = left[:1], left[1:]
        self.length = len(left[0]) if left else 0

    def _begin_later(self, after: float | str | None) -> None:
        """Takes a pause before all text."""
        if isinstance(after, float):
            self.before = min(self.before + after, LONGEST_PAUSE)

    def _without_edge(self, written: Traced, said: Traced) -> tuple[Traced, Traced]:
        """A piece without what it begins with of the span before: marks, and spaces, its pause."""
        if not self.spans:
            return written, said
        found = [len(t.text) - len(t.text.lstrip()) for t in (written, said)]
        edge, before = min(found), self.spans[-1].written.text
        marks = CLOSING.match(written.text)
        if marks and not before[-1:].isspace() and said.text.startswith(marks[0]):
            found = [len(t.text) - len(t.text[marks.end() :].lstrip()) for t in (written, said)]
            edge = min(found)
        if not edge:
            return written, said
        self._add_marks(written[:edge], said[:edge])
        rest = said[edge:]
        return written[edge:], Traced(rest.text, rest.starts - edge, rest.stops - edge)

    def _add_marks(self, written: Traced, said: Traced) -> None:
        """Puts marks or spaces to the span before them."""
        last = self.spans[-1]
        moved = Traced(said.text, *(at + len(last.written) for at in (said.starts, said.stops)))
        both = joined([last.written, written]), joined([last.said, moved])
        self.spans[-1] = replace(last, written=both[0], said=both[1])

    def open(self, rate: float = 1.0, voice: str | None = None) -> None:
        """Begins another style within the present one."""
        if len(self.styles) > DEEPEST:
            raise InputError(f"it is within {DEEPEST} others; at most so many are taken")
        self.end()
        old = self.styles[-1]
        rate = min(max(old.rate * rate, SLOWEST), FASTEST)
        self.styles.append(Style(rate, old.voice if voice is None else voice))

    def close(self) -> None:
        """Ends the last style."""
        self.end()
        self.styles.pop()

    def marked(self) -> Marked:
        """All of it."""
        self.end(last=True)
        if not self.spans:
            raise InputError("there is no text to speak")
        return Marked(tuple(self.spans), self.phonemes)


def longer(first: float | str | None, second: float | str) -> float | str:
    """Of two pauses at one place: seconds add up, and go before those of the text's structure."""
    if isinstance(first, float) and isinstance(second, float):
        return min(first + second, LONGEST_PAUSE)
    return first if isinstance(first, float) else second


def seconds(text: str) -> float:
    """Reads "500ms" or "1.5s".

    Raises:
        InputError: it is no time, or too long.
    """
    match = TIME.fullmatch(text)
    if not match:
        raise InputError(f"{text.strip()!r} is no time; write 500ms or 1.5s")
    found = float(match[1]) / (1000 if match[2] == "ms" else 1)
    if found > LONGEST_PAUSE:
        raise InputError(f"a pause of {found:g} s is too long; at most {LONGEST_PAUSE:g} s")
    return found


def where(text: str, place: int) -> str:
    """Line and column of a place in a text, both from 1."""
    return (
        f"line {text.count(chr(10), 0, place) + 1}, column {place - text.rfind(chr(10), 0, place)}"
    )


def read_markup(
    text: str, lenient: bool = False, check: Callable[[str], object] | None = None
) -> Marked:
    """Reads bracket markup.

    Args:
        text: as written.
        lenient: for texts by others, such as books: brackets that begin like markup and have not
            its form, as [pause for effect], are text; and a text without words has no spans.
        check: is called with the name of each voice, and raises InputError where there is none.

    Raises:
        InputError: markup that is wrong, with what it is and where.
    """
    build, at, opened = Builder(), 0, []

    def take_text(stop: int) -> None:
        try:
            build.text(text[at:stop], at)
        except InputError as e:
            raise InputError(f"{where(text, at)}: {e}") from e

    for match in MARKUP.finditer(text):
        if lenient and not is_formed(match):
            continue
        escape = match[1]
        take_text(match.start())
        at = match.start() + 1 if escape else match.end()
        try:
            if not escape:
                _take(build, match, opened)
                if check is not None and build.styles[-1].voice is not None:
                    check(build.styles[-1].voice)
        except InputError as e:
            raise InputError(f"{match[0][:60]} at {where(text, match.start())}: {e}") from e
    take_text(len(text))
    if opened:
        name, place = opened[-1]
        raise InputError(f"[{name}] at {where(text, place)} is not closed; add [/{name}]")
    if not lenient:
        return build.marked()
    build.end(last=True)
    return Marked(tuple(build.spans), build.phonemes)


def is_formed(match: re.Match) -> bool:
    """Whether a match of MARKUP has its form, right or wrong: "[pause 5]", not "[pause]"."""
    _, closes, name, rest, sounds = match.groups()
    if sounds is not None:
        return True
    form = r"\s*" if closes else FORMS.get(name.lower(), r"\s*")
    return bool(re.fullmatch(form, rest, re.S))


def without_markup(line: str) -> str:
    """A line without its markup; as it is where that is wrong, or ends in another line."""
    try:
        return read_markup(line, lenient=True).text.strip()
    except InputError:
        return line


def _in_voice(span: Span, find: Callable[[str], str]) -> Span:
    voice = span.style.voice
    if voice is None:
        return span
    return replace(span, style=span.style._replace(voice=find(voice)))


def _take(build: Builder, match: re.Match, opened: list[tuple[str, int]]) -> None:
    """Takes one pair of brackets, or of double brackets."""
    _, closes, name, rest, sounds = match.groups()
    if sounds is not None:  # the word is written by its sounds
        place = match.end(5) - len(sounds.lstrip())
        return build.say(sounds, sounds.strip(), "ipa", place)
    name, rest = name.lower(), rest.strip()
    if closes:
        if rest or not opened or opened[-1][0] != name:
            last = f"close [{opened[-1][0]}] first" if opened else f"there is no [{name}] before it"
            raise InputError(last if not rest else f"write [/{name}]")
        opened.pop()
        build.close()
    elif name == "pause":
        build.end(seconds(rest))
    elif name in RATES:
        if rest:
            raise InputError(f"write [{name}]")
        build.open(rate=RATES[name])
        opened.append((name, match.start()))
    else:
        _take_named(build, match, opened, rest)


def _take_named(build: Builder, match: re.Match, opened: list[tuple[str, int]], rest: str) -> None:
    """Takes [spell: ABC], [say: word | sounds] or [voice: NAME]."""
    name = match[3].lower()
    value = rest[1:].strip()
    if not rest.startswith(":") or not value:
        samples = {"spell": "ABC", "say": "tomato | T AH0 M AA1 T OW0", "voice": "kumo"}
        raise InputError(f"write [{name}: {samples[name]}]")
    place = match.end() - 1 - len(match[4].lstrip()[1:].lstrip())
    if name == "spell":
        build.spell(value, place)
    elif name == "say":
        word, bar, sounds = value.partition("|")
        if not bar:
            raise InputError("write the word, | and its sounds: [say: tomato | T AH0 M AA1 T OW0]")
        build.say(word, sounds.strip(), "", place)
    else:
        build.open(voice=value)
        opened.append((name, match.start()))
