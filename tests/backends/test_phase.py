"""Phases in both backends: frames, slopes, the inverse STFT, and vocoders that reconstruct them."""

import dataclasses
import importlib

import numpy as np
import pytest

from nanospeech.audio import mel
from nanospeech_onnx import phase as numpy_phase
from tests.backends.test_vocoder import BACKENDS, ROOT, TINY, build, tone


def arrays_of(backend):
    """The backend's stft and phase modules, and how arrays go in and out."""
    if backend == "torch":
        torch = pytest.importorskip("torch")
        from nanospeech_torch import phase, stft

        return stft, phase, torch.from_numpy, lambda x: x.resolve_conj().numpy()
    if backend == "onnx":
        from nanospeech_onnx import stft

        return stft, numpy_phase, np.asarray, np.asarray
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
def test_true_phase_derivatives_integrate_to_the_recording(backend):
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


def test_backends_find_the_same_magnitudes_slopes_and_phases():
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
    magnitude = numpy_phase.mel_pseudo_inverse(wanted, 1024)
    valid = wanted.shape[1] - 9  # it takes items without padding
    slopes = numpy_phase.slopes(magnitude[:, :valid], 256)
    turned = numpy_phase.integrate(few, 3 * few, 2 * few)
    for a, b in zip(found[0], [magnitude, *slopes, turned], strict=True):
        assert np.abs(a[:, : b.shape[1]] - b).max() <= 1e-4 * np.abs(a).max()


@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_each_griffin_lim_iteration_comes_nearer_to_the_mel(backend):
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


@pytest.mark.parametrize("iters", [2, 3, 5])
@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_a_wave_is_that_of_fast_griffin_lim(backend, iters):
    """Perraudin, Balazs and Sondergaard, 2013, and two rounds that correct bands, in float64."""
    _, phase, put, get = arrays_of(backend)
    true = spectrum_of(speech(0.4))
    size = np.abs(true)
    wanted = (size @ mel.filterbank(24_000, 1024, 100)).astype(np.float32)
    wanted[:, ::2] *= 50  # more than a round may make up for
    advance, delay = np.zeros_like(size), np.zeros_like(size)
    advance[:, 1:] = np.angle(true[:, 1:] * true[:, :-1].conj())
    delay[:, :, 1:] = np.angle(true[:, :, 1:] * true[:, :, :-1].conj())
    arrays = [put(x) for x in (size, advance, delay)]
    spectrum = size * get(phase.integrate(*arrays)).astype(np.complex128)
    window, last = mel.window(1024).astype(np.float64), None
    bank = mel.filterbank(24_000, 1024, 100).astype(np.float64)
    shares = bank / np.maximum(bank.sum(1, keepdims=True), 1e-3)

    def wave_of(frames):
        wave, weight = np.zeros((2, (len(frames) - 1) * 256 + 1024))
        for n, frame in enumerate(np.fft.irfft(frames) * window):
            wave[n * 256 : n * 256 + 1024] += frame
            weight[n * 256 : n * 256 + 1024] += window**2
        return wave / np.maximum(weight, 1e-8)

    for left in reversed(range(iters)):
        hops = np.lib.stride_tricks.sliding_window_view(wave_of(spectrum[0]), 1024)[::256]
        now = np.fft.rfft(hops * window)[None]
        if left < 2:
            lack = wanted / np.maximum(np.abs(now) @ bank, 1e-5)
            spectrum = now * np.minimum(lack @ shares.T, 10)
            continue
        ahead = now if last is None else now + 0.99 * (now - last)
        spectrum, last = size * np.exp(1j * np.angle(ahead)), now
    found = get(phase.reconstruct(*arrays, put(wanted), iters, 1024, 256))[0]
    expected = wave_of(spectrum[0])
    assert np.abs(found - expected).max() <= 2e-3 * np.abs(expected).max()


