"""ONNX Runtime's networks are PyTorch's, with every option and for items of any lengths.

Graphs have no masks: items of one length run together, others apart. PyTorch masks what is padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from nanospeech.config import DiTConfig, DurationConfig  # noqa: E402
from nanospeech_onnx.networks import Duration, Speech  # noqa: E402
from nanospeech_onnx.session import Place  # noqa: E402
from nanospeech_torch.dit import DiT  # noqa: E402
from nanospeech_torch.duration import DurationHead, DurationTransformer  # noqa: E402

WIDTHS = {"dim": 32, "depth": 1, "heads": 2, "dim_head": 16, "text_dim": 8, "conv_layers": 1}
SIZES: dict[str, Any] = {**WIDTHS, "n_mels": 5, "text_num_embeds": 20}
FRAMES = 14
LENS = np.array([14, 9, 14, 4, 0])
TEXT = np.full((5, 7), -1)
for row, count in enumerate((7, 3, 7, 1, 0)):  # id 0 is a token like others
    TEXT[row, :count] = np.arange(count) * 5 % 20


def drawn(module: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A module with random weights everywhere, also where it begins at zero, and these weights."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.15, generator=generator)
    module.eval().requires_grad_(False)
    return module, {name: t.numpy() for name, t in module.state_dict().items()}


def both(**fields: Any) -> tuple[Any, Speech]:
    """PyTorch's speech model and that of graphs, of the same weights."""
    config = DiTConfig(**{**SIZES, **fields})
    net, weights = drawn(DiT(config))
    named = {f"transformer.{name}": w for name, w in weights.items()}
    return net, Speech(config, named, Path("model.safetensors"), Place(), False)


def tensors(*arrays: Any) -> list[Any]:
    return [None if a is None else torch.from_numpy(np.asarray(a)) for a in arrays]


def close(got: np.ndarray, wanted: Any) -> None:
    assert got.dtype == np.float32 and got.shape == tuple(wanted.shape)
    assert np.abs(got - wanted.numpy()).max() <= 1e-4 * max(1, wanted.abs().max())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"patch_size": 3, "qk_norm": True, "rope_heads": 2},
        {"max_strength": 3.0, "output_biases": True},
        {"prompt_dim": 6, "patch_size": 2, "adaln_zero": False},
    ],
    ids=["plain", "patches", "student", "prompt"],
)
def test_velocities_of_a_ragged_batch(fields):
    net, speech = both(**fields)
    rng = np.random.default_rng(0)
    x, cond = rng.standard_normal((2, 5, FRAMES, 5)).astype("f")
    patches = -(-FRAMES // net.config.patch_size)
    text = rng.standard_normal((5, patches, 8)).astype("f")
    times = rng.uniform(size=(5, 3) if net.config.max_strength else 5).astype("f")
    for time in (times, times[:1]):  # one of each item, or one for all
        for lens in (LENS, None):
            wanted = net(*tensors(x, cond, text, time, lens))
            close(speech(x, cond, text, time, lens), wanted)


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("by_places", [False, True])
def test_states_of_texts_over_the_frames_of_each_item(masking, everywhere, by_places):
    options = {"grn_all_frames": everywhere, "null_text_places": by_places}
    net, speech = both(text_masking=masking, text_positions=6, **options)
    none = np.full_like(TEXT, -1)
    for frames in (FRAMES, 5):  # the last places of a text are cut
        mask = np.arange(frames) < LENS[:, None]
        for text, places in ((TEXT, None), (none, None), (none, TEXT)):
            given, valid, where = tensors(text, mask, places)
            wanted = net.embed_text(given, frames, valid, where)
            wanted = wanted * valid[..., None]  # what is padding has no state that anyone reads
            close(speech.embed_text(text, frames, mask, places), wanted)


@pytest.mark.parametrize("kind", ["average", "aligned", "speakers"])
def test_states_means_and_durations_of_tokens(kind):
    upsampling = "average" if kind == "average" else "aligned"
    net, speech = both(text_upsampling=upsampling, aligner_dim=6 * (kind == "speakers"))
    text, speaker = tensors(TEXT, np.random.default_rng(0).standard_normal((5, 5)).astype("f"))
    states = net.embed_tokens(text)
    close(speech.embed_tokens(TEXT), states)
    close(speech.embed_filler(TEXT), net.embed_filler(text))
    assert (speech.aligner is None) == (kind == "average")
    if speech.aligner:
        close(speech.token_means(TEXT, speaker.numpy()), net.token_means(text, speaker))
        wanted = net.aligner.log_durations(states, speaker)
        close(speech.log_durations(states.numpy(), speaker.numpy()), wanted)


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("prompt", ["frames", "statistics"])
@pytest.mark.parametrize("pooling", ["mean", "tokens"])
def test_durations_of_a_ragged_batch(pooling, prompt, masking):
    """Texts are longer than prompts, or shorter; one has no prompt, one a single token.

    All prompts may be of a frame at most, too.
    """
    fields = {"pooling": pooling, "prompt": prompt, "text_masking": masking}
    config = DurationConfig(**{**SIZES, **fields})
    net, weights = drawn(DurationHead(DurationTransformer(config)))
    duration = Duration(config, weights, Path("duration.safetensors"), Place())
    mel = np.random.default_rng(0).standard_normal((4, 9, 5)).astype("f")
    text, lens = TEXT[:4], np.array([9, 5, 2, 0])
    assert np.any((text >= 0).sum(1) > lens) and np.any((text >= 0).sum(1) < lens)
    mel[np.arange(9) >= lens[:, None]] = 0
    for given in ((mel, text, lens), (mel[:, :1], text, np.minimum(lens, 1))):
        if pooling == "tokens":
            close(duration.token_seconds(*given), net.token_seconds(*tensors(*given)))
        else:
            close(duration(*given), net(*tensors(*given)))
