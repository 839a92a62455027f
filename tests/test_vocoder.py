"""The vocoder in both backends: golden parity, padding, the inverse STFT, training."""

import json
from pathlib import Path

import numpy as np
import pytest

from nanospeech import mel
from nanospeech.checkpoint_shapes import vocoder_config_from_shapes
from nanospeech.config import VocoderConfig
from nanospeech.errors import CheckpointError, InputError

BACKENDS = ("torch", "mlx")
TINY = VocoderConfig(dim=16, intermediate_dim=32, num_layers=2)
ROOT = Path(__file__).resolve().parent.parent


def build(backend, config, weights=None):
    """The vocoder as a function of NumPy arrays, with these torch-layout weights or seeded ones."""
    torch = pytest.importorskip("torch")
    from nanospeech_torch import vocoder as torch_vocoder

    if weights is None:
        torch.manual_seed(0)
        weights = torch_vocoder.Vocos(config).state_dict()
    if backend == "torch":
        model = torch_vocoder.Vocos(config)
        model.load_state_dict(torch_vocoder.sanitize(weights))

        @torch.no_grad()
        def call(mels, lens=None):
            lens = None if lens is None else torch.from_numpy(lens)
            return model(torch.from_numpy(mels), lens).numpy()

        return call
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


@pytest.mark.parametrize(("backend", "tolerance"), [("torch", 1e-4), ("mlx", 5e-4)])
def test_golden(golden, backend, tolerance):
    torch = pytest.importorskip("torch")
    weights = torch.load(golden / "vocos_pytorch_model.bin", weights_only=True)
    config = vocoder_config_from_shapes({k: tuple(v.shape) for k, v in weights.items()})
    assert config == VocoderConfig(dim=64, intermediate_dim=128, num_layers=2)
    arrays = np.load(golden / "vocos.npz")
    got = build(backend, config, weights)(arrays["mel"].transpose(0, 2, 1).copy())
    assert got.shape == arrays["audio"].shape == (1, 93 * 256)
    assert np.abs(got - arrays["audio"]).max() <= tolerance


def test_backends_agree():
    mels = np.stack([mel.log_mel(tone(9000)), mel.log_mel(tone(9000, 200))])
    a, b = (build(backend, TINY)(mels) for backend in BACKENDS)
    assert np.abs(a - b).max() <= 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_of_unequal_lengths_equals_the_items_alone(backend):
    vocode = build(backend, TINY)
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


@pytest.mark.parametrize("n_fft", [1024, 512])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_inverse_transform_gives_the_wave_back(backend, n_fft):
    hop = 256
    wave = tone(hop * 30)
    padded = np.pad(wave, n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop]
    spectrum = np.fft.rfft(frames * mel.window(n_fft))[None]
    real, imag = spectrum.real.astype(np.float32), spectrum.imag.astype(np.float32)
    if backend == "torch":
        torch = pytest.importorskip("torch")
        from nanospeech_torch.vocoder import istft

        back = istft(torch.from_numpy(real), torch.from_numpy(imag), n_fft, hop).numpy()
    else:
        mx = pytest.importorskip("mlx.core")
        from nanospeech_mlx.vocoder import istft

        back = np.array(istft(mx.array(real), mx.array(imag), n_fft, hop))
    assert back.shape == (1, len(wave))
    assert np.abs(back[0] - wave).max() <= 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_loud_mels_stay_finite(backend):
    wave = build(backend, TINY)(np.full((1, 8, 100), 1e4, np.float32))
    assert np.isfinite(wave).all()


def test_config_from_shapes_reads_every_size():
    torch_vocoder = pytest.importorskip("nanospeech_torch.vocoder")
    config = VocoderConfig(dim=24, intermediate_dim=40, num_layers=3, n_mels=80, n_fft=512)
    shapes = {"backbone.convnext.10.gamma": (24,)}  # ten sorts before two: count, do not sort
    assert vocoder_config_from_shapes(
        {k: tuple(v.shape) for k, v in torch_vocoder.Vocos(config).state_dict().items()}
    ) == VocoderConfig(24, 40, 3, 80, 512, 128)
    with pytest.raises(CheckpointError, match=r"backbone\.embed\.weight"):
        vocoder_config_from_shapes(shapes)


def test_a_hop_that_does_not_fit_is_refused():
    torch_vocoder = pytest.importorskip("nanospeech_torch.vocoder")
    with pytest.raises(InputError, match="hop_length"):
        torch_vocoder.Vocos(VocoderConfig(n_fft=1024, hop_length=300))


def test_the_training_mel_is_the_mel():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.vocoder_loss import log_mel

    wave = tone(12_000)
    assert np.abs(log_mel(torch.from_numpy(wave)[None])[0].numpy() - mel.log_mel(wave)).max() < 1e-4


def test_the_losses_vanish_for_equal_waves_and_fall_in_training():
    torch = pytest.importorskip("torch")
    from nanospeech_torch import vocoder_loss as losses
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


def test_the_judges_learn_and_the_vocoder_can_please_them():
    torch = pytest.importorskip("torch")
    from nanospeech_torch import vocoder_loss as losses

    torch.manual_seed(0)
    real = torch.from_numpy(np.stack([tone(8192, p) for p in (120, 160, 210)]))
    fake = (0.1 * torch.randn_like(real)).requires_grad_(True)
    judges = losses.Discriminators(4, 4)
    optimizer = torch.optim.AdamW(judges.parameters(), 3e-3)
    history = []
    for _ in range(15):
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


