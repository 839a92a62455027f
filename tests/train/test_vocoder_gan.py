"""The vocoder's training: two phases a step, what each learns, exact resuming."""

import copy
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanospeech import load_engine
from nanospeech.audio import mel
from nanospeech.audio import wave as sound
from nanospeech.config import AudioConfig, VocoderConfig
from nanospeech.errors import InputError
from nanospeech.release.folder import open_release
from nanospeech_torch.train.data.segments import (
    SegmentBatch,
    SegmentBatches,
    SegmentConfig,
)
from nanospeech_torch.train.data.sources import TarSource
from nanospeech_torch.train.data.speech import BatchPlan, StreamState
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN, VocoderLossConfig
from nanospeech_torch.train.objectives.vocoder_loss import log_mel
from nanospeech_torch.train.run import take_vocoder
from nanospeech_torch.train.scale.parallel import replicas
from nanospeech_torch.vocoder import Vocos
from tests.forked import Forked, finish

SHARD = Path(__file__).parents[1] / "fixtures" / "speech-000000.tar"
PLAN = BatchPlan(batch_size=4, max_frames=10_000, max_duration=2000)
LOSS = VocoderLossConfig(
    frames=24,
    segment_stride=1.0,
    gan_from=0.5,
    discriminator_segments=2,
    discriminator_channels=4,
    discriminator_rate=0.6,
)
TOTAL = 40


def samples() -> list[dict]:
    """Four real recordings."""
    return [sample for _, sample in TarSource([SHARD]).open(0)]


def gan(**changes) -> VocoderGAN:
    """A tiny vocoder with tiny discriminators; the same weights at every call."""
    torch.manual_seed(0)
    loss = VocoderLossConfig(**{**vars(LOSS), **changes})
    return VocoderGAN(Vocos(VocoderConfig(dim=32, intermediate_dim=48, num_layers=2)), None, loss)


def optimizers(objective, lr=2e-3, eps=1e-8):
    return {
        name: torch.optim.AdamW(parameters, lr, (0.8, 0.99), eps)
        for name, parameters in objective.phases().items()
    }


def one_step(model, optimizer, batch, step, total=TOTAL, objective=None) -> dict:
    """What the trainer's loop does with an objective of several phases, and its losses."""
    objective = objective or model
    objective.begin_step(step, total)
    weights, found = objective.weights(), {}
    for phase in objective.active_phases():
        sums = model(batch, phase)
        # the processes' batches are of one size, so DDP's mean of their gradients is the batch's
        means = {name: total / count for name, (total, count) in sums.items()}
        torch.stack([weights[name] * mean for name, mean in means.items()]).sum().backward()
        found |= {name: mean.item() for name, mean in means.items()}
    for phase in objective.active_phases():
        for group in optimizer[phase].param_groups:
            peak = group.setdefault("peak", group["lr"])
            group["lr"] = peak * objective.rate(phase)
        optimizer[phase].step()
    objective.zero_grad(set_to_none=True)
    return found


def loader(**options) -> Any:
    return SegmentBatches(with_made_mels(), None, PLAN, None, LOSS, **options)


def same(a: SegmentBatch, b: SegmentBatch) -> bool:
    return torch.equal(a.wave, b.wave) and torch.equal(a.mel, b.mel)


@pytest.fixture(scope="module")
def history():
    """A short run: the objective, its losses, and its weights when the discriminators joined."""
    objective, stream = gan(), iter(loader())
    optimizer, losses = optimizers(objective), []
    for step in range(TOTAL):
        losses.append(one_step(objective, optimizer, next(stream).batch, step))
    return objective, losses


def test_losses_fall(history):
    _, losses = history

    def mean(name, part):
        return np.mean([row[name] for row in losses[part] if name in row])

    for name in ("mel", "magnitude", "convergence"):
        assert mean(name, slice(-5, None)) < 0.9 * mean(name, slice(5))
    assert all(np.isfinite(v) for row in losses for v in row.values())


def slopes(**changes) -> VocoderGAN:
    """A tiny vocoder that learns slopes of phases."""
    torch.manual_seed(0)
    config = VocoderConfig(dim=32, intermediate_dim=48, num_layers=2, griffin_lim_iters=2)
    return VocoderGAN(Vocos(config), None, VocoderLossConfig(**{**vars(LOSS), **changes}))


def test_a_vocoder_with_griffin_lim_iters_learns_phase_derivatives():
    objective, stream = slopes(gan_from=1.0), iter(loader())
    optimizer = optimizers(objective)
    batch = next(stream).batch
    rows = [one_step(objective, optimizer, batch, step, 30) for step in range(30)]
    assert all(row.keys() == objective.weights().keys() for row in rows)
    for name in ("magnitude", "frequency", "group_delay"):
        assert rows[-1][name] < rows[0][name]


