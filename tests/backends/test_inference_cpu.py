"""What is faster on a CPU says the same: against the plain operations, and float32."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from nanospeech import SampleOptions, Speaker, load_engine  # noqa: E402
from nanospeech_torch import inference_cpu, layers  # noqa: E402


@pytest.mark.parametrize("heads", [1, 4])
def test_complex_rotation_is_the_rotation_of_training(heads):
    x = torch.randn(2, 4, 9, 8)
    angles = layers.rotary_angles(9, 8, x)
    with torch.enable_grad():
        want = layers.rotate(x.requires_grad_(), angles, heads).detach()
    with torch.inference_mode():
        np.testing.assert_allclose(layers.rotate(x, angles, heads), want, atol=1e-6)


@pytest.mark.parametrize("items", [1, 3])
def test_one_pass_norm_and_gate_are_those_of_training(items):
    norm = layers.LayerNorm(16)
    x, change = torch.randn(3, 5, 16), torch.randn(3, 5, 16)
    scale, shift, gate = torch.randn(3, items, 1, 16)
    want = norm(x) * (1 + scale) + shift, x + gate * change
    with torch.inference_mode():
        np.testing.assert_allclose(layers.modulated(norm, x, scale, shift), want[0], atol=1e-5)
        np.testing.assert_allclose(layers.gated(x, gate, change), want[1], atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 0.0])
def test_root_mean_square_norm_is_that_of_training(scale):
    """Also where the mean square is near its eps, or nothing."""
    norm = layers.RMSNorm(64)
    x = scale * torch.randn(2, 4, 9, 64)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(64))
    want = norm(x.requires_grad_()).detach()
    with torch.inference_mode():
        np.testing.assert_allclose(norm(x), want, rtol=1e-6, atol=1e-6)
        short = norm(x.bfloat16())
        assert short.dtype == torch.bfloat16
        np.testing.assert_allclose(short.float(), want, rtol=0.02, atol=0.02)


def test_gelu_by_erf_is_within_the_rounding_of_bfloat16():
    x = torch.linspace(-8, 8, 4001)
    exact = torch.nn.functional.gelu(x, approximate="tanh")
    with torch.inference_mode():
        short = inference_cpu.GELU("tanh")(x.bfloat16()).float()
        assert torch.equal(inference_cpu.GELU("tanh")(x), exact)
    plain = torch.nn.functional.gelu(x.bfloat16(), approximate="tanh").float()
    assert (short - exact).abs().max() < 1.2 * (plain - exact).abs().max()


@pytest.mark.parametrize("tiles", [False, True], ids=["plain", "tiles"])
@pytest.mark.parametrize("length", [5, 16, 401])
@pytest.mark.parametrize("lens", [None, (0, 3)], ids=["whole", "masked"])
def test_attention_in_bfloat16_is_attention_but_for_rounding(length, lens, tiles, monkeypatch):
    """Odd lengths, more queries than fit at a time, and rows of which the end is not seen."""
    monkeypatch.setattr(inference_cpu, "has_tiles", lambda: tiles)
    written = Mock(wraps=inference_cpu.attention)
    monkeypatch.setattr(inference_cpu, "attention", written)
    q, k, v = torch.randn(3, 2, 3, length, 64).bfloat16()
    mask = None if lens is None else layers.length_mask(length - torch.tensor(lens), length)
    with torch.inference_mode():
        short = layers.attention(q, k, v, mask).float()
        exact = layers.attention(q.float(), k.float(), v.float(), mask)
    assert written.call_count == (not tiles)  # in float32 it never is
    plain = (exact.bfloat16().float() - exact).norm()
    assert 0 < (short - exact).norm() < 4 * plain
    if lens is not None:
        v[1, :, -3:] = 1e4
        with torch.inference_mode():
            assert torch.equal(layers.attention(q, k, v, mask).float(), short)


def test_short_weights_change_no_length_and_hardly_the_speech(tiny_aligned, arrays):
    cond, text = arrays["cond"], arrays["text_ids"]
    noise = np.random.default_rng(0).standard_normal(cond.shape, dtype=np.float32)
    mels, seconds = [], []
    for dtype in ("float32", "bfloat16"):
        engine = load_engine(tiny_aligned, "torch", "cpu", dtype)
        mels.append(engine.sample(noise, cond, text, SampleOptions(steps=2)))
        seconds.append(engine.duration(cond, text))
    np.testing.assert_array_equal(*seconds)
    assert 0 < np.abs(mels[0] - mels[1]).mean() < 0.05 * mels[0].std()


def watch(variable: str) -> str:
    """Code that prints a variable as it is when torch is first imported, where it ends."""
    return f"""
