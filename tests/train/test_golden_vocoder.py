"""Golden batches of the vocoder: the losses of generator and discriminators, by hand.

Vocoder and judges are stubs: one gives a wave that is known, the others scores that are plain
functions of what they are given. Spectrograms, distances and hinges are worked out beside them in
NumPy, from the formulas of the papers that nanospeech_torch.train.objectives.vocoder_loss names.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nanospeech.config import AudioConfig, VocoderConfig
from nanospeech_torch.train.data.segments import SegmentBatch
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN, VocoderLossConfig
from nanospeech_torch.train.objectives.vocoder_loss import (
    Discriminators,
    PeriodDiscriminator,
    SpectrogramDiscriminator,
    discriminator_loss,
    generator_losses,
    slope_counts,
    slope_sums,
    spectral_losses,
    spectrograms,
    turn_error,
)
from nanospeech_torch.train.objectives.vocoder_loss import (
    log_mel as mel_of_waves,
)

HOP, FRAMES, ITEMS, JUDGED = 256, 20, 3, 2
SAMPLES = (FRAMES - 1) * HOP
RNG = np.random.default_rng(0)
TIME = np.arange(SAMPLES) / 24_000
GAIN, OFFSET = 6.0, 0.2


def tones(*pitches: float) -> np.ndarray:
    rows = [np.sin(2 * np.pi * p * TIME) * np.exp(-3 * TIME) * 0.3 for p in pitches]
    noise = 0.02 * RNG.standard_normal((len(rows), SAMPLES))
    return (np.stack(rows) + noise).astype(np.float32)


REAL, FAKE = tones(150, 700, 3100), tones(160, 650, 2500)
MEL = RNG.standard_normal((ITEMS, FRAMES, 100)).astype(np.float32)
SLOPES = [RNG.standard_normal((ITEMS, FRAMES, 513)).astype(np.float32) for _ in range(3)]
SLOPES[0] = np.abs(SLOPES[0])


class Speaker(torch.nn.Module):
    """Takes the place of a vocoder."""

    def __init__(self, griffin_lim_iters: int = 0):
        super().__init__()
        self.config = VocoderConfig(griffin_lim_iters=griffin_lim_iters)
        self.wave = torch.nn.Parameter(torch.from_numpy(FAKE.copy()))
        self.heard = []

    def forward(self, mel):
        self.heard.append(mel)
        return self.wave * 1.0

    def predict(self, mel):
        self.heard.append(mel)
        return [torch.from_numpy(x) for x in SLOPES]


class Judges(torch.nn.Module):
    """Takes the place of the discriminators: a score for each sample and for each bin."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(GAIN))
        self.calls = []

    def forward(self, wave, spectra, periods):
        self.calls.append((wave, spectra, periods))
        of_wave = [(self.gain * wave + OFFSET, [wave * p, wave.abs()]) for p in periods]
        of_bins = [(OFFSET - s.abs(), [s.real, s.abs().sqrt()]) for s in spectra.values()]
        return of_wave + of_bins


def judged_by_hand(wave: np.ndarray, spectrum: np.ndarray, period: int) -> list:
    size = np.abs(spectrum)
    of_wave = (GAIN * wave + OFFSET, [wave * period, np.abs(wave)])
    return [of_wave, (OFFSET - size, [spectrum.real, np.sqrt(size)])]


def spectrogram(waves: np.ndarray, n_fft: int) -> np.ndarray:
    """Complex (B, F, N): centred, reflected, with a periodic Hann window and a hop of a quarter."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    out = []
    for wave in waves.astype(np.float64):
        wide = np.pad(wave, n_fft // 2, mode="reflect")
        starts = range(0, len(wide) - n_fft + 1, n_fft // 4)
        out.append(np.stack([np.fft.rfft(wide[s : s + n_fft] * window) for s in starts], 1))
    return np.stack(out)


def log_mel(spectrum: np.ndarray) -> np.ndarray:
    """Logs of 100 triangles on the HTK scale, 0 to 12 kHz, clamped at 1e-5: (B, N, M)."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 12_000 / 700), 102) / 2595) - 1)
    bank = np.stack(
        [np.interp(np.arange(513) * 24_000 / 1024, edges[m : m + 3], [0, 1, 0]) for m in range(100)]
    )
    return np.log(np.maximum(np.einsum("mf,bfn->bnm", bank, np.abs(spectrum)), 1e-5))


