"""Namesakes: speakers of one name in several data sets, who may be one person or several."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nanospeech.cli import say

from .keys import unique_keys
from .samples import Sample

NUMBER = re.compile(r"(s|spk|speaker)?[ _-]?\d{1,3}", re.I)  # which says nothing of who it is


def set_of(path: Path) -> Path:
    """The data set of an input: the folder, or that of a table or tar, as it may be one of many."""
    return (path if path.is_dir() else path.parent).resolve()


def namesakes(samples: Sequence[Sample], sets: Sequence[Path]) -> dict[str, list[Path]]:
    """The data sets of each speaker who is in several; sets has that of each sample."""
    found: dict[str, dict[Path, None]] = defaultdict(dict)
    for sample, place in zip(samples, sets):
        if sample.speaker is not None:
            found[sample.speaker][place] = None
    return {who: list(places) for who, places in found.items() if len(places) > 1}


def told_apart(samples: Sequence[Sample], sets: Sequence[Path]) -> list[Sample]:
    """Samples whose namesakes have the folder of their data set in front: VCTK-0 and LJ-0 for 0."""
    several, places = namesakes(samples, sets), list(dict.fromkeys(sets))
    names = dict(zip(places, unique_keys([place.parts for place in places])))
    return [
        replace(s, speaker=f"{names[place]}-{s.speaker}") if s.speaker in several else s
        for s, place in zip(samples, sets)
    ]


def warn_of_namesakes(samples: Sequence[Sample], sets: Sequence[Path]) -> None:
    """Warns where speakers of several data sets have one number."""
    found = {w: places for w, places in namesakes(samples, sets).items() if NUMBER.fullmatch(w)}
    if found:
        (first, *_, last) = next(iter(found.values()))
        who = ", ".join([*found][:3]) + ", …" * (len(found) > 3)
        say(
            f"warning: speakers of one name count as one person, and {len(found)} ({who}) are in"
            f" several data sets, such as {first} and {last}; if these are different people, give"
            " both to nanospeech prepare shards with --distinct-speakers"
        )
