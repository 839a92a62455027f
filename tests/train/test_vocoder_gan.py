"""The vocoder's training: segments of recordings, two phases a step, exact resuming."""

import copy
import dataclasses
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from nanospeech import load_engine  # noqa: E402
from nanospeech.audio import mel  # noqa: E402
from nanospeech.audio import wave as sound  # noqa: E402
from nanospeech.config import AudioConfig, VocoderConfig  # noqa: E402
from nanospeech.errors import DataError, InputError  # noqa: E402
from nanospeech.release.folder import open_release  # noqa: E402
from nanospeech_torch.prepare import synthetic_mels  # noqa: E402
from nanospeech_torch.train.data.segments import (  # noqa: E402
    SegmentBatch,
    SegmentBatches,
    SegmentConfig,
    cut,
    is_held_out,
)
from nanospeech_torch.train.data.sources import TarSource  # noqa: E402
from nanospeech_torch.train.data.speech import BatchPlan, StreamState  # noqa: E402
from nanospeech_torch.train.objectives.vocoder_gan import VocoderGAN, VocoderLossConfig  # noqa: E402
from nanospeech_torch.train.objectives.vocoder_loss import log_mel  # noqa: E402
from nanospeech_torch.train.run import take_vocoder  # noqa: E402
from nanospeech_torch.train.scale.parallel import replicas  # noqa: E402
from nanospeech_torch.vocoder import Vocos  # noqa: E402

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


