"""The losses: padding changes nothing, drops drop, the search path is respected."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from nanospeech.config import DiTConfig
from nanospeech.engine.alignment import frame_tokens, monotonic_search
from nanospeech.errors import CheckpointError, InputError
from nanospeech_torch.dit import Aligner
from nanospeech_torch.layers import Conv1d, zero_
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.batches import StreamOptions
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from nanospeech_torch.train.objectives import alignment as search
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.objectives.placing import average_path, earlier, later, patch_means
from tests.training import duration_model, samples, speech_model

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
    items = [item for s in samples() if (item := batches.describe(s, Counter()))]
    batch = batches.collate(items, 0, Counter())[0]
    assert batch is not None
    return batch


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


@pytest.mark.parametrize(("upsampling", "patch"), VARIANTS)
def test_masked_frames_of_the_condition_are_not_heard(upsampling, patch):
    """At time 0 the state is noise alone, so the network hears mels by the condition only."""
    model = speech_model(text_upsampling=upsampling, patch_size=patch, adaln_zero=False).eval()
    batch = batch_of(model)
    if upsampling == "aligned":  # the path of the text may follow the whole clip
        batch = replace(batch, drop_text=torch.ones_like(batch.drop_text))
    batch = replace(batch, time=torch.zeros_like(batch.time))
    other = torch.where(batch.span[..., None], batch.mel.flip(0) - 1, batch.mel)
    valid = torch.arange(batch.mel.shape[1]) < batch.lens[:, None]
    around = torch.where((valid & ~batch.span)[..., None], batch.mel.flip(0) - 1, batch.mel)
    velocities = []
    model.transformer.register_forward_hook(lambda _, args, out: velocities.append(out))
    with torch.no_grad():
        for mel in (batch.mel, other, around):
            model(replace(batch, mel=mel, drop_audio=torch.zeros_like(batch.drop_audio)))
        for mel in (batch.mel, around):
            model(replace(batch, mel=mel, drop_audio=torch.ones_like(batch.drop_audio)))
    heard, masked, changed, dropped, dropped_too = velocities
    assert torch.equal(heard, masked)
    assert torch.equal(dropped, dropped_too)
    partly = [i for i in range(len(valid)) if (batch.span[i] != valid[i]).any()]
    assert partly and not any(torch.allclose(heard[i], changed[i]) for i in partly)


def test_first_loss_of_a_zero_initialised_model_is_that_of_no_velocity():
    model = speech_model()
    batch = batch_of(model)
    mel = (batch.mel - model.audio.mel_mean) / model.audio.mel_std
    want = (mel - batch.noise).square().mean(-1)[batch.span].mean()
    total, count = model(batch)["flow"]
    assert (total / count).item() == pytest.approx(want.item(), rel=1e-4)


def guided(weight: float, upsampling: str = "aligned", **options):
    """A model whose weights have left their average behind, and the average."""
    model = speech_model(text_upsampling=upsampling, adaln_zero=False, **options)
    model.loss = replace(model.loss, model_guidance=weight)
    ema = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.02 * torch.randn_like(p))
    return model, ema


def flow_of(model, batch) -> torch.Tensor:
    total, count = model(batch)["flow"]
    return total / count


def test_no_guidance_is_the_plain_loss():
    plain, ema = guided(0.0)
    batch = batch_of(plain)
    want = flow_of(plain, batch)
    plain.guide_with(ema)
    assert torch.equal(flow_of(plain, batch), want)
    other, ema = guided(0.5)
    other.guide_with(ema)
    assert torch.equal(flow_of(other.eval(), batch), want)  # evaluation knows no guidance
    assert not torch.equal(flow_of(other.train(), batch), want)


@pytest.mark.parametrize(("upsampling", "patch"), VARIANTS)
def test_guidance_moves_targets_along_the_average(upsampling, patch):
    model, ema = guided(0.5, upsampling, patch_size=patch, dropout=0.5)
    batch = batch_of(model)
    batch = replace(batch, time=torch.full_like(batch.time, 0.6))
    some = torch.arange(len(batch.lens)) > 0
    batch = replace(batch, drop_audio=~some, drop_text=~some)
    average = speech_model(text_upsampling=upsampling, patch_size=patch, adaln_zero=False).eval()
    average.load_state_dict(ema)
    model.guide_with(ema)
    mel = (batch.mel - model.audio.mel_mean) / model.audio.mel_std
    mel = mel * (torch.arange(mel.shape[1]) < batch.lens[:, None])[..., None]
    state = 0.4 * batch.noise + 0.6 * mel
    cond = mel * ~(batch.span | batch.drop_audio[:, None])[..., None]
    hidden, index, _ = model.place_tokens(batch, mel)
    moved = model.guidance(batch, state, cond, index)
    with torch.no_grad():
        hidden = None if hidden is None else average.transformer.embed_tokens(batch.text)
        velocities = []
        for c, dropped in ((cond, ~some), (torch.zeros_like(cond), torch.ones_like(some))):
            which = replace(batch, drop_text=dropped)
            text = average.text_states(average.transformer, which, hidden, index)
            velocities.append(average.transformer(state, c, text, batch.time, batch.lens))
    want = 0.5 * (velocities[0] - velocities[1])
    assert torch.allclose(moved[some], want[some], atol=1e-5) and moved[some].any()
    assert not moved[~some].any()
    late = replace(batch, time=torch.full_like(batch.time, 0.75))
    assert not model.guidance(late, state, cond, index).any()


def test_items_without_conditions_learn_the_plain_target():
    model, ema = guided(0.5)
    batch = batch_of(model)
    nothing = torch.ones_like(batch.drop_text)
    batch = replace(batch, drop_audio=nothing, drop_text=nothing)
    model.guide_with(ema)
    with_guidance = flow_of(model, batch)
    model.loss = replace(model.loss, model_guidance=0.0)
    assert torch.equal(with_guidance, flow_of(model, batch))


def test_the_guide_follows_the_average_and_is_no_part_of_the_model():
    model, ema = guided(0.5)
    names = list(model.state_dict())
    batch = batch_of(model)
    model.guide_with(ema)
    first = flow_of(model, batch)
    first.backward()
    assert list(model.state_dict()) == names and len(list(model.parameters())) == len(names)
    assert all(p.grad is None and not p.requires_grad for p in ema.values())
    assert not any(p.requires_grad for p in model.guide[0].parameters())
    for mean in ema.values():
        mean.mul_(1.1)  # as the average is updated, in place
    assert not torch.equal(flow_of(model, batch), first)


def test_guidance_without_a_guide_says_what_to_do():
    model, ema = guided(0.5)
    with pytest.raises(InputError, match="guide_with"):
        model(batch_of(model))
    ema.popitem()
    with pytest.raises(CheckpointError, match="not one of this model"):
        model.guide_with(ema)
    with pytest.raises(InputError, match="model_guidance"):
        LossConfig(model_guidance=1.0)

    class Sharded(torch.nn.Parameter):
        def to_local(self) -> torch.Tensor:
            return self

    with pytest.raises(InputError, match="needs whole weights"):
        model.guide_with({name: Sharded(p) for name, p in guided(0.5)[1].items()})


def test_texts_are_read_between_the_edges_that_the_network_names():
    """As in speaking, where one is before the prompt's text and one behind the new one."""
    durations = duration_model()
    durations.transformer.config = replace(durations.transformer.config, edge=" ")
    aligned, plain = speech_model(text_upsampling="aligned"), speech_model()
    for model, text in ((aligned, " one two "), (plain, "one two"), (durations, " one two ")):
        batches = model.batches([], BatchPlan(1, 200, 200), StreamOptions())
        found = batches.encode("one two", np.random.default_rng(0))
        assert found.tolist() == model.tokenizer([text])[0].tolist()


