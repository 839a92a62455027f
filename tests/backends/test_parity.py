"""Parity: all backends reproduce the reference arrays, and each other, to rounding."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nanospeech.config import SampleOptions
from nanospeech.engine.sampling import noise
from tests.conftest import BACKENDS

TOLERANCE = {"torch": 1e-4, "mlx": 5e-4, "onnx": 1e-4}
BETWEEN = {"torch": 0, "mlx": 1e-3, "onnx": 1e-4}  # from torch's
SAMPLES = [
    ("euler", 4, 2.0, -1.0, "sample_euler_5points_cfg2_sway-1"),
    ("midpoint", 4, 2.0, -1.0, "sample_midpoint_5points_cfg2_sway-1"),
    ("rk4", 4, 2.0, -1.0, "sample_rk4_5points_cfg2_sway-1"),
    ("euler", 7, 0.0, None, "sample_euler_8points_cfg0_swaynone"),
    ("midpoint", 7, 0.0, None, "sample_midpoint_8points_cfg0_swaynone"),
    ("rk4", 7, 0.0, None, "sample_rk4_8points_cfg0_swaynone"),
]


def close(got, wanted, tolerance):
    assert got.dtype == np.float32 and got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "drops"),
    [
        ("plain", {}),
        ("drop_audio", {"drop_audio": True}),
        ("drop_both", {"drop_audio": True, "drop_text": True}),
    ],
)
def test_velocity(tiny_release, arrays, engine_of, backend, name, drops):
    a = arrays
    v = engine_of(tiny_release, backend).velocity(
        a["x"], a["cond"], a["text_ids"], a["time"], **drops
    )
    close(v, a[f"dit_{name}"], TOLERANCE[backend])


def test_velocity_with_lengths_is_that_of_each_item_alone(tiny_release, arrays, engine_of, backend):
    a = arrays
    v = engine_of(tiny_release, backend).velocity(
        a["x"], a["cond"], a["text_ids"], a["time"], lens_B=a["lens"]
    )
    for i, n in enumerate(a["lens"]):
        close(v[i : i + 1, :n], a[f"dit_unpadded_{i}"], TOLERANCE[backend])
        assert not v[i, n:].any()


def test_duration(tiny_release, arrays, engine_of, backend):
    seconds = engine_of(tiny_release, backend).duration(arrays["mel"], arrays["text_ids"][:1])
    close(seconds, arrays["duration_seconds"], TOLERANCE[backend])


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: case[-1])
def test_sample(tiny_release, arrays, engine_of, backend, case):
    *options, key = case
    engine = engine_of(tiny_release, backend)
    start = arrays["noise"][None]
    cond = np.zeros_like(start)
    cond[:, : arrays["mel"].shape[1]] = arrays["mel"]
    text = engine.tokenizer.encode("hello there, general.")[None]
    mel = engine.sample(start, cond, text, SampleOptions(*options, schedule="uniform"))[0]
    close(mel, arrays[key], TOLERANCE[backend])


def test_every_golden_array_is_tested(arrays):
    tested = {key for *_, key in SAMPLES} | {"dit_plain", "dit_drop_audio", "dit_drop_both"}
    tested |= {"dit_unpadded_0", "dit_unpadded_1", "duration_seconds", "mel"}
    inputs = {"wave", "text_ids", "x", "cond", "time", "lens", "noise"}
    assert set(arrays) == tested | inputs


def test_vocoder(tiny_release, golden, engine_of, backend):
    with np.load(golden / "vocos.npz") as z:
        mel, audio = z["mel"].transpose(0, 2, 1), z["audio"]
    (wave,) = engine_of(tiny_release, backend).vocode(mel)
    close(wave[None], audio, TOLERANCE[backend])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text_upsampling": "average", "qk_norm": True, "heads": 2, "rope_heads": 2},
        {"text_upsampling": "aligned", "patch_size": 2},
        {"text_upsampling": "aligned", "aligner_dim": 24},
        {"text_upsampling": "aligned", "prompt_dim": 24, "patch_size": 2},
        {"text_upsampling": "none", "patch_size": 3, "text_masking": False, "heads": 2},
    ],
    ids=["plain", "average", "aligned", "speakers", "prompt", "patched"],
)
def test_backends_speak_the_same_utterance(make_release, arrays, engine_of, fields):
    folder = make_release(**fields)
    engines = [engine_of(folder, name) for name in BACKENDS]
    prompt, frames = arrays["mel"][0, :41], 131
    cond = np.zeros((1, frames, 100), np.float32)
    cond[0, : len(prompt)] = prompt
    text = engines[0].tokenizer.encode("hello there, general.")[None]
    start = noise(frames, 100, seed=3)[None]
    mels, waves = [], []
    for engine in engines:
        mel = engine.sample(start, cond, text, SampleOptions(), prompt_tokens_B=np.array([8]))
        mels.append(mel)
        waves.append(engine.vocode(mel)[0])
    assert len(waves[0]) == (frames - 1) * 256
    for name, mel, wave in zip(BACKENDS, mels, waves):
        close(mel, mels[0], BETWEEN[name])
        close(wave, waves[0], BETWEEN[name])


# Layers, which each backend has in its own words, against their formulas in float64.


def heard(backend: str, layer: Callable[..., Any], weights: dict[str, np.ndarray], *given) -> Any:
    """What a backend computes of float32 arrays (B, N, D) or (B,).

    Args:
        layer: of the backend's layers, a module with these weights or a function of arrays.
    """
    arrays = [np.asarray(a, np.float32) for a in given]
    if backend == "onnx":
        from nanospeech_onnx.graph import BATCH, TOKENS, Graph
        from nanospeech_onnx.session import Place

        graph, list_ = Graph("layer"), list(getattr(layer, "parameters", list)())
        assert {p.name for p in list_} == weights.keys()
        sizes = [(BATCH, TOKENS, a.shape[2]) if a.ndim == 3 else (BATCH,) for a in arrays]
        inputs = {f"x{i}": a for i, a in enumerate(arrays)}
        graph.output("y", layer(*map(graph.input, inputs, sizes)))
        return Place().session(graph, weights)(**inputs)[0]
    if backend == "mlx":
        import mlx.core as mx

        with mx.stream(mx.cpu):
            if weights:  # MLX has the axes of kernels in another order
                turned = {n: w.transpose(0, 2, 1) if w.ndim == 3 else w for n, w in weights.items()}
                layer.load_weights([(n, mx.array(w)) for n, w in turned.items()])  # type: ignore
            return np.array(layer(*map(mx.array, arrays)))
    import torch

    if weights:
        layer.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})  # type: ignore
    found = [layer(*map(torch.from_numpy, arrays)).detach()]
    with torch.no_grad():
        found += [layer(*map(torch.from_numpy, arrays))]  # other ways are faster for speaking
    assert torch.allclose(*found, rtol=1e-5, atol=1e-5)
    return found[1].numpy()


def normal(*shape: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    """Numbers that float32 has, as float64."""
    x = np.random.default_rng(seed).normal(0, spread, shape)
    return x.astype(np.float32).astype(np.float64)


def normed(x: np.ndarray) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)


def turned(x: np.ndarray, heads: int) -> np.ndarray:
    """RoFormer's rotation of pairs of 3 heads of 8, place n by n / 10,000 ** (pair / 4)."""
    x = x.reshape(*x.shape[:2], 3, 4, 2)
    pairs = x[..., 0] + 1j * x[..., 1]
    angles = np.arange(x.shape[1])[:, None] * 10_000 ** (-np.arange(4) / 4)
    pairs[:, :, :heads] *= np.exp(1j * angles)[:, None]
    return np.stack([pairs.real, pairs.imag], -1).reshape(*x.shape[:2], 24)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (x.reshape(*x.shape[:2], 3, 8).swapaxes(1, 2) for x in (q, k, v))
    scores = np.exp(q @ k.swapaxes(2, 3) / math.sqrt(8))
    out = scores / scores.sum(-1, keepdims=True) @ v
    return out.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], 24)


