"""Plugins: backends, commands and languages, by name in the core's table or by entry points.

What is in this repository is in BUILT_IN, so that a checkout works before it is installed, whatever
version's metadata lies around; pyproject.toml declares the same as entry points. Other packages add
theirs by entry points of the same groups. Nothing is imported until it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

BACKENDS = "nanospeech.backends"  # subclasses of nanospeech.engine.backend.Backend
COMMANDS = "nanospeech.commands"  # functions of a list of arguments that return an exit code

LANGUAGES = "nanospeech.languages"  # subclasses of nanospeech.text.language.Language

# group: name: "module:attribute"
BUILT_IN = {
    BACKENDS: {
        "torch": "nanospeech_torch.backend:TorchBackend",
        "mlx": "nanospeech_mlx.backend:MlxBackend",
        "onnx": "nanospeech_onnx.backend:OnnxBackend",
    },
    LANGUAGES: {
        "en": "nanospeech.text.languages:English",
        "de": "nanospeech.text.german.german:German",
    },
    COMMANDS: {
        "speak": "nanospeech.generate:main",
        "book": "nanospeech.commands.book:main",
        "serve": "nanospeech.commands.serve:main",
        "voices": "nanospeech.commands.voices:main",
        "say-how": "nanospeech.commands.say_how:main",
        "prepare": "nanospeech.commands.prepare:main",
        "train": "nanospeech_torch.train.__main__:main",
        "finetune": "nanospeech_torch.finetune.__main__:main",
        "evaluate": "nanospeech.commands.evaluate:main",
        "convert": "convert.__main__:main",
        "publish": "nanospeech.commands.publish:main",
    },
}


def find(group: str, name: str) -> str | None:
    """Where a plugin is, "module:attribute"; None if there is none of that name.

    A name of BUILT_IN cannot be taken by another package.
    """
    return BUILT_IN[group].get(name) or installed(group).get(name)


def names(group: str) -> list[str]:
    """The names of a group's plugins: those of this repository, then others by the alphabet."""
    return list(dict.fromkeys([*BUILT_IN[group], *sorted(installed(group))]))


def installed(group: str) -> dict[str, str]:
    """Plugins that installed packages declare: "module:attribute" by name."""
    from importlib.metadata import entry_points

    return {e.name: e.value for e in entry_points(group=group)}


def load(where: str) -> Any:
    """Imports the module of "module:attribute" and returns the attribute."""
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)
