"""Profile and estimate: counted operations and memory agree with what torch counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from nanospeech.architectures import ListenerConfig
from nanospeech.config import DiTConfig, DurationConfig, ModelConfig, VocoderConfig
from nanospeech.errors import InputError
from nanospeech_torch.dit import DiT
from nanospeech_torch.duration import DurationTransformer
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.data.batch import Batch
from nanospeech_torch.train.data.segments import SegmentBatch
from nanospeech_torch.train.objectives.distill import Distilled
from nanospeech_torch.train.objectives.distill_config import DistillConfig
from nanospeech_torch.train.objectives.distill_end import DistilledEnd
from nanospeech_torch.train.objectives.duration import DurationPredictor
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.objectives.understood import Understood, UnderstoodConfig
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN
from nanospeech_torch.train.scale import estimate, profile
from nanospeech_torch.vocoder import Vocos

aten = torch.ops.aten
CONFIGS = Path(__file__).parents[2] / "nanospeech" / "configs"
SMALL = DiTConfig(
    dim=128, depth=2, heads=3, dim_head=32, text_dim=64, conv_layers=2, dropout=0.0, rope_heads=2
)


def make_batch(batch: int, frames: int, tokens: int, device: str = "cpu") -> Batch:
    """A batch without padding."""
    generator = torch.Generator().manual_seed(0)
    mel = torch.randn(batch, frames, 100, generator=generator)
    made = Batch(
        mel=mel,
        lens=torch.full((batch,), frames),
        text=torch.randint(0, 256, (batch, tokens), generator=generator),
        noise=torch.randn(batch, frames, 100, generator=generator),
        time=torch.rand(batch, generator=generator),
        span=torch.ones(batch, frames, dtype=torch.bool),
        drop_audio=torch.zeros(batch, dtype=torch.bool),
        drop_text=torch.zeros(batch, dtype=torch.bool),
        prompt=torch.full((batch,), frames // 2),
    )
    return made.to(device)


def objective(config: DiTConfig | DurationConfig) -> torch.nn.Module:
    if isinstance(config, DurationConfig):
        return DurationPredictor(DurationTransformer(config))
    return Nanospeech(DiT(config))


def conv_backward(grad, x, w, *args, out_val=None, **kwargs) -> int:
    """Both products of a convolution's backward; torch's own formula forgets the groups."""
    mask = args[-1]
    one = 2 * w.numel() * x.shape[0] * x.shape[-1]
    return one * (bool(mask[0]) + bool(mask[1]))


conv_backward._get_raw = True  # type: ignore[attr-defined]


def attention(query, key, value, *args, out_val=None, **kwargs) -> int:
    """Both products of attention in one operator of the CPU, which torch leaves out."""
    *rows, places, dim = query.shape
    return 4 * math.prod(rows) * places * key.shape[-2] * dim


attention._get_raw = True  # type: ignore[attr-defined]
OPERATORS = {
    aten.convolution_backward: conv_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
}


def operations(loss: Callable[[], Any]) -> int:
    """What torch counts in forward and backward."""
    counter = FlopCounterMode(display=False, custom_mapping=OPERATORS)
    with counter:
        loss().backward()
    return counter.get_total_flops()


def counted(model: torch.nn.Module, batch: Batch) -> int:
    """What torch counts in a step of an objective."""
    model.to(batch.mel.device).train()
    return operations(lambda: sum(total for total, _ in model(batch).values()))


@pytest.mark.parametrize("patch_size", [1, 2])
@pytest.mark.parametrize("upsampling", ["none", "average", "aligned"])
def test_flops_are_those_that_torch_counts(upsampling: str, patch_size: int):
    heard = 64 if upsampling == "aligned" else 0
    config = dataclasses.replace(
        SMALL, text_upsampling=upsampling, patch_size=patch_size, prompt_dim=heard
    )
    batch = make_batch(2, 151, 24)
    ours = profile.train_flops(config, 2, 151, 24)
    assert ours == pytest.approx(counted(objective(config), batch), rel=0.02)


@pytest.mark.parametrize("patch_size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("wide", [False, True])
def test_flops_of_learning_to_be_understood_are_those_that_torch_counts(patch_size, wide):
    """Two networks, with conditions and without, and the listener of the step."""
    kind = {"text_upsampling": "aligned", "patch_size": patch_size, "prompt_dim": 64}
    config = dataclasses.replace(SMALL, **kind)
    ears = [
        Listener(ListenerConfig(dim=dim, tokens=256, patch_size=patch_size)) for dim in (32, 512)
    ]
    settings = UnderstoodConfig(listener="a run")
    model = Understood(DiT(config), ModelConfig(dit=config), DiT(config), ears, settings, None)
    batch = make_batch(2, 151, 24)
    model.ear.turn = int(wide)
    assert model.flops(batch) == pytest.approx(counted(model, batch), rel=0.005)
    assert model.flops(batch) > 2 * profile.train_flops(config, 2, 151, 24)


@pytest.mark.parametrize("patch_size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(
    "kind",
    [
        {"method": "trajectory", "also": [1]},
        {"method": "end"},
        {"method": "two-stage", "substeps": 1},
        {"method": "shortcut", "steps": 2},
    ],
)
@pytest.mark.parametrize("coarse", [False, True])
def test_flops_of_a_student_are_those_that_torch_counts(patch_size, kind, coarse):
    """Its own evaluations, and those of its teacher or, on coarser grids, of its average."""
    shapes = {"text_upsampling": "aligned", "patch_size": patch_size, "prompt_dim": 64}
    config = dataclasses.replace(SMALL, **shapes)
    student = DiT(dataclasses.replace(config, max_strength=5.0))
    about, settings = ModelConfig(dit=config), DistillConfig(**{"steps": 3, **kind})
    parts = student, about, DiT(config), settings, None
    if settings.method == "end":
        heard = ListenerConfig(dim=512, tokens=256, patch_size=patch_size)
        model = DistilledEnd(*parts, listeners=[Listener(heard)] if coarse else [])
    else:
        model = Distilled(*parts)
        model.guide_with({f"transformer.{n}": p.detach() for n, p in student.named_parameters()})
    model.count = settings.counts[0 if coarse else -1]
    batch = make_batch(2, 151, 24)
    assert model.flops(batch) == pytest.approx(counted(model, batch), rel=0.003)


def test_flops_of_a_listener_are_those_that_torch_counts():
    config = ListenerConfig(dim=64, tokens=256, patch_size=2)
    network, mel = Listener(config), torch.randn(2, 150, 100)
    for frozen in (False, True):
        network.requires_grad_(not frozen)
        mel.requires_grad_(frozen)
        ours = profile.listener_flops(config, 2, 150, frozen)
        theirs = operations(lambda: network(mel).square().sum())
        assert ours == pytest.approx(theirs, rel=0.01)


@pytest.mark.parametrize("frames, tokens", [(150, 24), (40, 64)])
def test_duration_flops_are_those_that_torch_counts(frames: int, tokens: int):
    config = DurationConfig(dim=128, depth=2, heads=2, dim_head=32, text_dim=64, conv_layers=2)
    ours = profile.train_flops(config, 2, frames, tokens)
    assert ours == pytest.approx(
        counted(objective(config), make_batch(2, frames, tokens)), rel=0.02
    )


def test_flops_of_the_published_model_are_those_of_the_rule_and_of_torch():
    config = DiTConfig(dropout=0.0)
    whole = profile.train_flops(config, 2, 937, 160)
    assert whole / (2 * 937) == pytest.approx(profile.flops_per_frame(config, 937), rel=0.02)
    # 52.9M weights work at every frame
    assert profile.flops_per_frame(config, 937) == pytest.approx(
        6 * 52.9e6 + 12 * 18 * 768 * 937, rel=0.02
    )
    three, four = (dataclasses.replace(config, depth=n) for n in (3, 4))
    each = profile.train_flops(four, 2, 937, 160) - profile.train_flops(three, 2, 937, 160)
    assert whole == profile.train_flops(three, 2, 937, 160) + 15 * each
    with torch.device("meta"):  # plain convolutions, nothing computed
        batch = make_batch(2, 937, 160, "meta")
        less, more = (counted(objective(c), batch) for c in (three, four))
        assert whole == pytest.approx(less + 15 * (more - less), rel=0.02)


def test_vocoder_flops_are_those_that_torch_counts():
    config = VocoderConfig(dim=64, intermediate_dim=128, num_layers=2)
    model, mel = Vocos(config), torch.randn(2, 120, 100)
    theirs = operations(lambda: model(mel).square().sum())
    assert profile.vocoder_flops(config, 2, 120) == pytest.approx(theirs, rel=0.02)
    batch = SegmentBatch(torch.randn(2, 119 * config.hop_length), mel)
    assert VocoderGAN(model).flops(batch) == pytest.approx(theirs, rel=0.02)


def test_flops_and_seconds_give_the_share_of_the_peak():
    peak = profile.peak_flops("cpu", "no")
    assert peak.flops > 1e9 and "measured" in peak.source
    assert profile.mfu(peak.flops, 2.0, "cpu", "no") == pytest.approx(50)
    assert profile.mfu(peak.flops, 2.0, "cpu", "no", processes=2) == pytest.approx(25)
    with pytest.raises(InputError, match="int3"):
        profile.peak_flops("cpu", "int3")


@pytest.mark.parametrize(
    "name, dtype, tera",
    [
        ("NVIDIA A100-SXM4-80GB", torch.bfloat16, 312),
        ("NVIDIA H100 80GB HBM3", torch.bfloat16, 989),
        ("NVIDIA H100 PCIe", torch.bfloat16, 756),
        ("NVIDIA GH200 480GB", torch.bfloat16, 990),
        ("NVIDIA H200", torch.float32, 67),
        ("NVIDIA L40S", torch.float16, 362),
        ("NVIDIA GeForce RTX 4090", torch.bfloat16, 165.2),
        ("Tesla V100-SXM2-16GB", torch.bfloat16, 15.7),  # has no bf16 units
    ],
)
def test_known_gpus_have_their_makers_figure(name: str, dtype: torch.dtype, tera: float):
    peak = profile.listed_peak(name, dtype)
    assert peak is not None and peak.flops == pytest.approx(tera * 1e12)


def test_unknown_gpus_are_left_to_measure():
    assert profile.listed_peak("NVIDIA A10G", torch.bfloat16) is None


def saved_bytes(config: DiTConfig | DurationConfig, batch: Batch, half: bool) -> int:
    """What autograd keeps of a forward pass, without the weights."""
    model = objective(config).train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        where = tensor.untyped_storage().data_ptr()
        if where not in weights:
            kept[where] = tensor
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
        torch.autocast("cpu", torch.bfloat16, enabled=half),
    ):
        sums = model(batch)
    assert sums
    return sum(t.untyped_storage().nbytes() for t in kept.values())


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        dataclasses.replace(SMALL, depth=6, qk_norm=True, dropout=0.1),
        dataclasses.replace(SMALL, text_upsampling="average", patch_size=2),
        DurationConfig(dim=128, depth=3, heads=2, dim_head=32, text_dim=64, conv_layers=2),
    ],
    ids=["plain", "norms", "average", "duration"],
)
def test_estimated_activations_are_what_autograd_keeps(config, precision: str):
    work = estimate.Workload(config, 4, 300, 60, precision, device="cpu")
    memory = estimate.estimate(work)
    real = saved_bytes(config, make_batch(4, 300, 60), precision == "bf16")
    assert memory.activations + memory.copies == pytest.approx(real, rel=0.25)


def test_weights_are_those_of_the_model():
    counts = estimate.count_weights(DiTConfig())
    assert counts["total"] == 82_203_648 + 512 * 257  # the published model
    memory = estimate.estimate(estimate.Workload(DiTConfig(), 1, 100, 32))
    assert memory.weights == 4 * counts["total"] and memory.moments == 8 * counts["total"]


def test_splitting_saves_memory():
    whole = estimate.Workload(DiTConfig(), 16, 937, 160)

    def total(**changes) -> int:
        return estimate.estimate(dataclasses.replace(whole, **changes)).total

    sharded = estimate.estimate(dataclasses.replace(whole, shard=8))
    assert sharded.weights * 8 == pytest.approx(estimate.estimate(whole).weights, rel=1e-3)
    assert total(shard=8) < total(shard=2) < total()
    assert total(tensor=4) < total(tensor=2) < total()
    assert total(checkpoint_interval=1) < total(checkpoint_interval=2) < total()
    assert total(checkpoint_interval=1) < total(checkpoint_ops=True) < total()


@pytest.mark.parametrize(
    "name, weights",
    [("82M", 82e6), ("f5", 335e6), ("800M", 800e6), ("3B", 3e9), ("8B", 8e9)],
)
def test_presets_have_the_size_of_their_name_and_fit(name: str, weights: float):
    run = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    work = estimate.workload(run)
    assert estimate.count_weights(work.config)["total"] == pytest.approx(weights, rel=0.05)
    assert estimate.estimate(work).total < 80e9 * estimate.ROOM


def test_a_dry_run_tells_sizes_and_memory_of_every_split():
    run = yaml.safe_load((CONFIGS / "8B.yaml").read_text(encoding="utf-8"))
    page = estimate.dry_run(run)
    for what in ("7,657,956,352", "TFLOP", "FSDP2 x8", "HSDP 2x8", "tensor x4", "shard 8"):
        assert what in page
    with pytest.raises(InputError, match="vocoder"):
        estimate.dry_run({"model": "vocoder"})
