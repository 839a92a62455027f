"""Parallel: one model over many processes: DDP, FSDP2, HSDP and tensor parallelism. No loop.

A mesh of replicate x shard x tensor processes (mesh.py), on torch's DeviceMesh and DTensor. The
ranks of one tensor group see the same batch; `data_rank` and `data_world` count the groups.
Parameter names stay those of the unwrapped module, so checkpoints do not depend on the split.

Convention: every scheme *averages* gradients over `data_world`. A caller whose local loss is
data_world * (local sum) / (global count) gets the gradient of the global mean.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nanospeech.errors import DataError, InputError
from nanospeech_torch.train.optim.guards import clip_factor
from nanospeech_torch.train.optim.optimizers import local

from .materialize import broadcast_weights, fill_empty
from .mesh import REPLICATE, SHARD, TENSOR, ParallelConfig, build_mesh, flat_group
from .tensor_split import blocks, check_widths, split_layers

HELD: list[dist.ProcessGroup | None] = []  # see `replicas`
# how long processes wait for each other: one may compile, prepare data or speak meanwhile
PATIENCE = timedelta(hours=1)


class Parallel:
    """The processes of a run: their mesh, how a model is split over them, and sums over them.

    Args:
        accelerator: accelerate.Accelerator, without a parallelism plugin of its own.
        config: the split.
        objective: the model to train; it is only inspected.

    Attributes:
        data_rank, data_world: which data this process reads, and of how many parts.
        tp_rank: place within the tensor group. Seed dropout by data_rank, so that a group agrees.
        mesh: torch DeviceMesh, or None for one process.

    Raises:
        InputError: the split does not fit the processes, the model or the precision. Nothing has
            been read or moved by then.
    """

    def __init__(self, accelerator: Any, config: ParallelConfig, objective: nn.Module):
        self.accelerator, self.config = accelerator, config
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        check_group(self.world)
        self.replicate = config.replicas(self.world)
        self.shard, self.tensor = config.shard, config.tensor
        check(accelerator, config, objective)
        self.data_world = self.replicate * self.shard
        self.data_rank, self.tp_rank = divmod(self.rank, self.tensor)
        self.objective: nn.Module | None = None
        self.model: Any = None
        self.mesh = None
        self.data_group: Any = None
        self.control_group: Any = None
        if self.world > 1:
            self.mesh = build_mesh(accelerator.device.type, self.replicate, self.shard, self.tensor)
            if self.tensor > 1:
                self.data_group = flat_group(self.mesh, (REPLICATE, SHARD))
            if dist.get_backend() != "gloo":  # others cannot carry host tensors
                self.control_group = dist.new_group(timeout=PATIENCE, backend="gloo")

    def wrap(
        self,
        objective: nn.Module,
        optimizers: Iterable[torch.optim.Optimizer] = (),
        speed: Callable[[nn.Module], Any] | None = None,
        seed: int = 0,
    ) -> Any:
        """Puts a model on its devices, split as configured.

        Args:
            objective: with the same weights on every process (rank 0's are used), or on the "meta"
                device: then each process fills only its part, from `seed`.
            optimizers: over its parameters, without state; their groups are pointed to the split
                parameters.
            speed: called between the tensor split and the sharding, where compile and activation
                checkpointing belong (speed.apply_speed).

        Returns:
            The module to call instead of the objective.

        Raises:
            InputError: an optimizer cannot work on split weights or has state.
        """
        optimizers = list(optimizers)
        if any(o.state for o in optimizers):
            raise InputError("split the model before its optimizers have state: load it afterwards")
        names = {id(p): name for name, p in objective.named_parameters()}
        meta = any(p.is_meta for p in objective.parameters())
        if not meta:
            objective.to(self.accelerator.device)
            if self.world > 1:
                broadcast_weights(objective)
        if self.tensor > 1:
            split_layers(objective, self.mesh[TENSOR], self.tp_rank)  # type: ignore[index]
        if speed is not None:
            speed(objective)
        if self.split:
            self.shard_blocks(objective)
        if meta:
            fill_empty(objective, self.accelerator.device, seed)
        repoint(objective, optimizers, names)
        self.objective = self.model = objective
        if self.world > 1 and not self.split:
            self.model = replicas(objective, self.accelerator.device)
        return self.model

    @property
    def split(self) -> bool:
        """Whether parameters are DTensors: no process holds all weights."""
        return self.shard > 1 or self.tensor > 1

    def shard_blocks(self, objective: nn.Module) -> None:
        """FSDP2, one unit a block and one for the rest; with tensor parallelism, always.

        A tensor split alone would leave a mix of tensors and DTensors, which fused optimizers do
        not support; units of one process cost a copy and make all of them DTensors.
        """
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        dims = (REPLICATE, SHARD) if self.replicate > 1 else SHARD
        mesh = self.mesh[dims]  # type: ignore[index]
        bf16 = self.accelerator.mixed_precision == "bf16"
        # autocast decides what is computed in bf16: here weights only travel in it
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if bf16 else None,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,
        )
        for block in blocks(objective):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        # the rest is small and holds what autocast keeps in float32: embeddings, norms
        rest = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
        fully_shard(objective, mesh=mesh, mp_policy=rest)

    @contextlib.contextmanager
    def no_sync(self, accumulating: bool = True) -> Iterator[None]:
        """Around forward and backward of a micro-batch: gradients stay local if accumulating.

        But for a split model, of which no process could hold all gradients: each keeps its part, of
        its shard group's sum; only copies of the model wait with theirs.
        """
        if self.split:
            if self.replicate > 1:
                self.model.set_requires_all_reduce(not accumulating)
            yield
        elif accumulating and self.world > 1:
            with self.model.no_sync():
                yield
        else:
            yield

    def reduce(self, tensor: Tensor) -> Tensor:
        """Sum over the data ranks, on the device; a new tensor."""
        total = tensor.detach().clone()
        if self.data_world > 1:
            dist.all_reduce(total, group=self.data_group)
        return total

    def grad_norm(self, params: Iterable[nn.Parameter]) -> Tensor:
        """L2 norm of all gradients, float32, the same on every process; no device sync."""
        by_dims: dict[tuple, list[Tensor]] = {}
        for p in params:
            if p.grad is not None:
                by_dims.setdefault(sharded_dims(p.grad), []).append(local(p.grad))
        total = torch.zeros((), device=self.accelerator.device)
        for dims, grads in by_dims.items():
            norms = torch._foreach_norm(grads, 2, dtype=torch.float32)  # type: ignore[attr-defined]
            squares = torch.stack(list(norms)).square().sum()
            for mesh, dim in dims:
                dist.all_reduce(squares, group=mesh.get_group(dim))
            total = total + squares
        return total.sqrt()

    @staticmethod
    def clip_(params: Iterable[nn.Parameter], norm: Tensor, max_norm: float) -> None:
        """Scales gradients down to max_norm, given their norm; no device sync."""
        grads = [local(p.grad) for p in params if p.grad is not None]
        if grads:
            torch._foreach_mul_(grads, clip_factor(norm, max_norm))  # type: ignore[attr-defined]

    def full_state(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on the CPU of rank 0, {} elsewhere; every process must call it."""
        whole = {}
        for name, value in state.items():
            value = value.detach()
            if is_split(value):
                value = value.full_tensor()  # type: ignore[attr-defined]
            if self.rank == 0:
                whole[name] = value.to("cpu", copy=True)
        return whole

    def gather(self, value: Any) -> list[Any]:
        """The host objects of all processes, by rank, on every process."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value, group=self.control_group)
        return found

    def first_error(self, error: Exception | None, digest: int = 0) -> Exception | None:
        """This process's error, or else what tells of the first other's; None where none failed.

        All processes call it, before each step: where none failed it is one message on the host.

        Args:
            error: of this process.
            digest: of its batches, which have to be those of its whole tensor group.
        """
        if self.world == 1:
            return error
        groups = self.data_world if self.tensor > 1 else 0
        found = torch.full((1 + 2 * groups,), -(2**62))  # whether one failed, digests, negated ones
        found[0] = error is not None
        if groups:
            found[1 + self.data_rank], found[1 + groups + self.data_rank] = digest, -digest
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control_group)
        if not found[0]:
            most, least = found[1 : 1 + groups], -found[1 + groups :]
            return self.apart(int((most != least).nonzero()[0])) if (most != least).any() else None
        told = self.gather(error and f"{type(error).__name__}: {error}")
        rank = next(rank for rank, text in enumerate(told) if text)
        return error or DataError(f"process {rank} failed: {told[rank]}")

    def apart(self, group: int) -> DataError:
        """What to do where the processes of a tensor group have different batches."""
        first = group * self.tensor
        return DataError(
            f"processes {first} to {first + self.tensor - 1} share each layer (parallel.tensor="
            f"{self.tensor}) but have read different batches: one of them probably left out a clip "
            "that another could read. Look for warnings of broken shards or clips above, see that "
            "all can read the same files, and start the run again: they go on from one place"
        )

    def broadcast(self, value: Any) -> Any:
        """Rank 0's host object."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control_group)
        return box[0]


def check_group(world: int) -> None:
    """Raises InputError where processes that belong together can no longer reach each other."""
    if world > 1 and not dist.is_initialized():
        raise InputError(
            f"a run of these {world} processes has ended, and with it their process group; start "
            "each run of several processes by a launch of its own"
        )


def check(accelerator: Any, config: ParallelConfig, objective: nn.Module) -> None:
    """Raises InputError, with what to change, for a model that cannot be split as configured."""
    kind = str(getattr(accelerator.distributed_type, "value", ""))
    own = getattr(accelerator, "parallelism_config", None) is not None
    if own or kind in ("DEEPSPEED", "MEGATRON_LM", "FSDP"):
        raise InputError(
            f"accelerate was configured for {'parallelism' if own else kind} itself; launch with "
            "plain multi-GPU and set parallel.shard, parallel.tensor in the run's config"
        )
    if config.shard == config.tensor == 1:
        return
    asked = "parallel.shard" if config.tensor == 1 else "parallel.tensor"
    if not blocks(objective) or len(phases(objective)) > 1:
        raise InputError(
            f"{asked} > 1 splits transformer blocks, and {type(objective).__name__} has none or "
            "more than one optimizer phase; use parallel.replicate alone"
        )
    if accelerator.mixed_precision == "fp16":
        raise InputError(
            f"{asked} > 1 does not go with mixed_precision fp16: its loss scale would have to see "
            "every shard; use bf16 or no"
        )
    if getattr(getattr(objective, "loss", None), "model_guidance", 0):
        raise InputError(
            f"{asked} > 1 does not go with loss.model_guidance: its teacher, the average, needs "
            "whole weights on each process; use parallel.replicate alone or turn guidance off"
        )
    if config.tensor > 1:
        check_widths(objective, config.tensor)


def phases(objective: nn.Module) -> dict[str, Any]:
    """The optimizer phases of an objective; one by default."""
    return objective.phases() if hasattr(objective, "phases") else {"": None}  # type: ignore


def replicas(objective: nn.Module, device: torch.device) -> nn.Module:
    """DistributedDataParallel; parameters go unused only where there are several phases.

    Its process group is kept until the interpreter ends. If DDP held the last reference, as after
    `destroy_process_group`, dropping it would wait for gloo's threads while holding the
    interpreter's lock, which they may need (pytorch issue 56297).
    """
    HELD.append(dist.group.WORLD)
    ddp = nn.parallel.DistributedDataParallel
    known = inspect.signature(ddp).parameters
    # buffers are constants here; the name of the switch depends on torch's version
    still = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {still: False}
    return ddp(
        objective,
        device_ids=None if device.type == "cpu" else [device.index],
        find_unused_parameters=len(phases(objective)) > 1,
        gradient_as_bucket_view=True,
        **options,
    )


def repoint(objective: nn.Module, optimizers: list, names: dict[int, str]) -> None:
    """Points optimizer groups to the new parameters of the same names."""
    now = dict(objective.named_parameters())
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if any(id(p) not in names for p in group["params"]):
                raise InputError("an optimizer holds parameters that the model does not have")
            group["params"] = [now[names[id(p)]] for p in group["params"]]


def is_split(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "placements")


def sharded_dims(tensor: Tensor) -> tuple:
    """The (mesh, dimension) pairs over which a tensor is sharded."""
    if not is_split(tensor):
        return ()
    mesh, places = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    pairs = enumerate(places)
    return tuple((mesh, i) for i, p in pairs if not p.is_replicate() and mesh.size(i) > 1)
