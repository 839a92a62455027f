"""State: all that a run must remember to go on as if never stopped. Writes no files.

Tensors go under flat names, model.NAME, ema.NAME, optimizer.I.NAME.KEY and guard.NAME, whatever
the processes and their number; hyperparameters are the config's, not the checkpoint's, but for
those that an optimizer moves by itself.
"""

from __future__ import annotations

import base64
import csv
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nanospeech.errors import CheckpointError
from nanospeech_torch.train.data import order as stream
from nanospeech_torch.train.data.batches import KEYED
from nanospeech_torch.train.data.order import StreamState, check_shards

from .export import is_small

if TYPE_CHECKING:
    from .trainer import Trainer

# what may change between a run and its continuation without a word
FREE = ("run_dir", "save_step", "log.", "data.workers", "train.log_every")


def tensors(trainer: Trainer) -> dict[str, Tensor]:
    """Everything that is saved as a tensor; not copied."""
    found = {f"model.{k}": v for k, v in trainer.core.state_dict().items()}
    found |= {f"ema.{k}": v for k, v in trainer.ema.state_dict().items()}
    for phase, guard in trainer.guards.items():
        found |= {f"guard.{phase}.{k}": v for k, v in guard.state_dict().items()}
    for memory in trainer.memories:
        found |= memory.tensors()
    return {name: value.detach() for name, value in found.items()}


def pack(trainer: Trainer) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """The arguments of Checkpoints.save: tensors, what all processes share, what is this one's."""
    t = trainer
    meta = {
        "step": t.step,
        "seconds": round(t.seconds(), 3),
        "processes": t.parallel.world,
        "data_processes": t.parallel.data_world,
        "config": t.model_config(),
        "vocab": t.vocab(),
        "run": settings(t),
        "skipped": dict(t.skipped),
        "draws": KEYED,
        "optimizers": optimizer_values(t),
        "loss_scale": t.accelerator.scaler.state_dict() if t.accelerator.scaler else None,
    }
    mine = {
        "data_rank": t.parallel.data_rank,
        "places": {str(w): p.to_json() for w, p in t.places.items()},
        "consumed": t.consumed,
        "rng": random_state(),
    }
    return tensors(t), meta, mine


def optimizer_values(trainer: Trainer) -> list[dict[str, Any]]:
    """What optimizers remember beside tensors; every process must call.

    Raises:
        CheckpointError: it differs between processes, of which one alone writes it.
    """
    found = [memory.values() for memory in trainer.memories]
    if len(set(trainer.parallel.gather(json.dumps(found)))) > 1:
        raise CheckpointError(
            "what the optimizers remember beside tensors differs between the processes, so no "
            "checkpoint can hold it; take an optimizer that keeps such values in tensors"
        )
    return found


def export(trainer: Trainer) -> dict[str, Any] | None:
    """What Checkpoints.save exports: whole weights if they are small; None on other processes."""
    if is_small(tensors(trainer)):
        return weights(trainer)
    return None if trainer.parallel.rank else described(trainer)


def weights(trainer: Trainer, averaged_only: bool = False) -> dict[str, Any] | None:
    """What step_N.pt holds: whole weights and what a converter needs; None on other processes."""
    t = trainer
    ema = t.weights("ema")
    model = {} if averaged_only else {"model_state_dict": t.weights("model")}
    return None if t.parallel.rank else {**model, "ema_state_dict": ema, **described(t)}


def described(trainer: Trainer) -> dict[str, Any]:
    """What a converter needs to know beside the weights."""
    t = trainer
    return {"step": t.step, "config": t.model_config(), "vocab": t.vocab(), "run": settings(t)}


def settings(trainer: Trainer) -> dict[str, Any]:
    """The resolved config of the run, as plain values."""
    t = trainer
    found = dict(t.run) or {
        "train": asdict(t.config),
        "speed": asdict(t.speed),
        "parallel": asdict(t.parallel.config),
        "mixed_precision": t.accelerator.mixed_precision,
        "optimizer": [
            {"kind": type(m.optimizer).__name__, "rates": rates, **m.told}
            for m, rates in zip(t.memories, t.rates)
        ],
        "loss": asdict(t.core.loss),
        "data": t.batching,
        "warmup_steps": t.warmup,
        "model": t.model_config(),
    }
    found["mixed_precision"] = t.accelerator.mixed_precision  # the config may leave it open
    return json.loads(json.dumps(found))