def convolved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, groups: int) -> np.ndarray:
    """Each output is of the inputs of its group, as many places before it as behind."""
    out, each, kernel = weight.shape
    padded = np.pad(x, ((0, 0), (kernel // 2,) * 2, (0, 0)))
    made = np.zeros((*x.shape[:2], out)) + bias
    for o in range(out):
        mine = slice((first := o // (out // groups) * each), first + each)
        for place in range(kernel):
            made[..., o] += padded[:, place : place + x.shape[1], mine] @ weight[o, :, place]
    return made


def place_codes(count: int, dim: int) -> np.ndarray:
    """Of 9 places, those from `count` on as the last before."""
    places = np.minimum(np.arange(9), count - 1)[:, None]
    angles = places * 10_000 ** (-np.arange(0, dim, 2) / dim)
    return np.concatenate([np.cos(angles), np.sin(angles)], -1)


def time_codes(time: np.ndarray) -> np.ndarray:
    angles = 1000 * time[:, None] * 10_000 ** (-np.arange(5) / 4)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


X, WIDE = normal(2, 9, 24), np.linspace(-12, 12, 9 * 24).reshape(1, 9, 24)
ERF, NEAR = np.vectorize(math.erf), math.sqrt(2 / math.pi)
VECTORS = {"weight": normal(24, seed=1), "bias": normal(24, seed=2)}
KERNEL = {"weight": normal(24, 6, 5, seed=3), "bias": VECTORS["bias"]}
ONE = [normal(1, 1, 24, seed=n) for n in (4, 5)]
Q, K, V = (normal(2, 9, 24, seed=n, spread=2) for n in (6, 7, 8))
TIMES = np.array([0.0, 0.25, 0.75, 1.0])


def layer_cases() -> Iterator[tuple[str, Callable, dict, list[np.ndarray], np.ndarray]]:
    """Name, the layer of a backend's layers, its weights, what it is given and its formula."""
    exact = WIDE * (1 + ERF(WIDE / math.sqrt(2))) / 2
    near = WIDE * (1 + np.tanh(NEAR * (WIDE + 0.044715 * WIDE**3))) / 2
    yield "gelu", lambda m: m.GELU(), {}, [WIDE], exact
    yield "gelu_tanh", lambda m: m.GELU("tanh"), {}, [WIDE], near
    yield "silu", lambda m: m.SiLU(), {}, [WIDE], WIDE / (1 + np.exp(-WIDE))
    yield "softplus", lambda m: m.Softplus(), {}, [WIDE], np.log1p(np.exp(WIDE))
    yield "mish", lambda m: m.Mish(), {}, [WIDE], WIDE * np.tanh(np.log1p(np.exp(WIDE)))
    yield "norm", lambda m: m.LayerNorm(24), {}, [X / 300], normed(X / 300)
    scaled = normed(X) * VECTORS["weight"] + VECTORS["bias"]
    yield "affine", lambda m: m.LayerNorm(24, affine=True), VECTORS, [X], scaled
    rms = X / 3000 / np.sqrt(np.square(X / 3000).mean(-1, keepdims=True) + 2.0**-23)
    weight = {"weight": VECTORS["weight"]}
    yield "rms", lambda m: m.RMSNorm(24), weight, [X / 3000], rms * VECTORS["weight"]
    made = convolved(X, KERNEL["weight"], KERNEL["bias"], 4)
    yield "conv", lambda m: m.Conv1d(24, 5, groups=4), KERNEL, [X], made
    fewer = {"weight": normal(10, 24, 3, seed=9), "bias": normal(10, seed=10)}
    made = convolved(X, fewer["weight"], fewer["bias"], 1)
    yield "narrowing", lambda m: m.Conv1d(24, 3, dim_out=10), fewer, [X], made
    for loud in (1, 1e-7):
        length = np.sqrt(np.square(X * loud).sum(1, keepdims=True))
        wanted = length / (length.mean(-1, keepdims=True) + 1e-6)
        yield f"grn-{loud:g}", lambda m: m.global_norm, {}, [X * loud], wanted
    wanted = np.where(X[..., :1] >= 0, X, 0)
    yield "masked", lambda m: lambda x: m.masked(x, x[..., 0] >= 0), {}, [X], wanted
    yield "unmasked", lambda m: lambda x: m.masked(x * 2, None), {}, [X], X * 2

    def adapted(m) -> Callable:
        norm = m.LayerNorm(24)
        return lambda x, scale, shift: m.modulated(norm, x, scale, shift)

    yield "modulated", adapted, {}, [X[:1], *ONE], normed(X[:1]) * (1 + ONE[0]) + ONE[1]
    yield "gated", lambda m: m.gated, {}, [X[:1], ONE[0], X[1:]], X[:1] + ONE[0] * X[1:]
    for count, dim in ((4096, 24), (5, 24), (9, 8)):

        def placed(m, count=count, dim=dim) -> Callable:
            return lambda x: x[:, :, :dim] * 0 + m.text_positions(9, dim, x, count)

        yield f"places-{count}-{dim}", placed, {}, [X], place_codes(count, dim) + 0 * X[..., :dim]
    yield "time", lambda m: lambda t: m.sinusoid(t, 10), {}, [TIMES], time_codes(TIMES)
    for heads in (1, 2, 3):

        def rotated(m, heads=heads) -> Callable:
            def run(x):
                angles = m.rotary_angles(9, 8, x)
                return m.merge_heads(m.rotate(m.split_heads(x, 3), angles, heads))

            return run

        yield f"rotate-{heads}", rotated, {}, [X], turned(X, heads)

    def attention(m) -> Callable:
        return lambda *x: m.merge_heads(m.attention(*(m.split_heads(a, 3) for a in x), None))

    yield "attention", attention, {}, [Q, K, V], attended(Q, K, V)
    yield "chunks", lambda m: lambda x: m.chunks(x, 3)[1], {}, [X], X[..., 8:16]
    parts = np.concatenate([X[..., 16:], X], -1)
    yield "concat", lambda m: lambda x: m.concat(m.chunks(x, 3)[2], x), {}, [X], parts


CASES = {name: rest for name, *rest in layer_cases()}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_computes_its_formula(backend, name):
    build, weights, given, wanted = CASES[name]
    layer = build(importlib.import_module(f"nanospeech_{backend}.layers"))
    got = heard(backend, layer, {n: w.astype(np.float32) for n, w in weights.items()}, *given)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=4e-6 * np.abs(wanted).max())
