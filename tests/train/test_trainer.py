"""Training: overfitting, resuming, two processes, shards, and what is left out."""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from accelerate.state import AcceleratorState
from datasets import load_dataset

from nanospeech.errors import CheckpointError, DataError, InputError
from nanospeech.trainer_torch import NanospeechTrainer
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.data.segments import SegmentBatch
from nanospeech_torch.train.data.speech import BatchPlan
from nanospeech_torch.train.objectives.base import Objective
from nanospeech_torch.train.optim.optimizers import OptimizerConfig, build_optimizers, lr_factor
from nanospeech_torch.train.scale.speed import GRAPHS, MODES, SpeedConfig, check_graphs
from tests.forked import Forked, finish, ranks
from tests.no_sync import forbid_sync
from tests.training import (
    duration_model,
    samples,
    speech_model,
    train_share,
    trainer,
    write_shards,
)


def weights(path: Path, kind: str = "model_state_dict") -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)[kind]


def column(run: Path, name: str) -> list[float]:
    with (run / "log.csv").open() as f:
        return [float(row[name]) for row in csv.DictReader(f) if row[name]]


@pytest.mark.parametrize(
    "upsampling",
    [*(pytest.param(n, marks=pytest.mark.slow) for n in ("none", "average")), "aligned"],
)
def test_one_batch_can_be_overfitted(tmp_path, upsampling):
    patch = 2 if upsampling == "aligned" else 1
    model = speech_model(text_upsampling=upsampling, patch_size=patch)
    trainer(tmp_path, model, 5e-3).train(samples(), 20, batch_size=4, max_duration=200)
    flow = column(tmp_path, "flow")
    assert sum(flow[-6:]) / 6 < 0.7 * flow[0]


def test_duration_model_learns_the_lengths(tmp_path):
    trainer(tmp_path, duration_model(), 5e-3).train(samples(), 20, batch_size=4, max_duration=200)
    error = column(tmp_path, "duration")
    assert sum(error[-6:]) / 6 < 0.3 < error[0]


