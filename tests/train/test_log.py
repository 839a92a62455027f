"""What a run shows: log.csv, trackers, spoken samples, utilisation."""

from __future__ import annotations

import csv
import resource
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import soundfile
import torch
from accelerate.tracking import GeneralTracker

from nanospeech.config import AudioConfig, DiTConfig, VocoderConfig
from nanospeech.errors import BackendError, DataError, InputError
from nanospeech.release.folder import resolve
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.data.speech import BatchPlan
from nanospeech_torch.train.loop.config import LogConfig
from nanospeech_torch.train.loop.trainer import NanospeechTrainer, Trainer, VocoderTrainer
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN, VocoderLossConfig
from nanospeech_torch.train.run import train
from nanospeech_torch.train.scale import profile
from nanospeech_torch.vocoder import Vocos
from tests.training import (
    SHARD,
    duration_model,
    samples,
    speech_model,
    trainer,
    write_shards,
)


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "log.csv").open(newline="") as f:
        return list(csv.DictReader(f))


def phoneme_model() -> Nanospeech:
    """A tiny model that can speak from the shipped voice's prompt."""
    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    config = DiTConfig(
        dim=64,
        depth=1,
        heads=1,
        text_dim=32,
        conv_layers=1,
        text_num_embeds=len(tokenizer),
        text_upsampling="aligned",
        patch_size=2,
    )
    return Nanospeech(DiT(config), tokenizer, AudioConfig())


def test_every_line_has_the_figures_of_a_run(tmp_path):
    run = trainer(tmp_path, log_every=2)
    run.train(samples(), 6, 2, max_duration=200)
    lines = rows(tmp_path)
    assert [line["step"] for line in lines] == ["2", "4", "6"]
    for line in lines:
        speed, audio = float(line["frames_per_s"]), float(line["audio_s_per_s"])
        assert audio == pytest.approx(speed / 93.75, abs=0.6 / 93.75 + 0.005) and speed > 0
        assert 0 <= float(line["data_wait"]) <= 1 and float(line["memory_gb"]) > 0
        assert float(line["grad_norm"]) > 0 and line["skipped_steps"] == "0"
        # utilisation is the batches' operations over the measured rate
        flops = profile.train_flops(run.core.transformer.config, 2, 200, 48) / 400
        peak = profile.peak_flops("cpu", "no").flops
        assert float(line["mfu"]) == pytest.approx(100 * flops * speed / peak, rel=0.3, abs=0.02)


def test_the_last_steps_of_a_run_have_a_line_too(tmp_path):
    first = trainer(tmp_path, log_every=4)
    means = first.train(samples(), 2, 2, max_duration=200)  # shorter than log_every
    (line,) = rows(tmp_path)
    assert line["step"] == "2" and float(line["flow"]) == pytest.approx(means["flow"], abs=1e-5)
    trainer(tmp_path, log_every=4).train(samples(), 7, 2, max_duration=200)
    trainer(tmp_path, log_every=4).train(samples(), 8, 2, max_duration=200)
    assert [line["step"] for line in rows(tmp_path)] == ["2", "4", "7", "8"]


def test_a_line_has_the_means_of_the_steps_since_the_last_one(tmp_path):
    """And the steps that all phases have skipped so far, however often lines are written."""
    for every in (1, 3):
        run = trainer(tmp_path / str(every), log_every=every)
        for guard in run.guards.values():
            guard.bad += 2
        run.train(samples(), 5, 2, max_duration=200)
    each = [float(line["flow"]) for line in rows(tmp_path / "1")]
    lines = rows(tmp_path / "3")
    assert [line["step"] for line in lines] == ["3", "5"] and len(each) == 5
    wanted = [sum(each[:3]) / 3, sum(each[3:]) / 2]
    assert [float(line["flow"]) for line in lines] == pytest.approx(wanted, abs=2e-5)
    assert {line["skipped_steps"] for line in lines} == {"2"}


def test_what_samples_take_is_not_part_of_the_speed(tmp_path, monkeypatch):
    class Clock:
        """The real one, and what is added to it."""

        ahead = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.ahead

    clock = Clock()
    monkeypatch.setattr("nanospeech_torch.train.loop.log.time", clock)

    def speak(run: Trainer) -> None:
        clock.ahead += 1e6  # seconds

    run = trainer(tmp_path, log=LogConfig(sample_every=1), log_every=2)
    run.train(samples(), 2, 2, max_duration=200, on_sample=speak)
    (line,) = rows(tmp_path)
    assert float(line["frames_per_s"]) > 1 and float(line["seconds"]) >= 1e6


