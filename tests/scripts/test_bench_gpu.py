"""The GPU's benchmark at a tiny size: every cell has figures, and a bad one ends nothing."""

from __future__ import annotations

import argparse
import json
from functools import partial

from nanospeech_torch.train.objectives import alignment as search
from scripts.benchmarks import gpu as bench_gpu
from scripts.benchmarks import worker
from scripts.benchmarks.gpu_parts import PARTS

TRAINING = {"mask", "compile", "search in a step", "echo"}


def options(*given: str) -> argparse.Namespace:
    return bench_gpu.parser().parse_args(["--tiny", "--cpu", *given])


def test_the_last_line_is_one_document_with_a_row_for_each_cell(capsys, monkeypatch):
    """One cell of each kind: a training step, and a part in a process of its own."""
    monkeypatch.setattr(bench_gpu, "run_cell", lambda spec, timeout: worker.run(spec))
    argv = ["--tiny", "--cpu", "--timeout", "600", "--minutes", "60", "--only", "compile", "search"]
    assert bench_gpu.main(argv) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {c["group"]: c for c in document["cells"]}
    assert [c["status"] for c in document["cells"]] == ["ok", "ok"]
    assert rows["search"]["name"] == "loop and kernel" and rows["search"]["loop"] > 0
    step = rows["compile"]
    assert step["name"] == "82M, off"
    assert step["mfu"] > 0 and step["frames_per_second"] > 0 and step["peak_memory"] > 0
    assert {"hardware", "versions", "command"} <= document.keys()


def test_every_training_cell_has_figures(monkeypatch):
    """In this process, for all of them."""
    monkeypatch.setattr(search, "kernel", search.kernel)  # put back what a cell takes away
    cells = [c for c in bench_gpu.plan(options()) if isinstance(c.run, partial)]
    assert {c.group for c in cells} == TRAINING
    for cell in cells:
        row = worker.run(*cell.run.args)
        assert row["status"] == "ok" and row["mfu"] > 0 and row["seconds_per_step"] > 0, cell.name


def test_every_part_has_figures():
    found = {name: json.loads(json.dumps(part("cpu", True))) for name, part in PARTS.items()}
    groups = {c.group for c in bench_gpu.plan(options())}
    assert found.keys() == groups - TRAINING
    assert found["correctness"]["CPU against device"]["gradient"] < 1e-3
    assert found["speaking"]["eager"]["rtf"] > 0 and found["search"]["loop"] > 0
    assert all(t > 0 for row in found["attention"]["rows"] for t in row["seconds"].values())


def test_a_cell_that_fails_and_one_without_time_are_rows(monkeypatch):
    def broken(timeout):
        raise ZeroDivisionError("by nothing")

    def plan(args):
        yield bench_gpu.Cell("a", "broken", broken)
        yield bench_gpu.Cell("a", "unknown part", bench_gpu.part("nothing", args))
        yield bench_gpu.Cell("a", "hangs", lambda timeout: bench_gpu.part("search", args)(0.01))

    monkeypatch.setattr(bench_gpu, "plan", plan)
    rows = bench_gpu.measure(options())
    assert [r["status"] for r in rows] == ["error", "error", "timeout"]
    assert "by nothing" in rows[0]["note"] and "nothing" in rows[1]["note"]
    assert {r["status"] for r in bench_gpu.measure(options("--minutes", "0"))} == {"skipped"}


def test_at_full_size_both_models_are_measured_in_every_way():
    args = bench_gpu.parser().parse_args([])
    names = {(c.group, c.name) for c in bench_gpu.plan(args)}
    for model in ("82M", "800M"):
        assert {("compile", f"{model}, {mode}") for mode in bench_gpu.MODES} <= names
        assert {("mask", f"{model}, masked"), ("mask", f"{model}, no mask")} <= names
        assert sum(group == "shapes" and name.startswith(model) for group, name in names) == 2
    spec = bench_gpu.training("800M", (4, 937), args)
    assert spec.config["depth"] == 24 and spec.precision == "bf16" and spec.frames == 937
