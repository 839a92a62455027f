"""train.scale.speed: compiled and checkpointed blocks compute what plain ones do."""

from __future__ import annotations

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nanospeech.errors import InputError
from nanospeech_torch.train.scale.speed import MODES, SpeedConfig, apply_speed, recompiles
from tests.parallel_worker import global_batch, objective

KINDS = ["published", "aligned", "duration"]
CHECKPOINTS = [
    {"checkpoint_interval": 1},
    {"checkpoint_interval": 2},
    {"checkpoint_ops": True},
    {"checkpoint_interval": 2, "checkpoint_ops": True},
]


class Held(TorchDispatchMode):
    """Notes every storage made inside; counts those still alive."""

    def __init__(self):
        super().__init__()
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return out

    def bytes(self) -> int:
        return sum(n for ref, n in self.made.values() if not ref.expired())


def shaken(kind: str, **options):
    """A model in which nothing is zero, so that every gradient says something."""
    model = objective(kind, **options)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return model


def total(sums) -> torch.Tensor:
    return torch.stack([s / n for s, n in sums.values()]).sum()


def gradients(model, step: int = 0):
    """Gradients of a batch, and the bytes held between forward and backward."""
    torch.manual_seed(7)  # dropout
    model.zero_grad()
    with Held() as held:
        sums = model(global_batch(step))
    loss = total(sums)
    count = held.bytes()
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}, count


def same(one, other):
    assert one.keys() == other.keys()
    for name, grad in one.items():
        torch.testing.assert_close(other[name], grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", CHECKPOINTS, ids=str)
def test_checkpointed_blocks_give_the_same_gradients_and_hold_less(kind, options):
    plain, held_plain = gradients(shaken(kind))
    model = shaken(kind)
    apply_speed(model, SpeedConfig(**options))
    again, held = gradients(model)
    same(plain, again)
    assert held < held_plain


def test_more_is_held_the_less_is_computed_again():
    def held(**options):
        model = shaken("published")
        apply_speed(model, SpeedConfig(**options))
        return gradients(model)[1]

    everything, ops = held(checkpoint_interval=1), held(checkpoint_ops=True)
    assert everything < held(checkpoint_interval=2) < held()
    assert everything < ops < held()


def test_dropout_is_the_same_when_computed_again():
    def dropping():
        model = shaken("published")
        for module in model.transformer.transformer_blocks.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.5
        return model

    plain, _ = gradients(dropping())
    model = dropping()
    apply_speed(model, SpeedConfig(checkpoint_interval=1))
    same(plain, gradients(model)[0])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, *CHECKPOINTS[1:3]], ids=str)
def test_compiled_blocks_keep_names_and_gradients(options):
    torch._dynamo.reset()
    plain, _ = gradients(shaken("aligned"))
    model = shaken("aligned")
    names = list(model.state_dict())
    apply_speed(model, SpeedConfig(compile="default", **options), backend="aot_eager")
    same(plain, gradients_compiled(model))
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("mode", MODES[1:])
def test_torch_knows_every_mode(mode):
    # it refuses unknown ones here; what each makes of a block is the compiler's own affair
    apply_speed(objective("published"), SpeedConfig(compile=mode))


def gradients_compiled(model, step: int = 0):
    """Gradients without counting bytes: a dispatch mode would switch compilation off."""
    model.zero_grad()
    total(model(global_batch(step))).backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.slow
def test_inductor_compiles_a_block_once_for_all_of_its_kind():
    torch._dynamo.reset()
    plain, _ = gradients(shaken("duration"))
    model = shaken("duration")
    apply_speed(model, SpeedConfig(compile="default"))
    before = recompiles()
    same(plain, gradients_compiled(model))
    assert recompiles() - before == 1  # two blocks, one graph


class Recordings:
    """A compiler that counts as CUDA graphs do: one for each graph and addresses of weights."""

    def __init__(self, model):
        self.weights = {p.data_ptr() for p in model.parameters()}
        self.forward: set[tuple] = set()
        self.backward: set[tuple] = set()

    def compiler(self, recorded: set[tuple]):
        from functorch.compile import make_boxed_func

        def compile(graph, examples):
            def run(*args):
                held = (x for x in args if isinstance(x, torch.Tensor))
                known = tuple(x.data_ptr() for x in held if x.data_ptr() in self.weights)
                recorded.add((id(graph), known))
                return graph(*args)

            return make_boxed_func(run)

        return compile

    def __call__(self, graph, examples):
        from torch._dynamo.backends.common import aot_autograd

        forward, backward = self.compiler(self.forward), self.compiler(self.backward)
        return aot_autograd(fw_compiler=forward, bw_compiler=backward)(graph, examples)


def recorded(kind: str, mode: str, sharded: bool = False, **options) -> tuple[int, int]:
    """Graphs recorded in forward and backward of two batches of one shape; gradients are right."""
    torch._dynamo.reset()
    plain, _ = gradients(shaken(kind))
    model = shaken(kind)
    names, recordings = list(model.state_dict()), Recordings(model)
    apply_speed(model, SpeedConfig(mode, **options), backend=recordings, sharded=sharded)
    gradients_compiled(model, 1)
    same(plain, gradients_compiled(model))
    assert list(model.state_dict()) == names
    return len(recordings.forward), len(recordings.backward)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_graphs_hold_all_blocks_at_once(kind):
    assert recorded(kind, "reduce-overhead") == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "sharded"),
    # "default": why the blocks of one process are not shared
    [("default", False), ("reduce-overhead", True)],
)
def test_cuda_graphs_of_shared_blocks_are_recorded_for_each(mode, sharded):
    depth = shaken("published").transformer.config.depth
    assert recorded("published", mode, sharded=sharded) == (depth, depth)


@pytest.mark.slow
def test_one_graph_computes_checkpointed_blocks_again():
    assert recorded("aligned", "max-autotune", checkpoint_interval=2) == (1, 1)


def test_there_are_no_more_graphs_than_shapes_and_one_on_a_cpu():
    torch._dynamo.reset()
    model = shaken("duration")
    apply_speed(model, SpeedConfig(compile="default"), shapes=20, backend="eager")
    before = recompiles()
    for _ in range(2):
        for frames in range(45, 48):
            batch = global_batch(0)
            batch.mel, batch.noise = batch.mel[:, :frames], batch.noise[:, :frames]
            batch.span, batch.lens = batch.span[:, :frames], batch.lens.clamp(max=frames)
            total(model(batch)).backward()
    assert recompiles() - before == (3 if torch.cuda.is_available() else 1)


def test_what_cannot_be_asked_is_said():
    with pytest.raises(InputError, match="choose from off, default"):
        SpeedConfig(compile="fast")
    with pytest.raises(InputError, match="0 or more"):
        SpeedConfig(checkpoint_interval=-1)
    with pytest.raises(InputError, match="Linear has none"):
        apply_speed(torch.nn.Linear(1, 1), SpeedConfig(checkpoint_interval=1))
    apply_speed(torch.nn.Linear(1, 1), SpeedConfig())  # nothing asked
