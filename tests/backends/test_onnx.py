"""ONNX Runtime's engine: eight bits, devices, threads, what it refuses and does without."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from convert.__main__ import main as convert_main
from convert.folder import GRAPHS
from nanospeech.architectures import BITS, StudentConfig
from nanospeech.config import DiTConfig, ModelConfig, QuantizationConfig
from nanospeech.errors import BackendError, CheckpointError, InputError
from nanospeech.latent_architectures import EchoConfig
from nanospeech.load import find_backend, load_engine, open_release, pick_backend
from nanospeech_mlx.backend import MlxBackend
from nanospeech_onnx import eight_bits, layers, session
from nanospeech_onnx.dit import DiT
from nanospeech_onnx.engine import OnnxEngine
from nanospeech_onnx.export import check_exported, export
from nanospeech_onnx.graph import BATCH, TOKENS, Graph
from nanospeech_onnx.networks import SpeechGraphs
from nanospeech_torch import backend as torch_backend

ROOT = Path(__file__).parents[2]


def velocity(engine, arrays):
    a = arrays
    return engine.velocity(a["x"], a["cond"], a["text_ids"], a["time"], lens_B=a["lens"])


def test_eight_bits_come_near(tiny_release, engine_of, arrays):
    truth = velocity(engine_of(tiny_release, "onnx"), arrays)
    engine = load_engine(tiny_release, "onnx", dtype="int8")
    assert engine.dtype == "int8"
    apart = velocity(engine, arrays) - truth
    assert 1e-4 < np.linalg.norm(apart) / np.linalg.norm(truth) < 0.03


@pytest.fixture
def processor(monkeypatch):
    """processor(machine, *flags): as if this were another one."""

    def set_to(machine, *flags):
        monkeypatch.setattr(eight_bits.platform, "machine", lambda: machine)
        monkeypatch.setattr(eight_bits, "processor_flags", lambda: set(flags))
        eight_bits.largest_code.cache_clear()

    yield set_to
    eight_bits.largest_code.cache_clear()


def test_two_products_stay_within_16_bits_where_the_processor_adds_so(processor):
    for machine, *flags in (("x86_64", "avx2"), ("AMD64",), ("x86_64", "avx512f", "avx512bw")):
        processor(machine, *flags)
        assert 2 * 255 * eight_bits.largest_code() < 1 << 15
    for machine, *flags in (("x86_64", "avx_vnni"), ("x86_64", "avx512_vnni"), ("arm64",)):
        processor(machine, *flags)
        assert eight_bits.largest_code() == 127


def test_eight_bits_come_near_without_vnni(tiny_release, engine_of, arrays, processor):
    truth = velocity(engine_of(tiny_release, "onnx"), arrays)
    processor("x86_64", "avx2")
    apart = velocity(load_engine(tiny_release, "onnx", dtype="int8"), arrays) - truth
    assert 1e-4 < np.linalg.norm(apart) / np.linalg.norm(truth) < 0.04


def test_codes_and_scales_are_of_each_output(processor):
    processor("arm64")
    weight = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float16)
    weight[3] *= 100
    weight[4] = 0
    codes, scales = eight_bits.int8_codes(weight), eight_bits.int8_scales(weight)
    assert codes.dtype == np.int8 and codes.shape == (64, 5)
    assert np.abs(codes).max(0).tolist() == [127, 127, 127, 127, 0]
    assert np.all(np.abs(codes.T * scales[:, None] - weight) <= scales[:, None] * 0.5001)


def test_layers_of_a_graph_compute_what_they_say():
    net, graph = layers.Mish(), Graph("mish")
    graph.output("y", net(graph.input("x", (BATCH, TOKENS))))
    x = np.linspace(-30, 100, 131, dtype=np.float32)[None]  # e^50 squared is no float32
    (y,) = session.Place().session(graph, {})(x=x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, wide * np.tanh(np.log1p(np.exp(wide))), rtol=1e-5, atol=1e-6)
    net, graph = layers.Conv1d(6, 3, dim_out=8), Graph("convolution")
    list(net.parameters())  # which names them
    assert net(graph.input("x", (BATCH, TOKENS, 6))).shape == (BATCH, TOKENS, 8)


@pytest.mark.parametrize("sizes", [(BATCH, TOKENS, 6), (BATCH, 6)], ids=len)
@pytest.mark.parametrize("bias", [True, False])
def test_products_take_weights_as_they_are_stored_without_a_copy(sizes, bias):
    layer, rng = layers.Linear(6, 4, bias), np.random.default_rng(0)
    stored = {p.name: rng.standard_normal(p.shape).astype("f") for p in layer.parameters()}
    x, made = rng.standard_normal((2, 5, 6)[-len(sizes) :]).astype("f"), []
    for as_stored in (True, False):
        graph = Graph("linear", as_stored=as_stored)
        graph.output("y", layer(graph.input("x", sizes)))
        made += session.Place().session(graph, stored)(x=x)
        given = graph.tensors(stored).values()
        shared = [any(np.shares_memory(g, s) for s in stored.values()) for g in given]
        assert all(shared) == as_stored
    np.testing.assert_allclose(*made, rtol=1e-6, atol=1e-6)


def test_the_network_takes_its_weights_so_on_the_cpu_alone(tiny_release):
    assert load_engine(tiny_release, "onnx").dit.velocity.given[0].as_stored
    network = DiT(load_engine(tiny_release, "onnx").config.dit)
    list(network.parameters())
    assert not SpeechGraphs(network.config, network).velocity().as_stored


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x[None],
        lambda x: x[:, None],
        lambda x: x[..., None],
        lambda x: x[:, None, :, 2:],
        lambda x: x[:, :, None, 1:3],
        lambda x: x[..., 4],
        lambda x: x[..., -4:-1],
        lambda x: x[:, :, :2] - x[:, :, 3:5],
        lambda x: x.sum(1),
        lambda x: x.sum(-1)[:, None] * x.sum(1)[..., None],
        lambda x: (x >= 1.0).any(1),
        lambda x: (x >= 1.0).any(-1),
        lambda x: x[:, :, :1] >= x,
        lambda x: x != x[:, :, 2:3],
        lambda x: (x**2 + 1) ** 0.5 / (2 + x * x),
        lambda x: x.reshape(x.shape[0], -1, 3),
        lambda x: x.reshape(-1),
        lambda x: x[..., None].reshape(-1, 6),
    ],
)
def test_arrays_of_a_graph_compute_as_numpys_do(operation):
    x = np.random.default_rng(0).standard_normal((2, 5, 6)).astype("f")
    graph = Graph("operation")
    found = operation(graph.input("x", (BATCH, TOKENS, 6)))
    graph.output("y", found)
    (y,), wanted = session.Place().session(graph, {})(x=x), operation(x)
    assert y.dtype == wanted.dtype == found.dtype and y.shape == wanted.shape
    assert [a for a in found.shape if isinstance(a, int)] == [
        a for s, a in zip(found.shape, wanted.shape) if isinstance(s, int)
    ]
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


def test_eight_bits_are_for_the_large_matrices_of_blocks():
    """Attention and feed-forward: inputs, outputs and what times change stay floats."""
    config = DiTConfig(dim=32, depth=2, heads=2, dim_head=16, text_dim=8, output_biases=True)
    network = DiT(config)
    names = {p.name for p in network.parameters("transformer.")}
    graph = SpeechGraphs(config, network).velocity(eight_bits=True)
    packed = {w.source.name for w in graph.weights.values() if w.dtype == "int8"}
    of_block = ("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "ff.ff.0.0", "ff.ff.2")
    blocks = [f"transformer.transformer_blocks.{n}" for n in range(2)]
    assert packed == {f"{b}.{n}.weight" for b in blocks for n in of_block} and packed < names


def test_compile_says_that_it_changes_nothing(tiny_release, caplog):
    load_engine(tiny_release, "onnx", compile=True)
    assert "compile changes nothing" in caplog.text


def test_a_device_that_is_not_there_names_those_that_are(tiny_release):
    with pytest.raises(BackendError, match=r"'coreml' is not there; .* finds here: cpu\. Others"):
        load_engine(tiny_release, "onnx", device="coreml")
    assert load_engine(tiny_release, "onnx", device="CPU").device == "cpu"


def test_auto_passes_over_what_does_not_suit():
    backend, echo = (
        find_backend("onnx"),
        dataclasses.replace(ModelConfig(), echo=EchoConfig(text_depth=1)),
    )
    assert backend.suits(ModelConfig(), None, None) and backend.suits(ModelConfig(), "cpu", "int8")
    assert not backend.suits(ModelConfig(), "cuda", None)
    assert not backend.suits(ModelConfig(), None, "bfloat16")
    assert not backend.suits(echo, None, None)


def test_auto_takes_it_for_a_student_on_a_cpu(monkeypatch):
    student = dataclasses.replace(ModelConfig(), student=StudentConfig(voices=("anna",)))
    monkeypatch.setattr(MlxBackend, "installed", lambda self: False)
    monkeypatch.setattr(torch_backend, "processor_flags", lambda: {"avx512_bf16"})
    monkeypatch.setattr(torch_backend, "on_gpu", lambda: False)
    assert pick_backend("auto", student) == "onnx"
    assert pick_backend("auto", ModelConfig()) == "torch"
    assert pick_backend("auto", student, dtype="bfloat16") == "torch"
    monkeypatch.setattr(torch_backend, "on_gpu", lambda: True)
    assert pick_backend("auto", student) == "torch"


def test_threads_are_the_users_choice(monkeypatch):
    for set_to, wanted in (("3", 3), ("0", 1), ("", session.cores())):
        monkeypatch.setenv("OMP_NUM_THREADS", set_to)
        session.threads.cache_clear()
        assert session.threads() == wanted
    session.threads.cache_clear()


def test_weights_of_another_config_are_named(tiny_release):
    release = open_release(tiny_release)
    dit = dataclasses.replace(release.config.dit, qk_norm=True)
    other = dataclasses.replace(release, config=dataclasses.replace(release.config, dit=dit))
    with pytest.raises(CheckpointError, match=r"missing .*k_norm\.weight"):
        OnnxEngine(other)


def test_it_speaks_without_torch_mlx_and_onnx(tiny_release, tmp_path):
    code = (
        "import sys\n"
        "for name in ('torch', 'mlx', 'onnx', 'librosa', 'scipy'): sys.modules[name] = None\n"
        "from nanospeech.commands import main\n"
        f"code = main(['hello there.', '--model', {str(tiny_release)!r}, '--steps', '2',"
        " '--output', 'a.wav', '--quiet'])\n"
        "print(code, 'onnxruntime' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["0", "True"], done.stderr
    assert (tmp_path / "a.wav").stat().st_size > 10_000


def test_exported_graphs_compute_the_same_from_the_folders_own_weights(
    tiny_aligned, engine_of, arrays, tmp_path
):
    """Other programs run them: here onnxruntime alone, with no array of ours for a weight."""
    folder = tmp_path / "made"
    assert convert_main([str(tiny_aligned), "--output", str(folder), "--onnx"]) == 0
    weights = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    graphs = sorted(folder.glob("*.onnx"))
    assert [p.stem for p in graphs] == ["log_durations", "means", "tokens", "velocity", "vocoder"]
    assert sum(p.stat().st_size for p in graphs) < weights / 10
    rng = np.random.default_rng(0)
    x, cond = rng.standard_normal((2, 2, 60, 100)).astype("f")
    given = {"x": x, "cond": cond, "text": rng.standard_normal((2, 30, 32)).astype("f")}
    given["time"] = np.array([0.3], "f")
    (got,) = onnxruntime.InferenceSession(folder / "velocity.onnx").run(None, given)
    engine = load_engine(folder, "onnx")
    wanted = engine.dit(given["x"], given["cond"], given["text"], given["time"])
    assert np.abs(got - wanted).max() <= 1e-5
    (out,) = onnxruntime.InferenceSession(folder / "vocoder.onnx").run(None, {"mel": x})
    assert np.abs(out - engine.module("vocoder.safetensors").session(mel=x)[0]).max() <= 1e-4


def test_exported_graphs_of_texts_and_of_durations_compute_the_same(tiny_release, tmp_path):
    """Of a model whose texts are not aligned, with a duration model."""
    folder = shutil.copytree(tiny_release, tmp_path / "made")
    written = {p.stem for p in export(folder)}
    assert written == {"duration", "text", "velocity", "vocoder"}
    rng, engine = np.random.default_rng(0), load_engine(folder, "onnx")
    text = np.array([[5, 1, 0, 9, -1, -1, -1, -1]])
    (got,) = onnxruntime.InferenceSession(folder / "text.onnx").run(
        None, {"text": text, "places": text}
    )
    wanted = engine.dit.embed_text(text, 8, np.ones((1, 8), bool))
    assert np.abs(got - wanted).max() <= 1e-5 < np.abs(wanted).max()
    given = {"heard": rng.standard_normal((1, 8, 100)).astype("f"), "text": text}
    (got,) = onnxruntime.InferenceSession(folder / "duration.onnx").run(None, given)
    (wanted,) = engine.module("duration.safetensors").session(**given)
    assert np.abs(got - wanted).max() <= 1e-5 < np.abs(wanted).max()


@pytest.mark.parametrize("bits", [b for b in BITS if b != 8])
def test_weights_of_any_fewer_bits_are_not_exported(bits):
    """Not even where only the vocoder has them."""
    eight = QuantizationConfig(model={"transformer.proj_out": 8}, vocoder={"head.out": 8})
    check_exported(dataclasses.replace(ModelConfig(), quantization=eight), "folder")
    fewer = dataclasses.replace(eight, vocoder={"head.out": bits})
    with pytest.raises(InputError, match="fewer than 8 bits"):
        check_exported(dataclasses.replace(ModelConfig(), quantization=fewer), "folder")


def test_graphs_go_with_the_weights_that_they_are_of(tiny_aligned, tmp_path):
    folder = tmp_path / "made"
    given = [str(tiny_aligned), "--output", str(folder)]
    assert convert_main([*given, "--onnx"]) == 0
    (folder / "mine.onnx").write_bytes(b"of another program")
    assert convert_main([*given, "--dtype", "float32"]) == 0
    assert [p.name for p in folder.glob("*.onnx")] == ["mine.onnx"]
    assert {p.stem for p in export(folder)} <= set(GRAPHS)


def test_weights_of_8_bits_are_exported_and_of_4_refused(make_release, tmp_path, capsys):
    whole = make_release(text_upsampling="aligned", patch_size=2, aligner_dim=24, dim=64)
    given = [str(whole), "--output", str(tmp_path / "made"), "--quantize", "8", "--onnx"]
    assert convert_main(given) == 0
    rng = np.random.default_rng(0)
    x, cond = rng.standard_normal((2, 2, 60, 100)).astype("f")
    given = {"x": x, "cond": cond, "text": rng.standard_normal((2, 30, 32)).astype("f")}
    given["time"] = np.array([0.3], "f")
    (got,) = onnxruntime.InferenceSession(tmp_path / "made" / "velocity.onnx").run(None, given)
    engine = load_engine(tmp_path / "made", "onnx")
    assert engine.config.quantization.model
    wanted = engine.dit(given["x"], given["cond"], given["text"], given["time"])
    assert np.abs(got - wanted).max() <= 1e-5
    other = load_engine(whole, "onnx").dit(given["x"], given["cond"], given["text"], given["time"])
    assert np.abs(got - other).max() > 1e-4
    given = [str(whole), "--output", str(tmp_path / "few"), "--quantize", "4", "--onnx"]
    assert convert_main(given) == 2
    assert "fewer than 8 bits" in capsys.readouterr().err
    assert not (tmp_path / "few").exists()
    few = tmp_path / "four"
    assert convert_main([str(whole), "--output", str(few), "--quantize", "4", "--imitates"]) == 0
    given = [str(whole), "--output", str(tmp_path / "with"), "--imitator", str(few), "--onnx"]
    assert convert_main(given) == 2
    assert f"{few} has weights in fewer than 8 bits" in capsys.readouterr().err
    assert not (tmp_path / "with").exists()


def test_weights_of_double_floats_are_exported(tiny_release, tmp_path):
    """As another program may have written them."""
    from safetensors.numpy import load_file, save_file

    graphs, (one, two) = [], (Path(shutil.copytree(tiny_release, tmp_path / n)) for n in "ab")
    weights = load_file(two / "model.safetensors")
    double = {name: tensor.astype(np.float64) for name, tensor in weights.items()}
    save_file(double, two / "model.safetensors")
    text = np.array([[5, 1, 0, 9]])
    for folder in (one, two):
        export(folder)
        session = onnxruntime.InferenceSession(folder / "text.onnx")
        graphs.append(session.run(None, {"text": text, "places": text})[0])
    assert np.array_equal(*graphs)


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
