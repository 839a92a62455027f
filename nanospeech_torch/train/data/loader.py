"""Loader: reads batches ahead of the training loop, on each process. Decodes nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from nanospeech.errors import NanospeechError

from .batches import Batches, Loaded, Prefetch
from .worker_signals import deaths_wait, outlive, signals_wait


def make_loader(batches: Batches, workers: int = 0, pin: bool = False) -> Any:
    """An iterable of Loaded that is a few batches ahead.

    Args:
        batches: of this process.
        workers: processes that decode; with 0 a thread does.
        pin: put tensors into page-locked memory, for a CUDA GPU.
    """
    if not workers:
        return Prefetch(map(Loaded.pin_memory, batches) if pin else batches, 4)
    loader = Loader(
        batches,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4,
        # other start methods would run an unguarded training script again
        multiprocessing_context="fork" if sys.platform == "linux" else None,
        pin_memory=pin,
    )
    return Told(loader)


class Loader(DataLoader):
    """A DataLoader whose workers outlive the signals that end a run; see worker_signals.py."""

    def __init__(self, dataset: Any, **options: Any):
        super().__init__(dataset, worker_init_fn=outlive, **options)

    def __iter__(self) -> Any:
        with signals_wait(), deaths_wait():
            return super().__iter__()


class Told:
    """A loader whose workers' errors say what they said there: torch puts tracebacks before it."""

    def __init__(self, loader: Loader):
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return told(iter(self.loader))  # whose workers start now


def told(batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except NanospeechError as e:
        kind = type(e)
        said = str(e).rpartition(f"\n{kind.__module__}.{kind.__qualname__}: ")[2]
        raise kind(said.strip()) from e
