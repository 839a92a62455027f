"""Attention and dropout as they are trained on a CPU: their formulas, and their gradients'."""

from __future__ import annotations

import pytest
import torch

from nanospeech_torch import layers, training_cpu


def formula(q, k, v, mask):
    """softmax(q k^T / sqrt(E) + mask) v, of which autograd knows the gradients."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None and mask.ndim == 4:
        scores = scores + mask
    elif mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("kind", ["none", "keys", "added"])
@pytest.mark.parametrize("room", [1, training_cpu.ROOM])  # a head at a time, or all
def test_attention_and_its_gradients_are_the_formulas(monkeypatch, kind, room):
    monkeypatch.setattr(training_cpu, "ROOM", room)
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(2, 3, n, 8, generator=generator) for n in (5, 7, 7, 5))
    keys = torch.arange(7) < torch.tensor([[7], [4]])
    mask = {"none": None, "keys": keys, "added": torch.randn(2, 3, 5, 7)}[kind]
    found, wanted = [], []
    for results, attend, dtype in (
        (found, training_cpu.attention, torch.float32),
        (wanted, formula, torch.float64),
    ):
        given = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        out = attend(*given, mask.to(dtype) if kind == "added" else mask)
        results += [out, *torch.autograd.grad(out, given, grad.to(dtype))]
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a.double(), b, atol=1e-5)
    if kind != "added":  # what the networks call
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        assert torch.equal(layers.attention(*given, mask), found[0])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_at_every_place_and_the_mean(p):
    torch.manual_seed(0)
    x = torch.full((40_001,), 3.0, requires_grad=True)  # four places from each draw, and one
    out = layers.Dropout(p)(x)
    kept = out != 0
    for place in range(4):
        assert kept[place::4].float().mean() == pytest.approx(1 - p, abs=0.02)
    assert torch.allclose(out[kept], torch.tensor(3 / (1 - p)), rtol=1e-4)
    pairs = (kept[:-1:4] & kept[1::4]).float().mean()  # of one draw, and independent
    assert pairs == pytest.approx((1 - p) ** 2, abs=0.03)
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert torch.allclose(slope, out / 3)
    assert not torch.equal(layers.Dropout(p)(x) != 0, kept)
    assert torch.equal(layers.Dropout(p).eval()(x), x)