def test_resumed_run_equals_uninterrupted_one(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {"dropout": 0.1}
    trainer(whole, speech_model(**options)).train(samples(), 5, 2, max_duration=200)
    trainer(parts, speech_model(**options)).train(samples(), 5, 2, max_duration=200, save_step=3)
    assert (parts / "latest").read_text().strip() == "step_00000005"
    (parts / "latest").write_text("step_00000003\n")  # as if killed right after step 3
    trainer(parts, speech_model(**options)).train(samples(), 5, 2, max_duration=200)
    for kind in ("model_state_dict", "ema_state_dict"):
        want, got = (weights(run / "step_00000005.pt", kind) for run in (whole, parts))
        assert all(torch.equal(want[name], got[name]) for name in want)


def test_resume_says_where_and_never_starts_afresh(tmp_path, capsys):
    trainer(tmp_path).train(samples(), 2, 2, max_duration=200)
    trainer(tmp_path).train(samples(), 3, 2, max_duration=200)
    assert "going on from" in (out := capsys.readouterr().out) and "at step 2" in out
    again = trainer(tmp_path)
    again.train(samples(), 1, 2, max_duration=200, resume="never")
    assert again.step == 1


def test_resume_with_another_model_is_refused(tmp_path):
    trainer(tmp_path).train(samples(), 1, 2, max_duration=200)
    with pytest.raises(CheckpointError, match="cannot go on from"):
        trainer(tmp_path, speech_model(depth=3)).train(samples(), 2, 2, max_duration=200)


def test_old_checkpoints_are_deleted_and_none_is_half_written(tmp_path):
    trainer(tmp_path, keep=2).train(samples(), 4, 2, max_duration=200, save_step=1)
    names = sorted(p.name for p in tmp_path.iterdir())
    kept = [f"step_0000000{n}{kind}" for n in (3, 4) for kind in ("", ".pt")]
    assert names == ["latest", "log.csv", *kept]


@pytest.mark.parametrize("aligned", [pytest.param(False, marks=pytest.mark.slow), True])
def test_two_processes_or_micro_batches_equal_one_with_the_same_global_batch(tmp_path, aligned):
    for name, processes, size, times in (("two", 2, 1, 1), ("one", 1, 2, 1), ("twice", 1, 1, 2)):
        arguments = (tmp_path / name, size, aligned, times)
        finish([Forked(train_share, *arguments, env=env) for env in ranks(processes)])
    names = ("one", "two", "twice")
    one, *others = (weights(tmp_path / name / "step_00000004.pt") for name in names)
    for other in others:
        assert all(torch.allclose(one[name], other[name], 0, 1e-5) for name in one)
    for loss, count in (("flow", 4), ("held_out_flow", 2)):
        first, *found = (column(tmp_path / name, loss) for name in names)
        assert all(row == pytest.approx(first, 1e-5, 2e-5) for row in found) and len(first) == count


def test_shards_stream_through_datasets_with_workers(tmp_path):
    files = write_shards(tmp_path, 2)
    dataset = load_dataset("webdataset", data_files=files, split="train", streaming=True)
    run = trainer(tmp_path / "run")
    run.train(dataset, 4, batch_size=2, max_duration=200, num_workers=2)
    assert run.step == 4 and {p.epoch for p in run.state.places.values()} <= {0, 1, 2, 3, 4}


def test_every_usable_sample_is_used_and_the_others_are_counted(tmp_path, capsys):
    good = samples()
    cut = {**good[0], "__key__": "cut", "mp3": {"bytes": b"not an mp3"}}
    mute = {**good[0], "__key__": "mute", "json": {"duration": 1.5}}
    long = {**good[0], "__key__": "long", "json": {"text": "hello", "duration": 60.0}}
    run = trainer(tmp_path)
    run.train([*good, cut, mute, long], 3, batch_size=2, max_duration=200)
    assert run.state.skipped == {"unreadable audio": 1, "without text": 1, "too long": 1}
    assert "samples left out" in capsys.readouterr().out


def test_a_dataset_of_nothing_but_bad_samples_is_an_error(tmp_path):
    bad = [{"__key__": "x", "json": {"text": "hi", "duration": 1.0}, "mp3": {"bytes": b"x"}}]
    with pytest.raises(DataError, match="unreadable audio"):
        trainer(tmp_path).train(bad, 1, batch_size=1, max_duration=200)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_rates_warm_up_peak_and_end_near_zero(schedule):
    rates = [lr_factor(s, 10, 100, schedule, 0.2) for s in range(101)]
    # the first step moves a little already, and the eleventh is the first at the peak
    assert rates[:11] == pytest.approx([(s + 1) / 11 for s in range(11)])
    later = rates[11:]
    assert later == sorted(later, reverse=True) and all(0 <= r <= 1 for r in rates)
    assert rates[-1] == pytest.approx(1 if schedule == "constant" else 0, abs=1e-9)


def descent(folder: Path, lr: float = 1.0, warmup: int = 0, **settings) -> NanospeechTrainer:
    """A run by plain gradient descent: each step moves the weights by rate x gradient."""
    model = speech_model()
    options = {"log_every": 1, "buckets": 1, "schedule": "constant", **settings}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return NanospeechTrainer(model, optimizer, warmup, {"cpu": True}, folder, **options)


def moves(run: NanospeechTrainer, steps: int) -> list[list[torch.Tensor]]:
    """The weights before the first step of a run and after each."""
    batches, log = (
        iter(run.loader(samples(), BatchPlan(2, 400, 200, buckets=1), 0, 0)),
        run.new_log(9),
    )
    run.model.train()
    found = [[p.detach().clone() for p in run.core.parameters()]]
    for _ in range(steps):
        run.optimizer_step(batches, steps, log)
        found.append([p.detach().clone() for p in run.core.parameters()])
    return found


def change(a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([(y - x).flatten() for x, y in zip(a, b)])


def test_a_run_warms_up(tmp_path):
    (before, after), (start, moved) = (
        moves(descent(tmp_path / str(n), 1e-2, n, max_grad_norm=0.0), 1) for n in (0, 3)
    )
    # the same gradient at a quarter of the rate
    torch.testing.assert_close(change(start, moved), change(before, after) / 4, rtol=0, atol=1e-7)
    run = descent(tmp_path / "rates", 1e-2, 3)
    moves(run, 5)
    assert column(run.run_dir, "lr") == [0.0025, 0.005, 0.0075, 0.01, 0.01]


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({"schedule": "wsd", "decay_fraction": 0.5}, [1, 1, 1, 0.5]),
        ({"schedule": "wsd", "decay_fraction": 1.0}, [1, 0.75, 0.5, 0.25]),
        ({"schedule": "cosine"}, [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]),
        ({"schedule": "constant"}, [1, 1, 1, 1]),
    ],
)
def test_a_runs_rates_follow_the_schedule_that_it_is_given(tmp_path, settings, shares):
    run = descent(tmp_path, 1e-2, **settings)
    moves(run, 4)
    assert column(tmp_path, "lr") == pytest.approx([0.01 * x for x in shares], rel=1e-3)


