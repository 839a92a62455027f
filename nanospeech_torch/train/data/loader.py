"""Feed: the loader between a dataset and the training loop, on each process. Decodes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from nanospeech_torch.train.loop.signals import outlive, signals_wait

from .batches import BatchPlan, Loaded, Prefetch, StreamOptions
from .sources import make_source

if TYPE_CHECKING:
    from nanospeech_torch.train.loop.trainer import Trainer


def loader(trainer: Trainer, dataset: Any, plan: BatchPlan, workers: int, cache_bytes: int) -> Any:
    """This process's batches of a dataset, from where the run stands."""
    t = trainer
    source, p, c = make_source(dataset), t.parallel, t.config
    streams = max(1, workers)
    if t.saved_places:
        t.places, same, before = t.saved_places.resume(
            len(source), c.seed, p.data_rank, p.data_world, streams
        )
        if not same:
            t.consumed = 0
            t.say(
                f"the data was read by {before} streams and is now read by "
                f"{p.data_world * streams}: what they had left was dealt out again, "
                "nothing is repeated or skipped"
            )
        t.saved_places = None
    stream = StreamOptions(
        seed=c.seed,
        rank=p.data_rank,
        world=p.data_world,
        places=t.places,
        consumed=t.consumed,
        cache_bytes=cache_bytes,
        shuffle_buffer=c.shuffle_buffer,
    )
    batches = t.core.batches(source, plan, stream)
    pin = t.accelerator.device.type == "cuda"
    if not workers:
        return Prefetch(map(Loaded.pin_memory, batches) if pin else batches, 4)
    return Loader(
        batches,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4,
        # the other ways to start a process run an unguarded training script once more in it
        multiprocessing_context="fork" if sys.platform == "linux" else None,
        pin_memory=pin,
    )


class Loader(DataLoader):
    """A DataLoader whose workers outlive the signals that end a run; see stop.py."""

    def __init__(self, dataset: Any, **options: Any):
        super().__init__(dataset, worker_init_fn=outlive, **options)

    def __iter__(self) -> Any:
        with signals_wait():
            return super().__iter__()
