"""Which clips are held out: a matter of their keys alone, the same in every run.

Recordings are divided twice, by draws that do not know of each other: once when they are prepared,
into those to train on and those to measure with, and a vocoder's training holds some of what it is
given out again, where one rule for both would find none left.
"""

from __future__ import annotations

import zlib


def is_held_out(key: str, one_in: int = 0, share: float = 0.0) -> bool:
    """Whether a clip is held out.

    Args:
        key: of the clip.
        one_in: prepare's rule: one clip in so many, those whose CRC-32 it divides; 0: none.
        share: training's rule: so much of all clips, by the CRC-32 of another name.
    """
    if one_in > 0 and zlib.crc32(key.encode()) % one_in == 0:
        return True
    return zlib.crc32(f"held out {key}".encode()) < share * 2**32
