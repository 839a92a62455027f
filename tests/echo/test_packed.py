"""EchoDiTs in few bits: what is packed, and that both backends compute the same of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from nanospeech.config import ModelConfig
from nanospeech.latent_architectures import EchoConfig
from nanospeech.load import load_engine
from nanospeech.release import quantization
from nanospeech.release.folder import open_release

from . import tiny

CONFIG = EchoConfig(
    latent_dim=16, dim=128, depth=2, heads=2, ff_dim=128, text_dim=64, text_depth=1, text_heads=2,
    text_ff_dim=64, speaker_dim=64, speaker_depth=1, speaker_heads=2, speaker_ff_dim=64,
    target_duration=True, time_dim=64, adaln_rank=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same network in floats, in 4 and in 8 bits."""
    convert = pytest.importorskip("convert").convert
    made = {0: tmp_path_factory.mktemp("floats")}
    tiny.write(made[0], CONFIG, tiny.seeded(tiny.network_shapes(CONFIG)))
    for bits in (4, 8):
        made[bits] = tmp_path_factory.mktemp("packed") / "small"
        convert(made[0], made[bits], quantize=bits, dtype="float32")
    return made


def velocity(engine: Any) -> np.ndarray:
    i = tiny.echo_inputs()
    rng = np.random.default_rng(5)
    x, speaker = (rng.standard_normal((2, n, 16), dtype=np.float32) for n in (13, 12))
    return engine.velocity(x, speaker, i["text"], i["t"], seconds_B=np.array([3.0, 1.0]))


def far(x: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(x - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("bits", [4, 8])
def test_linear_layers_are_packed_but_those_of_times_tokens_and_norms(bits):
    network_shapes = pytest.importorskip("convert.echo").network_shapes  # allocates nothing
    network = EchoConfig(text_input=640, target_duration=True, text_tags=["<laugh>"])
    own = EchoConfig(text_depth=1, text_window=1.0)
    for config, kept in (
        (network, {"text_proj", "text_tag", "cond_module.0", "duration_module.0"}),
        (
            own,
            {"text_encoder.text_embedding", "text_duration.0", "text_duration.2", "cond_module.0"},
        ),
    ):
        shapes = network_shapes(config)
        layers = quantization.plan({"model": shapes}, bits).model
        matrices = {n for n, s in shapes.items() if n.endswith(".weight") and len(s) == 2}
        left = {n for n in matrices if quantization.layer_of(n) not in layers}
        others = {n.removeprefix("transformer.").removesuffix(".weight") for n in left}
        assert {n for n in others if not n.endswith(("q_norm", "k_norm"))} == kept
        assert not any("norm" in layer for layer in layers)
        assert set(layers.values()) == ({8} if bits == 8 else {4, 8})


@pytest.mark.parametrize("bits", [4, 8])
def test_backends_compute_the_same_of_packed_weights(folders, bits):
    mx = pytest.importorskip("mlx.core")
    from mlx import nn

    from nanospeech_mlx.echo.engine import MlxLatentEngine

    torch = velocity(load_engine(folders[bits], "torch", dtype="float32"))
    release = open_release(folders[bits])
    packed = MlxLatentEngine(release, "cpu", "float32", packed=True)
    assert type(packed.dit.blocks[0].attention.wq) is nn.QuantizedLinear
    assert type(packed.dit.speaker_encoder.blocks[0].mlp.w1) is nn.QuantizedLinear
    assert type(packed.dit.cond_module[2]) is nn.QuantizedLinear
    assert packed.dit.blocks[0].attention.q_norm.weight.dtype == mx.float32
    assert far(velocity(packed), torch) <= 1e-4
    assert far(velocity(load_engine(folders[bits], "mlx", dtype="float32")), torch) <= 1e-4


def test_more_bits_come_nearer(folders):
    truth, four, eight = (
        velocity(load_engine(folders[bits], "torch", dtype="float32")) for bits in (0, 4, 8)
    )
    assert 0 < far(eight, truth) < far(four, truth) / 3


def test_rounding_on_load_is_that_of_the_folder(folders):
    want = velocity(load_engine(folders[4], "torch", dtype="float32"))
    got = velocity(load_engine(folders[0], "torch", dtype="float32", quantize=4))
    assert far(got, want) <= 1e-6


def test_a_codec_stays_what_it_is(tmp_path):
    convert = pytest.importorskip("convert").convert
    config = EchoConfig(**{**vars(CONFIG), "latent_dim": 8})
    tiny.write(tmp_path, config, tiny.seeded(tiny.network_shapes(config)))
    tiny.save_file(tiny.dacvae(), str(tmp_path / "dacvae.safetensors"))
    for bits in (None, 8):
        codec = tmp_path / "dacvae.safetensors"
        convert(tmp_path, tmp_path / str(bits), quantize=bits, dtype="float16", codec=codec)
    folder = tmp_path / "8"
    assert "| 8 bits, float16 |" in (folder / "README.md").read_text()
    assert ModelConfig.load(folder / "config.json").quantization.vocoder == {}
    plain, same = (load_file(tmp_path / n / "codec.safetensors") for n in ("None", "8"))
    assert all(np.array_equal(plain[n], same[n]) for n in plain) and plain.keys() == same.keys()
    engine: Any = load_engine(folder, "torch", dtype="float32")
    assert np.isfinite(engine.vocode(np.zeros((1, 5, 8), np.float32))[0]).all()
