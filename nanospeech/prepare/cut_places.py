"""Where to cut: pauses between the words of a recording, and the clips between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.measure.transcription import joined
from nanospeech.speech.reference import EDGE, PAUSE_DB, Word, agreeing, plain, quiet_spot

from .tags import runs

SENTENCE, PHRASE = ".!?…。！？", ",;:—、，；："  # marks that end a sentence and a part of one
CLOSING = "\"'”’»)]」』"  # what may follow a mark
COST = {"sentence": 0.0, "phrase": 0.7, "word": 2.0}  # of an end of a clip
LOST = 4.0  # cost of each second of a stretch that cannot be a clip
SHARP, CLEAR = 50.0, 0.6  # dB that count between speech and quiet, and the share a pause has
SMOOTHED, SHORTEST = 5, 12  # hundredths of a second: levels' mean, and a pause, less a plosive's
LONGEST = 1.5  # seconds of a pause within a clip
WORDLESS = 3.0  # seconds within which a word should end, else there is music, or it was not heard
LATE = 0.3  # seconds that a recogniser's times may be off
SILENCE, REST = Word(".", -math.inf, 0.0), Word("", math.inf, math.inf)  # around all words
UNPAUSED = "no pause to cut at"
UNSURE = 0.5  # probability of a word again, or mean of all, below which a clip is left out
ALIKE = 0.7  # share of words heard and said that should agree
SLIP = 4  # letters in a row that may be heard without being in the text, or not be heard
REACH = 30  # words of a text that may be left out, or read at a time, beside those heard
SEEN = 4  # words in a row by which a place in a text is found again


@dataclass(frozen=True)
class Place:
    """Between two words.

    Attributes:
        start, stop: of the pause, in seconds.
        heard, said: words heard, and words of the text, before it.
        cost: of ending a clip here, 0 where a sentence ends in a clear pause.
        ends: whether a sentence ends here.
    """

    start: float
    stop: float
    heard: int
    said: int
    cost: float = 0.0
    ends: bool = True

    @property
    def at(self) -> float:
        """Its middle, in seconds."""
        return (self.start + self.stop) / 2


@dataclass(frozen=True)
class Clip:
    """A stretch of a recording, in seconds, with what is said in it, and why it is left out."""

    start: float
    stop: float
    text: str
    reason: str = ""


@dataclass(frozen=True)
class Window:
    """What became of the next seconds of a recording: its clips, and what is done of it."""

    clips: Sequence[Clip]
    seconds: float
    words: int  # of the text
    torn: bool = False  # it ends where nobody pauses, maybe within a word


def cut_window(
    wave: np.ndarray,
    words: Sequence[Word],
    last: bool,
    bounds: tuple[float, float],
    text: Sequence[str] | None = None,
    spaced: bool = True,
    torn: bool = False,
) -> Window:
    """Cuts the next seconds of a recording, up to the last end of a sentence in them.

    Args:
        wave: float32 (n,) at audio.SAMPLE_RATE.
        words: heard in it.
        last: whether the recording ends with it.
        bounds: least and most seconds of speech in a clip.
        text: the words that are read from here on, where they are known; else those heard count.
        spaced: whether there are spaces between words in its writing.
        torn: whether it begins where nobody pauses.
    """
    length = len(wave) / audio.SAMPLE_RATE
    said = [w.text for w in words] if text is None else next_words(text, 0, words)
    pairs = {j: j for j in range(len(words))} if text is None else agreeing(words, said)
    quiet = pauses(wave)
    found = places(quiet, words, said, pairs)
    begins = quiet[0].stop if quiet and quiet[0].start < EDGE else 0.0
    if last:
        ends = quiet[-1].start if quiet and quiet[-1].stop > length - EDGE else length
        behind = max(pairs.items(), default=(0, -1))[1] + 1
        end: Place | None = Place(max(begins, ends), length, len(words), behind)
    else:
        end = last_place(found, length / 3)
    ends_torn = end is None
    if end is None:  # nobody pauses, or speaks
        at, _ = quiet_spot(wave, length * 0.8, length - 0.5)
        heard = sum(w.end <= at for w in words)
        behind = max((pairs[j] + 1 for j in pairs if j < heard), default=0)
        end = Place(at, at, heard, behind)
    way = [Place(0.0, begins, 0, 0), *(p for p in found if p.at < end.at), end]
    clips = []
    for a, b in chosen(way, *bounds):
        if a.heard < b.heard:
            own = {j: pairs[j] for j in range(a.heard, b.heard) if j in pairs}
            clip = clip_of(a, b, words, said, own, bounds, spaced)
            if not clip.reason and ((torn and a is way[0]) or (ends_torn and b is end)):
                clip = replace(clip, reason=UNPAUSED)
            clips.append(clip)
    return Window(clips, end.at, end.said, ends_torn)


def clip_of(
    a: Place,
    b: Place,
    words: Sequence[Word],
    said: Sequence[str],
    pairs: Mapping[int, int],
    bounds: tuple[float, float],
    spaced: bool,
) -> Clip:
    """The clip between two places, whose words agree with the text's at these pairs."""
    heard = words[a.heard : b.heard]
    start, stop = max(a.at, a.stop - EDGE), min(b.at, b.start + EDGE)
    seconds, text = b.start - a.stop, joined(said[a.said : b.said], spaced)
    alone = letters_alone(a, b, words, said, pairs)
    if len(pairs) < ALIKE * max(len(heard), b.said - a.said) or alone > SLIP:
        what = joined([w.text for w in heard], spaced)
        return Clip(start, stop, what, "not the words of its text")
    if seconds < bounds[0]:
        return Clip(start, stop, text, "too short")
    ends = [a.stop, *(w.end for w in heard), b.start]  # Whisper tells starts less well
    if max(y - x for x, y in pairwise(ends)) > WORDLESS:
        return Clip(start, stop, text, "sound without words")
    if seconds > bounds[1]:
        return Clip(start, stop, text, UNPAUSED)
    again = any(plain(v.text) == plain(w.text) and w.chance < UNSURE for v, w in pairwise(heard))
    if again or sum(w.chance for w in heard) < UNSURE * len(heard):
        return Clip(start, stop, text, "unsure words")
    return Clip(start, stop, text)