def columns(run: Path, name: str) -> dict[int, float]:
    return {int(line["step"]): float(line[name]) for line in rows(run) if line[name]}


def test_held_out_speech_is_measured_and_changes_nothing(tmp_path):
    log = LogConfig(held_out=[str(SHARD)], held_out_every=3)
    runs = [
        trainer(tmp_path / name, speech_model(dropout=0.1), log_every=2, **options)
        for name, options in (("measured", {"log": log}), ("plain", {}))
    ]
    for run in runs:
        run.train(samples(), 6, 2, max_duration=200)
    one, two = (run.weights("model") | run.weights("ema") for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)
    found = columns(tmp_path / "measured", "held_out_flow")
    assert found.keys() == {3, 6}

    # the last figure is that of the averaged weights, without dropout, over all clips
    model = speech_model(dropout=0.1).eval()
    model.load_state_dict(runs[0].weights("ema"), strict=False)
    held = runs[0].held_out(BatchPlan(2, 400, 200, buckets=1))
    assert sum(len(batch.lens) for batch in held.batches) == len(samples())
    with torch.no_grad():
        sums = [torch.stack(model(batch)["flow"]) for batch in held.batches]
    total, number = torch.stack(sums).sum(0)
    assert found[6] == pytest.approx(float(total / number), rel=1e-4)


def test_lengths_are_measured_on_held_out_speech_too(tmp_path):
    log = LogConfig(held_out=[str(SHARD)], held_out_every=2)
    trainer(tmp_path, duration_model(), log=log).train(samples(), 2, 2, max_duration=200)
    assert columns(tmp_path, "held_out_duration").keys() == {2}


def test_held_out_speech_that_cannot_be_measured_is_refused(tmp_path):
    plan = BatchPlan(2, 400, 200)
    gone = trainer(tmp_path, log=LogConfig(held_out=[str(tmp_path / "gone-*.tar")]))
    with pytest.raises(InputError, match="no shards match"):
        gone.held_out(plan)
    run = trainer(tmp_path, log=LogConfig(held_out=[str(SHARD)]))
    with pytest.raises(DataError, match=r"nothing in the dataset|no clip of log.held_out"):
        run.held_out(BatchPlan(2, 40, 20))
    run.core.phases = lambda: {"speech": [], "judges": []}
    with pytest.raises(InputError, match="speech and duration"):
        run.held_out(plan)
    with pytest.raises(InputError, match="held_out_every"):
        LogConfig(held_out_every=0)


