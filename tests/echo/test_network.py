"""EchoDiT: other implementations' numbers in both backends, and its laws."""

from __future__ import annotations

import dataclasses
import importlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from nanospeech.config import ModelConfig, SampleOptions, from_dict
from nanospeech.engine.echo_sampling import echo_options, end_of, euler, rescaled
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import CodecConfig, EchoConfig, EchoOptions
from nanospeech.load import load_engine
from nanospeech.text.tokenizer import Tokenizer

from . import tiny

WITHIN = {"torch": 2e-5, "mlx": 1e-4}  # of the largest number


def close(got, wanted, within):
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= within * np.abs(wanted).max()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    irodori = load_file(tiny.GOLDEN / "irodori.safetensors")
    weights = {f"transformer.{n}": t for n, t in irodori.items()}
    return {
        "irodori": tiny.write(tmp_path_factory.mktemp("irodori"), tiny.IRODORI, weights),
        "echo": tiny.write(
            tmp_path_factory.mktemp("echo"), tiny.ECHO, tiny.seeded(tiny.network_shapes(tiny.ECHO))
        ),
    }


@pytest.fixture(scope="module", params=["torch", "mlx"])
def engines(request, folders):
    return {n: load_engine(f, request.param, dtype="float32") for n, f in folders.items()}


def irodori_inputs():
    golden = np.load(tiny.GOLDEN / "irodori.npz")
    text = np.where(golden["text_mask"], golden["text_ids"], -1)
    return golden, text, {"prompt_frames_B": golden["ref_mask"].sum(1)}


def test_irodori_is_what_its_own_code_computes(engines):
    engine, (golden, text, heard) = engines["irodori"], irodori_inputs()
    within = WITHIN[engine.backend]
    given = golden["x"], golden["ref_latent"], text, golden["t"]
    close(engine.velocity(*given, **heard), golden["v"], within)
    close(engine.velocity(*given, **heard, drop_text=True), golden["v_no_text"], within)
    close(engine.velocity(*given, **heard, drop_audio=True), golden["v_no_speaker"], within)
    mask = golden["latent_mask"]
    masked = engine.velocity(*given, **heard, lens_B=mask.sum(1))
    close(masked[mask], golden["v_latent_mask"][mask], within)
    assert not masked[~mask].any()
    for name, fields in {
        "sample": {},
        "sample_joint": {"joint": True},
        "sample_plain": {"cfg_text": 0, "cfg_speaker": 0},
    }.items():
        options = EchoOptions(steps=5, **fields)
        got = engine.sample(golden["noise"], golden["ref_latent"], text, options, **heard)
        close(got, golden[name], 2e-4)


def test_irodori_states_are_what_its_own_code_computes(engines):
    engine, (golden, text, _) = engines["irodori"], irodori_inputs()
    within = WITHIN[engine.backend]
    with engine.context():
        states = engine.dit.text_states(engine.array(text), engine.array(golden["text_mask"]))
        close(engine.numpy(states), golden["text_state"], within)
        speaker, mask = engine.dit.speaker_states(
            engine.array(golden["ref_latent"]), engine.array(golden["ref_mask"])
        )
        close(engine.numpy(speaker), golden["speaker_state"], within)
        assert np.array_equal(engine.numpy(mask) > 0, golden["speaker_state_mask"])


def test_echo_is_what_it_was_when_it_equalled_the_original(engines):
    golden, engine = np.load(tiny.GOLDEN / "echo.npz"), engines["echo"]
    outputs = tiny.echo_outputs(engine)
    assert outputs.keys() == set(golden.files)
    for name, got in outputs.items():
        close(got, golden[name], 2e-4 if name in tiny.RUNS or name == "blocks" else 1e-4)


