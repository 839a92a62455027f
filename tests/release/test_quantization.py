"""Quantising: what is packed comes back, speaks alike in both backends, and is read strictly."""

from __future__ import annotations

import dataclasses
import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nanospeech import load_engine
from nanospeech.architectures import BITS, GROUP_SIZES
from nanospeech.config import DiTConfig, DurationConfig, SampleOptions, VocoderConfig
from nanospeech.engine.sampling import noise
from nanospeech.errors import CheckpointError, InputError, NanospeechError
from nanospeech.release import quantization as quantized
from nanospeech.release.folder import DEFAULT, MODEL, VOCODER, load_config, open_release
from nanospeech.release.quantization import PackedWeight, pack

ALIGNED = {"text_upsampling": "aligned", "patch_size": 2, "text_dim": 64, "prompt_dim": 32}
OPTIONS = SampleOptions("euler", 3)


@pytest.fixture(scope="module")
def source(make_release) -> Path:
    """A folder of floats, all of whose kinds of layers can be packed."""
    return make_release(**ALIGNED)


@pytest.fixture(scope="module")
def small(source, tmp_path_factory) -> dict[int, Path]:
    """The same in 4 and in 8 bits."""
    folders = {}
    for bits in (4, 8):
        folders[bits] = tmp_path_factory.mktemp("quantized") / "small"
        assert convert(source, folders[bits], "--quantize", bits) == 0
    return folders


def convert(folder, output, *options) -> int:
    pytest.importorskip("torch")
    from convert.__main__ import main

    return main([str(x) for x in (folder, "--output", output, *options)])


def weight(shape=(24, 256), seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def far(x: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(x - wanted) / np.linalg.norm(wanted))


def spoken(engine, mel) -> tuple[np.ndarray, np.ndarray]:
    """A mel and its wave."""
    frames = 94
    cond = np.zeros((1, frames, 100), np.float32)
    cond[0, :30] = mel[:30]
    text = engine.tokenizer.encode("hello there, general.")[None]
    start = noise(frames, 100, 0)[None]
    found = engine.sample(start, cond, text, OPTIONS, prompt_tokens_B=np.array([8]))
    return found[0], engine.vocode(found)[0]


# Numbers.


@pytest.mark.parametrize("bits", BITS)
def test_mlx_reads_what_is_packed(bits):
    mx = pytest.importorskip("mlx.core")
    for size in GROUP_SIZES:
        packed = pack(weight(), bits, size)
        assert packed.shape == (24, 256) and packed.group_size == size
        parts = (packed.codes, *(a.astype(np.float32) for a in (packed.scales, packed.biases)))
        theirs = mx.dequantize(*map(mx.array, parts), group_size=size, bits=bits)
        assert np.abs(np.array(theirs) - packed.unpack()).max() <= 1e-6


def test_a_bit_more_halves_the_error():
    errors = [far(pack(weight(), bits, 64).unpack(), weight()) for bits in BITS]
    for (a, b), (bits, more) in zip(pairwise(errors), pairwise(BITS)):
        assert a / b == pytest.approx(2 ** (more - bits), rel=0.15)


def test_rounding_is_nearer_than_the_range_alone():
    mx = pytest.importorskip("mlx.core")
    w = mx.array(weight())
    plain = mx.dequantize(*mx.quantize(w, group_size=64, bits=4), group_size=64, bits=4)
    assert far(pack(weight(), 4, 64).unpack(), weight()) < 0.96 * far(np.array(plain), weight())


def by_hand(group: np.ndarray, bits: int) -> np.ndarray:
    """A group's weights, rounded: codes of a range, a line through them, the nearest on it."""
    most, found = 2**bits - 1, []
    for shrink in (1.0, 0.9, 0.8):
        low, high = group.min() * shrink, group.max() * shrink
        codes = np.clip(np.rint((group - low) / (high - low) * most), 0, most)
        scale = np.float16(np.polyfit(codes, group, 1)[0]).astype(float)
        bias = np.float16(group.mean() - scale * codes.mean()).astype(float)
        found.append(scale * np.clip(np.rint((group - bias) / scale), 0, most) + bias)
    return min(found, key=lambda made: ((made - group) ** 2).sum())


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", GROUP_SIZES)
def test_each_group_has_the_best_of_three_lines_fitted_by_least_squares(bits, size):
    w = weight((6, 256), seed=bits) + 0.3
    w[2] **= 3  # some are extreme
    packed = pack(w, bits, size)
    assert packed.scales.dtype == packed.biases.dtype == np.float16
    groups = w.astype(float).reshape(-1, size)
    wanted = [((by_hand(group, bits) - group) ** 2).sum() for group in groups]
    errors = ((packed.unpack().reshape(-1, size) - groups) ** 2).sum(1)
    np.testing.assert_allclose(errors, wanted, rtol=0.02)


def test_weights_of_short_floats_are_packed_as_the_numbers_that_they_are():
    short = (weight() + 7).astype(np.float16)
    a, b = (pack(w, 4, 64) for w in (short, short.astype(np.float32)))
    for name in ("codes", "scales", "biases"):
        assert np.array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 1e-6])