def random_state() -> dict[str, str]:
    """States of torch's generators. The loop seeds them at every step; others' code may not."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return {k: base64.b64encode(v.numpy().tobytes()).decode() for k, v in state.items()}


def set_random_state(state: dict[str, str]) -> None:
    """Puts back what random_state gave."""
    raw = {
        k: torch.from_numpy(np.frombuffer(base64.b64decode(v), np.uint8).copy())
        for k, v in state.items()
    }
    torch.set_rng_state(raw["cpu"])
    if "cuda" in raw and torch.cuda.is_available():
        torch.cuda.set_rng_state(raw["cuda"])


def resume(trainer: Trainer, how: str) -> None:
    """Loads the state to go on from, and says so.

    Args:
        how: "auto", "never" or the path of a checkpoint folder.

    Raises:
        CheckpointError: there is none where one was named, or it does not fit.
    """
    t = trainer
    t.checkpoints.clear_parts()
    path = t.checkpoints.newest() if how == "auto" else None
    if how not in ("auto", "never"):
        path = Path(how)
        if path.is_dir() and (path / "latest").is_file():  # a run's folder
            path = path / (path / "latest").read_text(encoding="utf-8").strip()
        if not path.is_dir():
            raise CheckpointError(
                f"cannot go on from {how}: no such checkpoint folder; --resume takes auto, never, "
                "a run's folder or one of its step_N folders (a .pt holds the weights alone)"
            )
    path = t.parallel.broadcast(path)  # a slow file system may show processes different things
    if path is None:
        exports = [*t.run_dir.glob("step_*.pt"), *t.run_dir.glob("step_*.weights")]
        lone = sorted(exports) if how == "auto" else []
        if lone:
            raise CheckpointError(
                f"{t.run_dir} holds {lone[-1].name} but no checkpoint folder to go on from; move "
                "it away, or pass resume='never' (--resume never) to start afresh there"
            )
        t.say(f"starting a new run in {t.run_dir}")
        t.checkpoints.set_aside(-1)
        if t.parallel.rank == 0:
            cut_log(t.run_dir / "log.csv", 0)
        return
    load(t, path)
    t.checkpoints.set_aside(t.step)
    if t.parallel.rank == 0:
        cut_log(t.run_dir / "log.csv", t.step)
    t.say(f"going on from {path} at step {t.step}")
    t.parallel.gather(None)


def load(trainer: Trainer, path: Path) -> None:
    """Puts a checkpoint's state into a trainer."""
    t = trainer
    described = t.checkpoints.describe(path)
    meta = t.checkpoints.meta(path)
    saved = meta.get("optimizers") or [None] * len(t.memories)
    for memory, values in zip(t.memories, saved):
        memory.allocate(described, values)
    t.checkpoints.load(path, tensors(t))
    for memory, values in zip(t.memories, saved):
        if lost := memory.restore(values):
            t.say(
                f"{path.name} was written by an older version, which did not save {', '.join(lost)}"
                f" of {memory.title}: they begin anew, as if the run had just started"
            )
    t.step = meta["step"]
    t.elapsed_before = meta.get("seconds", 0.0)
    if t.accelerator.scaler is not None and meta.get("loss_scale"):
        t.accelerator.scaler.load_state_dict(meta["loss_scale"])
    for line in changes(meta.get("run", {}), settings(t)):
        t.say(f"changed since step {t.step}: {line}")
    if meta.get("draws", 1) != KEYED:
        t.say(
            "this run was saved by an older version, in which samples of one key in several shards "
            "shared their draws; from here on each sample has draws of its own (no sample is "
            "repeated or left out, and held-out losses are of new draws too)"
        )
    processes = len(list(path.glob("rank_*.json")))
    saved = Ranks(path, processes, meta.get("data_processes", processes))
    t.saved_places = saved
    mine = saved.of(t.parallel.data_rank)
    if mine:
        t.consumed = mine["consumed"]
    if processes == t.parallel.world:
        set_random_state(saved.read(t.parallel.rank)["rng"])
    else:
        t.say(f"{processes} processes saved, {t.parallel.world} go on")


class Ranks:
    """The files of a checkpoint's processes, each read when it is asked for, and once.

    Args:
        path: of the checkpoint.
        processes: that wrote it.
        data_processes: into how many parts they dealt the data; the ranks of a tensor split, which
            follow each other, read the same.
    """

    def __init__(self, path: Path, processes: int, data_processes: int):
        self.path, self.data_processes = path, data_processes
        self.tensor = processes // data_processes
        self.known: dict[int, dict[str, Any]] = {}

    def read(self, rank: int) -> dict[str, Any]:
        """What process `rank` wrote.

        Raises:
            CheckpointError: its file is missing or damaged.
        """
        if rank not in self.known:
            path = self.path / f"rank_{rank:05d}.json"
            try:
                self.known[rank] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as e:
                raise CheckpointError(f"cannot read {path}, a part of the checkpoint: {e}") from e
        return self.known[rank]

    def of(self, data_rank: int) -> dict[str, Any] | None:
        """What the first process of a data rank wrote, if there was such a rank."""
        return self.read(data_rank * self.tensor) if data_rank < self.data_processes else None

    def places(self, data_rank: int) -> dict[int, StreamState]:
        """Where the streams of a data rank stood, by worker."""
        found = self.of(data_rank) or {"places": {}}
        return {int(w): StreamState.from_json(p) for w, p in found["places"].items()}

    def resume(
        self, shards: int, seed: int, rank: int, world: int, workers: int
    ) -> tuple[dict[int, StreamState], bool, int]:
        """A process's places to go on from; see stream.resume.

        Where the same streams go on in the same processes, no other process's file is read.

        Returns:
            Its places by worker, whether they are the saved ones, and how many streams there were.
        """
        own = self.places(rank)
        if world == self.data_processes and own and alike(own, rank, world, workers):
            check_shards(own.values(), shards)
            return own, True, world * workers
        every = [self.places(r) for r in range(self.data_processes)]
        before = max((p.streams for places in every for p in places.values()), default=0)
        dealt, same = stream.resume(every, shards, seed, world, workers)
        return dealt[rank], same, before


def alike(places: dict[int, StreamState], rank: int, world: int, workers: int) -> bool:
    """Whether places are those of this process's own workers."""
    return all(
        (p.streams, p.stream) == (world * workers, rank * workers + worker)
        for worker, p in places.items()
    )


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


def cut_log(path: Path, step: int) -> None:
    """Drops the lines of steps that will be taken again."""
    try:
        with path.open(newline="", encoding="utf-8") as f:
            rows = list(csv.reader(f))
    except OSError:
        return
    kept = rows[:1] + [r for r in rows[1:] if r and r[0].isdigit() and int(r[0]) <= step]
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows(kept if len(kept) > 1 else [])
    os.replace(part, path)