def write_shard(path, count=4):
    """A real shard of short recordings."""
    import io
    import tarfile

    import soundfile as sf

    with tarfile.open(path, "w") as tar:
        for i in range(count):
            sound = io.BytesIO()
            sf.write(sound, tone(24_000, 110 + 30 * i), 24_000, format="WAV")
            meta = json.dumps({"text": f"clip {i}", "duration": 1.0}).encode()
            for name, content in ((f"k{i}.wav", sound.getvalue()), (f"k{i}.json", meta)):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def script(monkeypatch, capsys):
    """scripts/train_vocoder.py as a function of its options, which returns what it printed."""
    pytest.importorskip("accelerate")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from train_vocoder import main  # pyright: ignore[reportMissingImports]

    def run(*options):
        capsys.readouterr()
        code = main([str(o) for o in options])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


def test_the_script_trains_resumes_exports_and_evaluates(tmp_path, script):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.numpy")
    write_shard(tmp_path / "a.tar")
    sizes = ["vocoder.dim=32", "vocoder.intermediate_dim=48", "vocoder.num_layers=2"]
    plan = ["total_steps=6", "save_step=4", "warmup_steps=2", "vocoder_loss.gan_from=0.5"]
    batch = ["data.batch_size=2", "vocoder_loss.frames=16", "train.log_every=2"]
    data = [f"data.shards={tmp_path / 'a.tar'}", "vocoder_loss.held_out=0.0"]
    common = ["--set", *sizes, *plan, *batch, *data, "mixed_precision='no'"]

    script(*common, f"run_dir={tmp_path / 'run'}")
    log = (tmp_path / "run" / "log.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in log] == ["step", "2", "4", "6"]
    again = script(
        *common, f"run_dir={tmp_path / 'b'}", "--resume", tmp_path / "run" / "step_00000004"
    )
    assert "at step 4" in again
    whole, resumed = (
        torch.load(tmp_path / name / "step_00000006.pt", weights_only=True) for name in ("run", "b")
    )
    for kind in ("model_state_dict", "ema_state_dict"):
        assert all(torch.equal(v, resumed[kind][k]) for k, v in whole[kind].items())

    script("--run", tmp_path / "run", "--export", tmp_path / "release")
    tensors = safetensors.load_file(tmp_path / "release" / "vocoder.safetensors")
    config = VocoderConfig(**json.loads((tmp_path / "release" / "vocoder.json").read_text()))
    assert vocoder_config_from_shapes({k: v.shape for k, v in tensors.items()}) == config
    assert config == VocoderConfig(dim=32, intermediate_dim=48, num_layers=2)
    assert {v.dtype for v in tensors.values()} == {np.dtype(np.float16)}

    options = ["--held-out", tmp_path / "a.tar", "--evaluate-clips", 1]
    result = json.loads(script("--run", tmp_path / "run", "--evaluate", *options))
    assert result["clips"] == 1 and result["step"] == 6
    assert result["mel_distance"]["griffin_lim"] < result["mel_distance"]["vocoder"]
    for name in ("original", "vocoder", "griffin_lim"):
        assert (tmp_path / "run" / "evaluation" / name / "k0.wav").exists()


def test_the_script_exports_checkpoints_of_earlier_versions(tmp_path, script):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    from nanospeech_torch.vocoder import Vocos

    config = {"dim": 32, "intermediate_dim": 48, "num_layers": 2}
    average = Vocos(VocoderConfig(**config)).state_dict()
    torch.save({"config": config, "average": average, "step": 6}, tmp_path / "checkpoint.pt")
    options = ["--export", tmp_path / "release", "--dtype", "float32"]
    script("--run", tmp_path, *options)
    tensors = safetensors.load_file(tmp_path / "release" / "vocoder.safetensors")
    assert all(torch.equal(v, tensors[k]) for k, v in average.items())


def test_evaluation_takes_the_clips_that_training_left_out(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    pytest.importorskip("torch")
    from vocoder_evaluate import read_clips  # pyright: ignore[reportMissingImports]

    from nanospeech_torch.segments import is_held_out

    write_shard(tmp_path / "a.tar", 12)
    out = {f"k{i}" for i in range(12) if is_held_out(f"k{i}", 0.3)}
    clips = read_clips([tmp_path / "a.tar"], lambda key: is_held_out(key, 0.3), 100)
    assert out and {c.key for c in clips} == out
    assert [c.text for c in clips] == [f"clip {c.key[1:]}" for c in clips]
    assert len(read_clips([tmp_path / "a.tar"], lambda key: True, 5)) == 5


def test_griffin_lim_comes_back_to_the_mel(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from griffin_lim import griffin_lim  # pyright: ignore[reportMissingImports]

    log_mel = mel.log_mel(tone(12_000))
    wave = griffin_lim(log_mel, 20)
    assert len(wave) == (len(log_mel) - 1) * 256
    assert np.abs(mel.log_mel(wave)[: len(log_mel)] - log_mel).mean() < 0.5
