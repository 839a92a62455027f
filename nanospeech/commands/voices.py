"""`nanospeech voices`: which voices a model has, and what is known of one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nanospeech.cli import Parser, command

ABOUT = """Lists the voices of a model, or shows what is known of one.

  nanospeech voices
  nanospeech voices --model my_voice
  nanospeech voices show kumo"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech voices", ABOUT)
    parser.add_argument("--model", help="release folder or Hub name (default: the one that ships)")
    tools = parser.add_subparsers(dest="tool", metavar="list | show")
    tools.add_parser("list", help="a name a line (the default)")
    show = tools.add_parser("show", help="words, licence, files and settings of a voice")
    show.add_argument("name")
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    from nanospeech.release.folder import resolve
    from nanospeech.release.voices import find_voice, list_voices

    folder = resolve(args.model)
    if args.tool != "show":
        print("\n".join(list_voices(folder)))
        return 0
    voice = find_voice(args.name, folder)
    print(f"name: {voice.name}\nwords: {voice.text}\nrecording: {voice.audio}")
    licence = voice.audio.with_name(f"{voice.audio.stem}.license.txt")
    if licence.is_file():
        print(f"licence: {licence.read_text(encoding='utf-8').strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
