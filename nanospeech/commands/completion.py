"""`nanospeech --print-completion bash`: a script by which a shell completes commands and flags.

The script is static (by shtab): completing starts no Python, and no command starts slower for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nanospeech import plugins
from nanospeech.errors import BackendError, InputError, require

SHELLS = ("bash", "zsh", "tcsh")
EVALUATED, READ = (f"[[ $zsh_eval_context[-1] {how} ]]" for how in ("== eval", "!= loadautofunc"))


def script(shell: str, phrases: Mapping[str, str]) -> str:
    """The script of a shell.

    Args:
        shell: of SHELLS.
        phrases: what is said of each command of ours.

    Raises:
        InputError: there is none for this shell.
        BackendError: shtab is not installed.
    """
    if shell not in SHELLS:
        raise InputError(f"no completion for {shell!r}; choose from {', '.join(SHELLS)}")
    shtab, parser = require("shtab", "completion"), whole_parser(phrases)
    offer(parser, shtab.FILE)
    text = shtab.complete(parser, shell=shell)
    # shtab's calls the function at once where it is not eval that reads it: in ~/.zshrc an error
    return text.replace(EVALUATED, READ)


def offer(parser: argparse.ArgumentParser, files: Any) -> None:
    """Has a shell offer the names of files for every value that is no number and no choice.

    Args:
        files: shtab's way to say so; an argument without it completes to nothing at all.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                offer(child, files)
        elif action.nargs != 0 and action.choices is None and action.type in (None, str, Path):
            action.complete = files  # type: ignore[attr-defined]


def whole_parser(phrases: Mapping[str, str]) -> argparse.ArgumentParser:
    """All commands, their tools and flags as one parser; of other packages the commands' names."""
    found = {name: plugins.find(plugins.COMMANDS, name) for name in plugins.names(plugins.COMMANDS)}
    parser = argparse.ArgumentParser("nanospeech")
    add_commands(parser, {n: (where or "", phrases.get(n, "")) for n, where in found.items()})
    return parser


def add_commands(parser: argparse.ArgumentParser, commands: dict[str, tuple[str, str]]) -> None:
    """Adds subcommands to a parser.

    Args:
        commands: name: ("module:function", phrase). The parser of a module is its build_parser(),
            the subcommands of a group its TOOLS.
    """
    found = parser.add_subparsers()
    for name, (where, phrase) in commands.items():
        try:
            module: Any = import_module(where.partition(":")[0])
            parents = [module.build_parser()] if hasattr(module, "build_parser") else []
        except (ImportError, BackendError):  # of an extra that is not installed
            module, parents = None, []
        child = found.add_parser(name, help=phrase, parents=parents, add_help=not parents)
        if hasattr(module, "TOOLS"):
            add_commands(child, module.TOOLS)
