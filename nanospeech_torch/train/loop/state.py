"""State: everything that an exactly resumed run needs. Writes no checkpoints.

Tensors have flat names, model.NAME, ema.NAME, optimizer.I.NAME.KEY and guard.NAME, for any number
of processes; hyperparameters are the config's, not the checkpoint's, except for those that an
optimizer changes itself.
"""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nanospeech.errors import CheckpointError
from nanospeech.files import whole
from nanospeech_torch.checkpoint_reader import complete, damaged
from nanospeech_torch.train.data import order as stream
from nanospeech_torch.train.data.batches import KEYED
from nanospeech_torch.train.data.stream_state import StreamState, check_shards
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.guards import Guard
from nanospeech_torch.train.optim.optimizers import EMA
from nanospeech_torch.train.run_state import RunState
from nanospeech_torch.train.scale.parallel import Parallel

from .checkpoints import Checkpoints, newest
from .export import is_small
from .optimizer_state import OptimizerState, check_kinds
from .settings import changes, vocab_of


@dataclass(frozen=True)
class RunParts:
    """The parts of a run that are saved and restored, beside its RunState."""

    objective: Objective
    ema: EMA
    guards: Mapping[str, Guard]
    memories: Sequence[OptimizerState]
    parallel: Parallel

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is saved as a tensor; not copied."""
        found = {f"model.{k}": v for k, v in self.objective.state_dict().items()}
        found |= {f"ema.{k}": v for k, v in self.ema.state_dict().items()}
        for phase, guard in self.guards.items():
            found |= {f"guard.{phase}.{k}": v for k, v in guard.state_dict().items()}
        for memory in self.memories:
            found |= memory.tensors()
        return {name: value.detach() for name, value in found.items()}

    def optimizer_values(self) -> list[dict[str, Any]]:
        """Values in optimizers' states that are no tensors; every process must call.

        Raises:
            CheckpointError: it differs between processes, of which one alone writes it.
        """
        found = [memory.values() for memory in self.memories]
        if len(set(self.parallel.gather(json.dumps(found)))) > 1:
            raise CheckpointError(
                "values in optimizers' states that are no tensors differ between processes, so no "
                "checkpoint can hold it; take an optimizer that keeps such values in tensors"
            )
        return found

    def whole(self, kind: str) -> dict[str, Tensor]:
        """Whole "model" or "ema" weights on the main process's CPU; every process must call."""
        tensors = self.ema.state_dict() if kind == "ema" else self.objective.state_dict()
        return self.parallel.full_state(tensors)


@dataclass(frozen=True)
class Restored:
    """The values of a checkpoint for the RunState of this process."""

    step: int
    elapsed_before: float
    consumed: int
    ranks: Ranks


