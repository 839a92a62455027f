"""Parity: all backends reproduce the reference arrays, and each other, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from nanospeech.config import SampleOptions
from nanospeech.engine.sampling import noise
from tests.conftest import BACKENDS

TOLERANCE = {"torch": 1e-4, "mlx": 5e-4, "onnx": 1e-4}
BETWEEN = {"torch": 0, "mlx": 1e-3, "onnx": 1e-4}  # from torch's
SAMPLES = [
    ("euler", 4, 2.0, -1.0, "sample_euler_5points_cfg2_sway-1"),
    ("midpoint", 4, 2.0, -1.0, "sample_midpoint_5points_cfg2_sway-1"),
    ("rk4", 4, 2.0, -1.0, "sample_rk4_5points_cfg2_sway-1"),
    ("euler", 7, 0.0, None, "sample_euler_8points_cfg0_swaynone"),
    ("midpoint", 7, 0.0, None, "sample_midpoint_8points_cfg0_swaynone"),
    ("rk4", 7, 0.0, None, "sample_rk4_8points_cfg0_swaynone"),
]


def close(got, wanted, tolerance):
    assert got.dtype == np.float32 and got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "drops"),
    [
        ("plain", {}),
        ("drop_audio", {"drop_audio": True}),
        ("drop_both", {"drop_audio": True, "drop_text": True}),
    ],
)
def test_velocity(tiny_release, arrays, engine_of, backend, name, drops):
    a = arrays
    v = engine_of(tiny_release, backend).velocity(
        a["x"], a["cond"], a["text_ids"], a["time"], **drops
    )
    close(v, a[f"dit_{name}"], TOLERANCE[backend])


def test_velocity_with_lengths_is_that_of_each_item_alone(tiny_release, arrays, engine_of, backend):
    a = arrays
    v = engine_of(tiny_release, backend).velocity(
        a["x"], a["cond"], a["text_ids"], a["time"], lens_B=a["lens"]
    )
    for i, n in enumerate(a["lens"]):
        close(v[i : i + 1, :n], a[f"dit_unpadded_{i}"], TOLERANCE[backend])
        assert not v[i, n:].any()


def test_duration(tiny_release, arrays, engine_of, backend):
    seconds = engine_of(tiny_release, backend).duration(arrays["mel"], arrays["text_ids"][:1])
    close(seconds, arrays["duration_seconds"], TOLERANCE[backend])


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: case[-1])
def test_sample(tiny_release, arrays, engine_of, backend, case):
    *options, key = case
    engine = engine_of(tiny_release, backend)
    start = arrays["noise"][None]
    cond = np.zeros_like(start)
    cond[:, : arrays["mel"].shape[1]] = arrays["mel"]
    text = engine.tokenizer.encode("hello there, general.")[None]
    mel = engine.sample(start, cond, text, SampleOptions(*options, schedule="uniform"))[0]
    close(mel, arrays[key], TOLERANCE[backend])


def test_every_golden_array_is_tested(arrays):
    tested = {key for *_, key in SAMPLES} | {"dit_plain", "dit_drop_audio", "dit_drop_both"}
    tested |= {"dit_unpadded_0", "dit_unpadded_1", "duration_seconds", "mel"}
    inputs = {"wave", "text_ids", "x", "cond", "time", "lens", "noise"}
    assert set(arrays) == tested | inputs


def test_vocoder(tiny_release, golden, engine_of, backend):
    with np.load(golden / "vocos.npz") as z:
        mel, audio = z["mel"].transpose(0, 2, 1), z["audio"]
    (wave,) = engine_of(tiny_release, backend).vocode(mel)
    close(wave[None], audio, TOLERANCE[backend])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text_upsampling": "average", "qk_norm": True, "heads": 2, "rope_heads": 2},
        {"text_upsampling": "aligned", "patch_size": 2},
        {"text_upsampling": "aligned", "aligner_dim": 24},
        {"text_upsampling": "aligned", "prompt_dim": 24, "patch_size": 2},
        {"text_upsampling": "none", "patch_size": 3, "text_masking": False, "heads": 2},
    ],
    ids=["plain", "average", "aligned", "speakers", "prompt", "patched"],
)
def test_backends_speak_the_same_utterance(make_release, arrays, engine_of, fields):
    folder = make_release(**fields)
    engines = [engine_of(folder, name) for name in BACKENDS]
    prompt, frames = arrays["mel"][0, :41], 131
    cond = np.zeros((1, frames, 100), np.float32)
    cond[0, : len(prompt)] = prompt
    text = engines[0].tokenizer.encode("hello there, general.")[None]
    start = noise(frames, 100, seed=3)[None]
    mels, waves = [], []
    for engine in engines:
        mel = engine.sample(start, cond, text, SampleOptions(), prompt_tokens_B=np.array([8]))
        mels.append(mel)
        waves.append(engine.vocode(mel)[0])
    assert len(waves[0]) == (frames - 1) * 256
    for name, mel, wave in zip(BACKENDS, mels, waves):
        close(mel, mels[0], BETWEEN[name])
        close(wave, waves[0], BETWEEN[name])
