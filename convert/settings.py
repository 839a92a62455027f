"""Settings: the YAML or JSON file that a project keeps beside its checkpoints. Interprets none."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from nanospeech.errors import BackendError, CheckpointError, reason, require

log = logging.getLogger("nanospeech")

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BYTES = 1_000_000
MOST_VALUES = 100_000


def find_settings(path: Path, given: str | Path | None) -> dict[str, Any]:
    """The settings of a checkpoint: a file that is given, or the only YAML file beside it.

    One that is merely beside it, and cannot be read, may be about something else: none is taken.

    Raises:
        CheckpointError: the given one cannot be read, or is no mapping.
    """
    if given is not None:
        return read_settings(Path(given))
    folder = path if path.is_dir() else path.parent
    beside = [f for f in sorted(folder.glob("*.y*ml")) if f.suffix in SUFFIXES]
    try:
        return read_settings(beside[0]) if len(beside) == 1 else {}
    except (CheckpointError, BackendError) as e:
        log.warning("%s is left out: %s", beside[0], e)
        return {}


def read_settings(path: Path) -> dict[str, Any]:
    """A YAML or JSON mapping, of plain values alone.

    Raises:
        CheckpointError: it cannot be read, is too big, or is no mapping.
        BackendError: a YAML file, and no pyyaml is installed.
    """
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise CheckpointError(f"{path} has {size:,} bytes, more than {MAX_BYTES:,}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise CheckpointError(f"cannot read {path}: {reason(e)}") from e
    try:
        values = json.loads(text) if path.suffix == ".json" else parse_yaml(text)
    except (ValueError, RecursionError) as e:
        why = " ".join(str(e).split())
        raise CheckpointError(f"{path} is neither YAML nor JSON: {why}") from e
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} should hold a mapping, got {type(values).__name__}")
    return values


def parse_yaml(text: str) -> Any:
    """Plain values of YAML.

    Raises:
        ValueError: it is not YAML, or has aliases by which a few lines are too many values.
    """
    yaml = require("yaml", "vocos")
    try:
        return yaml.load(text, bounded_loader(yaml))
    except yaml.YAMLError as e:
        raise ValueError(str(e)) from e


def bounded_loader(yaml: Any) -> type:
    """A loader of plain values, which raises ValueError for aliases that are too many."""

    class Bounded(yaml.SafeLoader):
        def __init__(self, stream: str):
            super().__init__(stream)
            self.count, self.sizes = 0, {}  # of values, an alias's among them, and of each node

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias, before = self.check_event(yaml.AliasEvent), self.count
            node = super().compose_node(parent, index)
            # an alias within what it stands for has no end
            self.count += self.sizes.get(node, MOST_VALUES) if alias else 1
            self.sizes.setdefault(node, self.count - before)
            if self.count > MOST_VALUES:
                raise ValueError(
                    f"its aliases (*NAME) stand for more than {MOST_VALUES:,} values; write out"
                    " those that are needed"
                )
            return node

    return Bounded