def test_an_item_of_a_batch_is_what_it_is_alone(engines):
    engine, i = engines["echo"], tiny.echo_inputs()
    both = engine.velocity(
        i["x"],
        i["speaker"],
        i["text"],
        i["t"],
        lens_B=np.array([13, 7]),
        prompt_frames_B=i["speaker_lens"],
    )
    alone = engine.velocity(i["x"][1:, :7], i["speaker"][1:, :9], i["text"][1:, :9], i["t"][1:])
    assert np.abs(both[1, :7] - alone[0]).max() <= 1e-4
    assert not both[1, 7:].any()


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_an_item_of_a_batch_has_a_duration_and_a_last_patch_of_its_own(tmp_path, backend):
    network = dataclasses.replace(
        tiny.WINDOWED, latent_patch=3, target_duration=True, predicts_speech=True
    )
    folder = tiny.write(tmp_path, network, tiny.seeded(tiny.network_shapes(network)))
    engine, i = load_engine(folder, backend, dtype="float32"), tiny.echo_inputs()
    lens = {"lens_B": np.array([13, 7]), "prompt_frames_B": i["speaker_lens"]}
    one = i["x"][1:, :7], i["speaker"][1:, :9], i["text"][1:, :9]
    both = engine.velocity(i["x"], i["speaker"], i["text"], i["t"], **lens)
    close(both[1:, :7], engine.velocity(*one, i["t"][1:]), WITHIN["mlx"])
    both = engine.sample(i["x"], i["speaker"], i["text"], tiny.RUNS["all"], **lens)
    close(both[1:, :7], engine.sample(*one, tiny.RUNS["all"]), 2e-4)


def test_a_duration_that_is_not_told_has_what_is_continued_in_it(tmp_path):
    network = dataclasses.replace(tiny.ECHO, target_duration=True)
    folder = tiny.write(tmp_path, network, tiny.seeded(tiny.network_shapes(network)))
    engine, i = load_engine(folder, "torch", dtype="float32"), tiny.echo_inputs()
    given = i["x"], i["speaker"], i["text"], tiny.RUNS["plain"]
    found = engine.sample(*given, prefix_BNC=i["prefix"])
    for latents, same in ((8 + 13, True), (13, False)):
        told = np.full(2, latents / engine.config.audio.frame_rate)
        as_told = engine.sample(*given, prefix_BNC=i["prefix"], seconds_B=told)
        assert np.allclose(found, as_told, atol=1e-6) == same


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    weights = tiny.seeded(tiny.network_shapes(tiny.WINDOWED))
    return tiny.write(tmp_path_factory.mktemp("windowed"), tiny.WINDOWED, weights)


def test_a_window_is_the_same_in_both_backends_and_in_a_batch(windowed):
    i, options = tiny.echo_inputs(), tiny.RUNS["all"]
    lens = {"lens_B": np.array([13, 7]), "prompt_frames_B": i["speaker_lens"]}
    found = []
    for backend in ("torch", "mlx"):
        engine = load_engine(windowed, backend, dtype="float32")
        both = engine.velocity(i["x"], i["speaker"], i["text"], i["t"], **lens)
        one = i["x"][1:, :7], i["speaker"][1:, :9], i["text"][1:, :9]
        close(both[1:, :7], engine.velocity(*one, i["t"][1:]), WITHIN["mlx"])
        sampled = engine.sample(i["x"], i["speaker"], i["text"], options, **lens)
        close(sampled[1:, :7], engine.sample(*one, options), 2e-4)
        found.append((both, sampled))
    close(found[1][0], found[0][0], WITHIN["mlx"])
    close(found[1][1], found[0][1], 2e-4)


