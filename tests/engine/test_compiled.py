"""Compiled networks, of the backends that compile: padded to few lengths, and the same speech."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from nanospeech import load_engine
from nanospeech.config import SampleOptions
from nanospeech.engine.base import Engine
from nanospeech.engine.sampling import noise
from nanospeech.errors import BackendError
from nanospeech.text.tokenizer import pad_tokens
from tests.conftest import needs

KINDS = [
    *(pytest.param(*kind, marks=pytest.mark.slow) for kind in (("none", 1), ("average", 2))),
    ("aligned", 2),
]
OPTIONS = SampleOptions("euler", 3)
COMPILING = ("torch", "mlx")  # ONNX Runtime optimises each graph when it is loaded
TEXTS = ("hello there, general.", "no.")


@pytest.fixture(params=COMPILING)
def backend(request) -> str:
    needs(request.param)
    return request.param


@pytest.fixture(scope="module")
def compiled_of():
    """compiled_of(folder, backend) -> an engine that compiles for multiples of 32 patches.

    Made once: what is compiled for one test is there for the next.
    """
    made: dict[tuple, Engine] = {}

    def make(folder, backend: str) -> Engine:
        key = folder, backend
        if key not in made:
            made[key] = compiled_for(folder, backend, 32)
        return made[key]

    return make


def items(engine, *lens: int) -> dict:
    """Arguments of sample for items of unequal lengths."""
    return {
        "noise_BNM": np.stack([noise(max(lens), 100, seed) for seed, _ in enumerate(lens)]),
        "cond_BNM": np.zeros((len(lens), max(lens), 100), np.float32),
        "text_BT": pad_tokens([engine.tokenizer.encode(t) for t in TEXTS[: len(lens)]]),
        "lens_B": np.array(lens),
    }


def compiled_for(folder, backend: str, step: int, compiler: str = "eager"):
    """An engine that compiles for multiples of `step` patches.

    PyTorch traces blocks as it always does; to machine code they go with "inductor" alone, which
    takes most of a minute.
    """
    if backend == "mlx":
        engine = load_engine(folder, backend, "cpu", "float32", compile=True)
    else:
        import torch

        if compiler == "inductor" and not (shutil.which("c++") or shutil.which("g++")):
            pytest.skip("torch.compile needs a C++ compiler")
        pytest.importorskip("torch._inductor.config").compile_threads = 1  # others take a start
        torch._dynamo.reset()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "compile", partial(torch.compile, backend=compiler))
            engine = load_engine(folder, backend, "cpu", "float32", compile=True)
    engine.compiled.step = step  # type: ignore[attr-defined]
    return engine


def check_alike(plain, compiled, lens: tuple[int, ...], without: bool = True) -> None:
    """That both say the same to items of these lengths, and to whole ones."""
    given = items(plain, *lens)
    a, b = (e.sample(**given, options=OPTIONS) for e in (plain, compiled))
    for n, x, y in zip(lens, a, b):
        assert np.abs(x[:n] - y[:n]).max() <= 1e-3
    if without:
        del given["lens_B"]
        a, b = (e.sample(**given, options=OPTIONS) for e in (plain, compiled))
        assert a.shape == b.shape and np.abs(a - b).max() <= 1e-3


@pytest.mark.parametrize(("kind", "p"), KINDS)
def test_compiled_and_padded_is_the_same_speech(
    make_release, engine_of, compiled_of, backend, kind, p
):
    folder = make_release(text_upsampling=kind, patch_size=p)
    plain, compiled = engine_of(folder, backend), compiled_of(folder, backend)
    for lens in ((75,), (131, 98)):
        check_alike(plain, compiled, lens)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "p"), KINDS)
def test_machine_code_says_the_same_of_all_kinds(make_release, engine_of, kind, p):
    folder = make_release(text_upsampling=kind, patch_size=p)
    plain, compiled = engine_of(folder, "torch"), compiled_for(folder, "torch", 32, "inductor")
    for lens in ((75,), (131, 98)):
        check_alike(plain, compiled, lens)


def test_velocities_past_the_end_stay_zero(make_release, compiled_of, backend):
    engine = compiled_of(make_release(text_upsampling="aligned", patch_size=2), backend)
    given = items(engine, 131, 98)
    x, cond, text, lens = given.values()
    v = engine.velocity(x, cond, text, np.array([0.2, 0.9], np.float32), lens_B=lens)
    assert v.shape == x.shape and not v[1, 98:].any() and v[0, 98:].any()


def test_torch_compiles_once_for_all_lengths_and_batches(tiny_aligned):
    needs("torch")
    from nanospeech_torch.train.scale.speed import recompiles

    engine = compiled_for(tiny_aligned, "torch", 16)
    for lens in ((90,), (90, 70)):  # 48 patches, which no other size of the model is
        engine.sample(**items(engine, *lens), options=OPTIONS)
    before = recompiles()
    for lens in ((100,), (140, 90), (170,)):
        engine.sample(**items(engine, *lens), options=OPTIONS)
    assert recompiles() == before


def test_a_compiler_that_fails_is_named_and_speech_without_it():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.compiled import CompiledNetwork
    from nanospeech_torch.dit import DiT

    def broken(*inputs):
        raise torch._dynamo.exc.TorchDynamoException("no c++ here\nin full")

    network = CompiledNetwork(DiT(dim=32, depth=1, heads=1, text_dim=32, conv_layers=1), 32)
    network.dit = broken
    said = "needs a C++ compiler; speech is the same without: no c++ here"
    with pytest.raises(BackendError, match=f"{re.escape(said)}$"):
        network.compute(torch.zeros(1))


NO_COMPILER = """
import sys
from nanospeech import Speaker, load_engine
Speaker(load_engine(sys.argv[1], "torch", "cpu", compile=True)).speak("Hello.")
"""


@pytest.mark.slow
def test_a_missing_compiler_is_named(tiny_aligned, tmp_path, monkeypatch):
    needs("torch")
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", NO_COMPILER, str(tiny_aligned)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "BackendError" in last, done.stderr
    assert "needs a C++ compiler" in last and "the same without" in last


def test_graphs_are_recorded_once_for_each_batch_and_padded_length():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.compiled import CompiledNetwork
    from nanospeech_torch.dit import DiT

    class Recorded(CompiledNetwork):
        """Records as on a GPU; what is replayed is nothing."""

        def make(self, *inputs):
            made.append(tuple(inputs[0].shape[:2]))
            return lambda given: torch.zeros_like(given[0])

        def compute(self, *inputs):
            return self.replayed(*inputs)

    made: list[tuple[int, ...]] = []
    network = Recorded(DiT(dim=64, depth=2, heads=2, text_dim=32, conv_layers=1), 32, 2)

    def call(batch: int, frames: int) -> None:
        mel = torch.zeros(batch, frames, 100)
        text = torch.zeros(batch, frames, 32)
        assert network(mel, mel, text, torch.zeros(1)).shape == mel.shape

    for frames in (40, 64, 33, 50):
        call(1, frames)
    assert made == [(1, 64)]  # four lengths, one graph
    call(2, 64)
    call(1, 64)
    assert made == [(1, 64), (2, 64)]
    call(1, 96)  # of two the one that was not used for longest goes
    call(1, 64)
    call(2, 64)
    assert made == [(1, 64), (2, 64), (1, 96), (2, 64)]


def test_a_cuda_graph_replays_the_network(tiny_aligned):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA here")
    plain = load_engine(tiny_aligned, "torch", "cuda", "float32")
    engine = load_engine(tiny_aligned, "torch", "cuda", "float32", compile=True)
    for lens in ((75,), (131, 98), (75,), (120,)):
        given = items(plain, *lens)
        a, b = (e.sample(**given, options=OPTIONS) for e in (plain, engine))
        for n, x, y in zip(lens, a, b):
            assert np.abs(x[:n] - y[:n]).max() <= 1e-2
    assert len(engine.compiled.graphs) == 3  # type: ignore[attr-defined]