def plain_weights(rounds):
    """Weights of a vocoder that has learnt nothing: its slopes are a Gaussian window's."""
    torch_vocoder = pytest.importorskip("nanospeech_torch.vocoder")
    return torch_vocoder.Vocos(dataclasses.replace(TINY, griffin_lim_iters=rounds)).state_dict()


def test_backends_with_rounds_make_the_same_mel():
    # not the same wave: where bins are loud alike the least rounding decides between their phases
    log_mel = mel.log_mel(speech())[None]
    config = dataclasses.replace(TINY, griffin_lim_iters=3)
    a, *others = (build(x, config)(log_mel)[0] for x in (*BACKENDS, "onnx"))
    for b in others:
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
def test_phase_derivatives_of_valid_frames_ignore_padding(backend):
    _, phase, put, get = arrays_of(backend)
    size = np.random.default_rng(0).uniform(0.1, 3, (1, 12, 513)).astype(np.float32)
    mask = (np.arange(12) < 7).astype(np.float32)[None, :, None]
    padded, alone = phase.slopes(put(size), 256, put(mask)), phase.slopes(put(size[:, :7]), 256)
    for a, b in zip(padded, alone, strict=True):
        assert np.array_equal(get(a)[:, :7], get(b))


def test_graphs_predict_what_pytorch_does():
    """Magnitudes, and phases from frame to frame and bin to bin, as the network corrects them."""
    torch = pytest.importorskip("torch")
    from nanospeech_torch.vocoder import Vocos

    torch.manual_seed(0)
    model = Vocos(dataclasses.replace(TINY, griffin_lim_iters=1)).requires_grad_(False)
    for p in model.head.parameters():
        torch.nn.init.normal_(p)
    log_mel = mel.log_mel(speech())[None, :60]
    log_mel[:, 20:30] += 9  # louder than any recording
    wanted = [x.numpy() for x in model.predict(torch.from_numpy(log_mel))]
    found = build("onnx", model.config, model.state_dict()).predict(log_mel)
    plain = slopes_alone(log_mel)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and np.abs(a - b).max() <= 1e-4 * np.abs(b).max()
    for a, b in zip(found[1:], plain, strict=True):
        assert np.abs(a - b).mean() > 1  # the network has its say


def slopes_alone(log_mel):
    wanted = np.exp(np.minimum(log_mel, 7))
    return numpy_phase.slopes(numpy_phase.mel_pseudo_inverse(wanted, 1024), 256)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_predicted_has_the_mels_bands_and_ignores_padding(backend):
    _, _, put, get = arrays_of(backend)
    module = importlib.import_module(f"nanospeech_{backend}.vocoder")
    model = module.Vocos(dataclasses.replace(TINY, griffin_lim_iters=1))
    bias = np.zeros(2 * 513, np.float32)
    bias[:513] = 2 * np.sin(np.arange(513) / 40)  # louder and quieter, by bands
    if backend == "torch":
        model.requires_grad_(False)
        model.head.out.bias.copy_(put(bias))
    else:
        model.head.out.bias = put(bias)
    log_mel = mel.log_mel(speech())[:30]
    junk = np.concatenate([log_mel, np.full((9, 100), 3.0, np.float32)])[None]
    mask = (np.arange(39) < 30).astype(np.float32)[None, :, None]
    alone = [get(x) for x in model.predict(put(log_mel[None]))]
    padded = [get(x)[:, :30] for x in model.predict(put(junk), put(mask))]
    for a, b in zip(alone, padded, strict=True):
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
    found = np.log(alone[0][0] @ mel.filterbank(24_000, 1024, 100))
    assert np.abs(found - log_mel).mean() < 0.2  # 1 without the gain


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
@pytest.mark.parametrize("backend", [*BACKENDS, "onnx"])
def test_loud_and_silent_mels_stay_finite(backend, rounds):
    vocode = build(backend, dataclasses.replace(TINY, griffin_lim_iters=rounds))
    for level in (1e4, -1e4, np.log(mel.CLAMP)):
        assert np.isfinite(vocode(np.full((1, 8, 100), level, np.float32))).all()