def test_equal_weights_stay_what_they_are(value):
    same = pack(np.full((2, 64), value, np.float32), 4, 64).unpack()
    assert np.allclose(same, value, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("size", [1e-5, 1.0, 1e4])
def test_the_size_of_weights_does_not_matter(size):
    assert far(pack(weight() * size, 4, 64).unpack(), weight() * size) < 0.1


def test_what_is_stored_is_read_back():
    tensors = {"a.0.b.weight": weight(), "a.0.b.bias": weight((24,)), "c.weight": weight((3, 64))}
    layers = {"a.0.b": 4}
    packed = quantized.pack_layers(tensors, layers, 64)
    again = quantized.joined(quantized.stored(packed), layers, 64, Path("file"))
    assert again.keys() == tensors.keys()
    assert isinstance(again["a.0.b.weight"], PackedWeight)
    assert np.array_equal(again["a.0.b.weight"].unpack(), packed["a.0.b.weight"].unpack())
    assert np.array_equal(again["c.weight"], tensors["c.weight"])


def test_shapes_of_floats_are_told_from_what_is_stored():
    """Also where a layer has a bias and a table beside its weight, or is left as it is."""
    shapes = {"a.0.b.weight": (20, 256), "a.0.b.bias": (20,), "a.0.b.table": (2, 64)}
    shapes |= {"a.0.c.weight": (3, 64), "a.0.d.weight": (4, 64, 3), "biases": (5,)}
    tensors = {name: weight(shape) for name, shape in shapes.items()}
    layers = {"a.0.b": 3}
    packed = quantized.stored(quantized.pack_layers(tensors, layers, 64))
    assert set(packed) == {*shapes, "a.0.b.scales", "a.0.b.biases"}
    stored = {name: t.shape for name, t in packed.items()}
    assert stored["a.0.b.weight"] == (20, 24)  # words of 32 bits
    assert quantized.float_shapes(stored, layers) == shapes


# Which layers.


def test_weights_of_two_dimensions_and_whole_groups_are_packed():
    size = quantized.QuantizationConfig().group_size
    shapes = {f"net.blocks.{n}.{m}.weight": (3, 2 * size) for n in (0, 1, 12) for m in "pq"}
    shapes |= {"odd.weight": (4, size + 1), "kernel.weight": (4, size, 3), "table": (4, size)}
    shapes |= {"in.bias": (size,), "last.to_mean.weight": (4, size)}
    for bits in quantized.CHOICES:
        found = quantized.plan({"model": shapes, "vocoder": {}}, bits)
        assert found.model == {"net.blocks.*.p": bits, "net.blocks.*.q": bits}
        assert not found.vocoder
    with pytest.raises(InputError, match="no layer of the model has rows of a multiple of"):
        quantized.plan({"model": {"odd.weight": (4, size + 1)}}, 8)


def test_of_four_bits_text_and_outputs_get_more_and_times_scales_fewer():
    more = ["text_embed.text_blocks.*.pwconv1", "text_embed.text_blocks.*.pwconv2", "proj_out"]
    more += ["vocoder.head.out", "vocoder.head.delay", "transformer.in_proj"]
    assert all(quantized.bits_of(layer, 4) > 4 for layer in more)
    assert quantized.bits_of("transformer_blocks.*.attn_norm.linear", 4) < 4
    most = [
        "transformer_blocks.*.attn.to_q",
        "transformer_blocks.*.ff.ff.2",
        "vocoder.convnext.*.pwconv1",
    ]
    assert {quantized.bits_of(layer, 4) for layer in most} == {4}
    assert {quantized.bits_of(layer, 8) for layer in more + most} == {8}


@pytest.mark.parametrize("bits", [4, 8])
def test_every_large_matrix_of_the_published_sizes_is_packed_but_few(bits):
    pytest.importorskip("torch")
    from convert import network_shapes

    shapes = network_shapes(DiTConfig())
    layers = quantized.plan({"model": shapes}, bits).model
    matrices = {n: s for n, s in shapes.items() if n.endswith(".weight") and len(s) == 2}
    left = {n for n in matrices if quantized.layer_of(n) not in layers}
    assert left == {
        f"transformer.{n}.weight"
        for n in ("text_embed.text_embed", "time_embed.time_mlp.0", "input_embed.proj")
    }
    assert set(layers.values()) == ({8} if bits == 8 else {3, 4, 8})
    assert all(layer.count("*") <= 1 for layer in layers)


def test_what_tokens_sound_like_and_last_by_is_not_rounded():
    """Of the aligner and of a duration model; of a vocoder every matrix is, each kind once."""
    torch = pytest.importorskip("torch")
    from convert import network_shapes
    from nanospeech_torch.vocoder import Vocos

    with torch.device("meta"):
        vocoder = Vocos(VocoderConfig(griffin_lim_iters=2)).state_dict()
    shapes = {
        "model": network_shapes(DiTConfig(text_upsampling="aligned", n_mels=128)),
        "duration": network_shapes(DurationConfig(n_mels=128)),
        "vocoder": {name: tuple(t.shape) for name, t in vocoder.items()},
    }
    plan = quantized.plan(shapes, 4)
    left = {}
    for part, tensors in shapes.items():
        matrices = {n for n, s in tensors.items() if n.endswith(".weight") and len(s) == 2}
        left[part] = {quantized.layer_of(n) for n in matrices} - getattr(plan, part).keys()
    aligner = {f"transformer.aligner.{n}" for n in ("to_mean", "to_duration.0", "to_duration.2")}
    tables = {"transformer.text_embed.text_embed", "transformer.time_embed.time_mlp.0"}
    assert left["model"] == aligner | tables
    assert left["duration"] == {"to_pred.0", "transformer.text_embed.text_embed"}
    assert left["vocoder"] == set()
    blocks = {f"backbone.convnext.*.pwconv{n}": 4 for n in (1, 2)}
    assert plan.vocoder == {**blocks, "head.out": 6, "head.delay": 6}


@pytest.mark.parametrize(
    ("bits", "most"), [(4, 0.35), pytest.param(8, 0.58, marks=pytest.mark.slow)]
)
def test_the_default_voice_becomes_small(tmp_path, bits, most):
    floats = tmp_path / "floats"
    assert convert(DEFAULT, floats) == 0 and not load_config(floats).quantization
    assert convert(floats, tmp_path / "out", "--quantize", bits) == 0

    def size(folder: Path, *names: str) -> int:
        return sum((folder / n).stat().st_size for n in names)

    # rows of the duration model's width, 96, are no whole groups: few of its layers are packed
    small = ("model.safetensors", "vocoder.safetensors")
    assert size(tmp_path / "out", *small) <= most * size(floats, *small)
    assert size(tmp_path / "out", "duration.safetensors") < size(floats, "duration.safetensors")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "8 bits, float16 |" in card and "## Data, licences, attributions" in card
    assert sorted(p.name for p in (tmp_path / "out" / "voices").iterdir()) == sorted(
        p.name for p in (DEFAULT / "voices").iterdir()
    )


# Engines.


@pytest.mark.parametrize("bits", [4, 8])
def test_backends_speak_the_same_from_packed_weights(small, engine_of, arrays, bits):
    (a, sound), (b, other) = (
        spoken(engine_of(small[bits], name), arrays["mel"][0]) for name in ("torch", "mlx")
    )
    assert np.abs(a - b).max() <= 1e-3
    assert np.abs(sound - other).max() <= 1e-3


def test_more_bits_come_nearer(source, small, engine_of, arrays, backend):
    def velocity(folder):
        engine = engine_of(folder, backend)
        x, text = noise(60, 100, 1)[None], engine.tokenizer.encode("hello there.")[None]
        return engine.velocity(x, x * 0, text, np.array([0.4], np.float32))

    truth = velocity(source)
    four, eight = (far(velocity(small[bits]), truth) for bits in (4, 8))
    assert 0 < eight < four / 3 and four < 0.2


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_computes_alike_with_packed_weights(small, arrays, bits):
    pytest.importorskip("mlx.core")
    from mlx import nn

    from nanospeech_mlx.engine import MlxEngine

    release = open_release(small[bits])
    engines = [
        MlxEngine(release, "cpu", packed=packed, compile=compile)
        for packed, compile in ((True, False), (True, True), (False, False))
    ]
    kinds = [type(e.dit.transformer_blocks[0].attn.to_q) for e in engines]
    assert kinds == [nn.QuantizedLinear, nn.QuantizedLinear, nn.Linear]
    packed, compiled, floats = (spoken(e, arrays["mel"][0])[0] for e in engines)
    assert np.abs(packed - floats).max() <= 1e-3
    assert np.abs(compiled - floats).max() <= 1e-3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_packed_weights_of_short_types(small, engine_of, monkeypatch, dtype):
    pytest.importorskip("mlx.core")
    from nanospeech_mlx.engine import MlxEngine

    monkeypatch.setattr(MlxEngine, "half_on_cpu", True)
    engine = MlxEngine(open_release(small[4]), "cpu", dtype, packed=True)
    x, text = noise(60, 100, 1)[None], engine.tokenizer.encode("hello.")[None]
    args = x, x * 0, text, np.array([0.4], np.float32)
    truth = engine_of(small[4], "mlx").velocity(*args)
    assert 0 < far(engine.velocity(*args), truth) < 0.05


def test_rounding_on_load_is_that_of_the_converted_folder(source, tmp_path, backend):
    assert convert(source, tmp_path / "out", "--quantize", 4, "--dtype", "float32") == 0
    engines = (
        load_engine(tmp_path / "out", backend, "cpu"),
        load_engine(source, backend, "cpu", quantize=4),
    )
    x, text = noise(60, 100, 1)[None], engines[0].tokenizer.encode("hello.")[None]
    time = np.array([0.4], np.float32)
    a, b = (e.velocity(x, x * 0, text, time) for e in engines)
    assert np.array_equal(a, b)


def test_a_packed_folder_becomes_a_plain_one_again(small, engine_of, arrays, tmp_path):
    assert convert(small[4], tmp_path / "out", "--dtype", "float32") == 0
    assert load_config(tmp_path / "out").quantization is None
    a, b = (
        spoken(engine_of(f, "torch"), arrays["mel"][0])[0] for f in (small[4], tmp_path / "out")
    )
    assert np.array_equal(a, b)


def test_conversion_takes_over_what_is_not_named(source, tmp_path):
    convert(source, tmp_path / "out", "--quantize", 4, "--temperature", "0.5", "--name", "few")
    old, new = load_config(source), load_config(tmp_path / "out")
    assert new.quantization is not None and set(new.quantization.vocoder.values()) == {4, 6}
    same = dataclasses.replace(new, quantization=None, name=old.name, temperature=1.0)
    assert same == old
    assert (tmp_path / "out" / "voices" / "tone.txt").exists()


def test_a_folder_without_a_vocoder_uses_the_shipped_one(source, tmp_path, engine_of, arrays):
    shutil.copytree(source, tmp_path / "bare")
    (tmp_path / "bare" / VOCODER).unlink()
    config = dataclasses.replace(load_config(source), vocoder=None)
    config.save(tmp_path / "bare" / "config.json")
    assert convert(tmp_path / "bare", tmp_path / "out", "--quantize", 4) == 0
    assert not (tmp_path / "out" / VOCODER).exists()
    assert np.isfinite(spoken(engine_of(tmp_path / "out", "torch"), arrays["mel"][0])[1]).all()


# What is refused.


def edited(folder: Path, tmp_path: Path, tensors=None, config=None) -> Path:
    """A copy of a folder with a change in its tensors or in config.json's quantization."""
    shutil.copytree(folder, tmp_path / "edited")
    if tensors is not None:
        found = load_file(tmp_path / "edited" / MODEL)
        tensors(found)
        save_file(found, tmp_path / "edited" / MODEL)
    if config is not None:
        path = tmp_path / "edited" / "config.json"
        values = json.loads(path.read_text())
        config(values)
        path.write_text(json.dumps(values))
    return tmp_path / "edited"


OUT = "transformer.proj_out"
QUERIES = "transformer.transformer_blocks.1.attn.to_q"  # of a kind that block 0 has too
NORM = "transformer.norm_out.linear.bias"


def reshaped(tensors: dict, change, *parts: str) -> None:
    """Changes the arrays of a packed layer, all of them by default."""
    for part in parts or ("weight", "scales", "biases"):
        name = f"{OUT}.{part}"
        tensors[name] = np.ascontiguousarray(change(tensors[name]))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"config": lambda c: c.pop("quantization")}, "holds packed weights"),
        ({"config": lambda c: c["quantization"]["model"].pop(OUT)}, "do not agree.*proj_out"),
        ({"config": lambda c: c["quantization"]["model"].update(none=4)}, "do not agree.*none"),
        ({"config": lambda c: c["quantization"]["model"].update({OUT: 4})}, "into 4 bits"),
        ({"config": lambda c: c["quantization"]["model"].update({OUT: 7})}, "choose from"),
        ({"config": lambda c: c["quantization"]["model"].update({OUT: "8"})}, "choose from"),
        ({"config": lambda c: c["quantization"].update(group_size=32)}, "groups of 32"),
        ({"config": lambda c: c["quantization"].update(group_size=48)}, "group_size is 48"),
        ({"config": lambda c: c["quantization"].update(mode="affine")}, "unknown keys"),
        ({"tensors": lambda t: t.pop(f"{OUT}.scales")}, "do not agree.*proj_out"),
        ({"tensors": lambda t: t.pop(f"{QUERIES}.scales")}, "do not agree.*blocks.1.attn.to_q"),
        ({"tensors": lambda t: t.pop(f"{OUT}.biases")}, "not packed into 8 bits"),
        ({"tensors": lambda t: t.update({f"{OUT}.scales": t[f"{OUT}.scales"][1:]})}, "not packed"),
        ({"tensors": lambda t: t.update({f"{OUT}.weight": weight((200, 16))})}, "not packed"),
        ({"tensors": lambda t: t.pop(f"{OUT}.weight")}, "proj_out"),
        ({"tensors": lambda t: reshaped(t, lambda a: a[:0])}, "not packed"),
        ({"tensors": lambda t: reshaped(t, lambda a: a[:, :0])}, "not packed"),
        ({"tensors": lambda t: reshaped(t, lambda a: a[:, :1], "weight")}, "not packed"),
        ({"tensors": lambda t: reshaped(t, lambda a: a[:, None], "weight")}, "not packed"),
        ({"tensors": lambda t: reshaped(t, lambda a: a[0], "weight")}, "not packed"),
        ({"tensors": lambda t: reshaped(t, lambda a: a.astype(np.uint32), "scales")}, "not packed"),
        ({"tensors": lambda t: reshaped(t, lambda a: a.astype(np.uint32), "biases")}, "not packed"),
        ({"tensors": lambda t: t.update({NORM: t[NORM].astype(np.uint32)})}, "uint32, not floats"),
    ],
)
def test_packing_that_config_and_file_do_not_agree_on(small, tmp_path, backend, change, word):
    folder = edited(small[8], tmp_path, **change)
    with pytest.raises(CheckpointError, match=word):
        load_engine(folder, backend, "cpu")
    with pytest.raises(NanospeechError):
        load_engine(folder, backend, "cpu", quantize=4)


