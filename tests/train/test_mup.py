"""muP: what a network computes moves at one pace in all widths, so a learning rate carries over."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from nanospeech.config import AudioConfig, DiTConfig, VocoderConfig
from nanospeech.configs import find_recipe
from nanospeech.errors import InputError
from nanospeech.release.folder import resolve
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.config import read_run
from nanospeech_torch.train.initial import load_objective
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.optim.mup import base_shapes, scale_outputs_, width_multipliers
from nanospeech_torch.train.optim.optimizers import OptimizerConfig, build_optimizers
from nanospeech_torch.train.run import build_trainer
from scripts.experiments import mup_sweep
from tests.parallel_worker import objective
from tests.train.test_optimizers import batch_of, loss_of, tiny_duration

WIDTHS = (64, 128, 256)


def wide(dim: int, **options) -> Nanospeech:
    torch.manual_seed(0)
    heads = dim // 32
    sizes = {"depth": 2, "dim_head": 32, "conv_layers": 1, "n_mels": 8, "text_num_embeds": 30}
    config = DiTConfig(dim=dim, heads=heads, text_dim=dim, dropout=0.0, **{**sizes, **options})
    return Nanospeech(DiT(config), None, AudioConfig(n_mels=8))


def movement(dim: int, name: str, mup: bool, steps: int = 4) -> float:
    """Mean absolute change of the last block's output over a few steps."""
    model = wide(dim, adaln_zero=False)
    base = WIDTHS[0] if mup else None
    if base:
        scale_outputs_(model, base_shapes(model, base))
    optimizers = build_optimizers(model, OptimizerConfig(name, lr=3e-3, mup_base_dim=base))
    outputs: list[torch.Tensor] = []
    block = model.transformer.transformer_blocks[-1]
    block.register_forward_hook(lambda _, args, out: outputs.append(out.detach()))
    for _ in range(steps + 1):
        model.zero_grad()
        loss_of(model, batch_of()).backward()
        for optimizer in optimizers:
            optimizer.step()
    return (outputs[-1] - outputs[0]).abs().mean().item()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_outputs_change_at_the_same_rate_in_every_width(name):
    moved = [movement(dim, name, mup=True) for dim in WIDTHS]
    assert max(moved) < 2 * min(moved), moved


