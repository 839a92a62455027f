"""nanospeech_torch.packed: attention in segments is attention with a mask, and takes none."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nanospeech_torch import layers, packed
from nanospeech_torch.train.scale.speed import SpeedConfig, apply_speed
from tests.parallel_worker import global_batch
from tests.train.test_speed import KINDS, same, shaken, total

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="needs torch 2.10")


def each_segment(cuts: torch.Tensor):
    ends = cuts.tolist()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def weights(q, k):
    """Softmax of (n, H, E) queries and keys: (H, n, n); and the log of the sums."""
    scores = torch.einsum("qhe,khe->hqk", q, k) * q.shape[-1] ** -0.5
    return scores.softmax(-1), scores.logsumexp(-1)


def forward_on_cpu(q, k, v, cuts, cuts_k, max_q, max_k, *rest):
    """Torch's operator, which has no kernel for CPUs, by its definition."""
    assert cuts.dtype == torch.int32 and torch.equal(cuts, cuts_k) and cuts[-1] == len(q)
    assert (cuts.diff() >= 0).all() and cuts.diff().max() <= max_q == max_k
    out, lse = torch.zeros_like(q), q.new_zeros(q.shape[1], len(q), dtype=torch.float32)
    for s in each_segment(cuts):
        w, lse[:, s] = weights(q[s], k[s])
        out[s] = torch.einsum("hqk,khe->qhe", w, v[s])
    return out, lse, torch.zeros(2, dtype=torch.uint64)


