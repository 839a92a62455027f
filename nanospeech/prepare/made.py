"""Made: shards of clips that a model makes, which go on where an earlier run of them stopped."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from nanospeech.corpus.layouts import Sample
from nanospeech.files import write_json

from .portions import members_of, to_row
from .shards import ShardWriter, old_shards, writing


@contextlib.contextmanager
def made_shards(
    out: Path,
    prefix: str,
    size: int,
    settings: dict[str, Any],
    overwrite: bool,
    samples: Sequence[Sample] = (),
) -> Iterator[tuple[ShardWriter, dict[str, dict[str, Any]]]]:
    """A writer of shards, and the JSON of each clip that is there already, by plain_key.

    Args:
        settings: all that a clip depends on beside the samples, as JSON; kept in out/.PREFIX.json.
        overwrite: whether shards that are there are replaced, not gone on after.
        samples: recordings that are read, which may be in none of the shards.

    Raises:
        InputError: the shards that are there are of other settings, or are read; or another process
            writes there.
    """
    settings = settings | {"samples": crc32(json.dumps([to_row(s) for s in samples]).encode())}
    kept, settings = out / f".{prefix}.json", json.loads(json.dumps(settings, default=str))
    with writing(out, prefix):
        there = old_shards(samples, out, prefix, overwrite or known(kept) == settings)
        done = [] if overwrite else there
        if not there:  # else those that are there stay until the new ones are whole
            write_json(kept, settings)
        found = {key: json.loads(m["json"]) for p in done for key, m in members_of(p)}
        first = int(done[-1].stem[-6:]) + 1 if done else 0
        with ShardWriter(out, prefix, size, [] if done else there, first) as writer:
            yield writer, found
        write_json(kept, settings)


def known(path: Path) -> Any:
    """The settings of the shards that are there; None where they cannot be told."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