def test_a_window_lets_tokens_be_heard_near_their_place(windowed):
    torch = pytest.importorskip("torch")
    engine = load_engine(windowed, "torch", dtype="float32")
    net, ops = engine.dit, importlib.import_module("nanospeech_torch.echo.ops")
    read = torch.tensor([[True, True, True, False]])
    # 1, 3 and 4 eighths of 16 patches: shares of 2, 6 and 8
    places = net.text_places(None, read, torch.tensor([32]), torch.tensor([[1.0, 3.0, 4.0, 0.0]]))
    np.testing.assert_allclose(places[0, :3], [0.5, 4.5, 11.5], atol=1e-6)
    with torch.no_grad():
        states = torch.tensor(np.random.default_rng(0).standard_normal((1, 4, 24), np.float32))
        lasts = net.text_duration(states)[0, :3, 0].exp()
        ends = lasts.cumsum(0) / lasts.sum() * 16
        want = ends - lasts / lasts.sum() * 8 - 0.5
        got = net.text_places(states, read, torch.tensor([32]))[0, :3]
    np.testing.assert_allclose(got, want, atol=1e-5)
    # 5 latents, of which 3 are within the item; 4 tokens; 2 states of a speaker
    mask = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0]], dtype=torch.bool)
    added = ops.window(mask, places, 5, 4, 2, 1.5, torch.zeros(1)).numpy()
    assert added.shape == (1, 4, 5, 11)
    for head in range(4):
        for n in range(5):
            for key in range(11):
                want = 0.0
                if head < 2 and 5 <= key < 9:
                    want = np.log(3) - (n - float(places[0, key - 5])) ** 2 / (2 * 1.5**2)
                want = want if mask[0, key] else -np.inf
                assert added[0, head, n, key] == pytest.approx(want, rel=1e-5)


def test_tokens_without_durations_share_the_speech_evenly():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.echo.network import EchoDiT

    net = EchoDiT(dataclasses.replace(tiny.WINDOWED, text_window=0.0))
    places = net.text_places(None, torch.tensor([[True] * 4 + [False]]), torch.tensor([24]))
    np.testing.assert_allclose(places[0, :4], [1, 4, 7, 10], atol=1e-6)
    assert EchoDiT(tiny.ECHO).text_places(None, torch.ones(1, 3), torch.tensor([8])) is None


def test_without_a_speaker_is_a_dropped_speaker(engines):
    engine, i = engines["echo"], tiny.echo_inputs()
    none = engine.velocity(i["x"], i["speaker"][:, :0], i["text"], i["t"])
    given = i["x"], i["speaker"], i["text"], i["t"]
    assert np.abs(none - engine.velocity(*given, drop_audio=True)).max() <= 1e-5
    assert np.abs(none - engine.velocity(*given)).max() > 1e-2


def test_what_does_not_fit_is_refused(engines):
    i = tiny.echo_inputs()
    given = i["x"], i["speaker"], i["text"], i["t"]
    with pytest.raises(InputError, match="multiple of 4"):
        engines["echo"].velocity(*given, prefix_BNC=i["prefix"][:, :6])
    with pytest.raises(InputError, match="vocabulary has 0 to 255"):
        engines["echo"].velocity(*given[:2], i["text"] + 200, i["t"])
    with pytest.raises(InputError, match="euler"):
        engines["echo"].sample(*given[:3], SampleOptions(method="rk4"))
    with pytest.raises(InputError, match="do not rescale guidance"):
        engines["echo"].sample(*given[:3], SampleOptions(cfg_rescale=0.5))
    for name, value in {"guidance": "cfg-zero", "zero_init": 1, "sway_sampling_coef": 0.5}.items():
        with pytest.raises(InputError, match=f"{name} is {value}"):
            engines["echo"].sample(*given[:3], SampleOptions(**{name: value}))
    with pytest.raises(CheckpointError, match=r"no codec\.safetensors|no vocoder"):
        engines["echo"].vocode(i["x"])
    golden, text, _ = irodori_inputs()
    with pytest.raises(CheckpointError, match="cannot continue"):
        engines["irodori"].velocity(
            golden["x"], golden["ref_latent"], text, golden["t"], prefix_BNC=golden["x"]
        )
    with pytest.raises(InputError, match="even number"):
        EchoConfig(dim=30, heads=3)
    with pytest.raises(InputError, match="text_input"):
        EchoConfig(text_depth=2, text_input=64)
    for fields in ({"text_window": -1.0}, {"text_window": 1.0, "text_input": 8, "text_depth": 0}):
        with pytest.raises(InputError, match="text_window"):
            dataclasses.replace(tiny.WINDOWED, **fields)