def test_a_folder_is_rounded_to_fewer_bits_and_never_to_more(small, tmp_path, capsys):
    with pytest.raises(InputError, match="quantised already"):
        load_engine(small[4], "torch", quantize=8)
    assert convert(small[4], tmp_path / "out", "--quantize", 8) == 2
    assert "quantised already" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert convert(small[8], tmp_path / "four", "--quantize", 4) == 0
    loaded, made = (
        open_release(small[8]).quantize(4).weights(MODEL),
        open_release(tmp_path / "four").weights(MODEL),
    )
    before = open_release(small[8]).weights(MODEL)
    assert loaded.keys() == made.keys() == before.keys()
    for name, tensor in loaded.items():
        assert np.array_equal(tensor, made[name]), name
    assert any(np.abs(made[n] - before[n]).max() > 1e-3 for n in made)
    again = open_release(small[8]).quantize(8).weights(MODEL)
    for name, tensor in before.items():
        scale = np.abs(tensor).max()
        assert np.abs(again[name] - tensor).max() <= 0.005 * scale, name


def test_wishes_that_cannot_be(source, tmp_path, capsys):
    with pytest.raises(InputError, match="choose from 4, 8"):
        load_engine(source, "torch", quantize=5)
    assert convert(source, source, "--quantize", 4) == 2
    assert "name another" in capsys.readouterr().err
    assert convert(source, tmp_path / "out", "--weights", "raw") == 2
    assert "no raw weights" in capsys.readouterr().err


