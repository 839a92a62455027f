"""The monotonic search as one kernel: the paths of the loop, and one launch. By an interpreter."""

from __future__ import annotations

import importlib
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from nanospeech.engine.alignment import frame_tokens, monotonic_search
from nanospeech_torch.train.objectives import alignment as search
from tests.parallel_worker import global_batch, objective

KERNEL = "nanospeech_torch.train.objectives.alignment_triton"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def fused(monkeypatch):
    """The module with the kernel; without a GPU, Triton's interpreter runs it."""
    pytest.importorskip("triton", reason="needs Triton, which comes with PyTorch for CUDA")
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")  # read when a kernel is defined
    sys.modules.pop(KERNEL, None)
    yield importlib.import_module(KERNEL)
    sys.modules.pop(KERNEL, None)


class Launches(TorchDispatchMode):
    """Counts operators that would launch something: all but views and room for results."""

    QUIET = ("empty", "view", "unbind", "slice", "select", "transpose", "t", "expand", "alias")

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if name not in (*self.QUIET, "unsqueeze", "detach", "empty_like", "_unsafe_view"):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def cases(ties: bool):
    """Scores with the frames and tokens of each item."""
    rng = np.random.default_rng(3)
    for frames, tokens in [(1, 1), (2, 1), (5, 5), (40, 13), (30, 2), (140, 131)]:
        score = rng.standard_normal((4, frames, tokens)).astype(np.float32)
        t = rng.integers(1, tokens + 1, 4)
        n = rng.integers(t, frames + 1)
        yield np.round(score) if ties else score, n, t


@pytest.mark.parametrize("ties", [False, True])
def test_the_kernel_finds_the_same_paths(fused, ties):
    for score, n, t in cases(ties):
        given = [torch.from_numpy(x).to(DEVICE) for x in (score, n, t)]
        durations, index = fused.fused_search(*given)
        want, path = search.stepwise_search(*given)
        assert torch.equal(durations, want) and torch.equal(index, path)
        numpy = monotonic_search(score, n, t)
        assert np.array_equal(durations.cpu().numpy(), numpy)
        inside = np.arange(score.shape[1]) < n[:, None]
        tokens = frame_tokens(numpy, score.shape[1])
        assert np.array_equal(index.cpu().numpy()[inside], tokens[inside])


def test_the_kernel_takes_arrays_that_are_views(fused):
    score = torch.randn(3, 9, 20, dtype=torch.float64, device=DEVICE).transpose(1, 2)
    given = score, torch.tensor([20, 15, 9], device=DEVICE), torch.tensor([9, 4, 9], device=DEVICE)
    for ours, want in zip(fused.fused_search(*given), search.stepwise_search(*given)):
        assert torch.equal(ours, want)


def test_the_kernel_survives_scores_that_are_not_numbers(fused):
    score = torch.full((1, 6, 3), float("nan"), device=DEVICE)
    lens = torch.tensor([6], device=DEVICE), torch.tensor([3], device=DEVICE)
    durations, index = fused.fused_search(score, *lens)
    assert durations.sum() == 6 and index.min() >= 0 and index.max() < 3
    assert torch.equal(durations, search.stepwise_search(score, *lens)[0])


def launches(run, frames: int) -> int:
    score = torch.randn(2, frames, 6, device=DEVICE)
    lens = torch.tensor([frames, 7], device=DEVICE), torch.tensor([6, 3], device=DEVICE)
    with Launches() as seen:
        run(score, *lens)
    return sum(seen.counts.values())


class Noted:
    """A kernel that notes the grids of its launches, and hides what an interpreter does within."""

    def __init__(self, kernel):
        self.kernel, self.grids = kernel, []

    def __getitem__(self, grid):
        self.grids.append(grid)

        def launch(*args, **options):
            with _disable_current_modes():
                self.kernel[grid](*args, **options)

        return launch


def test_the_loop_launches_by_the_frame_and_the_kernel_once(fused, monkeypatch):
    few, many = (launches(search.stepwise_search, n) for n in (50, 100))
    assert many - few == 4 * 50  # larger of two, add, step taken, one token back
    noted = Noted(fused.search_kernel)
    monkeypatch.setattr(fused, "search_kernel", noted)
    assert launches(fused.fused_search, 100) == 0  # of torch's operators: none beside it
    assert noted.grids == [(2,)]


def test_a_training_step_has_the_search_in_one_launch(fused, monkeypatch):
    def step():
        model, batch = objective("aligned").to(DEVICE), global_batch(0).to(DEVICE)
        with Launches() as seen:
            sums = model(batch)
        return sum(seen.counts.values()), {k: (s / n).item() for k, (s, n) in sums.items()}

    monkeypatch.setattr(search, "kernel", lambda device: None)
    loop, want = step()
    monkeypatch.setattr(search, "kernel", lambda device: fused.fused_search)
    noted = Noted(fused.search_kernel)
    monkeypatch.setattr(fused, "search_kernel", noted)
    one, losses = step()
    patches = 24
    assert losses == pytest.approx(want) and len(noted.grids) == 1
    assert loop - one >= 4 * (patches - 1)


def test_cpus_keep_the_loop():
    score, lens = torch.randn(1, 8, 3), (torch.tensor([8]), torch.tensor([3]))
    assert search.kernel("cpu") is None
    with Launches() as seen:
        search.monotonic_search(score, *lens)
    assert seen.counts["maximum"] == 7


def test_the_kernel_compiles_for_gpus_that_are_not_here():
    triton = pytest.importorskip("triton", reason="needs Triton, which comes with PyTorch for CUDA")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sys.modules.pop(KERNEL, None)
    kernel = importlib.import_module(KERNEL).search_kernel
    kinds = ["*fp32", "*i64", "*i64", "*i8", "*i64", "*i64", "i32", "i32", "constexpr"]
    source = ASTSource(kernel, dict(zip(kernel.arg_names, kinds)), {"WIDTH": 256})
    made = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4})
    assert made.asm["cubin"] and ".entry search_kernel" in made.asm["ptx"]
    assert made.metadata.shared <= 48 * 1024
