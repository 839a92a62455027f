"""The recipe of the network that hears speech in noise: it learns, and NumPy speaks as PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech.audio import restorer
from nanospeech.audio import wave as audio
from nanospeech.audio.narrow import speech_mels
from scripts.recipes import speech_restorer as recipe

VOICES = Path(__file__).parents[2] / "nanospeech/default/voices"


@pytest.fixture
def shards(tmp_path):
    """A table of recordings of two people."""
    lines = ["audio,text,speaker"]
    for name in ("heart", "theo"):
        lines += [f"{VOICES / name}.flac,hello,{name}"]
    (table := tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    return table


def test_what_it_learns_is_what_numpy_computes(shards, tmp_path, capsys):
    out = tmp_path / "restorer.npz"
    few = ["--examples", "6", "--minutes", "0.02", "--out", str(out)]
    assert recipe.main([str(shards), *few]) == 0
    assert "6 examples of 2 speakers" in capsys.readouterr().out
    ships = restorer.restorer()
    with np.load(out) as f:
        assert {name: f[name].shape for name in f.files} == {n: w.shape for n, w in ships.items()}
        assert np.abs(f["out.weight"]).max() > 0  # it begins with none


def test_numpy_computes_what_pytorch_learns():
    torch.manual_seed(0)
    net, rng, mean = recipe.Restorer(100), np.random.default_rng(0), speech_mels().mean
    torch.nn.init.normal_(net.out.weight, std=0.2)
    heard, noise = rng.normal(-3, 1, (50, 100)), rng.normal(-6, 1, 100)
    likely = heard - rng.random((50, 100))
    with torch.no_grad():
        x = torch.tensor(restorer.features(heard, likely, noise, mean)).T[None]
        wanted = net(x)[0].T.numpy() * restorer.SCALE + mean
    weights = {name: w.astype(np.float32) for name, w in net.arrays().items()}
    found = restorer.restored(heard, likely, noise, mean, weights)
    np.testing.assert_allclose(found, np.minimum(wanted, heard), atol=0.01)  # of 16 bits
    assert np.abs(found - likely).mean() > 0.3


def test_an_example_of_a_narrow_band_asks_for_what_is_gone_alone():
    rng = np.random.default_rng(0)
    wave = np.tile(audio.read(VOICES / "heart.flac"), 3)[: recipe.SAMPLES]
    found = [recipe.in_narrow_band(wave, rng) for _ in range(20)]
    examples = [e for e in found if e is not None]
    assert len(examples) > 5
    for e in examples:
        near, above = e.given[:, 100:200], e.given[:, 200:]
        assert e.counts.any() and not e.counts.all()
        assert (near[:, e.counts] == 0).all() and (above[:, e.counts] == -1).all()
        assert (above[:, ~e.counts] == 1).all()
        kept = e.given[:, :100][:, ~e.counts]  # what is left is as it is, but for filters' edges
        assert np.median(np.abs(kept - e.wanted[:, ~e.counts])) < 0.02