def test_slopes_reach_every_weight_of_the_vocoder():
    objective, batch = slopes(gan_from=1.0), next(iter(loader())).batch
    for part in (objective.vocoder.head.out, objective.vocoder.head.delay):
        torch.nn.init.normal_(part.weight, std=0.02)  # zeros at first: nothing behind them learns
    objective.begin_step(0, TOTAL)
    weights = objective.weights()
    sums = objective(batch)
    torch.stack([weights[n] * s / c for n, (s, c) in sums.items()]).sum().backward()
    for name, p in objective.vocoder.named_parameters():
        assert p.grad is not None and p.grad.any(), name


def test_true_slopes_have_no_loss():
    from nanospeech_torch.train.objectives import vocoder_loss as losses

    batch = next(iter(loader())).batch
    real = losses.spectrograms(batch.wave, (1024,))[1024]
    x = real.mT
    advance, delay = torch.zeros_like(x.real), torch.zeros_like(x.real)
    advance[:, 1:] = torch.angle(x[:, 1:] * x[:, :-1].conj())
    delay[:, :, 1:] = torch.angle(x[:, :, 1:] * x[:, :, :-1].conj())
    counts = losses.slope_counts(real)
    perfect = losses.slope_sums((x.abs(), advance, delay), real)
    assert all(abs(v / counts[k]) < 1e-3 for k, v in perfect.items())
    opposite = losses.slope_sums((x.abs(), advance + np.pi, delay), real)
    assert opposite["frequency"] / counts["frequency"] == pytest.approx(2, abs=0.01)
    assert abs(opposite["group_delay"] / counts["group_delay"]) < 1e-3


def test_a_vocoder_with_griffin_lim_iters_has_no_discriminators():
    with pytest.raises(InputError, match="gan_from"):
        slopes()


