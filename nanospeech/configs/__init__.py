"""Recipes: YAML files of runs that come with the package, found by name."""

from __future__ import annotations

from pathlib import Path

from nanospeech.errors import InputError

FOLDER = Path(__file__).parent


def recipes() -> dict[str, str]:
    """What each recipe is, the first comment of its file, by name."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        found[path.stem] = first.removeprefix("#").strip()
    return found


def find_recipe(name: str) -> Path:
    """The YAML file of a recipe's name, or of a path.

    Raises:
        InputError: there is neither.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        # a path of a clone before recipes were package data
        moved = FOLDER / path.name
        if not path.is_file() and path.parent.name == "configs" and moved.is_file():
            return moved
        return path
    if (FOLDER / f"{name}.yaml").is_file():
        return FOLDER / f"{name}.yaml"
    known = ", ".join(recipes())
    raise InputError(f"there is no recipe {name!r} and no such file; choose from {known}")
