"""Training of an EchoDiT: its loss and draws by hand, its batches, resuming, and what it makes."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from nanospeech.config import AudioConfig
from nanospeech.configs import find_recipe
from nanospeech.errors import InputError
from nanospeech.load import load_engine
from nanospeech.release.folder import open_release
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.dit import DiT
from nanospeech_torch.echo import ops
from nanospeech_torch.echo.network import EchoDiT
from nanospeech_torch.train.config import read_run, run_config
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.data.latents import EchoBatch, EchoBatches, EchoLossConfig
from nanospeech_torch.train.initial import load_objective
from nanospeech_torch.train.loop.trainer import EchoTrainer
from nanospeech_torch.train.objectives.echo import Echo
from nanospeech_torch.train.objectives.text_aligner import TextAligner
from nanospeech_torch.train.run import build_objective, build_tokenizer
from nanospeech_torch.train.scale.echo import count_weights, step_flops
from tests import parallel_worker as worker
from tests.train.shared import npy
from tests.training import CPU, samples

AUDIO = AudioConfig(mel_mean=-3.0, mel_std=2.0)
BYTES = Tokenizer("bytes", [])
NETWORK = dataclasses.replace(
    worker.ECHO, latent_dim=100, text_vocab=256, max_latents=256, max_text=250, max_speaker=64
)
PLAN = BatchPlan(4, 2000, 200, buckets=2)


def objective(window: float = 0.0, **loss) -> Echo:
    torch.manual_seed(0)
    network = EchoDiT(dataclasses.replace(NETWORK, text_window=window))
    aligner = TextAligner(small_aligner(), AUDIO) if window else None
    return Echo(network, BYTES, AUDIO, EchoLossConfig(latents="mels", **loss), aligner=aligner)


def small_aligner() -> DiT:
    sizes: dict[str, Any] = {
        "dim": 16,
        "depth": 1,
        "heads": 2,
        "dim_head": 8,
        "text_dim": 16,
        "conv_layers": 1,
    }
    return DiT(**sizes, text_num_embeds=256, text_upsampling="aligned", patch_size=2)


def batches(given=None, plan=PLAN, **loss) -> EchoBatches:
    found = EchoLossConfig(latents="mels", **loss)
    return EchoBatches(given or samples(), BYTES, plan, AUDIO, found, NETWORK)


def first(stream) -> tuple:
    loaded = next(iter(stream))
    return loaded.batch, loaded.texts


class Plain(torch.nn.Module):
    """In the place of a network: a velocity that is easily worked out, and what it was given."""

    def __init__(self):
        super().__init__()
        self.config = dataclasses.replace(worker.ECHO, latent_patch=2)
        self.given: Any = ()

    def text_states(self, text, mask, ids):
        return text

    def speaker_states(self, latents, mask):
        return latents, mask

    def text_places(self, text, mask, lens, durations):
        return None

    def text_angles(self, places):
        return None

    def forward(self, *given):
        self.given = given
        return 0.5 * given[0] + given[1][:, None, None]


def test_the_loss_is_that_of_a_batch_worked_out_by_hand():
    drops = {"drop_text": [1, 0, 1, 0], "drop_speaker": [0, 0, 1, 1]}
    dropped = {name: torch.tensor(rows, dtype=torch.bool) for name, rows in drops.items()}
    batch = dataclasses.replace(worker.echo_batch(0), **dropped)
    audio = dataclasses.replace(AUDIO, n_mels=20)
    plain = Plain()
    model = Echo(worker.objective("echo").transformer, BYTES, audio, EchoLossConfig())
    model.transformer = plain  # type: ignore[assignment]
    total, count = model(batch)["flow"]
    mel, noise, time = (getattr(batch, k).double().numpy() for k in ("mel", "noise", "time"))
    want, states = 0.0, np.zeros_like(mel)
    for b in range(4):
        for n in range(48):
            # zero past the end, in the ODE's units: the tail is learned as well
            clean = (mel[b, n] + 3) / 2 if n < batch.lens[b] else np.zeros(20)
            states[b, n] = (1 - time[b]) * clean + time[b] * noise[b, n]
            velocity = 0.5 * states[b, n] + time[b]
            want += np.mean((velocity - (noise[b, n] - clean)) ** 2)
    assert float(total) == pytest.approx(want, rel=1e-5)
    assert int(count) == 4 * 48 == int(model.counts(batch)["flow"])
    state, times, contexts, mask, start, seconds, places = plain.given
    np.testing.assert_allclose(state, states, atol=1e-5)
    assert torch.equal(times, batch.time) and start == 0 and len(contexts) == 2
    assert places is None
    np.testing.assert_allclose(seconds, batch.lens.numpy() / (24_000 / 256), rtol=1e-6)
    own, text, speaker = mask[:, :24], mask[:, 24:32], mask[:, 32:]
    assert own.all()
    for b in range(4):
        read = [int(i) >= 0 and not batch.drop_text[b] for i in batch.text[b]]
        heard = [n < batch.heard[b] and not batch.drop_speaker[b] for n in range(16)]
        assert text[b].tolist() == read and speaker[b].tolist() == heard
        for n in range(16):
            given = contexts[0].speaker[b, n].double().numpy()
            raw = batch.speaker[b, n].double().numpy()
            clean = (raw + 3) / 2 if n < batch.heard[b] else np.zeros(20)
            np.testing.assert_allclose(given, clean, atol=1e-5)


class Known:
    """In the place of an aligner: durations that are known."""

    def __init__(self, durations_BT: torch.Tensor):
        self.lasts = durations_BT

    def durations(self, batch: EchoBatch) -> torch.Tensor:
        return self.lasts


def windowed() -> tuple[Echo, EchoBatch]:
    """A small model with a window, and a batch of known durations."""
    torch.manual_seed(0)
    network = dataclasses.replace(worker.ECHO, text_window=1.5)
    batch = worker.echo_batch(0)
    lasts = torch.arange(1, 9).repeat(4, 1) * (batch.text >= 0)
    audio = dataclasses.replace(AUDIO, n_mels=20)
    return Echo(EchoDiT(network), BYTES, audio, aligner=Known(lasts)), batch  # type: ignore[arg-type]


def test_the_loss_of_durations_is_that_worked_out_by_hand():
    model, batch = windowed()
    seen: dict[str, Any] = {}
    plain = model.transformer.log_durations
    model.transformer.log_durations = lambda text: seen.setdefault("log", plain(text))  # type: ignore
    model.transformer.register_forward_hook(lambda _, given, out: seen.update(places=given[6]))
    with torch.no_grad():
        sums = model(batch)
    want, tokens = 0.0, (batch.text >= 0).sum(1).tolist()
    for b, count in enumerate(tokens):
        for i in range(count):
            guess, n = float(seen["log"][b, i]), i + 1
            want += np.exp(guess) - n - n * (guess - np.log(n))
        lasts = np.arange(1, count + 1)
        share = int(batch.lens[b]) / 2 / lasts.sum()  # patches of two latents
        middles = (np.cumsum(lasts) - lasts / 2) * share - 0.5
        np.testing.assert_allclose(seen["places"][b, :count], middles, atol=1e-5)
    assert float(sums["duration"][0]) == pytest.approx(want, rel=1e-4)
    known = {name: int(count) for name, count in model.counts(batch).items()}
    assert known == {"flow": 4 * 48, "duration": sum(tokens)}
    assert known == {name: int(count) for name, (_, count) in sums.items()}
    assert model.weights() == {"flow": 1.0, "duration": 0.1}


def test_tokens_that_nobody_timed_are_learned_as_evenly_spread():
    """Of a network that turns its text's keys, and predicts no durations: as when it speaks."""
    torch.manual_seed(0)
    network = EchoDiT(dataclasses.replace(worker.ECHO, text_rotary=True))
    model = Echo(network, BYTES, dataclasses.replace(AUDIO, n_mels=20))
    batch, seen = worker.echo_batch(0), {}
    network.register_forward_hook(lambda _, given, out: seen.update(places=given[6]))
    with torch.no_grad():
        assert model(batch).keys() == model.counts(batch).keys() == {"flow"}
    for b, count in enumerate((batch.text >= 0).sum(1).tolist()):
        share = int(batch.lens[b]) / 2 / count  # patches of two latents
        wanted = (np.arange(count) + 0.5) * share - 0.5
        np.testing.assert_allclose(seen["places"][b, :count], wanted, atol=1e-5)