def gan(speaker: Speaker | None = None, step: int = 5, **loss) -> VocoderGAN:
    objective = VocoderGAN(
        speaker or Speaker(),  # type: ignore[arg-type]
        None,
        VocoderLossConfig(**{"gan_from": 0.5, "discriminator_segments": JUDGED, **loss}),
    )
    objective.judges = Judges()  # type: ignore[assignment]
    objective.begin_step(step, 10)
    return objective


BATCH = SegmentBatch(torch.from_numpy(REAL), torch.from_numpy(MEL))


def check(found: dict, wanted: dict[str, float], items: int | dict[str, float]) -> None:
    """Each loss is a mean, returned as a sum and its count: `items`, for all or by name."""
    assert found.keys() == wanted.keys()
    for name, (total, count) in found.items():
        expected = items if isinstance(items, int) else items[name]
        assert count.item() == pytest.approx(expected, rel=2e-4), name
        assert total.item() / count.item() == pytest.approx(wanted[name], rel=2e-4), name


def spectral_by_hand(windows: tuple[int, ...]) -> dict[str, float]:
    """Spectral convergence and log magnitudes (arXiv 1910.11480, eqs. 4 and 5), L1 of log mels."""
    real, fake = ({w: spectrogram(x, w) for w in windows} for x in (REAL, FAKE))
    magnitude, convergence = [], []
    for w in windows:
        r, f = np.abs(real[w]), np.abs(fake[w])
        logs = [np.log(np.maximum(x, 1e-3)) for x in (f, r)]
        magnitude.append(np.abs(logs[0] - logs[1]).mean())
        error = [np.sqrt(np.square(b - a).sum() / np.square(a).sum()) for a, b in zip(r, f)]
        convergence.append(np.mean(error))
    mel = np.abs(log_mel(fake[1024]) - log_mel(real[1024])).mean()
    return {
        "mel": mel,
        "magnitude": float(np.mean(magnitude)),
        "convergence": float(np.mean(convergence)),
    }


@pytest.mark.parametrize("step", [0, 1, 4])
def test_a_vocoder_alone_has_spectral_losses(step):
    objective = gan(step=step)
    windows = objective.windows
    assert windows[0] == 1024 and windows[1] in (256, 512, 2048)
    check(objective(BATCH, "vocoder"), spectral_by_hand(windows), ITEMS)
    assert torch.equal(objective.vocoder.heard[0], BATCH.mel) and not objective.judges.calls


def test_the_mel_loss_may_be_to_the_input_mel():
    objective = gan(step=0, input_mel_share=0.3)
    wanted = spectral_by_hand(objective.windows)
    away = np.abs(log_mel(spectrogram(FAKE, 1024)) - MEL).mean()
    wanted["mel"] = 0.3 * away + 0.7 * wanted["mel"]
    check(objective(BATCH, "vocoder"), wanted, ITEMS)


def test_generator_and_discriminators_have_opposite_aims():
    """Hinge losses (as Vocos, arXiv 2306.00814) and feature matching (arXiv 2010.05646, eq. 6)."""
    objective = gan()
    window, period = objective.discriminator_window, objective.period
    real, fake = (
        judged_by_hand(x[:JUDGED], spectrogram(x[:JUDGED], window), period) for x in (REAL, FAKE)
    )
    found = objective(BATCH, "vocoder")
    assert [calls[2] for calls in objective.judges.calls] == [(period,)] * 2
    adversarial = np.mean([np.maximum(0, 1 - s).mean() for s, _ in fake])
    matching = [np.abs(a - b).mean() for (_, f), (_, r) in zip(fake, real) for a, b in zip(f, r)]
    parts = {name: found.pop(name) for name in ("adversarial", "matching")}
    check(found, spectral_by_hand(objective.windows), ITEMS)
    wanted = {"adversarial": float(adversarial), "matching": float(np.mean(matching))}
    check(parts, wanted, JUDGED)
    judged = objective(BATCH, "judges")
    terms = [
        np.maximum(0, 1 - r).mean() + np.maximum(0, 1 + f).mean()
        for (r, _), (f, _) in zip(real, fake)
    ]
    check(judged, {"discriminator": float(np.mean(terms))}, JUDGED)
    weights = {"mel": 20, "magnitude": 5, "convergence": 5, "adversarial": 1, "matching": 2}
    assert objective.weights() == {**weights, "discriminator": 1}