def backward_on_cpu(grad, q, k, v, out, lse, cuts, *rest):
    """Its gradients."""
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for s in each_segment(cuts):
        w, _ = weights(q[s], k[s])
        dv[s] = torch.einsum("hqk,qhe->khe", w, grad[s])
        dw = torch.einsum("qhe,khe->hqk", grad[s], v[s])
        ds = w * (dw - (dw * w).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        dq[s] = torch.einsum("hqk,khe->qhe", ds, k[s])
        dk[s] = torch.einsum("hqk,qhe->khe", ds, q[s])
    return dq, dk, dv


@pytest.fixture
def segmented(monkeypatch):
    """As on a GPU with flash attention: every mask becomes segments."""
    for name, kernel in (
        ("_varlen_attn", forward_on_cpu),
        ("_varlen_attn_backward", backward_on_cpu),
    ):
        getattr(varlen, name).register_kernel("cpu")(kernel)
    monkeypatch.setattr(packed, "usable", lambda like, dim_head: True)


class Seen(TorchDispatchMode):
    """Notes operators, and the bool tensors that attention is given."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []
        self.masks: list[tuple[int, ...]] = []
        self.scores: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        self.names.append(name)
        if "attn" in name or "attention" in name:
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            self.masks += [tuple(x.shape) for x in given if x.dtype == torch.bool]
            if "attn_mask" in (kwargs or {}):
                self.masks.append(tuple(kwargs["attn_mask"].shape))
        out = func(*args, **(kwargs or {}))
        if name in ("aten::bmm", "aten::baddbmm", "aten::_softmax", "aten::masked_fill"):
            self.scores += [tuple(out.shape)] if isinstance(out, torch.Tensor) else []
        return out


def learned(kind: str, step: int = 0):
    """Losses and gradients of a batch with clips of different lengths."""
    model = shaken(kind)
    loss = total(model(global_batch(step)))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_segments_give_the_loss_and_gradients_of_a_mask(kind, step, request):
    loss, grads = learned(kind, step)
    request.getfixturevalue("segmented")
    loss_packed, grads_packed = learned(kind, step)
    torch.testing.assert_close(loss_packed, loss, rtol=1e-5, atol=1e-6)
    for name, grad in grads.items():
        worst = (grads_packed[name] - grad).abs().max()
        assert worst <= 1e-4 * grad.abs().max() + 1e-7, name


@pytest.mark.parametrize("kind", KINDS)
def test_no_mask_and_no_scores_reach_attention(kind, segmented):
    model, batch = shaken(kind), global_batch(0)
    places = batch.mel.shape[1] // getattr(model.transformer.config, "patch_size", 1)
    with Seen() as seen:
        total(model(batch)).backward()
    depth = model.transformer.config.depth
    assert seen.names.count("torch_attn::_varlen_attn") == depth
    assert seen.names.count("torch_attn::_varlen_attn_backward") == depth
    assert not seen.masks
    assert not [n for n in seen.names if "scaled_dot_product" in n]
    assert not [s for s in seen.scores if s[-1] == places and s[-2] == places]


def test_the_masked_path_does_show_its_mask():
    # otherwise the test above would see none anywhere
    model, batch = shaken("published"), global_batch(0)
    with torch.no_grad(), Seen() as seen:
        model(batch)
    assert len(seen.masks) == model.transformer.config.depth


def test_lengths_are_read_by_no_host(segmented):
    mask = layers.length_mask(torch.tensor([3, 5, 1]), 5)
    cuts = packed.segments(mask)
    assert cuts.tolist() == [0, 3, 5, 10, 10, 11, 15] and cuts.dtype == torch.int32
    q = torch.empty(3, 2, 5, 8, device="meta")  # no value is there to be read
    out = packed.attention(q, q, q, packed.segments(mask.to("meta")))
    assert out.shape == q.shape and out.device.type == "meta"


def test_kept_attention_is_not_computed_again(segmented):
    counts = []
    for keep in (True, False):
        model = shaken("published")
        apply_speed(model, SpeedConfig(checkpoint_interval=1, checkpoint_ops=keep))
        with Seen() as seen:
            total(model(global_batch(0))).backward()
        counts.append(seen.names.count("torch_attn::_varlen_attn"))
    depth = model.transformer.config.depth
    assert counts == [depth, 2 * depth]


@pytest.mark.slow
def test_compiled_blocks_take_segments_of_all_lengths(segmented):
    torch._dynamo.reset()
    plain_loss, plain_grads = learned("aligned")
    model = shaken("aligned")
    apply_speed(model, SpeedConfig(compile="default"), backend="aot_eager")
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    loss = total(model(global_batch(0)))
    loss.backward()
    torch.testing.assert_close(loss, plain_loss)
    same(plain_grads, {n: p.grad for n, p in model.named_parameters()})
    total(model(global_batch(1)))  # other lengths, the same shape
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1


def test_it_is_for_gpus_with_flash_attention():
    half = torch.zeros(1, dtype=torch.bfloat16)
    assert not packed.usable(half, 64)  # on a CPU attention stays as it is
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert layers.seen(mask, half, 64) is mask and layers.seen(None, half, 64) is None
    assert packed.fits(torch.bfloat16, 64) and packed.fits(torch.float16, 128)
    assert not packed.fits(torch.float32, 64)
    assert not packed.fits(torch.bfloat16, 20) and not packed.fits(torch.bfloat16, 264)


def test_autocast_says_in_which_type():
    x = torch.zeros(1)
    assert packed.attention_dtype(x) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert packed.attention_dtype(x) == torch.bfloat16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["published", "aligned"])
def test_on_a_gpu_flash_attention_gives_what_the_mask_gives(kind):
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("flash attention needs Ampere or later")
    found = []
    for flash in (True, False):
        torch.backends.cuda.enable_flash_sdp(flash)
        try:
            model = shaken(kind).cuda()
            with torch.autocast("cuda", torch.bfloat16), Seen() as seen:
                loss = total(model(global_batch(0).to("cuda")))
            loss.backward()
        finally:
            torch.backends.cuda.enable_flash_sdp(True)
        assert bool(seen.masks) != flash
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        found.append((loss.detach(), grads))
    (loss, grads), (loss_masked, grads_masked) = found
    torch.testing.assert_close(loss, loss_masked, rtol=1e-2, atol=1e-3)
    assert torch.nn.functional.cosine_similarity(grads, grads_masked, dim=0) > 0.999