def test_a_run_clips_its_gradients(tmp_path):
    free, loose, tight = (
        descent(tmp_path / str(most), 0.1, max_grad_norm=most) for most in (0.0, 1e3, 0.01)
    )
    whole, same, clipped = (change(*moves(run, 1)) for run in (free, loose, tight))
    norm = column(free.run_dir, "grad_norm")[0]
    assert norm > 0.1 and float(whole.norm()) == pytest.approx(0.1 * norm, rel=1e-3)
    assert torch.equal(same, whole)
    assert float(clipped.norm()) == pytest.approx(0.1 * 0.01, rel=1e-3)
    torch.testing.assert_close(clipped / clipped.norm(), whole / whole.norm(), rtol=0, atol=1e-4)
    # the log has the norm of what was found, not of what was left of it
    assert column(tight.run_dir, "grad_norm") == column(free.run_dir, "grad_norm")


def test_dropout_depends_on_seed_step_and_process_and_on_nothing_before(tmp_path):
    run = descent(tmp_path, accumulate=2)
    plan, log = BatchPlan(2, 400, 200, buckets=1), run.new_log(9)
    batch = next(iter(run.loader(samples()[:4], plan, 0, 0))).batch
    found: list[float] = []
    run.core.register_forward_pre_hook(lambda *_: found.append(float(torch.rand(()))))
    for seed, step, rank in ((0, 0, 0), (0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)):
        run.config = dataclasses.replace(run.config, seed=seed)
        run.parallel.data_rank = rank
        run.learn([batch, batch], step, 9, log)  # each micro-batch has draws of its own
    assert found[:2] == found[2:4] and len(set(found)) == 8


@pytest.mark.parametrize(("precision", "type_"), [("no", torch.float32), ("bf16", torch.bfloat16)])
def test_a_run_multiplies_in_the_precision_that_it_is_given(tmp_path, request, precision, type_):
    """Forward; weights and their gradients stay float32."""
    request.addfinalizer(AcceleratorState._reset_state)  # one precision a process
    AcceleratorState._reset_state()
    settings = {"cpu": True, "mixed_precision": precision}
    model, found = speech_model(), []
    first = model.transformer.transformer_blocks[0].attn.to_q
    first.register_forward_hook(lambda _, given, made: found.append(made.dtype))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    run = NanospeechTrainer(model, sgd, 0, settings, tmp_path, log_every=1, buckets=1)
    first.weight.register_post_accumulate_grad_hook(lambda p: found.append(p.grad.dtype))
    moves(run, 1)
    assert found == [type_, torch.float32] and first.weight.dtype == torch.float32


def test_the_average_follows_every_step_of_a_run(tmp_path):
    run = descent(tmp_path, 1.0, ema_decay=0.3)
    first, *later = moves(run, 4)
    mean = first
    for step, weights in enumerate(later, 1):
        keep = min(0.3, (1 + step) / (10 + step))
        mean = [keep * m + (1 - keep) * w for m, w in zip(mean, weights)]
    assert float(change(first, mean).norm()) > 0.01
    for got, want in zip(run.ema.mean, mean):
        torch.testing.assert_close(got, want)


def test_an_average_that_keeps_nothing_is_the_weights(tmp_path):
    run = descent(tmp_path, 1.0, ema_decay=0.0)
    *_, last = moves(run, 4)
    assert all(torch.equal(got, want) for got, want in zip(run.ema.mean, last))