def test_padded_lengths_are_multiples_of_eight_patches():
    assert Objective().multiple() == duration_model().multiple() == 8
    assert [speech_model(patch_size=p).multiple() for p in (1, 2, 4)] == [8, 16, 32]


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


@pytest.mark.parametrize("ties", [False, True])
def test_search_in_torch_finds_the_same_paths(ties):
    rng = np.random.default_rng(2)
    for frames, tokens in [(1, 1), (5, 5), (40, 13), (64, 2)]:
        score = rng.standard_normal((6, frames, tokens)).astype(np.float32)
        score = np.round(score) if ties else score
        t = rng.integers(1, tokens + 1, 6)
        n = rng.integers(t, frames + 1)
        want = monotonic_search(score, n, t)
        durations, index = search.monotonic_search(*map(torch.from_numpy, (score, n, t)))
        assert np.array_equal(durations.numpy(), want)
        inside = np.arange(frames) < n[:, None]
        assert np.array_equal(index.numpy()[inside], frame_tokens(want, frames)[inside])


def test_search_in_torch_survives_scores_that_are_not_numbers():
    score = torch.full((1, 6, 3), float("nan"))
    durations, index = search.monotonic_search(score, torch.tensor([6]), torch.tensor([3]))
    assert durations.sum() == 6 and index.min() >= 0 and index.max() < 3