def test_what_is_left_out_is_as_the_codec_of_scaled_echo_has_it():
    model = Echo(EchoDiT(NETWORK), BYTES)
    assert (model.audio.frame_rate, model.audio.n_mels) == (25, NETWORK.latent_dim)
    assert model.audio.sample_rate == 48_000 and model.loss == EchoLossConfig()
    assert objective(duration=0.3).weights() == {"flow": 1.0, "duration": 0.3}


def test_durations_teach_neither_the_text_encoder_nor_the_network():
    model, batch = windowed()
    model(batch)["duration"][0].backward()
    taught = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    layers = ("0.weight", "0.bias", "2.weight", "2.bias")
    assert taught == {f"transformer.text_duration.{name}" for name in layers}


def test_tokens_last_as_long_as_another_model_hears(monkeypatch):
    monkeypatch.setattr("nanospeech.engine.upsampling.MASKED", 0.0)  # as of clear recordings
    release = open_release("nanospeech/default")
    teacher = load_objective(release)
    aligner = TextAligner(teacher.transformer, release.config.audio)
    tokens = release.tokenizer
    sample = next(s for s in samples() if 1 < s["json"].get("duration", 2) < 4)
    stream = EchoBatches([sample], tokens, PLAN, AUDIO, EchoLossConfig(latents="mels"), NETWORK)
    batch, _ = first(stream)
    engine = load_engine("nanospeech/default", "torch", "cpu", "float32")
    read = batch.text[0][batch.text[0] >= 0]
    found = aligner.durations(batch)[0][: len(read)]
    p = release.config.dit.patch_size
    assert int(found.sum()) == -(-int(batch.lens[0]) // p) and found.min() > 0
    wanted = engine.align(batch.mel[0, : batch.lens[0]].numpy(), read.numpy())
    np.testing.assert_allclose(found.numpy() * p, wanted, atol=p)


def test_an_aligner_of_other_mels_or_tokens_is_refused():
    recipe = {"model": "echo", "data": {"tokenizer": "bytes"}, "echo_loss": {"latents": "mels"}}
    sizes = {**dataclasses.asdict(NETWORK), "text_window": 1.0}
    config = run_config({**recipe, "echo": sizes})
    with pytest.raises(InputError, match=r"durations of tokens.*echo_loss\.aligner"):
        build_objective(config, build_tokenizer(config.data))
    with pytest.raises(InputError, match="another model that aligns"):
        Echo(EchoDiT(dataclasses.replace(NETWORK, text_window=1.0)), BYTES, AUDIO)


def test_times_are_logit_normal_and_one_in_each_part_of_a_batch():
    drawn = np.array([[0.9, 0.25], [0.1, 0.5], [0.4, 0.75], [0.2, 0.0]])
    # ranks of the first draws 3, 0, 2, 1; the second draws place each within its quarter
    uniform = [(3 + 0.25) / 4, (0 + 0.5) / 4, (2 + 0.75) / 4, (1 + 0.0) / 4]
    want = [1 / (1 + np.exp(-(0.3 + 1.2 * NormalDist().inv_cdf(u)))) for u in uniform]
    stream = batches(time_mean=0.3, time_std=1.2)
    np.testing.assert_allclose(stream.times(drawn), want, rtol=1e-6)
    free = batches(time_mean=0.3, time_std=1.2, stratify=False).times(drawn)
    want = [1 / (1 + np.exp(-(0.3 + 1.2 * NormalDist().inv_cdf(u)))) for u in drawn[:, 0]]
    np.testing.assert_allclose(free, want, rtol=1e-6)


def test_a_batch_is_padded_with_silence_and_hears_other_clips():
    batch, texts = first(batches())
    rows = len(texts)
    assert batch.mel.shape == batch.noise.shape == (rows, 256, 100)
    assert batch.noise.std() == pytest.approx(1, abs=0.02)  # in the silence too
    for row, n, ids, text in zip(batch.mel, batch.lens, batch.text, texts):
        assert row[:n].abs().sum(1).min() > 0 and not row[n:].any()
        assert bytes(ids[ids >= 0].tolist()).decode() == text
    own = [
        (batch.mel[i, : batch.lens[i]].unfold(0, int(n), 1) == row[:n].T).all(-1).all(-1).any()
        for i, (row, n) in enumerate(zip(batch.speaker, batch.heard))
    ]
    named = {s["json"].get("speaker") for s in samples()}
    assert len(named) < len(samples())  # some have a partner
    assert not all(own) and (batch.heard <= 64).all() and (batch.heard > 0).all()


def test_lengths_are_whole_positions_of_the_network_eight_at_a_time():
    model = objective()
    assert model.multiple() == 8 * NETWORK.latent_patch
    padded = dataclasses.replace(PLAN, multiple=model.multiple())
    batch, _ = first(batches(plan=padded, tail=13))
    assert batch.mel.shape[1] % model.multiple() == 0


def test_the_operations_of_a_step_are_those_of_its_lengths():
    batch, _ = first(batches())
    rows, latents = batch.mel.shape[:2]
    (_, tokens), speaker = batch.text.shape, batch.speaker.shape[1]
    assert len({rows, latents, tokens, speaker}) == 4  # no length is taken for another
    want = step_flops(NETWORK, rows, latents, tokens, speaker)
    assert objective().flops(batch) == sum(want.values())


def test_a_tail_is_shorter_where_it_is_asked_for():
    batch, _ = first(batches(tail=16))
    assert batch.mel.shape[1] in (100 + 16, 200 + 16)


def test_encoded_shards_are_read_with_their_references():
    rng = np.random.default_rng(0)
    clip, heard = (rng.standard_normal((n, 100)).astype(np.float16) for n in (150, 40))
    meta = json.dumps({"text": "Hello.", "target_duration": 150 / AUDIO.frame_rate}).encode()
    sample = {"__key__": "a", "npy": npy(clip), "ref.npy": npy(heard), "json": meta}
    alone = {"__key__": "b", "npy": npy(clip), "json": meta}
    batch, _ = first(batches([sample]))
    np.testing.assert_array_equal(batch.mel[0, :150], clip.astype(np.float32))
    np.testing.assert_array_equal(batch.speaker[0], heard.astype(np.float32))
    batch, _ = first(batches([alone]))
    assert batch.heard[0] == 64  # a part of the clip itself, no more than half of it
    assert any(np.array_equal(batch.speaker[0], clip[i : i + 64]) for i in range(87))


def test_conditions_are_dropped_apart():
    stream = batches(drop_text=0.3, drop_speaker=0.1)
    item = {"mel": np.zeros((20, 100), np.float16)}
    found = Counter()
    for seed in range(2000):
        drawn = stream.draw({**item, "rng": np.random.default_rng(seed)}, 1)
        found[drawn["drop_text"], drawn["drop_speaker"]] += 1
    assert found[True, True] / 2000 == pytest.approx(0.03, abs=0.015)
    assert found[True, False] / 2000 == pytest.approx(0.27, abs=0.04)
    assert found[False, True] / 2000 == pytest.approx(0.07, abs=0.02)


def test_too_long_texts_are_left_out():
    stream = EchoBatches(
        samples(),
        BYTES,
        PLAN,
        AUDIO,
        EchoLossConfig(latents="mels"),
        dataclasses.replace(NETWORK, max_text=25),
    )
    loaded = next(iter(stream))
    assert loaded.skipped["text too long"] and all(len(t.encode()) <= 25 for t in loaded.texts)


def run(folder: Path, steps: int, window: float = 0.0) -> EchoTrainer:
    model = objective(window, tail=8)
    torch.manual_seed(1)
    for p in model.parameters():  # no layer at zero
        p.data += 0.02 * torch.randn_like(p)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = EchoTrainer(model, optimizer, 2, CPU, folder, log_every=1, ema_decay=0.9, buckets=1)
    found.train(samples(), steps, batch_size=2, max_duration=200, save_step=100)
    return found


def test_a_resumed_run_is_the_same_to_the_last_bit(tmp_path):
    whole = run(tmp_path / "whole", 4).weights("model")
    run(tmp_path / "parts", 2)
    parts = run(tmp_path / "parts", 4).weights("model")
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


@pytest.mark.parametrize("window", [0.0, 1.5])
def test_a_run_becomes_a_folder_that_both_backends_read(tmp_path, window):
    from convert import convert

    trained = run(tmp_path / "run", 2, window)
    convert(tmp_path / "run", tmp_path / "model", dtype="float32", weights="raw")
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1, 50, 100)).astype(np.float32)
    heard = rng.standard_normal((1, 24, 100)).astype(np.float32)
    text = BYTES.encode("hello")[None]
    time = np.array([0.4], np.float32)
    engine = load_engine(tmp_path / "model", "torch", dtype="float32")
    got = engine.velocity(noise, heard, text, time)
    batch = first(batches([{"__key__": "a", "npy": npy(noise[0]), "json": {"text": "hello"}}]))[0]
    exact = dataclasses.replace(
        batch,
        lens=torch.tensor([50]),
        time=torch.tensor(time),
        speaker=torch.tensor(heard),
        heard=torch.tensor([24]),
        drop_text=torch.tensor([False]),
        drop_speaker=torch.tensor([False]),
    )
    with torch.no_grad():
        want = trained.core.velocity(exact, torch.tensor(noise))  # type: ignore[operator]
    np.testing.assert_allclose(got, want.numpy(), atol=2e-5 * np.abs(got).max())
    pytest.importorskip("mlx.core")
    other = load_engine(tmp_path / "model", "mlx", dtype="float32")
    other = other.velocity(noise, heard, text, time)
    np.testing.assert_allclose(other, got, atol=1e-4 * np.abs(got).max())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"continues": True, "latent_patch": 1}, "continues is of checkpoints"),
        ({"text_depth": 0, "text_input": 8}, "read by one of the two"),
    ],
)
def test_networks_that_cannot_be_trained_are_refused(changes, said):
    network = EchoDiT(dataclasses.replace(NETWORK, **changes))
    with pytest.raises(InputError, match=said):
        Echo(network, BYTES, AUDIO)