import os, sys
class Watch:
    def find_spec(self, name, *_):
        if name == "torch.version":
            print(os.environ.get("{variable}"), flush=True)
            os._exit(0)  # the rest of torch takes seconds
sys.meta_path.insert(0, Watch())
"""


@pytest.mark.parametrize(("variables", "kept"), [(None, "32"), ("7", "7")])
def test_kernels_of_past_lengths_are_not_all_kept(variables, kept):
    """In a process that has not imported torch before; what the user set is left."""
    code = watch("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    code += "from nanospeech import load_engine; load_engine(backend='torch')"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ONEDNN_")}
    environment |= {} if variables is None else {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": variables}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == kept


FINETUNE = "--data none --voice anna --model none --output none --prompt none --threads 1"


LOAD = "from nanospeech import load_engine; load_engine(backend='torch')"


@pytest.mark.parametrize(
    ("code", "variables", "found"),
    [
        (LOAD, {}, "3000"),
        (LOAD, {"GOMP_SPINCOUNT": "7"}, "7"),
        (LOAD, {"OMP_WAIT_POLICY": "active"}, "None"),
        ("import nanospeech.nanospeech_torch", {}, "3000"),
        ("import nanospeech.trainer_torch", {}, "3000"),
        ("from nanospeech_torch.train.__main__ import main; main(['--explain'])", {}, "3000"),
        (
            f"from nanospeech_torch.finetune.__main__ import main; main({FINETUNE.split()})",
            {},
            "3000",
        ),
    ],
)
def test_openmp_variables_are_set_before_torch_loads(code, variables, found):
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", watch("GOMP_SPINCOUNT") + code],
        capture_output=True, text=True, env=kept | variables,
    )  # fmt: skip
    assert done.stdout.splitlines()[:1] == [found], done.stderr


def test_loading_and_converting_do_not_import_the_compiler():
    code = (
        "import sys; from nanospeech import load_engine; c = load_engine(backend='torch').config\n"
        "from convert.model import network_shapes; from convert.vocoder import vocoder_shapes\n"
        "from convert.codec import codec_shapes; from nanospeech.config import CodecConfig\n"
        "from nanospeech_torch.train.scale.estimate import count_weights as count\n"
        "codec_shapes(CodecConfig()); network_shapes(c.dit); vocoder_shapes(c.vocoder)\n"
        "print(count(c.dit)['total'] > 1e6, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True False"


class Wide(TorchDispatchMode):
    """Notes operations that make 64-bit floats."""

    def __init__(self):
        super().__init__()
        self.count, self.found = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.count += 1
        if any(t.dtype in (torch.float64, torch.complex128) for t in tensors):
            self.found.append(str(func))
        return out


def test_elsewhere_than_on_a_cpu_nothing_has_64_bits(tiny_release, tiny_aligned, monkeypatch):
    """Metal has no such floats. What only a CPU does is left out here, as it would be there."""
    monkeypatch.setattr(inference_cpu, "speaks", lambda x: False)
    for folder in (tiny_release, tiny_aligned):
        with Wide() as wide:
            engine = load_engine(folder, "torch", "cpu", "float32")
            Speaker(engine, options=SampleOptions(steps=2), seed=0).speak("Hello there.")
        assert wide.count > 500 and not wide.found
