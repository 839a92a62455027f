"""Pauses: how long a finished wave is silent where its text asks for it, by the wave alone.

    python -m nanospeech.measure.pauses --file chapter.txt --voice kathleen

An aligned model finds the tokens of the text in the wave; at those of a mark, silence is counted.
Nothing is taken from how the pauses were made.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from nanospeech.audio.mel import log_mel
from nanospeech.cli import Parser, command
from nanospeech.speech.pauses import find_marks
from nanospeech.text.headings import AFTER_HEADING
from nanospeech.text.sentences import encode, readable

BLOCK = 0.005  # seconds over which a level is taken
SILENT = -38.0  # dB to the loud blocks, the 98th percentile
NEAR = (
    0.2  # seconds around a mark in which its silence is searched; a stop's release may lie between
)


def silence_at(wave: np.ndarray, rate: int, start: float, stop: float) -> float:
    """Seconds of the longest silence near a time, 0 where there is none.

    Args:
        wave: float32 (n,).
        rate: its samples a second.
        start: seconds from which silence counts that begins or goes on there.
        stop: seconds up to which.
    """
    size = round(BLOCK * rate)
    count = len(wave) // size
    power = np.square(wave[: count * size].reshape(count, size), dtype=np.float64).mean(1)
    silent = power < np.percentile(power, 98) * 10 ** (SILENT / 10)
    low = max(0, int((start - NEAR) / BLOCK))
    high = min(count, int((stop + NEAR) / BLOCK) + 1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], silent.astype(np.int8), [0]])))
    runs = [(b - a) for a, b in edges.reshape(-1, 2) if a < high and b > low]
    return max(runs, default=0) * BLOCK


def measure(engine: Any, wave: np.ndarray, text: str) -> dict[str, list[float]]:
    """Seconds of each pause within a spoken text, by kind: clause, sentence, paragraph, heading.

    Args:
        engine: with an aligned model, which the wave need not be of.
        wave: float32 (n,) at the model's rate, the whole text.
        text: that was spoken.

    Raises:
        CheckpointError: the model is not an aligned one.
    """
    tokenizer, config = engine.tokenizer, engine.config
    prepared = readable(text, tokenizer)
    line = " ".join(prepared.split())
    tokens = encode(line + config.dit.edge, tokenizer)
    larger = {}  # marks that end more than a sentence, by their place in the line
    for match in re.finditer(r"\n{2,}", prepared):
        place = len(" ".join(prepared[: match.end()].split())) + 1
        larger[place] = "heading" if match.group() == AFTER_HEADING else "paragraph"
    ends = np.cumsum(engine.align(log_mel(wave, config.audio), tokens)) / config.audio.frame_rate
    found: dict[str, list[float]] = {}
    for mark in find_marks(line, tokens, 0, tokenizer, larger):
        start, stop = float(ends[mark.start - 1]), float(ends[mark.stop - 1])
        seconds = silence_at(wave, config.audio.sample_rate, start, stop)
        found.setdefault(mark.kind, []).append(seconds)
    return found


@command
def main(argv: list[str] | None = None) -> int:
    """Speaks a text whole and streamed, and prints the medians of its pauses."""
    from nanospeech.audio.limiter import true_peak
    from nanospeech.audio.loudness import loudness
    from nanospeech.load import load_engine
    from nanospeech.speech.speaker import Speaker

    parser = Parser("python -m nanospeech.measure.pauses", __doc__)
    parser.add_argument("--file", required=True, help="text to speak")
    parser.add_argument("--voice", nargs="+", default=[None])
    parser.add_argument("--model", help="release folder")
    parser.add_argument("--backend", default="auto")
    args = parser.parse_args(argv)
    with open(args.file, encoding="utf-8") as file:
        text = file.read()
    engine = load_engine(args.model, args.backend)
    print("voice, how, LUFS, dBTP, then median (least-most) ms of n pauses")
    for voice in args.voice:
        speaker = Speaker(engine, voice, seed=1)
        for early in (False, True):
            wave = np.concatenate(list(speaker.stream(text, early=early)))
            rate = speaker.sample_rate
            row = [str(voice), "stream" if early else "whole"]
            row += [f"{loudness(wave, rate):.1f}", f"{true_peak(wave):.1f}"]
            for kind, pauses in measure(speaker.engine, wave, text).items():
                ms = 1000 * np.array(pauses)
                spread = f"({ms.min():.0f}-{ms.max():.0f})"
                row.append(f"{kind} {np.median(ms):.0f} {spread} of {len(ms)}")
            print(", ".join(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
