"""Engine: its laws in both backends, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nanospeech.config import SampleOptions
from nanospeech.engine.sampling import noise
from nanospeech.engine.upsampling import (
    average_durations,
    best_path,
    patch_means,
    searched_durations,
)
from nanospeech.errors import BackendError, CheckpointError, InputError
from nanospeech.load import find_backend, load_engine, pick_backend
from tests.engine.items import Items, alone

ROOT = Path(__file__).resolve().parents[2]
KINDS = [(kind, p) for kind in ("none", "average", "aligned") for p in (1, 2)]
OPTIONS = SampleOptions(method="midpoint", steps=2)
TEXTS = ("hello there, general.", "how are you?", "no.")
ITEMS = Items(TEXTS, lens=(67, 50, 39), prompts=(21, 0, 14), prompt_tokens=(8, 0, 1))


@pytest.mark.parametrize(("kind", "p"), KINDS)
def test_batches_equal_one_by_one(make_release, engine_of, arrays, backend, kind, p):
    masking = kind != "none" or p == 2
    folder = make_release(text_upsampling=kind, patch_size=p, text_masking=masking)
    engine = engine_of(folder, backend)
    items = ITEMS.batch(engine, arrays["mel"][0])
    together = engine.sample(**items, options=OPTIONS)
    waves = engine.vocode(together, lens_B=items["lens_B"])
    for i, n in enumerate(ITEMS.lens):
        single = engine.sample(**alone(items, i), options=OPTIONS)
        assert np.abs(together[i, :n] - single[0]).max() <= 1e-3
        (wave,) = engine.vocode(single)
        assert waves[i].shape == wave.shape == ((n - 1) * 256,)
        assert np.abs(waves[i] - wave).max() <= 1e-3


@pytest.mark.parametrize(("kind", "p"), KINDS)
def test_velocities_of_batches_equal_one_by_one(make_release, engine_of, arrays, kind, p):
    engine = engine_of(make_release(text_upsampling=kind, patch_size=p), "torch")
    items = ITEMS.batch(engine, arrays["mel"][0])
    time = np.array([0.0, 0.4, 1.0], np.float32)
    v = engine.velocity(
        items["noise_BNM"], items["cond_BNM"], items["text_BT"], time, lens_B=items["lens_B"]
    )
    for i, n in enumerate(ITEMS.lens):
        a = alone(items, i)
        single = engine.velocity(a["noise_BNM"], a["cond_BNM"], a["text_BT"], time[i : i + 1])
        assert np.abs(v[i, :n] - single[0]).max() <= 1e-3
        assert not v[i, n:].any()


def test_a_model_speaks_on_where_its_folder_is_replaced(tiny_release, tmp_path, arrays, backend):
    engine = load_engine(shutil.copytree(tiny_release, tmp_path / "it"), backend, "cpu")
    items = ITEMS.batch(engine, arrays["mel"][0])
    mel, text, lens = items["cond_BNM"][:1, :41], items["text_BT"][:1], np.array([41])

    def spoken() -> list[np.ndarray]:
        return [engine.duration(mel, text, lens_B=lens), *engine.vocode(mel)]

    before = spoken()
    shutil.rmtree(tmp_path / "it")
    assert all(map(np.array_equal, before, spoken()))


def test_durations_of_batches_equal_one_by_one(tiny_release, engine_of, arrays, backend):
    engine = engine_of(tiny_release, backend)
    items = ITEMS.batch(engine, arrays["mel"][0])
    cond, text, prompts = items["cond_BNM"], items["text_BT"], np.array(ITEMS.prompts)
    together = engine.duration(cond, text, lens_B=prompts)
    for i, n in enumerate(ITEMS.prompts):
        ids = text[i][text[i] >= 0][None]
        assert abs(engine.duration(cond[i : i + 1, :n], ids)[0] - together[i]) <= 1e-3


@pytest.mark.parametrize("kind", ["none", "average", "aligned"])
def test_dropped_conditions_have_no_influence(make_release, engine_of, arrays, backend, kind):
    engine = engine_of(make_release(text_upsampling=kind), backend)
    a = ITEMS.batch(engine, arrays["mel"][0])
    x, cond, text, time = a["noise_BNM"], a["cond_BNM"], a["text_BT"], np.full(3, 0.3, np.float32)
    other = np.where(text >= 0, (text + 1) % 33, -1)

    def v(cond, text, **drops):
        return engine.velocity(x, cond, text, time, **drops)

    both = {"drop_audio": True, "drop_text": True}
    assert np.array_equal(v(cond, text, **both), v(cond * 0.5, other, **both))
    assert np.array_equal(v(cond, text, drop_text=True), v(cond, other, drop_text=True))
    if kind != "aligned":  # there the prompt's speaker shapes the durations
        assert np.array_equal(v(cond, text, drop_audio=True), v(cond * 0, text))
    # and what is not dropped has some
    assert np.abs(v(cond, text) - v(cond, other)).max() > 1e-3
    assert np.abs(v(cond, text) - v(cond * 0.5, text)).max() > 1e-3


def test_guidance_is_the_sum_of_two_velocities(make_release, engine_of, arrays, backend):
    engine = engine_of(make_release(text_upsampling="average"), backend)
    a = alone(ITEMS.batch(engine, arrays["mel"][0]), 0)
    x, cond, text = a["noise_BNM"], a["cond_BNM"], a["text_BT"]
    options = SampleOptions("euler", 1, cfg_strength=1.5)
    t = np.zeros(1, np.float32)
    c = engine.velocity(x, cond, text, t)
    u = engine.velocity(x, cond, text, t, drop_audio=True, drop_text=True)
    audio = engine.config.audio
    step = (x + c + 1.5 * (c - u)) * audio.mel_std + audio.mel_mean
    assert np.abs(engine.sample(x, cond, text, options) - step).max() <= 1e-3


def test_on_step_is_called_and_may_raise(tiny_release, engine_of, arrays, backend):
    engine = engine_of(tiny_release, backend)
    a = alone(ITEMS.batch(engine, arrays["mel"][0]), 2)
    calls = []
    engine.sample(**a, options=OPTIONS, on_step=lambda done, steps: calls.append((done, steps)))
    assert calls == [(1, 2), (2, 2)]

    def stop(done, steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.sample(**a, options=OPTIONS, on_step=stop)


def test_arrays_may_be_read_only(tiny_release, engine_of, arrays, backend, recwarn, request):
    engine = engine_of(tiny_release, backend)
    mel, ids = arrays["mel"].copy(), np.array([[1, 2, 3]])
    wanted = engine.sample(mel, mel, ids, OPTIONS)
    for array in (mel, ids):
        array.flags.writeable = False  # as of a mapped file
    if backend == "torch":
        torch = pytest.importorskip("torch")
        torch.set_warn_always(True)  # else once in a process
        request.addfinalizer(lambda: torch.set_warn_always(False))
    assert np.array_equal(engine.sample(mel, mel, ids, OPTIONS), wanted)
    assert len(engine.vocode(mel)) == 1 and not [w for w in recwarn if "writable" in str(w.message)]


def test_narrow_networks_are_computed_in_float32(tiny_release, make_release, monkeypatch):
    engine_module = pytest.importorskip("nanospeech_torch.engine", reason="no torch here")
    monkeypatch.setattr(engine_module, "has_bfloat16", lambda: True)
    assert load_engine(tiny_release, "torch", "cpu").dtype == "float32"
    wide = make_release(dim=engine_module.WIDE, depth=1, heads=2)
    assert load_engine(wide, "torch", "cpu").dtype == "bfloat16"
    monkeypatch.setattr(engine_module, "has_bfloat16", lambda: False)
    assert load_engine(wide, "torch", "cpu").dtype == "float32"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_weights_come_near(tiny_release, engine_of, arrays, backend, dtype):
    if dtype not in find_backend(backend).dtypes:
        with pytest.raises(InputError, match=f"{dtype!r} not known; onnx has float32, int8"):
            load_engine(tiny_release, backend, dtype=dtype)
        return
    a = arrays
    args = (a["x"], a["cond"], a["text_ids"], a["time"])
    truth = engine_of(tiny_release, backend).velocity(*args, lens_B=a["lens"])
    v = load_engine(tiny_release, backend, "cpu", dtype).velocity(*args, lens_B=a["lens"])
    assert v.dtype == np.float32
    assert 0 < np.abs(v - truth).max() < 0.1


# Aligned models.


def test_no_mel_is_no_wave(tiny_release, engine_of, backend):
    engine = engine_of(tiny_release, backend)
    with pytest.raises(InputError, match="no frames"):
        engine.vocode(np.zeros((1, 0, engine.config.audio.n_mels), np.float32))


def test_duration_is_the_prompt_and_the_new_tokens(tiny_aligned, engine_of, arrays, backend):
    engine = engine_of(tiny_aligned, backend)
    assert engine.has_duration
    mel = arrays["mel"][:, :41]
    text = engine.tokenizer.encode("hello there, general.")[None]
    rate = engine.config.audio.frame_rate

    def seconds(known, cond=mel, ids=text):
        return float(engine.duration(cond, ids, prompt_tokens_B=np.array([known]))[0])

    assert seconds(21) == pytest.approx(41 / rate)
    lengths = [seconds(k) for k in range(1, 22)]
    assert all(a > b for a, b in pairwise(lengths))
    # without a prompt the durations of all tokens, two frames each at the least
    silent = np.zeros((1, 0, 100), np.float32)
    assert seconds(0, silent) >= 21 * 2 / rate
    assert engine.duration(silent, text)[0] == pytest.approx(seconds(0, silent))


@pytest.mark.parametrize("frames", [42, 43, 94])
def test_align_gives_every_frame_to_a_token(tiny_aligned, engine_of, arrays, backend, frames):
    engine = engine_of(tiny_aligned, backend)
    text = engine.tokenizer.encode("hello there, general.")
    durations = engine.align(arrays["mel"][0, :frames], text)
    assert durations.shape == text.shape and durations.dtype == np.int64
    assert durations.sum() == frames and durations.min() >= 1


def test_backends_align_alike(tiny_aligned, engine_of, arrays):
    engines = [engine_of(tiny_aligned, name) for name in ("torch", "mlx", "onnx")]
    text = engines[0].tokenizer.encode("hello there, general.")
    a, b, c = (e.align(arrays["mel"][0], text) for e in engines)
    assert np.array_equal(a, b) and np.array_equal(a, c)


def test_the_search_finds_the_true_durations():
    rng = np.random.default_rng(0)
    means = rng.standard_normal((9, 20)).astype(np.float32) * 3
    truth = rng.integers(1, 7, 9)
    for p in (1, 2):
        mel = np.repeat(means, truth * p, axis=0) + 0.1 * rng.standard_normal((p * truth.sum(), 20))
        assert np.array_equal(searched_durations(mel, means, p), truth)


@pytest.mark.parametrize("how", ["noise", "narrow", "both"])
def test_the_search_hears_through_noise_and_narrow_bands(how):
    """Half of the bands or more say nothing, at a level of their own; the others are enough."""
    rng = np.random.default_rng(0)
    off, plain = [], []
    for _ in range(20):
        means = rng.standard_normal((12, 20)).astype(np.float32)
        truth = rng.integers(2, 9, 12)
        mel = np.repeat(means, truth, axis=0) + 0.5 * rng.standard_normal((truth.sum(), 20))
        if how != "narrow":
            mel = np.logaddexp(2 * mel, 2 * 0.5) / 2
        if how != "noise":
            mel[:, 8:] = -5
        found = searched_durations(mel.astype(np.float32), means, 1)
        off.append(np.abs(np.cumsum(found) - np.cumsum(truth)).mean())
        plain.append(np.abs(np.cumsum(best_path(mel, means)) - np.cumsum(truth)).mean())
    assert np.mean(off) < 0.8 < np.mean(plain)


@pytest.mark.parametrize("hidden", [False, True])
def test_where_bands_are_hidden_offset_and_gain_are_fitted_twice_and_else_not_at_all(hidden):
    rng = np.random.default_rng(1)
    for _ in range(20):
        means, truth = rng.standard_normal((12, 20)), rng.integers(2, 9, 12)
        mel = np.repeat(means, truth, axis=0) + 0.9 * rng.standard_normal((truth.sum(), 20))
        if hidden:
            mel = np.logaddexp(2 * mel, 2 * 1.0) / 2
        wanted = best_path(mel, means)
        for _ in range(2 if hidden else 0):
            spoken = np.repeat(means, wanted, axis=0)
            gains = [np.polyfit(x, y, 1)[0] for x, y in zip(spoken.T, mel.T)]
            near = (means - spoken.mean(0)) * np.clip(gains, 0, 1)
            wanted = best_path(mel - mel.mean(0), near)
        assert np.array_equal(searched_durations(mel, means, 1), wanted)


def test_a_prompt_too_short_for_its_text_still_speaks(tiny_aligned, engine_of, arrays, backend):
    engine = engine_of(tiny_aligned, backend)
    text = engine.tokenizer.encode("hello there, general. how are you?")[None]
    cond = np.zeros((1, 90, 100), np.float32)
    cond[:, :10] = arrays["mel"][:, :10]  # 5 patches for 21 tokens
    start = noise(90, 100, 0)[None]
    mel = engine.sample(start, cond, text, OPTIONS, prompt_tokens_B=np.array([21]))
    assert np.isfinite(mel).all()


def test_average_durations_give_the_remainder_to_the_last():
    got = average_durations(np.array([3, 2]), np.array([11, 4]), 4, 1)
    assert got.tolist() == [[3, 4, 4, 0], [2, 2, 0, 0]]


def test_patch_means_of_an_odd_end():
    assert patch_means(np.array([[1.0], [3.0], [5.0]]), 2).tolist() == [[2.0], [5.0]]


# What is refused.


@pytest.mark.parametrize("kind", ["average", "aligned"])
def test_text_that_does_not_fit(make_release, engine_of, backend, kind):
    engine = engine_of(make_release(text_upsampling=kind, patch_size=2), backend)
    text = np.arange(20)[None]
    x = np.zeros((1, 38, 100), np.float32)
    with pytest.raises(InputError, match="20 tokens do not fit in 38 frames"):
        engine.sample(x, x, text, OPTIONS)
    with pytest.raises(InputError, match="without tokens"):
        engine.sample(x, x, text[:, :0], OPTIONS)
    if kind == "aligned":
        with pytest.raises(InputError, match="without tokens"):
            engine.duration(x, text[:, :0])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"noise_BNM": np.zeros((1, 60, 80), np.float32)}, "noise_BNM has shape"),
        ({"noise_BNM": np.full((1, 60, 100), np.nan)}, "NaN"),
        ({"noise_BNM": "noise"}, "array of numbers"),
        ({"cond_BNM": np.zeros((1, 59, 100), np.float32)}, "cond_BNM has shape"),
        ({"text_BT": np.array([1, 2])}, "text_BT has shape"),
        ({"text_BT": [[1], [1, 2]]}, "pad them with -1"),
        ({"text_BT": np.array([[1, 33]])}, "0 to 32"),
        ({"text_BT": np.array([[1, -2]])}, "ids -2"),
        ({"text_BT": np.array([[1, -1, 2]])}, "before the end"),
        ({"text_BT": np.array([[1.0, 2.0]])}, "integers"),
        ({"lens_B": np.array([61])}, "1 to 60"),
        ({"lens_B": np.array([0])}, "1 to 60"),
        ({"lens_B": np.array([5, 5])}, "1 integers"),
        ({"prompt_frames_B": np.array([61])}, "0 to 60"),
        ({"prompt_tokens_B": np.array([3])}, r"prompt_tokens_B is \[3\]"),
        ({"lens_B": [[5], [5, 6]]}, "lens_B should be 1 integers"),
        ({"prompt_tokens_B": [[1], [1, 2]]}, "prompt_tokens_B should be 1 integers"),
        ({"options": {"steps": 2}}, "options should be SampleOptions"),
    ],
)
def test_arguments_that_do_not_fit(tiny_release, engine_of, backend, change, word):
    engine = engine_of(tiny_release, backend)
    zeros = np.zeros((1, 60, 100), np.float32)
    good = {"noise_BNM": zeros, "cond_BNM": zeros, "text_BT": np.array([[1, 2]])}
    with pytest.raises(InputError, match=word):
        engine.sample(**{**good, "options": OPTIONS, **change})


@pytest.mark.parametrize("time", [0.5, [0.5, 0.5], [[0.5]], [1.5], [np.nan], ["half"]])
def test_times_that_do_not_fit(tiny_release, engine_of, time):
    zeros = np.zeros((1, 60, 100), np.float32)
    with pytest.raises(InputError, match="time_B"):
        engine_of(tiny_release, "torch").velocity(zeros, zeros, np.array([[1]]), np.array(time))


@pytest.mark.parametrize(
    ("mel", "text", "error"),
    [
        (np.zeros((1, 60, 100)), [1, 2], r"mel_NM has shape \(1, 60, 100\), .* \(frames, 100\)"),
        (np.zeros((60, 80)), [1, 2], r"mel_NM has shape \(60, 80\), .* \(frames, 100\)"),
        ([[1.0], [1.0, 2.0]], [1, 2], "mel_NM should be an array of numbers"),
        (np.zeros((60, 100)), [[1, 2]], r"text_T has shape \(1, 2\), should be \(tokens,\)"),
        (np.zeros((60, 100)), [[1], [1, 2]], "text_T should be the ids of one text"),
        (np.zeros((60, 100)), [1.0, 2.0], "text_T should hold integers"),
        (np.zeros((60, 100)), [1, -1], "text_T should hold at least one id and no padding"),
    ],
)
def test_recordings_and_words_that_do_not_fit(tiny_aligned, engine_of, mel, text, error):
    with pytest.raises(InputError, match=error):
        engine_of(tiny_aligned, "onnx").align(mel, text)


def test_only_aligned_models_align(tiny_release, tiny_aligned, engine_of, arrays, backend):
    with pytest.raises(CheckpointError, match="cannot align"):
        engine_of(tiny_release, backend).align(arrays["mel"][0], np.array([1, 2]))
    with pytest.raises(InputError, match="30 tokens cannot be found in 58 frames"):
        engine_of(tiny_aligned, backend).align(arrays["mel"][0, :58], np.arange(30))


def test_unknown_backends_devices_and_types(tiny_release, backend):
    with pytest.raises(InputError, match="auto, torch, mlx, onnx"):
        load_engine(tiny_release, "jax")
    with pytest.raises(InputError, match=f"{backend} has float32, "):
        load_engine(tiny_release, backend, dtype="int4")
    with pytest.raises(InputError, match="device 'toaster' not known"):
        load_engine(tiny_release, backend, device="toaster")
    engine = load_engine(tiny_release, backend, "cpu", "float32")
    assert (engine.backend, engine.device, engine.folder) == (backend, "cpu", tiny_release)


def test_a_device_that_is_not_there(tiny_release):
    torch = pytest.importorskip("torch")
    with pytest.raises(BackendError, match="finds here: cpu"):
        load_engine(tiny_release, "torch", device=f"cuda:{torch.cuda.device_count()}")


def test_auto_picks_an_installed_backend():
    assert pick_backend("auto") in ("torch", "mlx", "onnx")


def test_import_loads_no_backend():
    code = (
        "import sys, nanospeech, nanospeech.load, nanospeech.release.folder\n"
        "import nanospeech.engine.sampling\n"
        "from nanospeech import load_engine, SampleOptions\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'mlx', 'onnxruntime'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr
