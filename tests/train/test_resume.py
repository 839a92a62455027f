"""Resume: other numbers of processes, killed processes, changed settings, what is said."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from nanospeech.errors import CheckpointError, DataError
from nanospeech.nanospeech_torch import list_str_to_vocab_tensor
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.loop.settings import changes
from nanospeech_torch.train.run import train
from tests import resume_worker
from tests.forked import Forked, finish, ranks
from tests.test_locks import holder
from tests.training import (
    CPU,
    VOCAB,
    NanospeechTrainer,
    samples,
    speech_model,
    train_beside_bad_samples,
    trainer,
    write_shards,
)


def start(processes: int, *args: object, together: bool = False) -> list[Forked]:
    """The processes of a run, as a launcher starts them; together: the first one leads a group."""
    run: list[Forked] = []
    for env in ranks(processes):
        leader = (run[0].pid if run else 0) if together else None
        run.append(Forked(resume_worker.main, *map(str, args), env=env, leader=leader))
    return run


def same(a: Path, b: Path, tolerance: float) -> bool:
    got, want = read_tensors(a), read_tensors(b)
    assert got.keys() == want.keys()
    return all(torch.allclose(got[n].float(), want[n].float(), 0, tolerance) for n in want)


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 2)
    return folder


def test_two_killed_processes_go_on_as_if_nothing_had_been(tmp_path, shards):
    finish(start(2, tmp_path / "whole", shards, 4, 2))
    run = start(2, tmp_path / "killed", shards, 600, 2)
    latest = tmp_path / "killed" / "latest"
    end = time.monotonic() + 200
    while time.monotonic() < end and not latest.exists():
        time.sleep(0.01)
    for process in run:
        process.send_signal(signal.SIGKILL)
    for process in run:
        process.communicate()
    at = int(latest.read_text().strip()[5:])
    last = max(4, at)
    out = finish(start(2, tmp_path / "killed", shards, last, 2))
    assert f"at step {at}" in out
    if last > 4:
        finish(start(2, tmp_path / "whole", shards, last, 2))
    name = f"step_{last:08d}"
    assert same(tmp_path / "killed" / name, tmp_path / "whole" / name, 1e-6)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_does_not_begin_in_the_folder_of_one_that_goes_on(tmp_path, shards, processes):
    part = tmp_path / "step_00000001.part"
    part.mkdir()  # which the other one is writing
    with holder(tmp_path) as other:
        run = start(processes, tmp_path, shards, 1, 9)
        said = [process.communicate()[0] for process in run]
    assert all(process.returncode for process in run)
    assert all(f"is in use by process {other.pid} on" in text for text in said), said
    assert part.exists() and not (tmp_path / "log.csv").exists()


def test_each_process_reads_its_own_part_alone(tmp_path, shards):
    finish(start(2, tmp_path, shards, 1, 9))
    run = start(2, tmp_path, shards, 2, 9)
    said = [process.communicate()[0] for process in run]
    assert "going on from" in said[0], said
    for rank, text in enumerate(said):
        opened = {line.split()[1] for line in text.splitlines() if line.startswith("opened ")}
        assert opened == {f"rank_{rank:05d}.json"}, text


def test_machines_that_share_no_folder_export_whole_weights(tmp_path, shards):
    run = [
        Forked(
            resume_worker.main, str(tmp_path / env["RANK"] / "run"), str(shards), "2", "9", env=env
        )
        for env in ranks(2)
    ]
    assert "could not write" not in finish(run)
    export = torch.load(tmp_path / "0" / "run" / "step_00000002.pt", weights_only=True)
    assert export["step"] == 2 and export["ema_state_dict"]
    [piece] = (tmp_path / "1" / "run").glob("step_*/rank_*.json")
    assert piece.name == "rank_00001.json"


def test_the_process_that_cannot_write_is_named(tmp_path, shards):
    (tmp_path / "file").write_text("in the way")
    folders = tmp_path / "run", tmp_path / "file" / "run"
    run = [
        Forked(resume_worker.main, str(folder), str(shards), "1", "9", env=env)
        for folder, env in zip(folders, ranks(2))
    ]
    said = "".join(process.communicate()[0] for process in run)
    assert "could not write checkpoint" in said and "process 1: NotADirectoryError" in said


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_another_number_of_processes_goes_on_without_repeating(tmp_path, shards, before, after):
    finish(start(before, tmp_path, shards, 1, 9))
    out = finish(start(after, tmp_path, shards, 3, 9))
    assert f"{before} processes saved, {after} go on" in out
    assert "nothing is repeated or skipped" in out and "at step 1" in out
    ranks = sorted((tmp_path / "step_00000003").glob("rank_*.json"))
    assert len(ranks) == after
    places = [json.loads(r.read_text())["places"] for r in ranks]
    assert all(p["streams"] == after for found in places for p in found.values())


@pytest.fixture(scope="module")
def by_one(tmp_path_factory, shards):
    """by_one(clips) -> the folder of a run of one process, of six steps, saved after three."""
    made: dict[int, Path] = {}

    def run(clips: int) -> Path:
        if clips not in made:
            made[clips] = tmp_path_factory.mktemp("one")
            finish(start(1, made[clips], shards, 6, 3, 1, 1, clips))
        return made[clips]

    return run


@pytest.mark.parametrize(
    ("processes", "shard", "tensor", "batch"),
    [
        (2, 2, 1, 1),
        pytest.param(2, 1, 2, 2, marks=pytest.mark.slow),
        pytest.param(4, 2, 1, 1, marks=pytest.mark.slow),
    ],
)
def test_split_runs_learn_and_resume_as_one_process_does(
    tmp_path, shards, by_one, processes, shard, tensor, batch
):
    """FSDP2 x2, tensor x2, HSDP 2x2: losses as one process's; saved by one, resumed by many."""
    whole = batch * processes // tensor
    for name in ("one", "many"):
        shutil.copytree(by_one(whole), tmp_path / name)
    (tmp_path / "many" / "latest").write_text("step_00000003\n")
    out = finish(start(processes, tmp_path / "many", shards, 6, 99, shard, tensor, batch))
    assert "at step 3" in out
    one, many = (losses(tmp_path / name) for name in ("one", "many"))
    assert [step for step, _ in one] == [step for step, _ in many] == list(range(1, 7))
    assert [v for _, v in many] == pytest.approx([v for _, v in one], rel=1e-4)
    assert same(tmp_path / "many/step_00000006", tmp_path / "one/step_00000006", 1e-4)
    # and the other way: what many saved, one goes on with
    out = finish(start(1, tmp_path / "many", shards, 7, 99, 1, 1, whole))
    assert "at step 6" in out


