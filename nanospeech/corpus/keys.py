"""Keys: short names of samples in shards, made of where recordings were found."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence

from nanospeech.files import is_device

Parts = tuple[str, ...]  # the data set's name, folders, and the recording's, without an ending


def without_common_folder(parts: Sequence[Parts]) -> list[Parts]:
    """Those of one table, without the folder that all of its absolute paths have in common.

    Shards are published, and it tells whose machine they were made on.
    """
    absolute = [len(p) > 2 and os.path.isabs(p[1]) for p in parts]
    folders = [p[1:-1] for p, is_so in zip(parts, absolute) if is_so]
    depth = min(map(len, folders), default=0)
    same = next((n for n in range(depth) if len({f[n] for f in folders}) > 1), depth)
    return [(p[0], *p[1 + same :]) if is_so else p for p, is_so in zip(parts, absolute)]


def unique_keys(parts: list[tuple[str, ...]]) -> list[str]:
    """Short keys, all different, of ASCII letters, digits, - and _.

    No dots: WebDataset takes what follows the first one for the file type. A name that stands
    twice takes its folders in front, one after the other, and in the end a number behind.
    """
    safe = [tuple(re.sub(r"[^A-Za-z0-9_-]", "_", p) or "_" for p in ps) for ps in parts]
    safe = [tuple(f"{p}_" if is_device(p) else p for p in ps) for ps in safe]
    keys = [ps[-1] for ps in safe]
    for depth in range(2, max(map(len, safe), default=0) + 1):
        count = Counter(keys)
        keys = ["_".join(ps[-depth:]) if count[k] > 1 else k for ps, k in zip(safe, keys)]
    taken = set(keys)
    numbers: dict[str, int] = {}  # the last behind a key: all of 十.wav, 百.wav, … have one
    for i, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = 1
            continue
        while keys[i] in taken:
            numbers[key] += 1
            keys[i] = f"{key}-{numbers[key]}"
    return keys
