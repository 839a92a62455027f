"""Gradients: those of the losses are their slopes, through every part that is to learn.

A loss has the same value with a part of it detached, but teaches less or something else. Slopes are
differences of the loss itself; networks are the stubs of the golden batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from nanospeech.config import PostfilterConfig
from nanospeech_torch.train.objectives.placing import duration_loss
from nanospeech_torch.train.objectives.vocoder_loss import Discriminators
from tests.parallel_worker import echo_batch, objective
from tests.train.test_distill import Teacher
from tests.train.test_golden_batches import VARIANTS, golden_batch, speech
from tests.train.test_golden_duration import duration, duration_batch
from tests.train.test_golden_vocoder import BATCH, gan
from tests.train.test_optimizers import batch_of, tiny, tiny_duration
from tests.train.test_understood import understood


def slopes(
    loss: Callable[[], torch.Tensor], weight: Any, way: torch.Tensor, step: float
) -> tuple[float, float]:
    """How fast a loss rises along a way of a weight: by its gradient, and by two values of it."""
    (gradient,) = torch.autograd.grad(loss(), weight)
    old, values = weight.detach().clone(), []
    with torch.no_grad():
        for sign in (1, -1):
            weight.copy_(old + sign * step * way)
            values.append(loss().item())
        weight.copy_(old)
    return (gradient * way).sum().item(), (values[0] - values[1]) / (2 * step)


NETWORKS: dict[str, Any] = {
    **{f"{kind}, {p}": (kind, p) for kind, p in VARIANTS},
    "durations": tiny_duration,
    **{name: partial(objective, name) for name in ("echo", "window")},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_weight_of_a_network_learns(name):
    made = NETWORKS[name]
    if isinstance(made, tuple):
        dim = {"aligner_dim": 8} if made[0] == "aligned" else {}
        model = tiny(text_upsampling=made[0], patch_size=made[1], **dim)
    else:
        model = made()
    for p in model.parameters():  # what begins at zero lets nothing through
        torch.nn.init.normal_(p, std=0.1)
    batch = echo_batch(0) if name in ("echo", "window") else batch_of()
    sum(total / count for total, count in model(batch).values()).backward()
    still = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not still


@pytest.mark.parametrize(("kind", "patch"), VARIANTS)
def test_tokens_and_their_filler_learn_of_the_flow_loss(kind, patch):
    model, network = speech(kind, patch)
    batch = golden_batch()
    for rows in (slice(0, 1), slice(1, None)):  # the filler's row, and the tokens'
        way = torch.zeros_like(network.table)
        way[rows] = torch.randn(way[rows].shape, generator=torch.Generator().manual_seed(0))
        found, want = slopes(lambda: model(batch)["flow"][0], network.table, way, 1.0)
        assert found == pytest.approx(want, rel=1e-3) and abs(want) > 1


@pytest.mark.parametrize("options", [{}, *({"pooling": "tokens", "pace": p} for p in (0.3, 1.0))])
def test_durations_learn_of_what_the_prompt_was_thought_to_last_too(options):
    model, _ = duration(**options)
    batch = duration_batch()
    for weight in model.to_pred.parameters():
        way = torch.linspace(1, -0.5, weight.numel()).reshape(weight.shape)
        found, want = slopes(lambda: model(batch)["duration"][0], weight, way, 1e-2)  # type: ignore
        assert found == pytest.approx(want, rel=1e-2, abs=1e-3)


def test_the_loss_of_durations_is_least_at_their_mean():
    """And rises by the difference of the totals: exp(guess) - duration of each token."""
    lasts = torch.tensor([[1, 2, 3, 8], [5, 1, 0, 9]])
    real = lasts > 0
    guess = lasts[real].double().mean().log().float().expand(2, 4).clone().requires_grad_()
    (slope,) = torch.autograd.grad(duration_loss(guess, lasts, real)[0], guess)
    assert slope.sum().item() == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(slope, (lasts[real].double().mean() - lasts).float() * real)


@pytest.mark.parametrize("filters", [None, PostfilterConfig(smooth=0.2, sharpen=0.5)])
@pytest.mark.parametrize("name", ["flow", "words"])
def test_what_is_understood_learns_through_both_forwards(name, filters):
    gain = torch.nn.Parameter(torch.tensor(0.9))
    network = Teacher("aligned", 2, gain)  # type: ignore[arg-type]
    model = understood(network, Teacher("aligned", 2, 0.7), postfilter=filters).eval()
    batch = golden_batch()
    found, want = slopes(lambda: model(batch)[name][0], gain, torch.ones(()), 3e-3)
    assert found == pytest.approx(want, rel=2e-2) and abs(want) > 0.1


@pytest.mark.parametrize("name", ["mel", "magnitude", "convergence", "adversarial", "matching"])
def test_a_wave_learns_of_each_of_the_vocoders_losses(name):
    """Of its loudness, where it is too soft: distances have hardly a corner on that way."""
    model = gan(input_mel_share=0.3)
    wave, way = model.vocoder.wave, BATCH.wave
    with torch.no_grad():
        wave.copy_(0.5 * way)
    found, want = slopes(lambda: model(BATCH, "vocoder")[name][0], wave, way, 3e-3)
    assert found == pytest.approx(want, rel=2e-2) and abs(want) > 1e-2


@pytest.mark.parametrize("name", ["adversarial", "matching"])
def test_a_wave_learns_through_all_of_a_discriminator(name):
    model = gan()
    torch.manual_seed(0)
    model.judges = Discriminators(4, 4)
    for p in model.judges.parameters():
        torch.nn.init.normal_(p, std=0.3)
    wave, way = model.vocoder.wave, BATCH.wave
    with torch.no_grad():
        wave.copy_(0.5 * way)
    found, want = slopes(lambda: model(BATCH, "vocoder")[name][0], wave, way, 3e-3)
    assert found == pytest.approx(want, rel=2e-2) and abs(want) > 1e-2
