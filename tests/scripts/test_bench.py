"""Benchmarks of speaking: all cells are measured in turn, whatever becomes of one of them."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nanospeech import SampleOptions
from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.release.folder import DEFAULT, open_release
from scripts.benchmarks import cost, cost_report
from scripts.benchmarks import model as bench_model
from scripts.benchmarks import plan as bench_plan
from scripts.benchmarks import report as bench_report
from scripts.benchmarks import speech as bench_speech
from scripts.benchmarks import speech_cli as bench
from scripts.benchmarks import undo as bench_undo
from scripts.benchmarks.report import Result
from scripts.benchmarks.speech import Cell
from scripts.benchmarks.turns import turns
from tests.conftest import needs

ROOT = Path(__file__).parents[2]
TINY = """
model: speech
dit: {dim: 64, depth: 2, heads: 1, dim_head: 64, text_dim: 32, conv_layers: 1}
vocoder: {dim: 32, intermediate_dim: 64, num_layers: 1}
"""
# writes so many seconds of silence
SILENCE = (
    "import sys, wave; f = wave.open(sys.argv[2], 'wb'); f.setparams((1, 2, 8000, 0, 'NONE', ''));"
    " f.writeframes(bytes(16000 * int(sys.argv[1])))"
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def random_folder(recipe, tmp_path_factory) -> Path:
    pytest.importorskip("yaml")
    return bench_model.random_release(recipe, tmp_path_factory.mktemp("random") / "model")


def silence(name: str, seconds: int = 1) -> Cell:
    words = (sys.executable, "-c", SILENCE, str(seconds), "{out}")
    return Cell(name=name, kind="command", command=words)


def last_line(out: str) -> dict:
    return json.loads(out.splitlines()[-1])


def check_spread(found: dict, count: int) -> None:
    assert 0 < found["low"] <= found["median"] <= found["high"] and found["count"] == count


@pytest.mark.slow
def test_every_cell_has_paired_figures_and_a_failed_one_says_why(tiny_release, capsys):
    for backend in ("torch", "mlx"):
        needs(backend)
    command = [str(tiny_release), "--backend", "both", "--seconds", "1", "--repeats", "1"]
    command += ["--threads", "1", "--steps", "2", "--timeout", "300", "--row"]
    quoted = f'"{SILENCE}"'
    command += ["--external", f"quiet={sys.executable} -c {quoted} 2 {{out}}"]
    command += ["--external", "broken=false {text} {out}"]
    assert bench.main(command) == 1
    out = capsys.readouterr().out
    document = last_line(out)
    *ours, quiet, broken = document["cells"]
    assert [c["about"]["backend"] for c in ours] == ["torch", "mlx"]
    for cell in ours:
        assert cell["status"] == "ok" and cell["resident"] > 10e6 and cell["peak_memory"] > 0
        figures = cell["figures"]
        for name in ("rtf", "rtf_cpu", "rtf_speech", "rtf_vocoder", "first_audio"):
            check_spread(figures[name], 1)
        for name in ("cold_start", "help"):
            check_spread(figures[name], 1)
        assert figures["rtf_speech"]["median"] < figures["rtf"]["high"]
        assert figures["audio_seconds"]["low"] == figures["audio_seconds"]["high"] > 0
    assert quiet["figures"]["audio_seconds"]["median"] == pytest.approx(2)
    assert broken["status"] == "error" and broken["note"] and not broken["figures"]
    for pair in document["ratios"]:
        check_spread(pair["first"], 1)
    assert [pair["cell"] for pair in document["ratios"]] == [ours[1]["name"], "quiet"]
    assert {"command", "hardware", "versions", "date"} <= document.keys()
    rows = [line for line in out.splitlines() if line.startswith("| ")]
    assert len(rows) == 5 and len({row.count("|") for row in rows}) == 1
    assert all(row.endswith(f"{document['date']} |") for row in rows[1:])


@pytest.mark.slow
def test_rungs_of_a_ladder_are_measured_from_upstreams_settings_to_ours(recipe, tmp_path):
    """The first, the last and one between, each in a process of its own."""
    needs("torch")
    words = ["--random", recipe, "--ladder", "--backend", "torch", "--seconds", "1"]
    results = bench.plan(bench.parser().parse_args([*words, "--threads", "1"]), tmp_path)
    assert len(results) == 11
    turns(some := results[:9:4], 1, 300, lambda _: None)
    for cell in (r.document() for r in some):
        check_spread(cell["figures"]["rtf"], 1)
        # the prompt's seconds count, as in the figure that is to be beaten
        assert cell["figures"]["audio_seconds"]["median"] == pytest.approx(1, abs=0.01)
        assert "rtf_vocoder" not in cell["figures"]
    pairs = bench_report.all_ratios(some)
    assert len(pairs) == 2
    for pair in pairs:
        check_spread(pair["above"], 1)


def test_compiled_or_not_is_a_list_like_others():
    asked = ["--backend", "torch", "--compile", "off,on", "--batch", "1,4"]
    cells = bench_plan.speaking(bench.parser().parse_args(asked))
    assert [(c.compile, c.batch) for c in cells] == [(False, 1), (False, 4), (True, 1), (True, 4)]
    assert ["not compiled" in c.name for c in cells] == [True, True, False, False]
    assert ["--compile" in bench_plan.cold_start(c).command for c in cells] == [
        c.compile for c in cells
    ]
    (plain,) = bench_plan.speaking(bench.parser().parse_args(["--backend", "torch"]))
    assert plain.compile is None and "compiled" not in plain.name
    with pytest.raises(SystemExit):
        bench.parser().parse_args(["--compile", "perhaps"])


def test_rungs_of_the_ladder_begin_at_upstreams_defaults_and_end_at_ours():
    needs("torch")
    needs("mlx")
    args = bench.parser().parse_args(["--backend", "both", "--threads", "1,2"])
    rungs = bench_plan.ladder(args, whole=True)
    torch, mlx = ([c for c in rungs if c.backend == b] for b in ("torch", "mlx"))
    assert [c.compile for c in mlx].count(True) >= 1 and not any(c.compile for c in torch)
    first, euler, together = torch[:3]
    assert first.options == bench_plan.AS_UPSTREAM and first.dtype == "float32"
    assert set(first.without) == set(bench_undo.UNDO)
    strength = first.options["cfg_strength"]
    assert SampleOptions(**euler.options) == SampleOptions(cfg_strength=strength)
    assert set(euler.without) - set(together.without) == {"guidance in one call"}
    for rungs_of, undone in ((torch, bench_undo.UNDO), (mlx, mlx[0].without)):
        assert len(rungs_of) == 7 + len(undone) + (rungs_of is mlx)
        counts = [len(c.without) for c in rungs_of]
        assert counts == sorted(counts, reverse=True) and counts[-5:] == [0, 0, 0, 0, 0]
        assert [c.threads for c in rungs_of[-5:]] == [1, 2, 2, 2, 2]
        assert [c.options.get("steps") for c in rungs_of[-3:]] == [None, 4, 2]
    few = bench_plan.ladder(args, whole=False)
    assert few and not any(c.without or c.options.get("method") == "rk4" for c in few)
    assert all(c.options["cfg_strength"] for c in few)
    assert {c.dtype for c in few} == {"float32", "bfloat16"}


@pytest.mark.parametrize("name", bench_undo.UNDO)
def test_what_is_undone_says_the_same(backend, random_folder, name, monkeypatch):
    """The rungs of the ladder compute the same mel."""
    if name in bench_undo.TORCH_CPU and backend != "torch":
        pytest.skip("PyTorch's alone")
    if backend == "torch":
        from nanospeech_torch import inference_cpu, layers

        for at in ("attention", "modulated", "gated"):  # put back what is undone
            monkeypatch.setattr(layers, at, getattr(layers, at))
        monkeypatch.setattr(layers.Conv1d, "forward", layers.Conv1d.forward)
        monkeypatch.setattr(inference_cpu, "speaks", inference_cpu.speaks)
    cell = Cell(kind="sample", model=str(random_folder), backend=backend, device="cpu")
    cell = replace(cell, seconds=1.0, prompt_seconds=0.3, options={"cfg_strength": 2.0, "steps": 2})
    mels = []
    for without in ((), (name,)):
        work = bench_speech.Sampling(replace(cell, without=without))
        mels.append(work.engine.sample(*work.arguments, work.options, **work.known))
    assert np.isfinite(mels[0]).all()
    np.testing.assert_allclose(mels[0], mels[1], atol=1e-3)


def test_random_weights_are_those_of_their_recipe(random_folder, engine_of, backend):
    config = open_release(random_folder).config
    assert (config.dit.dim, config.dit.text_upsampling, config.tokenizer) == (64, "none", "bytes")
    mel = np.zeros((1, 4, 100), np.float32)
    assert np.isfinite(engine_of(random_folder, backend).vocode(mel)[0]).all()
    with pytest.raises(InputError, match="82M"):
        bench_model.sizes("83M")
    with pytest.raises(InputError, match="duration"):
        bench_model.sizes("duration")
    published = bench_model.sizes(bench_model.PUBLISHED)
    assert published.dit == replace(ModelConfig().dit, text_num_embeds=256)


def test_cells_are_measured_in_turn_and_one_that_fails_leaves_the_others():
    said: list[str] = []
    gone = Cell(name="gone", kind="command", command=("no/such/program",))
    mute = Cell(name="mute", kind="command", command=(sys.executable, "-c", "", "{out}"))
    lost = Cell(name="lost", kind="speak", model="no/such/model", texts=("Hi.",))
    results = [Result(c) for c in (silence("a"), gone, mute, lost, silence("b", 3))]
    turns(results, 3, 300, said.append)
    rounds = [line.split(":")[0] for line in said if line.startswith("round")]
    assert rounds == [f"round {n} of 3, {name}" for n in (1, 2, 3) for name in ("a", "b")]
    notes = {r.cell.name: r.note for r in results}
    assert not notes["a"] and not notes["b"] and "cannot run no/such/program" in notes["gone"]
    assert "no sound" in notes["mute"] and "no/such/model" in notes["lost"]
    a, b = results[0], results[-1]
    check_spread(bench_report.ratios(a, b) or {}, 3)
    assert a.figures["audio_seconds"] == {0: 1.0, 1: 1.0, 2: 1.0}
    assert b.figures["rtf"] == {n: s / 3 for n, s in b.figures["seconds"].items()}


def test_a_cell_that_hangs_is_ended():
    words = (sys.executable, "-c", "import time; time.sleep(999)")
    (result,) = results = [Result(Cell(name="slow", kind="command", command=words))]
    turns(results, 1, 0.5, lambda _: None)
    assert result.note == "not done in 0.5 s"


def test_interrupted_it_tells_what_it_has(random_folder):
    needs("mlx")
    from tests.forked import Forked, module

    words = ["scripts.benchmarks.speech_cli", str(random_folder), "--backend", "mlx"]
    words += ["--seconds", "1", "--steps", "1", "--repeats", "100000", "--no-cold"]
    process = Forked(module, *words, env={})
    while process.poll() is None and "\nround 3" not in Path(process.output).read_text():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    document = last_line(out)
    assert document["interrupted"] and document["cells"][0]["figures"]["rtf"]["count"] >= 3


def test_help_needs_no_backend():
    code = (
        "import sys; from scripts.benchmarks.speech_cli import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'torch', 'mlx.core'} & sys.modules.keys()"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0 and "--upstream" in shown.stdout, shown.stderr


@pytest.mark.parametrize("name", ["speech", "parts", "upstream_sample", "upstream", "worker"])
def test_a_worker_tells_of_itself_on_a_command_line(name):
    command = [sys.executable, "-m", f"scripts.benchmarks.{name}"]
    told = {}
    for flag in ("--help", "--wrong"):
        done = subprocess.run([*command, flag], cwd=ROOT, capture_output=True, text=True)
        told[flag] = done.returncode, done.stdout, done.stderr
    text = (ROOT / f"scripts/benchmarks/{name}.py").read_text("utf-8")
    about = f"{ast.get_docstring(ast.parse(text))}\n"
    assert told == {"--help": (0, about, ""), "--wrong": (2, "", about)}


@pytest.mark.parametrize(
    "flags",
    [
        ["--repeats", "0"],
        ["--seconds", "0.5"],
        ["--dtype", "int8"],
        ["--external", "nothing"],
        ["--texts", "no/such/file"],
        ["MODEL", "--random", "82M"],
        ["--random", "83M"],
    ],
)
def test_bad_input_is_one_line(flags, capsys):
    assert bench.main(flags) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_spreads_are_medians_and_quartiles():
    assert bench_report.spread([]) is None
    assert bench_report.spread([2.0]) == {"median": 2.0, "low": 2.0, "high": 2.0, "count": 1}
    assert bench_report.spread([5.0, 1.0, 2.0, 4.0, 3.0]) == {
        "median": 3.0,
        "low": 2.0,
        "high": 4.0,
        "count": 5,
    }
    a, b = Result(Cell()), Result(Cell())
    for number, (x, y) in enumerate([(1.0, 2.0), (2.0, 4.0), (6.0, 3.0)]):
        a.add(number, {"seconds": x, "audio_seconds": 1.0})
        if number != 1:  # a round that only one of them has is no pair
            b.add(number, {"seconds": y, "audio_seconds": 1.0})
    found = bench_report.ratios(a, b)
    assert found is not None and found["count"] == 2 and found["median"] == 1.25


@pytest.mark.parametrize("fields", [{}, {"text_upsampling": "aligned", "patch_size": 2}])
def test_the_floor_counts_the_operations_that_torch_does(fields, make_release):
    needs("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    folder = make_release(**fields, depth=3)
    cell = Cell(kind="sample", model=str(folder), backend="torch", device="cpu", vocode=True)
    cell = replace(cell, seconds=2.0, prompt_seconds=0.5, options={"steps": 3}, batch=2)
    work = bench_speech.Sampling(cell)
    # the counter does not know the CPU's fused attention
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work.measure()
    counted = sum(cost.operations(cell, work.engine.config))
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_passes_count_guidance_twice():
    assert cost.passes(SampleOptions(steps=5), 3.0) == 10
    assert cost.passes(SampleOptions(steps=5), 0.0) == 5
    assert cost.passes(SampleOptions(steps=5, method="rk4"), 3.0) == 40
    assert 5 < cost.passes(SampleOptions(steps=5, cfg_until=0.1), 3.0) < 10
    assert cost.passes(SampleOptions(), 0.0, steps=2) == 2


def planned(*flags: str) -> cost.Point:
    """The one point of lengths that a command line of the cost benchmark measures."""
    args = cost.parser().parse_args(["--backend", "onnx", "--sweeps", "length", *flags])
    args.prompt, args.new, args.lengths = 1.0, 2.0, (2.0,)
    args.prompts = args.batches = args.texts = ()
    (point,) = cost.points("length", args, {"": str(DEFAULT)})
    return point


def test_a_model_with_a_student_costs_what_the_student_does():
    needs("torch")
    needs("onnx")
    student, itself = planned(), planned("--itself")
    assert student.result.cell.network == "student" and itself.result.cell.network == "model"
    (ours, _), (whole, _) = (cost.operations(p.result.cell, p.config) for p in (student, itself))
    assert 6 < whole / ours < 7.5  # 14 forwards beside 2; text states are computed once in both


@pytest.mark.slow
def test_onnx_has_points_with_floors_and_no_parts(random_folder, tmp_path, capsys):
    needs("torch")
    needs("onnx")
    pytest.importorskip("matplotlib")
    command = [str(random_folder), "--quick", "--backend", "onnx", "--sweeps", "length"]
    assert cost.main([*command, "--threads", "1", "--out", str(tmp_path)]) == 0
    document = last_line(capsys.readouterr().out)
    assert [p["at"] for p in document["points"]] == list(cost.QUICK.lengths)
    assert all(p["floor"] > 0 and p["figures"]["rtf"]["median"] > 0 for p in document["points"])
    assert document["profiles"] == []


@pytest.mark.slow
def test_what_speech_costs_is_drawn_beside_its_floor(random_folder, tmp_path, capsys):
    needs("mlx")
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{cost_report.BEGIN}\nold\n{cost_report.END}\nafter\n")
    command = [str(random_folder), "--quick", "--backend", "mlx", "--sweeps", "length,many,text"]
    command += ["--threads", "1", "--out", str(tmp_path / "cost"), "--doc", str(page)]
    assert cost.main(command) == 0
    document = last_line(capsys.readouterr().out)
    lengths = [p for p in document["points"] if p["sweep"] == "length"]
    assert [p["at"] for p in lengths] == list(cost.QUICK.lengths)
    for point in document["points"]:
        check_spread(point["figures"]["rtf"], 1)
    assert all(p["floor"] > 0 for p in lengths)
    (text,) = [p for p in document["points"] if p["sweep"] == "text"]
    assert text["at"] == 1 and text["floor"] is None and text["resident"] > 0
    (profile,) = document["profiles"]
    assert sum(profile["parts"].values()) == pytest.approx(1)
    assert profile["parts"]["attention"] > 0 and profile["parts"]["vocoder"] > 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    for name in cost_report.PICTURES:
        assert (tmp_path / "cost" / name).read_bytes().startswith(b"\x89PNG")
        assert text.count(f"](cost/{name})") == 1


@pytest.mark.slow
def test_the_time_of_pytorch_is_shared_out_by_part_and_by_kind(random_folder):
    needs("torch")
    cell = Cell(model=str(random_folder), backend="torch", device="cpu", vocode=True, threads=1)
    cell = replace(cell, seconds=1.0, prompt_seconds=0.3)
    results = [Result(replace(cell, kind=k, name=k)) for k in ("parts", "kinds")]
    turns(results, 1, 300, lambda _: None)
    for result, largest in zip(results, ("feed-forward", "matrix products")):
        assert not result.note
        shares = cost_report.shares(result)
        assert sum(shares.values()) == pytest.approx(1) and shares[largest] > 0
