"""Benchmarks of training: they measure, search and survive what does not fit."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanospeech.config import AudioConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import EchoConfig
from scripts.benchmarks import cells as bench_cells
from scripts.benchmarks import train as bench_train
from scripts.benchmarks.worker import Spec
from scripts.benchmarks.worker import run as work

TINY = """
model: speech
mixed_precision: "no"
data: {batch_size: 4, max_batch_frames: 200, max_duration: 64}
dit: {dim: 64, depth: 2, heads: 2, dim_head: 32, text_dim: 32, conv_layers: 1, dropout: 0.0}
"""
COMMON = ["--steps", "2", "--last", "1", "--cpu", "--threads", "1", "--timeout", "300"]


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return str(path)


def last_line(capsys: pytest.CaptureFixture) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_last_line_is_one_document_with_figures_and_surroundings(config, capsys, monkeypatch):
    monkeypatch.setattr(
        bench_train, "run_cell", lambda spec, timeout: work(spec)
    )  # in this process
    assert bench_train.main(["--config", config, *COMMON]) == 0
    document = last_line(capsys)
    result = document["result"]
    assert result["status"] == "ok" and document["spec"]["batch"] == 3  # 200 frames // 64
    assert result["frames_per_second"] == pytest.approx(3 * 64 / result["seconds_per_step"])
    assert result["audio_seconds_per_second"] == pytest.approx(result["frames_per_second"] / 93.75)
    assert result["mfu"] == pytest.approx(
        100 * result["flops_per_step"] / result["seconds_per_step"] / result["peak_flops"]
    )
    assert result["peak_memory"] > 50e6 and "measured" in result["peak_source"]
    assert {"command", "hardware", "versions", "date"} <= document.keys()
    assert "scripts.benchmarks.train" in document["command"] and document["versions"]["torch"]


ECHO = """
model: echo
mixed_precision: "no"
data: {batch_size: 3, tokenizer: bytes}
echo: {latent_dim: 16, dim: 64, depth: 2, heads: 2, ff_dim: 176, text_dim: 32, text_heads: 2,
  TEXT, speaker_dim: 32, speaker_depth: 1, speaker_heads: 2, speaker_ff_dim: 88, time_dim: 32,
  adaln_rank: 8, max_latents: 24, max_text: 8, max_speaker: 16}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("text_input: 48", "1x1x1"),
        ("text_depth: 1, text_ff_dim: 88", "1x1x2,1x2x1"),
    ],
)
def test_an_echodit_is_measured_alone_and_split(tmp_path, capsys, text, split):
    pytest.importorskip("matplotlib")
    path = tmp_path / "echo.yaml"
    path.write_text(ECHO.replace("TEXT", text), encoding="utf-8")
    command = ["--config", str(path), *COMMON, "--out", str(tmp_path / "out")]
    assert bench_train.main([*command, "--ablate", f"parallel={split}"]) == 0
    document = last_line(capsys)
    network = EchoConfig(**document["spec"]["config"])
    for cell, parts in zip(document["cells"], split.split(",")):
        assert cell["status"] == "ok", cell
        items = 3 * (2 if parts == "1x2x1" else 1)  # each shard has a batch of its own
        assert cell["frames_per_second"] == pytest.approx(items * 24 / cell["seconds_per_step"])
        rate = AudioConfig(48_000, hop_length=1920).frame_rate
        seconds = cell["frames_per_second"] / rate
        assert cell["audio_seconds_per_second"] == pytest.approx(seconds)
        assert cell["mfu"] > 0
    assert document["spec"]["tokens"] == network.max_text == 8


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory")
def test_a_grid_survives_cells_that_run_out_of_memory_and_goes_on_from_its_table(
    config, capsys, tmp_path
):
    pytest.importorskip("matplotlib")
    out = tmp_path / "grid"
    command = ["--config", config, *COMMON, "--memory", "3", "--out", str(out)]
    command += ["--ablate", "batch=100000,2"]
    assert bench_train.main(command) == 0
    cells = last_line(capsys)["cells"]
    assert [c["status"] for c in cells] == ["oom", "ok"]
    with open(out / "cells.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [r["batch"] for r in rows] == ["100000", "2"]
    assert (out / "cells.png").stat().st_size > 1000
    before = (out / "cells.csv").read_bytes()
    assert bench_train.main(command) == 0  # nothing is run again
    assert (out / "cells.csv").read_bytes() == before


def test_a_cell_that_fails_or_hangs_is_a_row_of_its_own():
    @dataclass
    class Unknown(Spec):
        colour: str = "red"

    spec = Spec(config={"dim": 64, "heads": 0}, steps=1, cpu=True)
    with pytest.raises(CheckpointError, match="heads"):
        work(spec)
    failed = bench_cells.run_cell(Unknown(), 300)
    assert failed["status"] == "error" and "colour" in failed["note"]
    assert bench_cells.run_cell(spec, 0.01)["status"] == "timeout"


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 8, 13, 100, 4096])
def test_the_search_finds_the_largest_batch_with_few_trials(limit: int):
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        return batch <= limit

    assert bench_cells.largest(fits) == limit
    assert len(tried) == len(set(tried)) and len(tried) <= 2 * max(1, limit).bit_length() + 1


def test_a_grid_is_every_combination():
    grid = bench_cells.parse_grid(["checkpoint=0,ops", "parallel=1x1x1,2x1x1", "precision=bf16"])
    found = bench_cells.cells(Spec(), grid)
    assert [(s.checkpoint_ops, s.processes) for _, s in found] == [
        (False, 1),
        (False, 2),
        (True, 1),
        (True, 2),
    ]
    assert all(s.precision == "bf16" for _, s in found)


@pytest.mark.parametrize("choice", ["batch", "colour=red", "batch=many", "parallel=2"])
def test_what_a_grid_cannot_mean_is_an_error(choice: str):
    with pytest.raises(InputError, match="ablate"):
        bench_cells.cells(Spec(), bench_cells.parse_grid([choice]))
