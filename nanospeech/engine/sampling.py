"""Sampling: time grids, step rules, guidance and noise. Knows no tensors, only their arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

# Evaluation points in 32nds (EPSS, arXiv 2505.19931): small steps early, where the path bends.
# Those of OWN_EPSS are this project's: points of the paper's next larger grid. 32 is all of it.
OWN_EPSS = (3, 4, 8)
EPSS = {
    3: (0, 8, 16, 32),
    4: (0, 4, 8, 16, 32),
    5: (0, 2, 4, 8, 16, 32),
    6: (0, 2, 4, 6, 8, 16, 32),
    7: (0, 2, 4, 6, 8, 16, 24, 32),
    8: (0, 2, 4, 6, 8, 12, 16, 24, 32),
    10: (0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32),
    12: (0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32),
    16: (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32),
    32: tuple(range(33)),
}


def time_grid(steps: int, schedule: str = "epss", sway: float | None = -1.0) -> list[float]:
    """The times at which the solver stops, from 0 (noise) to 1 (speech).

    Args:
        steps: solver intervals; the grid has steps + 1 points.
        schedule: "uniform", or "epss", which is uniform too for counts that EPSS does not list.
        sway: sway sampling coefficient (F5-TTS, eq. 5), or None.
    """
    if schedule == "epss" and steps in EPSS:
        grid = [k / 32 for k in EPSS[steps]]
    else:
        grid = [i / steps for i in range(steps + 1)]
    if sway is not None:
        # F5-TTS, section 3.3: sway < 0 spends more evaluations near t = 0
        grid = [t + sway * (math.cos(math.pi / 2 * t) - 1 + t) for t in grid]
    grid[0], grid[-1] = 0.0, 1.0  # rounding must not leave the ends
    return grid


def euler(f: Callable, x: Any, t0: float, t1: float) -> Any:
    """First order, one evaluation."""
    return x + (t1 - t0) * f(t0, x)


def midpoint(f: Callable, x: Any, t0: float, t1: float) -> Any:
    """Second order, two evaluations."""
    h = t1 - t0
    return x + h * f(t0 + h / 2, x + (h / 2) * f(t0, x))


def rk4(f: Callable, x: Any, t0: float, t1: float) -> Any:
    """Fourth order, four evaluations: the classical Runge-Kutta rule."""
    h = t1 - t0
    k1 = f(t0, x)
    k2 = f(t0 + h / 2, x + (h / 2) * k1)
    k3 = f(t0 + h / 2, x + (h / 2) * k2)
    k4 = f(t1, x + h * k3)
    return x + (h / 6) * (k1 + 2 * (k2 + k3) + k4)


STEP_RULES = {"euler": euler, "midpoint": midpoint, "rk4": rk4}
EVALUATIONS = {"euler": 1, "midpoint": 2, "rk4": 4}


def integrate(
    f: Callable, x: Any, times: list[float], method: str = "euler", zero_init: int = 0
) -> Iterator[Any]:
    """Solves dx/dt = f(t, x) along a grid, yielding the state after each step.

    The caller owns the loop, so progress bars, cancellation and lazy evaluation are its own.

    Args:
        f: velocity; takes a float time and a state.
        x: state at times[0]; any array type with arithmetic.
        times: increasing grid, for example of time_grid.
        method: a key of STEP_RULES.
        zero_init: steps at the start whose velocity is taken to be zero (CFG-Zero*, arXiv
            2503.18886): the state stays, and f is not called.
    """
    step = STEP_RULES[method]
    for index, (t0, t1) in enumerate(pairwise(times)):
        if index >= zero_init:
            x = step(f, x, t0, t1)
        yield x


def evaluation_times(times: list[float], method: str = "euler", zero_init: int = 0) -> list[float]:
    """The times at which integrate evaluates the velocity, in order."""
    asked: list[float] = []

    def f(t: float, _: float) -> float:
        asked.append(t)
        return 0.0

    for _ in integrate(f, 0.0, times, method, zero_init):
        pass
    return asked


def guide(conditional: Any, unconditional: Any, strength: Any) -> Any:
    """Classifier-free guidance (arXiv 2207.12598) in this project's convention: 0 is none."""
    return conditional + strength * (conditional - unconditional)