def test_target_duration_starts_without_effect_and_then_has_one():
    torch = pytest.importorskip("torch")
    from nanospeech_torch.echo.network import EchoDiT

    net = EchoDiT(tiny.SCALED)
    time, seconds = torch.tensor([0.3]), torch.tensor([4.0])
    plain = torch.cat(net.condition(time), -1)
    assert torch.equal(plain, torch.cat(net.condition(time, seconds), -1))
    torch.nn.init.normal_(net.duration_module[2].weight)
    assert not torch.equal(plain, torch.cat(net.condition(time, seconds), -1))
    # one block more is no gradient less: at the start the output is zero and its layer learns
    assert not net.out_proj.weight.any() and not net.blocks[0].mlp_adaln.gate_up.weight.any()


def test_rescaling_with_k_1_changes_nothing():
    rng = np.random.default_rng(0)
    v, x = rng.standard_normal((2, 5, 7))
    assert np.allclose(rescaled(v, x, 0.37, 1.0, 3.0), v)
    assert not np.allclose(rescaled(v, x, 0.37, 1.2, 3.0), v)
    assert np.array_equal(rescaled(v, x, 1.0, 1.2, 3.0), v)


@pytest.mark.parametrize("t", [0.05, 0.4, 0.9])
@pytest.mark.parametrize(("k", "sigma"), [(1.3, 3.0), (0.7, 0.5)])
def test_a_gaussian_is_rescaled_to_one_of_a_k_th_of_its_variance(t, k, sigma):
    """Of x = (1 - t) x0 + t noise, x0 of that variance, the velocity E[noise - x0 | x] is known."""

    def velocity(x, variance):
        total = (1 - t) ** 2 * variance + t**2
        return (t - (1 - t) * variance) / total * x

    x = np.linspace(-3, 3, 7)
    found = rescaled(velocity(x, sigma**2), x, t, k, sigma)
    assert np.allclose(found, velocity(x, sigma**2 / k))


@pytest.mark.parametrize("steps", [1, 4])
def test_euler_goes_in_equal_steps_from_almost_1_to_0(steps):
    asked = []

    def velocity(t, x):
        asked.append(t)
        return 2.0

    *_, last = euler(velocity, 5.0, EchoOptions(steps=steps, rescale_k=None))
    assert asked == pytest.approx([0.999 * (steps - i) / steps for i in range(steps)])
    assert last == pytest.approx(5.0 - 2 * 0.999)
    usual = EchoOptions(steps=1, rescale_k=1.5, rescale_sigma=2.0)
    (moved,) = euler(velocity, 5.0, usual)
    assert moved == pytest.approx(5.0 - 0.999 * rescaled(2.0, 5.0, 0.999, 1.5, 2.0))


def test_what_other_models_options_amount_to():
    own = EchoOptions(cfg_text=2.0, cfg_speaker=5.0, cfg_min_t=0.4, cfg_max_t=0.9)
    assert echo_options(None, own) == echo_options(SampleOptions(), own) == own
    asked = SampleOptions(
        steps=9, cfg_strength=3.0, cfg_from=0.2, cfg_until=0.7, temperature=0.6, method="euler"
    )
    found = echo_options(asked, own)
    assert (found.steps, found.cfg_text, found.truncation) == (9, 3.0, 0.6)
    assert found.cfg_speaker == pytest.approx(7.5)  # as much stronger as the text's
    assert (found.cfg_min_t, found.cfg_max_t) == pytest.approx((0.3, 0.8))  # 1 is noise here
    without = dataclasses.replace(own, cfg_text=0.0)
    assert echo_options(asked, without).cfg_speaker == 5.0
    assert echo_options(SampleOptions(), without).cfg_speaker == 5.0
    for known in (own, without):
        off = echo_options(SampleOptions(cfg_strength=0.0), known)
        assert (off.cfg_text, off.cfg_speaker) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "strengths"),
    [
        ({"cfg_text": 2.0, "cfg_speaker": 3.0}, (2, 3, 0)),
        ({"cfg_text": 2.0, "cfg_speaker": 0.0}, (2, 0, 0)),
        ({"cfg_text": 0.0, "cfg_speaker": 3.0}, (0, 3, 0)),
        ({"cfg_text": 2.0, "cfg_speaker": 3.0, "joint": True}, (0, 0, 2)),
        ({"cfg_text": 0.0, "cfg_speaker": 3.0, "joint": True}, (0, 0, 0)),
    ],
)
def test_guidance_is_away_from_what_is_left_out(engines, fields, strengths):
    """Each strength at a time; with `joint` the text's alone, away from neither."""
    engine, i = engines["echo"], tiny.echo_inputs()
    given = i["speaker"], i["text"]
    (got,) = np.diff(
        [i["x"], engine.sample(i["x"], *given, EchoOptions(steps=1, **fields))], axis=0
    )
    time = np.full(len(i["x"]), 0.999, np.float32)
    with_all = wanted = engine.velocity(i["x"], *given, time)
    drops = {"drop_text": True}, {"drop_audio": True}, {"drop_text": True, "drop_audio": True}
    for strength, drop in zip(strengths, drops):
        wanted = wanted + strength * (with_all - engine.velocity(i["x"], *given, time, **drop))
    close(got, -0.999 * wanted, 2e-4)