def pack(
    parts: RunParts, run: RunState, described: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """The arguments of Checkpoints.save: tensors, values of all processes, values of this one.

    Args:
        parts, run: the run.
        described: its "config", "vocab" and "run", for converters.
    """
    p = parts.parallel
    scaler = p.accelerator.scaler
    meta = {
        "step": run.step,
        "seconds": round(run.seconds(), 3),
        "processes": p.world,
        "data_processes": p.data_world,
        "config": described["config"],
        "vocab": described["vocab"],
        "run": described["run"],
        "skipped": dict(run.skipped),
        "draws": KEYED,
        "optimizers": parts.optimizer_values(),
        "loss_scale": scaler.state_dict() if scaler else None,
    }
    mine = {
        "data_rank": p.data_rank,
        "places": {str(w): place.to_json() for w, place in run.places.items()},
        "consumed": run.consumed,
        "rng": random_state(),
    }
    return parts.tensors(), meta, mine


def export(parts: RunParts, described: dict[str, Any]) -> dict[str, Any] | None:
    """The export of Checkpoints.save: whole weights if they are small; None on other processes.

    Args:
        parts: of the run.
        described: its step, config, vocabulary and settings.
    """
    if is_small(parts.tensors()):
        return weights(parts, described)
    return None if parts.parallel.rank else described


def weights(
    parts: RunParts, described: dict[str, Any], averaged_only: bool = False
) -> dict[str, Any] | None:
    """The content of step_N.pt: whole weights, values for converters; None on other processes."""
    ema = parts.whole("ema")
    model = {} if averaged_only else {"model_state_dict": parts.whole("model")}
    return None if parts.parallel.rank else {**model, "ema_state_dict": ema, **described}


def random_state() -> dict[str, str]:
    """States of torch's generators. The loop seeds them at every step; others' code may not."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return {k: base64.b64encode(v.numpy().tobytes()).decode() for k, v in state.items()}


def set_random_state(state: dict[str, str]) -> None:
    """Restores the states of random_state."""
    raw = {
        k: torch.from_numpy(np.frombuffer(base64.b64decode(v), np.uint8).copy())
        for k, v in state.items()
    }
    torch.set_rng_state(raw["cpu"])
    if "cuda" in raw and torch.cuda.is_available():
        torch.cuda.set_rng_state(raw["cuda"])


def resume(
    how: str,
    parts: RunParts,
    checkpoints: Checkpoints,
    settings: dict[str, Any],
    say: Callable[[str], None],
) -> Restored | None:
    """Loads the checkpoint to resume from, and reports it.

    Args:
        how: "auto", "never" or the path of a checkpoint folder.
        parts: whose state is restored.
        checkpoints: of the run's folder.
        settings: of the run, to report changes.
        say: prints a line.

    Returns:
        Values for the Trainer's RunState; None for a new run.

    Raises:
        CheckpointError: there is none where one was named, or it does not fit.
    """
    folder, p = checkpoints.folder, parts.parallel
    checkpoints.clear_parts()
    path = checkpoints.newest() if how == "auto" else None
    if how not in ("auto", "never"):
        path = named(how)
    path = p.broadcast(path)  # on a slow file system processes may see different files
    if path is None:
        exports = [*folder.glob("step_*.pt"), *folder.glob("step_*.weights")]
        lone = sorted(exports) if how == "auto" else []
        if lone:
            raise CheckpointError(
                f"{folder} holds {lone[-1].name} but no checkpoint folder to go on from; move "
                "it away, or pass resume='never' (--resume never) to start afresh there"
            )
        say(f"starting a new run in {folder}")
        checkpoints.set_aside(-1)
        if p.rank == 0:
            cut_log(folder / "log.csv", 0)
        return None
    restored = restore(path, parts, checkpoints, settings, say)
    checkpoints.set_aside(restored.step)
    if p.rank == 0:
        cut_log(folder / "log.csv", restored.step)
    say(f"going on from {path} at step {restored.step}")
    p.gather(None)
    return restored


def named(how: str) -> Path:
    """The checkpoint folder that a path names: itself, or the newest of a run's folder.

    Raises:
        CheckpointError: there is none.
    """
    path = Path(how)
    if path.is_dir() and not complete(path):  # a run's folder
        path = newest(path) or path
    if not path.is_dir():
        raise CheckpointError(
            f"cannot go on from {how}: no such checkpoint folder; --resume takes auto, never, "
            "a run's folder or one of its step_N folders (a .pt holds the weights alone)"
        )
    return path


def restore(
    path: Path,
    parts: RunParts,
    checkpoints: Checkpoints,
    settings: dict[str, Any],
    say: Callable[[str], None],
) -> Restored:
    """Puts a checkpoint's state into the parts of a run."""
    p, reader, meta = parts.parallel, checkpoints.open(path), checkpoints.meta(path)
    step = meta["step"]
    for line in changes(meta.get("run", {}), settings):  # before what they may keep from fitting
        say(f"changed since step {step}: {line}")
    check_vocab(path, meta.get("vocab") or [], vocab_of(parts.objective.tokenizer))
    described = reader.known.state_dict_metadata
    saved = meta.get("optimizers") or [None] * len(parts.memories)
    for memory, values in zip(parts.memories, saved):
        memory.allocate(described, values)
    tensors = parts.tensors()
    check_kinds(path, described, tensors, meta.get("run", {}), settings)
    checkpoints.load(path, tensors, reader)
    for memory, values in zip(parts.memories, saved):
        if lost := memory.restore(values):
            say(
                f"{path.name} was written by an older version, which did not save {', '.join(lost)}"
                f" of {memory.title}: they begin anew, as if the run had just started"
            )
    if p.accelerator.scaler is not None and meta.get("loss_scale"):
        p.accelerator.scaler.load_state_dict(meta["loss_scale"])
    if meta.get("draws", 1) != KEYED:
        say(
            "this run was saved by an older version, in which samples of one key in several shards "
            "shared their draws; from here on each sample has draws of its own (no sample is "
            "repeated or left out, and held-out losses are of new draws too)"
        )
    processes = len(list(path.glob("rank_*.json")))
    ranks = Ranks(path, processes, meta.get("data_processes", processes))
    mine = ranks.of(p.data_rank)
    if processes == p.world:
        set_random_state(ranks.read(p.rank)["rng"])
    else:
        say(f"{processes} processes saved, {p.world} go on")
    consumed = mine["consumed"] if mine else 0
    return Restored(step, meta.get("seconds", 0.0), consumed, ranks)


def check_vocab(path: Path, was: list[str], now: list[str]) -> None:
    """Raises CheckpointError where tokens would take the learned rows of other ones."""
    if was and now and was != now:
        at = next(
            (i for i, (a, b) in enumerate(zip(was, now)) if a != b), min(map(len, (was, now)))
        )
        old, new = (repr(v[at]) if at < len(v) else "none" for v in (was, now))
        raise CheckpointError(
            f"cannot go on from {path}: it was saved with another vocabulary, {len(was)} tokens; "
            f"this run has {len(now)}, and token {at} was {old}, is {new}. Give it the old "
            'vocabulary ("vocab" in its meta.json), or choose another run_dir'
        )


class Ranks:
    """The files of a checkpoint's processes, each read when it is asked for, and once.

    Args:
        path: of the checkpoint.
        processes: that wrote it.
        data_processes: the number of parts of the data; the ranks of a tensor split, which
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
            name = f"rank_{rank:05d}.json"
            try:
                self.known[rank] = json.loads((self.path / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as e:
                raise damaged(self.path, e, name) from e
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
        """A process's stream states to resume from; see order.resume.

        Where the same streams go on in the same processes, no other process's file is read.

        Returns:
            Its stream states by worker, whether they are the saved ones, and the number of streams.
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
    """Whether stream states are those of this process's own workers."""
    return all(
        (p.streams, p.stream) == (world * workers, rank * workers + worker)
        for worker, p in places.items()
    )


def cut_log(path: Path, step: int) -> None:
    """Drops the lines of steps that will be taken again, and what a power cut left of one."""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as f:
            rows = list(csv.reader(line.replace("\0", "") for line in f))
    except OSError:
        return
    kept = rows[:1] + [r for r in rows[1:] if r and r[0].isdigit() and int(r[0]) <= step]
    with whole(path) as part, part.open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows(kept if len(kept) > 1 else [])
