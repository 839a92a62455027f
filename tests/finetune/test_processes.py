"""Finetuning in several processes: they divide each step's batch."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from nanospeech_torch.finetune import __main__ as finetune
from nanospeech_torch.train.initial import load_objective
from tests.forked import Forked, finish, ranks
from tests.training import samples


def training(base: Path, run: Path) -> None:
    """What a process of a finetune does, once the recordings are prepared."""
    args = argparse.Namespace(precision="no", run=run)
    options = finetune.Options(steps=1, lr=1e-4, batch_size=6, batch_frames=1200)
    finetune.train(args, options, load_objective(base), None, samples())


def test_processes_divide_the_batch(tiny_release, tmp_path):
    said = finish([Forked(training, tiny_release, tmp_path, env=env) for env in ranks(2)])
    assert "2 x cpu, each with batches of up to 3 samples and 600 frames" in said


def test_every_option_has_a_flag_that_torchrun_leaves_alone(capsys):
    run = pytest.importorskip("torch.distributed.run")
    for action in finetune.build_parser()._actions:
        for flag in action.option_strings:
            try:
                args = run.parse_args(["-m", "nanospeech", "finetune", flag])
            except SystemExit:
                continue
            if args.training_script_args == ["finetune", flag]:
                break
        else:
            assert action.dest == "help", action.option_strings
