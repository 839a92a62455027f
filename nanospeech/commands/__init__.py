"""The command `nanospeech`: finds a subcommand, imports it alone, and hands the arguments on.

A subcommand is a function of a list of arguments that returns an exit code. Other packages add
theirs by entry points of the group "nanospeech.commands"; see plugins.py.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Callable, Sequence

from nanospeech import plugins
from nanospeech.cli import command

# what the help says of our own; plugins.py has where they are
COMMANDS = {
    "speak": "speak a text to a file, a pipe or the loudspeakers",
    "book": "an EPUB, text or Markdown file to an audiobook",
    "serve": "speech for any client: OpenAI's interface, WebSocket, a page",
    "voices": "list, show, add and remove voices",
    "say-how": "how words are said, and where that comes from",
    "prepare": "recordings to clips and shards to train on",
    "train": "train a model from a recipe or a YAML file",
    "finetune": "minutes of recordings to a voice",
    "evaluate": "measure word errors, similarity, sound quality and speed",
    "convert": "a trained checkpoint to a folder that all backends read",
    "publish": "model card, listening page, voices of a folder",
}
USAGE = """usage: nanospeech COMMAND ...
       nanospeech "Hello there."          the same as: nanospeech speak --text "Hello there."

commands:
{commands}

examples:
  nanospeech "Hello there."
  nanospeech speak --text "The museum opens at 9:30." --voice kumo --output museum.wav
  nanospeech prepare shards recordings/ --out shards
  nanospeech train 82M --set data.shards='shards/*.tar'
  nanospeech evaluate my_model --out evaluation

nanospeech COMMAND --help explains a command and its options; nanospeech --print-completion bash
(or zsh) prints a script that completes them in a shell."""


def find(name: str) -> Callable[[Sequence[str]], int] | None:
    """The function of a subcommand; None if there is no such subcommand."""
    where = plugins.find(plugins.COMMANDS, name)
    return None if where is None else plugins.load(where)


def usage() -> str:
    """The help of `nanospeech` itself."""
    width = max(map(len, COMMANDS)) + 2
    return USAGE.format(
        commands="\n".join(f"  {n:{width}}{phrase}" for n, phrase in COMMANDS.items())
    )


def is_text(word: str) -> bool:
    """Whether a first argument is something to say, not a mistyped command."""
    return any(c.isspace() or c in ".,!?" for c in word)


@command(expected=())  # a subcommand of other packages may have its own
def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
        argv: without the program's name; None takes the process's.

    Returns:
        The exit code: 0, 2 for a usage or input error, or the subcommand's own.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if words[:1] == ["--print-completion"]:
        from nanospeech.commands.completion import script

        print(script(words[1] if words[1:] else "", COMMANDS))
        return 0
    first = words[0] if words else ""
    if not words or first.startswith("-"):
        return run("speak", words)  # flags as python -m nanospeech.generate takes them, or a pipe
    if first not in COMMANDS and is_text(first):
        return run("speak", words)
    return run(first, words[1:])


def run(name: str, words: Sequence[str]) -> int:
    """Runs the named subcommand, or says what there is."""
    main = find(name)
    if main is not None:
        return main(words)
    if not name:
        print("error: no text: it is empty", file=sys.stderr)
        return 2
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    said = [name, *itertools.takewhile(lambda word: not word.startswith("-"), words)]
    text = shlex.quote(" ".join(said))
    how = "a text, in quotes: nanospeech" if said[1:] else "one word: nanospeech --text"
    print(
        f"error: there is no command {name!r}{hint} Commands are {', '.join(COMMANDS)}; to say"
        f" {how} {text}",
        file=sys.stderr,
    )
    return 2