def losses(run: Path) -> list[tuple[int, float]]:
    with (run / "log.csv").open(newline="") as f:
        return [(int(r["step"]), float(r["flow"])) for r in csv.DictReader(f)]


def test_changed_settings_are_named(tmp_path, shards, capsys):
    values = {
        "run_dir": str(tmp_path),
        "total_steps": 1,
        "warmup_steps": 1,
        "data": {"shards": f"{shards}/*.tar", "tokenizer": "bytes", "batch_size": 2},
        "dit": {"dim": 32, "depth": 1, "heads": 1, "text_dim": 32, "conv_layers": 1},
        "optimizer": {"lr": 1e-3},
    }
    train(run_config(values))
    train(run_config(values | {"total_steps": 2, "optimizer": {"lr": 2e-3}}))
    said = capsys.readouterr().out
    assert "changed since step 1: optimizer.lr was 0.001, is 0.002" in said
    assert "total_steps was 1, is 2" in said  # schedules depend on it
    meta = json.loads((tmp_path / "step_00000002" / "meta.json").read_text())
    assert meta["run"]["optimizer"]["lr"] == 2e-3
    wider = {"total_steps": 3, "dit": values["dit"] | {"depth": 2}}
    with pytest.raises(CheckpointError, match="tensors missing"):
        train(run_config(values | wider))
    # a message that names tensors alone leaves one to guess which setting it was
    assert "changed since step 2: dit.depth was 1, is 2" in capsys.readouterr().out
    other = {"total_steps": 3, "optimizer": {"name": "muon"}}
    said = (
        r"of optimizer\.name=adamw, .* to take optimizer\.name=muon, .* momentum_buffer.*initial="
    )
    with pytest.raises(CheckpointError, match=said):
        train(run_config(values | other))


def test_a_run_whose_draws_were_keyed_otherwise_goes_on_and_says_so_once(tmp_path, capsys):
    trainer(tmp_path).train(samples(), 2, 2, max_duration=200)
    saved = tmp_path / "step_00000002" / "meta.json"
    meta = json.loads(saved.read_text())
    del meta["draws"]  # as older versions wrote it
    saved.write_text(json.dumps(meta))
    notice = "each sample has draws of its own"
    assert notice not in capsys.readouterr().out
    trainer(tmp_path).train(samples(), 3, 2, max_duration=200)
    said = capsys.readouterr().out
    assert said.count(notice) == 1 and "at step 2" in said
    trainer(tmp_path).train(samples(), 4, 2, max_duration=200)
    said = capsys.readouterr().out
    assert notice not in said and "at step 3" in said


def test_an_optimizer_of_ones_own_that_is_another_is_named(tmp_path):
    trainer(tmp_path).train(samples(), 1, 2, max_duration=200)
    model = speech_model()
    momentum = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    run = NanospeechTrainer(model, momentum, 2, CPU, tmp_path)
    with pytest.raises(CheckpointError, match=r"of AdamW, which keeps exp_avg,.*to take SGD,"):
        run.train(samples(), 2, 2, max_duration=200)


