"""Reference: a recording made ready to be a voice; its words are given, heard or unknown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.noise import without_noise
from nanospeech.audio.pitch import leap
from nanospeech.audio.recording import (
    CLIPPING,
    LOWEST,
    above_rumble,
    bandwidth,
    clipping,
    denoised,
    depth,
    end_of_sound,
    gaps,
    rumble,
    without_gaps,
)
from nanospeech.errors import InputError
from nanospeech.release.prompt import BYTES_PER_SECOND
from nanospeech.release.voice_facts import NARROW
from nanospeech.text.sentences import byte_length, check_unicode, is_speakable
from nanospeech.text.written import UNSPACED

LONGEST_READ = 600.0  # seconds of a recording that are read
KEPT = (3.0, 12.0)  # seconds that a voice's recording should have; what is longer is cut
LISTENED = 30.0  # seconds in which words are listened for: what a recogniser hears at once
LEAST = 1.0  # seconds of sound without which there is no voice
EDGE = 0.1  # seconds of silence that are kept at both ends
NOISY, HISS = 20.0, 45.0  # dB of signal-to-noise below which to warn, and to denoise
LEAP = 6.0  # semitones of pitch from one stretch to another, from which it may be two people
STEEP = 12.0  # dB by which sound falls where a recording ends; a voice with few highs is no fault
LEVEL, PEAK = 0.1, 0.98  # target root mean square, and the highest magnitude
LEVEL_TOLD = 6.0  # dB of change in level from which it is reported
QUIET = 0.06  # seconds of a spot to cut at
PAUSE_DB = 10.0  # by which it has to be below speech
HEARD = 160  # characters of what was heard, in an error
SIGN = rf"[{UNSPACED}\u3000-\u303f\uff00-\uffef]"  # of writing without spaces, and its marks
GAP = re.compile(rf"(?<={SIGN}) (?={SIGN})")


@dataclass(frozen=True)
class Word:
    """A transcribed word with its punctuation, its start and end in seconds, and how sure it is."""

    text: str
    start: float
    end: float
    chance: float = 1.0  # its probability by the recogniser


# the words in a wave, float32 (n,) at audio.SAMPLE_RATE, none where they are of another language;
# see measure/transcription.py
Listener = Callable[[np.ndarray], list[Word]]


@dataclass(frozen=True)
class Reference:
    """A recording that is ready to be a voice.

    Attributes:
        wave: float32 (n,) at audio.SAMPLE_RATE, trimmed and levelled.
        text: what is said in it; nothing where that is not known.
        bandwidth: the highest frequency of its sound, in Hz.
        heard: whether the text was transcribed, not given.
        notes: what was found and done, each a sentence with its measure and remedy.
    """

    wave: np.ndarray
    text: str
    bandwidth: float
    heard: bool
    notes: tuple[str, ...]


def read_reference(
    path: str | Path,
    text: str | None,
    listener: Callable[[], Listener] | None,
    spoken: bool = False,
) -> Reference:
    """Reads a recording, trims, cuts, denoises and levels it.

    Args:
        path: of a file of at most ten minutes.
        text: what is said in all of it; None transcribes it.
        listener: loads a recogniser (measure.transcription); called only if one is needed. Without
            one, words that are not given, or whose recording has to be cut, are left unknown.
        spoken: whether a Speaker is made with it at once, which warns of words that do not fit.

    Raises:
        InputError: a file or recording that cannot be used; the message has the measure and what
            to do.
        BackendError: a transcription is needed, and no recogniser is installed.
    """
    check_unicode(text or "")
    if text is not None and not is_speakable(text):
        raise InputError(f"the text {text!r} has no words; write down what is said in {path}")
    whole = audio.centred(audio.read(path, max_seconds=LONGEST_READ))
    peak = float(np.abs(whole).max(initial=0))
    if audio.is_silent(whole):
        level = f"{20 * math.log10(peak):.0f} dB" if peak else "nothing at all"
        raise InputError(
            f"{path} is silent: its loudest sample is {level}; check the microphone and its level"
        )
    wave, seconds = sounding(whole)
    if not seconds:
        raise InputError(
            f"{path} is silent but for rumble below {LOWEST:g} Hz, {20 * math.log10(peak):.0f} dB"
            " loud; check the microphone and its cable"
        )
    if seconds < LEAST:
        raise InputError(
            f"{path} holds {seconds:.1f} s of sound; record {KEPT[0]:g} to {KEPT[1]:g} s of speech"
        )
    notes: list[str] = []
    if (gone := (len(whole) - len(wave)) / audio.SAMPLE_RATE) > 0.5:
        notes.append(f"{gone:.1f} s of silence were cut out")
    said = " ".join((text or "").split())
    begins = wave[: int(LISTENED * audio.SAMPLE_RATE)]
    words = listener()(begins) if listener and (text is None or seconds > KEPT[1]) else []
    heard = text is None and bool(words)
    said = " ".join(w.text for w in words) if heard else said
    if seconds > KEPT[1]:
        wave, said, note = (cut_at_pause if words else cut_anywhere)(wave, words, said.split())
        notes.append(note)
    if heard:  # of words that the recogniser wrote apart
        said = GAP.sub("", said)
    notes += remarks(clipping(path), wave, "" if spoken else said)
    return Reference(
        finished(wave, notes), said, bandwidth(wave, audio.SAMPLE_RATE), heard, (*notes,)
    )


def remarks(clipped: float, wave: np.ndarray, text: str) -> list[str]:
    """What is wrong with a recording, with the measure and the remedy.

    Args:
        clipped: share of its samples.
        wave: what is kept of it.
        text: what is said in that; nothing where it is not known.
    """
    found, seconds = [], len(wave) / audio.SAMPLE_RATE
    clear = above_rumble(wave)
    start, stop = audio.loud_span(clear)
    sound = (stop - start) / audio.SAMPLE_RATE
    pace = byte_length(text) / sound
    if text and not BYTES_PER_SECOND[0] <= pace <= BYTES_PER_SECOND[1]:
        far = "slow" if pace < BYTES_PER_SECOND[0] else "fast"
        found.append(
            f"its text of {len(text)} characters does not go with its {sound:.1f} s of sound, and"
            f" would make the voice too {far}: write down all that is said in it, and no more, or"
            " leave the text out"
        )
    if seconds < KEPT[0]:
        found.append(
            f"only {seconds:.1f} s: {KEPT[0]:g} to {KEPT[1]:g} s tell more of a voice; record more"
        )
    if clipped > CLIPPING:
        found.append(
            f"{100 * clipped:.2f} % of its samples are clipped, which is heard: lower the"
            " microphone's level and record again"
        )
    if (db := depth(clear)) < NOISY:
        found.append(
            f"noisy: its quietest moments are {db:.0f} dB below its speech, {NOISY:g} are needed:"
            " record nearer to the microphone, in a quieter room without echo"
        )
    if (semitones := leap(clear)) > LEAP:
        found.append(
            f"two voices? its pitch leaps by {semitones:.0f} semitones from one stretch to another:"
            " record one person alone, without music"
        )
    top, falls = end_of_sound(wave, audio.SAMPLE_RATE)
    if top < NARROW and falls > STEEP:
        found.append(
            f"narrow: its sound ends at {top / 1000:.1f} kHz, a full one at 11: record at 24 kHz or"
            " more, not over a telephone or a headset's radio link"
        )
    return found


def sounding(wave: np.ndarray) -> tuple[np.ndarray, float]:
    """A recording as it was made, without its offset, silence or rumble at its ends, and gaps.

    Silence in the middle would count as speech in its level, its pace and where it is cut.

    Returns:
        The wave and its seconds of sound: 0 where there is nothing but rumble.
    """
    wave = audio.centred(wave)
    clear = above_rumble(wave)
    start, stop = (0, 0) if audio.is_silent(clear) else audio.loud_span(clear)
    keep = int(EDGE * audio.SAMPLE_RATE)
    inside = slice(max(0, start - keep), stop + keep)
    part = without_gaps(wave[inside], gaps(clear[inside]))
    lost = len(wave[inside]) - len(part)
    return part, (stop - start - lost) / audio.SAMPLE_RATE


def finished(wave: np.ndarray, notes: list[str]) -> np.ndarray:
    """A recording without rumble and hiss, at the usual level, its ends trimmed.

    Notes what was done.
    """
    clear = above_rumble(wave)
    if clear is not wave:
        notes.append(f"its rumble was {-rumble(wave):.0f} dB below the rest, and was taken out")
    before = depth(clear)
    if before < HISS:
        cleaner = without_noise(clear, before)
        if cleaner is None:
            cleaner = denoised(clear, audio.SAMPLE_RATE)
        elif clear is not wave and (whole := without_noise(wave, depth(wave))) is not None:
            # the rumble was a part of a steady noise, which is known better as a whole
            cleaner = above_rumble(whole)
        if (gained := depth(cleaner) - before) >= 1:
            clear = cleaner
            notes.append(
                f"its hiss was {before:.0f} dB below speech, and was lowered by {gained:.0f} dB"
            )
    wave, gain = audio.set_level(audio.trim(clear, keep_seconds=EDGE), LEVEL)
    if (peak := float(np.abs(wave).max(initial=0))) > PEAK:
        wave, gain = wave * np.float32(PEAK / peak), gain * PEAK / peak
    if abs(db := 20 * math.log10(gain)) > LEVEL_TOLD:
        notes.append(f"its level was {'raised' if db > 0 else 'lowered'} by {abs(db):.0f} dB")
    return wave


def as_prompt(source: str | Path | bytes, most: float) -> np.ndarray:
    """A recording as `voices add` prepares one, but uncut: float32 (n,) at audio.SAMPLE_RATE.

    Args:
        source: a path, or the bytes of a file.
        most: seconds that a file may last.

    Raises:
        InputError: it cannot be read, or is too long.
    """
    whole = audio.read(source, max_seconds=most)
    wave, seconds = sounding(whole)
    return finished(wave, []) if seconds else np.zeros_like(whole)


def cut_at_pause(
    wave: np.ndarray, words: Sequence[Word], said: Sequence[str]
) -> tuple[np.ndarray, str, str]:
    """The beginning of a recording up to a pause, and the words in it.

    Args:
        wave: float32 (n,) at audio.SAMPLE_RATE.
        words: that were heard in it.
        said: its words; where these are not what was heard, it is cut only between two that are.

    Returns:
        The part, its words, and a note.

    Raises:
        InputError: there is no pause to cut at, or other words were heard.
    """
    seconds = len(wave) / audio.SAMPLE_RATE
    counts = spoken_before(words, said)
    best: tuple[float, float, int] | None = None
    for j, count in counts.items():
        at, drop = quiet_spot(wave, words[j].end - EDGE, words[j + 1].start + EDGE)
        if not KEPT[0] <= at <= KEPT[1] or drop < PAUSE_DB:
            continue
        ending = said[count - 1][-1:]
        score = min(drop, 40) / 10 + 2 * (ending in ".!?") + (ending in ",;:") + at / KEPT[1]
        if best is None or score > best[0]:
            best = score, at, count
    if best is None and len(counts) < len(words) / 2:
        heard = " ".join(w.text for w in words)
        raise InputError(
            f"the text does not go with the recording of {seconds:.1f} s, in which was heard:"
            f" {heard[:HEARD]}{'...' * (len(heard) > HEARD)} Write down all that is said in it, or"
            " cut it to 12 s yourself"
        )
    if best is None:
        raise InputError(
            f"the recording lasts {seconds:.1f} s and has no pause between {KEPT[0]:g} and"
            f" {KEPT[1]:g} s where it could be cut; cut it yourself, with the words that are left"
        )
    _, at, count = best
    note = f"cut at a pause after {at:.1f} s of {seconds:.1f} s, with its {count} words"
    return wave[: int(at * audio.SAMPLE_RATE)], " ".join(said[:count]), note


def cut_anywhere(
    wave: np.ndarray, words: Sequence[Word], said: Sequence[str]
) -> tuple[np.ndarray, str, str]:
    """The beginning of a recording up to its quietest moment, where its words are not known.

    Args:
        wave: float32 (n,) at audio.SAMPLE_RATE.
        words: that were heard in it: none.
        said: its words, which are lost by the cut.

    Returns:
        The part, no words, and a note.
    """
    seconds = len(wave) / audio.SAMPLE_RATE
    at, _ = quiet_spot(wave, sum(KEPT) / 2, KEPT[1])
    note = f"cut after {at:.1f} s of {seconds:.1f} s"
    note += ", and its text left out, as nobody listened how far it goes" if said else ""
    return wave[: int(at * audio.SAMPLE_RATE)], "", note


def plain(word: str) -> str:
    """The letters and digits of a word, in lower case."""
    return "".join(c for c in word.casefold() if c.isalnum())


def agreeing(words: Sequence[Word], said: Sequence[str]) -> dict[int, int]:
    """Where words heard and said agree: the index of the word said by that of the heard one."""
    matcher = SequenceMatcher(None, [plain(w.text) for w in words], [plain(w) for w in said], False)
    blocks = matcher.get_matching_blocks()
    return {block.a + i: block.b + i for block in blocks for i in range(block.size)}


def common_share(words: Sequence[Word], text: str) -> float:
    """Share of words heard and said, of the more of these, that agree; without spaces, of signs."""
    if re.search(SIGN, text):
        words = [Word(c, w.start, w.end) for w in words for c in w.text]
        said = list(text)
    else:
        said = text.split()
    heard, said = ([w for w in words if plain(w.text)], [w for w in said if plain(w)])
    return len(agreeing(heard, said)) / max(len(heard), len(said), 1)


def spoken_before(words: Sequence[Word], said: Sequence[str]) -> dict[int, int]:
    """Where words heard and said agree on both sides: index of a heard word, words said by then."""
    pairs = agreeing(words, said)
    return {j: at + 1 for j, at in pairs.items() if pairs.get(j + 1) == at + 1}


def quiet_spot(wave: np.ndarray, start: float, stop: float) -> tuple[float, float]:
    """Seconds of the quietest moment between two times, and the dB that it is below speech."""
    block = audio.SAMPLE_RATE // 100
    blocks = np.square(wave[: len(wave) // block * block], dtype=np.float64).reshape(-1, block)
    power = blocks.mean(1)
    width = round(QUIET * 100)
    smooth = np.convolve(power, np.ones(width) / width, "same")
    low = min(max(0, int(start * 100)), len(smooth) - 1)
    high = max(low + 1, min(len(smooth), int(stop * 100) + 1))
    at = low + int(np.argmin(smooth[low:high]))
    drop = 10 * math.log10((np.percentile(power, 90) + 1e-12) / (smooth[at] + 1e-12))
    return (at + 0.5) / 100, drop
