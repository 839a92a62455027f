"""Sampling: solver order, time grids, guidance, noise, frames shared out."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from nanospeech.architectures import StudentConfig
from nanospeech.config import METHODS, SCHEDULES, ModelConfig, SampleOptions
from nanospeech.engine.sampling import (
    EPSS,
    EVALUATIONS,
    STEP_RULES,
    best_scale,
    evaluation_times,
    guide,
    integrate,
    noise,
    rescale,
    rescaled_velocity,
    share_frames,
    time_grid,
)
from nanospeech.errors import InputError


def solve(method: str, steps: int) -> float:
    """x' = x cos(t) from x(0) = 1, whose solution is exp(sin t), at t = 1."""
    *_, x = integrate(lambda t, x: x * math.cos(t), 1.0, time_grid(steps, "uniform", None), method)
    return x


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_order_of_each_solver(method, order):
    truth = math.exp(math.sin(1.0))
    coarse, fine = (abs(solve(method, n) - truth) for n in (16, 32))
    assert abs(math.log2(coarse / fine) - order) < 0.35


@pytest.mark.parametrize("method", METHODS)
def test_evaluations_are_counted_right(method):
    calls = []
    list(integrate(lambda t, x: calls.append(t) or x, 1.0, [0.0, 0.5, 1.0], method))
    assert len(calls) == 2 * EVALUATIONS[method]
    assert set(STEP_RULES) == set(EVALUATIONS) == set(METHODS)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sway", [None, -1.0, -0.5, 0.0, 0.9, 1.75])
def test_grids_run_from_0_to_1_and_never_back(schedule, sway):
    for steps in [*range(1, 40), 100, 1000]:
        grid = time_grid(steps, schedule, sway)
        assert len(grid) == steps + 1
        assert grid[0] == 0.0 and grid[-1] == 1.0
        assert all(a < b for a, b in pairwise(grid))


PAPERS_GRIDS = {  # arXiv 2505.19931, in 32nds
    5: "0 2 4 8 16 32",
    6: "0 2 4 6 8 16 32",
    7: "0 2 4 6 8 16 24 32",
    10: "0 2 4 6 8 12 16 20 24 28 32",
    12: "0 2 4 6 8 10 12 14 16 20 24 28 32",
    16: "0 1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32",
}


def test_epss_is_the_papers_grid_and_uniform_elsewhere():
    for steps, points in PAPERS_GRIDS.items():
        assert [32 * t for t in time_grid(steps, "epss", None)] == list(map(int, points.split()))
    assert set(EPSS) >= set(PAPERS_GRIDS)
    assert all(points[0] == 0 and points[-1] == 32 for points in EPSS.values())
    for steps in (9, 32):  # the whole grid is even
        assert time_grid(steps, "epss", -1.0) == time_grid(steps, "uniform", -1.0)
        assert np.allclose(time_grid(steps, "epss", None), np.arange(steps + 1) / steps)


def test_sway_is_that_of_the_paper():
    """t + s (cos(pi t / 2) - 1 + t), F5-TTS, eq. 5; s is -1 by default."""
    even = np.arange(10) / 9
    for s in (-1.0, 0.4):
        want = even + s * (np.cos(np.pi / 2 * even) - 1 + even)
        assert time_grid(9, "uniform", s) == pytest.approx(want, abs=1e-12)
    assert time_grid(9) == time_grid(9, "epss", -1.0) != time_grid(9, "epss", None)


@pytest.mark.parametrize("steps", [3, 4, 8])
def test_our_grids_are_points_of_the_next_of_the_papers(steps):
    larger = {3: 5, 4: 5, 8: 10}[steps]
    assert set(EPSS[steps]) - {24} < set(EPSS[larger]) and len(EPSS[steps]) == steps + 1
    gaps = np.diff(EPSS[steps])
    assert (np.diff(gaps) >= 0).all()  # steps grow, as the paper's do