def test_frame_tokens_inverts_durations():
    durations = np.array([[2, 1, 3, 0]])
    assert frame_tokens(durations, 6).tolist() == [[0, 0, 1, 2, 2, 2]]


@pytest.mark.parametrize(("tokens", "frames"), [(3, 11), (4, 4), (5, 23), (1, 7)])
def test_average_path_gives_the_last_tokens_the_remainder(tokens, frames):
    index = average_path(torch.tensor([tokens]), torch.tensor([frames]), frames)[0]
    counts = torch.bincount(index, minlength=tokens).tolist()
    each, rest = divmod(frames, tokens)
    assert counts == [each] * (tokens - rest) + [each + 1] * rest


def test_average_path_stays_inside_the_text_whatever_there_is():
    def path(tokens: int, frames: int, places: int) -> list[int]:
        return average_path(torch.tensor([tokens]), torch.tensor([frames]), places)[0].tolist()

    assert path(1, 3, 5) == [0] * 5  # padding repeats the last token
    assert path(2, 3, 6) == [0, 1, 1, 1, 1, 1]
    assert path(5, 3, 3) == [0, 1, 2]  # too many tokens: the last ones are left out
    assert path(0, 4, 4) == [0] * 4


def test_patch_means_leave_out_padding():
    mel = torch.arange(5.0)[None, :, None].expand(1, 5, 2).clone()
    means = patch_means(torch.nn.functional.pad(mel, (0, 0, 0, 3)), torch.tensor([5]), 2)
    assert means[0, :, 0].tolist() == [0.5, 2.5, 4.0, 0.0]


def test_each_row_is_shifted_by_its_own_offset():
    rows, by = torch.arange(1, 5).expand(4, 4), torch.tensor([0, 1, 3, 4])
    assert later(rows, by, 9).tolist() == [[1, 2, 3, 4], [9, 1, 2, 3], [9, 9, 9, 1], [9] * 4]
    back = [[1, 2, 3, 4], [2, 3, 4, 4], [4] * 4, [4] * 4]
    assert earlier(rows[..., None].expand(4, 4, 2), by).tolist() == [
        [[n] * 2 for n in r] for r in back
    ]


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


def test_an_aligner_learns_sounds_that_differ_between_speakers_each_in_its_own_way():
    # two speakers, of whom one says 2 where the other says 1, and the reverse
    sounds = torch.eye(2)[None].repeat(2, 1, 1)
    speakers = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    wanted = torch.stack([torch.eye(2), torch.eye(2).flip(0)])
    left = {}
    for dim in (0, 16):
        torch.manual_seed(0)
        aligner = Aligner(2, 2, dim)
        alike = aligner.means(sounds, speakers)
        assert torch.equal(alike[0], alike[1])  # at the start speakers make no difference
        optimizer = torch.optim.Adam(aligner.parameters(), lr=0.02)
        for _ in range(400):
            loss = (aligner.means(sounds, speakers) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        left[dim] = loss.item()
    assert left[16] < 1e-3 and left[0] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("fields", [{"aligner_dim": 8}, {"aligner_dim": -1}])
def test_an_aligner_dim_needs_an_aligner(fields):
    upsampling = "none" if fields["aligner_dim"] > 0 else "aligned"
    with pytest.raises(InputError, match="aligner_dim"):
        DiTConfig(text_upsampling=upsampling, **fields)


def test_zero_starts_at_zero():
    layer = torch.nn.Linear(3, 3)
    zero_(layer)
    assert not layer.weight.any() and not layer.bias.any()
