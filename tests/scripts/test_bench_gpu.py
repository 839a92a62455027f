"""The GPU's benchmark at a tiny size: every cell has figures, and a bad one ends nothing."""

from __future__ import annotations

import argparse
import json

import pytest

from scripts.benchmarks import gpu as bench_gpu
from scripts.benchmarks.gpu_parts import attending, correctness, searching


def options(*given: str) -> argparse.Namespace:
    return bench_gpu.parser().parse_args(["--tiny", "--cpu", *given])


def test_every_cell_has_figures_and_the_last_line_is_one_document(capsys):
    assert bench_gpu.main(["--tiny", "--cpu", "--timeout", "600", "--minutes", "60"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    cells = {(c["group"], c["name"]): c for c in document["cells"]}
    assert [c for c in cells.values() if c["status"] != "ok"] == []
    groups = {group for group, _ in cells}
    assert groups >= {"correctness", "search", "attention", "mask", "compile", "speaking"}
    step = cells["compile", "82M, off"]
    assert step["mfu"] > 0 and step["frames_per_second"] > 0 and step["peak_memory"] > 0
    found = cells["correctness", "CPU against device"]
    assert found["CPU against device"]["gradient"] < 1e-3
    assert cells["speaking", "82M, eager and compiled"]["eager"]["rtf"] > 0
    assert {"hardware", "versions", "command"} <= document.keys()


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


@pytest.mark.parametrize("part", [correctness, searching, attending])
def test_parts_say_what_they_found(part):
    assert json.loads(json.dumps(part("cpu", True)))