def test_sway_favours_early_times():
    swayed, even = (time_grid(8, "uniform", s) for s in (-1.0, None))
    assert all(s < e for s, e in zip(swayed[1:-1], even[1:-1]))
    assert time_grid(8, "uniform", 0.0) == pytest.approx(even)


def test_integrate_yields_every_state():
    states = list(integrate(lambda t, x: 1.0, 0.0, time_grid(5, "epss", -1.0)))
    assert states == pytest.approx(time_grid(5, "epss", -1.0)[1:])


def test_guidance_of_zero_is_none_and_grows_along_the_difference():
    c, u = np.array([1.0, 2.0]), np.array([0.5, 3.0])
    assert np.array_equal(guide(c, u, 0), c)
    assert np.allclose(guide(c, u, 2), c + 2 * (c - u))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_zero_init_makes_the_first_velocities_zero(method, skipped):
    times, asked = time_grid(5), []
    states = list(integrate(lambda t, x: asked.append(t) or 1.0, 0.0, times, method, skipped))
    assert states[:skipped] == [0.0] * skipped
    assert np.allclose(np.diff(states[max(0, skipped - 1) :]), np.diff(times)[max(1, skipped) :])
    assert states[-1] == pytest.approx(1 - times[skipped])
    assert asked == evaluation_times(times, method, skipped)
    assert len(asked) == (5 - skipped) * EVALUATIONS[method]
    assert min(asked) == times[skipped]


def test_the_best_scale_is_that_of_a_multiple_and_the_nearest_of_all():
    rng = np.random.default_rng(0)
    onto, v = rng.standard_normal((2, 3, 9, 4))
    weight = np.ones((3, 9, 1))
    weight[0, 5:] = weight[1, :2] = 0
    wanted = np.array([0.5, -2.0, 1.0])[:, None, None]
    assert np.allclose(best_scale(wanted * onto, onto, weight), wanted)
    scale = best_scale(v, onto, weight)
    assert scale.shape == (3, 1, 1)

    def far(a):
        return (np.square(v - a * onto) * weight).sum((1, 2))

    assert (far(scale) < far(scale + 0.01)).all() and (far(scale) < far(scale - 0.01)).all()
    spoilt = v + 1e3 * (1 - weight)  # frames of no weight do not matter
    assert np.array_equal(best_scale(spoilt, onto, weight), scale)
    assert np.array_equal(best_scale(v, onto, weight * 0), np.ones((3, 1, 1)))


def test_rescaling_keeps_mean_and_spread_of_the_estimate_without_guidance():
    rng = np.random.default_rng(0)
    found, plain = 2 + 3 * rng.standard_normal((3, 9, 4)), 0.5 * rng.standard_normal((3, 9, 4))
    weight = np.ones((3, 9, 1))
    weight[0, 5:] = weight[1, :2] = 0
    inside = [row[w[:, 0] > 0] for row, w in zip(plain, weight)]
    whole, none, half = (rescale(found, plain, weight, share) for share in (1.0, 0.0, 0.5))
    for row, w, want in zip(whole, weight, inside):
        assert np.allclose(
            (row[w[:, 0] > 0].mean(), row[w[:, 0] > 0].std()), (want.mean(), want.std())
        )
    assert np.allclose(none, found) and np.allclose(half, (whole + found) / 2)
    bent = np.corrcoef(whole[2].ravel(), found[2].ravel())[0, 1]
    assert np.isclose(bent, 1)  # a scale and a shift: what is louder stays so
    spoilt = plain + 1e3 * (1 - weight)  # frames of no weight do not matter
    assert np.allclose(rescale(found, spoilt, weight, 1.0), whole)
    assert np.allclose(rescale(found, plain, weight * 0, 1.0), found)


