"""The latents' codec and other projects' checkpoints: numbers, streaming, and what is refused."""

from __future__ import annotations

import importlib
import json
import shutil
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from convert import convert
from convert.codec import read_codec
from nanospeech.commands import main
from nanospeech.engine.codec_streaming import (
    context,
    decode_pieces,
    encode_pieces,
    encoder_context,
    whole_hops,
)
from nanospeech.engine.latents import PIECE, LatentEngine
from nanospeech.engine.worker import Worker
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import CodecConfig
from nanospeech.load import load_engine
from nanospeech.release.prompt import Prompt
from nanospeech.speech.streaming import vocode_chunk

from . import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_with_codec(tmp_path_factory.mktemp("codec"))


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_codec_is_what_it_was_when_it_equalled_dacvae(folder, backend):
    engine, golden = (
        load_engine(folder, backend, dtype="float32"),
        np.load(tiny.GOLDEN / "dacvae.npz"),
    )
    for name, got in tiny.codec_outputs(engine).items():
        wanted = golden[name]
        assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max(), name
    assert engine.config.audio.hop_length == 96 and len(golden["encode"]) == 10
    latent = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    both = np.stack([latent, latent[::-1]])
    long, short = engine.vocode(both, np.array([50, 20]))
    assert long.shape == (4800,) and short.shape == (1920,)
    assert np.abs(short - engine.vocode(both[1:, :20])[0]).max() <= 1e-6
    pieces = list(engine.vocode_stream(latent, 7))
    assert [len(p) for p in pieces] == [672] * 7 + [96]
    assert np.abs(np.concatenate(pieces) - long).max() <= 1e-6


def layered(backend: str, build, weights: dict[str, np.ndarray], x_BNC: np.ndarray) -> np.ndarray:
    """What a backend's layer makes of (B, N, C), with weights as torch has them."""
    pytest.importorskip({"torch": "torch", "mlx": "mlx.core"}[backend])
    conv = importlib.import_module(f"nanospeech_{backend}.echo.convolutions")
    layer = build(conv)
    if backend == "torch":
        import torch

        layer.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})
        with torch.no_grad():
            return conv.outer(layer(conv.inner(torch.from_numpy(x_BNC)))).numpy()
    import mlx.core as mx

    for name, w in weights.items():
        if w.ndim == 3:  # (out, kernel, in), and of transposed ones (in, kernel, out)
            w = w.transpose(0, 2, 1)
        assert layer[name].shape == w.shape
        layer[name] = mx.array(w)
    return np.array(conv.outer(layer(conv.inner(mx.array(x_BNC)))))


@pytest.mark.parametrize("backend", ["torch", "mlx"])
@pytest.mark.parametrize("rate", [2, 3, 4, 5, 12])
def test_a_stride_and_its_transpose_keep_time(backend, rate):
    """Whole hops in and out, also of odd rates; a hop's window is centred on it."""
    rng = np.random.default_rng(rate)
    weights = {"weight": rng.standard_normal((4, 3, 2 * rate)), "bias": rng.standard_normal(4)}
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    before = -(-rate // 2)
    x = rng.standard_normal((2, 7 * rate, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (before, rate), (0, 0)))
    windows = [padded[:, n * rate : (n + 2) * rate] for n in range(7)]
    wanted = [np.einsum("bkc,ock->bo", w, weights["weight"]) for w in windows]
    got = layered(backend, lambda m: m.Conv(3, 4, 2 * rate, stride=rate), weights, x)
    assert got.shape == (2, 7, 4)
    np.testing.assert_allclose(got, np.stack(wanted, 1) + weights["bias"], atol=1e-4)

    x = rng.standard_normal((2, 7, 4)).astype(np.float32)
    whole = np.zeros((2, 8 * rate, 3))
    for n in range(7):
        whole[:, n * rate : (n + 2) * rate] += np.einsum("bo,ock->bkc", x[:, n], weights["weight"])
    weights["bias"] = weights["bias"][:3]
    got = layered(backend, lambda m: m.Transposed(4, 3, rate), weights, x)
    assert got.shape == (2, 7 * rate, 3)
    wanted = whole[:, before : before + 7 * rate] + weights["bias"]
    np.testing.assert_allclose(got, wanted, atol=1e-4)


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_a_snake_has_a_frequency_for_each_channel(backend):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 9, 5)).astype(np.float32) * 3
    alpha = np.array([0.3, 1.0, 2.5, -0.7, 4.0], np.float32)
    got = layered(backend, lambda m: m.Snake(5), {"alpha": alpha}, x)
    np.testing.assert_allclose(got, x + np.sin(alpha * x) ** 2 / alpha, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["torch", "mlx"])
