"""The vocoder in both backends: golden parity, padding, the inverse STFT, training."""

import dataclasses
import json
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


def arrays_of(backend):
    """The backend's stft and phase modules, and how arrays go in and out."""
    if backend == "torch":
        torch = pytest.importorskip("torch")
        from nanospeech_torch import phase, stft

        return stft, phase, torch.from_numpy, lambda x: x.resolve_conj().numpy()
    mx = pytest.importorskip("mlx.core")
    from nanospeech_mlx import phase, stft

    return stft, phase, mx.array, np.array


def spectrum_of(wave, n_fft=1024, hop=256):
    """Complex spectrum (1, N, F) as nanospeech.audio.mel frames a wave."""
    padded = np.pad(wave, n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop]
    return np.fft.rfft(frames * mel.window(n_fft))[None].astype(np.complex64)


def speech(seconds=2.0):
    """The beginning of a real recording."""
    import tarfile

    from nanospeech.audio import wave as audio

    with tarfile.open(ROOT / "tests" / "fixtures" / "speech-000000.tar") as tar:
        member = next(m for m in tar if not m.name.endswith("json"))
        return audio.read(tar.extractfile(member).read(), 24_000)[: int(24_000 * seconds)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_of_a_wave_are_those_it_was_made_of(backend):
    stft, _, put, get = arrays_of(backend)
    spectrum = spectrum_of(tone(256 * 20))
    wave = stft.synthesise(put(spectrum), 1024, 256)
    assert wave.shape == (1, 20 * 256 + 1024)
    assert np.abs(get(stft.analyse(wave, 1024, 256)) - spectrum)[:, 2:-2].max() <= 1e-3
    assert np.array_equal(get(stft.middle(wave, 1024, 256)), get(wave)[:, 512:-512])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_steady_sine_turns_at_its_frequency(backend):
    _, phase, put, get = arrays_of(backend)
    pitch, hop = 1010.0, 256
    sine = np.sin(2 * np.pi * pitch / 24_000 * np.arange(256 * 20)).astype(np.float32)
    spectrum = spectrum_of(sine)
    frequency, group_delay = (get(x)[0] for x in phase.slopes(put(np.abs(spectrum)), hop))
    near = round(pitch / (24_000 / 1024))
    expected = 2 * np.pi * pitch * hop / 24_000

    def apart(a, b):
        return np.abs(np.angle(np.exp(1j * (a - b)))).max()

    assert apart(frequency[5:15, near], expected) < 0.05
    assert apart(frequency[5:15, near - 1 : near + 2], expected) < 0.6  # Hann is not quite Gaussian
    # and within a peak of a Hann window neighbours are of opposite sign
    assert apart(group_delay[5:15, near], np.pi) < 0.05


@pytest.mark.parametrize("backend", BACKENDS)
def test_true_slopes_add_up_to_the_recording(backend):
    stft, phase, put, get = arrays_of(backend)
    wave = speech()
    spectrum = spectrum_of(wave)
    frequency = np.zeros(spectrum.shape, np.float32)
    group_delay = frequency.copy()
    frequency[:, 1:] = np.angle(spectrum[:, 1:] * spectrum[:, :-1].conj())
    group_delay[:, :, 1:] = np.angle(spectrum[:, :, 1:] * spectrum[:, :, :-1].conj())
    size = np.abs(spectrum)
    turned = get(phase.integrate(*(put(x) for x in (size, frequency, group_delay)))) * size
    back = get(stft.middle(stft.synthesise(put(turned.astype(np.complex64)), 1024, 256), 1024, 256))
    log_mel = mel.log_mel(wave)
    assert np.abs(mel.log_mel(back[0])[: len(log_mel)] - log_mel).mean() < 0.1
    # its phases are the recording's but for the one that nothing tells
    same = np.abs((turned[0] * spectrum[0].conj()).sum(1)) / (size[0] ** 2).sum(1)
    assert np.median(same) > 0.95


def test_both_backends_find_the_same_magnitudes_slopes_and_phases():
    wanted = np.exp(mel.log_mel(speech()))[None]
    mask = np.ones((1, wanted.shape[1], 1), np.float32)
    mask[:, -9:] = 0
    few = np.random.default_rng(0).uniform(0.1, 3, (2, 4, 513)).astype(np.float32)
    found = []
    for backend in BACKENDS:
        _, phase, put, get = arrays_of(backend)
        magnitude = phase.mel_pseudo_inverse(put(wanted), 1024)
        slopes = phase.slopes(magnitude, 256, put(mask))
        turned = phase.integrate(put(few), put(3 * few), put(2 * few))
        found.append([get(x) for x in (magnitude, *slopes, turned)])
    for a, b in zip(*found, strict=True):
        assert np.abs(a - b).max() <= 1e-4 * np.abs(a).max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vocoder_with_rounds_comes_nearer_to_the_mel_with_each(backend):
    log_mel = mel.log_mel(speech())
    apart = []
    for rounds in (1, 3, 8):
        call = build(
            backend, dataclasses.replace(TINY, griffin_lim_iters=rounds), plain_weights(rounds)
        )
        wave = call(log_mel[None])[0]
        assert len(wave) == (len(log_mel) - 1) * 256
        apart.append(np.abs(mel.log_mel(wave) - log_mel).mean())
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 0.2


def plain_weights(rounds):
    """Weights of a vocoder that has learnt nothing: its slopes are a Gaussian window's."""
    torch_vocoder = pytest.importorskip("nanospeech_torch.vocoder")
    return torch_vocoder.Vocos(dataclasses.replace(TINY, griffin_lim_iters=rounds)).state_dict()


def test_backends_with_rounds_make_the_same_mel():
    # not the same wave: where bins are loud alike the least rounding decides between their phases
    log_mel = mel.log_mel(speech())[None]
    a, b = (build(x, dataclasses.replace(TINY, griffin_lim_iters=3))(log_mel)[0] for x in BACKENDS)
    assert np.abs(mel.log_mel(a) - mel.log_mel(b)).mean() < 0.1


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_changes_nothing_with_rounds(backend):
    vocode = build(backend, dataclasses.replace(TINY, griffin_lim_iters=2))
    log_mel = mel.log_mel(speech())
    batch = np.full((2, len(log_mel) + 9, 100), 3.0, np.float32)  # padding is loud
    batch[0, : len(log_mel)] = log_mel
    batch[1, :20] = log_mel[30:50]
    lens = np.array([len(log_mel), 20])
    for wave, item, n in zip(vocode(batch, lens), batch, lens, strict=True):
        samples = (n - 1) * 256
        assert not wave[samples:].any()
        alone, wave = vocode(item[None, :n])[0], wave[:samples]
        assert np.abs(mel.log_mel(alone) - mel.log_mel(wave)).mean() < 0.1


@pytest.mark.parametrize("backend", BACKENDS)
def test_slopes_of_valid_frames_do_not_see_padding(backend):
    _, phase, put, get = arrays_of(backend)
    size = np.random.default_rng(0).uniform(0.1, 3, (1, 12, 513)).astype(np.float32)
    mask = (np.arange(12) < 7).astype(np.float32)[None, :, None]
    padded, alone = phase.slopes(put(size), 256, put(mask)), phase.slopes(put(size[:, :7]), 256)
    for a, b in zip(padded, alone, strict=True):
        assert np.array_equal(get(a)[:, :7], get(b))


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


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_loud_and_silent_mels_stay_finite(backend, rounds):
    vocode = build(backend, dataclasses.replace(TINY, griffin_lim_iters=rounds))
    for level in (1e4, -1e4, np.log(mel.CLAMP)):
        assert np.isfinite(vocode(np.full((1, 8, 100), level, np.float32))).all()


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


def test_a_hop_that_does_not_fit_is_refused():
    torch_vocoder = pytest.importorskip("nanospeech_torch.vocoder")
    with pytest.raises(InputError, match="hop_length"):
        torch_vocoder.Vocos(VocoderConfig(n_fft=1024, hop_length=300))


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


def test_the_judges_learn_and_the_vocoder_can_please_them():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.train.objectives import vocoder_loss as losses

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
    """nanospeech train, and evaluate vocoder, as one function of options: what they print."""
    pytest.importorskip("accelerate")
    from nanospeech.commands import main

    def run(*options):
        capsys.readouterr()
        command = ["train"] if "--config" in options else ["evaluate", "vocoder"]
        code = main([*command, *(str(o) for o in options)])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


def test_the_script_trains_resumes_exports_and_evaluates(tmp_path, script):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.numpy")
    write_shard(tmp_path / "a.tar")
    sizes = ["vocoder.dim=32", "vocoder.intermediate_dim=48", "vocoder.num_layers=2"]
    plan = ["total_steps=4", "save_step=3", "warmup_steps=2", "vocoder_loss.gan_from=0.5"]
    batch = ["data.batch_size=2", "vocoder_loss.frames=16", "train.log_every=2"]
    data = [f"data.shards={tmp_path / 'a.tar'}", "vocoder_loss.held_out=0.0"]
    recipe = ["--config", ROOT / "nanospeech" / "configs" / "vocoder_gan.yaml"]
    common = [*recipe, "--set", *sizes, *plan, *batch, *data, "mixed_precision='no'"]

    script(*common, f"run_dir={tmp_path / 'run'}")
    log = (tmp_path / "run" / "log.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in log] == ["step", "2", "4"]
    again = script(
        *common, f"run_dir={tmp_path / 'b'}", "--resume", tmp_path / "run" / "step_00000003"
    )
    assert "at step 3" in again
    whole, resumed = (
        torch.load(tmp_path / name / "step_00000004.pt", weights_only=True) for name in ("run", "b")
    )
    for kind in ("model_state_dict", "ema_state_dict"):
        assert all(torch.equal(v, resumed[kind][k]) for k, v in whole[kind].items())

    script("--run", tmp_path / "run", "--export", tmp_path / "release")
    tensors = safetensors.load_file(tmp_path / "release" / "vocoder.safetensors")
    config = VocoderConfig(**json.loads((tmp_path / "release" / "vocoder.json").read_text()))
    assert vocoder_config_from_shapes({k: v.shape for k, v in tensors.items()}) == config
    assert config == VocoderConfig(dim=32, intermediate_dim=48, num_layers=2)
    assert {v.dtype for v in tensors.values()} == {np.dtype(np.float16)}

    options = ["--held-out", tmp_path / "a.tar", "--evaluate-clips", 1, "--iterations", 8]
    result = json.loads(script("--run", tmp_path / "run", "--evaluate", *options))
    assert result["clips"] == 1 and result["step"] == 4
    table, folder = result["table"], tmp_path / "run" / "evaluation"
    apart = {name: table[name]["mel_distance"]["mean"] for name in table}
    assert apart["recording"] == 0 < apart["griffin_lim"] < apart["vocoder"]
    assert table["recording"].keys() < table["vocoder"].keys() >= {"mel_distance", "rtf"}
    for name in ("recording", "vocoder", "griffin_lim"):
        assert (folder / name / "k0.wav").exists()
    assert len((folder / "results.csv").read_text().splitlines()) == 4
    assert json.loads((folder / "summary.json").read_text()) == result
    # a folder of recordings and the exported weights give the same
    options = ["--checkpoint", tmp_path / "release", "--waves", tmp_path / "again"]
    options += ["--iterations", 8]
    again = json.loads(script("--evaluate", "--held-out", folder / "recording", *options))
    for name in ("vocoder", "griffin_lim"):
        assert again["table"][name]["mel_distance"]["mean"] == pytest.approx(apart[name], abs=0.02)


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


def test_griffin_lim_iters_survive_export_and_conversion(tmp_path, script):
    torch = pytest.importorskip("torch")
    from convert import read_vocoder
    from nanospeech_torch.vocoder import Vocos

    config = VocoderConfig(dim=32, intermediate_dim=48, num_layers=2, griffin_lim_iters=3)
    state = {"config": dataclasses.asdict(config), "average": Vocos(config).state_dict(), "step": 6}
    torch.save(state, tmp_path / "checkpoint.pt")
    script("--run", tmp_path, "--export", tmp_path / "release")
    assert read_vocoder(tmp_path / "release")[0] == config
    write_shard(tmp_path / "a.tar", 1)
    options = ["--evaluate", "--held-out", tmp_path / "a.tar", "--iterations", 4]
    table = json.loads(script("--run", tmp_path, *options))["table"]
    # untrained, it is nearer than four iterations from random phases
    assert table["vocoder"]["mel_distance"]["mean"] < table["griffin_lim"]["mel_distance"]["mean"]


def test_evaluation_takes_the_clips_that_training_left_out(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    pytest.importorskip("torch")
    from nanospeech_torch.evaluate.vocoder import read_clips
    from nanospeech_torch.train.data.segments import is_held_out

    write_shard(tmp_path / "a.tar", 12)
    out = {f"k{i}" for i in range(12) if is_held_out(f"k{i}", 0.3)}
    clips = read_clips([tmp_path / "a.tar"], lambda key: is_held_out(key, 0.3), 100)
    assert out and {c.key for c in clips} == out
    assert [c.text for c in clips] == [f"clip {c.key[1:]}" for c in clips]
    assert len(read_clips([tmp_path / "a.tar"], lambda key: True, 5)) == 5


def test_griffin_lim_comes_back_to_the_mel(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from nanospeech.evaluate.griffin_lim import griffin_lim

    log_mel = mel.log_mel(tone(12_000))
    wave = griffin_lim(log_mel, 20)
    assert len(wave) == (len(log_mel) - 1) * 256
    assert np.abs(mel.log_mel(wave)[: len(log_mel)] - log_mel).mean() < 0.5