def optimizers(objective, lr=2e-3):
    return {
        name: torch.optim.AdamW(parameters, lr, (0.8, 0.99))
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


def test_a_vocoder_with_rounds_learns_slopes():
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
    perfect = losses.slope_losses((x.abs(), advance, delay), real)
    assert all(abs(v) < 1e-3 for v in perfect.values())
    opposite = losses.slope_losses((x.abs(), advance + np.pi, delay), real)
    assert (
        opposite["frequency"] == pytest.approx(2, abs=0.01) and abs(opposite["group_delay"]) < 1e-3
    )


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


def test_the_mel_distance_may_be_to_the_mel_that_was_given():
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
    optimizer, wrapped, losses = optimizers(objective), objective, []
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
    torch.multiprocessing.spawn(train_half, (2, str(tmp_path)), 2)
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
    with pytest.raises(InputError, match="quarter"):
        sizes = {"n_fft": 1024, "hop_length": 128}
        VocoderGAN(Vocos(VocoderConfig(**sizes)), AudioConfig(**sizes))


def test_a_segment_knows_what_lies_around_it():
    """Its mel is the recording's there, not that of a wave which begins and ends with it."""
    whole = (sound.read(samples()[0]["mp3"]) * 32767).astype(np.int16)
    wave = whole.astype(np.float32) / 32767
    c, audio, length = SegmentConfig(frames=16, min_gain=0, max_gain=0), AudioConfig(), 15 * 256
    rng = np.random.default_rng(0)
    for _ in range(5):
        part, part_mel = cut(whole, c, audio, rng)
        windows = np.lib.stride_tricks.sliding_window_view(wave[: -length + 64], 64)
        [start] = np.flatnonzero(np.isclose(windows, part[:64], atol=1e-6).all(1))
        assert start > 512
        full = mel.log_mel(wave[start % 256 :])[start // 256 :]
        assert np.abs(part_mel - full[:16]).max() < 1e-4
    _, all_of_it = cut(whole[:length], c, audio, rng)  # a clip as long as a segment
    assert np.abs(all_of_it - mel.log_mel(wave[:length])).max() < 1e-4


def with_made_mels() -> list[dict]:
    """The recordings, each with a mel that is its own and 1 louder."""
    found = samples()
    for sample in found:
        file = io.BytesIO()
        np.save(file, (mel.log_mel(sound.read(sample["mp3"])) + 1).astype(np.float16))
        sample["npy"] = file.getvalue()
    return found


@pytest.mark.parametrize("made, share", [(0.0, 0), (1.0, 1), (0.5, 0.5)])
def test_a_segment_may_have_the_mel_that_a_model_made(made, share):
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


def test_a_model_makes_the_mels_of_recordings_again(tiny_aligned, tmp_path, capsys):
    command = [str(tiny_aligned), str(SHARD), "--voice", "tone", "--out", str(tmp_path / "made")]
    assert synthetic_mels.main([*command, "--since", "0.98", "0.98"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["voice"] == "tone" and told["hours"] > 0 and not told["left_out"]
    [path] = (tmp_path / "made").glob("*.tar")
    made = [sample for _, sample in TarSource([path]).open(0)]
    assert {s["__key__"] for s in made} == {s["__key__"] for s in samples()}
    for sample in made:
        own = mel.log_mel(sound.read(sample["flac"]))
        features = np.load(io.BytesIO(sample["npy"]))
        assert features.dtype == np.float16 and len(own) - len(features) in (0, 1)
        # hardly noised: the model had little to say
        assert np.abs(features - own[: len(features)]).mean() < 0.2
    iter(SegmentBatches(made, None, PLAN, None, LOSS))
    assert synthetic_mels.main([*command, "--since", "0", "0"]) == 0
    again = [sample for _, sample in TarSource([path]).open(0)]
    features = np.load(io.BytesIO(again[0]["npy"]))
    assert np.abs(features - mel.log_mel(sound.read(again[0]["flac"]))[: len(features)]).mean() > 1
    assert synthetic_mels.main([*command, "--since", "0.9", "0.1"]) == 2
    assert "--since" in capsys.readouterr().err


def test_only_a_model_that_aligns_can_make_mels_again(tiny_release, tmp_path, capsys):
    assert synthetic_mels.main([str(tiny_release), str(SHARD), "--out", str(tmp_path)]) == 2
    assert "no aligned model" in capsys.readouterr().err


def test_the_stream_is_the_same_from_a_place_and_from_the_cache():
    stream = iter(loader())
    taken = [next(stream) for _ in range(9)]
    assert taken[-1].place.epoch > 0 and taken[0].batch.frames == 4 * 24
    for start in (3, 6):
        places = {0: taken[start - 1].place}
        again = iter(loader(places=places, consumed=start, cache_bytes=10**7))
        for old in taken[start:]:
            new = next(again)
            assert same(old.batch, new.batch) and old.place == new.place
    assert not same(taken[0].batch, next(iter(loader(seed=1))).batch)


def epoch_of(dataset, **changes) -> tuple[Counter, Counter]:
    """Segments by key and reasons of clips left out, in one epoch."""
    config = SegmentConfig(**{"frames": 24, "segment_stride": 1.0, "held_out": 0.0, **changes})
    batches = SegmentBatches(dataset, None, PLAN, None, config)
    batches.start(0, 0, 1)
    keys = Counter()
    while (taken := batches.stream.take()) is not None:
        item = batches.describe_sample(*taken)
        keys.update(i["key"] for i in (batches.on_sample(item) if item else []))
    return keys, batches.skipped


def test_longer_clips_are_heard_oftener():
    dataset = [{"__key__": f"clip{n}", "wav": wav(24_000 * n)} for n in (1, 2, 4, 8)]
    keys, _ = epoch_of(dataset, segment_stride=0.5)
    share = {n: keys[f"clip{n}"] / n for n in (1, 2, 4, 8)}
    assert all(7 <= s <= 8.5 for s in share.values())  # 93.75 frames a second / (24 * 0.5)


def test_what_cannot_be_used_is_counted():
    good = samples()
    broken = {"__key__": "broken", "mp3": b"not audio"}
    silent = {"__key__": "silent", "json": json.dumps({"text": "no sound"})}
    short = {**good[1], "__key__": "short", "json": {"duration": 0.1}}
    shorter = {"__key__": "shorter", "wav": wav(3000)}
    long = {"__key__": "long", "wav": wav(24_000 * 25)}
    lying = {"__key__": "lying", "wav": wav(30_000), "json": {"duration": 3.0}}
    plain = {"__key__": "no text", "wav": wav(30_000)}  # it needs none
    keys, skipped = epoch_of([*good, broken, silent, short, shorter, long, lying, plain])
    assert keys.keys() == {"no text"} | {s["__key__"] for s in good}
    assert skipped == {
        "unreadable audio": 1,
        "without audio": 1,
        "shorter than a segment": 2,
        "too long": 1,
        "wrong duration": 1,
    }
    with pytest.raises(DataError, match="unreadable"):
        next(iter(SegmentBatches([broken], None, PLAN, None, LOSS)))


def wav(count: int) -> bytes:
    """A short tone as a WAV file's bytes."""
    file = io.BytesIO()
    soundfile.write(file, 0.1 * np.sin(np.arange(count) / 20), 24_000, format="WAV")
    return file.getvalue()


def test_held_out_clips_are_never_drawn():
    keys = [f"clip{i}" for i in range(2000)]
    out = {k for k in keys if is_held_out(k, 0.1)}
    assert 130 < len(out) < 270
    assert {k for k in keys if is_held_out(k, 0.05)} < out
    assert not any(is_held_out(k, 0.0) for k in keys)
    dataset = [{"__key__": k, "wav": wav(30_000)} for k in keys[:40]]
    used, skipped = epoch_of(dataset, held_out=0.1)
    assert used.keys() == set(keys[:40]) - out
    assert skipped == {"held out": len(out & set(keys[:40]))} and skipped["held out"]