def letters_alone(
    a: Place, b: Place, words: Sequence[Word], said: Sequence[str], pairs: Mapping[int, int]
) -> int:
    """Letters in a row that are only heard, or only in the text as a heading that nobody reads."""
    most, ways = 0, [(a.heard - 1, a.said - 1), *pairs.items(), (b.heard, b.said)]
    for (j, i), (after, beyond) in pairwise(ways):
        if after == j + 1 or beyond == i + 1:  # else others are said in their place
            heard = [word.text for word in words[j + 1 : after]]
            most = max(most, len(plain("".join([*heard, *said[i + 1 : beyond]]))))
    return most


def kind_of(word: str) -> str:
    """What ends with a word: a "sentence", a "phrase", or the "word" alone."""
    mark = word.rstrip(CLOSING)[-1:]
    if not mark:
        return "word"
    return "sentence" if mark in SENTENCE else "phrase" if mark in PHRASE else "word"


@dataclass(frozen=True)
class Pause:
    """A quiet stretch, in seconds; clear is 1 where nothing is quieter, 0 where it just is one."""

    start: float
    stop: float
    clear: float


def pauses(wave: np.ndarray) -> list[Pause]:
    """The quiet stretches of a wave, float32 (n,) at audio.SAMPLE_RATE."""
    block = audio.SAMPLE_RATE // 100
    blocks = wave[: len(wave) // block * block].reshape(-1, block)
    power = blocks.var(axis=1, dtype=np.float64) + 1e-10  # whatever a sound card's offset is
    if not len(power):
        return []
    level = 10 * np.log10(np.convolve(power, np.ones(SMOOTHED) / SMOOTHED, "same"))
    speech = 10 * math.log10(np.percentile(power, 90))
    depth = min(SHARP, speech - float(np.percentile(level, 5)))
    needed = max(PAUSE_DB, CLEAR * depth)
    found = []
    for start, stop in runs(level <= speech - needed):
        if stop - start >= SHORTEST:
            beyond = speech - float(level[start:stop].mean()) - needed
            clear = min(1.0, beyond / max(depth - needed, 1.0))
            found.append(Pause(start / 100, stop / 100, clear))
    return found


def places(
    found: Sequence[Pause], words: Sequence[Word], said: Sequence[str], pairs: Mapping[int, int]
) -> list[Place]:
    """The pauses between words that a recording may be cut at, in their order.

    Recognisers tell times to a few tenths of a second, so a pause next to a short word may be on
    either side of it; marks tell on which. Where there are none the word that holds a pause comes
    after it: Whisper lets a word begin where the one before ends, and tells well where it ends.

    Args:
        found: its pauses.
        words: heard, with their times.
        said: what its text has.
        pairs: where both agree; there is a place between two such words in a row.
    """
    pairs = with_misheard(pairs)
    best: dict[int, Place] = {}  # by words heard before it
    for pause in found:
        options = []
        for j, (word, after) in enumerate(pairwise([SILENCE, *words, REST]), -1):
            off = max(0.0, pause.start - after.start, word.end - pause.start)
            if off <= LATE:
                kind = kind_of(said[pairs[j]] if j in pairs else word.text)
                options.append((COST[kind] + off / LATE, j, kind))
        cost, j, kind = min(options, default=(0.0, -1, ""))
        if j in pairs and pairs.get(j + 1) == pairs[j] + 1:
            cost += 1 - pause.clear
            ends = kind == "sentence"
            place = Place(pause.start, pause.stop, j + 1, pairs[j] + 1, cost, ends)
            if j + 1 not in best or place.cost < best[j + 1].cost:
                best[j + 1] = place
    ordered = [best[j] for j in sorted(best)]
    return [p for p, q in zip(ordered, [*ordered[1:], None]) if q is None or p.at < q.at]


def with_misheard(pairs: Mapping[int, int]) -> dict[int, int]:
    """Pairs of words heard and said, and those of as many others between two of them."""
    found = dict(pairs)
    for (j, i), (after, beyond) in pairwise(sorted(pairs.items())):
        if after - j == beyond - i:
            found |= zip(range(j + 1, after), range(i + 1, beyond))
    return found


def chosen(way: Sequence[Place], least: float, most: float) -> list[tuple[Place, Place]]:
    """The stretches that a recording is best cut into: the cheapest way from first to last place.

    Args:
        way: places, the first before all words, the last behind them.
        least, most: seconds of speech in a clip.

    Returns:
        Neighbouring places; between two there may be fewer or more seconds than that where there is
        no better way.
    """
    usual = math.sqrt(least * most)
    best: list[tuple[float, int]] = [(0.0, 0)]  # the cost up to each place, and the one before it
    for j in range(1, len(way)):
        costs = []
        for i in reversed(range(j)):
            seconds = way[j].start - way[i].stop
            if way[i].heard == way[j].heard:
                own = 0.0  # nothing is said
            elif least <= seconds <= most:
                own = way[j].cost + 0.5 * math.log(seconds / usual) ** 2
            else:
                own = LOST * seconds
            costs.append((best[i][0] + own, i))
            if way[i].stop - way[i].start > LONGEST:
                break
        best.append(min(costs))
    cuts = [len(way) - 1]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    return [(way[i], way[j]) for i, j in pairwise(reversed(cuts))]


def last_place(found: Sequence[Place], after: float) -> Place | None:
    """The last place where a sentence ends, behind so many seconds; else the last one at all."""
    behind = [place for place in found if place.at >= after]
    return ([place for place in behind if place.ends] or behind or [None])[-1]


def next_words(text: Sequence[str], at: int, words: Sequence[Word]) -> Sequence[str]:
    """The words of a text from a place on that may be read while these are heard."""
    return text[at : at + len(words) * 3 // 2 + REACH]


def found_again(words: Sequence[Word], text: Sequence[str], at: int) -> int:
    """Where in a text a recording goes on, if what is heard does not begin near a place.

    Args:
        words: heard.
        text: all of its words.
        at: the place, which stays where nothing better is to be found.
    """
    if len(agreeing(words, next_words(text, at, words))) >= len(words) / 2:
        return at
    heard, said = [plain(w.text) for w in words], [plain(w) for w in text]
    a, b, size = SequenceMatcher(None, heard, said, False).find_longest_match()
    return max(0, b - a) if size >= SEEN else at
