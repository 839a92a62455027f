"""Means of a step: several micro-batches learn what one batch, or as many processes, would."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanospeech.trainer_torch import NanospeechTrainer
from nanospeech_torch.train.data.segments import SegmentBatch
from nanospeech_torch.train.data.speech import Loaded, StreamState
from nanospeech_torch.train.loop.means import StepMeans
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN
from tests.train.test_optimizers import batch_of, tiny, tiny_duration
from tests.train.test_vocoder_gan import gan, slopes

PARTS = ((0, 1), (1, 2), (2, 4))  # unlike in size, and so in what they count


class Uncounted(Nanospeech):
    """A speech model that does not tell how many elements its losses have."""

    def counts(self, batch: Any, phase: str = "") -> None:  # type: ignore[override]
        return None


def uncounted() -> Nanospeech:
    model = tiny(text_upsampling="aligned", patch_size=2)
    return Uncounted(model.transformer, None, model.audio, model.loss)


class UncountedGAN(VocoderGAN):
    """A vocoder with discriminators that does not tell either."""

    def counts(self, batch: Any, phase: str = "vocoder") -> None:  # type: ignore[override]
        return None


def uncounted_gan() -> VocoderGAN:
    model = gan(gan_from=0.0, discriminator_segments=4)
    model.__class__ = UncountedGAN
    return model


def waves() -> SegmentBatch:
    """Four segments of noise of different levels."""
    g = torch.Generator().manual_seed(0)
    wave = torch.randn(4, 23 * 256, generator=g) * torch.tensor([0.01, 0.1, 0.3, 0.2])[:, None]
    return SegmentBatch(wave, torch.randn(4, 24, 100, generator=g) - 4)


OBJECTIVES: dict[str, tuple[Any, Any]] = {
    "none": (tiny, batch_of),
    "average": (lambda: tiny(text_upsampling="average", patch_size=2), batch_of),
    "aligned": (lambda: tiny(text_upsampling="aligned", patch_size=2), batch_of),
    "uncounted": (uncounted, batch_of),
    "duration": (tiny_duration, batch_of),
    "vocoder": (lambda: gan(gan_from=0.0, discriminator_segments=4), waves),
    "slopes": (lambda: slopes(gan_from=1.0), waves),
    "uncounted vocoder": (uncounted_gan, waves),
}


def part(batch: Any, begin: int, end: int) -> Any:
    return type(batch)(**{k: v[begin:end] for k, v in vars(batch).items()})


def step(folder: Path, model: Any, batches: Sequence[Any]) -> tuple[dict, dict[str, float]]:
    """One step of plain gradient descent: the gradient, by names, and the logged losses."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = [torch.optim.SGD(params, lr=1.0) for params in model.phases().values()]
    settings = {"accumulate": len(batches), "max_grad_norm": 0.0, "schedule": "constant"}
    run = NanospeechTrainer(model, optimizers, 0, {"cpu": True}, folder, log_every=9, **settings)
    model.rate = lambda phase: 1.0
    log = run.new_log(10)
    run.model.train()
    run.optimizer_step(iter([Loaded(batch, 0, StreamState()) for batch in batches]), 10, log)
    moved = {name: before[name] - p.detach() for name, p in model.named_parameters()}
    return moved, log.means()


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_micro_batches_learn_what_one_batch_does(tmp_path, kind):
    build, make = OBJECTIVES[kind]
    want, expected = step(tmp_path, build(), [make()])
    got, said = step(tmp_path, build(), [part(make(), *ends) for ends in PARTS])
    assert said == pytest.approx(expected, rel=1e-5)
    gradient, other = (torch.cat([g.flatten() for g in found.values()]) for found in (want, got))
    assert (other - gradient).norm() < 1e-5 * gradient.norm()


@pytest.mark.parametrize("kind", [k for k in OBJECTIVES if "uncounted" not in k])
def test_elements_are_counted_as_forward_counts_them(kind):
    build, make = OBJECTIVES[kind]
    model, batch = build().train(), make()
    for phase in model.active_phases():
        sums = model(batch, phase) if phase else model(batch)
        counts = model.counts(batch, phase)
        assert {k: float(counts[k]) for k in sums} == {k: float(n) for k, (_, n) in sums.items()}
        assert all(float(n) > 1 for n in counts.values())  # the loop divides by no less


