"""A command that has subcommands of its own: each is imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from nanospeech import plugins
from nanospeech.errors import require


def run_group(
    name: str,
    about: str,
    tools: Mapping[str, tuple[str, str]],
    argv: Sequence[str] | None,
    default: str | None = None,
) -> int:
    """Runs one tool of a group.

    Args:
        name: of the group, as it is typed.
        about: the group's help, above the list of its tools.
        tools: name: ("module:function", phrase). The function takes the arguments after the name.
        argv: the arguments after the group's name; None takes the process's.
        default: the tool that is meant where the first argument names none.

    Returns:
        The tool's exit code, or 2 where there is no such tool.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, tools)) + 2
        print(f"usage: nanospeech {name} TOOL ...\n\n{about}\n\ntools:")
        print("\n".join(f"  {tool:{width}}{phrase}" for tool, (_, phrase) in tools.items()))
        print(f"\nnanospeech {name} TOOL --help explains a tool and its options.")
        if not words or default is None:
            return 0 if words else 2
        print(f"\nwithout a TOOL, {default}:\n", flush=True)
    tool, rest = words[0], words[1:]
    if tool not in tools:
        if default is None:
            print(
                f"error: nanospeech {name} has no tool {tool!r}; choose from {', '.join(tools)}",
                file=sys.stderr,
            )
            return 2
        tool, rest = default, words
    return load(tools[tool][0])(rest)


def load(where: str) -> Callable[[Sequence[str]], int]:
    """The function of a tool.

    Raises:
        BackendError: it is one of training, and torch is not installed.
    """
    try:
        return plugins.load(where)
    except ModuleNotFoundError as e:
        if e.name == "torch":
            require("torch", "train")
        raise
