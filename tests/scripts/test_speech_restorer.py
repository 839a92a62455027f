"""The recipe of the network that hears speech in noise: it learns, and NumPy speaks as PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech.audio import restorer
from nanospeech.audio import wave as audio
from nanospeech.audio.narrow import speech_mels
from scripts.recipes import speech_mels as mels
from scripts.recipes import speech_restorer as recipe

VOICES = Path(__file__).parents[2] / "nanospeech/default/voices"
FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def shards(tmp_path):
    """A table of recordings of two people."""
    lines = ["audio,text,speaker"]
    for path in (VOICES / "heart.flac", FIXTURES / "puck.flac"):
        lines += [f"{path},hello,{path.stem}"]
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


def test_the_network_that_ships_is_given_what_it_was_trained_on():
    """Units, bounds and sizes are no part of its file; with others it would clean, only worse."""
    heard, likely = np.array([[-20.0, -20], [0, -4], [30, -3]]), np.array([[-20.0, 1, 30]] * 2).T
    given = restorer.features(heard, likely, np.array([-12.0, -5]), np.full(2, -3.0))
    assert given.tolist() == [
        [-2.25, -2.25, -3, -3, 0, -0.25],
        [2, 2, 1.5, -0.5, 1, 0.25],
        [4, 4, 4, 0, 1, 0.5],
    ]
    frames, bands = np.mgrid[:60, :100]
    mean, noise = speech_mels().mean, -7 - 3.5 * np.sin(np.arange(100) / 9)
    likely = mean + 5 * np.sin(frames / 5 + bands / 7) - 2 * np.cos(bands / 3)
    found = restorer.restored(np.logaddexp(likely, noise) - 0.5, likely, noise, mean)
    wanted = [
        [1.52, -5.08, 2.84, -8.3, -4.3],
        [-2.7, -2.28, 1.6, -8.7, -3.35],
        [-7.56, 3.57, -4.09, -3.27, -5.8],
    ]
    np.testing.assert_allclose(found[5::25, 3::24], wanted, atol=0.02)


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


def test_speakers_without_an_examples_length_or_sound_are_no_speakers(tmp_path):
    """Examples were looked for among them for ever."""
    rng, lines = np.random.default_rng(0), ["audio,text,speaker"]
    for who, count, loud in (("short", 4, 0.3), ("quiet", 4, 0.003), ("enough", 3, 0.3)):
        for n in range(count):
            wave = loud * rng.uniform(-1, 1, int((2.5 if who == "enough" else 2.01) * 24_000))
            audio.write(tmp_path / f"{who}{n}.wav", wave.astype(np.float32))
            lines.append(f"{who}{n}.wav,hello,{who}")
    (table := tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    assert list(speakers := recipe.people([table], [])) == ["enough"]
    assert len(recipe.examples(speakers, 2, 0.0, 0)) == 2
    assert recipe.main([str(table), "--without", "enough", "--out", str(tmp_path / "x.npz")]) == 2


def test_mels_of_speech_are_made_without_recordings_that_cannot_be_read(shards, tmp_path, capsys):
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    shards.write_text(shards.read_text() + "broken.wav,hello,broken\n")
    out = tmp_path / "mels.npz"
    assert mels.main([str(shards), "--out", str(out)]) == 0
    found = capsys.readouterr()
    assert "2 recordings of 2 speakers" in found.out and "skipped 1: " in found.err
    with np.load(out) as f:
        assert {name: f[name].shape for name in f.files} == {
            "mean": (100,), "covariance": (100, 100), "loud": (100,), "rms": ()
        }  # fmt: skip
    only = ["--without", "heart", "puck", "--out", str(out)]
    assert mels.main([str(shards), *only]) == 2 and "broken.wav" in capsys.readouterr().err
