"""The vocoder in both backends: golden parity, padding, sizes, losses."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from nanospeech.audio import mel
from nanospeech.config import VocoderConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.shapes import GRIFFIN_LIM_ITERS, vocoder_config_from_shapes

BACKENDS = ("torch", "mlx")
TINY = VocoderConfig(dim=16, intermediate_dim=32, num_layers=2)
ROOT = Path(__file__).resolve().parents[2]


def build(backend, config, weights=None):
    """The vocoder as a function of NumPy arrays, with these torch-layout weights or seeded ones."""
    torch = pytest.importorskip("torch")
    from nanospeech_torch import vocoder as torch_vocoder

    if weights is None:
        torch.manual_seed(0)
        weights = torch_vocoder.Vocos(config).state_dict()
        for name in ("head.out.weight", "head.delay.weight"):
            if config.griffin_lim_iters:  # which begin as zeros
                torch.nn.init.normal_(weights[name], std=0.02)
    if backend == "torch":
        model = torch_vocoder.Vocos(config)
        model.load_state_dict(torch_vocoder.sanitize(weights))

        @torch.no_grad()
        def call(mels, lens=None):
            lens = None if lens is None else torch.from_numpy(lens)
            return model(torch.from_numpy(mels), lens).numpy()

        return call
    if backend == "onnx":
        from nanospeech_onnx.session import Place
        from nanospeech_onnx.vocoder import Vocos

        arrays = {k: v.numpy() for k, v in torch_vocoder.sanitize(weights).items()}
        return Vocos(config, arrays, Path("vocoder"), Place())
    mx = pytest.importorskip("mlx.core")
    from nanospeech_mlx import vocoder as mlx_vocoder

    model = mlx_vocoder.Vocos(config)
    arrays = {k: mx.array(v.numpy()) for k, v in weights.items()}
    model.load_weights(list(mlx_vocoder.sanitize(arrays).items()), strict=True)
    return lambda mels, lens=None: np.array(
        model(mx.array(mels), None if lens is None else mx.array(lens))
    )


def tone(samples, pitch=140.0):
    """A wave with harmonics, an envelope and a little noise."""
    t = np.arange(samples) / 24_000
    harmonics = sum(np.sin(2 * np.pi * pitch * k * t) / k for k in range(1, 20))
    noise = np.random.default_rng(0).standard_normal(samples)
    return (0.1 * harmonics * (1.2 + np.sin(9 * t)) + 0.005 * noise).astype(np.float32)


@pytest.mark.parametrize(("backend", "tolerance"), [("torch", 1e-4), ("mlx", 5e-4), ("onnx", 1e-4)])
def test_golden(golden, backend, tolerance):
    torch = pytest.importorskip("torch")
    weights = torch.load(golden / "vocos_pytorch_model.bin", weights_only=True)
    config = vocoder_config_from_shapes({k: tuple(v.shape) for k, v in weights.items()})
    assert config == VocoderConfig(dim=64, intermediate_dim=128, num_layers=2)
    arrays = np.load(golden / "vocos.npz")
    got = build(backend, config, weights)(arrays["mel"].transpose(0, 2, 1).copy())
    assert got.shape == arrays["audio"].shape == (1, 93 * 256)
    assert np.abs(got - arrays["audio"]).max() <= tolerance


PRIOR = dataclasses.replace(TINY, mel_prior=True)
ROUNDS = dataclasses.replace(TINY, griffin_lim_iters=1)


@pytest.mark.parametrize("config", [TINY, PRIOR])
def test_backends_agree(config):
    mels = np.stack([mel.log_mel(tone(9000)), mel.log_mel(tone(9000, 200))])
    a, b, c = (build(backend, config)(mels) for backend in (*BACKENDS, "onnx"))
    assert np.abs(a).max() > 1e-3
    assert np.abs(a - b).max() <= 1e-5 and np.abs(a - c).max() <= 1e-5


@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_a_mel_prior_gives_the_magnitudes_that_no_weight_knows(backend):
    torch = pytest.importorskip("torch")
    from nanospeech_torch import phase, vocoder

    weights = {k: torch.zeros_like(v) for k, v in vocoder.Vocos(PRIOR).state_dict().items()}
    log_mel = mel.log_mel(tone(9000))[None]
    wave = build(backend, PRIOR, weights)(log_mel)[0]
    smooth = phase.mel_pseudo_inverse(torch.from_numpy(log_mel).exp(), PRIOR.n_fft)
    zero = torch.zeros_like(smooth)
    from nanospeech_torch.stft import istft

    wanted = istft(smooth, zero, PRIOR.n_fft, PRIOR.hop_length)[0].numpy()
    assert np.abs(wave - wanted).max() <= 1e-4 * np.abs(wanted).max()
    louder = build(backend, PRIOR, weights)(log_mel + np.log(np.float32(2)))[0]
    assert np.allclose(louder, 2 * wave, atol=1e-3 * np.abs(wave).max())


@pytest.mark.parametrize("config", [TINY, PRIOR])
@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_a_batch_of_unequal_lengths_equals_the_items_alone(backend, config):
    vocode = build(backend, config)
    random = np.random.default_rng(1)
    lens = np.array([40, 1, 17, 3])
    batch = random.standard_normal((4, 40, 100)).astype(np.float32)  # padding is junk, not zeros
    together = vocode(batch, lens)
    assert together.shape == (4, 39 * 256)
    for wave, item, n in zip(together, batch, lens):
        samples = (n - 1) * 256
        assert not wave[samples:].any()
        if samples:
            alone = vocode(item[None, :n])
            assert alone.shape == (1, samples)
            assert np.abs(wave[:samples] - alone[0]).max() <= 1e-5


@pytest.mark.parametrize(("config", "most"), [(TINY, np.log(100)), (PRIOR, 5), (ROUNDS, 5)])
@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_magnitudes_are_bounded_whatever_the_network_says(backend, config, most):
    torch = pytest.importorskip("torch")
    from nanospeech_torch import vocoder

    weights = {k: torch.zeros_like(v) for k, v in vocoder.Vocos(config).state_dict().items()}

    def wave(change: float) -> np.ndarray:
        """That of a network which says the same of some bins."""
        bins = config.n_fft // 2 + 1
        weights["head.out.bias"][20:80] = change
        weights["head.out.bias"][bins:] = torch.arange(bins) * torch.pi  # in a frame's middle
        return build(backend, config, weights)(log_mel)

    log_mel = mel.log_mel(tone(3000))[None]
    for sign in (1, -1) if config is not TINY else (1,):
        bounded = wave(sign * most)
        peak = np.abs(bounded).max()
        assert np.abs(wave(sign * 60) - bounded).max() <= 1e-5 * peak
        assert np.abs(wave(sign * (most - 0.5)) - bounded).max() > 1e-4 * peak > 0


def test_config_from_shapes_reads_every_size():
    torch_vocoder = pytest.importorskip("nanospeech_torch.vocoder")
    config = VocoderConfig(dim=24, intermediate_dim=40, num_layers=3, n_mels=80, n_fft=512)
    shapes = {"backbone.convnext.10.gamma": (24,)}  # ten sorts before two: count, do not sort
    assert vocoder_config_from_shapes(
        {k: tuple(v.shape) for k, v in torch_vocoder.Vocos(config).state_dict().items()}
    ) == VocoderConfig(24, 40, 3, 80, 512, 128)
    slopes = torch_vocoder.Vocos(dataclasses.replace(TINY, griffin_lim_iters=2)).state_dict()
    read = vocoder_config_from_shapes({k: tuple(v.shape) for k, v in slopes.items()})
    assert read == dataclasses.replace(TINY, griffin_lim_iters=GRIFFIN_LIM_ITERS)
    with pytest.raises(CheckpointError, match=r"backbone\.embed\.weight"):
        vocoder_config_from_shapes(shapes)


@pytest.mark.parametrize("hop", [300, 1024])  # 1024 is no even multiple of either
@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_a_hop_that_does_not_fit_is_refused(backend, hop):
    vocoder = pytest.importorskip(f"nanospeech_{backend}.vocoder")
    rest = [{}, Path("vocoder"), None] if backend == "onnx" else []
    with pytest.raises(InputError, match="hop_length"):
        vocoder.Vocos(VocoderConfig(n_fft=1024, hop_length=hop), *rest)


def test_a_graphs_weights_are_those_of_its_config():
    session = pytest.importorskip("nanospeech_onnx.session")
    from nanospeech_onnx.vocoder import Vocos

    with pytest.raises(CheckpointError, match=r"missing backbone\.convnext\.0"):
        Vocos(TINY, {}, Path("vocoder"), session.Place())


def test_the_training_mel_is_the_mel():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.train.objectives.vocoder_loss import log_mel

    wave = tone(12_000)
    assert np.abs(log_mel(torch.from_numpy(wave)[None])[0].numpy() - mel.log_mel(wave)).max() < 1e-4


def test_the_losses_vanish_for_equal_waves_and_fall_in_training():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.train.objectives import vocoder_loss as losses
    from nanospeech_torch.vocoder import Vocos

    wave = torch.from_numpy(tone(256 * 31))[None]
    target = losses.spectrograms(wave)
    assert all(v == 0 for v in losses.spectral_losses(target, target).values())
    torch.manual_seed(0)
    model = Vocos(VocoderConfig(dim=64, intermediate_dim=96, num_layers=2))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    mels, history = losses.log_mel(wave), []
    for _ in range(50):
        parts = losses.spectral_losses(losses.spectrograms(model(mels)), target)
        loss = torch.stack(list(parts.values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < 0.5 * history[0]


def test_discriminators_learn_and_give_the_vocoder_a_gradient():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.train.objectives import vocoder_loss as losses

    torch.manual_seed(0)
    real = torch.from_numpy(np.stack([tone(8192, p) for p in (120, 160, 210)]))
    fake = (0.1 * torch.randn_like(real)).requires_grad_(True)
    judges = losses.Discriminators(4, 4)
    optimizer = torch.optim.AdamW(judges.parameters(), 3e-3)
    history = []
    for _ in range(6):
        of_real = judges(real, losses.spectrograms(real))
        of_fake = judges(fake.detach(), losses.spectrograms(fake.detach()))
        loss = losses.discriminator_loss(of_real, of_fake)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < history[0] < 2.5  # 2 is knowing nothing
    of_fake = judges(fake, losses.spectrograms(fake))
    of_real = judges(real, losses.spectrograms(real))
    torch.stack(losses.generator_losses(of_fake, of_real)).sum().backward()
    assert fake.grad is not None and fake.grad.abs().sum() > 0