def test_packed_files_are_no_sources(small, tmp_path, capsys):
    assert convert(small[4] / MODEL, tmp_path / "out") == 2
    assert "name the release folder that they were made from" in capsys.readouterr().err


# The choice of bits.


def test_choosing_bits_measures_each_kind_of_layer(source, capsys):
    from nanospeech.evaluate.bits import main

    command = [str(source), "--backend", "torch", "--texts", "hello.", "--steps", "1"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    by_layer = {row["layers"]: row for row in json.loads(lines[-1])["rows"]}
    layers = [n for n in by_layer if n.startswith("model: ")]
    assert len(lines) == len(by_layer) + 3 and len(layers) > 10
    alone = by_layer["model: transformer.transformer_blocks.*.ff.ff.2"]
    assert 0 < alone["velocity"] < by_layer["all, 4 bits"]["velocity"] and alone["sound"] == 0
    assert sum(row["saved"] for n, row in by_layer.items() if ": " in n) == pytest.approx(
        by_layer["all, 4 bits"]["saved"], rel=1e-3
    )
    assert by_layer["--quantize 8"]["mel"] < by_layer["--quantize 4"]["mel"]
    assert main([str(source / "nothing")]) == 2


def test_some_parts_alone_are_packed(source, tmp_path, capsys):
    assert convert(source, tmp_path / "out", "--quantize", 8, "--quantize-only", "model") == 0
    q = load_config(tmp_path / "out").quantization
    assert q.model and not q.vocoder and not q.duration
    names = open_release(tmp_path / "out").weights(VOCODER)
    assert all(t.dtype == np.float16 for t in names.values())
    assert convert(source, tmp_path / "no", "--quantize-only", "model") == 2
    assert "how many bits" in capsys.readouterr().err