@pytest.mark.parametrize("t", [0.0, 0.3, 0.98])
def test_a_rescaled_velocity_ends_at_the_rescaled_estimate(t):
    found, plain, x = np.random.default_rng(1).standard_normal((3, 2, 9, 4))
    weight = np.ones((2, 9, 1))
    v = rescaled_velocity(found, plain, x, t, weight, 0.7)
    wanted = rescale(x + (1 - t) * found, x + (1 - t) * plain, weight, 0.7)
    assert np.abs(x + (1 - t) * v - wanted).max() < 1e-6
    same = rescaled_velocity(found, found, x, t, weight, 1.0)
    assert np.allclose(same, found, atol=1e-6)
    times = np.full((2, 1, 1), t)  # a time for each item is the same
    assert np.allclose(rescaled_velocity(found, plain, x, times, weight, 0.7), v)


def test_noise_repeats_and_a_longer_draw_begins_with_the_shorter():
    assert np.array_equal(noise(9, 100, 5), noise(20, 100, 5)[:9])
    assert not np.array_equal(noise(9, 100, 5), noise(9, 100, 6))
    assert noise(9, 100, 5).dtype == np.float32


@pytest.mark.parametrize("least", [0, 1, 2])
def test_shared_frames_sum_and_keep_the_least(least):
    rng = np.random.default_rng(0)
    for _ in range(200):
        tokens = int(rng.integers(1, 30))
        weights = rng.lognormal(0, 1.5, tokens)
        total = int(rng.integers(0, 200))
        shares = share_frames(weights, total, least)
        assert shares.dtype == np.int64 and len(shares) == tokens
        assert shares.sum() == max(total, tokens * least)
        assert shares.min() >= least


def test_shared_frames_follow_the_weights():
    assert share_frames(np.array([1.0, 2.0, 3.0]), 60).tolist() == [10, 20, 30]
    assert share_frames(np.ones(4), 10).sum() == 10
    assert np.ptp(share_frames(np.ones(4), 10)) <= 1
    weights = np.array([1.0, 2.0, 3.0, 0.1])
    for scale in (1e-4, 1.0, 1e4):  # only proportions matter
        assert share_frames(scale * weights, 50).tolist() == share_frames(weights, 50).tolist()
    assert share_frames(np.zeros(3), 9).tolist() == [3, 3, 3]
    assert share_frames(weights, 7).min() == 1 == share_frames(weights, 0).max()  # at least one


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"method": "heun"}, "euler, midpoint, rk4"),
        ({"schedule": "cosine"}, "epss, uniform"),
        ({"steps": 0}, "1 to 1000"),
        ({"steps": 2.5}, "a whole number"),
        ({"cfg_strength": -1.0}, "0 to 100"),
        ({"sway_sampling_coef": -2.0}, "-1 to 1.75"),
        ({"guidance": "apg"}, "cfg, cfg-zero"),
        ({"zero_init": 3}, "choose 0 to 2"),
        ({"zero_init": 2, "steps": 2}, "choose 0 to 1"),
        ({"zero_init": -1}, "choose 0 to 2"),
        ({"cfg_from": -0.1}, "0 <= cfg_from"),
        ({"cfg_until": 1.5}, "cfg_until <= 1"),
        ({"cfg_from": 0.6, "cfg_until": 0.5}, "cfg_from is 0.6"),
        ({"cfg_until": float("nan")}, "cfg_until nan"),
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"cfg_rescale": 1.5}, "cfg_rescale is 1.5; choose 0 to 1"),
    ],
)
def test_wrong_options_name_the_choices(fields, word):
    with pytest.raises(InputError, match=word):
        SampleOptions(**fields)


@pytest.mark.parametrize("kind", [SampleOptions, ModelConfig, StudentConfig])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_guidance_takes_back_has_the_same_bounds_wherever_it_is_chosen(kind, value):
    with pytest.raises(InputError, match=f"cfg_rescale is {value}; choose 0 to 1"):
        kind(cfg_rescale=value)
