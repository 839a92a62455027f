"""Fields of config dataclasses: their help, their types, and the names that they had before."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import field
from typing import Any

from .errors import CheckpointError

log = logging.getLogger("nanospeech")


def option(default: Any, help: str) -> Any:
    """A dataclass field whose help text the command line shows."""
    return field(default=default, metadata={"help": help})


def current_names(cls: type, values: dict[str, Any], where: str = "config") -> dict[str, Any]:
    """The same mapping with keys of older versions under their names of today.

    Each old name is warned of once in a process.

    Args:
        cls: the mapping's dataclass; its RENAMED maps old names to new ones.
        values: the mapping.
        where: what to call the source in messages.

    Raises:
        CheckpointError: a key is there under both names.
    """
    renamed: dict[str, str] = getattr(cls, "RENAMED", {})
    for old in renamed.keys() & values.keys():
        new = renamed[old]
        if new in values:
            raise CheckpointError(f"{where} has {new} and its old name {old}; leave {old} out")
        if (cls, old) not in warned:
            log.warning("%s: %s is called %s now; the old name is still read", where, old, new)
            warned.add((cls, old))
    return {renamed.get(k, k): v for k, v in values.items()}


warned: set[tuple[type, str]] = set()  # old names of keys that a warning was given for


def check_type(f: dataclasses.Field, value: Any, where: str) -> None:
    """Checks a plain field against its annotation ("int", "float | None", …).

    Raises:
        CheckpointError: it is of another type, or a text with half of a surrogate pair.
    """
    names = [n.strip() for n in str(f.type).split("|")]
    kinds: dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool}
    kinds["list"] = kinds["tuple"] = (list, tuple)
    kinds["dict"] = dict
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise CheckpointError(f"{where}.{f.name} is {value!r}, which is not valid UTF-8")
    for name in names:
        if name == "None" and value is None:
            return
        kind = kinds.get(name.partition("[")[0])
        if kind and isinstance(value, kind) and (name == "bool" or not isinstance(value, bool)):
            return
    raise CheckpointError(f"{where}.{f.name} should be {f.type}, got {value!r}")
