"""MLX on x86 processors: what is computed another way there is what MLX computes."""

from __future__ import annotations

import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from nanospeech import blas, load_engine
from nanospeech.errors import InputError

mx = pytest.importorskip("mlx.core", reason="no mlx here")

from mlx import nn  # noqa: E402

from nanospeech_mlx import activations, cpu, layers  # noqa: E402
from nanospeech_mlx.compiled import CompiledNetwork  # noqa: E402

x86 = pytest.mark.skipif(not cpu.X86, reason="MLX is fast at these on other processors")


def random(*shape: int, spread: float = 1.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, shape).astype(np.float32)


@pytest.fixture(autouse=True)
def on_cpu():
    with mx.stream(mx.cpu):
        yield


def plain(function, *args):
    """What MLX computes by itself."""
    with cpu.compiling():
        return np.array(function(*args))


@x86
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "Mish"])
def test_activations_are_those_of_mlx(name):
    act = getattr(activations, name)
    act = act() if name == "Mish" else act
    # past a piece's end, and from where they are 0 to where they are the identity
    for x in (random(3, 7, 11), random(2, 50_000, spread=6), np.float32([-100, -20, 0, 20, 100])):
        given = mx.array(x)
        assert cpu.slow(given)
        found = np.array(act(given))
        assert np.array_equal(np.array(given), x)  # the argument is as it was
        assert np.abs(found - plain(act, mx.array(x))).max() <= 1e-6 * max(1, np.abs(x).max())


def test_erf_is_right_to_float32():
    x = np.linspace(-6, 6, 20_001).astype(np.float32)
    exact = np.array([math.erf(v) for v in x])
    assert np.abs(cpu.erf(x) - exact).max() < 5e-7


@x86
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_attention_is_that_of_mlx(masked, spread):
    q, k, v = (mx.array(random(2, 3, 37, 16, spread=spread, seed=i)) for i in range(3))
    mask = mx.arange(37) < mx.array([[37], [20]]) if masked else None
    found = np.array(layers.attention(q, k, v, mask))
    assert found.shape == (2, 3, 37, 16)
    assert np.abs(found - plain(layers.attention, q, k, v, mask)).max() < 2e-6 * spread
    if masked:  # what is not seen changes nothing
        v = mx.where((mx.arange(37) < 20)[None, None, :, None], v, 1e4)
        again = np.array(layers.attention(q, k, v, mask))
        assert np.array_equal(found[1], again[1]) and not np.array_equal(found[0], again[0])


def test_nothing_is_called_that_mlx_compiles_by_itself():
    """Its activations are: on a CPU each waits for a C++ compiler, and then for every new type."""
    folder, compiled = Path(activations.__file__).parent, type(mx.compile(abs))
    called = {
        name for f in folder.rglob("*.py") for name in re.findall(r"\bnn\.(\w+)", f.read_text())
    }
    assert {"Linear", "Module"} <= called and isinstance(nn.silu, compiled)
    own = {name for name in called if getattr(nn, name).__module__ == nn.SiLU.__module__}
    assert not own | {name for name in called if isinstance(getattr(nn, name), compiled)}


@x86
def test_other_types_devices_and_compiled_networks_are_left_to_mlx():
    x = mx.array(random(4))
    assert cpu.slow(x) and not cpu.slow(x.astype(mx.bfloat16))
    with cpu.compiling():
        assert not cpu.slow(x)
    assert cpu.slow(x)


def test_a_batch_is_the_same_side_by_side(monkeypatch):
    engine = load_engine(backend="mlx", device="cpu")
    shape, c = (3, 40, engine.config.audio.n_mels), engine.config.dit
    text = random(3, 40 // c.patch_size, engine.dit.embed_tokens(mx.array([[1]])).shape[-1])
    lens = mx.array([40, 30, 36])
    inputs = [mx.array(random(*shape, seed=i)) for i in range(2)]
    inputs += [mx.array(text), mx.array(np.float32([0.3])), lens]
    whole = np.array(engine.dit(*inputs))
    for parts in (1, 2, 3):
        monkeypatch.setattr(blas, "threads", lambda parts=parts: parts)
        assert np.abs(np.array(engine.run(*inputs)) - whole).max() < 1e-5
    compiled = np.array(CompiledNetwork(engine.dit)(*inputs))
    assert np.abs(compiled[1, :30] - whole[1, :30]).max() < 1e-4


@pytest.mark.parametrize(("batch", "parts"), [(5, 2), (4, 4), (3, 1), (7, 3)])
def test_rows_are_shared_evenly_and_what_is_for_all_goes_to_each_thread(batch, parts):
    """Each row once and in order; a single row, and None, are every thread's."""
    seen = []

    def network(x, nothing, one):
        seen.append(len(x))
        assert nothing is None and len(one) == 1
        return x * one

    x, one = (mx.array(random(n, 6, seed=n)) for n in (batch, 1))
    found = cpu.side_by_side(network, [x, None, one], parts)
    assert np.array_equal(np.array(found), np.array(x) * np.array(one))
    assert len(seen) == parts and sum(seen) == batch and max(seen) - min(seen) <= 1


def test_failures_in_a_thread_are_reported():
    def fails(x):
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        cpu.side_by_side(fails, [mx.zeros((2, 3))], 2)


def test_several_threads_may_ask_at_once():
    rows = [mx.array(random(4, 30, seed=i)) for i in range(8)]
    mx.eval(rows)

    def squares(x: mx.array) -> np.ndarray:
        with mx.stream(mx.cpu):
            return np.array(cpu.side_by_side(mx.square, [x], 2))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(squares, rows))
    assert all(np.array_equal(f, np.array(x) ** 2) for f, x in zip(found, rows))


def test_a_thread_takes_one_stream_and_the_main_thread_none():
    if not hasattr(mx, "new_thread_unsafe_stream"):
        pytest.skip("this MLX has one stream for all threads")
    taken = []

    def work():
        for _ in range(2):
            cpu.use_streams_again()
            taken.append(cpu.own.lent)

    (thread := threading.Thread(target=work)).start()
    thread.join()
    cpu.use_streams_again()
    assert taken[0] is taken[1] and not hasattr(cpu.own, "lent")