@pytest.mark.parametrize("patch", [1, 2])
def test_patches_of_a_reference_without_words_are_not_counted(patch):
    model = tiny(text_upsampling="aligned", patch_size=patch).train()
    batch = dataclasses.replace(batch_of(), wordless=torch.tensor([7, 0, 3, 10]))
    counts = model.counts(batch)
    assert {k: float(n) for k, (_, n) in model(batch).items()} == {
        k: float(n) for k, n in counts.items()
    }
    places = [-(-n // patch) - w // patch for n, w in ((40, 7), (33, 0), (25, 3), (38, 10))]
    assert counts["prior"] == sum(places) and not counts["prior"].is_floating_point()


class Level(Objective):
    """Learns one number from batches whose elements are its targets; keeps watch on its graphs."""

    loss = audio = tokenizer = None  # type: ignore[assignment]

    def __init__(self):
        super().__init__()
        self.level = torch.nn.Parameter(torch.tensor(0.0))
        self.alive: list[int] = []
        self.kept: list[weakref.ref] = []

    def weights(self) -> dict[str, float]:
        return {"level": 1.0}

    def forward(self, batch: Any) -> Any:
        if torch.is_grad_enabled():
            self.alive.append(sum(ref() is not None for ref in self.kept))
            activation = (self.level * torch.ones_like(batch.mel)).exp()  # kept for its backward
            self.kept.append(weakref.ref(activation))
            error = (activation - 1) + self.level * batch.mel + batch.mel
        else:
            error = batch.mel
        return {"level": (error.sum(), torch.tensor(batch.mel.numel()))}


@dataclasses.dataclass
class Values:
    mel: torch.Tensor
    text: torch.Tensor

    def to(self, device: Any) -> Values:
        return self


def test_a_mean_is_over_elements_and_no_graph_waits_for_another(tmp_path):
    model, text = Level(), torch.zeros(1, 1)
    values = [torch.full((1, 100), 1.0), torch.full((1, 10), 3.0), torch.full((1, 10), 3.0)]
    moved, means = step(tmp_path, model, [Values(v, text) for v in values[:2]])
    assert means["level"] == pytest.approx(130 / 110)  # not 2, the mean of the means
    assert float(moved["level"]) == pytest.approx(1 + 130 / 110)
    model = Level()
    step(tmp_path, model, [Values(v, text) for v in values])
    assert model.alive == [0, 0, 0]


def alike(world: int, weights: dict[str, float]) -> tuple[Any, Any]:
    """An objective, and so many processes that all have the same batches."""

    def reduce(tensor: torch.Tensor) -> torch.Tensor:
        assert world > 1, "alone nothing is exchanged"
        return tensor * world

    core = SimpleNamespace(weights=lambda: weights, counts=lambda batch, phase: dict(batch))
    device = SimpleNamespace(device="cpu")
    return core, SimpleNamespace(data_world=world, reduce=reduce, accelerator=device)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("several", [False, True])
def test_the_mean_of_processes_is_that_of_all_their_elements(world, several):
    """A process's part of the loss is `world` times its own sum: gradients are averaged."""
    batches = [{"x": torch.tensor(3), "y": torch.tensor(1), "z": torch.tensor(0)}]
    batches += [{"x": torch.tensor(1), "y": torch.tensor(0), "z": torch.tensor(0)}] * several
    means = StepMeans(*alike(world, {"x": 0.5, "z": 1.0}), batches, ["a", "b"])
    total = torch.tensor(8.0, requires_grad=True)
    for phase, scale in (("a", 1.0), ("b", 2.0)):
        loss: Any = 0.0
        for batch in batches:
            y = torch.full((), 7.0, requires_grad=True)
            sums = {"x": scale * total, "y": y, "z": 0 * total}
            loss += means.loss(phase, {k: (v, batch[k]) for k, v in sums.items()})
        x, n = scale * 8 * len(batches), 3 + several
        assert loss.item() == pytest.approx(0.5 * x / n)  # of no elements: nothing, and finite
        (slope,) = torch.autograd.grad(loss, total)
        assert slope.item() == pytest.approx(0.5 * scale * len(batches) / n)
        found = {k: float(v) for k, v in means.means(phase).items()}
        assert found == pytest.approx({"x": x / n, "y": 7.0 * len(batches), "z": 0.0})