def test_clips_are_no_longer_than_the_latents():
    longest = dataclasses.replace(PLAN, max_duration=256)
    assert objective().batches(samples(), longest, StreamOptions()) is not None
    with pytest.raises(InputError, match="max_latents is 256"):
        objective().batches(samples(), dataclasses.replace(PLAN, max_duration=300), StreamOptions())


def test_a_model_that_reads_no_texts_has_no_batches():
    model = objective()
    model.tokenizer = None
    with pytest.raises(InputError, match="has no tokenizer"):
        model.batches(samples(), PLAN, StreamOptions())


@pytest.mark.parametrize(("name", "weights"), [("800M", 780e6), ("3B", 3.5e9), ("8B", 8.2e9)])
def test_recipes_have_the_sizes_that_scaled_echo_states(name, weights):
    config = read_run(find_recipe(f"echo_{name}"))
    assert count_weights(config.echo)["total"] == pytest.approx(weights, rel=0.01)
    assert (config.echo.max_latents, config.echo.max_text, config.echo.max_speaker) == (
        768,
        192,
        384,
    )


@pytest.mark.parametrize("window", [False, True])
def test_attention_on_a_cpu_in_bfloat16_is_the_plain_one(window):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, n, 16, requires_grad=True) for n in (5, 11, 11))
    mask = torch.rand(2, 11) < 0.7
    mask[:, 0] = True
    if window:
        places = torch.tensor([[0.5, 1.5, 3.0], [1.0, 2.0, 4.0]])
        mask = ops.window(mask, places, 5, 4, 2, 1.0, q)
    seen = mask if window else mask[:, None, None]
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    wanted = torch.autograd.grad(want.square().sum(), (q, k, v))
    with torch.autocast("cpu", torch.bfloat16):
        got = ops.attention(q, k, v, mask)
    assert got.dtype == torch.bfloat16
    found = torch.autograd.grad(got.float().square().sum(), (q, k, v))
    for one, other in ((got.float(), want), *zip(found, wanted)):
        assert (one - other).abs().max() <= 0.03 * other.abs().max()