def best_scale(v_BNM: Any, onto_BNM: Any, weight_BN1: Any) -> Any:
    """The factor a of each item for which a * onto comes nearest to v: <v, onto> / |onto|^2.

    CFG-Zero* (arXiv 2503.18886, eq. 8) guides away from a * unconditional instead of from the
    unconditional velocity, which corrects for a velocity of the wrong magnitude.

    Args:
        v_BNM: conditional velocity.
        onto_BNM: unconditional velocity.
        weight_BN1: 1 for the frames to go by, 0 for the others. With none of them a is 1.

    Returns:
        (B, 1, 1).
    """
    along = (v_BNM * onto_BNM * weight_BN1).sum(axis=(1, 2), keepdims=True)
    square = (onto_BNM * onto_BNM * weight_BN1).sum(axis=(1, 2), keepdims=True)
    return (along + 1e-8) / (square + 1e-8)


def rescale(guided_BNM: Any, conditional_BNM: Any, weight_BN1: Any, share: Any) -> Any:
    """Brings what guidance inflates back to the mean and the spread of the conditional estimate.

    Strong guidance overshoots: pauses become too deep and peaks too loud. After Lin et al.
    (arXiv 2305.08891, section 3.4, eqs. 15 and 16), who do so for the prediction of the image;
    here it is the estimate of the mel, and its mean is kept as well.

    Args:
        guided_BNM: estimate of the mel with guidance.
        conditional_BNM: the same without.
        weight_BN1: 1 for the frames to go by, 0 for the others.
        share: 1 brings it back in full, 0 not at all.

    Returns:
        (B, N, M).
    """
    count = weight_BN1.sum(axis=(1, 2), keepdims=True) * guided_BNM.shape[2] + 1e-8

    def moments(x: Any) -> tuple[Any, Any]:
        mean = (x * weight_BN1).sum(axis=(1, 2), keepdims=True) / count
        square = ((x - mean) * (x - mean) * weight_BN1).sum(axis=(1, 2), keepdims=True) / count
        return mean, square**0.5 + 1e-8

    (mean, spread), (wanted, wide) = moments(guided_BNM), moments(conditional_BNM)
    scale = 1 + share * (wide / spread - 1)
    return mean + share * (wanted - mean) + scale * (guided_BNM - mean)


def rescaled_velocity(
    guided_BNM: Any, conditional_BNM: Any, x_BNM: Any, t: Any, weight_BN1: Any, share: Any
) -> Any:
    """A guided velocity whose estimate of the mel, x + (1 - t) v, is rescaled.

    Args:
        guided_BNM, conditional_BNM: velocities with guidance and without.
        x_BNM: the state at time t.
        t: a float, or (B, 1, 1).
        weight_BN1, share: as of rescale; with a share of 0 the velocity is returned as it is.
    """
    if share == 0:
        return guided_BNM
    rest = 1 - t + (t > 0.98) * 0.02  # no division by almost nothing
    found, plain = x_BNM + rest * guided_BNM, x_BNM + rest * conditional_BNM
    return (rescale(found, plain, weight_BN1, share) - x_BNM) / rest


def noise(frames: int, n_mels: int, seed: int) -> np.ndarray:
    """Standard normal float32 (frames, n_mels); the same for every backend and device.

    A longer draw of one seed begins with the shorter one.
    """
    return np.random.default_rng(seed).standard_normal((frames, n_mels), dtype=np.float32)


def share_frames(weights: np.ndarray, total: int, least: int = 1) -> np.ndarray:
    """Splits a whole number of frames in proportion to weights, every share at least `least`.

    Args:
        weights: float (T,), positive: the wanted share of each token.
        total: frames to hand out; fewer than T * least raises the total to that.

    Returns:
        int64 (T,), summing to max(total, T * least).
    """
    weights = np.asarray(weights, np.float64)
    spare = max(0, int(total) - least * len(weights))
    want = np.maximum(weights - least * weights.sum() / max(total, 1), 0)
    want = want if want.sum() > 0 else np.ones_like(weights)
    edges = np.rint(np.cumsum(want) * (spare / want.sum())).astype(np.int64)
    return np.diff(edges, prepend=0) + least
