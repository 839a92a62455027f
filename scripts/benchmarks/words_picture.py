"""Words picture: a sentence's wave with its words over it, and where Whisper hears them, if asked.

    python -m scripts.benchmarks.words_picture --text "At 9:30 p.m., Dr. Hall paid $5 million." \\
        --out docs/writers/words.png
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.cli import Parser, command
from nanospeech.pictures import pyplot

INK, WORD, HEARD = "#444444", "#1f77b4", "#d62728"


def draw(spoken: Any, heard: Sequence[Any], path: Path) -> None:
    """Draws an utterance and its words.

    Args:
        spoken: of Speaker.speak.
        heard: the same words by another listener; may be empty.
        path: of the picture.
    """
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9, 2.6))
    size = spoken.sample_rate // 500  # 2 ms
    wave = spoken.wave[: len(spoken.wave) // size * size].reshape(-1, size)
    times = np.arange(len(wave)) * size / spoken.sample_rate
    top = float(np.abs(spoken.wave).max())
    axes.fill_between(times, wave.min(1), wave.max(1), color=INK, linewidth=0)
    for i, word in enumerate(spoken.words or ()):
        axes.axvspan(word.start, word.end, color=WORD, alpha=0.25 if i % 2 else 0.12, linewidth=0)
        middle = (word.start + word.end) / 2
        axes.text(middle, 1.12 * top, word.text, ha="center", va="bottom", fontsize=9)
    for word in heard:
        axes.axvline(word.start, color=HEARD, linestyle="--", linewidth=0.8)
    axes.set(xlim=(0, spoken.seconds), ylim=(-1.1 * top, 1.4 * top), xlabel="seconds", yticks=[])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


@command
def main(argv: list[str] | None = None) -> int:
    """Speaks, listens and draws."""
    from nanospeech.load import load_engine
    from nanospeech.measure.transcription import whisper_listener
    from nanospeech.speech.speaker import Speaker

    parser = Parser("python -m scripts.benchmarks.words_picture", __doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whisper", help="size or folder; none is drawn if not given")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    spoken = Speaker(load_engine(), seed=args.seed).speak(args.text)
    heard = whisper_listener(args.whisper)(spoken.wave) if args.whisper else []
    draw(spoken, heard, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
