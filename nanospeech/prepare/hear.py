"""Hear: transcribes clips, several in one window of the recogniser, into curate's heard.csv.

    nanospeech prepare hear shards/*.tar --out data/heard.csv --whisper base

Whisper always encodes 30 seconds, so a clip of five costs as much as six such clips. Here clips are
joined with pauses between them, and eight such windows are transcribed at once, without a beam; the
transcript is divided between them by aligning it with their texts. A clip in which more than
--again of the words differ is transcribed again by itself, with a beam, so that no clip is dropped
because of its neighbours. With the same recordings and --language, `nanospeech prepare curate --out
data --whisper base` then finds all of it in data/heard.csv and listens to nothing again. A run that
was stopped goes on. What cannot be read, or is longer than a window, is left to curate. The last
line is the counts as JSON.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, command, say
from nanospeech.corpus.layouts import Sample
from nanospeech.corpus.mp3 import BadAudio, decode, in_parallel
from nanospeech.corpus.skips import find_some, tell
from nanospeech.errors import InputError
from nanospeech.locks import alone
from nanospeech.machine import cores
from nanospeech.measure.wer import edit_rows, normalize
from nanospeech.text.languages import spoken_code

from .recogniser import (
    BATCH,
    Heard,
    batched_whisper,
    language_of,
    languages_of,
    misheard,
    whisper,
)

WINDOW = 29.0  # seconds that the recogniser takes at once
PAUSE = 0.7  # seconds of silence between clips
Group = list[tuple[Sample, bytes, np.ndarray]]  # of clips that fill a window
Result = tuple[Sample, bytes, str]


def alignment(said: Sequence[str], heard: Sequence[str]) -> list[int]:
    """The word said that each word heard belongs to, by fewest edits.

    Args:
        said: words of the texts.
        heard: words that a recogniser wrote.

    Returns:
        An index into said for each word of heard, never falling; an inserted word belongs to the
        word said before it, or to the first.
    """
    cost = list(edit_rows(said, heard))
    i, j, owners = len(said), len(heard), [0] * len(heard)
    while j > 0:
        if i and cost[i][j] == cost[i - 1][j - 1] + (said[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            owners[j] = i
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
            owners[j] = max(0, i - 1)
    return owners


def share_out(texts: Sequence[str], heard: str, language: str = "en") -> list[str]:
    """What was heard of each of several texts that were spoken one after another.

    Args:
        texts: in their order.
        heard: what a recogniser wrote of all of them.
        language: of all.

    Returns:
        The normalised words of each.
    """
    said = [(word, k) for k, text in enumerate(texts) for word in normalize(text, language).split()]
    words = normalize(heard, language).split()
    shares: list[list[str]] = [[] for _ in texts]
    if said:
        for word, owner in zip(words, alignment([w for w, _ in said], words)):
            shares[said[owner][1]].append(word)
    return [" ".join(s) for s in shares]


def hear(groups: Sequence[Group], name: str, again: float, language: str) -> list[Result]:
    """Hears the clips of each group at once, and by itself each one that came out badly."""
    pause = np.zeros(int(PAUSE * audio.SAMPLE_RATE), np.float32)
    windows = [np.concatenate([p for _, _, wave in g for p in (wave, pause)]) for g in groups]
    results: list[Result] = []
    for group, heard in zip(groups, batched_whisper(name)(windows, language)):
        shares = share_out([sample.text for sample, _, _ in group], heard, language)
        for (sample, data, wave), share in zip(group, shares):
            if misheard(sample.text, share, language) > again:
                share = whisper(name)(wave, language)
            results.append((sample, data, share))
    return results


def hear_samples(
    samples: Sequence[Sample], name: str, again: float, language: str | None
) -> list[Result]:
    """Reads clips and hears them, windows at a time; what cannot be read is left to curate."""
    results: list[Result] = []
    groups: list[Group] = []
    seconds, now = 0.0, "en"
    for sample in samples:
        try:
            data = sample.audio.read()
            wave, _ = decode(data, 0.1, WINDOW - 1)
        except BadAudio:
            continue
        length = len(wave) / audio.SAMPLE_RATE + PAUSE
        spoken = language_of(sample, language)
        full = seconds + length > WINDOW
        if groups and (spoken != now or (full and len(groups) == BATCH)):
            results += hear(groups, name, again, now)
            groups = []
        if full or not groups:
            groups.append([])
            seconds = 0.0
        groups[-1].append((sample, data, wave))
        seconds, now = seconds + length, spoken
    return results + (hear(groups, name, again, now) if groups else [])


def portions(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    """Samples in lists of at most so many."""
    portion: list[Sample] = []
    for sample in samples:
        portion.append(sample)
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare hear", __doc__)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="see prepare shards")
    parser.add_argument("--out", type=Path, required=True, help="the heard.csv to fill")
    parser.add_argument(
        "--whisper", default="base", help="faster-whisper size or folder (%(default)s)"
    )
    parser.add_argument(
        "--again", type=float, default=0.1, help="share of words, see above (%(default)s)"
    )
    parser.add_argument("--language", help="of clips that name none, such as de (English)")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (default: one a core)")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}; choose at least 1")
    spoken_code(args.language)  # checks it
    samples, skips = find_some(args.inputs)
    languages = languages_of(samples, args.language)
    samples = [s for s in samples if s.key in languages]  # the others are left to curate
    args.out.parent.mkdir(parents=True, exist_ok=True)
    work = partial(hear_samples, name=args.whisper, again=args.again, language=args.language)
    with (
        alone(args.out.parent, "--out", say, f".{args.out.name}.lock"),
        Heard(args.out, Path(args.whisper).name, languages) as heard,
        tqdm(total=len(samples), desc="hear", unit=" clips", disable=None) as bar,
    ):

        def is_new(sample: Sample) -> bool:
            known = heard.known.get(sample.key)
            try:
                return not known or zlib.crc32(sample.audio.read()) not in known
            except BadAudio:  # now; it is left to curate
                return True

        todo = sorted(filter(is_new, samples), key=lambda s: languages[s.key])
        bar.update(len(samples) - len(todo))
        heard_now = 0
        for results in in_parallel(work, portions(todo, 48), args.jobs):
            for sample, data, text in results:
                heard.add(sample.key, data, sample.text, text)
            bar.update(len(results))
            heard_now += len(results)
    left = len(todo) - heard_now
    counts = {"heard": heard_now, "known": len(samples) - len(todo), "left_to_curate": left}
    tell(counts | {"out": str(args.out)}, skips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
