"""The losses: padding changes nothing, drops drop, the search path is respected."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from nanospeech.alignment import frame_tokens, monotonic_search
from nanospeech_torch.data import BatchPlan, SpeechBatches
from nanospeech_torch.flow import average_path, patch_means
from nanospeech_torch.layers import Conv1d, zero_

from .training import duration_model, samples, speech_model

VARIANTS = [
    ("none", 1),
    ("none", 2),
    ("average", 1),
    ("average", 2),
    ("aligned", 1),
    ("aligned", 2),
]


def batch_of(model, length: int = 200):
    batches = SpeechBatches(
        [], model.tokenizer, BatchPlan(4, 4 * length, length, buckets=1), model.audio
    )
    return batches.collate([batches.describe(s, Counter()) for s in samples()], 0, Counter())[0]


@pytest.mark.parametrize(("upsampling", "patch"), VARIANTS)
def test_padding_never_changes_a_loss(upsampling, patch):
    model = speech_model(text_upsampling=upsampling, patch_size=patch, adaln_zero=False).eval()
    with torch.no_grad():
        short, long = (model(batch_of(model, n)) for n in (180, 240))
        for name, (total, count) in short.items():
            assert total / count == pytest.approx(float(long[name][0] / long[name][1]), rel=1e-4)


@pytest.mark.parametrize(("upsampling", "patch"), VARIANTS)
def test_dropped_text_has_no_influence(upsampling, patch):
    model = speech_model(text_upsampling=upsampling, patch_size=patch, adaln_zero=False).eval()
    batch = batch_of(model)
    dropped = replace(batch, drop_text=torch.ones_like(batch.drop_text))
    other = replace(dropped, text=torch.where(batch.text >= 0, batch.text.flip(0) % 20, -1).abs())
    other.text[batch.text < 0] = -1
    with torch.no_grad():
        first, second = model(dropped)["flow"][0], model(other)["flow"][0]
        heard = model(replace(other, drop_text=torch.zeros_like(batch.drop_text)))["flow"][0]
    assert torch.allclose(first, second, rtol=1e-5)
    assert not torch.allclose(first, heard, rtol=1e-5)


def test_masked_frames_of_the_condition_are_not_heard():
    model = speech_model(adaln_zero=False).eval()
    batch = batch_of(model)
    batch = replace(batch, drop_audio=torch.ones_like(batch.drop_audio))
    with torch.no_grad():
        velocity_part = model(batch)["flow"]
    assert torch.isfinite(velocity_part[0]) and velocity_part[1] == batch.span.sum()


def test_first_loss_of_a_zero_initialised_model_is_that_of_no_velocity():
    model = speech_model()
    batch = batch_of(model)
    mel = (batch.mel - model.audio.mel_mean) / model.audio.mel_std
    want = (mel - batch.noise).square().mean(-1)[batch.span].mean()
    total, count = model(batch)["flow"]
    assert (total / count).item() == pytest.approx(want.item(), rel=1e-4)


def test_duration_loss_ignores_padding():
    model = duration_model().eval()
    with torch.no_grad():
        short, long = (model(batch_of(model, n))["duration"][0] for n in (180, 240))
    assert torch.allclose(short, long, rtol=1e-4)


def test_search_finds_the_best_of_all_monotonic_paths():
    rng = np.random.default_rng(0)
    score = rng.standard_normal((1, 7, 3)).astype(np.float32)
    splits = [(a, b, 7 - a - b) for a in range(1, 6) for b in range(1, 7 - a)]
    totals = {d: sum(score[0, n, t] for n, t in enumerate(np.repeat(range(3), d))) for d in splits}
    found = monotonic_search(score, np.array([7]), np.array([3]))
    assert tuple(found[0]) == max(totals, key=totals.__getitem__)


def test_search_in_a_batch_equals_search_alone():
    rng = np.random.default_rng(1)
    score = rng.standard_normal((3, 20, 8)).astype(np.float32)
    frames, tokens = np.array([20, 11, 8]), np.array([5, 8, 8])
    both = monotonic_search(score, frames, tokens)
    for i, (n, t) in enumerate(zip(frames, tokens)):
        alone = monotonic_search(score[i : i + 1, :n, :t], np.array([n]), np.array([t]))
        assert np.array_equal(both[i, :t], alone[0])
        assert both[i].sum() == n and (both[i, :t] >= 1).all() and not both[i, t:].any()


def test_frame_tokens_inverts_durations():
    durations = np.array([[2, 1, 3, 0]])
    assert frame_tokens(durations, 6).tolist() == [[0, 0, 1, 2, 2, 2]]


@pytest.mark.parametrize(("tokens", "frames"), [(3, 11), (4, 4), (5, 23), (1, 7)])
def test_average_path_gives_the_last_tokens_the_remainder(tokens, frames):
    index = average_path(torch.tensor([tokens]), torch.tensor([frames]), frames)[0]
    counts = torch.bincount(index, minlength=tokens).tolist()
    each, rest = divmod(frames, tokens)
    assert counts == [each] * (tokens - rest) + [each + 1] * rest


def test_patch_means_leave_out_padding():
    mel = torch.arange(5.0)[None, :, None].expand(1, 5, 2).clone()
    means = patch_means(torch.nn.functional.pad(mel, (0, 0, 0, 3)), torch.tensor([5]), 2)
    assert means[0, :3, 0].tolist() == [0.5, 2.5, 4.0]


@pytest.mark.parametrize(("kernel", "groups"), [(7, 32), (31, 16)])
def test_convolutions_on_cpu_equal_torchs_own(kernel, groups):
    torch.manual_seed(0)
    conv = Conv1d(32, kernel, groups).double()
    x = torch.randn(2, 40, 32, dtype=torch.double, requires_grad=True)
    weight = torch.randn(2, 40, 32, dtype=torch.double)
    ours = conv(x)
    theirs = torch.nn.Conv1d.forward(conv, x.transpose(1, 2)).transpose(1, 2)
    inputs = [x, conv.weight, conv.bias]
    grads = [torch.autograd.grad((y * weight).sum(), inputs) for y in (ours, theirs)]
    assert torch.allclose(ours, theirs)
    assert all(torch.allclose(a, b) for a, b in zip(*grads))


def test_zero_starts_at_zero():
    layer = torch.nn.Linear(3, 3)
    zero_(layer)
    assert not layer.weight.any() and not layer.bias.any()