@pytest.mark.parametrize("kind", ["none", "aligned", "duration", "muon", "micro"])
def test_a_step_never_waits_for_the_device(tmp_path, kind):
    aligned = kind in ("aligned", "micro")
    patch, upsampling = (2, "aligned") if aligned else (1, "none")
    model = (
        duration_model()
        if kind == "duration"
        else speech_model(text_upsampling=upsampling, patch_size=patch)
    )
    run = trainer(tmp_path, model, log_every=100, accumulate=2 if kind == "micro" else 1)
    if kind == "muon":
        run.optimizers = build_optimizers(model, OptimizerConfig(name="muon"))
        run.rates = [[g["lr"] for g in o.param_groups] for o in run.optimizers]
        run.phase_of = ["", ""]
    batches = iter(run.loader(samples(), BatchPlan(2, 400, 200, buckets=1), 0, 0))
    ready = [next(batches) for _ in range(4)]
    log = run.new_log(10)
    run.optimizer_step(iter(ready[:2]), 10, log)  # the first one makes the optimizer's state
    with forbid_sync():
        run.optimizer_step(iter(ready[2:]), 10, log)
    assert run.step == 2


def test_accumulation_asked_of_accelerate_is_the_loops_own(tmp_path):
    whole = trainer(tmp_path / "a", accumulate=2)
    whole.train(samples(), 2, 1, max_duration=200)
    kind = type(whole)
    model = speech_model()
    asked = kind(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        2,
        {"cpu": True, "gradient_accumulation_steps": 2},
        tmp_path / "b",
        log_every=1,
        ema_decay=0.9,
        buckets=1,
    )
    assert asked.config.accumulate == 2
    asked.train(samples(), 2, 1, max_duration=200)
    for name in ("flow", "grad_norm"):
        assert column(tmp_path / "a", name) == column(tmp_path / "b", name)


def test_half_precision_scales_and_guards_every_optimizer(tmp_path):
    """The scaler of fp16, here on the CPU: the same steps as without it, and bad ones skipped."""
    runs = []
    for scale in (None, 1024.0):
        model = speech_model()
        run = trainer(tmp_path / str(scale), model, log_every=1)
        run.optimizers = build_optimizers(model, OptimizerConfig(name="muon", lr=1e-3))
        run.rates = [[g["lr"] for g in o.param_groups] for o in run.optimizers]
        run.phase_of = ["", ""]
        if scale:
            run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        run.train(samples(), 4, 2, max_duration=200)
        runs.append(run)
    for a, b in zip(*(r.core.parameters() for r in runs)):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


class Phased(Objective):
    """Two numbers, a phase each, that want to fall without end; the second phase is slower."""

    loss = audio = tokenizer = None  # type: ignore[assignment]
    slopes: ClassVar[dict[str, float]] = {"one": 1.0, "two": 4.0}

    def __init__(self):
        super().__init__()
        self.one, self.two = (torch.nn.Parameter(torch.zeros(())) for _ in range(2))
        self.began: list[tuple[int, float]] = []

    def phases(self) -> dict[str, list[torch.nn.Parameter]]:
        return {"one": [self.one], "two": [self.two]}

    def active_phases(self) -> tuple[str, ...]:
        return ("one", "two") if self.began[-1][0] else ("one",)

    def rate(self, phase: str) -> float:
        return 0.5 if phase == "two" else 1.0

    def weights(self) -> dict[str, float]:
        return {"one": 1.0, "two": 1.0}

    def begin_step(self, step: int, total: float) -> None:
        self.began.append((step, total))

    def forward(self, batch: Any, phase: str) -> Any:
        total = self.slopes[phase] * getattr(self, phase) * len(batch.mel)
        return {phase: (total, torch.tensor(len(batch.mel)))}


def phased(folder: Path, **settings) -> NanospeechTrainer:
    """A run of both phases by plain gradient descent; the optimizers are in another order."""
    model, peaks = Phased(), {"two": 0.2, "one": 0.1}
    optimizers = [torch.optim.SGD([getattr(model, name)], lr=lr) for name, lr in peaks.items()]
    options = {"log_every": 99, "buckets": 1, "schedule": "constant", **settings}
    return NanospeechTrainer(model, optimizers, 3, {"cpu": True}, folder, **options)


FIVE = SegmentBatch(torch.zeros(5, 9), torch.zeros(5, 1, 1))