def test_the_discriminators_join_at_their_step(history):
    objective, losses = history
    spectral = {"mel", "magnitude", "convergence"}
    assert all(row.keys() == spectral for row in losses[: TOTAL // 2])
    whole = objective.weights().keys()
    assert all(row.keys() == whole for row in losses[TOTAL // 2 :])
    fresh = gan()
    fresh.begin_step(0, TOTAL)
    assert fresh.active_phases() == ("vocoder",) and fresh.rate("vocoder") == 1
    fresh.begin_step(TOTAL - 1, TOTAL)
    assert (
        fresh.rate("vocoder") == LOSS.gan_rate and fresh.rate("judges") == LOSS.discriminator_rate
    )


def test_the_mel_loss_may_be_to_the_input_mel():
    whole = next(iter(loader())).batch
    batch = SegmentBatch(whole.wave, whole.mel + 0.5)  # not what the recording has
    found = {}
    for share in (0.0, 0.25, 1.0):
        objective = gan(input_mel_share=share)
        found[share] = one_losses(objective, batch)["mel"]
    with torch.no_grad():
        made = log_mel(objective.vocoder(batch.mel))
    of_given, of_wave = ((made - m).abs().mean().item() for m in (batch.mel, log_mel(batch.wave)))
    assert found[1.0] == pytest.approx(of_given, rel=1e-5)
    assert found[0.0] == pytest.approx(of_wave, rel=1e-5) and of_given != pytest.approx(of_wave)
    assert found[0.25] == pytest.approx(0.25 * of_given + 0.75 * of_wave, rel=1e-5)
    with pytest.raises(InputError, match="input_mel_share is 2, should be 0 to 1"):
        gan(input_mel_share=2)


def one_losses(objective, batch) -> dict[str, float]:
    objective.begin_step(0, TOTAL)
    return {name: (s / n).item() for name, (s, n) in objective(batch).items()}


def test_each_phase_moves_its_own_weights_alone():
    objective = gan()
    batch = next(iter(loader())).batch
    phases = objective.phases()
    assert {id(p) for ps in phases.values() for p in ps} == {id(p) for p in objective.parameters()}
    objective.begin_step(TOTAL - 1, TOTAL)
    weights = objective.weights()
    for phase, other in (("vocoder", "judges"), ("judges", "vocoder")):
        sums = objective(batch, phase)
        torch.stack([weights[n] * s / c for n, (s, c) in sums.items()]).sum().backward()
        assert any(p.grad is not None and p.grad.any() for p in phases[phase])
        assert all(p.grad is None for p in phases[other])
        objective.zero_grad(set_to_none=True)
    assert all(p.requires_grad for p in objective.parameters())


def test_the_discriminators_give_the_vocoder_a_gradient():
    """The adversarial losses alone reach every weight of the vocoder."""
    objective = gan()
    objective.begin_step(TOTAL - 1, TOTAL)
    sums = objective(next(iter(loader())).batch, "vocoder")
    (sums["adversarial"][0] + sums["matching"][0]).backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.vocoder.parameters())


def test_two_halves_add_up_to_the_whole():
    """Sums and counts of two processes are those of one with both their batches."""
    objective = gan(discriminator_segments=100)
    batch = next(iter(loader())).batch
    objective.begin_step(TOTAL - 1, TOTAL)
    parts = [SegmentBatch(batch.wave[i], batch.mel[i]) for i in (slice(1), slice(1, None))]
    whole, halves = {}, [{}, {}]
    for found, b in ((whole, batch), (halves[0], parts[0]), (halves[1], parts[1])):
        for phase in objective.active_phases():
            found |= objective(b, phase)
    for name, (total, count) in whole.items():
        assert count == sum(h[name][1] for h in halves)
        added = sum(h[name][0].item() for h in halves)
        assert added == pytest.approx(total.item(), rel=1e-5)


@pytest.mark.parametrize("judged", [1, 3, 100])
def test_losses_are_means_over_all_segments_or_over_those_that_are_judged(judged):
    objective, batch = gan(discriminator_segments=judged), next(iter(loader())).batch
    objective.begin_step(TOTAL - 1, TOTAL)
    few = min(judged, rows := len(batch.mel))
    wanted = {"mel": rows, "magnitude": rows, "convergence": rows}
    wanted |= {"adversarial": few, "matching": few, "discriminator": few}
    found = {}
    for phase in objective.active_phases():
        found |= {name: float(count) for name, (_, count) in objective(batch, phase).items()}
        assert {k: float(n) for k, n in objective.counts(batch, phase).items()} == wanted
    assert found == wanted


def test_a_resumed_run_equals_an_uninterrupted_one():
    torch.set_num_threads(1)
    steps, stop = 12, 7  # the discriminators join at 6
    whole, stream = gan(), iter(loader())
    optimizer, kept, place = optimizers(whole), None, StreamState()
    for step in range(steps):
        if step == stop:
            kept = copy.deepcopy((whole.state_dict(), [o.state_dict() for o in optimizer.values()]))
        loaded = next(stream)
        one_step(whole, optimizer, loaded.batch, step, steps)
        place = loaded.place if step == stop - 1 else place
    assert kept is not None
    again = gan()
    again.load_state_dict(kept[0])
    optimizer = optimizers(again)
    for o, saved in zip(optimizer.values(), kept[1]):
        o.load_state_dict(saved)
    stream = iter(loader(places={0: place}, consumed=stop))
    for step in range(stop, steps):
        one_step(again, optimizer, next(stream).batch, step, steps)
    mine, other = whole.state_dict(), again.state_dict()
    assert all(torch.equal(mine[name], other[name]) for name in mine)


def train_half(rank: int, world: int, folder: str) -> None:
    """One of `world` processes, each with its part of every batch."""
    torch.set_num_threads(1)
    if world > 1:
        where = f"file://{folder}/rendezvous"
        torch.distributed.init_process_group("gloo", where, rank=rank, world_size=world)
    objective, stream = gan(discriminator_segments=100), iter(loader())
    # gradients that are zero but for rounding are not made whole steps in directions of chance
    optimizer, wrapped, losses = optimizers(objective, eps=1e-4), objective, []
    if world > 1:
        wrapped = replicas(objective, torch.device("cpu"))
    for step in range(6):
        batch = next(stream).batch
        mine = SegmentBatch(batch.wave[rank::world], batch.mel[rank::world])
        losses.append(one_step(wrapped, optimizer, mine, step, 6, objective))
    Path(folder, f"{rank}_of_{world}.json").write_text(json.dumps(losses))
    if world > 1:
        torch.distributed.destroy_process_group()


def test_two_processes_train_what_one_would(tmp_path):
    train_half(0, 1, str(tmp_path))
    finish([Forked(train_half, rank, 2, str(tmp_path), env={}) for rank in range(2)])
    one, first, second = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("0_of_1", "0_of_2", "1_of_2")
    )
    assert one[0].keys() < one[-1].keys() == gan().weights().keys()
    for whole, a, b in zip(one, first, second, strict=True):
        assert {n: (a[n] + b[n]) / 2 for n in a} == pytest.approx(whole, rel=2e-4)


class Waits(TorchDispatchMode):
    """Refuses what would make the host wait for a device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        assert not any(w in name for w in ("_local_scalar_dense", "nonzero", "unique")), name
        return function(*args, **(kwargs or {}))


def test_a_step_never_waits_for_the_device():
    objective, batch = gan(), next(iter(loader())).batch
    objective.begin_step(TOTAL - 1, TOTAL)
    with Waits():
        for phase in objective.active_phases():
            sums = objective(batch, phase)
            torch.stack([total / count for total, count in sums.values()]).sum().backward()


def test_what_is_averaged_is_the_vocoder():
    objective = gan()
    assert objective.averaged() is objective.vocoder
    config = objective.model_config()
    Vocos(VocoderConfig(**config["vocoder"])).load_state_dict(objective.averaged().state_dict())


def test_choices_are_those_of_the_step():
    a, b = gan(), gan()

    def choices(objective, step):
        objective.begin_step(step, 10**6)
        return objective.windows, objective.period, objective.discriminator_window

    for step in range(50):
        choices(b, 1000 + step)  # whatever came before
        assert choices(a, step) == choices(b, step)
    assert len({choices(a, step) for step in range(200)}) > 20


def test_a_mel_the_vocoder_cannot_have_is_refused():
    with pytest.raises(InputError, match="alike"):
        VocoderGAN(Vocos(VocoderConfig(n_mels=80)), AudioConfig())
    sizes: dict[str, Any] = {"n_fft": 1024, "hop_length": 128}
    with pytest.raises(InputError, match="quarter"):
        VocoderGAN(Vocos(VocoderConfig(**sizes)), AudioConfig(**sizes))
    sizes = {"n_fft": 600, "hop_length": 150}  # a quarter, and no window of the losses
    with pytest.raises(InputError, match="cannot be trained; n_fft should be one of"):
        VocoderGAN(Vocos(VocoderConfig(**sizes)), AudioConfig(**sizes))


def test_settings_of_a_vocoders_losses_that_make_no_sense_are_refused():
    wrong: dict[str, Any] = {"frames": 15, "input_mel_share": -0.1, "discriminator_segments": 0}
    for name, bad in wrong.items():
        with pytest.raises(InputError, match=f"{name} is {bad}"):
            VocoderLossConfig(**{name: bad})
    for name, good in (
        ("input_mel_share", 0),
        ("input_mel_share", 1),
        ("discriminator_segments", 1),
    ):
        assert getattr(VocoderLossConfig(**{name: good}), name) == good
    # other rates are for vocoders that invert no mel
    plain = Vocos(VocoderConfig(dim=16, intermediate_dim=32, num_layers=1))
    assert VocoderGAN(plain, AudioConfig(sample_rate=16_000)).loss == VocoderLossConfig()


@pytest.mark.parametrize("inverts", [{"mel_prior": True}, {"griffin_lim_iters": 2}])
def test_the_mel_that_is_inverted_has_the_usual_rate(inverts):
    vocoder = Vocos(VocoderConfig(dim=16, intermediate_dim=32, num_layers=1, **inverts))
    with pytest.raises(InputError, match=r"inverts the mel of 24000 Hz, got .*16000"):
        VocoderGAN(vocoder, AudioConfig(sample_rate=16_000), VocoderLossConfig(gan_from=1.0))


def with_made_mels() -> list[dict]:
    """The recordings, each with a mel that is its own and 1 louder."""
    found = samples()
    for sample in found:
        file = io.BytesIO()
        np.save(file, (mel.log_mel(sound.read(sample["mp3"])) + 1).astype(np.float16))
        sample["npy"] = file.getvalue()
    return found


@pytest.mark.parametrize("made, share", [(0.0, 0), (1.0, 1), (0.5, 0.5)])
def test_a_segment_may_have_a_synthetic_mel(made, share):
    loss = VocoderLossConfig(**{**vars(LOSS), "synthetic_share": made})
    stream = iter(SegmentBatches(with_made_mels(), None, PLAN, None, loss))
    louder = []
    for _ in range(12):
        batch = next(stream).batch
        for wave, features in zip(batch.wave.numpy(), batch.mel.numpy()):
            # away from the ends, whose windows reach out of the segment
            away = (features - mel.log_mel(wave))[3:-3]
            loud = features[3:-3] > -6
            louder.append(float(np.median(away[loud])))
    assert np.isin(np.round(louder, 1), (0, 1)).all()
    assert np.mean(np.round(louder)) == pytest.approx(share, abs=0.2)
    with pytest.raises(InputError, match="synthetic_share is 2"):
        SegmentConfig(synthetic_share=2)


def test_a_vocoder_is_trained_on_from_a_release_folder(tiny_release, tiny_aligned):
    known = open_release(tiny_release)
    assert known.config.vocoder is not None
    vocoder = Vocos(known.config.vocoder)
    take_vocoder(vocoder, known)
    rng = np.random.default_rng(0)
    features = rng.standard_normal((1, 20, 100)).astype(np.float32)
    wave = load_engine(tiny_release, "torch", "cpu", "float32").vocode(features)[0]
    with torch.no_grad():
        assert np.allclose(vocoder(torch.from_numpy(features))[0].numpy(), wave, atol=1e-5)
    other = Vocos(dataclasses.replace(known.config.vocoder, num_layers=1))
    with pytest.raises(InputError, match="another vocoder"):
        take_vocoder(other, known)
