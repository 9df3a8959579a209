"""Rounds by rounds: what resampling and rank tests say of known differences, and of none."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from ckptstorm.report import resampling


def _rounds(count: int, middle: float = 1.0, spread: float = 0.01, seed: int = 1):
    return np.random.default_rng(seed).normal(middle, spread * middle, count)


def test_the_interval_holds_the_true_change():
    """10 % planted between rounds that scatter by 1 %; the same numbers give the same answer."""
    found = resampling.change_interval(_rounds(8), _rounds(8, 1.1, seed=2), 0.95)
    assert found.low < 0.10 < found.high
    assert found.low > 0.05
    assert found == resampling.change_interval(_rounds(8), _rounds(8, 1.1, seed=2), 0.95)


def test_of_rounds_that_do_not_differ_few_look_so():
    """200 pairs of 6 rounds of one kind: no more than 1 in 20 (and a margin for luck) have odds of 5 % or less."""
    alarms = 0
    for seed in range(200):
        before, after = _rounds(6, spread=0.2, seed=2 * seed), _rounds(6, spread=0.2, seed=2 * seed + 1)
        alarms += resampling.chance(before, after) <= 0.05
    assert alarms <= 20


def test_the_odds_of_rounds_that_do_not_overlap():
    """Exactly 2 in C(n+m, n): so 3 and 3 rounds can never show more than 1 in 10."""
    before, after = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    assert resampling.chance(before, after) == pytest.approx(0.1) == resampling.least_chance(3, 3)
    assert resampling.least_chance(5, 5) == pytest.approx(2 / 252)


def test_ties_share_their_ranks():
    """Equal rounds are no difference, and a constant beside a constant none either."""
    assert resampling.chance(np.ones(5), np.ones(5)) == 1.0
    assert resampling.chance(np.array([1.0, 1, 2, 2]), np.array([1.0, 2, 1, 2])) == 1.0


def test_many_rounds_are_not_counted_one_by_one():
    """40 rounds a side have 10^23 arrangements: the approximation answers, on either side of the counted range."""
    assert resampling.chance(_rounds(40), _rounds(40, seed=2)) > 0.01
    assert resampling.chance(_rounds(40), _rounds(40, 1.05, seed=2)) < 1e-6
    assert resampling.chance(np.ones(40), np.ones(40)) == 1.0
    counted = resampling.chance(_rounds(8), _rounds(8, 1.01, seed=2))
    assert 0 < counted < 1


def test_a_trend_is_told_from_disorder():
    """Ten nights that creep up by 1 % each; the same nights shuffled."""
    rising = np.array([1.01**night for night in range(10)])
    assert resampling.trend_chance(rising) < 0.001
    assert resampling.drift(rising) == pytest.approx(0.094, abs=0.01)
    shuffled = rising.tolist()
    random.Random(3).shuffle(shuffled)
    assert resampling.trend_chance(np.array(shuffled)) > 0.05


def test_a_steep_rise_has_a_finite_drift():
    """The line through it begins below nothing: the first value is the measure then."""
    assert resampling.drift(np.array([1.0, 100.0, 10_000.0])) == pytest.approx(9_999.0, rel=0.5)


def test_few_values_are_counted_exactly():
    """Four in perfect order come up in 2 of 24 orders; equal ones are in none."""
    assert resampling.trend_chance(np.array([1.0, 2, 3, 4])) == pytest.approx(2 / math.factorial(4))
    assert resampling.least_trend_chance(4) == pytest.approx(2 / 24)
    assert resampling.trend_chance(np.ones(6)) == 1.0