def test_each_phase_takes_its_own_steps_of_its_own_optimizers(tmp_path):
    """A phase that has not joined stays; rates are peak x schedule x phase; norms are apart."""
    run = phased(tmp_path, max_grad_norm=2.0)
    model, log, want = run.core, run.new_log(8), [0.0, 0.0]
    for step in range(6):
        norm = run.learn([FIVE], step, 8.0, log)
        factor = min(1, (step + 1) / 4)
        want[0] -= 0.1 * factor  # its norm, 1, is below the limit
        want[1] -= 0.2 * factor * 0.5 * 2.0 * (step > 0)
        assert float(norm) == pytest.approx(1.0)
        assert [model.one.item(), model.two.item()] == pytest.approx(want, rel=1e-5)
    assert model.began == [(step, 8.0) for step in range(6)]
    stranger = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    with pytest.raises(InputError, match="parameters that no phase"):
        run.find_phase(stranger)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_processes_exchange_gradients_with_the_last_micro_batch_alone(tmp_path, accumulate):
    """Of each phase. Sooner costs time; later, each would learn from its own part."""
    run, waits = phased(tmp_path, accumulate=accumulate), []
    plain = run.parallel.no_sync
    run.parallel.no_sync = lambda waiting: waits.append(waiting) or plain(waiting)
    for step in range(2):
        run.learn([FIVE] * accumulate, step, 30, run.new_log(30))
        phases = step + 1
        assert waits == [True] * (accumulate - 1) * phases + [False] * phases
        waits.clear()


def test_a_run_ends_after_as_many_bad_steps_in_a_row_as_it_may_have(tmp_path):
    """Of the phase that is bad alone; a good step in between begins the count anew."""
    run = phased(tmp_path, max_bad_steps=3)
    log, two = run.new_log(30), run.core.two.item()
    for step, bad in enumerate((0, 1, 1, 0, 1, 1, 1)):
        assert run.guards["two"].report()["streak"] < 3
        run.core.weights = lambda bad=bad: {"one": 1.0, "two": math.nan if bad else 1.0}
        run.learn([FIVE], step, 30, log)
        assert (run.core.two.item() == two) == (bad or step == 0)  # it joins in the second
        two = run.core.two.item()
    with pytest.raises(DataError, match="3 steps in a row"):
        run.guards["two"].report()
    assert run.guards["one"].report() == {"skipped": 0, "spikes": 0, "streak": 0}


def spoil(run) -> None:
    """Has the steps behind its third be bad."""
    weights = run.core.weights()
    spoiled = dict.fromkeys(weights, math.nan)
    run.core.weights = lambda: weights if run.step < 3 else spoiled


def test_a_run_that_ends_by_bad_steps_saves_its_good_ones(tmp_path, capsys):
    """But no checkpoint takes the place of an older one where there is nothing good to add."""
    run = trainer(tmp_path, max_bad_steps=2, log_every=5)
    spoil(run)
    with pytest.raises(DataError, match="2 steps in a row"):
        run.train(samples(), 30, 1, max_duration=200)
    assert "no good steps any more at step 5: saving first" in capsys.readouterr().out
    assert run.checkpoints.newest().name == "step_00000005"
    with pytest.raises(DataError, match="7 steps in a row"):
        run.train(samples(), 30, 1, max_duration=200)
    assert "going on from" in capsys.readouterr().out
    assert run.checkpoints.newest().name == "step_00000005"


def test_good_steps_are_saved_where_the_bad_ones_end_with_the_run(tmp_path, capsys):
    """They are found between two lines of the log, when its last line is written."""
    run = trainer(tmp_path, max_bad_steps=2, log_every=50)
    spoil(run)
    with pytest.raises(DataError, match="3 steps in a row"):
        run.train(samples(), 6, 1, max_duration=200)
    assert "no good steps any more at step 6: saving first" in capsys.readouterr().out
    assert run.checkpoints.newest().name == "step_00000006"


@pytest.mark.parametrize(("factor", "skipped"), [(0.0, 0), (2.0, 1), (3.0, 0)])
def test_a_spike_is_as_large_as_a_run_is_told(tmp_path, factor, skipped):
    """Here 2.5 times the usual norm, after the steps in which none is known."""
    run = phased(tmp_path, skip_factor=factor)
    guard = run.guards["one"]
    guard.mean.fill_(1.0)
    guard.good.fill_(100)
    run.core.weights = lambda: {"one": 2.5, "two": 1.0}
    run.learn([FIVE], 0, 30, run.new_log(30))
    assert guard.report() == {"skipped": skipped, "spikes": skipped, "streak": skipped}