@pytest.mark.parametrize("dilation", [1, 3, 9])
def test_a_dilated_convolution_sees_as_much_before_as_behind(backend, dilation):
    rng = np.random.default_rng(0)
    weights = {"weight": rng.standard_normal((2, 3, 7)), "bias": rng.standard_normal(2)}
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    x = rng.standard_normal((1, 40, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (3 * dilation,) * 2, (0, 0)))
    taps = [padded[:, k * dilation : k * dilation + 40] for k in range(7)]
    wanted = sum(tap @ weights["weight"][:, :, k].T for k, tap in enumerate(taps))
    got = layered(backend, lambda m: m.Conv(3, 2, 7, dilation=dilation), weights, x)
    np.testing.assert_allclose(got, wanted + weights["bias"], atol=1e-4)


def test_pieces_are_decoded_where_the_engine_works(folder, monkeypatch):
    """By turns and in its thread, as arrays of MLX on a GPU belong to the thread that made them."""
    worker, threads = Worker(lambda: load_engine(folder, "torch", dtype="float32")), []
    decoded = LatentEngine.decoded

    def seen(self, latent):
        threads.append(threading.current_thread().name)
        return decoded(self, latent)

    monkeypatch.setattr(LatentEngine, "decoded", seen)
    latent = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    prompt = Prompt(np.zeros((0, 8), np.float32), np.zeros(0, np.int64), 15.0, 1.0)
    waves = list(vocode_chunk(worker, prompt, latent))
    assert len(waves) > 1 and set(threads) == {"nanospeech"}