def test_differences_are_found_at_any_depth():
    old, new = {"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 1, "c": [2]}, "e": 3}
    lines = changes(old, new)
    assert lines == ["a.c was [1], is [2]", "d was 2, is absent", "e was absent, is 3"]


def test_a_setting_by_its_older_name_is_no_change():
    old = {"vocoder": {"rounds": 8, "dim": 32}, "vocoder_loss": {"made": 0.5}}
    new = {"vocoder": {"griffin_lim_iters": 8, "dim": 64}, "vocoder_loss": {"synthetic_share": 0.5}}
    assert changes(old, new) == ["vocoder.dim was 32, is 64"]


def test_resume_takes_a_folder_and_refuses_what_is_none(tmp_path):
    trainer(tmp_path / "a").train(samples(), 2, 2, max_duration=200, save_step=1)
    for where in (tmp_path / "a", tmp_path / "a" / "step_00000001"):
        run = trainer(tmp_path / where.name / "b")
        run.train(samples(), 3, 2, max_duration=200, resume=str(where))
        assert run.step == 3
    with pytest.raises(CheckpointError, match=r"auto, never, a run's folder"):
        trainer(tmp_path / "c").train(samples(), 3, 2, max_duration=200, resume="nowhere")


def test_old_weights_alone_are_not_overwritten_in_silence(tmp_path):
    torch.save({"model_state_dict": speech_model().state_dict()}, tmp_path / "step_00000009.pt")
    with pytest.raises(CheckpointError, match="no checkpoint folder to go on from"):
        trainer(tmp_path).train(samples(), 1, 2, max_duration=200)


def test_sigterm_saves_and_ends_the_run(tmp_path, shards):
    (run,) = start(1, tmp_path, shards, 100_000, 100_000)
    end = time.monotonic() + 200
    while time.monotonic() < end and not (tmp_path / "log.csv").exists():
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    out = finish([run])
    assert "SIGTERM at step" in out
    (saved,) = tmp_path.glob("step_????????")
    assert (tmp_path / "latest").read_text().strip() == saved.name


def test_a_run_started_afresh_keeps_its_own_checkpoints_and_the_old_ones(tmp_path, capsys):
    trainer(tmp_path, keep=2).train(samples(), 6, 2, max_duration=200, save_step=2)
    trainer(tmp_path, keep=2).train(samples(), 2, 2, max_duration=200, resume="never")
    told = capsys.readouterr().out
    assert f"4 checkpoints and exports are now in {tmp_path / 'before_1'}" in told
    assert (tmp_path / "latest").read_text().strip() == "step_00000002"
    assert (tmp_path / "step_00000002" / "meta.json").is_file()
    old = {p.name for p in (tmp_path / "before_1").iterdir()}
    assert old == {"log.csv"} | {f"step_0000000{n}{e}" for n in (4, 6) for e in ("", ".pt")}
    # going back to an earlier step of the same run is much the same
    again = trainer(tmp_path, keep=3)
    again.train(samples(), 5, 2, max_duration=200, save_step=1)
    back = trainer(tmp_path, keep=3)
    back.train(samples(), 4, 2, max_duration=200, resume=str(tmp_path / "step_00000003"))
    assert (tmp_path / "latest").read_text().strip() == "step_00000004"
    assert (tmp_path / "before_2" / "step_00000005").is_dir()
    assert "exports beyond step 3 are now in" in capsys.readouterr().out
    assert [step for step, _ in losses(tmp_path)] == [1, 2, 3, 4]


def test_an_error_before_the_first_step_does_not_hang_on_to_the_progress_bar(tmp_path, capsys):
    for name, number in (("two", 2), ("three", 3)):
        (tmp_path / name).mkdir()
        write_shards(tmp_path / name, number)
    data, plan = str(tmp_path / "two" / "*.tar"), {"max_duration": 200, "resume": "auto"}
    trainer(tmp_path / "run").train(data, 1, 2, **plan)
    capsys.readouterr()
    with pytest.raises(DataError, match="2 shards and there are 3 now") as raised:
        trainer(tmp_path / "run").train(data.replace("two", "three"), 2, 2, **plan)
    assert raised.traceback  # whose frames hold the bar, as while the error is printed
    assert capsys.readouterr().err.endswith("\n")


def test_tokens_never_take_the_rows_of_others(tmp_path):
    trainer(tmp_path).train(samples(), 1, batch_size=2, max_duration=200)
    model = speech_model()
    swapped = [*list(VOCAB)[:-2], *list(VOCAB)[:-3:-1]]  # as many tokens: no size differs
    model.tokenizer = partial(list_str_to_vocab_tensor, vocab={t: i for i, t in enumerate(swapped)})
    with pytest.raises(CheckpointError, match=r"another vocabulary.*token 54 was 'y', is 'z'"):
        trainer(tmp_path, model).train(samples(), 2, batch_size=2, max_duration=200)
    trainer(tmp_path).train(samples(), 2, batch_size=2, max_duration=200)


def test_what_a_run_left_out_is_told_of_all_its_processes(tmp_path):
    """As the first of them alone had it, it was half of that."""
    each = [Forked(train_beside_bad_samples, tmp_path, env=env) for env in ranks(2)]
    told = [line for line in finish(each).splitlines() if "samples left out" in line]
    total = sum(int(line.split(": ")[1].split()[0]) for line in told[:-1])
    assert total % 2 == 0 < total and told[-1] == f"samples left out: {total} without text"