def test_a_scale_under_which_a_gradient_overflows_is_halved_until_none_does(tmp_path):
    """Gradients of 1 and 4 under fp16's scaler: a phase moves as soon as its own is a number."""
    run, most = phased(tmp_path, max_grad_norm=0.0), torch.finfo(torch.float32).max
    run.core.weights = lambda: {"one": 1e6, "two": 1e6}
    scale = 2.0**112
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    log = run.new_log(30)
    for step in range(12):
        before = run.core.one.item(), run.core.two.item()
        run.learn([FIVE], step, 30, log)
        moved = run.core.one.item() != before[0], run.core.two.item() != before[1]
        assert moved == (1e6 * scale < most, step > 0 and 4e6 * scale < most)
        scale /= 1 if moved[0] and (moved[1] or not step) else 2
        assert run.accelerator.scaler.get_scale() == scale
    assert moved == (True, True) and scale < 2.0**107


def test_settings_that_make_no_sense_are_refused(tmp_path):
    settings = [
        {"decay_fraction": -3.0},
        {"max_bad_steps": 0},
        {"keep": 0},
        {"ema_decay": 1.0},
        {"ema_decay": -0.1},
        {"seed": -1},
    ]
    for bad in settings:
        with pytest.raises(InputError, match=next(iter(bad))):
            trainer(tmp_path / "x", **bad)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_graphs_of_several_micro_batches_are_refused(tmp_path, mode):
    with pytest.raises(InputError, match=f"{mode} .* train.accumulate=2, .* take speed.compile"):
        trainer(tmp_path, speed=SpeedConfig(compile=mode), accumulate=2)
    check_graphs(SpeedConfig(compile=mode), 1, split=False)
    with pytest.raises(InputError, match=r"parallel\.shard"):
        check_graphs(SpeedConfig(compile=mode), 1, split=True)
    for other in set(MODES) - set(GRAPHS):
        check_graphs(SpeedConfig(compile=other), 2, split=True)


@pytest.mark.parametrize(
    "name, value",
    [
        ("data.batch_size", 0),
        ("data.max_batch_frames", 0),
        ("data.max_duration", 0),
        ("data.workers", -1),
        ("data.cache_mb", -1),
        ("loss.drop_audio", 3.0),
        ("loss.drop_both", -0.1),
        ("loss.spell", 1.5),
        ("loss.pair", 2.0),
        ("loss.min_span", 1.5),
        ("loss.max_span", 0.5),  # below min_span
        ("warmup_steps", -3),
    ],
)
def test_settings_of_a_run_that_make_no_sense_are_refused(name, value):
    section, _, key = name.rpartition(".")
    with pytest.raises(InputError, match=f"{name} is {value}|loss.min_span"):
        run_config({section: {key: value}} if section else {key: value})


def test_parameters_without_an_optimizer_are_left_alone(tmp_path):
    model = speech_model(adaln_zero=False)
    blocks = list(model.transformer.transformer_blocks.parameters())
    optimizer = torch.optim.AdamW(blocks, lr=1e-3)
    run = NanospeechTrainer(model, optimizer, 2, {"cpu": True}, tmp_path, log_every=1, buckets=1)
    before = model.transformer.input_embed.proj.weight.detach().clone()
    run.train(samples(), 6, 2, max_duration=200)
    assert torch.equal(before, model.transformer.input_embed.proj.weight)
    norms = column(tmp_path, "grad_norm")
    assert max(norms) < 5 * min(norms)  # gradients that nobody uses do not pile up


def test_the_norm_of_a_step_is_that_of_what_an_optimizer_holds(tmp_path):
    """What is clipped and guarded by is not what nobody updates."""
    model = speech_model(adaln_zero=False)
    blocks = list(model.transformer.transformer_blocks.parameters())
    before = [p.detach().clone() for p in blocks]
    settings = {"log_every": 1, "schedule": "constant", "max_grad_norm": 0.0, "buckets": 1}
    sgd = torch.optim.SGD(blocks, lr=0.1)
    run = NanospeechTrainer(model, sgd, 0, {"cpu": True}, tmp_path, **settings)
    run.train(samples(), 1, 2, max_duration=200)
    (norm,) = column(tmp_path, "grad_norm")
    assert float(change(before, [p.detach() for p in blocks]).norm()) == pytest.approx(
        0.1 * norm, rel=1e-3
    )
