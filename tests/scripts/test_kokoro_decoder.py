"""Kokoro's decoder: an export's weights by module, its graph cut, and waves of small networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scripts.recipes import kokoro_decoder
from scripts.recipes.kokoro_decoder import Decoder, normalized, snake

RNG = np.random.default_rng(0)
TEXT, STYLE = 6, 4  # channels of a small network


def small_weights() -> dict[str, np.ndarray]:
    """Weights of every module, with few channels."""
    w: dict[str, np.ndarray] = {}

    def convolution(name: str, *shape: int, out: int = 0) -> None:
        w[f"{name}.weight"] = RNG.normal(0, 0.2, shape).astype(np.float32)
        w[f"{name}.bias"] = RNG.normal(0, 0.1, out or shape[0]).astype(np.float32)

    def norm(name: str, channels: int) -> None:
        convolution(f"{name}.fc", 2 * channels, STYLE)

    def block(name: str, given: int, out: int) -> None:
        norm(f"{name}.norm1", given)
        norm(f"{name}.norm2", out)
        convolution(f"{name}.conv1", out, given, 3)
        convolution(f"{name}.conv2", out, out, 3)
        convolution(f"{name}.conv1x1", out, given, 1)
        del w[f"{name}.conv1x1.bias"]

    def residual(name: str, channels: int, size: int) -> None:
        for half in (1, 2):
            for i in range(3):
                norm(f"{name}.adain{half}.{i}", channels)
                convolution(f"{name}.convs{half}.{i}", channels, channels, size)
                w[f"{name}.alpha{half}.{i}"] = np.ones((1, channels, 1), np.float32)

    for curve in ("F0_conv", "N_conv"):
        convolution(curve, 1, 1, 3)
    convolution("asr_res", 2, TEXT, 1)
    block("encode", TEXT + 2, 8)
    for i in range(4):
        block(f"decode.{i}", 8 + 2 + 2, 8)
    convolution("decode.3.pool", 12, 1, 3)
    convolution("generator.m_source.l_linear", 1, 9)
    convolution("generator.noise_convs.0", 4, 22, 12)
    convolution("generator.noise_convs.1", 3, 22, 1)
    for level, (channels, size) in enumerate(((4, 7), (3, 11))):
        residual(f"generator.noise_res.{level}", channels, size)
        for i, kernel in enumerate((3, 7, 11)):
            residual(f"generator.resblocks.{3 * level + i}", channels, kernel)
    convolution("generator.ups.0", 8, 4, 20, out=4)
    convolution("generator.ups.1", 4, 3, 12, out=3)
    convolution("generator.conv_post", 22, 3, 7)
    return w


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder(small_weights(), compiles=False, dtype=torch.float32)


def frames(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    text = rng.normal(size=(1, TEXT, count)).astype(np.float32)
    pitch = rng.uniform(80, 300, (1, 2 * count)).astype(np.float32)
    energy = rng.normal(size=(1, 2 * count)).astype(np.float32)
    return [text, pitch, energy, rng.normal(size=(1, STYLE)).astype(np.float32)]


def test_a_frame_is_600_samples_whatever_lengths_are_filled_up_to(decoder, monkeypatch):
    odd = decoder(*frames(13))
    assert odd.shape == (600 * 13,) and odd.dtype == np.float32 and np.isfinite(odd).all()
    text, pitch, energy, style = frames(13)
    filled = [np.pad(text, [(0, 0), (0, 0), (0, 7)], "edge")]
    filled += [np.pad(a, [(0, 0), (0, 14)], "edge") for a in (pitch, energy)]
    np.testing.assert_array_equal(decoder(*filled, style)[: len(odd)], odd)


def test_the_source_has_the_pitch_and_is_silent_below_10_hz(decoder):
    one = Decoder(small_weights(), compiles=False, dtype=torch.float32)
    linear = "generator.m_source.l_linear"
    one.weights[f"{linear}.weight"] = torch.eye(9)[:1]  # the fundamental alone
    one.weights[f"{linear}.bias"] = torch.zeros(1)
    pitch = torch.full((1, 80), 200.0)  # a second
    source = one.source(pitch)
    assert source.shape == (1, 22, 1, 24000 // 5 + 1)
    spectrum = torch.polar(source[:, :11, 0], source[:, 11:, 0])
    wave = torch.istft(spectrum, 20, 5, 20, one.window)[0]
    strongest = torch.fft.rfft(wave[2000:22000]).abs().argmax()
    assert strongest * 24000 / 20000 == pytest.approx(200, abs=1)
    assert wave.abs().max() == pytest.approx(np.tanh(0.1), rel=0.01)
    assert one.source(torch.full((1, 80), 9.0))[:, :11].abs().max() == 0


def test_norms_give_each_channel_the_styles_mean_and_deviation():
    x = 3 + 2 * torch.randn(1, 5, 1, 4000)
    scale, shift = torch.full((1, 5, 1, 1), 0.5), torch.arange(5.0).reshape(1, 5, 1, 1)
    y = normalized(x, scale, shift)
    assert torch.allclose(y.mean((2, 3)), shift[:, :, 0, 0], atol=1e-4)
    assert torch.allclose(y.std((2, 3)), scale[:, :, 0, 0].expand(1, 5), atol=1e-3)
    still = snake(x, torch.zeros_like(scale), shift, torch.full_like(shift, 2.0))
    assert torch.allclose(
        still[0, :, 0, 0], shift.flatten() + torch.sin(2 * shift.flatten()) ** 2 / 2
    )


def test_an_export_is_cut_at_the_frames_and_gives_the_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, to = onnx.helper, onnx.numpy_helper.from_array
    up = "/decoder/decoder/generator/ups.0/ConvTranspose"
    mixing = "/decoder/decoder/encode/conv1/Conv_quant"
    nodes = [
        helper.make_node("Identity", ["tokens"], [kokoro_decoder.FRAMES[0]], "/encoder/MatMul_1"),
        helper.make_node("Neg", ["tokens"], [kokoro_decoder.FRAMES[1]], "/encoder/Reshape"),
        helper.make_node("Mul", ["tokens", "half"], [kokoro_decoder.FRAMES[2]], "/encoder/Mul"),
        helper.make_node("ConvTranspose", [kokoro_decoder.FRAMES[0], "u", "b"], ["risen"], up),
        helper.make_node("ConvInteger", ["risen", "w_quantized", "z", "w_zero"], ["audio"], mixing),
    ]
    arrays = {
        "half": np.array([0.5], np.float32),
        "u": np.ones((1, 2, 3), np.float32),
        "b": np.zeros(2, np.float32),
        "w_quantized": np.array([[[9, 11, 12]]], np.uint8),
        "w_scale": np.float32(0.5),
        "w_zero": np.uint8(10),
        "z": np.uint8(0),
        "decoder.decoder.encode.conv1.bias": np.array([7], np.float32),
    }
    given = helper.make_tensor_value_info("tokens", onnx.TensorProto.FLOAT, [1, 1, 4])
    made = helper.make_tensor_value_info("audio", onnx.TensorProto.INT32, None)
    initial = [to(np.asarray(a), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "kokoro", [given], [made], initial)
    onnx.save(helper.make_model(graph), str(tmp_path / "kokoro.onnx"))
    model, weights = kokoro_decoder.read_export(tmp_path / "kokoro.onnx")
    np.testing.assert_array_equal(weights["encode.conv1.weight"], [[[-0.5, 0.5, 1.0]]])
    assert weights["encode.conv1.bias"] == 7
    assert weights["generator.ups.0.weight"].shape == (1, 2, 3)
    left = onnx.load_from_string(model).graph
    assert [n.name for n in left.node] == [n.name for n in nodes[:3]]
    assert [i.name for i in left.initializer] == ["half"]
    assert [o.name for o in left.output] == kokoro_decoder.FRAMES
