"""Words: how far the times of words are from those that Whisper hears.

    python -m scripts.benchmarks.words --whisper base --count 40

Speaks sentences of nanospeech/evaluate/, hears them with Whisper's word times (arXiv 2212.04356),
and compares the starts of the words that are the same in both, in order. Whisper's own error: the
same speech is heard again behind silences that are no multiple of its frames of 20 ms, and what
moves against the silence is its error. Where a word follows a silence, its start is compared with
the end of the silence in the wave as well, for both. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
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


@command
def main(argv: list[str] | None = None) -> int:
    """Measures and prints."""
    from nanospeech.config import SampleOptions
    from nanospeech.load import load_engine
    from nanospeech.measure.transcription import whisper_listener
    from nanospeech.speech.speaker import Speaker

    parser = Parser("scripts.benchmarks.words", __doc__)
    parser.add_argument("--model", help="release folder; the voice that ships if not given")
    parser.add_argument("--voice")
    parser.add_argument("--whisper", default="base", help="size or folder")
    parser.add_argument("--sentences", default="sentences.txt", help="a file beside evaluate's")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args(argv)
    texts = (SENTENCES / args.sentences).read_text(encoding="utf-8").splitlines()[: args.count]
    engine = load_engine(args.model)
    speaker = Speaker(engine, args.voice, options=SampleOptions(steps=args.steps), seed=1)
    listen = whisper_listener(args.whisper)
    starts, ends, own, inner, onsets, their_onsets = [], [], [], [], [], []
    for text in texts:
        spoken = speaker.speak(text)
        heard = listen(spoken.wave)
        pairs = same_words(spoken.words or (), heard)
        starts += [ours.start - theirs.start for ours, theirs in pairs]
        inner += [ours.start - theirs.start for ours, theirs in pairs if ours.place]
        ends += [ours.end - theirs.end for ours, theirs in pairs]
        stops = silence_ends(spoken.wave, speaker.sample_rate)
        for ours, theirs in pairs:
            near = [s for s in stops if abs(s - ours.start) < NEAR and ours.place]
            onsets += [ours.start - s for s in near[:1]]
            their_onsets += [theirs.start - s for s in near[:1]]
        for silence in SILENCES:
            pad = np.zeros(round(silence * speaker.sample_rate), np.float32)
            again = listen(np.concatenate([pad, spoken.wave]))
            own += [a.start - silence - b.start for a, b in same_words(again, heard)]
    found = {"starts": starts, "starts_but_the_first": inner, "ends": ends, "whisper_itself": own}
    found |= {"after_silence": onsets, "whisper_after_silence": their_onsets}
    print(json.dumps({name: summary(e) for name, e in found.items() if e}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
