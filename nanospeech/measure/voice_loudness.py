"""Voice loudness: measures how loud a model's voices speak before they are levelled.

    python -m nanospeech.measure.voice_loudness --set

Streams are levelled by it, as they cannot wait for the whole; it is written into NAME.json.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from nanospeech.audio.loudness import loudness
from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from nanospeech.files import write_json
from nanospeech.output import OutputOptions
from nanospeech.release.voices import find_voice, own_voices

TEXTS = (
    "It was late in the year when the ship, heavy with grain, came into the harbor.",
    "Where is everyone? Nobody waited on the quay, for the bell had not been rung.",
    "They tied up at the old pier, the only one still standing, and went ashore.",
    "The captain bought bread, cheese and a small cup of tea, and he listened.",
    "Have you seen my keys? I left them on the kitchen table last night.",
    "The meeting will begin at nine, and it should not take more than an hour.",
    "Snow fell on the hills all day.",
    "My sister plays the violin in a small orchestra.",
    "If you need any help, please call me before Friday.",
    "This bridge was built by hand more than three hundred years ago!",
    "He opened the window, looked at the garden, and said nothing.",
    "Thank you very much.",
)


def voice_loudness(engine: Any, name: str) -> float:
    """LUFS of a sentence that a voice speaks, before it is levelled: the mean of some; to a tenth.

    Raises:
        InputError: there is no such voice.
    """
    from nanospeech.speech.speaker import Speaker

    speaker = Speaker(engine, name, seed=1, output=OutputOptions(loudness=None))
    found = [loudness(speaker.speak(text).wave, speaker.sample_rate) for text in TEXTS]
    return round(float(np.mean(found)), 1)


@command
def main(argv: list[str] | None = None) -> int:
    """Prints each voice's loudness."""
    from nanospeech.load import load_engine

    parser = Parser("python -m nanospeech.measure.voice_loudness", __doc__)
    parser.add_argument("--model", help="release folder; the default voices' if not given")
    parser.add_argument("--voice", nargs="+", help="all of the model's if not given")
    parser.add_argument("--set", action="store_true", help="write it into NAME.json")
    args = parser.parse_args(argv)
    engine = load_engine(args.model)
    for name in args.voice or sorted(own_voices(engine.folder)):
        voice = find_voice(name, engine.folder)
        if args.set and voice.borrowed:
            raise InputError(f"{engine.folder} has no voice {voice.name!r} of its own to be set")
        found = voice_loudness(engine, name)
        print(f"{name} {found:.1f} LUFS", flush=True)
        if args.set:
            path = voice.audio.with_suffix(".json")
            old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            write_json(path, {**old, "loudness": found}, indent=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
