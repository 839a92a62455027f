"""Sources: datasets made ready for the trainer's loader. Decodes nothing."""

from __future__ import annotations

from typing import Any


class Strided:
    """Every world-th sample of a plain iterable."""

    def __init__(self, samples: Any, rank: int, world: int):
        self.samples, self.rank, self.world = samples, rank, world

    def __iter__(self):
        return (s for i, s in enumerate(self.samples) if i % self.world == self.rank)


def undecoded(dataset: Any) -> Any:
    """The dataset with its audio columns as plain bytes: no torchcodec, no FFmpeg.

    Even Audio(decode=False) asks for torchcodec in some releases of datasets; a struct does not.
    """
    from datasets import Audio, Value

    raw = {"bytes": Value("binary"), "path": Value("string")}
    for name, kind in (dataset.features or {}).items():
        if isinstance(kind, Audio):
            dataset = dataset.cast_column(name, raw)
    return dataset
