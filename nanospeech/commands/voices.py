"""`nanospeech voices`: which voices a model has, and what is known of one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nanospeech.cli import Parser, command

ABOUT = """Lists the voices of a model, or shows what is known of one.

  nanospeech voices
  nanospeech voices --model my_voice
  nanospeech voices show kumo"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech voices", ABOUT)
    parser.add_argument("--model", help="release folder or Hub name (default: the one that ships)")
    tools = parser.add_subparsers(dest="tool", metavar="list | show")
    tools.add_parser("list", help="a voice a line, with what is known of it (the default)")
    show = tools.add_parser("show", help="words, licence, files and settings of a voice")
    show.add_argument("name")
    return parser


def list_them(folder: Path) -> None:
    """Prints a table of a release's voices, and where their recordings are."""
    from nanospeech.release.folder import load_config
    from nanospeech.release.voice_facts import load_facts, table
    from nanospeech.release.voices import own_voices, shipped_voices

    own = own_voices(folder)
    voices = dict(sorted((own or shipped_voices()).items()))
    facts = {name: load_facts(path) for name, path in voices.items()}
    print("\n".join(table(facts)))
    if not own and voices:
        print(f"{folder} has no voices of its own: these ship, and lend it their recordings")
    if preferred := load_config(folder).default_voice:
        print(f"default: {preferred}")
    if any(f.is_narrow for f in facts.values()):
        print("* narrow: no sound above that, so it is duller than the others")
    for parent in sorted({path.parent for path in voices.values()}):
        endings = sorted({p.suffix for p in voices.values() if p.parent == parent})
        print(f"samples: {parent / 'NAME'}{' or '.join(endings)}")


def show_one(name: str, folder: Path) -> None:
    """Prints what is known of a voice.

    Raises:
        InputError: there is no such voice.
    """
    from nanospeech.release.voice_facts import load_facts
    from nanospeech.release.voices import find_voice

    voice = find_voice(name, folder)
    facts = load_facts(voice.audio)
    licence = voice.audio.with_name(f"{voice.audio.stem}.license.txt")
    lines = {
        "name": voice.name,
        "words": voice.text,
        "sample": voice.audio,
        "sex": facts.sex,
        "accent": facts.accent,
        "origin": facts.origin,
        "bandwidth": facts.bandwidth and f"{facts.bandwidth:,.0f} Hz{', narrow' * facts.is_narrow}",
        "WER": facts.wer is not None and f"{facts.wer:g} %",
        "weights": voice.weights or "the model's",
        "licence": licence.read_text(encoding="utf-8").strip()
        if licence.is_file()
        else facts.licence,
    }
    print("\n".join(f"{key}: {value}" for key, value in lines.items() if value))


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    from nanospeech.release.folder import resolve

    folder = resolve(args.model)
    if args.tool == "show":
        show_one(args.name, folder)
    else:
        list_them(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
