"""Settings: those of a run as nested plain values, and what differs between two of them."""

from __future__ import annotations

from typing import Any

# what may change between a run and its continuation without a word
FREE = ("run_dir", "save_step", "log.", "data.workers", "train.log_every")


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    if not isinstance(values, dict):
        return {prefix.rstrip("."): values}
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.")
    return found


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two configs, one line each; not what may differ freely."""
    a, b = flat(old), flat(new)
    lines = []
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name) and not name.startswith(FREE):
            was, now = (repr(x[name]) if name in x else "absent" for x in (a, b))
            lines.append(f"{name} was {was}, is {now}")
    return lines
