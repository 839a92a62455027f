"""Restorer: log mels of speech in noise made clean, by a small convolutional network in NumPy.

noise.py finds the most probable speech frame by frame, by bands that go together. This corrects it
by what is heard around a frame, and in the whole recording. Its weights ship with the package
(speech_restorer.npz, made by scripts/recipes/speech_restorer.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

DILATIONS = 1, 2, 4, 1, 2  # of the residual convolutions
POOLED = 1  # after this one, what the whole recording is like is added
SCALE = 2.0  # nats that the network's numbers are in
FURTHEST = 4.0  # of those numbers, in its input
ABOVE = -1.0, 4.0  # nats that bands are heard above the noise, bounds of its input
FLOOR = -7.5  # log mel below which it takes speech for silent
QUIETEST = -9.0  # log mel that it hears; below it CLAMP is near, which knows no level


@cache
def restorer() -> dict[str, np.ndarray]:
    """The weights that ship, float32 by name; kernels are (K, in, out)."""
    with np.load(Path(__file__).with_name("speech_restorer.npz")) as f:
        return {name: f[name].astype(np.float32) for name in f.files}


def features(
    heard: np.ndarray, likely: np.ndarray, noise: np.ndarray, mean: np.ndarray
) -> np.ndarray:
    """What the network is given: float32 (N, 3 M).

    Args:
        heard: (N, M), log mels with noise, at the level of SpeechMels.
        likely: (N, M), the most probable speech in them.
        noise: (M,), the log mels of the noise.
        mean: (M,), of speech.
    """
    heard, noise = np.maximum(heard, QUIETEST), np.maximum(noise, QUIETEST)
    given = [(np.maximum(likely, FLOOR) - mean) / SCALE, (heard - mean) / SCALE]
    above = np.clip(heard - noise, *ABOVE) / ABOVE[1]
    bounded = [np.clip(part, -FURTHEST, FURTHEST) for part in given]
    return np.concatenate([*bounded, above], axis=1).astype(np.float32)


def restored(
    heard: np.ndarray,
    likely: np.ndarray,
    noise: np.ndarray,
    mean: np.ndarray,
    net: Mapping[str, np.ndarray] | None = None,
) -> np.ndarray:
    """The log mels of the speech that is heard in noise.

    Args:
        heard, likely, noise, mean: see features.
        net: weights; those that ship, if not given.

    Returns:
        float32 (N, M), nowhere above what is heard.
    """
    net, x = net or restorer(), features(heard, likely, noise, mean)
    hidden = convolved(x, net["in.weight"], 1) + net["in.bias"]
    for i, dilation in enumerate(DILATIONS):
        found = convolved(gelu(hidden), net[f"{i}.weight"], dilation)
        hidden = hidden + found + net[f"{i}.bias"]
        if i == POOLED:
            bent = gelu(hidden)
            whole = np.concatenate([bent.mean(0), bent.std(0)])
            hidden = hidden + whole @ net["whole.weight"] + net["whole.bias"]
    change = gelu(hidden) @ net["out.weight"] + net["out.bias"]
    bands = x[:, : heard.shape[1]]
    return np.minimum((bands + change) * SCALE + mean.astype(np.float32), heard)


def convolved(x: np.ndarray, kernel: np.ndarray, dilation: int) -> np.ndarray:
    """A convolution over time that keeps the length: x (N, in), kernel (K, in, out), K odd."""
    reach = len(kernel) // 2 * dilation
    padded = np.pad(x, ((reach, reach), (0, 0)))
    out = padded[: len(x)] @ kernel[0]
    for k, weights in enumerate(kernel[1:], 1):
        out += padded[k * dilation : k * dilation + len(x)] @ weights
    return out


def gelu(x: np.ndarray) -> np.ndarray:
    """GELU by tanh (Hendrycks and Gimpel, arXiv 1606.08415)."""
    cubic = x * (1 + 0.044715 * x * x)  # x**3 takes ten times as long
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * cubic))