@pytest.mark.parametrize("backend", ["torch", pytest.param("mlx", marks=pytest.mark.slow)])
def test_memory_for_latents_is_bounded(folder, monkeypatch, backend):
    """However long a speech or a recording is, no more of it is decoded or encoded at once."""
    engine, counts = load_engine(folder, backend, dtype="float32"), []
    hop, codec = engine.config.audio.hop_length, engine.config.codec
    latent = np.random.default_rng(0).standard_normal((2 * PIECE + 90, 8)).astype(np.float32)
    wave = engine.decoded(latent)
    latents = engine.encoded(wave)
    decoded, encoded = LatentEngine.decoded, LatentEngine.encoded
    monkeypatch.setattr(
        LatentEngine, "decoded", lambda e, part: [counts.append(len(part)), decoded(e, part)][1]
    )
    monkeypatch.setattr(
        LatentEngine, "encoded", lambda e, w: [counts.append(len(w) // hop), encoded(e, w)][1]
    )
    assert np.abs(engine.vocode(latent[None])[0] - wave).max() <= 1e-6
    assert np.abs(engine.encode(wave) - latents).max() <= 1e-5 * np.abs(latents).max()
    most = 2 * max(context(codec), encoder_context(codec))
    assert len(counts) == 6 and max(counts) <= PIECE + most


@pytest.mark.parametrize("rates", [(2, 3), (7,), (5, 2, 4), (3, 3, 2)])
@pytest.mark.parametrize("size", [1, 6, 50])
def test_latents_in_pieces_are_those_of_the_whole_wave(rates, size):
    """Of encoders of any strides, whose context is what `encoder_context` says."""
    torch = pytest.importorskip("torch")
    from nanospeech_torch.echo.codec import DACVAE

    codec = CodecConfig(
        encoder_dim=2, encoder_rates=rates, hidden_dim=4, decoder_dim=16,
        decoder_rates=rates[::-1], latent_dim=3,
    )  # fmt: skip
    torch.manual_seed(0)
    network = DACVAE(codec).double()

    def encode(wave: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return network.encode(torch.from_numpy(wave)[None])[0].numpy()

    wave = np.random.default_rng(0).standard_normal(40 * codec.hop_length)
    pieces = list(encode_pieces(encode, wave, codec, size))
    assert [len(p) for p in pieces] == [min(size, 40 - i) for i in range(0, 40, size)]
    np.testing.assert_allclose(np.concatenate(pieces), encode(wave), atol=1e-12)


def test_streaming_needs_the_context_that_it_takes(folder, monkeypatch):
    engine = load_engine(folder, "torch", dtype="float32")
    codec = engine.config.codec
    latent = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    whole = engine.decoded(latent)
    needed = context(codec)
    monkeypatch.setattr("nanospeech.engine.codec_streaming.context", lambda _: needed // 2)
    less = np.concatenate(list(decode_pieces(engine.decoded, latent, codec, 7)))
    assert np.abs(less - whole).max() > 1e-5


@pytest.mark.parametrize(
    "rates", [(2,), (3,), (4,), (64,), (3, 2), (2, 3), (3, 4), (5, 5), (4, 2, 3), (12, 10, 8, 2)]
)
def test_the_context_is_as_far_as_a_latent_is_heard(rates):
    """A latent of NaN makes NaN of every sample that it reaches, whatever the weights are."""
    torch = pytest.importorskip("torch")
    from nanospeech_torch.echo.codec import Decoder

    config = CodecConfig(decoder_rates=rates, decoder_dim=2 ** len(rates), hidden_dim=2)
    reach = context(config)
    latent = torch.zeros(1, 2, 2 * reach + 5)
    latent[:, :, reach + 2] = torch.nan
    with torch.no_grad():
        wave = Decoder(config)(latent).reshape(-1, config.hop_length)
    (heard,) = np.nonzero(wave.isnan().any(1).numpy())
    assert max(reach + 2 - heard[0], heard[-1] - reach - 2) == reach


def test_published_sizes():
    codec = CodecConfig()
    assert (codec.hop_length, codec.frame_rate, context(codec)) == (1920, 25, 8)
    torch = pytest.importorskip("torch")
    from nanospeech_torch.echo.codec import DACVAE

    with torch.device("meta"):
        count = sum(p.numel() for p in DACVAE(codec).parameters())
    assert count == 92_972_193  # of 107.7M with weight_norm's vectors and the watermark's layers


def test_a_folder_has_the_rate_of_its_codec(folder, tmp_path):
    """Else its speech comes out at another speed."""
    config = json.loads((folder / "config.json").read_text())
    config["audio"]["hop_length"] *= 2
    other = shutil.copytree(folder, tmp_path / "copy")
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="disagree on sample_rate and hop_length"):
        load_engine(other, "torch")


def test_waves_are_reflected_to_whole_hops():
    wave = np.arange(5, dtype=np.float32)
    assert whole_hops(wave, 4).tolist() == [0, 1, 2, 3, 4, 3, 2, 1]
    assert whole_hops(wave[:2], 6).tolist() == [0, 1, 0, 1, 0, 1]
    assert whole_hops(wave[:4], 4).tolist() == [0, 1, 2, 3]
    assert whole_hops(wave[3:4], 3).tolist() == [3, 3, 3]
    for none in (np.zeros((2, 3)), np.zeros(0)):
        with pytest.raises(InputError, match="samples"):
            whole_hops(none, 4)


@pytest.mark.parametrize("count", [1, 7, 8, 40])
@pytest.mark.parametrize("size", [1, 7, 50])
def test_pieces_are_the_whole_and_take_no_more_than_their_context(count, size):
    codec, asked = CodecConfig(decoder_rates=(3, 2)), []
    latent = np.arange(float(count), dtype=np.float32)[:, None]

    def decode(part: np.ndarray) -> np.ndarray:
        asked.append(len(part))
        return np.repeat(part[:, 0], codec.hop_length)

    pieces = list(decode_pieces(decode, latent, codec, size))
    assert [len(p) // codec.hop_length for p in pieces[:-1]] == [size] * (-(-count // size) - 1)
    assert np.array_equal(np.concatenate(pieces), np.repeat(latent[:, 0], codec.hop_length))
    assert max(asked) <= size + 2 * context(codec)


def test_watermark_is_left_out_and_weights_are_whole(tmp_path):
    weights = tiny.dacvae()
    _, tensors = read_codec(written(tmp_path / "a.safetensors", weights))
    assert not any("wm_model" in n for n in tensors)
    v, g = weights["decoder.model.1.block.1.weight_v"], weights["decoder.model.1.block.1.weight_g"]
    rows = np.sqrt((v**2).sum((1, 2), keepdims=True))
    folded = tensors["decoder.stages.0.conv.weight"].numpy()
    assert np.allclose(folded, g * v / rows, atol=1e-6)
    weights.pop("encoder.block.1.block.3.alpha")
    with pytest.raises(CheckpointError, match=r"encoder\.block\.1\.block\.3\.alpha"):
        read_codec(written(tmp_path / "b.safetensors", weights))


@pytest.mark.parametrize(
    "name",
    ["decoder.model.0.weight_v", "quantizer.out_proj.weight_v", "encoder.block.1.block.4.weight_v",
     "encoder.block.0.weight_g"],
)  # fmt: skip
def test_a_codec_that_is_not_whole_is_refused(tmp_path, name):
    weights = tiny.dacvae()
    tensor = weights.pop(name)
    path = tmp_path / "dacvae.safetensors"
    refused = r"dacvae\.safetensors is (no whole DAC-VAE|damaged or of another)"
    with pytest.raises(CheckpointError, match=refused):
        read_codec(written(path, weights))
    for odd in (tensor[:1], tensor.reshape(-1), tensor[:0], np.zeros((), np.float32)):
        with pytest.raises(CheckpointError, match=refused):
            read_codec(written(path, weights | {name: odd}))


def test_the_layers_of_a_codec_fit_together(tmp_path):
    weights = tiny.dacvae()
    layer = "decoder.model.2.block.4.block.1."
    weights |= {layer + n: weights[layer + n][:-1] for n in ("weight_g", "weight_v", "bias")}
    with pytest.raises(CheckpointError, match=r"decoder\.stages\.1\.units\.0\.conv1"):
        read_codec(written(tmp_path / "narrow.safetensors", weights))


def test_codec_comes_from_weights_pth_unpickled_without_code(tmp_path):
    torch = pytest.importorskip("torch")
    state = {n: torch.from_numpy(t) for n, t in tiny.dacvae().items()}
    kwargs = {"kwargs": {"sample_rate": 48_000}}
    torch.save({"state_dict": state, "metadata": kwargs}, tmp_path / "weights.pth")
    config, _ = read_codec(tmp_path / "weights.pth")
    assert config.encoder_rates == (2, 4, 2, 6) and config.decoder_rates == (6, 2, 4, 2)


def written(path, weights):
    save_file(weights, str(path))
    return path


def test_irodori_is_converted_by_the_command(tmp_path, capsys):
    assert main(
        ["convert", str(tiny.GOLDEN / "irodori.safetensors"), "--output", str(tmp_path / "out"),
         "--dtype", "float32"]
    ) == 0  # fmt: skip
    assert "mit" in capsys.readouterr().out
    config = load_engine(tmp_path / "out", "torch", dtype="float32").config
    assert config.echo == tiny.IRODORI and config.imitates
    assert "EchoDiT, 2 blocks" in (tmp_path / "out" / "README.md").read_text()


def test_echo_is_converted_when_its_licence_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    weights = tiny.seeded(tiny.network_shapes(tiny.ECHO))
    plain = {n.removeprefix("transformer."): t for n, t in weights.items()}
    path = written(tmp_path / "pytorch_model.safetensors", plain)
    with pytest.raises(InputError, match="accept-licence"):
        convert(path, tmp_path / "out", dtype="float32")
    config = convert(path, tmp_path / "out", dtype="float32", accept_licence=True)
    assert config.echo == tiny.ECHO and config.audio.hop_length == 2048
    kept = load_file(str(tmp_path / "out" / "model.safetensors"))
    assert kept.keys() == weights.keys()
    assert all(np.array_equal(kept[n], weights[n]) for n in kept)
    plain.pop("blocks.1.mlp.w1.weight")
    with pytest.raises(CheckpointError, match=r"blocks\.1\.mlp\.w1"):
        convert(written(path, plain), tmp_path / "bad", dtype="float32", accept_licence=True)
        load_engine(tmp_path / "bad", "torch")


def test_a_codec_of_other_latents_is_refused(tmp_path):
    path = written(tmp_path / "dacvae.safetensors", tiny.dacvae())
    with pytest.raises(InputError, match="latents of 8, but the model speaks latents of 16"):
        convert(tiny.GOLDEN / "irodori.safetensors", tmp_path / "out", codec=path)
    with pytest.raises(CheckpointError, match="no DAC-VAE"):
        read_codec(tiny.GOLDEN / "irodori.safetensors")
