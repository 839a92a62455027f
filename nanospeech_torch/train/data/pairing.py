"""Pairing: clips that wait for another clip of their speaker, one becoming the other's prompt.

speech.py decides which clips are to be paired, and in which order. Draws nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from .order import weight
from .stream_state import Ref

PAIR_MB = 256  # memory for clips that wait, of each worker
OBJECTS = 2048  # bytes that Python needs for a clip beside its data
STUCK = 2  # waiting clips of a speaker; then at least one is long, and waits for a short one


class Waiting:
    """Described clips without a partner, in the order in which they came.

    A new clip is paired with the longest waiting clip of its speaker that fits. So no two waiting
    clips fit together: all but one are longer than half a pair. Long clips would use up the short
    ones drawn for pairing and then wait in vain. Therefore, where several clips wait, a short clip
    that was not drawn for pairing is paired too, and one of the waiting clips goes unpaired in its
    place: the number of paired clips is as drawn.

    Args:
        longest: most frames of a pair.
        shortest: fewest frames of a clip.
        most: bytes held; beyond that the oldest clips stop waiting.
    """

    def __init__(self, longest: int, shortest: int = 1, most: int = PAIR_MB * 10**6):
        self.longest, self.shortest, self.most = longest, shortest, most
        self.items: OrderedDict[int, dict] = OrderedDict()  # by number, as they came
        self.speakers: dict[Any, list[tuple[int, int]]] = {}  # (frames, -number), ascending
        self.bytes, self.last, self.refs = 0, 0, RefTable()

    def __len__(self) -> int:
        return len(self.items)

    def meet(
        self, item: dict, asked: bool, decoded: Callable[[dict], dict | None]
    ) -> tuple[list[dict], list[dict]]:
        """Pairs a described clip: gives a pair, unpaired clips, both or nothing yet.

        Args:
            item: the new clip.
            asked: whether it was drawn to be paired.
            decoded: makes a described clip a decoded one; None for one that cannot be used.

        Returns:
            Two decoded clips, the new one last, or none; and the unpaired clips.
        """
        held = self.speakers.get(item["speaker"], [])
        if not asked and len(held) < STUCK:
            return [], [item]
        if held and held[0][0] + item["frames"] <= self.longest:
            if (new := decoded(item)) is None:
                return [], []
            while (other := self.partner(item)) is not None:
                if (old := decoded(other)) is not None:
                    return [old, new], [] if asked else self.longest_of(item["speaker"])
        return [], self.add(item) if asked else [item]

    def add(self, item: dict) -> list[dict]:
        """Lets a described clip wait.

        Returns:
            Those that wait no longer: the clip itself if nothing fits to it, or the first ones that
            came if there are too many now.
        """
        if item["frames"] + self.shortest > self.longest:
            return [item]
        self.last += 1
        self.items[self.last] = item
        insort(self.speakers.setdefault(item["speaker"], []), (item["frames"], -self.last))
        self.refs.add(self.last, item["refs"][0])
        self.bytes += cost(item)
        gone = []
        while self.bytes > self.most:
            gone.append(self.first())
        return gone

    def partner(self, item: dict) -> dict | None:
        """Takes out the longest clip of the speaker that fits to a new one."""
        held = self.speakers.get(item["speaker"], [])
        at = bisect_right(held, (self.longest - item["frames"], 0))
        return self.remove(-held[at - 1][1]) if at else None

    def longest_of(self, speaker: Any) -> list[dict]:
        """Takes out the longest clip of a speaker, if one waits; it is the hardest to pair."""
        held = self.speakers.get(speaker)
        return [self.remove(-held[-1][1])] if held else []

    def first(self) -> dict:
        """Takes out the clip that has waited longest."""
        return self.remove(next(iter(self.items)))

    def remove(self, number: int) -> dict:
        item = self.items.pop(number)
        held = self.speakers[item["speaker"]]
        del held[bisect_left(held, (item["frames"], -number))]
        if not held:
            del self.speakers[item["speaker"]]
        self.refs.remove(number)
        self.bytes -= cost(item)
        return item


class RefTable:
    """A table of references that is copied without a loop over them, however many they are."""

    def __init__(self):
        self.rows, self.alive = np.zeros((64, 3), np.int32), np.zeros(64, bool)
        self.end, self.at = 0, {}  # rows used; number -> row

    def add(self, number: int, ref: Ref) -> None:
        """Puts a reference to the end."""
        if self.end == len(self.rows):
            self.tidy()
        self.rows[self.end], self.alive[self.end], self.at[number] = ref, True, self.end
        self.end += 1

    def remove(self, number: int) -> None:
        """Takes a reference out; the others keep their order."""
        self.alive[self.at.pop(number)] = False

    def tidy(self) -> None:
        """Closes the gaps, and makes room for as many again."""
        kept = self.copy()
        self.end = len(kept)
        size = max(64, 2 * self.end)
        self.rows, self.alive = np.zeros((size, 3), np.int32), np.arange(size) < self.end
        self.rows[: self.end] = kept
        self.at = {number: row for row, number in enumerate(self.at)}

    def copy(self) -> np.ndarray:
        """The references in their order: int32 (n, 3)."""
        return self.rows[: self.end][self.alive[: self.end]]


def cost(item: dict) -> int:
    """About how many bytes a waiting clip holds."""
    return weight(item) + OBJECTS


def joined(first: dict, second: dict) -> dict:
    """Two decoded clips as one item; the seam is the frame at which the second begins.

    A reference without its words makes the item "wordless" up to the seam.
    """
    mel = np.concatenate([first["mel"], second["mel"]])
    return {
        "key": f"{first['key']}+{second['key']}",
        "text": f"{first['text']} {second['text']}".strip(),
        "texts": (first["text"], second["text"]),
        "frames": len(mel),
        "mel": mel,
        "seam": len(first["mel"]),
        "wordless": 0 if first["text"] else len(first["mel"]),
        "speaker": second["speaker"],
        "refs": [*first["refs"], *second["refs"]],
        "epoch": second["epoch"],
        "piece": 0,
    }