@pytest.mark.parametrize("name", ["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_without_it_they_move_faster_the_wider_the_model(name):
    narrow, middle, broad = (movement(dim, name, mup=False) for dim in WIDTHS)
    assert narrow < middle < broad
    assert broad > 1.5 * narrow


def test_factors_follow_fan_in():
    factors = width_multipliers(wide(256), base_shapes(wide(256), 64))
    blocks = "transformer.transformer_blocks.0"
    assert factors[f"{blocks}.attn.to_q.weight"] == 0.25
    assert factors[f"{blocks}.ff.ff.2.weight"] == 0.25
    assert factors["transformer.proj_out.weight"] == 0.25
    assert factors["transformer.input_embed.conv_pos_embed.conv1d.0.weight"] == 0.25
    assert factors["transformer.input_embed.proj.weight"] == 0.25  # by its text, not its mels
    for name, factor in factors.items():
        fixed = name.endswith("bias") or "grn" in name or "text_embed.text_embed" in name
        assert factor == 1 or not fixed
    for name in ("time_embed.time_mlp.0.weight", "text_embed.text_blocks.0.dwconv.weight"):
        assert factors[f"transformer.{name}"] == 1


@pytest.mark.parametrize(
    "options", [{}, {"text_upsampling": "aligned", "patch_size": 2}, {"qk_norm": True}]
)
def test_base_shapes_are_those_of_a_model_of_that_width(options):
    """Also where it turns fewer heads; no random number is drawn, as a run's are its own."""
    model = wide(256, rope_heads=8, **options)
    for dim in (32, 64, 96):
        narrow = wide(dim, rope_heads=1, **options)
        state = torch.get_rng_state()
        found = base_shapes(model, dim)
        assert torch.equal(torch.get_rng_state(), state)
        assert found == {name: p.shape for name, p in narrow.named_parameters()}
    for dim in (0, 16, 48):  # no head, half a head, and one and a half
        with pytest.raises(InputError, match=f"makes heads {dim / 32:g} from 8 at dim 256"):
            base_shapes(model, dim)


def test_a_model_whose_class_is_changed_to_be_sharded_has_the_same_base():
    model, refused = wide(256), {"__new__": lambda *_: pytest.fail("made anew")}
    wanted = base_shapes(model, 64)
    model.transformer.__class__ = type("FSDPDiT", (DiT,), refused)  # as FSDP2 does
    assert base_shapes(model, 64) == wanted


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_outputs_of_fixed_length_start_smaller_by_the_root_of_their_fan_in(dim):
    """A sum over k times as many inputs stays as large if they change together, not as noise."""
    narrow, model = (wide(d, text_upsampling="aligned", patch_size=2) for d in (64, dim))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    base = {name: p.shape for name, p in narrow.named_parameters()}
    scale_outputs_(model, base)
    outputs = {"proj_out", "aligner.to_mean", "aligner.speaker_mean", "aligner.to_duration.2"}
    for name, p in model.named_parameters():
        layer, _, kind = name.removeprefix("transformer.").rpartition(".")
        factor = 1.0
        if kind == "weight" and layer in outputs:
            factor = (base[name][1] / p.shape[1]) ** 0.5
            assert p.shape[0] == base[name][0]
        assert torch.equal(p, before[name] * factor), name
    assert outputs <= {n.removeprefix("transformer.").rpartition(".")[0] for n in base}


def test_at_the_base_width_nothing_changes():
    model = wide(64, text_upsampling="aligned")
    shapes = base_shapes(model, 64)
    assert set(width_multipliers(model, shapes).values()) == {1.0}
    before = {n: p.clone() for n, p in model.named_parameters()}
    scale_outputs_(model, shapes)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_weights_that_a_run_starts_from_are_left_as_they_are(tmp_path):
    recipe = find_recipe("any_voice")
    changes = [f"run_dir={tmp_path}", "mixed_precision=no", "optimizer.mup_base_dim=128"]
    folder = resolve(None) / "imitator"
    run = build_trainer(read_run(recipe, [*changes, f"initial={folder}"]), cpu=True)
    before = load_objective(folder).state_dict()
    assert all(torch.equal(now, before[name]) for name, now in run.core.state_dict().items())


def test_weights_decay_alike_whatever_their_rate():
    config = OptimizerConfig(lr=1e-2, weight_decay=0.1, mup_base_dim=64)
    (adamw,) = build_optimizers(wide(256), config)
    rates = {(g["lr"], g["weight_decay"]) for g in adamw.param_groups}
    assert {lr for lr, _ in rates} == {1e-2, 2.5e-3}
    assert {round(lr * decay, 9) for lr, decay in rates} == {0.0, 1e-3}


def test_a_duration_model_has_a_base_too():
    model = tiny_duration()
    with pytest.raises(InputError, match="heads"):
        base_shapes(model, 32)
    other, without = torch.nn.Module(), torch.nn.Module()
    other.transformer, without.transformer = torch.nn.Module(), torch.nn.Linear(2, 2)
    other.transformer.config = VocoderConfig()  # type: ignore[assignment]
    for stranger in (torch.nn.Linear(2, 2), without, other, objective("echo")):
        with pytest.raises(InputError, match="leave it out"):
            base_shapes(stranger, 32)
    assert base_shapes(model, 128)["to_pred.0.weight"] == (1, 128)


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path):
    pytest.importorskip("matplotlib")
    shard = str(Path(__file__).parents[1] / "fixtures" / "speech-000000.tar")
    table = tmp_path / "mup.csv"
    args = ["--shards", shard, "--csv", str(table), "--out", str(tmp_path / "mup.png")]
    args += ["--rates", "0.001", "--steps", "2", "--depth", "1", "--batch", "1"]
    args += ["--clips", "2", "--held", "1", "--frames", "200"]
    assert mup_sweep.main([*args, "--widths", "64"]) == 0
    first = table.read_text()
    assert mup_sweep.main([*args, "--widths", "64", "128"]) == 0
    assert table.read_text().startswith(first)
    with open(table, newline="") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == 4 and (tmp_path / "mup.png").stat().st_size > 1000


def test_best_rates_lie_between_the_cells():
    rows = [{"lr": 2.0**n, "loss": 0.1 * (n - 0.25) ** 2 + 1} for n in (-2, -1, 0, 1)]
    assert mup_sweep.best_rate(rows)[0] == pytest.approx(2**0.25)