def test_tensorboard_gets_figures_sound_and_pictures(tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    log = LogConfig(
        trackers=["tensorboard"], project="runs", sample_every=2, sentences=["Hello there."]
    )
    run = trainer(tmp_path, phoneme_model(), log=log)
    run.train(samples(), 2, 2, max_duration=200)
    folder = tmp_path / "samples" / "step_00000002"
    wave, rate = soundfile.read(folder / "0.wav")
    assert rate == 24_000 and len(wave) > 1000
    (events,) = (p.parent for p in tmp_path.rglob("events.out*") if p.parent.name == "runs")
    found = event_accumulator.EventAccumulator(str(events), {"audio": 0, "images": 0}).Reload()
    tags = found.Tags()
    assert {"flow", "grad_norm", "frames_per_s", "mfu", "lr"} <= set(tags["scalars"])
    assert tags["audio"] == ["sample/0"]
    assert tags["images"] == (["mel/0"] if (folder / "0.png").exists() else [])


def test_a_sample_that_fails_does_not_end_a_run(tmp_path, capsys):
    log = LogConfig(sample_every=1, vocoder=str(tmp_path / "nowhere"))
    run = trainer(tmp_path / "run", phoneme_model(), log=log)
    run.train(samples(), 2, 2, max_duration=200)
    assert run.step == 2 and "no samples at step 1" in capsys.readouterr().out


def test_a_run_started_from_python_speaks_too(tmp_path, capsys):
    write_shards(tmp_path, 1)
    shipped = resolve(None)
    values = {
        "run_dir": str(tmp_path / "run"),
        "total_steps": 1,
        "data": {"shards": f"{tmp_path}/*.tar", "tokenizer": "phonemes", "batch_size": 2},
        "dit": asdict(phoneme_model().transformer.config),
        "log": {
            "sample_every": 1,
            "sentences": ["Hello there.", "And again."],
            "voices": str(shipped),
            "vocoder": str(shipped),
        },
    }
    train(run_config(values))
    found = tmp_path / "run" / "samples" / "step_00000001"
    assert {p.name for p in found.glob("*.wav")} == {"0.wav", "1.wav"}, capsys.readouterr().out
    for name in ("voices", "vocoder"):  # they are used: a wrong one is missed
        nowhere = {**values["log"], name: str(tmp_path / "nowhere")}
        train(run_config({**values, "run_dir": str(tmp_path / name), "log": nowhere}))
        said = capsys.readouterr().out
        assert "no samples at step 1" in said and "nowhere" in said


def vocoder_trainer(folder: Path, log: LogConfig) -> VocoderTrainer:
    loss = VocoderLossConfig(frames=24, discriminator_channels=4)
    vocoder = Vocos(VocoderConfig(dim=32, intermediate_dim=48, num_layers=1))
    model = VocoderGAN(vocoder, None, loss)
    optimizers = [torch.optim.AdamW(params) for params in model.phases().values()]
    return VocoderTrainer(model, optimizers, 1, {"cpu": True}, folder, log=log)


@pytest.mark.parametrize("kind", ["duration", "vocoder"])
def test_samples_of_a_model_that_does_not_speak_are_refused_or_the_callers_own(tmp_path, kind):
    log, heard = LogConfig(sample_every=2), []
    if kind == "duration":
        run = trainer(tmp_path, duration_model(), log=log)
    else:
        run = vocoder_trainer(tmp_path, log)
    with pytest.raises(InputError, match=r"log.sample_every is 2, but only a speech model speaks"):
        run.train(samples(), 3, 2, max_duration=2000)
    assert not list(tmp_path.iterdir())
    run.train(samples(), 3, 2, max_duration=2000, on_sample=lambda t: heard.append(t.step))
    assert heard == [2]


def test_trackers_are_named_and_checked(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="choose from wandb, tensorboard, trackio"):
        LogConfig(trackers=["mlflow"])
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(BackendError, match="pip install"):
        trainer(tmp_path, log=LogConfig(trackers=["wandb"]))


@pytest.mark.parametrize("fails", ["log", "finish"])
def test_a_tracker_that_fails_does_not_end_a_run(tmp_path, capsys, fails):
    class Unreachable(GeneralTracker):
        name, requires_logging_directory, tracker, asked = "unreachable", False, None, 0

        def fail(self, name: str) -> None:
            self.asked += name == fails
            if name == fails:
                raise ConnectionError("no route to the server")

        def log(self, values, step=None, **more):
            self.fail("log")

        def finish(self):
            self.fail("finish")

    model, tracker = speech_model(), Unreachable()
    optimizer = torch.optim.AdamW(model.parameters())
    settings = {"cpu": True, "log_with": [tracker]}
    run = NanospeechTrainer(model, optimizer, 2, settings, tmp_path, log_every=1, buckets=1)
    run.train(samples(), 3, 2, max_duration=200)
    assert [line["step"] for line in rows(tmp_path)] == ["1", "2", "3"]
    said = capsys.readouterr().out
    assert said.count("unreachable has failed: no route to the server; the run goes on") == 1
    assert tracker.asked == (3 if fails == "log" else 1)
    assert (tmp_path / "latest").is_file()


def test_a_full_disk_costs_lines_of_the_log_and_leaves_no_half_ones(tmp_path, capsys):
    run = trainer(tmp_path)
    path, limits = tmp_path / "log.csv", resource.getrlimit(resource.RLIMIT_FSIZE)
    plain = run.optimizer_step

    def step_with_little_room(*args):
        if run.step == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, limits[1]))
        try:
            plain(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    run.optimizer_step = step_with_little_room
    run.train(samples(), 5, 2, max_duration=200)
    assert capsys.readouterr().out.count("the run goes on without it") == 1
    assert [line["step"] for line in rows(tmp_path)] == ["1", "2", "4", "5"]
    assert all(None not in line and line["epoch"] for line in rows(tmp_path))


def test_losses_that_join_later_get_columns(tmp_path):
    run = trainer(tmp_path)
    run.train(samples(), 1, 2, max_duration=200)

    run.new_log(2).append({"step": 2, "flow": 1.0, "judge": 0.5})
    lines = rows(tmp_path)
    assert lines[0]["judge"] == "" and lines[1]["judge"] == "0.5" and lines[0]["flow"]


def test_each_epoch_tells_what_it_left_out(tmp_path, capsys):
    cut = {**samples()[0], "__key__": "cut", "mp3": {"bytes": b"not an mp3"}}
    trainer(tmp_path).train([*samples(), cut], 6, 2, max_duration=200)
    out = capsys.readouterr().out
    assert "epoch 0 done; samples left out: 1 unreadable audio" in out