def test_speech_ends_where_latents_are_flat():
    latent = np.random.default_rng(0).standard_normal((60, 8))
    assert end_of(latent) == 60
    latent[41:] = 0.01
    assert end_of(latent) == 41


@pytest.mark.parametrize(
    ("mean", "spread", "count", "silent"),
    [
        (0.09, 0.04, 20, True),
        (-0.09, 0.04, 20, True),
        (0.0, 0.04, 19, False),
        (0.0, 0.06, 20, False),
        (0.11, 0.04, 20, False),
        (-0.11, 0.04, 20, False),
    ],
)
def test_silence_is_twenty_latents_that_hardly_deviate_from_zero(mean, spread, count, silent):
    latent = np.ones((60, 8))
    latent[20 : 20 + count] = mean + spread * np.array([1, -1] * 4)
    assert end_of(latent) == (20 if silent else 60)


def test_echo_reads_text_as_the_original_does():
    read = Tokenizer("echo", []).encode
    texts = {
        "Hello: world; it’s “fine”…": "[S1] Hello, world, it's “fine\"...",
        "[S1] Naïve — yes.\nNew line": "[S1] Naïve ,  yes. New line",
    }
    for text, wanted in texts.items():
        assert read(text).tolist() == [0, *wanted.encode()]


@pytest.mark.parametrize(
    ("kind", "wrong", "word"),
    [
        (EchoConfig, {"ff_dim": -1}, "ff_dim is -1"),
        (EchoConfig, {"dim": 10**30}, "dim is 10{30}"),
        (EchoConfig, {"depth": 10**9}, "depth is 10{9}"),
        (EchoConfig, {"latent_patch": 0}, "latent_patch is 0"),
        (EchoConfig, {"max_latents": 0}, "max_latents is 0"),
        (EchoConfig, {"speaker_scale": 0.0}, "speaker_scale is 0"),
        (CodecConfig, {"decoder_rates": [2] * 99}, "up to 8 strides"),
        (CodecConfig, {"decoder_rates": [8, 1]}, "strides of 2 to 64"),
        (CodecConfig, {"encoder_rates": [65]}, "strides of 2 to 64"),
        (CodecConfig, {"decoder_dim": 3}, "decoder_dim is 3"),
        (CodecConfig, {"sample_rate": 0}, "sample_rate is 0"),
    ],
)
def test_sizes_that_no_network_has_are_refused(kind, wrong, word):
    values = {"text_input": 8, **wrong} if kind is EchoConfig else wrong
    with pytest.raises(CheckpointError, match=word):
        from_dict(kind, values)


def test_configs_survive_json(tmp_path):
    config = ModelConfig(echo=tiny.SCALED, echo_sampling=EchoOptions(steps=9))
    config.save(tmp_path / "config.json")
    assert ModelConfig.load(tmp_path / "config.json") == config
    values = json.loads((tmp_path / "config.json").read_text())
    values["echo"]["width"] = 3
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="width"):
        ModelConfig.load(tmp_path / "config.json")
    assert dataclasses.asdict(tiny.SCALED)["target_duration"]
