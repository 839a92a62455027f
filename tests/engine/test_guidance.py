"""Guidance: the options of both backends do what they say, cost what they say, and agree."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest

from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.engine.sampling import best_scale, evaluation_times, time_grid
from nanospeech.generate import FLAGS, build_parser
from nanospeech.load import load_engine
from tests.engine.items import Items, alone

CASES = {
    "cfg-zero": SampleOptions(steps=3, guidance="cfg-zero"),
    "zero-init": SampleOptions(steps=4, zero_init=1),
    "both-midpoint": SampleOptions("midpoint", 3, guidance="cfg-zero", zero_init=2),
    "interval": SampleOptions(steps=5, cfg_from=0.01, cfg_until=0.3),
    "interval-rk4": SampleOptions("rk4", 2, cfg_until=0.2, guidance="cfg-zero"),
    "rescaled": SampleOptions(steps=3, cfg_rescale=1.0),
    "rescaled-rk4": SampleOptions("rk4", 2, cfg_rescale=0.7, guidance="cfg-zero"),
    "unguided": SampleOptions(steps=3, cfg_strength=0.0),
}
TEXTS = ("hello there, general.", "how are you?")
ITEMS = Items(TEXTS, lens=(67, 50), prompts=(25, 18), prompt_tokens=(8, 4))


@pytest.fixture
def counted(monkeypatch):
    """counted(engine) -> a list that gets the batch of every call of the network."""

    def count(engine):
        calls, network = [], engine.network

        def spy(x, *rest):
            calls.append(len(x))
            return network(x, *rest)

        monkeypatch.setattr(engine, "network", spy)
        return calls

    return count


@pytest.mark.parametrize("case", CASES)
def test_batches_equal_one_by_one(tiny_aligned, engine_of, arrays, backend, case):
    engine = engine_of(tiny_aligned, backend)
    items = ITEMS.batch(engine, arrays["mel"][0])
    together = engine.sample(**items, options=CASES[case])
    for i, n in enumerate(ITEMS.lens):
        single = engine.sample(**alone(items, i), options=CASES[case])
        assert np.abs(together[i, :n] - single[0]).max() <= 1e-3


@pytest.mark.parametrize("kind", [pytest.param("none", marks=pytest.mark.slow), "aligned"])
@pytest.mark.parametrize("case", CASES)
def test_backends_agree(make_release, engine_of, arrays, kind, case):
    folder = make_release(text_upsampling=kind)
    engines = [engine_of(folder, name) for name in ("torch", "mlx")]
    items = ITEMS.batch(engines[0], arrays["mel"][0])
    a, b = (engine.sample(**items, options=CASES[case]) for engine in engines)
    for i, n in enumerate(ITEMS.lens):
        assert np.abs(a[i, :n] - b[i, :n]).max() <= 1e-3
    plain = SampleOptions(CASES[case].method, CASES[case].steps)
    assert np.abs(a - engines[0].sample(**items, options=plain)).max() > 1e-2  # it does something


def test_cfg_zero_fits_the_new_frames_of_each_item(make_release, engine_of, arrays, backend):
    engine = engine_of(make_release(text_upsampling="average"), backend)
    items = ITEMS.batch(engine, arrays["mel"][0])
    x, cond, text = (items[k] for k in ("noise_BNM", "cond_BNM", "text_BT"))
    t, lens = np.zeros(2, np.float32), items["lens_B"]
    c = engine.velocity(x, cond, text, t, lens_B=lens)
    u = engine.velocity(x, cond, text, t, lens_B=lens, drop_audio=True, drop_text=True)
    fresh = np.arange(x.shape[1])
    fresh = (fresh >= np.array(ITEMS.prompts)[:, None]) & (fresh < lens[:, None])
    scale = best_scale(c, u, fresh[..., None])
    whole = best_scale(c, u, np.ones_like(fresh)[..., None])
    assert np.abs(scale - whole).max() > 1e-3 and np.ptp(scale) > 1e-3
    audio = engine.config.audio
    step = (x + c + 1.5 * (c - scale * u)) * audio.mel_std + audio.mel_mean
    options = SampleOptions("euler", 1, cfg_strength=1.5, guidance="cfg-zero")
    assert np.abs(engine.sample(**items, options=options) - step).max() <= 1e-3


@pytest.mark.parametrize("case", CASES)
def test_the_cost_is_as_documented(tiny_aligned, engine_of, arrays, backend, counted, case):
    engine, options = engine_of(tiny_aligned, backend), CASES[case]
    calls = counted(engine)
    engine.sample(**alone(ITEMS.batch(engine, arrays["mel"][0]), 0), options=options)
    times = evaluation_times(time_grid(options.steps), options.method, options.zero_init)
    strength = 3.0 if options.cfg_strength is None else options.cfg_strength
    inside = [options.cfg_from <= t <= options.cfg_until for t in times]
    assert calls == [2 if strength and within else 1 for within in inside]
    if case == "unguided":
        assert calls == [1, 1, 1]
    if case.startswith("interval"):
        assert {1, 2} == set(calls)


def test_an_interval_without_evaluations_is_no_guidance(tiny_aligned, engine_of, arrays, backend):
    engine = engine_of(tiny_aligned, backend)
    items = alone(ITEMS.batch(engine, arrays["mel"][0]), 0)

    def mel(**options):
        return engine.sample(**items, options=SampleOptions(steps=2, **options))

    assert np.array_equal(mel(cfg_from=1.0), mel(cfg_strength=0.0))
    assert np.array_equal(mel(cfg_from=0.0, cfg_until=1.0), mel())


def test_a_model_that_learnt_its_guidance_is_not_guided(
    tiny_aligned, engine_of, arrays, backend, counted, tmp_path
):
    folder = tmp_path / "guided"
    shutil.copytree(tiny_aligned, folder)
    config = ModelConfig.load(folder / "config.json")
    dataclasses.replace(config, cfg_strength=0.0).save(folder / "config.json")
    engine = load_engine(folder, backend, "cpu", "float32")
    items = alone(ITEMS.batch(engine, arrays["mel"][0]), 0)
    calls = counted(engine)
    mel = engine.sample(**items, options=SampleOptions(steps=2))
    assert calls == [1, 1]
    plain = engine_of(tiny_aligned, backend)
    assert np.array_equal(
        mel, plain.sample(**items, options=SampleOptions(steps=2, cfg_strength=0))
    )
    guided = SampleOptions(steps=2, cfg_strength=3.0)  # what is asked for is done
    assert np.array_equal(
        engine.sample(**items, options=guided),
        plain.sample(**items, options=SampleOptions(steps=2)),
    )


@pytest.mark.parametrize(("weight", "strength"), [(0.0, 3.0), (0.5, 0.0)])
def test_conversion_tells_whether_a_model_learnt_its_guidance(tmp_path, weight, strength):
    pytest.importorskip("torch")
    from convert import convert
    from nanospeech_torch.train.data.batch import LossConfig
    from tests.training import samples, speech_model, trainer

    model = speech_model()
    model.loss = LossConfig(pair=0.0, model_guidance=weight)
    trainer(tmp_path / "run", model).train(samples(), 2, 2, max_duration=200)
    for source in ("step_00000002.pt", "step_00000002"):
        assert convert(tmp_path / "run" / source, tmp_path / "out").cfg_strength == strength
    assert ModelConfig.load(tmp_path / "out" / "config.json").cfg_strength == strength


def test_temperature_is_the_spread_of_the_noise(tiny_aligned, engine_of, arrays, backend, tmp_path):
    folder = tmp_path / "cool"
    shutil.copytree(tiny_aligned, folder)
    config = ModelConfig.load(folder / "config.json")
    dataclasses.replace(config, temperature=0.5).save(folder / "config.json")
    engine, plain = load_engine(folder, backend, "cpu", "float32"), engine_of(tiny_aligned, backend)
    items = alone(ITEMS.batch(engine, arrays["mel"][0]), 0)

    def mel(engine, temperature=None, **changed):
        options = SampleOptions(steps=2, temperature=temperature)
        return engine.sample(**(items | changed), options=options)

    half = mel(plain, noise_BNM=items["noise_BNM"] / 2)
    for cool in (mel(engine), mel(plain, 0.5)):  # its own, and what is asked for
        assert np.array_equal(cool, half)
    assert np.array_equal(mel(engine, 1.0), mel(plain))
    assert np.abs(mel(plain) - half).max() > 1e-2


def test_flags_are_the_options():
    words = "--guidance cfg-zero --zero-init 1 --cfg-from 0.1 --cfg-until 0.9 --cfg none"
    args = build_parser().parse_args(words.split())
    options = SampleOptions(**{name: getattr(args, name) for name in FLAGS})
    assert options == SampleOptions(guidance="cfg-zero", zero_init=1, cfg_from=0.1, cfg_until=0.9)