def test_gradients_of_each_phase_stay_on_their_side():
    """The generator's would lift the scores of its waves, the discriminators' lower them."""
    objective = gan()
    wave, gain = objective.vocoder.wave, objective.judges.gain
    objective(BATCH, "vocoder")["adversarial"][0].backward()
    assert gain.grad is None and wave.grad[:JUDGED].any() and not wave.grad[JUDGED:].any()
    with torch.no_grad():
        before = objective(BATCH, "vocoder")["adversarial"][0]
        wave -= 1e-2 * wave.grad
        assert objective(BATCH, "vocoder")["adversarial"][0] < before
        objective.vocoder.wave.copy_(torch.from_numpy(FAKE))
    wave.grad = None
    objective(BATCH, "vocoder")
    objective(BATCH, "judges")["discriminator"][0].backward()
    assert wave.grad is None
    real, fake = REAL[:JUDGED], FAKE[:JUDGED]
    slope = (fake * (GAIN * fake + OFFSET > -1)).mean() - (real * (GAIN * real + OFFSET < 1)).mean()
    # half: the mean over two judges, of whom one has this gain
    assert gain.grad.item() == pytest.approx(JUDGED * slope / 2, rel=1e-3)


def test_slopes_of_phases_are_compared_by_loudness():
    """1 - cos of the error, by the root of both magnitudes; two frames at each end are left out."""
    objective = gan(Speaker(griffin_lim_iters=2), gan_from=1.0)
    x = spectrogram(REAL, 1024).transpose(0, 2, 1)[:, 2:-2]
    magnitude, advance, delay = (s[:, 2:-2].astype(np.float64) for s in SLOPES)
    logs = np.log(np.maximum(magnitude, 1e-3)) - np.log(np.maximum(np.abs(x), 1e-3))

    def loudness(now, before):
        return np.sqrt(np.abs(now) * np.abs(before))

    def far(angle, now, before):
        weight = loudness(now, before)
        true = np.angle(now) - np.angle(before)
        return float((weight * (1 - np.cos(angle - true))).sum() / weight.sum())

    wanted = {
        "magnitude": float(np.abs(logs).mean()),
        "frequency": far(advance[:, 1:], x[:, 1:], x[:, :-1]),
        "group_delay": far(delay[:, :, 1:], x[:, :, 1:], x[:, :, :-1]),
    }
    counts = {
        "magnitude": logs.size,
        "frequency": loudness(x[:, 1:], x[:, :-1]).sum(),
        "group_delay": loudness(x[:, :, 1:], x[:, :, :-1]).sum(),
    }
    check(objective(BATCH, "vocoder"), wanted, counts)
    assert objective.weights() == {"magnitude": 5, "frequency": 10, "group_delay": 10}


@pytest.mark.parametrize("silent", ["recording", "vocoder", "both"])
def test_silence_has_losses_and_gradients_that_are_numbers(silent):
    """Of a file that is all zeros for a while: the log has a floor, and nothing is divided by 0."""
    real, fake = REAL.copy(), FAKE.copy()
    real[0] *= silent == "vocoder"
    fake[0] *= silent == "recording"
    batch = SegmentBatch(torch.from_numpy(real), BATCH.mel)
    speaker = Speaker()
    speaker.wave.data.copy_(torch.from_numpy(fake))
    objective = gan(speaker)
    objective.judges = Discriminators(2, 2)
    found = objective(batch, "vocoder")
    torch.stack([total for total, _ in found.values()]).sum().backward()
    assert all(total.isfinite() for total, _ in found.values())
    assert speaker.wave.grad is not None and speaker.wave.grad.isfinite().all()
    assert objective(batch, "judges")["discriminator"][0].isfinite()
    sums = gan(Speaker(griffin_lim_iters=2), gan_from=1.0)(batch, "vocoder")
    assert all(total.isfinite() and count > 0 for total, count in sums.values())
    # a band that is silent in both is alike, and an error beside silence has a bound
    quiet = {1024: torch.zeros(1, 513, 9, dtype=torch.complex64)}
    assert all(float(v) == 0 for v in spectral_losses(quiet, quiet).values())
    away = spectral_losses({1024: quiet[1024] + 1e-4}, quiet)
    assert float(away["magnitude"]) == 0  # below the floor
    assert float(away["convergence"]) == pytest.approx(1e-4 * (513 * 9) ** 0.5 / 1e-3, rel=1e-4)


