"""Words: how far the times of words are from those that Whisper hears.

    python -m scripts.benchmarks.words --whisper base --count 40

Speaks sentences of nanospeech/evaluate/, hears them with Whisper's word times (arXiv 2212.04356),
and compares the starts of the words that are the same in both, in order. Whisper's own error: the
same speech is heard again behind silences that are no multiple of its frames of 20 ms, and what
moves against the silence is its error. Two places are seen in the wave itself, and there both are
compared with it: the end of a silence, and the first S of a word behind a vowel, a nasal or a
liquid, where sound above 4 kHz sets in. Whisper is early at both; --whisper-early moves its words
by what that was on other sentences. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import nanospeech.evaluate
from nanospeech.cli import Parser, command
from nanospeech.text.written import bare

SENTENCES = Path(nanospeech.evaluate.__file__).parent
BLOCK, SILENT = 0.005, -35.0  # seconds, dB to the loud blocks: what counts as silent
LONG, NEAR = 0.08, 0.15  # seconds of a silence, and of a word's start from its end
SILENCES = (0.13, 0.37)  # seconds before the speech when it is heard again
HISS, STEP = 4000.0, 0.001  # Hz from which an S sounds, seconds between its levels
BEFORE = "aouymnlrw"  # letters at a word's end whose sounds have little above that


def same_words(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs of words with the same letters, in order."""
    a, b = [bare(word.text) for word in ours], [bare(word.text) for word in theirs]
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return [(ours[i + k], theirs[j + k]) for i, j, n in blocks for k in range(n)]


def silence_ends(wave: np.ndarray, rate: int) -> list[float]:
    """Seconds at which silences of 80 ms or more end, but for the last one."""
    size = round(BLOCK * rate)
    blocks = wave[: len(wave) // size * size].reshape(-1, size)
    power = np.square(blocks, dtype=np.float64).mean(1)
    silent = power < np.percentile(power, 98) * 10 ** (SILENT / 10)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], silent.astype(np.int8), [0]])))
    found = [(b * BLOCK, (b - a) * BLOCK) for a, b in edges.reshape(-1, 2)]
    return [end for end, length in found if length >= LONG and end < len(wave) / rate - NEAR]


def hiss_levels(wave: np.ndarray, rate: int) -> np.ndarray:
    """The level above 4 kHz in dB, each millisecond, over 10 ms."""
    spectrum = np.fft.rfft(wave)
    spectrum[: round(HISS * len(wave) / rate)] = 0
    high, size = np.fft.irfft(spectrum, len(wave)), round(0.01 * rate)
    power = np.convolve(np.square(high), np.ones(size) / size, "same")
    return 10 * np.log10(power[:: round(STEP * rate)] + 1e-12)


def sibilant_onsets(wave: np.ndarray, rate: int, words: Sequence[Any]) -> dict[int, float]:
    """Where an S sets in, by the place of the word that begins with it: seconds.

    The word's times say only which S it is: its loudest moment, from 60 ms before the start. From
    there the onset is the last time before that the level is half way, in dB, to the quiet of the
    200 ms before it; to about 5 ms, as levels are those of 10 ms.
    """
    level, found = hiss_levels(wave, rate), {}
    for before, word in pairwise(words):
        last, first = bare(before.text)[-1:], bare(word.text)[:1]
        if first != "s" or last not in BEFORE or word.start - before.end > LONG:
            continue
        low = max(0, round((word.start - 0.06) / STEP))
        peak = low + int(np.argmax(level[low : round((word.start + 0.12) / STEP)]))
        base = np.percentile(level[max(0, peak - 200) : peak + 1], 10)
        at = peak
        while at > 0 and level[at] > (base + level[peak]) / 2:
            at -= 1
        found[word.place] = at * STEP
    return found


def summary(errors: Sequence[float]) -> dict[str, Any]:
    """Mean absolute error, median absolute error, mean and 90th percentile, in ms."""
    ms = 1000 * np.array(errors)
    return {
        "words": len(ms),
        "mean_absolute_ms": round(float(np.abs(ms).mean()), 1),
        "median_absolute_ms": round(float(np.median(np.abs(ms))), 1),
        "p90_absolute_ms": round(float(np.percentile(np.abs(ms), 90)), 1),
        "bias_ms": round(float(ms.mean()), 1),
    }


class Errors(dict[str, list[float]]):
    """Lists of seconds, by what they are errors of."""

    def __missing__(self, name: str) -> list[float]:
        self[name] = []
        return self[name]

    def take(self, spoken: Any, heard: Sequence[Any], early: float) -> None:
        """Compares the words of an utterance with those that Whisper heard in it."""
        rate, words = spoken.sample_rate, spoken.words or ()
        stops, hisses = silence_ends(spoken.wave, rate), sibilant_onsets(spoken.wave, rate, words)
        for ours, theirs in same_words(words, heard):
            self["starts"].append(ours.start - theirs.start)
            self["ends"].append(ours.end - theirs.end)
            if not ours.place:
                continue
            self["starts_but_the_first"].append(ours.start - theirs.start)
            if early:
                moved = theirs.start + early
                self["starts_but_the_first_whisper_moved"].append(ours.start - moved)
            seen = {"after_silence": next((s for s in stops if abs(s - ours.start) < NEAR), None)}
            seen["at_an_s"] = hisses.get(ours.place)
            for name, time in seen.items():
                if time is not None:
                    self[name].append(ours.start - time)
                    self[f"whisper_{name}"].append(theirs.start - time)
                    self["whisper_seen"].append(theirs.start - time)
                    self["seen"].append(ours.start - time)


@command
def main(argv: list[str] | None = None) -> int:
    """Measures and prints."""
    from nanospeech.config import SampleOptions
    from nanospeech.load import load_engine
    from nanospeech.measure.transcription import whisper_listener
    from nanospeech.speech.speaker import Speaker

    parser = Parser("python -m scripts.benchmarks.words", __doc__)
    parser.add_argument("--model", help="release folder; the voice that ships if not given")
    parser.add_argument("--voice")
    parser.add_argument("--whisper", default="base", help="size or folder")
    parser.add_argument("--sentences", default="sentences.txt", help="a file beside evaluate's")
    parser.add_argument("--skip", type=int, default=0, help="sentences left out at the beginning")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--again", type=int, default=1, help="hear every Nth sentence again")
    parser.add_argument("--whisper-early", type=float, default=0.0, help="ms, see above")
    args = parser.parse_args(argv)
    texts = (SENTENCES / args.sentences).read_text(encoding="utf-8").splitlines()[args.skip :]
    engine = load_engine(args.model)
    speaker = Speaker(engine, args.voice, options=SampleOptions(steps=args.steps), seed=1)
    listen, errors = whisper_listener(args.whisper), Errors()
    for number, text in enumerate(texts[: args.count]):
        spoken = speaker.speak(text)
        heard = listen(spoken.wave)
        errors.take(spoken, heard, args.whisper_early / 1000)
        for silence in SILENCES if number % args.again == 0 else ():
            pad = np.zeros(round(silence * speaker.sample_rate), np.float32)
            again = listen(np.concatenate([pad, spoken.wave]))
            pairs = same_words(again, heard)
            errors["whisper_itself"] += [a.start - silence - b.start for a, b in pairs]
    print(json.dumps({name: summary(e) for name, e in errors.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
