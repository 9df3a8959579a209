"""The scalability law: known curves are found again, noise widens the interval, too few sizes say nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.forecast.scaling_law import fit

SIZES = (1, 2, 4, 8, 16, 32, 64)


def _curve(rate, contention, crosstalk, sizes=SIZES):
    return [(n, [rate * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))]) for n in sizes]


@given(st.floats(1e3, 1e12), st.floats(0, 0.9), st.floats(0, 0.05))
@settings(max_examples=200, deadline=None)
def test_a_curve_without_noise_is_found_again(rate, contention, crosstalk):
    """λ, σ, κ, and the knee that they make, to a millionth; the curve passes through every point."""
    law = fit(_curve(rate, contention, crosstalk))
    assert law.rate.value == pytest.approx(rate, rel=1e-4)
    assert law.contention.value == pytest.approx(contention, abs=1e-4)
    assert law.crosstalk.value == pytest.approx(crosstalk, abs=1e-5)
    assert law.error < 1e-4
    assert not law.has_intervals and law.rate.low == law.rate.high == law.rate.value


def test_the_knee_is_where_the_rate_is_highest():
    """√((1 − σ) ÷ κ): 30 ranks here, and the curve is lower on both sides of it."""
    law = fit(_curve(100.0, 0.1, 0.001))
    assert law.knee.value == pytest.approx(30, rel=1e-3)
    assert law.ceiling == pytest.approx(law.at(30), rel=1e-6)
    assert law.at(29) < law.ceiling > law.at(31)


def test_without_crosstalk_the_rate_levels_off_and_has_no_knee():
    """A full server: λ ÷ σ and no peak; straight growth has no ceiling at all."""
    full = fit(_curve(100.0, 0.25, 0.0))
    assert math.isinf(full.knee.value) and full.ceiling == pytest.approx(400, rel=1e-6)
    straight = fit(_curve(100.0, 0.0, 0.0))
    assert math.isinf(straight.ceiling) and straight.contention.value == pytest.approx(0, abs=1e-9)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """Twenty sweeps with five per cent noise, five rounds a size: σ lies within its 95 % interval in most of them."""
    random, held, trials = np.random.default_rng(1), 0, 20
    for _ in range(trials):
        points = [(n, (rates[0] * random.normal(1, 0.05, 5)).tolist()) for n, rates in _curve(100.0, 0.2, 0.0005)]
        law = fit(points)
        assert law.has_intervals and law.contention.low <= law.contention.value <= law.contention.high
        held += law.contention.low <= 0.2 <= law.contention.high
    assert held >= 0.75 * trials  # a bootstrap over five rounds is a little narrow


def test_more_than_linear_growth_is_no_negative_cost():
    """Caches that grow with the world: σ and κ stay at nought, and the error tells that the law does not fit."""
    law = fit([(1, [100.0]), (2, [260.0]), (4, [700.0])])
    assert law.contention.value == law.crosstalk.value == 0
    assert law.error > 0.2


@pytest.mark.parametrize("sizes", [(), (1,), (1, 2)])
def test_too_few_sizes_give_no_law(sizes):
    """Three coefficients through two points are a wish."""
    assert fit(_curve(100.0, 0.1, 0.01, sizes)) is None