def test_the_mel_loss_is_of_the_mel_that_is_named():
    audio = AudioConfig(sample_rate=16_000, n_fft=512, hop_length=128, n_mels=40)
    fake, real = torch.from_numpy(FAKE), torch.from_numpy(REAL)
    windows = (256, 512)
    found = spectral_losses(spectrograms(fake, windows), spectrograms(real, windows), audio)
    wanted = (mel_of_waves(fake, audio) - mel_of_waves(real, audio)).abs().mean()
    assert mel_of_waves(fake, audio).shape == (ITEMS, SAMPLES // 128 + 1, 40)
    assert found["mel"].item() == pytest.approx(wanted.item(), rel=1e-6)


@pytest.mark.parametrize("level", [1.0, 3e-5, 0.0])
def test_quiet_sound_has_the_mel_that_models_know(level):
    wave = np.float32(level) * REAL
    wanted = log_mel(spectrogram(wave, 1024))
    found = mel_of_waves(torch.from_numpy(wave)).numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    assert level == 1 or (wanted < -9.5).mean() > 0.1


def test_silence_counts_for_nothing_in_losses_of_slopes():
    found = tuple(torch.from_numpy(x) for x in SLOPES)
    for loud in (1.0, 0.0):
        real = loud * torch.from_numpy(spectrogram(REAL, 1024)).to(torch.complex64)
        sums, counts = slope_sums(found, real), slope_counts(real)
        assert sums["magnitude"] > 0 and counts["magnitude"] > 0
        for name in ("frequency", "group_delay"):
            assert (sums[name] == 0) == (counts[name] == 0) == (loud == 0)


@pytest.mark.parametrize("level", [1e-8, 1e-4, 100.0])
def test_how_far_a_phase_is_off_does_not_hang_on_the_level(level):
    """Its weight does, by the square root of a product of two magnitudes."""
    x = torch.from_numpy(spectrogram(REAL, 1024)).to(torch.complex64)
    turn, angle = x[:, :, 1:] * x[:, :, :-1].conj(), torch.linspace(-3, 3, 19)
    turn = turn / turn.abs().mean()
    wanted = level**0.5 * turn_error(angle, turn)
    assert turn_error(angle, level * turn).item() == pytest.approx(wanted.item(), rel=1e-3)


def test_half_precision_is_measured_in_float32():
    """Waves, scores and features may be bfloat16; features of recordings take no gradient."""
    wave = torch.from_numpy(REAL).bfloat16()
    for n_fft, spectrum in spectrograms(wave).items():
        assert torch.equal(spectrum, spectrograms(wave.float(), (n_fft,))[n_fft])
    short, exact = [], []
    for row in (FAKE, REAL):
        x = 3 * torch.from_numpy(row).bfloat16()
        short.append([(x, [x, x.square()])])
        exact.append([(x.float(), [x.float(), x.square().float()])])
    found = [discriminator_loss(*short), *generator_losses(*short)]
    wanted = [discriminator_loss(*exact), *generator_losses(*exact)]
    for loss, other in zip(found, wanted):
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(other.item(), rel=1e-2)
    assert torch.equal(found[2], wanted[2])  # a mean of differences, which bfloat16 would round
    features = torch.from_numpy(REAL).requires_grad_()
    fake = torch.from_numpy(FAKE).requires_grad_()
    generator_losses([(fake, [fake])], [(features, [features])])[1].backward()
    assert features.grad is None and fake.grad is not None


def layer_by_layer(judge: torch.nn.Module, *inputs: torch.Tensor) -> tuple:
    """A discriminator's scores and features, and what went into and came out of each layer."""
    seen = []
    with torch.no_grad():  # scores of both signs
        judge.out.bias -= judge(*inputs)[0].mean()
    layers = [*judge.convs, judge.out]  # type: ignore[misc]
    hooks = [
        layer.register_forward_hook(lambda _, given, made: seen.append((given[0], made)))
        for layer in layers
    ]
    scores, features = judge(*inputs)
    for hook in hooks:
        hook.remove()
    return scores, features, seen


@pytest.mark.parametrize("kind", ["period", "spectrogram"])
def test_features_are_each_layers_output_behind_a_leaky_rectifier(kind):
    """With a slope of 0.1, as HiFi-GAN has it (arXiv 2010.05646); scores have none."""
    torch.manual_seed(0)
    if kind == "period":
        scores, features, seen = layer_by_layer(PeriodDiscriminator(5, 3), torch.from_numpy(REAL))
    else:
        spectrum = torch.from_numpy(spectrogram(REAL, 256)).to(torch.complex64)
        scores, features, seen = layer_by_layer(SpectrogramDiscriminator(3), spectrum)
    assert len(features) == 4 and len(seen) == 5
    for feature, (_, made), (after, _) in zip(features, seen, seen[1:]):
        assert (made < 0).any() and (made > 0).any()
        assert torch.equal(feature, torch.where(made > 0, made, 0.1 * made))
        assert torch.equal(after, feature)
    assert torch.equal(scores, seen[-1][1]) and (scores < 0).any() and (scores > 0).any()


def test_layers_of_discriminators_hear_ever_more_at_once():
    """A period's every third; of a spectrum a fourth and halves of the bins, all of the frames."""
    period, spectrum = 5, torch.from_numpy(spectrogram(REAL, 256)).to(torch.complex64)
    judges = Discriminators(2, 3)
    scores, features = judges.periods[str(period)](torch.from_numpy(REAL))
    places, widths = SAMPLES // period, (2, 4, 8, 8)
    for feature, width in zip(features, widths, strict=True):
        places = -(-places // 3)
        assert feature.shape == (period * ITEMS, width, places)
    assert scores.shape == (period * ITEMS, 1, places)
    scores, features = judges.spectrograms["256"](spectrum)
    bins, frames = spectrum.shape[1:]
    for feature, stride in zip(features, (4, 2, 2, 2), strict=True):
        bins = -(-bins // stride)
        assert feature.shape == (ITEMS, 3, bins, frames)
    assert scores.shape == (ITEMS, 1, bins, frames)


@pytest.mark.parametrize("period", [2, 3, 7])
def test_a_period_discriminator_hears_every_nth_sample_alone(period):
    torch.manual_seed(0)
    whole = 90 * period
    waves = torch.randn(2, whole + 1, requires_grad=True)  # the last row would not be full
    scores, features = PeriodDiscriminator(period, 3)(waves)
    assert scores.shape[0] == features[0].shape[0] == 2 * period
    for row, score in enumerate(scores):
        (slope,) = torch.autograd.grad(score.square().sum(), waves, retain_graph=True)
        heard = torch.zeros_like(slope, dtype=torch.bool)
        heard[row // period, row % period : whole : period] = True
        assert torch.equal(slope != 0, heard)


def test_spectrograms_are_judged_by_loudness_with_their_phase():
    """|S|^0.3 exp(i phase), also of what is very quiet, whose slope stays finite."""
    size = torch.logspace(-2, 2, 9)[None, :, None].repeat(1, 1, 40)
    spectrum = torch.polar(size, torch.linspace(0, 6, 40).repeat(1, 9, 1))
    _, _, seen = layer_by_layer(SpectrogramDiscriminator(3), spectrum)
    given = torch.complex(*seen[0][0].unbind(1))
    assert torch.allclose(given.abs(), size**0.3, rtol=5e-3, atol=0)
    assert torch.allclose(given / given.abs(), spectrum / size, atol=1e-5)
    silence = torch.zeros(1, 9, 4, dtype=torch.complex64, requires_grad=True)
    SpectrogramDiscriminator(3)(silence)[0].sum().backward()
    assert silence.grad is not None and silence.grad.isfinite().all()


def test_discriminators_are_those_that_are_asked_for():
    torch.manual_seed(0)
    judges = Discriminators(2, 2)
    wave = torch.from_numpy(REAL)
    spectra = {w: torch.from_numpy(spectrogram(REAL, w)).to(torch.complex64) for w in (512, 256)}
    found = [score for score, _ in judges(wave, spectra, (7, 2))]
    alone = [judges.periods[str(p)](wave)[0] for p in (7, 2)]
    assert [len(score) for score in alone] == [7 * ITEMS, 2 * ITEMS]
    assert list(judges.periods) == ["2", "3", "5", "7", "11"]  # arXiv 2010.05646, section 2.3
    alone += [judges.spectrograms[str(w)](spectra[w])[0] for w in (512, 256)]
    assert len(found) == 4 and all(torch.equal(a, b) for a, b in zip(found, alone))
