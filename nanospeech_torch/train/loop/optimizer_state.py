"""Optimizer state: an optimizer's state as flat tensors and plain values. No files.

Tensors are named optimizer.I.NAME.KEY, those in lists and dictionaries with their index or key.
Other values (an integer step, a list's length, a changed value of a group) are plain JSON. Objects
of other types cannot be saved and are an error before the first step, as a run resumed without them
would differ.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.errors import CheckpointError, InputError

PLAIN = (bool, int, float, str, type(None))
TRAINERS = ("params", "lr")  # keys of a group that the trainer sets in every step
MOST = 4096  # most elements of a tensor that is a group's value


class OptimizerState:
    """The state of one optimizer of a model.

    Args:
        index: which of the trainer's optimizers it is; part of the names.
        optimizer: without state yet.
        model: whose parameters it moves.

    Attributes:
        configured: the plain values of its first group at the start.

    Raises:
        InputError: a trial step on small parameters left something that cannot be saved.
    """

    def __init__(self, index: int, optimizer: torch.optim.Optimizer, model: nn.Module):
        self.optimizer, self.prefix = optimizer, f"optimizer.{index}"
        self.title = f"optimizer {index} ({type(optimizer).__name__})"
        self.params = dict(model.named_parameters())
        self.names: dict[Any, str] = {id(p): name for name, p in self.params.items()}
        self.began = self.groups(optimizer)
        kinds = (*PLAIN, list, tuple)
        first = optimizer.param_groups[0].items()
        self.configured = {k: v for k, v in first if k not in TRAINERS and type(v) in kinds}
        self.try_out()

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by its flat name; not copied."""
        return self.flat(self.optimizer)[0]

    def values(self) -> dict[str, Any]:
        """Values that are no tensors, as JSON: parameters' states, changed values of groups."""
        moved = [
            {k: v for k, v in now.items() if k not in then or v != then[k]}
            for now, then in zip(self.groups(self.optimizer), self.began)
        ]
        return {"state": self.flat(self.optimizer)[1], "groups": moved}

    def flat(self, optimizer: Any) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
        """The state's tensors by flat name; and other values by parameter and key."""
        tensors: dict[str, Tensor] = {}
        values: dict[str, dict[str, Any]] = {}
        for owner, state in optimizer.state.items():
            name = self.names[id(owner)] if isinstance(owner, Tensor) else f"={owner}"
            for key, value in (state if isinstance(state, dict) else {"": state}).items():
                found = self.plain(value, f"{self.prefix}.{name}.{key}", tensors)
                if not isinstance(value, Tensor):
                    values.setdefault(name, {})[key] = found
        return tensors, values

    def groups(self, optimizer: Any) -> list[dict[str, Any]]:
        """The values of each parameter group as JSON, without those that the trainer sets."""
        return [
            {
                k: self.plain(v, f"{self.prefix}.groups.{j}.{k}", None)
                for k, v in group.items()
                if k not in TRAINERS and not is_fixed(v)
            }
            for j, group in enumerate(optimizer.param_groups)
        ]

    def plain(self, value: Any, name: str, tensors: dict[str, Tensor] | None) -> Any:
        """A value as JSON, with the flat names of its tensors, which are put into `tensors`.

        Without `tensors`, they are written out themselves.
        """
        if isinstance(value, Tensor) and tensors is not None and name not in tensors:
            tensors[name] = value.detach()
            return {"tensor": name}
        if isinstance(value, Tensor) and tensors is None and value.numel() <= MOST:
            return {"numbers": value.tolist()}
        if type(value) in PLAIN:
            return value
        if type(value) in (list, tuple):
            found = [self.plain(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
            return {type(value).__name__: found}
        if isinstance(value, dict) and all(type(k) in (str, int) for k in value):
            pairs = value.items()
            return {"dict": [[k, self.plain(v, f"{name}.{k}", tensors)] for k, v in pairs]}
        raise InputError(
            f"{self.title} keeps a {type(value).__name__} as {name.removeprefix(self.prefix)[1:]}: "
            "a checkpoint holds tensors, numbers, texts, lists and dictionaries, and a run that "
            "went on without it would learn something else. Let the optimizer keep it as one of "
            "these, or take another optimizer"
        )

    def try_out(self) -> None:
        """Steps a copy of the optimizer on small parameters, to find the types in its state.

        An optimizer that cannot do that (one that needs a closure, for example) is not checked
        here; saving it will raise the same errors.
        """
        small = {
            id(p): nn.Parameter(torch.zeros([min(n, 2) for n in p.shape], device=p.device))
            for p in self.params.values()
        }
        trial: Any = object.__new__(type(self.optimizer))
        try:
            with torch.random.fork_rng(devices=[]):
                memo = {**small, id(self.optimizer): trial}
                trial.__dict__.update(copy.deepcopy(vars(self.optimizer), memo))
                before = counters(trial)
                for group in trial.param_groups:
                    for p in group["params"]:
                        p.grad = torch.zeros_like(p)
                trial.step()
                after, keys = counters(trial), trial.state_dict().keys()
        except Exception:
            return
        self.names |= {id(small[id(p)]): name for name, p in self.params.items()}
        self.flat(trial)
        self.groups(trial)
        self.names = {id(p): name for name, p in self.params.items()}
        hidden = sorted(k for k in after if after[k] != before.get(k))
        hidden += sorted(keys - {"state", "param_groups"})
        if hidden:
            raise InputError(
                f"{self.title} remembers {', '.join(hidden)} outside of its state and its groups, "
                "which no checkpoint holds: a run that went on without it would learn something "
                "else. Let it keep that in optimizer.state or param_groups, or take another one"
            )

    def allocate(self, described: dict[str, Any], saved: dict[str, Any] | None) -> None:
        """Allocates saved state, by a step that changes nothing.

        Args:
            described: the checkpoint's tensors by name.
            saved: the checkpoint's values(); None of an older version.
        """
        o, known = self.optimizer, set((saved or {}).get("state", ()))
        for name in described:
            if name.startswith(self.prefix + "."):
                known |= set(owners(name.removeprefix(self.prefix + ".")))
        params = [p for g in o.param_groups for p in g["params"]]
        mine = [p for p in params if self.names[id(p)] in known]
        if known and not mine:  # its state is not of single parameters
            mine = [p for p in params if p.requires_grad]
        for p in params:
            p.grad = None
        for p in mine:
            p.grad = torch.zeros_like(p)
        rates = [g["lr"] for g in o.param_groups]
        for group in o.param_groups:
            group["lr"] = 0.0
        if mine:
            o.step()
        o.zero_grad(set_to_none=True)
        for rate, group in zip(rates, o.param_groups):
            group["lr"] = rate

    def restore(self, saved: dict[str, Any] | None) -> list[str]:
        """Restores values that are no tensors, once the tensors are loaded.

        Returns:
            Names of state that a checkpoint of an older version lacks; it begins anew.
        """
        tensors, here = self.flat(self.optimizer)
        for name, values in (saved or {}).get("state", {}).items():
            owner: Any = self.params.get(name, name.removeprefix("="))
            if "" in values:
                self.optimizer.state[owner] = rebuilt(values[""], tensors)
                continue
            state = self.optimizer.state[owner]
            same = {str(k): k for k in state}  # JSON's keys are texts
            for key, value in values.items():
                state[same.get(key, key)] = rebuilt(value, tensors)
        moved = (saved or {}).get("groups") or [{}] * len(self.began)
        fresh = self.groups(self.optimizer)
        for group, then, late, now in zip(self.optimizer.param_groups, self.began, moved, fresh):
            for key, value in {**then, **late}.items():
                if now.get(key) != value:
                    group[key] = in_place(group.get(key), rebuilt(value, tensors))
        if saved is not None:
            return []
        lost = {f"{key}" for values in here.values() for key, v in values.items() if v is not None}
        lost |= {
            key
            for now, then in zip(fresh, self.began)
            for key in now
            if key not in then or now[key] != then[key]
        }
        return sorted(lost)


def check_kinds(
    path: Path, saved: Iterable[str], here: Iterable[str], was: dict[str, Any], now: dict[str, Any]
) -> None:
    """Checks that a checkpoint's optimizers keep what this run's do; of the model, nothing.

    Args:
        path: of the checkpoint.
        saved, here: names of its tensors, and of this run's.
        was, now: settings of the run that wrote it, and of this one.

    Raises:
        CheckpointError: they keep other things, as where muon was adamw.
    """
    old, new = set(saved), set(here)
    others = {name for name in old ^ new if not name.startswith("optimizer.")}
    kept, wanted = kinds(old), kinds(new)
    if others or kept == wanted or not kept:  # of another model, or without state
        return
    raise CheckpointError(
        f"cannot go on from {path}: it is of {optimizer_of(was)}, which keeps {listed(kept)}, and"
        f" this run is to take {optimizer_of(now)}, which keeps {listed(wanted)}. Give the run the"
        " optimizer that it had; or, to change it, make a folder of the weights by nanospeech"
        " convert, and start another run_dir with initial=FOLDER"
    )


def kinds(names: Iterable[str]) -> set[str]:
    """What optimizers keep of parameters, such as exp_avg."""
    return {name.rpartition(".")[2] for name in names if name.startswith("optimizer.")}


def listed(kept: set[str]) -> str:
    return ", ".join(sorted(kept)) or "nothing"


def optimizer_of(settings: dict[str, Any]) -> str:
    """What a run's settings call its optimizers."""
    found = settings.get("optimizer")
    if isinstance(found, dict):  # of a recipe; a trainer's own has a list
        return f"optimizer.name={found.get('name')}"
    return " and ".join(str(o.get("kind")) for o in found or ()) or "another optimizer"


def is_fixed(value: Any) -> bool:
    """Whether a group's value is of a type that is set once: code, a dtype, a device."""
    return callable(value) or isinstance(value, (torch.dtype, torch.device))


def counters(optimizer: Any) -> dict[str, Any]:
    """The numbers among an optimizer's own attributes."""
    return {k: v for k, v in vars(optimizer).items() if type(v) in (int, float)}


def owners(name: str) -> Iterator[str]:
    """All prefixes of a dotted name: one is the parameter's."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def rebuilt(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `plain`; tensors are taken from the present state by their names.

    A group's tensor, written out, becomes a new tensor.
    """
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "numbers":
        return torch.tensor(inner)
    if kind == "dict":
        return {k: rebuilt(v, tensors) for k, v in inner}
    found = [rebuilt(v, tensors) for v in inner]
    return tuple(found) if kind == "tuple" else found


def in_place(old: Any, new: Any) -> Any:
    """The new value; a tensor is copied into the old one, which others may refer to."""
    if isinstance(old, Tensor) and isinstance(new, Tensor) and old.shape == new.shape:
        return old.copy_(new)
    return new
