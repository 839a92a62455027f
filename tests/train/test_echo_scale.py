"""Echo's scales: weights, operations and kept memory on paper are those that torch counts."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nanospeech.configs import find_recipe
from nanospeech.errors import InputError
from nanospeech.latent_architectures import EchoConfig
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch import layers
from nanospeech_torch.echo.network import EchoBlock, EchoDiT
from nanospeech_torch.train.config import read_run
from nanospeech_torch.train.data.latents import EchoBatches
from nanospeech_torch.train.loop.config import TrainOptions
from nanospeech_torch.train.run import dry_run
from nanospeech_torch.train.scale import echo

SMALL = EchoConfig(
    latent_dim=16,
    dim=128,
    depth=2,
    heads=4,
    ff_dim=352,
    text_dim=64,
    text_heads=2,
    text_input=48,
    speaker_dim=64,
    speaker_depth=2,
    speaker_heads=2,
    speaker_ff_dim=176,
    time_dim=64,
    adaln_rank=16,
    max_latents=96,
    max_text=24,
    max_speaker=48,
)
OWN_TEXT = dataclasses.replace(
    SMALL, text_input=0, text_depth=2, text_ff_dim=176, speaker_mean=True
)


def test_the_sizes_are_those_that_scaled_echo_states():
    stated = {"800M": 780e6, "3B": 3.5e9, "8B": 8.2e9}
    for name, config in echo.SCALES.items():
        assert echo.count_weights(config)["total"] == pytest.approx(stated[name], rel=0.01)


PATCHED = dataclasses.replace(OWN_TEXT, latent_patch=3, text_rotary=True, predicts_speech=True)


@pytest.mark.parametrize(
    "config", [SMALL, OWN_TEXT, PATCHED], ids=["states", "own text", "patches"]
)
@pytest.mark.parametrize("duration", [False, True])
def test_flops_are_those_that_torch_counts(config, duration):
    c, b = dataclasses.replace(config, target_duration=duration), 2
    model = EchoDiT(c)
    mask = torch.ones(b, c.max_text, dtype=torch.bool)
    said = torch.ones(b, c.max_text, dtype=torch.long)
    text = said if c.text_depth else torch.randn(b, c.max_text, c.text_input)
    given = torch.randn(b, c.max_speaker, c.latent_dim)
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        speaker, _ = model.speaker_states(given, torch.ones(b, c.max_speaker, dtype=torch.bool))
        contexts = model.joined(model.contexts(model.text_states(text, mask), speaker))
        x = torch.randn(b, c.max_latents, c.latent_dim)
        seconds = torch.full((b,), 3.0) if duration else None
        model(x, torch.rand(b), contexts, None, seconds_B=seconds).square().sum().backward()
    parts = echo.step_flops(c, b, c.max_latents, c.max_text, c.max_speaker)
    assert all(parts.values())
    assert sum(parts.values()) == pytest.approx(counter.get_total_flops(), rel=0.02)


@contextlib.contextmanager
def kept_by(module: torch.nn.Module, *inputs: torch.Tensor) -> Iterator[dict[int, Any]]:
    """The tensors that autograd keeps meanwhile, by their place, without weights and inputs."""
    given = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *inputs)}
    kept: dict[int, Any] = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        if (place := t.untyped_storage().data_ptr()) not in given:
            kept[place] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        yield kept


def size_of(kept: dict[int, torch.Tensor]) -> int:
    return sum(t.untyped_storage().nbytes() for t in kept.values())


def test_a_block_keeps_as_much_as_is_estimated():
    c, b = SMALL, 2
    block = EchoBlock(c)
    x = torch.randn(b, c.max_latents, c.dim, requires_grad=True)
    cond = tuple(torch.randn(b, 1, c.dim, requires_grad=True) for _ in range(3))
    text = torch.randn(b, c.max_text, c.text_dim, requires_grad=True)
    work = echo.EchoWorkload(c, b, 1, half=4)
    speaker = torch.randn(b, work.patches, c.speaker_dim, requires_grad=True)
    angles = layers.rotary_angles(c.max_latents, c.dim // c.heads, x)
    with kept_by(block, text, speaker) as kept:
        pairs = [(block.attention.of_text(text), block.attention.of_speaker(speaker))]
        keys, values = (torch.cat(both, dim=2) for both in zip(*pairs[0]))
        out = block(x, cond, (keys, values), None, angles)
    assert echo.block_bytes(work) == pytest.approx(size_of(kept), rel=0.05)
    assert out.requires_grad


@pytest.mark.parametrize("config", [SMALL, OWN_TEXT], ids=["states", "own text"])
def test_encoders_keep_as_much_as_is_estimated(config):
    c, b = config, 2
    work, model = echo.EchoWorkload(c, b, 1, half=4), EchoDiT(config)
    heard = torch.randn(b, c.max_speaker, c.latent_dim)
    with kept_by(model) as kept:
        out = [model.speaker_encoder(heard, torch.ones(b, work.patches, dtype=torch.bool))]
        if c.text_depth:
            said = torch.ones(b, c.max_text, dtype=torch.long)
            out.append(model.text_encoder(said, said > 0))
    assert echo.encoder_bytes(work) == pytest.approx(size_of(kept), rel=0.05)
    assert all(states.requires_grad for states in out)


def page(*changes: str) -> tuple[list[int], list[float], str]:
    """Of the dry run of echo_800M: its micro-batch, the memory as configured, and the text."""
    found = dry_run(read_run(find_recipe("echo_800M"), list(changes)))
    (shape,) = re.findall(r"^  (\d+) x (\d+) latents", found, re.M)
    (row,) = re.findall(r"^  configured: .*? tensor \d +([\d. ]+)  ", found, re.M)
    return [int(n) for n in shape], [float(n) for n in row.split()], found


def test_a_dry_run_is_of_the_batches_that_the_run_has():
    assert page()[0] == [16, 768]
    for changes in (
        ["data.max_batch_frames=3000"],
        ["data.max_batch_frames=3000", "echo_loss.tail=25", "data.max_duration=300"],
        ["data.batch_size=2", "echo_loss.tail=100", "data.max_duration=400"],
    ):
        run = read_run(find_recipe("echo_800M"), changes)
        d, tokenizer = run.data, Tokenizer("bytes", [])
        options = TrainOptions(d.batch_size, d.max_batch_frames, d.max_duration)
        plan = options.plan(run.train, True, 8 * run.echo.latent_patch)
        batches = EchoBatches([], tokenizer, plan, run.audio, run.echo_loss, run.echo)
        longest = batches.length(d.max_duration)
        assert page(*changes)[0] == [batches.capacity(d.max_duration), longest]


def test_a_dry_run_is_of_the_precision_the_optimizer_and_what_is_computed_again():
    weights, gradients, moments, average, copies, kept, total = page()[1]
    assert (gradients, moments, average) == (weights, 2 * weights, weights)
    assert page("optimizer.name=muon")[1][2] < 1.2 * weights
    whole = page("mixed_precision=no")[1]
    assert whole[4] == 0 and whole[5] == pytest.approx(2 * kept, rel=0.01)
    again = page("speed.checkpoint_interval=1")[1][5]
    ops = page("speed.checkpoint_ops=true")[1][5]
    assert again < ops / 2 and ops < 0.8 * kept
    assert total == pytest.approx(sum((weights, gradients, moments, average, copies, kept)), 0.01)


def test_a_dry_run_tells_what_a_text_encoder_needs_where_there_is_one():
    assert "2 bytes a weight" in page()[2]
    assert "20 bytes a weight" in page("echo_loss.text_encoder_lr=0.1")[2]
    assert "text encoder" not in dry_run(read_run(find_recipe("echo_tiny"), []))


def test_splits_share_weights_and_send_what_rings_send():
    c = echo.SCALES["3B"]
    counts = echo.count_weights(c)
    whole, shards = (echo.EchoWorkload(c, 4, 16, shard=n) for n in (1, 16))
    assert echo.estimate(shards).weights == 4 * (counts["total"] // 16)
    assert echo.estimate(whole).gradients == 4 * counts["total"]
    # copies: in each of 4 machines, then each GPU a quarter of it between the machines
    size = 2 * 4 * counts["total"]
    sent = echo.traffic(whole)
    assert (sent.near, sent.far) == (round(3 / 4 * size), round(3 / 4 * size / 4))
    assert echo.traffic(shards) == sent and sent.tensor == 0  # float32 both times, or bf16 twice
    alone = echo.traffic(dataclasses.replace(whole, gpus=4))
    assert (alone.near, alone.far) == (sent.near, 0)
    mixed = echo.traffic(dataclasses.replace(whole, shard=4))
    assert mixed == sent  # shards within machines, a quarter of the gradients between them
    tensor = echo.EchoWorkload(c, 4, 4, tensor=4)
    ring = 2 * 3 / 4 * (4 * 768 * 2560 * 2)
    assert echo.traffic(tensor).tensor == 4 * 32 * ring
    lean = dataclasses.replace(whole, checkpoint_interval=1)
    assert echo.estimate(lean).activations < echo.estimate(whole).activations / 5
    with pytest.raises(InputError, match="shard 3"):
        echo.EchoWorkload(c, 4, 16, shard=3)
    with pytest.raises(InputError, match="20 heads"):
        echo.EchoWorkload(c, 4, 16, tensor=8)


def test_less_sending_and_fewer_passes_are_faster():
    c = echo.SCALES["800M"]
    near, far = (echo.EchoWorkload(c, 16, n) for n in (4, 64))
    assert 0 < echo.expected(far).mfu <= echo.expected(near).mfu < 100 * echo.GH200.efficiency
    assert echo.expected(near, fused=1 / 3).mfu > echo.expected(near).mfu
    slow = dataclasses.replace(echo.GH200, far=1e9)
    assert echo.expected(far, slow).sending > 10 * echo.expected(far).sending
    # what each of 4 copies updates alone, shards update together
    quarter = echo.expected(dataclasses.replace(near, shard=4)).update
    assert quarter == pytest.approx(echo.expected(near).update / 4)
    lean = dataclasses.replace(near, checkpoint_interval=1)
    assert echo.expected(lean).products == pytest.approx(4 / 3 * echo.expected(near).products)
